"""The settings of `serve --http` become those of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from wharfinger.auth import JWTVerifier
from wharfinger.cli import main
from wharfinger.cli.serving.listen_address import parse_listen
from wharfinger.cli.serving.serve_runner import bearer_check, token_auth
from wharfinger.cli.serving.serving_options import HttpSettings

ISSUER = "https://id.test"
LIFESPAN = """\
from contextlib import asynccontextmanager
from wharfinger import Server
@asynccontextmanager
async def lifespan(server):
    port = "x"
    int(port)
    yield
server = Server("harbour", lifespan=lifespan)
"""


@pytest.mark.parametrize(
    ("address", "audience"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000/mcp"),
        ("[::1]:9000", "http://[::1]:9000/mcp"),
        ("localhost:9000", "http://localhost:9000/mcp"),
    ],
)
def test_the_audience_of_tokens_is_the_url_of_the_server(address: str, audience: str) -> None:
    """Regression: an IPv6 address had no brackets."""
    auth = token_auth(HttpSettings(parse_listen(address), auth=(ISSUER,)), 9000)
    assert auth is not None
    (verifier,) = auth.verifiers
    assert isinstance(verifier, JWTVerifier)
    assert verifier.audiences == {audience}


def test_an_error_of_the_lifespan_is_not_reported_as_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug: over HTTP, a ValueError of the lifespan was reported without its place, as a wrong option."""
    file = tmp_path / "server.py"
    file.write_text(LIFESPAN)
    assert main(["run", "--http", "127.0.0.1:0", str(file)]) == 1
    assert "server.py, line 6: ValueError: invalid literal" in capsys.readouterr().err


def test_the_line_end_of_the_token_of_a_server_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the server did not start, since a token has no line end."""
    monkeypatch.setenv("HARBOUR_TOKEN", "a-token-of-thirty-two-characters\n")
    verify = bearer_check("HARBOUR_TOKEN")
    assert verify({b"authorization": b"Bearer a-token-of-thirty-two-characters"}) is not None
