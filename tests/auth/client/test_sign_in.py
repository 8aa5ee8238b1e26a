"""Signing in to a real server with a real authorization server, both on this machine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.auth.authority import Authority, ProtectedServer, approve, protected_server, serve
from wharfinger import Client
from wharfinger.auth import FileTokens, MemoryTokens, SignIn
from wharfinger.auth.client.grants import Grant
from wharfinger.errors import NotAuthorized


async def test_the_user_signs_in_once_and_every_request_has_the_token() -> None:
    async with protected_server() as (server, authority):
        urls: list[str] = []
        async with Client(server.url, auth=SignIn(open_browser=approve, on_url=urls.append)) as client:
            assert [tool.name for tool in await client.list_tools()] == ["write"]
        assert authority.request_names() == ["register", "authorize", "authorization_code"]
        assert set(server.received_tokens) == {"", "token-0"}
        registration, query, form = (row for _, row in authority.requests)
        assert registration["application_type"] == "native"
        assert registration["redirect_uris"] == [query["redirect_uri"]]  # type: ignore[comparison-overlap]
        assert query["resource"] == form["resource"] == server.url
        assert query["scope"] == "read offline_access"
        assert urls[0].startswith(f"{authority.url}/authorize?response_type=code&client_id=client-1")


async def test_additional_scopes_are_requested_together_with_the_earlier_scopes() -> None:
    async with (
        protected_server() as (server, authority),
        Client(server.url, auth=SignIn(open_browser=approve)) as client,
    ):
        assert (await client.call_tool("write", {})).text == "written"
        scopes = [row["scope"] for name, row in authority.requests if name == "authorize"]
        assert scopes == ["read offline_access", "read offline_access write"]


async def test_concurrent_requests_refresh_a_revoked_token_once() -> None:
    async with (
        protected_server() as (server, authority),
        Client(server.url, auth=SignIn(open_browser=approve)) as client,
    ):
        authority.scopes_by_token.clear()
        authority.scopes_by_refresh_token.clear()
        await asyncio.gather(*[client.list_tools() for _ in range(8)], return_exceptions=True)
        assert authority.request_names().count("refresh_token") == 1


async def test_a_token_is_refreshed_before_it_expires() -> None:
    async with protected_server() as (server, authority):
        authority.expires_in = 0.001
        async with Client(server.url, auth=SignIn(open_browser=approve)) as client:
            authority.expires_in = 3600
            await client.list_tools()
            await client.list_tools()
        assert authority.request_names().count("authorize") == 1
        assert authority.request_names().count("refresh_token") >= 1
        assert "" not in server.received_tokens[1:]


async def test_a_refused_token_is_refreshed_once() -> None:
    async with (
        protected_server() as (server, authority),
        Client(server.url, auth=SignIn(open_browser=approve)) as client,
    ):
        del authority.scopes_by_token["token-0"]
        await client.list_tools()
        assert authority.request_names().count("refresh_token") == 1
        assert authority.request_names().count("authorize") == 1


async def test_a_valid_token_that_may_not_be_renewed_is_used_until_it_expires() -> None:
    """A bug: a grant whose token endpoint is forbidden was dropped half a minute before it expired."""
    async with protected_server() as (server, authority):
        login = SignIn(open_browser=approve)
        async with Client(server.url, auth=login):
            pass
        grant = await login.grant(server.url)
        assert grant is not None
        now, tokens = time.time(), MemoryTokens()
        forbidden = {"token_endpoint": "http://as.example/token", "taken_at": now - 1_000}
        await tokens.keep(msgspec.structs.replace(grant, **forbidden, expires_at=now + 25))
        for _ in range(2):
            headers = await SignIn(interactive=False, tokens=tokens).headers(server.url)
            assert headers == {"Authorization": f"Bearer {grant.access_token}"}
        async with Client(server.url, auth=SignIn(open_browser=approve, tokens=tokens)) as client:
            authority.scopes_by_token.clear()
            server.received_tokens.clear()
            await client.list_tools()
            assert server.received_tokens[:2] == [grant.access_token, "token-1"]
        tokens = MemoryTokens()
        await tokens.keep(msgspec.structs.replace(grant, **forbidden, expires_at=now))
        assert await SignIn(interactive=False, tokens=tokens).headers(server.url) == {}
        assert await tokens.grants() == []


async def test_a_renewed_token_that_has_expired_already_is_followed_by_a_sign_in() -> None:
    """A bug: it was sent and renewed again and again, until the client gave up."""

    class HastyAuthority(Authority):
        """Its renewed tokens expire before they arrive."""

        def issue_token(self, scopes: set[str]) -> aiohttp.web.Response:
            renewed = self.requests[-1][0] == "refresh_token"
            self.expires_in = 1e-9 if renewed else 3600
            answer = super().issue_token(scopes)
            if renewed:
                self.scopes_by_token.clear()
            return answer

    authority = HastyAuthority()
    server = ProtectedServer(authority)
    async with serve(authority) as authority_origin, serve(server) as server_origin:
        authority.url, server.url = authority_origin, f"{server_origin}/mcp"
        async with Client(server.url, auth=SignIn(open_browser=approve)) as client:
            authority.scopes_by_token.clear()
            assert await client.list_tools()
        assert authority.request_names().count("authorize") == 2
        assert authority.request_names().count("refresh_token") == 1


async def test_saved_tokens_are_used_by_the_next_process_without_a_sign_in(tmp_path: Path) -> None:
    async with protected_server() as (server, authority):
        async with Client(server.url, auth=SignIn(open_browser=approve, tokens=FileTokens(tmp_path / "tokens"))):
            pass
        saved = SignIn(interactive=False, tokens=FileTokens(tmp_path / "tokens"))
        async with Client(server.url, auth=saved) as client:
            await client.list_tools()
        assert authority.request_names().count("authorize") == 1


async def test_a_sign_in_that_is_not_interactive_opens_no_browser() -> None:
    async with protected_server() as (server, authority):
        with pytest.raises(NotAuthorized, match="wharfinger auth login"):
            async with Client(server.url, auth=SignIn(interactive=False)):
                pass
        assert authority.requests == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": "{issuer}/"}, "another issuer"),
        ({"error": "access_denied", "error_description": "no berth"}, "no berth"),
    ],
)
async def test_a_redirect_of_another_issuer_or_with_an_error_ends_the_sign_in(
    changes: dict[str, str], message: str
) -> None:
    async with protected_server() as (server, authority):
        authority.redirect_changes = {name: value.format(issuer=authority.url) for name, value in changes.items()}
        with pytest.raises(NotAuthorized, match=message):
            async with Client(server.url, auth=SignIn(open_browser=approve)):
                pass
        assert "authorization_code" not in authority.request_names()


async def test_the_description_of_another_issuer_is_not_shown() -> None:
    async with protected_server() as (server, authority):
        authority.redirect_changes = {
            "iss": "https://evil.example",
            "error": "x",
            "error_description": "call 555-1234",
        }
        with pytest.raises(NotAuthorized) as raised:
            async with Client(server.url, auth=SignIn(open_browser=approve)):
                pass
        assert "555" not in str(raised.value)


async def test_an_authorization_server_without_pkce_is_refused_before_the_browser_opens() -> None:
    async with protected_server() as (server, authority):
        authority.metadata = {"code_challenge_methods_supported": None}
        with pytest.raises(NotAuthorized, match="S256"):
            async with Client(server.url, auth=SignIn(open_browser=approve)):
                pass
        assert "authorize" not in authority.request_names()


async def test_an_authorization_endpoint_that_is_not_https_is_not_opened() -> None:
    async with protected_server() as (server, authority):
        for page in ("javascript:alert(1)", "file:///etc/passwd", "http://example.com/authorize"):
            authority.metadata = {"authorization_endpoint": page}
            opened: list[str] = []

            async def visit(url: str) -> str | None:
                opened.append(url)  # noqa: B023 - called in this iteration only
                return None

            with pytest.raises(NotAuthorized, match="authorization_endpoint"):
                async with Client(server.url, auth=SignIn(open_browser=visit)):
                    pass
            assert opened == []


async def test_metadata_for_another_resource_ends_the_sign_in_before_the_browser_opens() -> None:
    async with protected_server() as (server, authority):
        server.metadata_changes = {"resource": "https://evil.example/mcp"}
        with pytest.raises(NotAuthorized, match="does not cover"):
            async with Client(server.url, auth=SignIn(open_browser=approve)):
                pass
        assert authority.requests == []


async def test_credentials_of_one_authorization_server_are_not_sent_to_another() -> None:
    second = Authority()
    async with protected_server() as (server, first), serve(second) as origin:
        second.url, second.client_count = origin, 40
        tokens = MemoryTokens()
        async with Client(server.url, auth=SignIn(open_browser=approve, tokens=tokens)) as client:
            first.scopes_by_token.clear()
            server.authority = second
            await client.list_tools()
        assert second.request_names() == ["register", "authorize", "authorization_code"]
        assert "client-1" not in str(second.requests)
        assert "refresh-" not in str(second.requests)


async def test_a_client_id_is_sent_only_to_its_issuer() -> None:
    async with protected_server() as (server, authority):
        sign_in = SignIn(open_browser=approve, client_id="harbour", client_secret="s3cret!", issuer=authority.url)
        async with Client(server.url, auth=sign_in):
            pass
        assert authority.request_names() == ["authorize", "authorization_code"]
        authority.metadata = {"registration_endpoint": None}
        other_sign_in = SignIn(
            open_browser=approve, client_id="harbour", client_secret="s3cret!", issuer="https://as.example"
        )
        with pytest.raises(NotAuthorized, match=r"is for https://as\.example"):
            async with Client(server.url, auth=other_sign_in):
                pass
        assert "s3cret!" not in str(authority.requests[2:])


async def test_a_registration_is_reused_while_the_port_of_its_redirect_is_free() -> None:
    async with protected_server() as (server, authority):
        tokens = MemoryTokens()
        for _ in range(2):
            async with Client(server.url, auth=SignIn(open_browser=approve, tokens=tokens)):
                pass
            for grant in await tokens.grants():
                await tokens.forget(grant)
        assert authority.request_names().count("register") == 1
        uris = [row["redirect_uri"] for name, row in authority.requests if name == "authorize"]
        assert uris[0] == uris[1]


async def test_a_client_that_the_issuer_has_deleted_is_registered_again() -> None:
    """A bug: the issuer's page for an unknown client does not redirect, and each sign-in waited for it in vain."""
    async with protected_server() as (server, authority):
        tokens = MemoryTokens()

        async def see_error(url: str) -> str | None:
            raise NotAuthorized("The page says: unknown client.")

        async with Client(server.url, auth=SignIn(open_browser=approve, tokens=tokens)):
            pass
        for grant in await tokens.grants():
            await tokens.forget(grant)
        with pytest.raises(NotAuthorized, match="unknown client"):
            async with Client(server.url, auth=SignIn(open_browser=see_error, tokens=tokens)):
                pass
        async with Client(server.url, auth=SignIn(open_browser=approve, tokens=tokens)):
            pass
        assert authority.request_names().count("register") == 2


