"""The names of secret values, and the forms of tokens, for messages and for logs."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SECRET_NAMES", "TOKEN_FORMS", "TOKEN_START", "TokenForm"]

SECRET_NAMES = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "credentials", "signature"),
    *("authorization", "api_key", "secret_key", "access_key", "access_key_id", "account_key", "private_key"),
    "session_id",
)
"""Names of secret values. They also match as the end of a longer name, and with `-` or nothing instead of `_`."""

TOKEN_START = r"(?<![A-Za-z0-9_-])"  # noqa: S105
"""A pattern before a token, which does not begin in the middle of a word."""


class TokenForm(NamedTuple):
    """A kind of token that is recognised by its form, without a name before it."""

    name: str
    beginnings: tuple[str, ...]
    """Every match of the pattern begins with one of these."""
    pattern: str
    """A regular expression without groups. It takes linear time: possessive quantifiers (`++`) match each run once."""


TOKEN_FORMS = (
    TokenForm("OpenAI", ("sk-",), r"sk-[A-Za-z0-9_-]{16,}+"),
    TokenForm("GitHub", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{16,}+"),
    TokenForm("GitHub", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{16,}+"),
    TokenForm("GitLab", ("glpat-",), r"glpat-[A-Za-z0-9_-]{16,}+"),
    TokenForm("Hugging Face", ("hf_",), r"hf_[A-Za-z0-9]{16,}+"),
    TokenForm("npm", ("npm_",), r"npm_[A-Za-z0-9]{30,}+"),
    TokenForm("PyPI", ("pypi-AgE",), r"pypi-AgE[A-Za-z0-9_-]{16,}+"),
    TokenForm("Stripe", ("sk_live_", "sk_test_", "rk_live_", "rk_test_"), r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}+"),
    TokenForm("Google OAuth", ("ya29.",), r"ya29\.[A-Za-z0-9_-]{16,}+"),
    TokenForm("Google API key", ("AIza",), r"AIza[A-Za-z0-9_-]{35}"),
    TokenForm("SendGrid", ("SG.",), r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"),
    TokenForm("Slack", ("xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-"), r"xox[abeprs]-[A-Za-z0-9-]{8,}+"),
    TokenForm("AWS key id", ("AKIA", "ASIA"), r"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    TokenForm("JSON Web Token", ("eyJ",), r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+)?"),
)
