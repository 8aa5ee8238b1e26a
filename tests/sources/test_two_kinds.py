"""A question about two sources, answered with the tools alone: which order failed, and which commit caused it?"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.agent_tasks.transcript import Transcript
from tests.sources.git_repository.conftest import GitRepository
from tests.sources.http_api.conftest import ShopServer
from wharfinger import Client
from wharfinger.sources.resource_tool_set.answer_budget import DEFAULT_TOKENS

ORDERS = 3_000
FAILED_ORDER = 1_207
MODULES = ("orders", "payments", "stock", "shipping", "customers", "mail")


@pytest.fixture
def shop() -> Iterator[ShopServer]:
    """An HTTP API with three thousand orders, one of which failed."""
    server = ShopServer()
    server.shop.orders = {
        number: {"id": number, "product": f"rope {number}", "status": "shipped", "amount": 1}
        for number in range(1, ORDERS + 1)
    }
    server.shop.orders[FAILED_ORDER] |= {"status": "failed", "note": "ValueError in loyalty_discount(): a rate of 1.5"}
    yield server
    server.stop()


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    """A repository with the code of the shop. One commit in the middle of its history sets a wrong rate."""
    repository = GitRepository(tmp_path / "code").init()
    steps = "".join(f"\n\ndef step_{step}(cents: int) -> int:\n    return cents + {step}\n" for step in range(40))
    for module in MODULES:
        repository.write(f"shop/{module}.py", f'"""The {module} of the shop."""\n{steps}')
    rate = "\n\ndef loyalty_discount(cents: int) -> int:\n    rate = 0.05\n    return round(cents * (1 - rate))\n"
    repository.write("shop/payments.py", (repository.path / "shop/payments.py").read_text() + rate)
    repository.commit("Begin")
    for number in range(60):
        path = f"shop/{MODULES[number % len(MODULES)]}.py"
        text = (
            (repository.path / path)
            .read_text()
            .replace("return cents + 7", f"return cents + 7  # revision {number}", 1)
        )
        if number == 31:
            path = "shop/payments.py"
            text = (repository.path / path).read_text().replace("rate = 0.05", "rate = 1.5")
        repository.write(path, text)
        repository.commit("Give loyal customers a larger discount" if number == 31 else f"Revise {path} ({number})")
    return repository


async def test_tools_find_the_failed_order_and_the_commit_that_caused_it(
    shop: ShopServer, repository: GitRepository
) -> None:
    command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", f"ropes=openapi:{shop.url}/openapi.json",
               f"code=git:{repository.path}"]  # fmt: skip
    async with Client(command) as client:
        agent = Transcript(client)
        # Find the sources, and the parameters of the operation that lists orders.
        directory = await agent.call("read_directory")
        assert {"api://ropes", "git://code"} <= set(re.findall(r"(?:api|git)://\w+", directory))
        operations = await agent.call("read_resource", uri="api://ropes")
        assert "status" in operations

        # Find the order that failed.
        orders = await agent.call("read_resource", uri="api://ropes/orders?status=failed")
        order = re.search(r'"id":\s*(\d+)', orders)
        function = re.search(r"(\w+)\(\)", orders)
        assert order is not None
        assert function is not None

        # Find the commit that caused it.
        found = json.loads(await agent.call("search", query=function[1], source="code"))
        path = found["results"][0]["id"].partition("?")[0].partition("/tree/HEAD/")[2]
        blame_text = await agent.call("read_resource", uri=f"git://code/blame/HEAD/{path}?lines=160-170")
        blame = re.search(r"^([0-9a-f]{7,40}) .*\n(?:  .*\n)*?  +\d+ .*1\.5", blame_text, re.MULTILINE)
        assert blame is not None
        commit = await agent.call("read_resource", uri=f"git://code/commit/{blame[1]}")

    cause = repository.git("log", "-S", "rate = 1.5", "--format=%H %s", "--", "shop/payments.py")
    assert int(order[1]) == next(number for number, fields in shop.shop.orders.items() if fields["status"] == "failed")
    assert cause.partition(" ")[0] in commit
    assert cause.partition(" ")[2] in commit
    assert agent.largest <= 1_000
    assert agent.tokens <= DEFAULT_TOKENS  # the budget of a single answer
