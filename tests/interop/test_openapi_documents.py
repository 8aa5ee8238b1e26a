"""OpenAPI documents of real services: each loads, is listed, and answers against an application made of it."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.openapi_documents import CHARACTERS_PER_TOKEN, DOCUMENTS, ServiceDocument, fetch, ours
from tests.interop.places import installed

MAX_TOKENS = 1_500
"""Of the definitions of all tools that are needed to read, however many operations there are."""
REFUSED = {"GitHub": (1, 8), "Stripe": (0, 1), "Figma": (0, 1)}
"""Operations that read and that write to which the made-up values of the benchmark do not fit, or that take a file."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_operation_of_a_real_service_answers(document: ServiceDocument) -> None:
    installed("openapi_documents", ".made")
    found = asyncio.run(ours(fetch(document), document.name))
    reads, writes = REFUSED.get(document.name, (0, 0))
    assert found.reads - found.works_reads <= reads
    assert found.writes - found.works_writes <= writes
    assert found.reads > 40
    assert found.characters / CHARACTERS_PER_TOKEN <= MAX_TOKENS
    assert found.loaded < 30
