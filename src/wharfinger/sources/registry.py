"""Makes sources from words of the command line: `git:PATH`, `sqlite:///FILE`, a folder's path and so on.

`LABEL=WORD` sets the label of a source. The module of a kind is loaded on first use.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from wharfinger import sources
from wharfinger.content.redaction import has_password, redacted, redacted_command, redacted_text
from wharfinger.source import Source, UnusableSource
from wharfinger.sources.labels import first_free_label, split_label

__all__ = [
    "FILES",
    "KINDS",
    "ParsedSource",
    "PreparedSource",
    "SourceKind",
    "absolute_word",
    "make_sources",
    "parse_word",
    "secret_remark",
    "short_name",
    "shown_word",
]


def _whole_word(scheme: str, rest: str) -> str:
    return f"{scheme}:{rest}"


def _rest_of_word(scheme: str, rest: str) -> str:
    return rest


def _command_line(scheme: str, rest: str) -> list[str]:
    try:
        argv = shlex.split(rest)
    except ValueError as error:
        raise UnusableSource(f"{scheme}: must be followed by a command line: {error}.") from None
    if not argv:
        raise UnusableSource(f"{scheme}: needs a command line, such as 'command:df -h'.")
    return argv


def _absolute_path(scheme: str, rest: str) -> str:
    return f"{scheme}:{os.path.abspath(os.path.expanduser(rest))}"


def _absolute_skills(scheme: str, rest: str) -> str:
    """Make the path in `skills:git:PATH` absolute, and leave an address as it is."""
    path = rest.partition(":")[2]
    return f"{scheme}:{rest}" if "://" in path else f"{scheme}:{_absolute_path('git', path)}"


def _absolute_file_url(scheme: str, rest: str) -> str:
    """Make the path of a URL absolute: `sqlite:///shop.db` is relative, `sqlite:////srv/shop.db` is not."""
    match = re.fullmatch(r"///([^/?][^?]*)(\?.*)?", rest, re.DOTALL)
    if match is None or match[1] == ":memory:" or match[1].startswith("file:"):
        return f"{scheme}:{rest}"
    return f"{scheme}:///{os.path.abspath(match[1])}{match[2] or ''}"


def _absolute_document(scheme: str, rest: str) -> str:
    """Make the path of a document absolute, and leave a URL as it is."""
    return f"{scheme}:{rest}" if _is_url(rest) else _absolute_path(scheme, rest)


_is_url = re.compile(r"https?://", re.IGNORECASE).match


def _journal(scheme: str, rest: str) -> dict[str, str]:
    """Return the argument for a unit, or for a directory of journal files if the word looks like a path."""
    return {"directory" if rest.startswith(("/", ".", "~")) else "unit": rest}


def _absolute_journal(scheme: str, rest: str) -> str:
    return _absolute_path(scheme, rest) if "directory" in _journal(scheme, rest) else f"{scheme}:{rest}"


class SourceKind(NamedTuple):
    """A kind of data. `form` shows how its words are written."""

    form: str
    description: str
    factory: str
    """The function of `wharfinger.sources`, whose module is loaded on first use."""
    schemes: tuple[str, ...] = ()
    """The schemes of its words, before the colon. `git:https` is for words of `git:` that continue with `https:`."""
    argument: Callable[[str, str], Any] = _whole_word
    """Makes the argument of the factory, or a dictionary of keyword arguments, from the scheme and rest of a word."""
    absolute: Callable[[str, str], str] = _whole_word
    """Makes a word independent of the current folder, from its scheme and its rest."""
    takes: tuple[str, ...] = ()
    """Options that are passed to the factory."""
    needs: str = ""
    """An option that must be set to allow this kind."""
    has_rest: bool = True
    """Whether a word may have a rest after the colon. Only then can a label be chosen."""
    rest_is_optional: bool = False
    """Whether the rest may be left out."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of the files that this kind publishes."""
    rarely_changes: bool = False
    """Whether the data rarely changes while the server runs."""
    accepts_queries: bool = False
    """Whether the source accepts statements if `--allow-query` is set."""
    label_option: str = "label"
    """The option of the factory that takes the label."""
    secret: str = ""
    """How to pass a password without writing it into the word."""
    environment: str = ""
    """Prefix of the environment variables that the source reads. Some hosts do not pass them on."""


