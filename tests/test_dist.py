"""The wheel and the source distribution that `make dist` builds, and `uvx` with the wheel."""

from __future__ import annotations

import ast
import asyncio
import email
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT, absent
from wharfinger import Client, __version__

SOURCE = "src/wharfinger/"
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""The options of pip for package indexes, with the variables of uv."""

pytestmark = pytest.mark.timeout(300)  # wheels are built and downloaded


class Dist(NamedTuple):
    """The wheel and the source distribution."""

    wheel: Path
    sdist: Path


def build(folder: Path, *options: str) -> Dist:
    """Build the files of `make dist` into a folder."""
    for module in ("build", "twine"):
        if find_spec(module) is None:
            absent(module)
    completed = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), *options, str(ROOT)],
        env=os.environ | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if completed.returncode and ("No matching distribution" in completed.stdout or "Max retries" in completed.stdout):
        absent("a package index to install the build backend from")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return Dist(folder / f"wharfinger-{__version__}-py3-none-any.whl", folder / f"wharfinger-{__version__}.tar.gz")


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Dist:
    """The source distribution, and the wheel that is built from it."""
    return build(tmp_path_factory.mktemp("dist"))


def tracked_files() -> set[str]:
    """Return the files of the project that git tracks."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        absent("the git repository of the project")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).exists()}


def sdist_names(sdist: Path) -> set[str]:
    """Return the files of the source distribution, relative to its folder."""
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def metadata(wheel: Path) -> Message:
    """Return the METADATA of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"wharfinger-{__version__}.dist-info/METADATA").decode()
    return email.message_from_string(text)


# Contents


def test_the_wheel_has_only_the_package_its_types_and_the_licence(dist: Dist) -> None:
    names = set(zipfile.ZipFile(dist.wheel).namelist())
    modules = {name.removeprefix("src/") for name in tracked_files() if name.startswith(SOURCE)}
    info = f"wharfinger-{__version__}.dist-info"
    assert "wharfinger/py.typed" in names
    assert modules - names == set()
    assert {name for name in names if not name.startswith("wharfinger/")} == {
        f"{info}/{file}" for file in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    }


def test_the_sdist_has_every_tracked_file_and_no_bytecode(dist: Dist) -> None:
    """The source distribution can be used like a clone: `make test` works in it."""
    names = sdist_names(dist.sdist)
    files = tracked_files()
    assert files - names == set()
    assert {name.partition("/")[0] for name in names} == {name.partition("/")[0] for name in files} | {"PKG-INFO"}
    assert [name for name in names if "__pycache__" in name] == []


def test_the_wheels_from_the_sdist_and_from_the_clone_are_identical(dist: Dist, tmp_path: Path) -> None:
    from_clone = build(tmp_path, "--wheel")
    first, second = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in (dist.wheel, from_clone.wheel))
    assert first == second


# Metadata


def test_metadata_is_complete(dist: Dist) -> None:
    found = metadata(dist.wheel)
    for name in ("Summary", "Author", "Keywords", "Requires-Python", "License-Expression", "License-File"):
        assert found[name], name
    assert found["Description-Content-Type"] == "text/markdown"
    assert found.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    classifiers = found.get_all("Classifier", [])
    versions = {line.rpartition(" :: ")[2] for line in classifiers if re.search(r":: Python :: 3\.\d+$", line)}
    assert versions == {"3.11", "3.12", "3.13"}
    assert "Typing :: Typed" in classifiers
    assert [line for line in classifiers if line.startswith("License ::")] == []  # an expression replaces it (PEP 639)


def test_twine_accepts_the_metadata_and_the_description(dist: Dist) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout


# uvx with the wheel, in an empty environment


@pytest.fixture(scope="session")
def uvx_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables for `uvx`: the package indexes of pip, and an empty cache."""
    if shutil.which("uvx", path=uv_path()) is None:
        absent("uv")
    folder = tmp_path_factory.mktemp("uv")
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PYTHON", "VIRTUAL_ENV"))
    }
    added = {
        "PATH": uv_path(),
        "UV_CACHE_DIR": str(folder / "cache"),
        "UV_CONSTRAINT": str(ROOT / "constraints.txt"),
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # like pip, take a version from any index
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
    }
    return inherited | added | indexes_of_pip()


