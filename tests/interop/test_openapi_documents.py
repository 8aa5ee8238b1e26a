"""OpenAPI documents of real services: each loads, is listed, and answers against an application made of it."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.openapi_documents import CHARACTERS_PER_TOKEN, DOCUMENTS, ServiceDocument, fetch, ours
from tests.interop.programs import installed

MAX_TOKENS = 1_500
"""The limit for the definitions of all tools that are needed to read, for any number of operations."""
REFUSED = {"GitHub": (1, 8), "Stripe": (0, 1), "Figma": (0, 1)}
"""Numbers of reading and of writing operations that refuse the benchmark's generated values or need a file."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_operation_of_a_real_service_answers(document: ServiceDocument) -> None:
    installed("openapi_documents", ".made")
    results = asyncio.run(ours(fetch(document), document.name))
    reads, writes = REFUSED.get(document.name, (0, 0))
    assert results.reads - results.works_reads <= reads
    assert results.writes - results.works_writes <= writes
    assert results.reads > 40
    assert results.characters / CHARACTERS_PER_TOKEN <= MAX_TOKENS
    assert results.loaded < 30
