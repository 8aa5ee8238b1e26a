"""The attributes and methods with which an author describes a source under test, and the fixtures of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from wharfinger.source import Source
from wharfinger.testing.source_suite.driver import SourceDriver, expect

__all__ = ["ContractBase"]


class ContractBase:
    """The base class of every part of the suite; see `SourceContract`."""

    missing: str = ""
    """A URI of the source that names nothing."""

    windowed: str | None = None
    """The URI of a resource so large that reading it returns a first window; None if there is none."""

    live: bool = False
    """True if contents change by themselves at any time, like the load of a machine."""

    secret: str = ""
    """A text that the source must not reveal, such as a password."""

    def change(self, source: Any) -> str | None:
        """Change a resource. Returns its URI, the same each time; None if no resource can change."""
        return None

    def add(self, source: Any) -> str | None:
        """Add a resource, which changes the list. Returns its URI; None if the list never changes."""
        return None

    def whole(self, source: Any) -> str | bytes | None:
        """Return the whole content of `windowed`; None to compare only its size, if `stat` reports one."""
        return None

    def hide(self, source: Any) -> Callable[[], object] | None:
        """Make all of the data unavailable. Returns a function that brings it back; None if it cannot go away."""
        return None

    @pytest.fixture
    def source(self) -> Any:
        """The source under test."""
        raise TypeError(f"{type(self).__name__} needs a fixture `source` that returns or yields a Source.")

    @pytest.fixture
    def driver(self, source: Source) -> Iterator[SourceDriver]:
        """The source, started."""
        with SourceDriver(source) as driver:
            driver.run(source.start(), subject="start()")
            yield driver
            driver.run(source.close(), subject="close()")

    def change_again(self, driver: SourceDriver, uri: str) -> None:
        """Call `change`, which must change the same URI as before."""
        changed = self.change(driver.source)
        problem = f"`change` of {type(self).__name__} must change the same URI each time: {uri}, then {changed}."
        expect(changed == uri, "The suite", problem)