def uvx_path(env: dict[str, str]) -> str:
    """Return the path of `uvx`."""
    return shutil.which("uvx", path=env["PATH"]) or "uvx"


def uv_path() -> str:
    """Return the search path with the programs of this environment first."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))


def indexes_of_pip() -> dict[str, str]:
    """Return the package indexes of pip as variables of uv."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    loud = os.environ | {"PIP_QUIET": "0"}
    listed = subprocess.run(command, capture_output=True, text=True, check=True, env=loud).stdout.splitlines()
    found: dict[str, str] = {}
    for line in sorted(listed, key=lambda line: line.startswith(":env:")):  # the environment takes precedence
        key, _, value = line.partition("=")
        name = UV_NAMES.get(key.rpartition(".")[2])
        if name is not None:
            found[name] = ("," if name == "UV_FIND_LINKS" else " ").join(ast.literal_eval(value).split())
    return found


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with one file."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tides.txt").write_text("high water 06:12\n", encoding="utf-8")
    return folder


@contextmanager
def run_server(command: list[str], env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server in a new process group, as a terminal does. Yield its process and the URL that it prints."""
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        encoding="utf-8", start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"MCP +(http://\S+)", line):
                yield process, found[1]
                return
        pytest.fail(f"no URL was printed: {''.join(lines)}")
    finally:
        if sys.platform == "win32":
            process.kill()
        else:
            with suppress(ProcessLookupError):  # the server has ended already
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


async def read(client: Client) -> str:
    async with client:
        return (await client.read_resource("file:///notes/tides.txt")).text


def test_uvx_serves_a_folder_over_http_until_ctrl_c(dist: Dist, uvx_env: dict[str, str], notes: Path) -> None:
    command = [uvx_path(uvx_env), "--from", str(dist.wheel), "wharfinger", "serve", str(notes), "--http", "127.0.0.1:0"]
    with run_server(command, uvx_env) as (process, url):
        assert asyncio.run(read(Client(url))) == "high water 06:12\n"
        if sys.platform == "win32":  # Windows cannot send Ctrl-C to a single other process
            return
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 130


def test_uvx_serves_a_folder_over_stdio(dist: Dist, uvx_env: dict[str, str], notes: Path) -> None:
    command = [uvx_path(uvx_env), "--from", str(dist.wheel), "wharfinger", "serve", str(notes)]
    assert asyncio.run(read(Client(command, env=uvx_env, open_timeout=120, probe_timeout=120))) == "high water 06:12\n"


def test_the_command_that_uvx_adds_to_a_host_works_without_its_cache(
    dist: Dist, uvx_env: dict[str, str], notes: Path
) -> None:
    requirement = f"wharfinger[skills] @ {dist.wheel.as_uri()}"
    config = notes.parent / "mcp.json"
    command = [
        uvx_path(uvx_env),
        "--from",
        requirement,
        "wharfinger",
        "add",
        "cursor",
        str(notes),
        "--file",
        str(config),
    ]
    completed = subprocess.run(command, env=uvx_env, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    (server,) = json.loads(config.read_text())["mcpServers"].values()
    added = [server["command"], *server["args"]]
    assert added[1:4] == ["--from", requirement, "wharfinger"]
    shutil.rmtree(uvx_env["UV_CACHE_DIR"])
    assert asyncio.run(read(Client(added, env=uvx_env, open_timeout=120, probe_timeout=120))) == "high water 06:12\n"


def test_uvx_reports_a_missing_extra_and_serves_with_it(dist: Dist, uvx_env: dict[str, str]) -> None:
    def run(requirement: str) -> subprocess.CompletedProcess[str]:
        command = [uvx_path(uvx_env), "--from", requirement, "wharfinger", "serve", "--stdio", "system:"]
        return subprocess.run(command, env=uvx_env, input="", capture_output=True, text=True, check=False)

    without_extra = run(str(dist.wheel))
    assert without_extra.returncode != 0
    assert "needs the extra 'system'" in without_extra.stderr
    assert "uvx --from 'wharfinger[system]' wharfinger" in without_extra.stderr
    with_extra = run(f"wharfinger[system] @ {dist.wheel.as_uri()}")
    assert with_extra.returncode == 0, with_extra.stderr
