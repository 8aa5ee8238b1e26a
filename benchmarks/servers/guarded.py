"""Our server with tokens and a policy: `guarded.py PORT VARIANT FOLDER`; VARIANT is a case of `main`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import spec

from wharfinger import Server
from wharfinger.auth import JWTVerifier, TokenAuth
from wharfinger.policy import Limit, Policy, Rule
from wharfinger.sources import files

ISSUER, AUDIENCE = "https://id.example", "http://bench/mcp"


def main(port: str, variant: str, folder: str) -> None:
    """Serve until the process is ended."""
    server = Server(spec.NAME, version=spec.VERSION)

    @server.resource(spec.STATIC_URI, mime_type=spec.TEXT)
    async def static() -> str:
        return spec.STATIC_TEXT

    server.include(files(Path(folder, "docs")))
    keys = json.loads(Path(folder, "keys.json").read_text())
    auth = TokenAuth(JWTVerifier(issuer=ISSUER, audience=AUDIENCE, keys=keys))
    match variant:
        case "open":
            server.run(http=f"127.0.0.1:{port}")
        case "rules":
            server.policy = Policy(allow=rules())
            server.run(http=f"127.0.0.1:{port}", auth=auth)
        case "limits":
            server.policy = Policy(allow=rules(), limits=[Limit(who="sub:flood", calls="100/s", parallel=64)])
            server.run(http=f"127.0.0.1:{port}", auth=auth)
        case "tree":
            server.include(files(Path(folder, "tree")))
            server.policy = Policy(
                allow=[
                    Rule(who="sub:directory", what="file:///tree/d050/**"),
                    Rule(who="sub:scattered", what="file:///tree/*/f*99.txt"),
                ]
            )
            server.run(http=f"127.0.0.1:{port}", auth=auth)


def rules() -> Sequence[Rule]:
    """Return a thousand rules: for teams, for single callers, and for everyone who is signed in."""
    rows: list[Any] = []
    for n in range(330):
        rows.append(Rule(who=f"group:team{n}", what=f"file:///teams/{n}/**"))
        rows.append(Rule(who=f"sub:user{n}", do="read", what=[f"file:///home/user{n}/**", f"git://team{n}/**"]))
        rows.append(Rule(who="signed-in", do="read", what=f"file:///public/{n}/**/*.md"))
    rows += [Rule(who="signed-in", do="call", what=f"tool:tool{n}") for n in range(9)]
    return [*rows, Rule(who="signed-in", do="read", what=["bench://**", "file:///docs/**"])]


main(*sys.argv[1:])
