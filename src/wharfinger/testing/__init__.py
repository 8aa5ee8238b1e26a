"""Tools for testing servers and clients. Each is imported on first use.

`client`, `ClientFactory`, `REVISIONS` and `SourceContract` need pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wharfinger.testing.client_answers import Answers, Script
    from wharfinger.testing.contract import SourceContract
    from wharfinger.testing.fixtures import REVISIONS, ClientFactory, client
    from wharfinger.testing.mismatch import Mismatch
    from wharfinger.testing.rehearsal import rehearse
    from wharfinger.testing.transcripts import Transcript
    from wharfinger.testing.wire import Replay, Wire

__all__ = [
    "REVISIONS",
    "Answers",
    "ClientFactory",
    "Mismatch",
    "Replay",
    "Script",
    "SourceContract",
    "Transcript",
    "Wire",
    "client",
    "rehearse",
]

_MODULES = {
    "REVISIONS": "fixtures",
    "Answers": "client_answers",
    "ClientFactory": "fixtures",
    "Mismatch": "mismatch",
    "Replay": "wire",
    "Script": "client_answers",
    "SourceContract": "contract",
    "Transcript": "transcripts",
    "Wire": "wire",
    "client": "fixtures",
    "rehearse": "rehearsal",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
