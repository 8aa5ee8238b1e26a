"""Every form of a token is hidden in messages and in logs alike."""

from __future__ import annotations

import pytest

from wharfinger.content.redaction import redacted_text
from wharfinger.content.secret_forms import SECRET_NAMES, TOKEN_FORMS
from wharfinger.sources.log_files.secrets import secret_spans

TOKENS = {
    "sk-": "a" * 16, "ghp_": "a" * 16, "gho_": "a" * 16, "ghu_": "a" * 16, "ghs_": "a" * 16, "ghr_": "a" * 16,
    "github_pat_": "a" * 16, "glpat-": "a" * 16, "hf_": "a" * 16, "npm_": "a" * 30, "pypi-AgE": "a" * 16,
    "sk_live_": "a" * 10, "sk_test_": "a" * 10, "rk_live_": "a" * 10, "rk_test_": "a" * 10, "ya29.": "a" * 16,
    "AIza": "a" * 35, "SG.": "a" * 16 + "." + "b" * 16, "xoxa-": "1" * 8, "xoxb-": "1" * 8, "xoxe-": "1" * 8,
    "xoxp-": "1" * 8, "xoxr-": "1" * 8, "xoxs-": "1" * 8, "AKIA": "A" * 16, "ASIA": "A" * 16,
    "eyJ": "a" * 8 + "." + "b" * 4,
}  # fmt: skip
"""For the beginning of each form of token, the shortest text that may follow it."""


def is_secret_in_log(line: str) -> bool:
    return bool(secret_spans(line.encode()))


def test_every_beginning_has_an_example() -> None:
    assert {beginning for form in TOKEN_FORMS for beginning in form.beginnings} == set(TOKENS)


@pytest.mark.parametrize("beginning", TOKENS)
def test_a_token_is_hidden_and_a_shorter_one_is_not(beginning: str) -> None:
    token = beginning + TOKENS[beginning]
    assert redacted_text(f"a {token} b") == "a *** b"
    assert secret_spans(f"a {token} b".encode()) == [(2, 2 + len(token))]
    assert redacted_text(f"a {token[:-1]} b") == f"a {token[:-1]} b"
    assert not is_secret_in_log(f"a {token[:-1]} b")


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_value_with_the_name_of_a_secret_is_hidden(name: str) -> None:
    for spelled in (name, name.replace("_", "-"), name.replace("_", ""), f"my_{name}".upper()):
        assert "hunter2" not in redacted_text(f"{spelled}=hunter2 x")
        assert is_secret_in_log(f"{spelled}=hunter2 x")
