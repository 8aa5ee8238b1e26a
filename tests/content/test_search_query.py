"""A query is split into words, and each word is found in its different spellings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content.folding import fold
from wharfinger.content.search_query import (
    MAX_QUERY_CHARACTERS,
    MAX_QUERY_WORDS,
    STOP_WORDS,
    Word,
    identifier_parts,
    query_of,
)


def word_texts(query: str) -> list[str]:
    return [word.text for word in query_of(query).words]


def only_word(query: str) -> Word:
    (word,) = query_of(query).words
    return word


def match_quality(query: str, text: str) -> float:
    """Return the quality of the best match of a query of one word, or 0 if the text does not contain it."""
    word, folded = only_word(query), fold(text)
    return max(
        (word.quality(text, folded, folded.find(probe), probe) for probe in word.probes if probe in folded), default=0.0
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("Tide  table", ["tide", "table"]),
        ('"Tide  table" hull', ["tide  table", "hull"]),
        ("hull HULL", ["hull"]),
        ("  ", []),
        ("where is the retry delay computed?", ["retry", "delay", "computed"]),
        ("how do I do it", ["how", "do", "i", "it"]),
        ('"where is"', ["where is"]),
        ("ClientSession.get()", ["clientsession", "get"]),
        ("std::vector<int>", ["std", "vector", "int"]),
        ("--max-size=3", ["--max-size", "3"]),
        ("see conftest.py", ["see", "conftest.py"]),
        ("python 3.11", ["python", "3.11"]),
        ("__del__", ["__del__"]),
        ("C++ c#", ["c++", "c#"]),
        ('say "hi', ["say", "hi"]),
        ('""', ['""']),
        ("-->", ["-->"]),
        ("漢字", ["漢字"]),
    ],
)
def test_words_are_separated_by_spaces_and_punctuation(query: str, words: list[str]) -> None:
    assert word_texts(query) == words


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("TypeChecker", ["Type", "Checker"]),
        ("type_checker", ["type", "checker"]),
        ("HTTPServer2", ["HTTP", "Server", "2"]),
        ("getURLFor", ["get", "URL", "For"]),
        ("rfc5987", ["rfc", "5987"]),
        ("max-size", ["max", "size"]),
        ("øreÅse", ["øre", "Åse"]),
        ("__", []),
    ],
)
def test_identifiers_are_split_into_parts(name: str, parts: list[str]) -> None:
    assert identifier_parts(name) == parts


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("TypeChecker", "type_checker"),
        ("type_checker", "class TypeChecker:"),
        ("typeChecker", "type-checker"),
        ("type-checker", "the type checker"),
        ("utf8", "utf-8"),
        ("HTTPServer2", "http_server2"),
    ],
)
def test_an_identifier_is_found_in_its_other_spellings(query: str, text: str) -> None:
    assert match_quality(query, text) >= 0.8


@pytest.mark.parametrize(
    ("query", "better", "worse"),
    [
        ("timeout", "a timeout", "a conn_timeout"),
        ("timeout", "conn_timeout", "timeouts of"),
        ("timeout", "ConnTimeouts", "notimeoutyet"),
        ("connecting", "connect", "connector"),
        ("connections", "connection", "reconnect"),
        ("environment", "from_env", "envelope"),
        ("TypeChecker", "TypeChecker", "typechecker"),
        ("retries", "a retry", "retrieve"),
    ],
)
def test_a_whole_word_ranks_before_a_part_and_a_part_before_another_form(query: str, better: str, worse: str) -> None:
    assert match_quality(query, better) > match_quality(query, worse)


def test_common_words_and_class_names_have_less_weight() -> None:
    weights = {word.text: word.weight for word in query_of("get Session.timeout value 5").words}
    assert weights["timeout"] == 1
    assert all(weights[word] < 1 for word in ("get", "session", "value", "5"))
    assert only_word("get").weight == 1


def test_the_size_of_a_query_is_limited() -> None:
    assert len(query_of(" ".join(f"w{number}x" for number in range(100))).words) == MAX_QUERY_WORDS
    assert len(only_word("x" * (MAX_QUERY_CHARACTERS + 1)).text) == MAX_QUERY_CHARACTERS
    assert len(only_word("a_" * 900).spellings) == 1


def test_a_word_can_be_replaced() -> None:
    query = query_of("tide heartbaet")
    assert [word.text for word in query.replaced(query.words[1], "heart beat").words] == ["tide", "heart", "beat"]
    assert query.replaced(query.words[1], " ").words == query.words


@given(st.text(max_size=200))
def test_any_query_has_words_that_match_its_own_text(text: str) -> None:
    query = query_of(text)
    assert bool(query.words) == bool(text.split())
    for word in query.words:
        assert 0 < word.weight <= 1
        assert word.probes
        assert all(word.probes)
        assert any(probe in word.text for probe in word.probes)
        assert fold(word.written) == word.text
        assert word.text in fold(text)
        assert word.phrase or word.text not in STOP_WORDS or all(other.text in STOP_WORDS for other in query.words)


@given(st.text(max_size=60), st.text(max_size=12))
def test_quality_is_between_0_and_1(text: str, query: str) -> None:
    folded = fold(text)
    for word in query_of(query).words:
        for probe in word.probes:
            start = folded.find(probe)
            while start >= 0:
                assert 0 < word.quality(text, folded, start, probe) <= 1
                start = folded.find(probe, start + 1)
