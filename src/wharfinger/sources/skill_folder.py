"""A folder of skills as live resources: each folder with a SKILL.md, and a manifest of its files.

Files that belong to no skill are not published.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from wharfinger import types as t
from wharfinger.content.frontmatter import MAX_FRONTMATTER_BYTES, BadFrontmatter, need_yaml, read_frontmatter
from wharfinger.content.mime import DIRECTORY, TEXT
from wharfinger.content.text import many, shown
from wharfinger.errors import ResourceNotFound
from wharfinger.policy.current import may_read
from wharfinger.source import Document, Source
from wharfinger.sources.directories import MAX_CHILDREN, listing_text, summaries
from wharfinger.sources.folder.counts import Count, count
from wharfinger.sources.folder.file_content import version_of_file
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.folder.file_watch import TreeWatch
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.safe_open import NotServed, missing_as_not_served, open_file, stat_entry
from wharfinger.sources.folder.tree import (
    FileTree,
    Parts,
    TreeEntry,
    TreePosition,
    is_settled,
    read_key,
    write_key,
)
from wharfinger.sources.folder.tree_resources import TreeResources
from wharfinger.sources.labels import UnusableFolder, default_label, resolve_root, usable_label
from wharfinger.sources.name_completion import complete_name
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.window import split_query
from wharfinger.types.skills import Skill, SkillResource

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["SKILL_FILE", "Skills", "skills"]

log = logging.getLogger("wharfinger.sources")

MIB = 1 << 20
SKILL_FILE = "SKILL.md"
MAX_FILES = 512
"""Maximum number of files of a skill (skills extension, limits)."""
MAX_BYTES = 16 * MIB
"""Maximum bytes of all files of a skill (skills extension, limits)."""
MAX_DIRECTORIES = 10_000
"""Maximum number of directories that are searched for skills."""
PAGE_FILES = 2_048
"""A page ends when its skills have this many files, so that its answer stays small."""
PAGE_BYTES = 128 * MIB
"""A page ends when the files of its skills have this many bytes, so that hashing them takes a short time."""
MAX_CACHED_DIGESTS = 32_768
MAX_CACHED_SKILL_FILES = 4_096
MAX_LOGGED_PROBLEMS = 4_096
COUNTING_SECONDS = 0.4
"""Longest time that `describe` counts."""

_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


class _SkillFile(NamedTuple):
    """A SKILL.md: its frontmatter, or the problem with it."""

    version: str
    frontmatter: dict[str, Any]
    problem: str


class _Digest(NamedTuple):
    version: str
    digest: str
    size: int


class _UnusableSkill(Exception):
    """This skill cannot be published; the message says why."""


def skills(
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    hidden: bool = False,
    poll: bool | float | None = None,
    every: float | None = None,
    max_clone_size: int | None = None,
) -> Skills:
    """Publish skills: `server.include(skills("skills"))`, or `skills("git:https://git.example.org/skills.git")`.

    The folder has skills at any depth, or is a skill itself. Files with credential-like names, symbolic links and
    special files are not published, and do not belong to a skill. The same holds for hidden files, unless `hidden` is
    true, and for files that `.gitignore` files exclude, unless `path` begins with `git:`.

    Args:
        path: The folder, or `git:` with the path or address of a git repository, whose skills at HEAD are published.
        prefix: Path in URIs before the path of each skill, such as `acme/billing` in `skill://acme/billing/refunds/…`.
        hidden: Also publish names that begin with a dot.
        poll: Watch by polling, with this number of seconds between two rounds (True: 1); by default only if the system
            cannot watch. For folders only.
        every: Seconds between two checks of a git repository, 1 by default; between two fetches of a remote one, 60
            by default and at least 1.
        max_clone_size: Maximum bytes of a clone of a remote repository, 2 GiB by default.

    Raises:
        MissingExtra: the extra `skills` is not installed, which reads YAML.
        UnusableFolder: `path` is missing, is not a folder, cannot be read, or is a skill whose name is not valid. A
            relative path to the user's home folder, or to a folder above that, is refused too.
        UnusableSource: the git repository cannot be published.
        ValueError: `prefix` has an empty part, `.` or `..`.
    """
    need_yaml("Publishing skills")
    if isinstance(path, str) and path.startswith("git:") and not os.path.lexists(path):
        from wharfinger.sources.git_remote.git_skills import git_skills

        return git_skills(path.removeprefix("git:"), prefix, hidden, every, max_clone_size)
    return Skills(
        resolve_root(path),
        prefix=prefix,
        choice=PublishChoice((), (), hidden),
        poll=1.0 if poll is True else poll or None,
    )


class Skills(Watched[TreeWatch], Source):
    """The source that `skills()` returns. Its methods may be called from several threads at once."""

    def __init__(self, root: str, *, prefix: str, choice: PublishChoice, poll: float | None) -> None:
        self.root = self.location = root
        self.label = self.name = usable_label(default_label(root), UnusableFolder)
        self.is_one_skill = os.path.isfile(os.path.join(root, SKILL_FILE))
        """Whether the folder itself is a skill."""
        self._own_name = os.path.basename(root)
        if self.is_one_skill and not _NAME.fullmatch(self._own_name):
            raise UnusableFolder(f"{root}: {_BAD_NAME}")
        prefix_parts = prefix.strip("/").split("/") if prefix.strip("/") else []
        if any(part in ("", ".", "..") for part in prefix_parts):
            raise ValueError(f"{prefix!r} is not a path: write one like acme/billing.")
        path = "/".join(quote(part) for part in (*prefix_parts, *([self._own_name] if self.is_one_skill else [])))
        if prefix_parts:
            self.name = usable_label("-".join(prefix_parts), UnusableFolder)
        self.uri = f"skill://{path}"
        # No versions: files of skills have digests, and their `_meta` belongs to the extension (SEP-2640).
        # Text in other encodings than UTF-8 stays bytes: the digest of a decoded text would differ from the file's.
        self.files = TreeResources(
            FileTree(root, choice),
            self.uri,
            self.label,
            prefix=f"{self.uri}/" if path else self.uri,
            max_size=MAX_BYTES,
            adjust=self._as_skill,
            versioned=False,
            utf8_only=True,
        )
        self.template = self.files.template
        self.templates = [
            t.ResourceTemplate(
                uri_template=self.template,
                name="skill file",
                title="Any file of a skill",
                description="Path of a file of a skill, such as its SKILL.md.",
            )
        ]
        self._watches = TreeWatch(self.files.tree, self.files.locate_base, poll, self.files.window_digest)
        self._skill_files: dict[Parts, _SkillFile] = {}
        self._digests: dict[Parts, _Digest] = {}
        self._logged: set[str] = set()
        self._nested: list[Skills] = []
        """Other sources of skills, whose URIs are below the prefix of this source."""

    def patterns_below(self, names: Sequence[str]) -> Sequence[str]:
        """Return the policy pattern for a folder below this one."""
        return (self.pattern_of(*names),)

    def __repr__(self) -> str:
        return f"skills({self.root!r}) at {self.uri}"

    def include_into(self, server: Server) -> None:
        """Add the skills to a server, and the methods of the extension.

        Raises:
            ValueError: other skills have the same URIs.
        """
        from wharfinger.server.skills import serve_skills

        other_skills = [source for source in server.resources.sources if isinstance(source, Skills)]
        for other in other_skills:
            if other.files.prefix == self.files.prefix:
                raise ValueError(f"{self!r} and {other!r} have the same URIs: give one of them another prefix=.")
        for other in other_skills:
            wider, narrower = (other, self) if other.matches(self.files.prefix) else (self, other)
            if wider.matches(narrower.files.prefix):
                wider._nested.append(narrower)
        serve_skills(server)
        server.add_source(self)

    def matches(self, uri: str) -> bool:
        """Return whether this URI, which need not exist, belongs to these skills, not to others below their prefix."""
        return self.files.matches(uri) and not any(other.matches(uri) for other in self._nested)

    # Which directories are skills

    def _skill_file(self, parts: Parts) -> _SkillFile | None:
        """Return the SKILL.md of a directory, or None."""
        try:
            with self.files.tree.file((*parts, SKILL_FILE)) as descriptor, missing_as_not_served():
                status = os.fstat(descriptor)
                cached = self._skill_files.get(parts)
                if cached is not None and cached.version == version_of_file(status):
                    return cached
                skill_file = self._read_skill_file(parts, status, os.read(descriptor, MAX_FRONTMATTER_BYTES))
        except NotServed:
            self._skill_files.pop(parts, None)
            return None
        if skill_file.problem:
            self._report(parts, skill_file.problem)
        if is_settled(max(status.st_mtime_ns, status.st_ctime_ns)):
            if len(self._skill_files) >= MAX_CACHED_SKILL_FILES:
                self._skill_files.clear()
            self._skill_files[parts] = skill_file
        return skill_file

    def _read_skill_file(self, parts: Parts, status: os.stat_result, data: bytes) -> _SkillFile:
        name = parts[-1] if parts else self._own_name
        frontmatter: dict[str, Any] = {}
        try:
            frontmatter = read_frontmatter(data)
            problem = _problem(frontmatter, name)
        except BadFrontmatter as error:
            problem = str(error)
        return _SkillFile(version_of_file(status), frontmatter, problem)

    def _report(self, parts: Parts, problem: str) -> None:
        path = shown("/".join((self.location, *parts, SKILL_FILE)))
        self._log_once(f"{path} is not published as a skill: {problem}")

    def _log_once(self, message: str) -> None:
        if message not in self._logged and len(self._logged) < MAX_LOGGED_PROBLEMS:
            self._logged.add(message)
            log.warning("%s", message)

    def _valid_skill_file(self, parts: Parts) -> _SkillFile | None:
        """Return the SKILL.md of a directory if the directory is a skill, or None."""
        is_candidate = (parts or self.is_one_skill) and (not self._nested or self.matches(self.files.uri_of(parts)))
        skill_file = self._skill_file(parts) if is_candidate else None
        return None if skill_file is None or skill_file.problem else skill_file

    def _is_skill(self, parts: Parts) -> bool:
        return self._valid_skill_file(parts) is not None

    def _is_inside(self, parts: Parts) -> bool:
        """Return whether this is a skill's directory, or a path in it."""
        return any(self._is_skill(parts[:length]) for length in range(len(parts) + 1))

    def _skill_directories(self) -> list[Parts]:
        """Return the directories of all skills, in order."""
        directories: list[Parts] = []
        entries = self.files.tree.walk_directories()
        try:
            for number, entry in enumerate(entries):
                if number >= MAX_DIRECTORIES:
                    self._log_once(
                        f"Only the first {MAX_DIRECTORIES:,} folders in {self.location} are searched for skills"
                    )
                    break
                if SKILL_FILE in entry.listing.files and self._is_skill(entry.parts):
                    directories.append(entry.parts)
        finally:
            entries.close()
        return sorted(directories)

    # The extension's methods

    def skills(self, after: str | None, limit: int) -> tuple[list[Skill], str | None]:
        """Return at most `limit` skills after the key, and the key of the next page."""
        found: list[Skill] = []
        file_count = byte_count = 0
        directories = self._skill_directories()
        for index in range(_index_after(directories, after), len(directories)):
            if len(found) >= limit or file_count >= PAGE_FILES or byte_count >= PAGE_BYTES:
                return found, write_key(TreePosition(is_directory=True, parts=directories[index - 1]))
            try:
                skill = self._skill(directories[index])
            except _UnusableSkill as error:
                self._report(directories[index], str(error))
                continue
            found.append(skill)
            file_count += len(skill.resources)
            byte_count += sum(file.size for file in skill.resources if not isinstance(file, str))
        return found, None

    def skill(self, uri: str) -> Skill:
        """Return the skill with a SKILL.md at this URI.

        Raises:
            ResourceNotFound: there is no such skill.
        """
        parts, _ = self.files.locate(uri)
        if parts[-1:] != (SKILL_FILE,) or self.files.uri_of(parts) != uri or not self._is_skill(parts[:-1]):
            raise ResourceNotFound(uri)
        try:
            return self._skill(parts[:-1])
        except _UnusableSkill as error:
            self._report(parts[:-1], str(error))
            raise ResourceNotFound(uri) from None

    def _skill(self, parts: Parts) -> Skill:
        """Return a skill with its manifest.

        Raises:
            _UnusableSkill: it exceeds the limits, or changed while it was read.
        """
        skill_file = self._skill_file(parts)
        files: list[SkillResource] = []
        size = 0
        tree = self.files.tree
        entries = tree.walk(TreePosition(is_directory=True, parts=parts)) if parts else tree.walk()
        try:
            for entry in entries:
                if entry.parts[: len(parts)] != parts:
                    break
                if entry.is_directory:
                    continue
                if len(files) >= MAX_FILES:
                    raise _UnusableSkill(f"it has more than {MAX_FILES} files")
                try:
                    file_digest = self._digest(entry, MAX_BYTES - size)
                except NotServed:
                    continue
                size += file_digest.size
                files.append(
                    SkillResource(uri=self.files.uri_of(entry.parts), digest=file_digest.digest, size=file_digest.size)
                )
        finally:
            entries.close()
        uri = self.files.uri_of((*parts, SKILL_FILE))
        if skill_file is None or skill_file.problem or not any(file.uri == uri for file in files):
            raise _UnusableSkill("it changed while it was read")
        return Skill(uri=uri, frontmatter=skill_file.frontmatter, resources=files)

    def _digest(self, entry: TreeEntry, max_bytes: int) -> _Digest:
        with missing_as_not_served():
            cached = self._digests.get(entry.parts)
            status = stat_entry(entry.handle, entry.name)
            if status.st_size > max_bytes:
                raise _UnusableSkill(f"its files have more than {MAX_BYTES // MIB} MiB")
            if cached is not None and cached.version == version_of_file(status):
                return cached
            descriptor = open_file(entry.handle, entry.name)
            try:
                status = os.fstat(descriptor)
                digest_of_file = _Digest(version_of_file(status), *_hash_file(descriptor, max_bytes))
            finally:
                os.close(descriptor)
        if is_settled(max(status.st_mtime_ns, status.st_ctime_ns)) and digest_of_file.size == status.st_size:
            if len(self._digests) >= MAX_CACHED_DIGESTS:
                self._digests.clear()
            self._digests[entry.parts] = digest_of_file
        return digest_of_file

    def _readable_skills(self) -> list[Parts]:
        """Return the directories of the skills whose SKILL.md the caller may read, in order."""
        directories = self._skill_directories()
        if self.files.view() is None:
            return directories
        return [parts for parts in directories if may_read(self.files.uri_of((*parts, SKILL_FILE)))]

    # Resources

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return the SKILL.md of each skill. The skill's manifest and directories list its other files."""
        resources: list[t.Resource] = []
        directories = self._readable_skills()
        self.files.tree.listed_at = time.monotonic()
        for index in range(_index_after(directories, after), len(directories)):
            if len(resources) >= limit:
                return resources, write_key(TreePosition(is_directory=True, parts=directories[index - 1]))
            try:
                resources.append(self.files.stat(self.files.uri_of((*directories[index], SKILL_FILE))))
            except ResourceNotFound:
                continue
        return resources, None

    def stat(self, uri: str) -> t.Resource:
        """Return the resource of a file of a skill, or of a directory in or above it.

        Raises:
            ResourceNotFound: it does not exist, or is neither part of a skill nor a directory that contains skills. The
                error does not say whether it exists.
        """
        parts, _ = self.files.locate(split_query(uri)[0])
        if self._is_inside(parts):
            return self.files.stat(uri)
        self.children(uri, None, 1)  # raises ResourceNotFound if there are no skills below
        return t.Resource(uri=uri, name=shown(parts[-1]) if parts else self.name, mime_type=DIRECTORY)

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read a file of a skill, or the listing of a directory in or above it.

        Raises:
            ResourceNotFound: it does not exist, or is neither part of a skill nor a directory that contains skills. The
                error does not say whether it exists.
        """
        parts, _ = self.files.locate(split_query(uri)[0])
        if self._is_inside(parts):
            return t.ReadResourceResult(contents=self.files.read(uri).contents)
        children, more = self.children(uri)
        where = "".join([f"{shown(part)}/" for part in (self.label, *parts)])
        counts = f"{'more than ' if more else ''}{many(len(children), 'folder')} with skills"
        text = listing_text(where, counts, children, self.template if more else "")
        contents = t.ResourceContents(uri=uri, mime_type=TEXT, text=text)
        return t.ReadResourceResult(contents=[contents, *summaries(children)])

    def _as_skill(self, resource: t.Resource, parts: Parts) -> t.Resource:
        """Give the SKILL.md of a skill the name and description of the skill."""
        skill_file = self._valid_skill_file(parts[:-1]) if parts[-1:] == (SKILL_FILE,) else None
        if skill_file is None:
            return resource
        name, description = skill_file.frontmatter["name"], skill_file.frontmatter["description"]
        return msgspec.structs.replace(resource, name=name, title=name, description=description)

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """Return the entries of a directory in pages. Outside skills, return only the sub-directories with skills.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        parts, _ = self.files.locate(uri)
        if self._is_inside(parts):
            return self.files.children(uri, after, limit)
        names = sorted({
            directory[len(parts)]
            for directory in self._readable_skills()
            if len(directory) > len(parts)  # this directory may have become a skill just now
            and directory[: len(parts)] == parts
            and may_read(self.files.uri_of(directory[: len(parts) + 1]))
        })  # fmt: skip
        if not names and parts:
            raise ResourceNotFound(uri)
        first = 0 if after is None else bisect_right(names, "/".join(read_key(after).parts[-1:]))
        folders = [self.files.stat(self.files.uri_of((*parts, name)) + "/") for name in names[first : first + limit]]
        for resource, name in zip(folders, names[first:], strict=False):
            # `stat` got a slash, so that it accepts only a directory. Listed URIs have none.
            resource.uri = self.files.uri_of((*parts, name))
        if first + limit >= len(names):
            return folders, None
        return folders, write_key(TreePosition(is_directory=True, parts=(names[first + limit - 1],)))

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Return the paths of skills that begin with `value`, then those that contain it."""
        if argument != "path":
            return []
        start = len(self.files.prefix)
        paths = [self.files.uri_of((*parts, SKILL_FILE))[start:] for parts in self._readable_skills()]
        return complete_name(paths, value)

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return the files of skills in pages."""
        found, key = self.files.documents(after, limit)
        return [document for document in found if self._is_inside(self.files.locate(document.uri)[0])], key

    def text(self, uri: str) -> Iterator[str]:
        """Return the text of a file of a skill in pieces.

        Raises:
            ResourceNotFound: it does not exist, or is not part of a skill; the error does not say whether it exists.
        """
        if not self._is_inside(self.files.locate(split_query(uri)[0])[0]):
            raise ResourceNotFound(uri)
        return self.files.text(uri)

    def describe(self) -> str:
        """Return how many files the folder has, including those in no skill, and how changes are found."""
        return f"{self._count()} in the folder, watched by {self._watches.means}"

    def _count(self) -> Count:
        return count(self.files.tree, COUNTING_SECONDS)


