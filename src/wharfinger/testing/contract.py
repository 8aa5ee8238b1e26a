"""The contract of a source as tests: `class TestMine(SourceContract)` runs every one of them on yours; needs pytest.

The clauses are the headings of docs/write_a_source.md, and each failure names its own.
"""

from __future__ import annotations

from wharfinger.testing.source_suite.content_tests import ContentTests
from wharfinger.testing.source_suite.list_tests import ListTests
from wharfinger.testing.source_suite.search_tests import SearchTests
from wharfinger.testing.source_suite.watch_tests import WatchTests

__all__ = ["SourceContract"]


class SourceContract(ListTests, ContentTests, SearchTests, WatchTests):
    """Subclass it with a name that begins with `Test`, a fixture `source`, and what of the rest your source has.

        class TestTides(SourceContract):
            missing = "tides://hull/none"

            @pytest.fixture
            def source(self, tmp_path):
                return Tides(tmp_path)

    `windowed`, `live`, `secret`, `change`, `add` and `whole` say more; what is not said is skipped.
    """