async def test_scopes_of_a_sign_in_that_was_not_completed_are_requested_again() -> None:
    """A bug: the next request failed with an error that a token with the requested scopes is refused."""
    async with protected_server() as (server, _):
        answers = [approve, None, approve]

        async def open_browser(url: str) -> str | None:
            if (answer := answers.pop(0)) is None:
                raise NotAuthorized("The page was closed.")
            return await answer(url)

        async with Client(server.url, auth=SignIn(open_browser=open_browser)) as client:
            with pytest.raises(NotAuthorized, match="closed"):
                await client.call_tool("write", {})
            assert (await client.call_tool("write", {})).text == "written"


async def test_a_server_that_refuses_the_scopes_that_it_required_is_not_retried() -> None:
    class RefusingServer(ProtectedServer):
        async def post(self, request: Any) -> Any:
            answer = await super().post(request)
            if answer.status == 200:
                challenge = 'Bearer error="insufficient_scope", scope="read"'
                return aiohttp.web.Response(status=403, headers={"WWW-Authenticate": challenge})
            return answer

    authority = Authority()
    server = RefusingServer(authority)
    async with serve(authority) as authority_origin, serve(server) as server_origin:
        authority.url, server.url = authority_origin, f"{server_origin}/mcp"
        with pytest.raises(NotAuthorized, match="would not help"):
            async with Client(server.url, auth=SignIn(open_browser=approve)):
                pass
        assert authority.request_names().count("authorize") == 1


