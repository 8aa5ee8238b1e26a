"""How many processes are to serve one application, as far as their starter's environment and command say it."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import PurePath

from wharfinger.server.cursors import Keys

__all__ = ["check_secret", "workers"]

_STARTERS = frozenset(("uvicorn", "gunicorn", "hypercorn", "granian"))
_OPTIONS = ("--workers", "-w")


def workers() -> int:
    """The number that `WEB_CONCURRENCY` or the command of a known server names; 1 where nothing does."""
    found = [os.environ.get("WEB_CONCURRENCY", ""), *_told(os.environ.get("GUNICORN_CMD_ARGS", "").split())]
    parts = PurePath(sys.argv[0]).with_suffix("").parts if sys.argv else ()
    if _STARTERS.intersection(parts):  # also `python -m uvicorn`, whose path ends in uvicorn/__main__.py
        found += _told(sys.argv[1:])
    return max((int(text) for text in found if text.isdecimal()), default=1)


def _told(words: list[str]) -> list[str]:
    """What stands after the options for the number, in their three ways of writing."""
    found = [following for word, following in pairwise(words) if word in _OPTIONS]
    found += [word.partition("=")[2] for word in words if word.startswith("--workers=")]
    return found + [word[2:] for word in words if word.startswith("-w") and len(word) > 2]


def check_secret(keys: Keys) -> None:
    """Raise where several processes would each seal with a key of their own.

    Raises:
        RuntimeError: they would.
    """
    number = workers()
    if keys.random and number > 1:
        raise RuntimeError(
            f"{number} workers serve this, and none could open what another has sealed (cursors, the states of calls "
            "that ask): set WHARFINGER_SECRET to the same long random text for all of them, or pass Server(secret=…)."
        )
