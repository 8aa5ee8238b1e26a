"""A TCP proxy between a source and its server. A test can make it silent, slow or dead, and healthy again."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

Mode = Literal["healthy", "silent", "slow", "dead"]


class StallingProxy:
    """Forwards connections to `target`, a URL, as a context manager. The mode is one of these:

    - healthy: requests and answers are forwarded.
    - silent: connections are accepted and requests are read, but never answered.
    - slow: each answer is delayed by `delay` seconds.
    - dead: new connections are refused, and open connections are closed.
    """

    def __init__(self, target: str, *, delay: float = 1.0) -> None:
        parts = urlsplit(target)
        self._target = (str(parts.hostname), parts.port or 80)
        self.delay = delay
        self.mode: Mode = "healthy"
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._held_changed = threading.Condition(self._lock)
        self._open: set[socket.socket] = set()
        self._held: set[socket.socket] = set()
        """Connections of the source with a request that was not answered because of the silent mode."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> StallingProxy:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._shut(self._listener)
        self.reset()

    def holds(self) -> set[int]:
        """Return the ids of the connections with a request that is not answered yet."""
        with self._lock:
            return {id(connection) for connection in self._held}

    def wait_until_held(self, number: int = 1, timeout: float = 20.0) -> None:
        """Wait until `number` connections have a request that is not answered yet."""
        with self._held_changed:
            assert self._held_changed.wait_for(lambda: len(self._held) >= number, timeout), "nothing was requested"

    def set(self, mode: Mode) -> None:
        """Change the mode, also for open connections. The end of the silent mode drops all connections."""
        previous, self.mode = self.mode, mode
        if mode == "dead":
            self._shut(self._listener)
            self.reset()
        elif previous == "dead":
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listen()
        elif previous == "silent":
            self.reset()

    def reset(self) -> None:
        """Drop all connections."""
        with self._lock:
            dropped = list(self._open)
            self._open.clear()
            self._held.clear()
        for connection in dropped:
            self._shut(connection)

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._ended.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream: socket.socket | None = None
        try:
            while data := client.recv(65_536):
                if self.mode == "silent":
                    with self._held_changed:
                        self._held.add(client)
                        self._held_changed.notify_all()
                    continue
                if upstream is None:
                    upstream = socket.create_connection(self._target)
                    with self._lock:
                        self._open.add(upstream)
                    threading.Thread(target=self._answer, args=(upstream, client), daemon=True).start()
                upstream.sendall(data)
        except OSError:
            pass
        finally:
            self._drop(client)
            if upstream is not None:
                self._drop(upstream)

    def _answer(self, upstream: socket.socket, client: socket.socket) -> None:
        try:
            while data := upstream.recv(65_536):
                if self.mode == "slow":
                    self._ended.wait(self.delay)
                if self.mode == "silent":  # the answer to a request from before the silent mode
                    with self._held_changed:
                        self._held.add(client)
                        self._held_changed.notify_all()
                    continue
                client.sendall(data)
        except OSError:
            pass
        finally:
            self._drop(client)

    def _drop(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
            self._held.discard(connection)
        self._shut(connection)

    @staticmethod
    def _shut(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