async def test_connecting_waits_for_a_slow_user() -> None:
    async with protected_server() as (server, _):
        opened = asyncio.Event()

        async def approve_slowly(url: str) -> str | None:
            opened.set()
            for _ in range(3):  # longer than both timeouts below
                await asyncio.sleep(0.2)
            return await approve(url)

        async with Client(
            server.url, auth=SignIn(open_browser=approve_slowly), open_timeout=0.4, probe_timeout=0.2
        ) as client:
            assert opened.is_set()
            await client.list_tools()


async def test_a_browser_that_stays_open_does_not_block_the_sign_in() -> None:
    async with protected_server() as (server, _):

        async def keep_browser_open(url: str) -> str | None:
            await approve(url)
            await asyncio.Event().wait()
            return None

        async with Client(server.url, auth=SignIn(open_browser=keep_browser_open)) as client:
            await client.list_tools()


async def test_a_grant_renewed_by_another_process_is_not_renewed_again() -> None:
    async with protected_server() as (server, authority):
        tokens = MemoryTokens()  # shared, as two processes share one folder of files
        authority.expires_in = 1e-9
        first, second = (SignIn(open_browser=approve, tokens=tokens) for _ in range(2))
        async with Client(server.url, auth=first) as client:
            await client.list_tools()
            assert await second.headers(server.url)
            renewals = authority.request_names().count("refresh_token")
            authority.expires_in = 3600
            await client.list_tools()
            assert await second.headers(server.url) == await first.headers(server.url)
            assert authority.request_names().count("refresh_token") == renewals + 1


