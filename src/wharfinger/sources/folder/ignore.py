"""Decides which names in a folder are published, by .gitignore files, the operator's choice, and the names themselves.

Hidden and credential-like names are withheld. Does no I/O.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from wharfinger.content.globs import Matcher, compile_glob, is_wild
from wharfinger.content.secret_files import looks_secret
from wharfinger.source import UnusableSource

__all__ = [
    "IGNORE_FILE",
    "IGNORE_FILE_BYTES",
    "MAX_PATTERNS",
    "MAX_WILD_PATTERNS",
    "Patterns",
    "PublishChoice",
    "Rules",
    "Verdict",
    "read_ignore_file",
]

log = logging.getLogger("wharfinger.sources")

Verdict = Literal["", "hidden", "ignored", "secret", "excluded", "never"]
"""Why a file or directory is not published, or an empty string if it is published."""

IGNORE_FILE = ".gitignore"
# These files are not trusted. If one exceeds a limit, nothing in its directory is published: reading only a part of it
# might leave out the one line that withholds something.
IGNORE_FILE_BYTES = 256 << 10
MAX_PATTERNS = 20_000  # of all files that apply to one directory
MAX_WILD_PATTERNS = 1_000  # of which have wildcards other than that of `*.suffix`
_MAX_WILD_CHARACTERS = 1_000  # of one such pattern

# A repository's own store holds every deleted secret. `git~1` is its short name on Windows.
_NEVER = frozenset({".git", "git~1"})


class _Wild(NamedTuple):
    """A pattern with wildcards, its `number` in the file, and the text with which all matches begin."""

    number: int
    directory: bool
    whole: bool
    """Whether it is matched against the path below the file's directory instead of the name."""
    begin: str
    rest: Matcher


class Patterns:
    """The lines of a .gitignore file, with the same meaning as in git.

    Plain patterns are looked up in dictionaries, which have the number of their last line. The first character of a key
    says what it matches: `=` a name, `/` a path, `*` a suffix of a name. Only the patterns in `wild` are matched one by
    one.
    """

    __slots__ = ("_any", "_directories", "_ignores", "_suffixes", "everything", "wild")

    def __init__(self, lines: Iterable[str] = (), *, everything: bool = False) -> None:
        self.everything = everything
        """Whether everything is ignored, without regard to the lines."""
        self.wild: list[_Wild] = []
        self._any: dict[str, int] = {}
        self._directories: dict[str, int] = {}
        self._ignores: list[bool] = []
        for line in lines:
            self._add(line)
            if len(self.wild) > MAX_WILD_PATTERNS:  # too many already: compiling the rest of 256 KiB takes a second
                break
        self.wild.reverse()
        self._suffixes = sorted({len(key) - 1 for key in (*self._any, *self._directories) if key[0] == "*"})

    def __len__(self) -> int:
        return len(self._ignores)

    def _add(self, line: str) -> None:
        """Add one line (gitignore, "Pattern format")."""
        pattern = _without_spaces(line.partition("\0")[0])
        negative = pattern.startswith("!")
        pattern = pattern[negative:]
        directory = pattern.endswith("/")
        pattern = pattern[: len(pattern) - directory]
        while pattern.startswith("**/") and "/" not in pattern[3:]:
            pattern = pattern[3:]
        whole = "/" in pattern
        pattern = pattern.removeprefix("/")
        if not pattern:
            return
        number = len(self._ignores)
        self._ignores.append(not negative)
        wild = is_wild(pattern)
        patterns = self._directories if directory else self._any
        if wild is None:
            patterns[("/" if whole else "=") + pattern] = number
        elif not whole and pattern[0] == "*" and not is_wild(pattern, 1):
            patterns[pattern] = number
        else:
            begin = wild.start() if whole else 0
            matches = compile_glob(pattern[begin:], path=whole) if len(pattern) <= _MAX_WILD_CHARACTERS else None
            if matches is None:
                self.everything = True
                return
            self.wild.append(_Wild(number, directory, whole, pattern[:begin], matches))

    def ignores(self, path: str, directory: bool) -> bool | None:
        """Return whether the last matching line ignores a path below the file's directory; None if no line matches."""
        if self.everything:
            return True
        name = path[path.rfind("/") + 1 :]
        keys = ["=" + name, "/" + path]
        keys += ["*" + name[len(name) - length :] for length in self._suffixes if length <= len(name)]
        last_number = max(self._any.get(key, -1) for key in keys)
        if directory and self._directories:
            last_number = max(last_number, *(self._directories.get(key, -1) for key in keys))
        for wild in self.wild:
            if wild.number < last_number:
                break
            if wild.directory and not directory:
                continue
            text = path if wild.whole else name
            if text.startswith(wild.begin) and wild.rest(text[len(wild.begin) :]):
                last_number = wild.number
                break
        return self._ignores[last_number] if last_number >= 0 else None


def _without_spaces(line: str) -> str:
    """Return the line without the spaces at its end, except one after a backslash."""
    stripped = line.rstrip(" ")
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if backslashes % 2 and stripped != line else stripped