FILES = SourceKind(
    "PATH",
    "files",
    "files",
    argument=_rest_of_word,
    takes=("include", "exclude", "hidden", "max_size", "absolute_uris"),
)
"""A folder, which has no scheme."""

_PGPASSWORD = "the variable PGPASSWORD"
_GIT_TOKEN = "the variable WHARFINGER_GIT_TOKEN"  # noqa: S105
_MYSQLPWD = "the variable MYSQL_PWD"
_BY_FILE = "a file that the program reads"

KINDS: tuple[SourceKind, ...] = (
    SourceKind("git:PATH", "a git repository", "git", ("git",), _rest_of_word, _absolute_path),
    SourceKind(
        "git:https://HOST/PATH.git",
        "a remote git repository, cloned and fetched",
        "git",
        ("git:https", "git:http"),
        _rest_of_word,
        takes=("every", "max_clone_size"),
        secret=_GIT_TOKEN,
        environment="WHARFINGER_GIT_",
    ),
    SourceKind(
        "sqlite:///FILE",
        "a SQLite database",
        "sql",
        ("sqlite",),
        absolute=_absolute_file_url,
        suffixes=(".db", ".sqlite", ".sqlite3", ".db3"),
        accepts_queries=True,
    ),
    SourceKind(
        "duckdb:///FILE",
        "a DuckDB database",
        "sql",
        ("duckdb",),
        absolute=_absolute_file_url,
        suffixes=(".duckdb", ".ddb"),
        accepts_queries=True,
    ),
    SourceKind(
        "postgresql://USER@HOST/DATABASE",
        "a PostgreSQL database",
        "sql",
        ("postgresql", "postgres"),
        accepts_queries=True,
        secret=_PGPASSWORD,
        environment="PGPASSWORD",
    ),
    SourceKind(
        "mysql://USER@HOST/DATABASE",
        "a MySQL or MariaDB database",
        "sql",
        ("mysql", "mariadb"),
        accepts_queries=True,
        secret=_MYSQLPWD,
        environment="MYSQL_PWD",
    ),
    SourceKind("oracle://…", "another database that SQLAlchemy supports", "sql", ("oracle", "mssql")),
    SourceKind(
        "log:GLOB",
        "logs, followed through rotation",
        "logs",
        ("log",),
        _rest_of_word,
        _absolute_path,
        suffixes=(".log",),
    ),
    SourceKind(
        "journal:[UNIT]",
        "the journal of systemd, or of one unit, or of a directory",
        "journal",
        ("journal",),
        _journal,
        _absolute_journal,
        rest_is_optional=True,
    ),
    SourceKind("s3://BUCKET/PREFIX", "objects of a bucket", "objects", ("s3", "s3a"), environment="AWS_"),
    SourceKind(
        "zip:FILE",
        "a ZIP archive",
        "objects",
        ("zip",),
        _whole_word,
        _absolute_path,
        suffixes=(".zip",),
        rarely_changes=True,
    ),
    SourceKind(
        "tar:FILE",
        "a tar archive, also .tar.gz, .tar.bz2 or .tar.xz",
        "objects",
        ("tar",),
        _whole_word,
        _absolute_path,
        suffixes=(".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"),
        rarely_changes=True,
    ),
    SourceKind("objects:URL", "objects of any store that fsspec supports", "objects", ("objects",), _rest_of_word),
    SourceKind("memory://PATH", "objects that fsspec keeps in memory", "objects", ("memory",)),
    SourceKind(
        "table:GLOB",
        "tables in CSV, JSON Lines, Parquet or Excel",
        "tables",
        ("table",),
        _rest_of_word,
        _absolute_path,
        takes=("encoding",),
        suffixes=(".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".xlsx", ".xlsm"),
        accepts_queries=True,
    ),
    SourceKind(
        "web:https://HOST/", "pages of a web site, as Markdown", "web", ("web",), _rest_of_word, takes=("every",)
    ),
    SourceKind(
        "skills:DIR",
        "skills: instructions with their files",
        "skills",
        ("skills",),
        _rest_of_word,
        _absolute_path,
        takes=("hidden",),
        label_option="prefix",
    ),
    SourceKind(
        "skills:git:…",
        "skills of a git repository, local or remote",
        "skills",
        ("skills:git",),
        _rest_of_word,
        _absolute_skills,
        takes=("hidden", "every", "max_clone_size"),
        label_option="prefix",
        secret=_GIT_TOKEN,
        environment="WHARFINGER_GIT_",
    ),
    SourceKind(
        "system:",
        "this machine: load, memory, disks and processes",
        "system",
        ("system",),
        has_rest=False,
    ),
    SourceKind("screen:", "this machine's screens", "screen", ("screen",), has_rest=False, environment="DISPLAY"),
    SourceKind(
        "command:LINE",
        "what a command prints (with --allow-command)",
        "command",
        ("command",),
        _command_line,
        takes=("every",),
        needs="allow_command",
        secret=_BY_FILE,
    ),
    SourceKind(
        "mcp:LINE",
        "the resources of an MCP server that a command starts (with --allow-command)",
        "upstream",
        ("mcp",),
        _command_line,
        needs="allow_command",
        secret=_BY_FILE,
    ),
    SourceKind(
        "openapi:URL",
        "an HTTP API, by its OpenAPI document",
        "openapi",
        ("openapi",),
        _rest_of_word,
        _absolute_document,
        takes=("allow_operations", "base_url", "every", "allow_private_networks"),
        environment="WHARFINGER_OPENAPI_",
    ),
    SourceKind(
        "https://HOST/mcp",
        "another MCP server's resources",
        "upstream",
        ("https", "http"),
        takes=("allow_private_networks",),
    ),
)
"""Every kind except folders, in the order of the documentation."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9.-]+)(\+[A-Za-z0-9._-]+)?:(.*)", re.DOTALL).fullmatch
_INNER_ADDRESS = re.compile(r"(?:git:)?(https?://.*)", re.DOTALL).fullmatch
_BY_SCHEME = {scheme: kind for kind in KINDS for scheme in kind.schemes}


class ParsedSource(NamedTuple):
    """A parsed word: its kind, its scheme (empty for a folder), the rest after the colon, and the label, if any."""

    kind: SourceKind
    scheme: str
    rest: str
    label: str | None

    @property
    def word(self) -> str:
        """The word without its label."""
        return f"{self.scheme}:{self.rest}" if self.scheme else self.rest


class PreparedSource(NamedTuple):
    """A source, and the word that it was made from."""

    parsed: ParsedSource
    source: Source

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.source.name


def parse_word(argument: str) -> ParsedSource:
    """Parse a word. A path that exists is always a path, whatever its name contains.

    Raises:
        UnusableSource: it starts with an unknown scheme, and there is no such path.
    """
    word, label = split_label(argument)
    match = None if os.path.lexists(word) else _SCHEME(word)
    if match is None:
        return ParsedSource(FILES, "", word, label)
    scheme = match[1].lower()
    inner = match[3].partition(":")[0].lower()
    kind = _BY_SCHEME.get(f"{scheme}:{inner}") or _BY_SCHEME.get(scheme)
    if kind is None:
        forms = ", ".join(kind.form for kind in (FILES, *KINDS))
        raise UnusableSource(
            f"{match[1]}: is not a kind of data that can be published, and there is no folder {redacted(word)!r} here. "
            f"Give one of: {forms}."
        )
    return ParsedSource(kind, scheme + (match[2] or ""), match[3], label)


def absolute_word(parsed: ParsedSource, *, secrets: bool = False) -> str:
    """Return the word with its label, for a program that starts in another folder. `secrets` keeps passwords in it."""
    scheme, rest = parsed.scheme, parsed.rest
    if scheme and not secrets and hides_secret(parsed):
        rest = shown_word(parsed).partition(":")[2]
    word = parsed.kind.absolute(scheme, rest) if scheme else os.path.abspath(os.path.expanduser(rest))
    return f"{parsed.label}={word}" if parsed.label is not None else word


def short_name(parsed: ParsedSource) -> str:
    """Return a name for a word before its source is made."""
    if parsed.label or (parsed.scheme and not parsed.rest):
        return parsed.label or parsed.scheme
    before_wildcard = re.split(r"[*?\[]", redacted(parsed.rest))[0].rstrip("/")
    return os.path.basename(os.path.abspath(before_wildcard)).partition(".")[0] or parsed.scheme


def hides_secret(parsed: ParsedSource) -> bool:
    """Return whether the word contains something that `shown_word` hides."""
    if parsed.kind.argument is not _command_line:
        return has_password(parsed.word)
    with contextlib.suppress(UnusableSource):
        argv = _command_line(parsed.scheme, parsed.rest)
        return redacted_command(argv) != shlex.join(argv)
    return redacted_text(parsed.word) != parsed.word


def secret_remark(parsed: ParsedSource) -> str:
    """Return a clause that says how to pass the password that `shown_word` hides, or an empty string."""
    if not hides_secret(parsed):
        return ""
    way = parsed.kind.secret or "the variables of its library"
    return f"the password of {shown_word(parsed)} is omitted: pass it by {way}"


def shown_word(parsed: ParsedSource) -> str:
    """Return the word without passwords, to show to people."""
    if parsed.kind.argument is not _command_line:
        return redacted(parsed.word)
    with contextlib.suppress(UnusableSource):
        return f"{parsed.scheme}:{redacted_command(_command_line(parsed.scheme, parsed.rest))}"
    return redacted_text(parsed.word)


def make_sources(arguments: Iterable[str], options: Mapping[str, Any] | None = None) -> list[PreparedSource]:
    """Make a source from each word. A source whose name is taken gets a longer name (`_other_labels`).

    `options` are the options for factories (`SourceKind.takes`), and those that allow a kind (`SourceKind.needs`).

    Raises:
        UnusableSource: a word cannot be published, or is given twice. If several cannot be published, the errors of the
            others are notes.
        MissingExtra: a library for it is not installed.
    """
    values = options or {}
    parsed_words = [parse_word(argument) for argument in arguments]
    used_labels = _labels_of(parsed_words)
    prepared: list[PreparedSource] = []
    errors: list[UnusableSource] = []
    for parsed in parsed_words:
        try:
            source = _make(parsed, parsed.label, values)
        except UnusableSource as error:
            errors.append(error)
            continue
        name = source.name
        if parsed.label is None and name in used_labels:
            if not parsed.kind.has_rest:
                raise UnusableSource(f"{parsed.kind.form} is given twice.")
            label = first_free_label((*_other_labels(parsed, name, prepared), name), used_labels)
            source = _make(parsed, label, values)
        used_labels.add(source.name)
        overlapping = next((other for other in prepared if _overlap(source, other.source)), None)
        if overlapping is not None:
            raise UnusableSource(
                f"{shown_word(parsed)} would have the same URIs as {shown_word(overlapping.parsed)}: leave one out."
            )
        prepared.append(PreparedSource(parsed, source))
    if errors:
        for other in errors[1:]:
            errors[0].add_note(str(other))
        raise errors[0]
    return prepared


def _overlap(source: Source, other: Source) -> bool:
    """Return whether two sources have the same `uri`, or are of one kind and one contains the `uri` of the other.

    Folders may contain each other, because they may publish different files. So may folders of skills
    (`Skills.include_into`).
    """
    if not source.uri or not other.uri:
        return False
    same_kind = type(source) is type(other) and not source.root and not hasattr(source, "skills")
    return source.uri == other.uri or (same_kind and (source.matches(other.uri) or other.matches(source.uri)))


def _other_labels(parsed: ParsedSource, name: str, prepared: Sequence[PreparedSource]) -> Iterator[str]:
    """Yield labels for a source whose name is taken.

    For a git repository, `docs-git` comes first if the name `docs` belongs to a source of another kind. Then come
    labels with the names of the folders above the source, or of its host: `flask-docs`, `src-flask-docs` and so on.
    """
    if any(other.name == name and other.parsed.kind is not parsed.kind for other in prepared):
        yield f"{name}-{parsed.kind.factory}"
    if parsed.kind.absolute is _absolute_path or not parsed.scheme:
        before_wildcard = re.split(r"[*?\[]", parsed.rest)[0]
        parents = os.path.abspath(os.path.expanduser(before_wildcard)).split(os.sep)
        if os.path.splitext(parents[-1])[0] == os.path.splitext(name)[0]:
            parents.pop()
    else:
        inner = _INNER_ADDRESS(parsed.rest)  # of git:https://HOST/ORGANISATION/NAME.git
        address = urlsplit(inner[1] if inner else parsed.word)
        parents = [address.hostname or "", *(address.path.split("/")[1:-1] if inner else ())]
    label = name
    for part in reversed(parents):
        if not part or part == name:
            continue
        label = f"{part}-{label}"
        yield label


def _labels_of(words: Sequence[ParsedSource]) -> set[str]:
    """Return the labels that the words set.

    Raises:
        UnusableSource: a label is set twice, or for a kind that takes none.
    """
    labels: set[str] = set()
    for parsed in words:
        if parsed.label is None:
            continue
        if not parsed.kind.has_rest:
            raise UnusableSource(f"{parsed.kind.form} takes no name: leave out {parsed.label}=.")
        if parsed.label in labels:
            word = f"{parsed.label}={shown_word(parsed)}"
            raise UnusableSource(f"The name {parsed.label!r} is given twice: choose another one in {word}.")
        labels.add(parsed.label)
    return labels


def _make(parsed: ParsedSource, label: str | None, options: Mapping[str, Any]) -> Source:
    kind = parsed.kind
    if kind.needs and not options.get(kind.needs):
        flag = "--" + kind.needs.replace("_", "-")
        raise UnusableSource(f"{kind.form} runs a program: allow it with {flag}.")
    if kind is FILES:
        _refuse_file(parsed.rest)
    has_rest = bool(parsed.rest)
    if has_rest != kind.has_rest and not kind.rest_is_optional:
        raise UnusableSource(f"{shown_word(parsed)!r}: write {kind.form}.")
    argument: Any = kind.argument(parsed.scheme, parsed.rest) if parsed.rest else {}
    arguments = () if isinstance(argument, dict) else (argument,)
    factory_options = {name: options[name] for name in kind.takes if name in options}
    factory_options |= cast("dict[str, Any]", argument) if isinstance(argument, dict) else {}
    if label is not None:
        factory_options[kind.label_option] = label
    factory: Callable[..., Source] = getattr(sources, kind.factory)
    return factory(*arguments, **factory_options)


def _refuse_file(path: str) -> None:
    """Refuse a file whose suffix belongs to another kind, and say how to publish it."""
    if not os.path.isfile(path):
        return
    for kind in KINDS:
        if path.lower().endswith(kind.suffixes):
            word = kind.form.replace("FILE", path).replace("GLOB", path)
            raise UnusableSource(f"{path} is a file, not a folder: publish it as {word}, or publish its folder.")
