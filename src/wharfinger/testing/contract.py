"""The contract of a source as tests: `class TestMine(SourceContract)` runs every one of them on yours; needs pytest.

The clauses are the headings of docs/write_a_source.md, and each failure names its own.
"""

from __future__ import annotations

from wharfinger.testing.source_suite.content_tests import Contents
from wharfinger.testing.source_suite.list_tests import Lists
from wharfinger.testing.source_suite.search_tests import Finding
from wharfinger.testing.source_suite.watch_tests import Watching

__all__ = ["SourceContract"]


class SourceContract(Lists, Contents, Finding, Watching):
    """Subclass it with a name that begins with `Test`, a fixture `source`, and what of the rest your source has.

        class TestTides(SourceContract):
            missing = "tides://hull/none"

            @pytest.fixture
            def source(self, tmp_path):
                return Tides(tmp_path)

    `windowed`, `live`, `secret`, `change`, `add` and `whole` say more; what is not said is skipped.
    """