def read_ignore_file(data: bytes, where: str = "") -> Patterns | None:
    """Read the contents of a .gitignore file; None if it has no pattern. Like git, match its patterns as bytes."""
    text = data.decode("latin-1").removeprefix("\xef\xbb\xbf")
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    compiled = _compile(lines)
    if compiled is None or not (compiled.everything or len(data) > IGNORE_FILE_BYTES or _exceeds_limits((compiled,))):
        return compiled
    log.warning(
        "%s/%s is larger than %d KiB, or has more than %d patterns (%d with wildcards) or one of more than %d "
        "characters: nothing in this directory is published.",
        where or ".", IGNORE_FILE, IGNORE_FILE_BYTES >> 10, MAX_PATTERNS, MAX_WILD_PATTERNS, _MAX_WILD_CHARACTERS,
    )  # fmt: skip
    return Patterns(everything=True)


def _exceeds_limits(patterns: Iterable[Patterns]) -> bool:
    every = tuple(patterns)
    return sum(map(len, every)) > MAX_PATTERNS or sum(len(each.wild) for each in every) > MAX_WILD_PATTERNS


def _compile(lines: Iterable[str]) -> Patterns | None:
    compiled = Patterns(line for line in lines if line and not line.startswith("#"))
    return compiled if compiled or compiled.everything else None


def _compile_choice(patterns: Iterable[str]) -> Patterns | None:
    """Compile the operator's patterns. Too many are refused: ignoring some would publish or hide other files.

    Raises:
        UnusableSource: there are too many, or one is too long.
    """
    compiled = _compile(patterns)
    if compiled is not None and (compiled.everything or _exceeds_limits((compiled,))):
        raise UnusableSource(
            f"Give at most {MAX_WILD_PATTERNS:,} patterns with wildcards, "
            f"of at most {_MAX_WILD_CHARACTERS:,} characters each."
        )
    return compiled


class PublishChoice:
    """The operator's choice of files to publish or exclude, by patterns as in a .gitignore file.

    `exclude` always wins. With `include`, only files that match are published. A hidden, ignored or credential-like
    name is published if `include` has exactly this name, without a wildcard.
    """

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = (), hidden: bool = False) -> None:
        included = tuple(include)
        self.hidden = hidden
        self.included = _compile_choice(included)
        self.excluded = _compile_choice(exclude)
        self.is_default = self.included is None and self.excluded is None
        self.named = frozenset(
            part
            for pattern in included
            if not pattern.startswith("!")
            for part in pattern.split("/")
            if not is_wild(part)
        )


@lru_cache(4_096)  # called for every entry of a directory, and for every read of a file
def _verdict_on_name(name: str, directory: bool, hidden: bool) -> Verdict:
    """Return why the name alone withholds an entry. Names that begin with a dot are published if `hidden` is true."""
    if name.lower() in _NEVER:
        return "never"
    if name.startswith(".") and not hidden:
        return "hidden"
    return "secret" if looks_secret(name, directory=directory) else ""


class _Level(NamedTuple):
    """The .gitignore of one directory, and the length of the directory's path below the root in bytes."""

    prefix_bytes: int
    patterns: Patterns


class Rules:
    """The rules of one directory: the operator's choice, and the .gitignore files from there up to the root."""

    __slots__ = ("choice", "levels", "prefix")

    def __init__(self, choice: PublishChoice, prefix: str = "", levels: tuple[_Level, ...] = ()) -> None:
        self.choice = choice
        self.prefix = prefix  # the path from the root, each part with its slash
        self.levels = levels  # deepest first: a deeper file takes precedence

    def enter(self, name: str) -> Rules:
        """Return the rules of a sub-directory, before its own .gitignore."""
        return Rules(self.choice, f"{self.prefix}{name}/", self.levels)

    def with_patterns(self, patterns: Patterns | None) -> Rules:
        """Return these rules with the directory's own .gitignore."""
        if patterns is None:
            return self
        if _exceeds_limits((patterns, *(level.patterns for level in self.levels))):
            patterns = Patterns(everything=True)
        return Rules(self.choice, self.prefix, (_Level(self.prefix_bytes, patterns), *self.levels))

    @property
    def prefix_bytes(self) -> int:
        """The length of `prefix` in bytes."""
        return len(os.fsencode(self.prefix))

    def judge(self, name: str, directory: bool) -> Verdict:
        """Return why an entry of this published directory is not published, or an empty string if it is published."""
        choice = self.choice
        verdict = _verdict_on_name(name, directory, choice.hidden)
        if verdict == "never" or (choice.is_default and (verdict or not self.levels)):
            return verdict
        path = self.prefix + name
        if choice.excluded is not None and choice.excluded.ignores(path, directory):
            return "excluded"
        if name not in choice.named:
            if verdict:
                return verdict
            if self.levels and self._ignores(path, directory):
                return "ignored"
        if choice.included is not None and not directory and not _is_included(choice.included, path):
            return "excluded"
        return ""

    def _ignores(self, path: str, directory: bool) -> bool:
        if not path.isascii():
            path = os.fsencode(path).decode("latin-1")
        for level in self.levels:
            ignored = level.patterns.ignores(path[level.prefix_bytes :], directory)
            if ignored is not None:
                return ignored
        return False


def _is_included(included: Patterns, path: str) -> bool:
    """Return whether the patterns include a path, or a directory above it."""
    directory = False
    while path:
        matched = included.ignores(path, directory)
        if matched is not None:
            return matched
        path, directory = path.rpartition("/")[0], True
    return False
