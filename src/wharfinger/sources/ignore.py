"""What of a folder is published: .gitignore, hidden and credential-like names, and what the operator chose.

Decides by names alone; refuses to open or list anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = ["IGNORE_FILE", "IGNORE_FILE_LONGEST", "Choice", "Rules", "Verdict", "looks_secret", "read_ignore_file"]

Verdict = Literal["", "hidden", "ignored", "secret", "excluded", "never"]
"""Why something is not published; empty where it is."""

IGNORE_FILE = ".gitignore"
IGNORE_FILE_LONGEST = 1 << 20  # bytes; what is longer is cut there

# A repository's own store holds every deleted secret. `git~1` is its short name on Windows.
_NEVER = frozenset({".git", "git~1"})
_SECRET_NAMES = frozenset(
    {
        ".aws", ".azure", ".dockercfg", ".git-credentials", ".gnupg", ".htpasswd", ".kube", ".my.cnf", ".netrc",
        ".npmrc", ".pgpass", ".pypirc", ".ssh", ".terraformrc", ".vault-token", "_netrc", "auth.json", "cookies.sqlite",
        "key3.db", "key4.db", "keystore", "kubeconfig", "logins.json", "secrets.json", "secrets.toml", "secrets.yaml",
        "secrets.yml", "shadow", "truststore", "wallet.dat",
    }
)  # fmt: skip
_SECRET_STARTS = (".env", "credentials", "client_secret", "service-account", "service_account")
_SECRET_ENDS = (
    ".pem", ".key", ".p12", ".pfx", ".kdbx", ".kdb", ".jks", ".keystore", ".ppk", ".p8", ".pkcs12", ".ovpn", ".env",
    ".tfstate", ".tfstate.backup", ".agekey", ".gpgkey",
)  # fmt: skip
# `id_rsa`, `id_ed25519.bak` and whatever a key may be called, but not the source code of somebody's `id_pool.py`.
_CODE_ENDS = (
    ".py", ".pyi", ".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".rs", ".go", ".java", ".kt", ".c", ".h", ".cc",
    ".cpp", ".hpp", ".cs", ".rb", ".php", ".swift", ".scala", ".sql", ".css", ".html", ".vue", ".svelte",
)  # fmt: skip
_WILD = re.compile(r"[*?\[\\]").search


def looks_secret(name: str) -> bool:
    """Tell whether a file or directory of this name likely holds credentials; upper and lower case are alike."""
    lower = name.lower()
    return (
        lower.endswith(_SECRET_ENDS)
        or lower.startswith(_SECRET_STARTS)
        or lower in _SECRET_NAMES
        or (lower.startswith("id_") and not lower.endswith(_CODE_ENDS))
    )


def read_ignore_file(data: bytes) -> GitIgnoreSpec | None:
    """Compile the contents of a .gitignore file; lines that are no patterns are left out, None where none is left."""
    text = data[:IGNORE_FILE_LONGEST].decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    return _compile(line.removesuffix("\r") for line in text.split("\n"))


def _compile(lines: Iterable[str]) -> GitIgnoreSpec | None:
    wanted = [line for line in lines if line.strip() and not line.startswith("#")]
    if not wanted:
        return None
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(wanted)
    except ValueError:
        good = [line for line in wanted if _is_pattern(line)]
        return GitIgnoreSpec.from_lines(good) if good else None


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


class Choice:
    """What the operator chose to publish, or not to, with patterns as in a .gitignore file.

    `exclude` always wins. With `include`, only files that match are published. What is hidden, ignored or looks like a
    credential is published if `include` spells its name out, without a wildcard.
    """

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = (), hidden: bool = False) -> None:
        included = tuple(include)
        self.hidden = hidden
        self.included = _compile(included)
        self.excluded = _compile(exclude)
        self.named = frozenset(
            part
            for pattern in included
            if not pattern.startswith("!")
            for part in pattern.split("/")
            if not _WILD(part)
        )


class _Level(NamedTuple):
    """The .gitignore of one directory; `cut` is how much of a path below the root is the way to that directory."""

    cut: int
    spec: GitIgnoreSpec


class Rules:
    """What holds in one directory: the operator's choice, and the .gitignore files from there up to the root."""

    __slots__ = ("choice", "levels", "prefix")

    def __init__(self, choice: Choice, prefix: str = "", levels: tuple[_Level, ...] = ()) -> None:
        self.choice = choice
        self.prefix = prefix  # the way here from the root, each part with its slash
        self.levels = levels  # deepest first: a deeper file overrules

    def enter(self, name: str) -> Rules:
        """The rules of a sub-directory, before its own .gitignore."""
        return Rules(self.choice, f"{self.prefix}{name}/", self.levels)

    def adding(self, spec: GitIgnoreSpec | None) -> Rules:
        """These rules with the directory's own .gitignore."""
        if spec is None:
            return self
        return Rules(self.choice, self.prefix, (_Level(len(self.prefix), spec), *self.levels))

    def judge(self, name: str, directory: bool) -> Verdict:
        """Say whether an entry of this directory is published; its parents are taken to be."""
        choice = self.choice
        if name.lower() in _NEVER:
            return "never"
        if choice.excluded is not None and choice.excluded.match_file(self._path(name, directory)):
            return "excluded"
        if name not in choice.named:
            if name.startswith(".") and not choice.hidden:
                return "hidden"
            if looks_secret(name):
                return "secret"
            if self.levels and self._ignores(self._path(name, directory)):
                return "ignored"
        if choice.included is not None and not directory and not choice.included.match_file(self.prefix + name):
            return "excluded"
        return ""

    def _path(self, name: str, directory: bool) -> str:
        return f"{self.prefix}{name}/" if directory else self.prefix + name

    def _ignores(self, path: str) -> bool:
        for level in self.levels:
            said: bool | None = level.spec.check_file(path[level.cut :]).include
            if said is not None:
                return said
        return False
