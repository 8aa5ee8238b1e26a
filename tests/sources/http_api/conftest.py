"""A shop API served by uvicorn, whose data tests change."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import uvicorn

from tests.conftest import free_port
from tests.sources.http_api.shop import Shop, make_shop
from tests.waiting import wait_until

__all__ = ["ShopServer", "shop_server"]


class ShopServer:
    """Serves a shop with uvicorn in a thread. It can be stopped, and started again on the same port."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.app = make_shop(self.shop)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=self.port, log_level="error", timeout_graceful_shutdown=0
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started, "uvicorn starts")

    @property
    def is_up(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)


@pytest.fixture
def shop_server() -> Iterator[ShopServer]:
    server = ShopServer()
    yield server
    server.stop()