async def test_a_token_of_a_sign_in_in_another_process_replaces_a_refused_one() -> None:
    """A bug: without a refresh token, the first process asked the user again, or told them to sign in."""
    async with protected_server() as (server, authority):

        async def sign_in() -> Grant:
            login = SignIn(open_browser=approve, offline=False)
            async with Client(server.url, auth=login):
                pass
            grant = await login.grant(server.url)
            assert grant is not None
            return grant

        tokens = MemoryTokens()  # shared, as two processes share one folder of files
        await tokens.keep(await sign_in())
        async with Client(server.url, auth=SignIn(interactive=False, tokens=tokens)) as client:
            authority.scopes_by_token.clear()
            await tokens.keep(await sign_in())
            await client.list_tools()


async def test_a_new_token_that_is_refused_ends_the_sign_in() -> None:
    class ForgetfulAuthority(Authority):
        def issue_token(self, scopes: set[str]) -> aiohttp.web.Response:
            answer = super().issue_token(scopes)
            self.scopes_by_token.clear()
            return answer

    authority = ForgetfulAuthority()
    server = ProtectedServer(authority)
    async with serve(authority) as authority_origin, serve(server) as server_origin:
        authority.url, server.url = authority_origin, f"{server_origin}/mcp"
        with pytest.raises(NotAuthorized):
            async with Client(server.url, auth=SignIn(open_browser=approve, offline=False)):
                pass
        assert authority.request_names().count("authorize") == 1
        with pytest.raises(NotAuthorized):
            async with Client(server.url, auth=SignIn(open_browser=approve)):
                pass
        assert authority.request_names().count("authorize") <= 1 + 3


async def test_a_sign_in_that_is_not_completed_in_time_is_reported() -> None:
    async with protected_server() as (server, _):

        async def ignore(url: str) -> str | None:
            return None

        with pytest.raises(NotAuthorized, match=r"within 0\.1 s"):
            async with Client(server.url, auth=SignIn(open_browser=ignore, timeout=0.1)):
                pass


def test_a_secret_without_a_client_id_is_refused_by_the_constructor() -> None:
    with pytest.raises(ValueError, match="client_id"):
        SignIn(client_secret="s")
