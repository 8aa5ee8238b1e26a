"""An HTTP API for tests: a FastAPI application of orders, with ETags, dates, pages and faults.

`make_shop` returns it. `python -m tests.sources.http_api.shop PORT` serves it with uvicorn.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from fastapi.security import APIKeyHeader, HTTPBearer
from pydantic import BaseModel

__all__ = ["TOKEN", "Shop", "make_shop"]

TOKEN = "tok-4f1f0c8e2b"
"""The token that the protected operations accept."""


class Status(StrEnum):
    open = "open"
    shipped = "shipped"
    failed = "failed"


class Harbour(StrEnum):
    hull = "hull"
    whitby = "whitby"


class Order(BaseModel):
    product: str
    amount: int
    note: str | None = None


class Shop:
    """The data and the faults of a shop, which tests change, and the requests it has received."""

    def __init__(self) -> None:
        self.orders: dict[int, dict[str, Any]] = {
            number: {
                "id": number,
                "product": f"rope {number}",
                "status": list(Status)[number % 3].value,
                "amount": number,
            }
            for number in range(1, 26)
        }
        self.sends_etags = True
        self.is_down = False
        self.requests: list[Request] = []
        self.not_modified = 0
        self.extra_paths = 0  # of the document at /openapi-live.json
        self.hidden_paths: tuple[str, ...] = ()
        self.running = 0  # applications whose lifespan has begun

    def headers(self, value: Any) -> dict[str, str]:
        if not self.sends_etags:
            return {}
        return {"etag": f'"{abs(hash(json.dumps(value, sort_keys=True))):x}"', "cache-control": "no-cache"}


def make_shop(shop: Shop) -> FastAPI:
    """Return the application of a shop."""
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        shop.running += 1
        yield {"greeting": "ahoy"}
        shop.running -= 1

    app = FastAPI(title="Rope shop", version="1.2", description="Ropes and their orders.", lifespan=lifespan)
    bearer, key = HTTPBearer(auto_error=False), APIKeyHeader(name="X-Shop-Key", auto_error=False)

    @app.middleware("http")
    async def record_request(request: Request, call_next: Any) -> Any:
        shop.requests.append(request)
        if shop.is_down:
            return Response(status_code=503)
        return await call_next(request)

    def respond(request: Request, value: Any, extra_headers: dict[str, str] | None = None) -> Response:
        headers = {**shop.headers(value), **(extra_headers or {})}
        if "etag" in headers and request.headers.get("if-none-match") == headers["etag"]:
            shop.not_modified += 1
            return Response(status_code=304, headers=headers)
        return JSONResponse(value, headers=headers)

    @app.get("/orders", tags=["orders"], summary="List orders")
    async def list_orders(
        request: Request,
        status: Annotated[Status | None, Query(description="only orders of this status")] = None,
        product: Annotated[list[str] | None, Query(max_length=3)] = None,
        page: Annotated[int, Query(ge=1)] = 1,
        per_page: Annotated[int, Query(ge=1, le=100)] = 10,
    ) -> Response:
        orders = [order for order in shop.orders.values() if status is None or order["status"] == status.value]
        orders = [order for order in orders if not product or order["product"] in product]
        begin = (page - 1) * per_page
        links: list[str] = []
        if begin + per_page < len(orders):
            links.append(f'<{request.url.include_query_params(page=page + 1)}>; rel="next"')
        if page > 1:
            links.append(f'<{request.url.include_query_params(page=page - 1)}>; rel="prev"')
        return respond(request, orders[begin : begin + per_page], {"link": ", ".join(links)} if links else None)

    @app.get("/orders/{order_id}", tags=["orders"], summary="Show an order")
    async def show_order(request: Request, order_id: int) -> Response:
        if order_id not in shop.orders:
            raise HTTPException(404, "no such order")
        return respond(request, shop.orders[order_id])

    @app.post("/orders", tags=["orders"], summary="Place an order", operation_id="place_order", status_code=201)
    async def place_order(order: Order, dry_run: bool = False) -> dict[str, Any]:
        number = max(shop.orders) + 1
        placed = {"id": number, "status": "open", **order.model_dump(exclude_none=True)}
        if not dry_run:
            shop.orders[number] = placed
        return placed

    @app.delete("/orders/{order_id}", tags=["orders"], operation_id="cancel_order", status_code=204)
    async def cancel_order(order_id: int) -> None:
        if shop.orders.pop(order_id, None) is None:
            raise HTTPException(404, "no such order")

    @app.get("/harbours/{harbour}", tags=["harbours"], summary="Show a harbour")
    async def show_harbour(request: Request, harbour: Harbour) -> Response:
        return respond(request, {"name": harbour.value, "depth": 7})

    @app.get("/tides", tags=["harbours"], summary="Today's tides")
    async def tides() -> Response:
        return JSONResponse({"high": "14:20"}, headers={"cache-control": "max-age=120, public"})

    @app.get("/notices", tags=["harbours"], summary="Notices to mariners", response_class=PlainTextResponse)
    async def notices(request: Request) -> Response:
        headers = {"last-modified": email.utils.formatdate(1_700_000_000, usegmt=True)}
        if request.headers.get("if-modified-since") == headers["last-modified"]:
            shop.not_modified += 1
            return Response(status_code=304, headers=headers)
        return PlainTextResponse(
            "".join(f"notice {number}: all is well\n" for number in range(60_000)), headers=headers
        )

    @app.get("/cursors", tags=["pages"])
    async def cursors(cursor: str = "0", limit: int = 10) -> dict[str, Any]:
        numbers = list(range(25))[int(cursor) :][:limit]
        following = int(cursor) + limit
        return {"items": numbers, "next_cursor": str(following) if following < 25 else None}

    @app.get("/offsets", tags=["pages"])
    async def offsets(offset: int = 0, limit: int = 10) -> list[int]:
        return list(range(25))[offset:][:limit]

    @app.get("/account", tags=["account"], dependencies=[Depends(bearer)])
    async def account(request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise HTTPException(401, "a token is required")
        return JSONResponse({"name": "Ann", "echo": dict(request.headers)})

    @app.get("/keys", tags=["account"], dependencies=[Depends(key)])
    async def keys(request: Request) -> Response:
        if request.headers.get("x-shop-key") != TOKEN:
            raise HTTPException(403, "this key is not accepted")
        return JSONResponse({"keys": 1})

    @app.get("/elsewhere", tags=["faults"])
    async def elsewhere(request: Request) -> Response:
        return RedirectResponse(request.query_params.get("to", "http://elsewhere.example/secret"))

    @app.get("/moved", tags=["faults"])
    async def moved() -> Response:
        return RedirectResponse("/tides")

    @app.get("/slow", tags=["faults"])
    async def slow() -> str:
        await asyncio.sleep(60)
        return "late"

    @app.get("/endless", tags=["faults"])
    async def endless() -> Response:
        async def chunks() -> Any:
            for _ in range(100_000):
                yield b"x" * 65_536

        return StreamingResponse(chunks(), media_type="text/plain")

    @app.get("/broken", tags=["faults"])
    async def broken() -> Response:
        return JSONResponse({"detail": "the crane is broken"}, status_code=500)

    @app.get("/busy", tags=["faults"])
    async def busy() -> Response:
        return JSONResponse({"detail": "too many"}, status_code=429, headers={"retry-after": "30"})

    @app.get("/strict", tags=["faults"], summary="Needs a header")
    async def strict(tenant: Annotated[str, Header()]) -> dict[str, str]:
        return {"tenant": tenant}

    @app.get("/latin", tags=["faults"], response_class=PlainTextResponse)
    async def latin() -> Response:
        return Response("Grüße".encode("latin-1"), media_type="text/plain; charset=iso-8859-1")

    @app.get("/picture", tags=["faults"])
    async def picture() -> Response:
        return Response(b"<html>not a picture</html>", media_type="image/png")

    @app.get("/state", tags=["faults"])
    async def state(request: Request) -> dict[str, str]:
        return {"greeting": getattr(request.state, "greeting", "")}

    @app.get("/openapi-live.json", include_in_schema=False)
    async def live() -> Response:
        document = app.openapi()
        paths = {path: item for path, item in document["paths"].items() if path.strip("/") not in shop.hidden_paths}
        for number in range(shop.extra_paths):
            paths[f"/extra/{number}"] = {
                "get": {"summary": f"Extra {number}", "responses": {"200": {"description": ""}}}
            }
        return JSONResponse({**document, "paths": paths})

    @app.get("/extra/{number}", include_in_schema=False)
    async def extra(number: int) -> dict[str, int]:
        return {"number": number}

    return app


if __name__ == "__main__":
    import sys

    import uvicorn

    uvicorn.run(make_shop(Shop()), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
