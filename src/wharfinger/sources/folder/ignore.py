"""Decides which names in a folder are published, by .gitignore files, the operator's choice, and the names themselves.

Hidden and credential-like names are withheld by default. Does no I/O.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from wharfinger.content.globs import Matcher, compile_glob, is_wild
from wharfinger.content.secret_files import looks_secret
from wharfinger.content.text import shown
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
MAX_PATTERNS = 20_000  # in all files that apply to one directory
MAX_WILD_PATTERNS = 1_000  # in the same files, with a wildcard other than one leading `*`
_MAX_WILD_CHARACTERS = 1_000  # in one such pattern

# .git still holds secrets that were deleted from the files. git~1 is its short name on Windows.
_NEVER = frozenset({".git", "git~1"})


class _WildPattern(NamedTuple):
    """A pattern with wildcards, and its number among the patterns of the file."""

    number: int
    only_directories: bool
    matches_path: bool
    """Whether it is matched against the path below the directory of the .gitignore file, instead of the name."""
    begin: str
    """The text with which all matches begin."""
    rest: Matcher
    """Matches what follows `begin`."""


class Patterns:
    """The lines of a .gitignore file, or the operator's patterns, with the same meaning as in git.

    Plain patterns are looked up in dictionaries, which map each to the number of its last occurrence. The first
    character of a key says what it matches: `=` a name, `/` a path, `*` a suffix of a name. Only the patterns in `wild`
    are matched one by one.
    """

    __slots__ = ("_any", "_directories", "_selects", "_suffixes", "everything", "wild")

    def __init__(self, lines: Iterable[str] = (), *, everything: bool = False) -> None:
        self.everything = everything
        """Whether everything is selected, without regard to the lines."""
        self.wild: list[_WildPattern] = []
        self._any: dict[str, int] = {}  # patterns of files and directories
        self._directories: dict[str, int] = {}  # patterns of directories only
        self._selects: list[bool] = []  # by the number of the pattern; False if it begins with `!`
        for line in lines:
            self._add(line)
            if len(self.wild) > MAX_WILD_PATTERNS:  # too many already: compiling the rest of 256 KiB takes a second
                break
        self.wild.reverse()
        self._suffixes = sorted({len(key) - 1 for key in (*self._any, *self._directories) if key[0] == "*"})

    def __len__(self) -> int:
        return len(self._selects)

    def _add(self, line: str) -> None:
        """Add one line (gitignore, "Pattern format")."""
        pattern = _without_spaces(line.partition("\0")[0])
        negative = pattern.startswith("!")
        pattern = pattern[negative:]
        only_directories = pattern.endswith("/")
        pattern = pattern[: len(pattern) - only_directories]
        if pattern.startswith("**/") and "/" not in pattern[3:]:
            pattern = pattern[3:]
        matches_path = "/" in pattern
        pattern = pattern.removeprefix("/")
        if not pattern:
            return
        number = len(self._selects)
        self._selects.append(not negative)
        wild = is_wild(pattern)
        patterns = self._directories if only_directories else self._any
        if wild is None:
            patterns[("/" if matches_path else "=") + pattern] = number
        elif not matches_path and pattern[0] == "*" and not is_wild(pattern, 1):
            patterns[pattern] = number
        else:
            begin = wild.start() if matches_path else 0
            matches = compile_glob(pattern[begin:], path=matches_path) if len(pattern) <= _MAX_WILD_CHARACTERS else None
            if matches is None:
                self.everything = True
                return
            self.wild.append(_WildPattern(number, only_directories, matches_path, pattern[:begin], matches))

    def selects(self, path: str, is_directory: bool) -> bool | None:
        """Return True if the last line that matches a path has no `!`, False if it has one, None if no line matches.

        The path is relative to the directory of the file.
        """
        if self.everything:
            return True
        name = path[path.rfind("/") + 1 :]
        keys = ["=" + name, "/" + path]
        keys += ["*" + name[len(name) - length :] for length in self._suffixes if length <= len(name)]
        last_number = max(self._any.get(key, -1) for key in keys)
        if is_directory and self._directories:
            last_number = max(last_number, *(self._directories.get(key, -1) for key in keys))
        for wild in self.wild:
            if wild.number < last_number:
                break
            if wild.only_directories and not is_directory:
                continue
            text = path if wild.matches_path else name
            if text.startswith(wild.begin) and wild.rest(text[len(wild.begin) :]):
                last_number = wild.number
                break
        return self._selects[last_number] if last_number >= 0 else None


def _without_spaces(line: str) -> str:
    """Return the line without the spaces at its end, except one after a backslash."""
    stripped = line.rstrip(" ")
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if backslashes % 2 and stripped != line else stripped


def read_ignore_file(data: bytes, prefix: str = "") -> Patterns | None:
    """Compile a .gitignore file, or return None if it has no pattern. Patterns match bytes, as in git.

    `prefix` is the path of its directory, with a slash at the end.
    """
    text = data.decode("latin-1").removeprefix("\xef\xbb\xbf")
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    compiled = _compile(lines)
    is_cut = len(data) > IGNORE_FILE_BYTES
    if not is_cut and (compiled is None or not (compiled.everything or _exceeds_limits((compiled,)))):
        return compiled
    log.warning(
        "%s%s is larger than %d KiB, has more than %d patterns or %d with wildcards, or has one with wildcards of more "
        "than %d characters: nothing in this directory is published.",
        shown(prefix) or "./", IGNORE_FILE, IGNORE_FILE_BYTES >> 10, MAX_PATTERNS, MAX_WILD_PATTERNS,
        _MAX_WILD_CHARACTERS,
    )  # fmt: skip
    return Patterns(everything=True)


def _exceeds_limits(patterns: Iterable[Patterns]) -> bool:
    every = tuple(patterns)
    return sum(map(len, every)) > MAX_PATTERNS or sum(len(each.wild) for each in every) > MAX_WILD_PATTERNS


def _compile(lines: Iterable[str]) -> Patterns | None:
    compiled = Patterns(line for line in lines if line and not line.startswith("#"))
    return compiled or None


def _compile_choice(patterns: Iterable[str]) -> Patterns | None:
    """Compile the operator's patterns. Too many are refused: leaving some out would publish or hide the wrong files.

    Raises:
        UnusableSource: there are too many, or one is too long.
    """
    compiled = _compile(patterns)
    if compiled is not None and (compiled.everything or _exceeds_limits((compiled,))):
        raise UnusableSource(
            f"Give at most {MAX_PATTERNS:,} patterns, and at most {MAX_WILD_PATTERNS:,} with wildcards, "
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
        # The names that `include` spells out, which are published even if they are hidden, ignored or credential-like.
        self.named = frozenset(
            part
            for pattern in included
            if not pattern.startswith("!")
            for part in pattern.split("/")
            if not is_wild(part)
        )


@lru_cache(4_096)  # called for every entry of a directory, and for every read of a file
def _verdict_on_name(name: str, is_directory: bool, publish_hidden: bool) -> Verdict:
    """Return why the name alone withholds an entry, or an empty string if it does not."""
    if name.lower() in _NEVER:
        return "never"
    if name.startswith(".") and not publish_hidden:
        return "hidden"
    return "secret" if looks_secret(name, directory=is_directory) else ""


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
        """Return the rules of a sub-directory, without its own .gitignore."""
        return Rules(self.choice, f"{self.prefix}{name}/", self.levels)

    def with_patterns(self, patterns: Patterns | None) -> Rules:
        """Return these rules with the directory's own .gitignore."""
        if patterns is None:
            return self
        if _exceeds_limits((patterns, *(level.patterns for level in self.levels))):
            log.warning(
                "%s%s and the files above it have more than %d patterns or %d with wildcards: nothing in this "
                "directory is published.",
                shown(self.prefix) or "./", IGNORE_FILE, MAX_PATTERNS, MAX_WILD_PATTERNS,
            )  # fmt: skip
            patterns = Patterns(everything=True)
        return Rules(self.choice, self.prefix, (_Level(self.prefix_bytes, patterns), *self.levels))

    @property
    def prefix_bytes(self) -> int:
        """The length of `prefix` in bytes."""
        return len(os.fsencode(self.prefix))

    def judge(self, name: str, is_directory: bool) -> Verdict:
        """Return why an entry of this published directory is not published, or an empty string if it is published."""
        choice = self.choice
        verdict = _verdict_on_name(name, is_directory, choice.hidden)
        if verdict == "never" or (choice.is_default and (verdict or not self.levels)):
            return verdict
        path = self.prefix + name
        if choice.excluded is not None and choice.excluded.selects(path, is_directory):
            return "excluded"
        if name not in choice.named:
            if verdict:
                return verdict
            if self.levels and self._ignores(path, is_directory):
                return "ignored"
        if choice.included is not None and not is_directory and not _is_included(choice.included, path):
            return "excluded"
        return ""

    def _ignores(self, path: str, is_directory: bool) -> bool:
        if not path.isascii():
            path = os.fsencode(path).decode("latin-1")
        for level in self.levels:
            ignored = level.patterns.selects(path[level.prefix_bytes :], is_directory)
            if ignored is not None:
                return ignored
        return False


def _is_included(included: Patterns, path: str) -> bool:
    """Return whether the patterns include a path, or a directory above it."""
    is_directory = False
    while path:
        matched = included.selects(path, is_directory)
        if matched is not None:
            return matched
        path, is_directory = path.rpartition("/")[0], True
    return False
