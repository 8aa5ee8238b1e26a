"""`wharfinger browse` shows several servers on one page; the page itself is tested in `tests/web/`."""

from __future__ import annotations

import pytest

from wharfinger.cli.commands.browse import with_distinct_names
from wharfinger.upstreams.config import ServerConfig


@pytest.mark.parametrize(
    ("names", "distinct_names"),
    [
        (["tide", "tide", "tide"], ["tide", "tide_2", "tide_3"]),
        (["tide", "tide", "tide_2"], ["tide", "tide_3", "tide_2"]),
        (["tide_2", "tide", "tide", "tide_2"], ["tide_2", "tide", "tide_3", "tide_2_2"]),
    ],
)
def test_servers_of_the_same_name_get_numbers(names: list[str], distinct_names: list[str]) -> None:
    """A bug: a number could make the name of another server, and the command failed."""
    configs = [ServerConfig(name=name, target="http://harbour.test/mcp") for name in names]
    assert [config.name for config in with_distinct_names(configs)] == distinct_names
