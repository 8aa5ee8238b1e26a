"""Secrets are removed from commands, URLs and messages before they are shown."""

from __future__ import annotations

import time

import pytest

from wharfinger.content.redaction import redacted, redacted_command, redacted_text

SECRET = "hunter2hunter2hunter2"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["df", "-h"], "df -h"),
        (["server", "--password", SECRET, "--port", "1"], "server --password *** --port 1"),
        (["server", f"--api-key={SECRET}", "x y"], "server --api-key=*** 'x y'"),
        (["server", "--token", "--verbose"], "server --token ***"),
        (["env", f"PGPASSWORD={SECRET}", "psql"], "env PGPASSWORD=*** psql"),
        (["sh", "-c", f"GITHUB_TOKEN='{SECRET} x' npx thing"], None),
        (["curl", "-H", f"Authorization: Bearer {SECRET}", "https://h"], "curl -H 'Authorization: ***' https://h"),
        (["curl", f"--header=X-Api-Key: {SECRET}"], None),
        (["/usr/bin/curl", "-u", f"me:{SECRET}", "https://h"], "/usr/bin/curl -u *** https://h"),
        (["mysql", f"-p{SECRET}", "shop"], "mysql -p*** shop"),
        (["psql", f"postgresql://me:{SECRET}@db/shop"], "psql postgresql://me@db/shop"),
        (["call", f'{{"user": "me", "password": "{SECRET}"}}'], None),
        (["node", "server.js", f"sk-{SECRET}"], "node server.js ***"),
        (["server", "--sort-key", "name", "--max-tokens", "5"], "server --sort-key name --max-tokens 5"),
        ([], ""),
    ],
)
def test_a_command_is_shown_without_its_secrets(argv: list[str], expected: str | None) -> None:
    message = redacted_command(argv)
    assert "hunter2" not in message
    assert expected is None or message == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"cannot reach https://me:{SECRET}@h/x?token={SECRET}: refused", None),
        (f"two: s3://a:{SECRET}@b and postgresql+asyncpg://c:{SECRET}@d/e", None),
        (f"https://ghp_{SECRET}@github.com/x", "https://***@github.com/x"),
        (f"https://ghp_{SECRET}:x-oauth-basic@github.com/x", "https://***@github.com/x"),
        (f"https://ann@mail.example:{SECRET}@h/x", "https://ann@mail.example@h/x"),
        (f"mysql://ann@mail.example:{SECRET}@db:1/x", "mysql://ann@mail.example@db:1/x"),
        ("mysql://ann@db:3306/x?note=a@b", "mysql://ann@db:3306/x?note=a@b"),
        (f'the answer was {{"password": "a\\"{SECRET}"}}', 'the answer was {"password": ***}'),
        (f"password='C:\\' and secret='{SECRET}'", None),
        (f'password="C:\\" and secret="{SECRET}"', None),
        (f'password="{SECRET}\\"', "password=***"),
        (f"https://h/x#access_token={SECRET}&a=1", "https://h/x#a=1"),
        (f"https://h/x?a=1&sig={SECRET}&b=2#f", "https://h/x?a=1&b=2#f"),
        (f"Authorization: Bearer {SECRET}", "Authorization: Bearer ***"),
        (f"password={SECRET} failed", "password=*** failed"),
        (f"Cannot start server --token {SECRET} --password '{SECRET} x': gone", None),
        ("password: too short; the token = count is 5", "password: too short; the token = *** is 5"),
        (f"sent X-Api-Key: {SECRET}, got 401", "sent X-Api-Key: ***, got 401"),
        (f"GITHUB_TOKEN: {SECRET}", "GITHUB_TOKEN: ***"),
        (f"login failed, password: {SECRET}", "login failed, password: ***"),
        (f"Password:{SECRET} token: '{SECRET}'", "Password:*** token: '***'"),
        (f"Cookie: session={SECRET}; theme={SECRET}, got 401", "Cookie: ***, got 401"),
        (f"set-cookie: id={SECRET}; Path=/; Secure", "set-cookie: ***; Secure"),
        ("unknown key: column_12, auth: oauth2-login", "unknown key: column_12, auth: oauth2-login"),
        (f"DB_PASS={SECRET} and AccountKey={SECRET};x=1", "DB_PASS=*** and AccountKey=***;x=1"),
        (f"hf_{SECRET} npm_{SECRET}{SECRET} pypi-AgE{SECRET}", "*** *** ***"),
        (f"sk_live_{SECRET} ya29.{SECRET} SG.{SECRET}.{SECRET}", "*** *** ***"),
        (f"--token in-{SECRET}: Bearer abcdef.{SECRET}: password={SECRET}(", "--token ***: Bearer ***: password=***"),
        ('token = DATA["missing"]', 'token = DATA["missing"]'),
        ("password = os.getenv('PASSWORD')", "password = os.getenv('PASSWORD')"),
        ("if token == 'x':", "if token == 'x':"),
        ("the bearer authentication failed", "the bearer authentication failed"),
        ("--password is needed, or --token", "--password is needed, or --token"),
        ("api_key: Field required", "api_key: Field required"),
        ("There is no folder /srv/docs.", "There is no folder /srv/docs."),
    ],
)
def test_a_message_is_shown_without_its_secrets(text: str, expected: str | None) -> None:
    message = redacted_text(text)
    assert "hunter2" not in message
    assert expected is None or message == expected
    assert redacted_text(message) == message


@pytest.mark.parametrize(
    "piece",
    ["sqlite://a:", "?token=", "https://a:b", "a=", "password=", "password='", 'token="', "://", "a", "eyJaaaaaaaa.",
     "bearer ", "@", "&key=x", "-", "--token ", " --token '", "sk-", "a_key:", "a_key: 1234567",
     "SG.a", "token = x[", "a-", "bearer a", '"password":', 'a="\\', 'a="\\" ', "a='\\\\",
     "cookie:", "cookie:a", "cookie:a=", "cookie:a=b;", "password: x1234567", "password:"],
)  # fmt: skip
def test_redacting_takes_time_linear_in_the_text(piece: str) -> None:
    """A megabyte takes well below a second; a quadratic search takes minutes."""
    text = piece * (1_000_000 // len(piece))
    start = time.process_time()
    redacted(text)
    redacted("https://h/?" + text)
    redacted_text(text)
    redacted_command(["curl", text])
    assert time.process_time() - start < 8
