"""The contract of a source, for an API that uvicorn serves and for an ASGI application in this process."""

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
    """Return the document without the operations that fail, because listed resources must be readable."""
    paths = {path: item for path, item in document["paths"].items() if path.strip("/") not in FAULTS}
    return {**document, "paths": paths}


class TestServedApi(SourceContract):
    """uvicorn serves the API and its document, which changes."""

    missing = "api://shop/orders/4711"
    windowed = "api://shop/notices"
    secret = TOKEN

    @pytest.fixture
    def source(self, shop_server: ShopServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpApi]:
        monkeypatch.setenv("WHARFINGER_OPENAPI_SHOP_TOKEN", TOKEN)
        self.server = shop_server
        shop_server.shop.hidden_paths = FAULTS
        yield openapi(f"{shop_server.url}/openapi-live.json", label="shop", every=EVERY_SECONDS)
        if not shop_server.is_up:
            shop_server.start()

    def change(self, source: Any) -> str:
        order = self.server.shop.orders[1]
        order["amount"] += 1
        return "api://shop/orders/1"

    def add(self, source: Any) -> str:
        number = self.server.shop.extra_paths
        self.server.shop.extra_paths += 1
        return f"api://shop/extra/{number}"

    def whole(self, source: Any) -> str:
        return "".join(f"notice {number}: all is well\n" for number in range(60_000))

    def hide(self, source: Any) -> Callable[[], object]:
        self.server.stop()
        return self.server.start


class TestApiInThisProcess(SourceContract):
    """The API is an ASGI application and sends no ETags."""

    missing = "api://rope-shop/orders/4711"
    windowed = "api://rope-shop/notices"

    @pytest.fixture
    def source(self) -> HttpApi:
        self.shop = Shop()
        self.shop.sends_etags = False
        app = make_shop(self.shop)
        return openapi(document_without_faults(app.openapi()), app=app, every=EVERY_SECONDS)

    def change(self, source: Any) -> str:
        self.shop.orders[1]["amount"] += 1
        return "api://rope-shop/orders/1"

    def whole(self, source: Any) -> str:
        return "".join(f"notice {number}: all is well\n" for number in range(60_000))

    def hide(self, source: Any) -> Callable[[], object]:
        self.shop.is_down = True

        def end_outage() -> None:
            self.shop.is_down = False

        return end_outage
