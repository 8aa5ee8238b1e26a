"""An event loop in a thread ends, and so does every call that waits for it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from wharfinger.sources import loop_thread
from wharfinger.sources.loop_thread import LoopThread


@pytest.mark.parametrize("resists", [False, True])
def test_a_call_is_cancelled_by_close_even_if_its_coroutine_resists(
    resists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the call of a coroutine that resists waited for ever."""
    monkeypatch.setattr(loop_thread, "CLOSE_SECONDS", 0.01)
    loop = LoopThread("wharfinger-test")
    begun = threading.Event()
    cancelled = threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not resists:
                raise
            await asyncio.Event().wait()

    def call() -> None:
        with pytest.raises(CancelledError):
            loop.run(work())
        cancelled.set()

    threading.Thread(target=call, daemon=True).start()
    assert begun.wait(20)
    loop.close()
    assert cancelled.wait(20)
    assert not loop.running