_BAD_NAME = (
    "the name of a skill's folder must have 1 to 64 lower-case letters, digits and hyphens; a hyphen must not be "
    "first, last, or next to another"
)


def _problem(frontmatter: dict[str, Any], folder: str) -> str:
    """Return the problem with a skill's frontmatter, or an empty string if it is valid."""
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not _NAME.fullmatch(folder):
        return _BAD_NAME
    if name != folder:
        return f"its frontmatter must have `name: {folder}`, the name of its folder"
    if not isinstance(description, str) or not description.strip():
        return "its frontmatter must have a description"
    return ""


def _hash_file(descriptor: int, max_bytes: int) -> tuple[str, int]:
    """Read a file, and return its digest and size.

    Raises:
        _UnusableSkill: it has more than `max_bytes` bytes.
    """
    total, hashed = 0, hashlib.sha256()
    while data := os.read(descriptor, MIB):
        total += len(data)
        if total > max_bytes:
            raise _UnusableSkill(f"its files have more than {MAX_BYTES // MIB} MiB")
        hashed.update(data)
    return f"sha256:{hashed.hexdigest()}", total


def _index_after(directories: list[Parts], after: str | None) -> int:
    """Return the index in `directories` at which the page after a key begins."""
    return 0 if after is None else bisect_right(directories, read_key(after).parts)
