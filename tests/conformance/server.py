"""The server that the official conformance suite tests, written with the public interface only.

`python tests/conformance/server.py PORT` serves it at http://127.0.0.1:PORT/mcp, and with `--stdio` on standard input
and output. Names and texts are the suite's.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance.fixture.input_requests import add_input_requests
from tests.conformance.fixture.prompts import add_prompts
from tests.conformance.fixture.resources import add_resources
from tests.conformance.fixture.schemas import add_schemas
from tests.conformance.fixture.tasks import add_tasks
from tests.conformance.fixture.tools import add_tools
from wharfinger import Server
from wharfinger.sources import skills

__all__ = ["make_server"]


def make_server() -> Server:
    """Return a new server with the features of all scenarios."""
    server = Server(
        "conformance",
        version="1.0.0",
        instructions="Fixtures for the conformance suite.",
        ttl=60.0,
        task_poll=0.2,
    )
    add_tools(server)
    add_schemas(server)
    add_input_requests(server)
    add_tasks(server)
    add_resources(server)
    add_prompts(server)
    server.include(skills(Path(__file__).with_name("skills")))
    return server


if __name__ == "__main__":
    make_server().run(**({} if sys.argv[1] == "--stdio" else {"http": f"127.0.0.1:{sys.argv[1]}"}))
