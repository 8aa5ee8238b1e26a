"""The contract of a source as tests: `class TestMine(SourceContract)` runs them on your source. Needs pytest.

The clauses are the headings of docs/write_a_source.md; each failure names the clause that the source breaks.
"""

from __future__ import annotations

from wharfinger.testing.source_suite.content_tests import ContentTests
from wharfinger.testing.source_suite.list_tests import ListTests
from wharfinger.testing.source_suite.search_tests import SearchTests
from wharfinger.testing.source_suite.watch_tests import WatchTests

__all__ = ["SourceContract"]


class SourceContract(ListTests, ContentTests, SearchTests, WatchTests):
    """Subclass it with a name that begins with `Test`, and define a fixture `source`.

        class TestTides(SourceContract):
            missing = "tides://hull/none"

            @pytest.fixture
            def source(self, tmp_path):
                return Tides(tmp_path)

    Define `windowed`, `live`, `secret`, `change`, `add`, `hide` and `whole` as far as they apply to your source. A test
    is skipped if it needs one of these that you did not define.
    """
