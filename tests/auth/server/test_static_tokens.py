"""The token file: it holds digests, is reloaded after a change, and is refused if other users may write to it."""

import asyncio
import hashlib
import json
import math
import multiprocessing
import os
import sys
from pathlib import Path

import pytest

from tests.clock import FakeClock
from wharfinger.auth import InvalidToken, StaticTokens, VerifierUnavailable
from wharfinger.auth.server.static_tokens import (
    CHECK_INTERVAL_SECONDS,
    MAX_NAME_CHARACTERS,
    TokenFileError,
    create_token,
    read_tokens,
    revoke_token,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def verified_subject(tokens: StaticTokens, token: str) -> str | None:
    principal = asyncio.run(tokens.verify(token))
    return None if principal is None else principal.subject


def test_a_token_gives_a_principal_with_its_groups_and_scopes(file: Path) -> None:
    token, _ = create_token(file, "ann", groups=["finance"], scopes=["docs.read"])
    create_token(file, "bob")
    principal = asyncio.run(StaticTokens(file).verify(token))
    assert principal is not None
    assert (principal.subject, principal.scopes, principal.claims["groups"]) == (
        "ann",
        frozenset({"docs.read"}),
        ["finance"],
    )


def test_the_file_holds_the_digest_and_not_the_token(file: Path) -> None:
    token, record = create_token(file, "ann")
    text = file.read_text()
    secret = token.split("_", 2)[2]
    assert token not in text
    assert secret not in text
    assert record.digest == hashlib.sha256(token.encode()).hexdigest()
    assert json.loads(text)["tokens"][0]["digest"] == record.digest
    if sys.platform != "win32":
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t + "x", lambda t: "wf_" + t[4:], lambda t: t.upper()])
def test_an_altered_token_is_unknown(file: Path, change: object) -> None:
    token, _ = create_token(file, "ann")
    assert verified_subject(StaticTokens(file), change(token)) is None  # type: ignore[operator]


@pytest.mark.parametrize("token", ["", "wf_", "wf__", "wf_é_x", "eyJ.a.b", "wf_" + "0" * 10_000])
def test_a_token_in_another_format_is_unknown(file: Path, token: str) -> None:
    create_token(file, "ann")
    assert verified_subject(StaticTokens(file), token) is None


def test_the_id_of_one_token_with_the_secret_of_another_is_refused(file: Path) -> None:
    ann, _ = create_token(file, "ann")
    bob, _ = create_token(file, "bob")
    mixed_token = f"wf_{ann.split('_')[1]}_{bob.split('_', 2)[2]}"
    assert verified_subject(StaticTokens(file), mixed_token) is None


def test_a_token_is_valid_until_its_expiry(file: Path) -> None:
    clock = FakeClock(4e9)
    token, record = create_token(file, "ann", expires=4e9 + 60)
    tokens = StaticTokens(file, clock=clock)
    clock.now = record.expires - 0.001 if record.expires else 0
    assert verified_subject(tokens, token) == "ann"
    clock.now = record.expires or 0
    with pytest.raises(InvalidToken, match="expired"):
        verified_subject(tokens, token)


def test_created_and_revoked_tokens_take_effect_without_a_restart(file: Path) -> None:
    clock = FakeClock()
    token, record = create_token(file, "ann")
    tokens = StaticTokens(file, clock=clock)
    changes: list[bool] = []
    tokens.on_change(lambda: changes.append(True))
    revoke_token(file, record.id)
    other, _ = create_token(file, "bob")
    clock.now += CHECK_INTERVAL_SECONDS
    assert (verified_subject(tokens, token), verified_subject(tokens, other)) == (None, "bob")
    assert changes == [True]


def test_the_file_is_checked_once_a_second(file: Path) -> None:
    clock = FakeClock()
    token, record = create_token(file, "ann")
    tokens = StaticTokens(file, clock=clock)
    revoke_token(file, record.id)
    clock.now += CHECK_INTERVAL_SECONDS - 0.001
    assert verified_subject(tokens, token) == "ann"
    clock.now += 0.001
    assert verified_subject(tokens, token) is None


