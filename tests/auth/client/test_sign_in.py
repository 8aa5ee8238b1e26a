"""Signing in to a real server with a real authorization server, both on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.auth.authority import Authority, Guarded, agree, harbour, serving
from wharfinger import Client
from wharfinger.auth import FileTokens, MemoryTokens, SignIn
from wharfinger.errors import NotAuthorized


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_the_user_signs_in_once_and_every_request_has_the_token() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            reported: list[str] = []
            async with Client(guarded.url, auth=SignIn(open_browser=agree, on_url=reported.append)) as client:
                assert [tool.name for tool in await client.list_tools()] == ["write"]
            assert authority.paths() == ["register", "authorize", "authorization_code"]
            assert set(guarded.seen) == {"", "token-0"}
            registration, query, form = (row for _, row in authority.asked)
            assert registration["application_type"] == "native"
            assert registration["redirect_uris"] == [query["redirect_uri"]]  # type: ignore[comparison-overlap]
            assert query["resource"] == form["resource"] == guarded.url
            assert query["scope"] == "read offline_access"
            assert reported[0].startswith(f"{authority.url}/authorize?response_type=code&client_id=client-1")

    run(test())


def test_additional_scopes_are_requested_together_with_earlier_ones() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority), Client(guarded.url, auth=SignIn(open_browser=agree)) as client:
            assert (await client.call_tool("write", {})).text == "written"
            scopes = [row["scope"] for path, row in authority.asked if path == "authorize"]
            assert scopes == ["read offline_access", "read offline_access write"]

    run(test())


def test_concurrent_requests_share_one_sign_in() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority), Client(guarded.url, auth=SignIn(open_browser=agree)) as client:
            authority.granted.clear()
            authority.refresh.clear()
            authority.granted["gone"] = set()
            authority.granted["gone too"] = set()
            await asyncio.gather(*[client.list_tools() for _ in range(8)], return_exceptions=True)
            assert authority.paths().count("refresh_token") == 1

    run(test())


def test_a_token_is_refreshed_before_it_expires() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            authority.expires_in = 0.001
            async with Client(guarded.url, auth=SignIn(open_browser=agree)) as client:
                authority.expires_in = 3600
                await client.list_tools()
                await client.list_tools()
            assert authority.paths().count("authorize") == 1
            assert authority.paths().count("refresh_token") >= 1
            assert "" not in guarded.seen[1:]

    run(test())


def test_a_refused_token_is_refreshed_once() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority), Client(guarded.url, auth=SignIn(open_browser=agree)) as client:
            authority.granted["token-0"] = set()
            del authority.granted["token-0"]
            authority.granted["spent"] = set()
            await client.list_tools()
            assert authority.paths().count("refresh_token") == 1
            assert authority.paths().count("authorize") == 1

    run(test())


def test_saved_tokens_are_used_by_the_next_process_without_a_sign_in(tmp_path: Path) -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            async with Client(guarded.url, auth=SignIn(open_browser=agree, tokens=FileTokens(tmp_path / "tokens"))):
                pass
            kept = SignIn(interactive=False, tokens=FileTokens(tmp_path / "tokens"))
            async with Client(guarded.url, auth=kept) as client:
                await client.list_tools()
            assert authority.paths().count("authorize") == 1

    run(test())


def test_without_a_user_no_page_is_opened() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            with pytest.raises(NotAuthorized, match="wharfinger auth login"):
                async with Client(guarded.url, auth=SignIn(interactive=False)):
                    pass
            assert authority.asked == []

    run(test())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": "{issuer}/"}, "another issuer"),
        ({"error": "access_denied", "error_description": "no berth"}, "no berth"),
    ],
)
def test_a_foreign_redirect_or_a_refusal_ends_the_sign_in_without_a_token(answer: dict[str, str], says: str) -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            authority.answer = {name: value.format(issuer=authority.url) for name, value in answer.items()}
            with pytest.raises(NotAuthorized, match=says):
                async with Client(guarded.url, auth=SignIn(open_browser=agree)):
                    pass
            assert "authorization_code" not in authority.paths()

    run(test())


def test_the_description_of_another_issuer_is_not_shown() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            authority.answer = {"iss": "https://evil.example", "error": "x", "error_description": "call 555-1234"}
            with pytest.raises(NotAuthorized) as raised:
                async with Client(guarded.url, auth=SignIn(open_browser=agree)):
                    pass
            assert "555" not in str(raised.value)

    run(test())


def test_without_pkce_no_user_signs_in() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            authority.metadata = {"code_challenge_methods_supported": None}
            with pytest.raises(NotAuthorized, match="S256"):
                async with Client(guarded.url, auth=SignIn(open_browser=agree)):
                    pass
            assert "authorize" not in authority.paths()

    run(test())


def test_only_web_pages_are_opened() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            for page in ("javascript:alert(1)", "file:///etc/passwd", "http://example.com/authorize"):
                authority.metadata = {"authorization_endpoint": page}
                opened: list[str] = []

                async def visit(url: str) -> str | None:
                    opened.append(url)  # noqa: B023 - used in this turn only
                    return None

                with pytest.raises(NotAuthorized, match="authorization_endpoint"):
                    async with Client(guarded.url, auth=SignIn(open_browser=visit)):
                        pass
                assert opened == []

    run(test())


def test_metadata_for_another_resource_ends_the_sign_in_before_the_browser_opens() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            guarded.resource = {"resource": "https://evil.example/mcp"}
            with pytest.raises(NotAuthorized, match="does not cover"):
                async with Client(guarded.url, auth=SignIn(open_browser=agree)):
                    pass
            assert authority.asked == []

    run(test())


def test_nothing_of_one_authorization_server_is_sent_to_another() -> None:
    async def test() -> None:
        second = Authority()
        async with harbour() as (guarded, first), serving(second) as there:
            second.url, second.clients = there, 40
            tokens = MemoryTokens()
            async with Client(guarded.url, auth=SignIn(open_browser=agree, tokens=tokens)) as client:
                first.granted.clear()
                guarded.authority = second
                second.granted["spent"] = set()
                await client.list_tools()
            assert second.paths() == ["register", "authorize", "authorization_code"]
            assert "client-1" not in str(second.asked)
            assert "refresh-" not in str(second.asked)

    run(test())


def test_a_client_id_is_sent_only_to_its_issuer() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            signing = SignIn(open_browser=agree, client_id="harbour", client_secret="s3cret!", issuer=authority.url)
            async with Client(guarded.url, auth=signing):
                pass
            assert authority.paths() == ["authorize", "authorization_code"]
            authority.metadata = {"registration_endpoint": None}
            elsewhere = SignIn(
                open_browser=agree, client_id="harbour", client_secret="s3cret!", issuer="https://as.example"
            )
            with pytest.raises(NotAuthorized, match=r"is for https://as\.example"):
                async with Client(guarded.url, auth=elsewhere):
                    pass
            assert "s3cret!" not in str(authority.asked[2:])

    run(test())


def test_a_registration_is_reused_while_its_port_is_free() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            tokens = MemoryTokens()
            for _ in range(2):
                async with Client(guarded.url, auth=SignIn(open_browser=agree, tokens=tokens)):
                    pass
                for grant in await tokens.grants():
                    await tokens.forget(grant)
            assert authority.paths().count("register") == 1
            uris = [row["redirect_uri"] for path, row in authority.asked if path == "authorize"]
            assert uris[0] == uris[1]

    run(test())


def test_a_server_that_refuses_its_own_requested_scopes_is_not_retried() -> None:
    class Never(Guarded):
        async def post(self, request: Any) -> Any:
            answer = await super().post(request)
            if answer.status == 200:
                reported = 'Bearer error="insufficient_scope", scope="read"'
                return aiohttp.web.Response(status=403, headers={"WWW-Authenticate": reported})
            return answer

    async def test() -> None:
        authority = Authority()
        guarded = Never(authority)
        async with serving(authority) as there, serving(guarded) as here:
            authority.url, guarded.url = there, f"{here}/mcp"
            with pytest.raises(NotAuthorized, match="would not help"):
                async with Client(guarded.url, auth=SignIn(open_browser=agree)):
                    pass
            assert authority.paths().count("authorize") == 1

    run(test())


def test_connecting_waits_for_a_slow_user() -> None:
    async def test() -> None:
        async with harbour() as (guarded, _):
            opened = asyncio.Event()

            async def slow(url: str) -> str | None:
                opened.set()
                for _ in range(3):  # longer than both of the times below
                    await asyncio.sleep(0.2)
                return await agree(url)

            async with Client(
                guarded.url, auth=SignIn(open_browser=slow), open_timeout=0.4, probe_timeout=0.2
            ) as client:
                assert opened.is_set()
                await client.list_tools()

    run(test())


def test_a_browser_that_stays_open_does_not_block_the_sign_in() -> None:
    async def test() -> None:
        async with harbour() as (guarded, _):

            async def stays(url: str) -> str | None:
                await agree(url)
                await asyncio.Event().wait()
                return None

            async with Client(guarded.url, auth=SignIn(open_browser=stays)) as client:
                await client.list_tools()

    run(test())


def test_a_grant_renewed_by_another_process_is_not_renewed_again() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            tokens = MemoryTokens()  # as one folder of files is, for two processes
            authority.expires_in = 1e-9
            first, second = (SignIn(open_browser=agree, tokens=tokens) for _ in range(2))
            async with Client(guarded.url, auth=first) as one:
                await one.list_tools()
                assert await second.headers(guarded.url)
                renewals = authority.paths().count("refresh_token")
                authority.expires_in = 3600
                await one.list_tools()
                assert await second.headers(guarded.url) == await first.headers(guarded.url)
                assert authority.paths().count("refresh_token") == renewals + 1

    run(test())


def test_a_new_token_that_is_refused_ends_the_sign_in() -> None:
    class Forgetful(Authority):
        def given(self, scopes: set[str]) -> aiohttp.web.Response:
            answer = super().given(scopes)
            self.granted = {f"gone-{number}": set() for number in range(len(self.granted))}
            return answer

    async def test() -> None:
        authority = Forgetful()
        guarded = Guarded(authority)
        async with serving(authority) as there, serving(guarded) as here:
            authority.url, guarded.url = there, f"{here}/mcp"
            with pytest.raises(NotAuthorized):
                async with Client(guarded.url, auth=SignIn(open_browser=agree, offline=False)):
                    pass
            assert authority.paths().count("authorize") == 1
            with pytest.raises(NotAuthorized):
                async with Client(guarded.url, auth=SignIn(open_browser=agree)):
                    pass
            assert authority.paths().count("authorize") <= 1 + 3

    run(test())


def test_a_sign_in_that_is_not_completed_in_time_is_reported() -> None:
    async def test() -> None:
        async with harbour() as (guarded, _):

            async def away(url: str) -> str | None:
                return None

            with pytest.raises(NotAuthorized, match=r"within 0\.1 s"):
                async with Client(guarded.url, auth=SignIn(open_browser=away, timeout=0.1)):
                    pass

    run(test())


def test_a_secret_without_a_client_id_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="client_id"):
        SignIn(client_secret="s")
