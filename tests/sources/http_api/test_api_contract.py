"""The contract of a source, for an API behind uvicorn and for one in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sources.http_api.conftest import ShopServer
from tests.sources.http_api.shop import TOKEN, Shop, make_shop
from wharfinger.sources import openapi
from wharfinger.sources.http_api import HttpApi
from wharfinger.testing import SourceContract

EVERY_SECONDS = 0.1
FAULTS = ("elsewhere", "slow", "endless", "broken", "busy", "account", "keys", "picture", "latin")


def document_without_faults(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without the operations that fail, since all that is listed must be readable."""
    paths = {path: item for path, item in document["paths"].items() if path.strip("/") not in FAULTS}
    return {**document, "paths": paths}


class TestServedApi(SourceContract):
    """Behind uvicorn, with the document at a URL that changes."""

    missing = "api://shop/orders/4711"
    windowed = "api://shop/notices"
    secret = TOKEN

    @pytest.fixture
    def source(self, served: ShopServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpApi]:
        monkeypatch.setenv("WHARFINGER_OPENAPI_SHOP_TOKEN", TOKEN)
        self.served = served
        served.shop.hidden = FAULTS
        yield openapi(f"{served.url}/openapi-live.json", label="shop", every=EVERY_SECONDS)
        if not served.is_up:
            served.start()

    def change(self, source: Any) -> str:
        order = self.served.shop.orders[1]
        order["amount"] += 1
        return "api://shop/orders/1"

    def add(self, source: Any) -> str:
        number = self.served.shop.extra
        self.served.shop.extra += 1
        return f"api://shop/extra/{number}"

    def whole(self, source: Any) -> str:
        return "".join(f"notice {number}: all is well\n" for number in range(60_000))

    def hide(self, source: Any) -> Callable[[], object]:
        self.served.stop()
        return self.served.start


class TestApiInThisProcess(SourceContract):
    """As an ASGI application, without ETags."""

    missing = "api://rope-shop/orders/4711"
    windowed = "api://rope-shop/notices"

    @pytest.fixture
    def source(self) -> HttpApi:
        self.shop = Shop()
        self.shop.etags = False
        app = make_shop(self.shop)
        return openapi(document_without_faults(app.openapi()), app=app, every=EVERY_SECONDS)

    def change(self, source: Any) -> str:
        self.shop.orders[1]["amount"] += 1
        return "api://rope-shop/orders/1"

    def whole(self, source: Any) -> str:
        return "".join(f"notice {number}: all is well\n" for number in range(60_000))

    def hide(self, source: Any) -> Callable[[], object]:
        self.shop.down = True

        def bring_back() -> None:
            self.shop.down = False

        return bring_back