def test_tokens_are_refused_while_the_file_is_invalid(file: Path) -> None:
    clock = FakeClock()
    token, _ = create_token(file, "ann")
    tokens = StaticTokens(file, clock=clock)
    valid_content = file.read_bytes()
    file.write_text("{")
    clock.now += CHECK_INTERVAL_SECONDS
    with pytest.raises(VerifierUnavailable):
        verified_subject(tokens, token)
    with pytest.raises(VerifierUnavailable):  # regression: before the next look at the file, it was an unknown token
        verified_subject(tokens, token)
    file.write_bytes(valid_content)
    clock.now += CHECK_INTERVAL_SECONDS
    assert verified_subject(tokens, token) == "ann"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "JSON|Input"),
        ("[]", "object"),
        ('{"tokens": [{"id": "a"}]}', "missing"),
        ('{"token": []}', "unknown field"),
    ],
)
def test_an_invalid_file_is_refused_with_its_name_and_the_reason(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(TokenFileError, match=f"tokens.json.*({message})"):
        StaticTokens(file)


@pytest.mark.parametrize("digest", ["é" * 64, "A" * 64, "a" * 63, ""], ids=["not ascii", "capitals", "short", "empty"])
def test_a_digest_that_is_not_a_sha256_is_refused_with_the_id_of_its_token(file: Path, digest: str) -> None:
    """A bug: each token with the id of a digest that is not ASCII failed with a TypeError."""
    token, record = create_token(file, "ann")
    clock = FakeClock()
    tokens = StaticTokens(file, clock=clock)
    file.write_text(file.read_text().replace(record.digest, digest), encoding="utf-8")
    with pytest.raises(TokenFileError, match=f"tokens.json .*digest of the token '{record.id}'.*Remove its entry"):
        StaticTokens(file)
    clock.now += CHECK_INTERVAL_SECONDS
    with pytest.raises(VerifierUnavailable, match=record.id):
        verified_subject(tokens, token)


def test_a_file_that_does_not_exist_is_refused(file: Path) -> None:
    with pytest.raises(TokenFileError, match="No such file"):
        StaticTokens(file)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
@pytest.mark.parametrize("mode", [0o660, 0o602])
def test_a_file_that_other_users_may_write_is_refused(file: Path, mode: int) -> None:
    create_token(file, "ann")
    file.chmod(mode)
    with pytest.raises(TokenFileError, match="chmod 600"):
        StaticTokens(file)


@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[31m", "x" * (MAX_NAME_CHARACTERS + 1)])
def test_an_invalid_name_is_refused(file: Path, name: str) -> None:
    for arguments in ({"sub": name}, {"sub": "ann", "groups": [name]}, {"sub": "ann", "scopes": [name]}):
        with pytest.raises(ValueError, match="is not a name"):
            create_token(file, **arguments)  # type: ignore[arg-type]
    assert not file.exists()


def test_the_longest_name_is_accepted(file: Path) -> None:
    create_token(file, "x" * MAX_NAME_CHARACTERS)
    assert len(read_tokens(file)) == 1


@pytest.mark.parametrize("scope", ["a b", 'a"b', "a\\b", "é"])
def test_a_scope_that_cannot_be_written_in_a_challenge_is_refused(file: Path, scope: str) -> None:
    with pytest.raises(ValueError, match="scope"):
        create_token(file, "ann", scopes=[scope])


@pytest.mark.parametrize("expires", [1.0, math.nan])
def test_an_expiry_in_the_past_or_that_is_no_time_is_refused(file: Path, expires: float) -> None:
    """A bug: with NaN, the token never expired."""
    with pytest.raises(ValueError, match="past"):
        create_token(file, "ann", expires=expires)


def test_revoking_an_unknown_token_lists_the_existing_tokens(file: Path) -> None:
    _, record = create_token(file, "ann")
    with pytest.raises(TokenFileError, match=record.id):
        revoke_token(file, "nothing")
    assert len(read_tokens(file)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="starts processes with fork")
def test_tokens_created_concurrently_are_all_saved(file: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=create_token, args=(file, f"user{n}")) for n in range(12)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert sorted(record.sub for record in read_tokens(file)) == sorted(f"user{n}" for n in range(12))
