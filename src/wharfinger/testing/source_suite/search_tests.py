"""Tests of a source's contract: templates and their completion, documents and search."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from wharfinger.errors import ResourceNotFound
from wharfinger.protocol.uri.template import InvalidTemplate, UriTemplate
from wharfinger.source import Document, Hit
from wharfinger.testing.source_suite.base import ContractBase
from wharfinger.testing.source_suite.driver import ContractBroken, SourceDriver, expect
from wharfinger.testing.source_suite.suite_helpers import (
    MAX_COMPLETIONS,
    MAX_RESOURCES,
    answer_of,
    attempt,
    brief,
    completions_of,
    is_all,
    is_texts,
    sample,
    values_of,
)

__all__ = ["SearchTests"]

QUERIES = ("", " ", "\0", '"', "(", "a" * 10_000, "%", "*", "NEAR(a b)", "a OR", "-", "'; --", "\ud800", "\U0001f4a5")
JUNK_VALUES = ("\0", "../../..", "%zz", "%", "a" * 100_000, "\ud800", "'; --", "*", "//")


class SearchTests(ContractBase):
    """Templates, completion, documents and search."""

    def test_templates_are_valid(self, driver: SourceDriver) -> None:
        """Each template is valid (RFC 6570), has a name, and differs from the others."""
        seen: set[str] = set()
        for template in driver.source.templates:
            text = template.uri_template
            expect(template.name, "Templates", f"{text} has no name.")
            expect(text not in seen, "Templates", f"{text} is shown twice.")
            seen.add(text)
            try:
                variables = UriTemplate(text).variables
            except InvalidTemplate as error:
                raise ContractBroken(f"{error}\n(docs/write_a_source.md, “Templates”)") from None
            expect(variables, "Templates", f"{text} has no variable.")

    def test_completed_templates_can_be_read(self, driver: SourceDriver) -> None:
        """Completed values make URIs that exist, or that begin URIs that exist."""
        for template in driver.source.templates:
            parsed = UriTemplate(template.uri_template)
            values: dict[str, str] = {}
            for variable in parsed.variables:
                completions = completions_of(driver, template, variable, "", values)
                if not completions:
                    continue
                longer = completions_of(driver, template, variable, completions[0], values)
                problem = (
                    f"{template.uri_template}: {variable}={completions[0]!r} is not completed any more: {longer[:5]}"
                )
                expect(
                    completions[0] in longer or any(v.startswith(completions[0]) for v in longer), "complete", problem
                )
                values[variable] = completions[0]
            if values:
                uri = parsed.expand(values)
                expect(
                    driver.source.matches(uri),
                    "complete",
                    f"matches() is False for {uri}, made of {values}.",
                )
                answer = answer_of(driver, "stat", uri)
                begins = any(item.uri.startswith(uri) for item in driver.pages(1_000))
                all_have_values = len(values) == len(parsed.variables)
                problem = f"{template.uri_template} completed with {values} is not a resource: {brief(answer)}."
                expect(begins or not all_have_values or not isinstance(answer, Exception), "complete", problem)

    def test_completion_is_bounded_and_accepts_any_text(self, driver: SourceDriver) -> None:
        """Unknown templates and variables have no completions, and no value causes an error or too many completions."""
        templates = driver.source.templates
        first = templates[0].uri_template if templates else "nobody:{x}"
        variable = UriTemplate(first).variables[0]
        for template, argument in ((first, "no-such-argument"), ("nobody:{x}", "x"), ("", "")):
            completions = values_of(driver.ask("complete", template, argument, "", {}))
            expect(
                list(completions) == [],
                "complete",
                f"complete({template!r}, {argument!r}) must be empty: {completions!r}",
            )
        for value in JUNK_VALUES:
            for context in ({}, {variable: value}, {"nobody": value}):
                completions = values_of(answer_of(driver, "complete", first, variable, value, context))
                problem = f"complete() of {brief(value)} must be a list of texts, not {brief(completions)}."
                expect(is_texts(completions), "complete", problem)
                problem = f"complete() returned {len(completions)} values: {MAX_COMPLETIONS} at most."
                expect(len(completions) <= MAX_COMPLETIONS, "complete", problem)

    def test_documents_have_searchable_text(self, driver: SourceDriver) -> None:
        """Every document is a URI of the source with a title, and its text comes in pieces."""
        documents: list[Document] = driver.pages(1_000, 1, "documents")
        if not self.live:
            of_one = [document.uri for document in driver.pages(1, MAX_RESOURCES, "documents")]
            of_all = [document.uri for document in documents][: len(of_one)]
            expect(of_one == of_all, "documents", f"documents() in pages of one differs: {of_one[:5]}, {of_all[:5]}.")
        for document in documents[:MAX_RESOURCES]:
            uri = document.uri
            expect(isinstance(document, Document), "documents", f"documents() returned {document!r}.")
            expect(driver.source.matches(uri), "documents", f"{uri} is a document, but matches() is False.")
            expect(document.title, "documents", f"The document {uri} has no title.")
            if document.version and not self.live:
                problem = f"The document {uri} has a different version from the one that version() returns."
                expect(document.version == driver.ask("version", uri), "documents", problem)
            pieces = driver.text(uri)
            expect(is_texts(pieces), "text", f"text({uri!r}) has pieces that are not text.")
        answer = answer_of(driver, "text", self.missing)
        is_missing = isinstance(answer, ResourceNotFound) or answer == () or answer == []
        if not isinstance(answer, Exception) and not is_missing:  # a generator raises when it is iterated
            answer = attempt(lambda: driver.text(self.missing))
            is_missing = isinstance(answer, ResourceNotFound) or answer == []
        expect(is_missing, "text", f"text({self.missing!r}) must raise ResourceNotFound, not return {brief(answer)}.")

    def test_search_is_bounded_and_accepts_any_query(self, driver: SourceDriver) -> None:
        """Hits are resources, and no query causes an error."""
        words = {word for item in sample(driver)[:5] for word in re.findall(r"\w{3,}", item.title or item.name)}
        read: set[str] = set()
        for query in (*sorted(words)[:10], *QUERIES):
            for limit in (1, 20):
                hits: Any = attempt(partial(driver.search, query, limit))
                problem = f"search({brief(query)}) must be a list of hits, not {brief(hits)}."
                expect(is_all(hits, Hit), "search", problem)
                expect(len(hits) <= limit, "search", f"search({brief(query)}, {limit}) has {len(hits)} hits.")
                for hit in hits:
                    expect(hit.title, "search", f"A hit has no title: {hit}")
                    expect(
                        driver.source.matches(hit.uri),
                        "search",
                        f"matches() is False for the hit {hit.uri}.",
                    )
                    if hit.uri not in read:
                        read.add(hit.uri)
                        expect(driver.ask("read", hit.uri).contents, "search", f"The hit {hit.uri} has no contents.")
