"""Absolute commands, for a host or a person who runs them in another folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

__all__ = ["absolute_command", "own_command"]


def own_command() -> tuple[str, ...]:
    """Return the absolute command of this `wharfinger`.

    Symbolic links are not resolved: the path in a virtual environment's `bin` is the one that works. Under `uvx` the
    command is `uvx` itself, because `uv cache prune` deletes the environment of this process.
    """
    environment = Path(sys.prefix)
    # The cache of uv has the environments of `uvx` in folders of these names.
    if environment.parent.name.startswith(("archive-v", "environments-v")) and (uvx := shutil.which("uvx")):
        return (str(Path(uvx).absolute()), "--from", installed_requirement(), "wharfinger")
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name.startswith("wharfinger") and program.is_file():
        return (str(program.absolute()),)
    script = Path(sys.executable).parent / ("wharfinger.exe" if os.name == "nt" else "wharfinger")
    if script.is_file():
        return (str(script.absolute()),)
    return (sys.executable, "-m", "wharfinger")


def installed_requirement() -> str:
    """Return a requirement (PEP 508) for this package as it is installed: extras, and its file, URL, commit or version.

    Installers record the origin of a package in `direct_url.json` (PEP 610), but not its extras. An extra is included
    if everything it needs is installed.
    """
    package = metadata.distribution("wharfinger")
    needs: dict[str, set[str]] = {}
    for line in package.requires or ():
        if line.startswith("wharfinger"):
            continue  # `all`, which names the other extras
        if extra := re.search(r"""extra == ['"]([^'"]+)""", line):
            needs.setdefault(extra[1], set()).add(re.split(r"[^\w.-]", line, maxsplit=1)[0])
    extras = [name for name, packages in needs.items() if all(map(is_installed, packages))]
    name = f"wharfinger[{','.join(sorted(extras))}]" if extras else "wharfinger"
    if direct := package.read_text("direct_url.json"):
        origin = json.loads(direct)
        url: str = origin["url"]
        if repository := origin.get("vcs_info"):
            url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
        if subdirectory := origin.get("subdirectory"):
            url += f"#subdirectory={subdirectory}"
        return f"{name} @ {url}"
    return f"{name}=={package.version}"


def is_installed(name: str) -> bool:
    """Return whether a package is installed."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def absolute_command(words: list[str]) -> tuple[str, ...]:
    """Make the executable, and every argument that clearly names an existing file or folder, absolute.

    Raises:
        FileNotFoundError: there is no such executable.
    """
    executable = shutil.which(words[0])
    if executable is None:
        raise FileNotFoundError(2, "no such command", words[0])
    return (
        str(Path(executable).absolute()),
        *(str(Path(word).absolute()) if is_path(word) else word for word in words[1:]),
    )


def is_path(word: str) -> bool:
    """Return whether an argument clearly names an existing file or folder. A word such as `docs` may be a command."""
    looks_like_path = os.sep in word or word in (".", "..") or (Path(word).suffix != "" and os.path.isfile(word))
    # Unlike Path.exists, it is false for a word that is too long for a path, such as JSON.
    return looks_like_path and not word.startswith("-") and os.path.exists(word)
