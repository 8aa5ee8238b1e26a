"""A question that needs two kinds of data, answered by tools alone: which order failed, and which commit caused it?"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.agent_tasks.transcript import Transcript
from tests.server.driving import looped
from tests.sources.git_repository.conftest import Work
from tests.sources.http_api.conftest import ShopServer
from wharfinger import Client
from wharfinger.sources.resource_tool_set.answer_budget import DEFAULT_TOKENS

ORDERS = 3_000
FAILED = 1_207
MODULES = ("orders", "payments", "stock", "shipping", "customers", "mail")


@pytest.fixture
def shop() -> Iterator[ShopServer]:
    """An API with three thousand orders, one of which has failed."""
    server = ShopServer()
    server.shop.orders = {
        number: {"id": number, "product": f"rope {number}", "status": "shipped", "amount": 1}
        for number in range(1, ORDERS + 1)
    }
    server.shop.orders[FAILED] |= {"status": "failed", "note": "ValueError in loyalty_discount(): a rate of 1.5"}
    yield server
    server.stop()


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """A repository with the code of the shop. One commit in the middle of its history raised a rate."""
    work = Work(tmp_path / "code").init()
    steps = "".join(f"\n\ndef step_{step}(cents: int) -> int:\n    return cents + {step}\n" for step in range(40))
    for module in MODULES:
        work.write(f"shop/{module}.py", f'"""The {module} of the shop."""\n{steps}')
    rate = "\n\ndef loyalty_discount(cents: int) -> int:\n    rate = 0.05\n    return round(cents * (1 - rate))\n"
    work.write("shop/payments.py", (work.path / "shop/payments.py").read_text() + rate)
    work.commit("Begin")
    for number in range(60):
        path = f"shop/{MODULES[number % len(MODULES)]}.py"
        text = (work.path / path).read_text().replace("return cents + 7", f"return cents + 7  # revision {number}", 1)
        if number == 31:
            path = "shop/payments.py"
            text = (work.path / path).read_text().replace("rate = 0.05", "rate = 1.5")
        work.write(path, text)
        work.commit("Give loyal customers a larger discount" if number == 31 else f"Revise {path} ({number})")
    return work


@looped
async def test_tools_find_the_failed_order_and_the_commit_that_caused_it(shop: ShopServer, work: Work) -> None:
    command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", f"ropes=openapi:{shop.url}/openapi.json",
               f"code=git:{work.path}"]  # fmt: skip
    async with Client(command) as client:
        agent = Transcript(client)
        # What is there? An HTTP API and a repository; the API says which parameters its orders have.
        tops = await agent.call("read_directory")
        assert {"api://ropes", "git://code"} <= set(re.findall(r"(?:api|git)://\w+", tops))
        operations = await agent.call("read_resource", uri="api://ropes")
        assert "status" in operations

        # Which order failed?
        orders = await agent.call("read_resource", uri="api://ropes/orders?status=failed")
        order = re.search(r'"id":\s*(\d+)', orders)
        function = re.search(r"(\w+)\(\)", orders)
        assert order is not None
        assert function is not None

        # Which commit caused it?
        found = json.loads(await agent.call("search", query=function[1], source="code"))
        path = found["results"][0]["id"].partition("?")[0].partition("/tree/HEAD/")[2]
        blamed = await agent.call("read_resource", uri=f"git://code/blame/HEAD/{path}?lines=160-170")
        blame = re.search(r"^([0-9a-f]{7,40}) .*\n(?:  .*\n)*?  +\d+ .*1\.5", blamed, re.MULTILINE)
        assert blame is not None
        commit = await agent.call("read_resource", uri=f"git://code/commit/{blame[1]}")

    cause = work.git("log", "-S", "rate = 1.5", "--format=%H %s", "--", "shop/payments.py")
    assert int(order[1]) == next(number for number, one in shop.shop.orders.items() if one["status"] == "failed")
    assert cause.partition(" ")[0] in commit
    assert cause.partition(" ")[2] in commit
    assert agent.largest <= 1_000
    assert agent.tokens <= DEFAULT_TOKENS  # that of a single answer
