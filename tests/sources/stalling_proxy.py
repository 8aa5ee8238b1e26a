"""A TCP proxy between a source and its real server, which can be made silent, slow or dead, and healthy again."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

Mode = Literal["healthy", "silent", "slow", "dead"]


class StallingProxy:
    """Forwards to `target` (a URL), from `__enter__` to `__exit__`.

    silent: connections are accepted, and what they send is read, but nothing is ever answered. slow: each answer waits
    for `delay` seconds. dead: nothing listens, and open connections are reset.
    """

    def __init__(self, target: str, *, delay: float = 1.0) -> None:
        parts = urlsplit(target)
        self._target = (str(parts.hostname), parts.port or 80)
        self.delay = delay
        self.mode: Mode = "healthy"
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._asked = threading.Condition(self._lock)
        self._open: set[socket.socket] = set()
        self._held: set[socket.socket] = set()
        """Connections of the source that have sent something in silent mode and got nothing."""
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
        """The connections (by their number) that have sent a request and still wait for an answer."""
        with self._lock:
            return {id(each) for each in self._held}

    def wait_until_held(self, number: int = 1, timeout: float = 20.0) -> None:
        """Wait until so many connections wait for an answer."""
        with self._asked:
            assert self._asked.wait_for(lambda: len(self._held) >= number, timeout), "nothing was requested"

    def set(self, mode: Mode) -> None:
        """Change the behaviour from now on, also of open connections. Becoming healthy drops those that were held."""
        was, self.mode = self.mode, mode
        if mode == "dead":
            self._shut(self._listener)
            self.reset()
        elif was == "dead":
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listen()
        elif was == "silent":
            self.reset()

    def reset(self) -> None:
        """Drop all connections."""
        with self._lock:
            dropped = list(self._open)
            self._open.clear()
            self._held.clear()
        for each in dropped:
            self._shut(each)

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._ended.is_set():
            try:
                near, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        far: socket.socket | None = None
        try:
            while data := near.recv(65_536):
                if self.mode == "silent":
                    with self._asked:
                        self._held.add(near)
                        self._asked.notify_all()
                    continue
                if far is None:
                    far = socket.create_connection(self._target)
                    with self._lock:
                        self._open.add(far)
                    threading.Thread(target=self._answer, args=(far, near), daemon=True).start()
                far.sendall(data)
        except OSError:
            pass
        finally:
            self._drop(near)
            if far is not None:
                self._drop(far)

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        try:
            while data := far.recv(65_536):
                if self.mode == "slow":
                    self._ended.wait(self.delay)
                if self.mode == "silent":  # the answer to a request that was sent before
                    with self._asked:
                        self._held.add(near)
                        self._asked.notify_all()
                    continue
                near.sendall(data)
        except OSError:
            pass
        finally:
            self._drop(near)

    def _drop(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
            self._held.discard(one)
        self._shut(one)

    @staticmethod
    def _shut(one: socket.socket) -> None:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
