"""A server whose tool `write` needs the scope `docs.write`: `guarded_server.py PORT ISSUER [CLIENT_ID CLIENT_SECRET]`.

With the credentials of a client, it verifies opaque tokens at the issuer instead of signed ones.
"""

from __future__ import annotations

import sys

from wharfinger import Context, Server
from wharfinger.auth import IntrospectionVerifier, JWTVerifier, TokenAuth
from wharfinger.protocol.http.rules import HttpLimits

port, issuer, *credentials = sys.argv[1:]
audience = f"http://127.0.0.1:{port}/mcp"
if credentials:
    auth = TokenAuth(
        IntrospectionVerifier(
            f"{issuer}/token/introspection",
            issuer=issuer,
            client_id=credentials[0],
            client_secret=credentials[1],
            audience=audience,
            leeway=0,
        ),
        require_scopes=["docs.read"],
    )
else:
    auth = TokenAuth(JWTVerifier(issuer=issuer, audience=audience, leeway=0), require_scopes=["docs.read"])
server = Server("guarded")


@server.tool
async def who(ctx: Context) -> str:
    """Say who calls."""
    return f"{ctx.principal.subject} of {ctx.principal.issuer} in {' '.join(ctx.principal.claims.get('groups', ()))}"


@server.tool(scopes=["docs.write"])
async def write() -> str:
    """Need one more scope."""
    return "written"


@server.tool
async def change() -> str:
    """Change the resource."""
    server.resource_updated("harbour://tide")
    return "changed"


@server.resource("harbour://tide")
async def tide() -> str:
    """Say how high the water is."""
    return "4 m"


server.run(http=f"127.0.0.1:{port}", auth=auth, limits=HttpLimits(sweep_time=0.05, watch_after=0.05))
