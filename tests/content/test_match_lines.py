"""The best passages of a text are found across the chunks of the text, and shown with the next lines."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content import match_lines
from wharfinger.content.folding import fold
from wharfinger.content.match_lines import (
    MAX_COUNTED_OCCURRENCES,
    MAX_FOUND_OCCURRENCES,
    MAX_PASSAGES,
    SHOWN_LINE_CHARACTERS,
    Passage,
    TextMatch,
    match_text,
)
from wharfinger.content.search_query import query_of


def match(text: str, query: str, **options: bool) -> TextMatch:
    result = match_text([text], query_of(query), **options)
    assert result is not None
    return result


def best_passage(text: str, query: str, **options: bool) -> Passage:
    return match(text, query, **options).passages[0]


def spread_lines(*lines: str, before: int = 40) -> str:
    """Return a text in which these lines are far apart from each other."""
    return "".join("nothing\n" * before + line + "\n" for line in lines)


def test_the_matching_line_is_shown_with_its_number_and_the_next_lines() -> None:
    result = best_passage("# Charts\n\n  Soundings in FATHOMS.  \nnext\nlast\nout\n", "fathoms")
    assert result.line == 3
    assert result.snippet == "3:   Soundings in FATHOMS.\n4- next\n5- last"
    assert result.brief.snippet == "3:   Soundings in FATHOMS."
    assert result.moved(10).snippet.startswith("13:   Soundings")


def test_the_line_with_the_most_words_is_shown() -> None:
    assert best_passage(spread_lines("depth", "tide and depth", "tide"), "depth tide").line == 82


def test_words_on_adjacent_lines_count_together() -> None:
    assert best_passage(spread_lines("depth", "tide\nof some depth", "tide"), "depth tide").line in (82, 83)


def test_a_text_without_the_words_or_without_a_phrase_is_not_found() -> None:
    assert match_text(["one two"], query_of("three")) is None
    assert match_text(["one two"], query_of('one "two one"')) is None
    assert match_text([], query_of("one")) is None
    assert match("one two", "one three").counts == (1, 0)


@pytest.mark.parametrize(
    ("text", "query", "line"),
    [
        (spread_lines("x = load_chart()", "def load_chart():", "load_chart()"), "load_chart", 82),
        (spread_lines("LoadChart()", "export default class LoadChart {", "// LoadChart"), "LoadChart", 82),
        (spread_lines("load_chart", "func (s *Server) LoadChart(name string) {", "LoadChart"), "load chart", 82),
        (spread_lines("select charts", "CREATE TABLE IF NOT EXISTS charts (", "from charts"), "charts", 82),
        (spread_lines("from charts import depth", "depth", "the depth of the hull"), "depth", 123),
        (spread_lines("the timeout is long", "timeout: float = 5", "no timeout"), "timeout", 82),
        (spread_lines("see --timeout", '    "--timeout",', "or --timeout"), "timeout", 41),
        (spread_lines("parser.add(\n    '--timeout',", "see --timeout", "--timeout"), "--timeout", 42),
        (spread_lines("the depth", ":param depth: in metres", "depth"), "depth", 82),
        (spread_lines("tides here", "Tides\n=====\ntext", "more tides"), "tides", 82),
    ],
)  # fmt: skip
def test_a_definition_ranks_before_mentions_and_mentions_before_imports(text: str, query: str, line: int) -> None:
    assert best_passage(text, query).line == line


def test_a_hash_sign_starts_a_heading_in_prose_and_a_comment_in_code() -> None:
    text = spread_lines("# tide tables", "def tide_tables():")
    assert best_passage(text, "tide tables").line == 82
    heading, other = (
        spread_lines("## Tide tables", "the tide tables"),
        spread_lines("the tide tables", "## Tide tables"),
    )
    assert (
        best_passage(heading, "tide tables", prose=True).line,
        best_passage(other, "tide tables", prose=True).line,
    ) == (41, 82)


def test_a_method_is_found_in_the_class_that_the_query_names() -> None:
    text = "class Anchor:\n" + "    pass\n" * 60 + "    def drop(self):\n\nclass Sail:\n" + "    pass\n" * 60
    text += "    def drop(self):\n"
    assert best_passage(text, "Sail.drop").line == text.count("\n")
    assert best_passage(text, "Anchor.drop").line == 62


def test_a_very_long_line_is_truncated_around_the_match() -> None:
    result = best_passage("x" * 10_000 + " depth " + "y" * 10_000, "depth")
    assert "depth" in result.snippet
    assert len(result.snippet) <= SHOWN_LINE_CHARACTERS + 10


def test_a_frequent_word_does_not_hide_another_word_of_its_line() -> None:
    assert best_passage("depth " * 500 + "tide", "depth tide").evidence == (1.0, 1.0)


@pytest.mark.parametrize(
    "number",
    [MAX_FOUND_OCCURRENCES - 1, MAX_FOUND_OCCURRENCES, MAX_FOUND_OCCURRENCES + 1, 3 * MAX_FOUND_OCCURRENCES],
)
def test_a_rare_word_is_found_if_another_word_is_on_every_line(number: int) -> None:
    text = "".join(f"harbour {line}\n" for line in range(1, 3 * MAX_FOUND_OCCURRENCES + 1))
    assert best_passage(text, f"harbour {number}").line == number
    assert best_passage(text, f"{number} harbour").line == number


def test_a_few_passages_far_apart_are_returned() -> None:
    result = match(spread_lines(*["a depth"] * 20), "depth")
    assert result.counts == (20,)
    assert len(result.passages) == MAX_PASSAGES
    lines = sorted(passage.line for passage in result.passages)
    assert all(after - before >= match_lines.MIN_LINES_APART for before, after in itertools.pairwise(lines))
    assert match("depth " * (MAX_COUNTED_OCCURRENCES + 1), "depth").counts == (MAX_COUNTED_OCCURRENCES,)


@pytest.mark.parametrize("line_end", ["\n", " "])
def test_a_text_of_many_blocks_is_searched_to_the_end(line_end: str) -> None:
    size = match_lines.BLOCK_CHARACTERS * 5 // 2
    text = ("nothing here" + line_end) * (size // 13) + "the harbourmaster" + line_end
    result = best_passage(text, "harbourmaster")
    assert "the harbourmaster" in result.snippet
    assert match(text, "harbourmaster").length == len(text)
    assert result.line == text.count("\n", 0, text.index("harbourmaster")) + 1


def test_a_long_text_in_one_piece_takes_no_longer_than_in_many() -> None:
    """A bug: the rest of the text was copied for each block, so that the time grew with the square of its length."""
    text = "x" * 50_000_000
    times: list[float] = []
    for size in (1 << 16, len(text)):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        start = time.process_time()
        assert match_text(pieces, query_of("harbourmaster")) is None
        times.append(time.process_time() - start)
    assert times[1] < 4 * times[0]


@given(
    st.text(alphabet="abİß_ \n", max_size=80),
    st.lists(st.integers(0, 80), max_size=5),
    st.lists(st.text(alphabet="abİß", min_size=1, max_size=5), min_size=1, max_size=3, unique=True),
)
def test_the_result_does_not_depend_on_the_chunks(text: str, cuts: list[int], words: list[str]) -> None:
    bounds = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
    query = query_of(" ".join(f'"{word}"' for word in words))
    result = match_text(pieces, query)
    assert result == match_text([text], query)
    assert (result is not None) == all(fold(word) in fold(text) for word in words)
    if result is not None:
        for passage in result.passages:
            line = text.split("\n")[passage.line - 1]
            assert f"{passage.line}: {line}".rstrip() in passage.snippet.split("\n")
            assert any(fold(word) in fold(line) for word in words)


@given(st.text(max_size=400), st.text(max_size=60))
def test_any_text_and_any_query_give_lines_of_the_text(text: str, query: str) -> None:
    result = match_text([text], query_of(query))
    if result is None:
        return
    lines = text.split("\n")
    for passage in result.passages:
        for number, line in passage.lines:
            assert line.strip("…") in lines[number - 1]
            assert len(line) <= SHOWN_LINE_CHARACTERS + 2
        assert 0 <= min(passage.evidence) <= max(passage.evidence) <= 1
