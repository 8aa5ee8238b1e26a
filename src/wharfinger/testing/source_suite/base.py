"""What an author says of a source under test, and the fixtures that put it on a stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from wharfinger.source import Source
from wharfinger.testing.source_suite.stage import Stage, expect

__all__ = ["Contract"]


class Contract:
    """Subclass it with a name that begins with `Test`, a fixture `source`, and what of the rest your source has."""

    missing: str = ""
    """A URI of the source that names nothing."""

    windowed: str | None = None
    """The URI of something that is read in windows without asking for one; None where there is nothing of the kind."""

    live: bool = False
    """True where contents change by themselves at any time, as the load of a machine does."""

    secret: str = ""
    """What the source knows and may never tell, such as a password; empty where it knows nothing."""

    def change(self, source: Any) -> str | None:
        """Change a published thing; the URI whose watchers must be told, the same each time. None: nothing can be."""
        return None

    def add(self, source: Any) -> str | None:
        """Add a resource, so that the list changes; its URI. None: lists never change."""
        return None

    def whole(self, source: Any) -> str | bytes | None:
        """What the windows of `windowed` are when joined; None: their size is compared, where it is known."""
        return None

    @pytest.fixture
    def source(self) -> Any:
        """The source under test."""
        raise TypeError(f"{type(self).__name__} needs a fixture `source` that returns or yields a Source.")

    @pytest.fixture
    def stage(self, source: Source) -> Iterator[Stage]:
        """The source, started."""
        with Stage(source) as stage:
            stage.run(source.start())
            yield stage
            stage.run(source.close())

    def change_again(self, stage: Stage, uri: str) -> None:
        """`change`, for what was changed before."""
        changed = self.change(stage.source)
        problem = f"`change` of {type(self).__name__} must change the same URI each time: {uri}, then {changed}."
        expect(changed == uri, "The suite", problem)
