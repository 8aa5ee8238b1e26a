"""The package: its size, dependencies and version, and the default install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import wharfinger
from tests.conftest import ROOT, absent

MAX_DISTRIBUTIONS = 19
MAX_BYTES = 21 * 1024 * 1024  # of which the libraries take 16 MiB, and this package 2 MiB
DEFAULT_DEPENDENCIES = {"msgspec", "httptools", "aiohttp", "watchfiles", "pybase64", "click"}


@pytest.fixture(scope="session")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default install, without bytecode, in a separate folder."""
    folder = tmp_path_factory.mktemp("package")
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check",
        "--constraint", str(ROOT / "constraints.txt"), "--target", str(folder / "site"), str(ROOT),
    ]  # fmt: skip
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        absent(f"a package index to install from ({completed.stderr.strip()[-300:]})")
    return folder / "site"


@pytest.mark.timeout(180)
def test_the_default_install_is_small(site_packages: Path) -> None:
    """At most 19 distributions and 21 MiB, ours included, without bytecode."""
    distributions = sorted(path.name.split("-")[0] for path in site_packages.glob("*.dist-info"))
    size = sum(path.stat().st_size for path in site_packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert "wharfinger" in distributions
    assert len(distributions) <= MAX_DISTRIBUTIONS, distributions
    assert size <= MAX_BYTES, f"{size / 1024 / 1024:.1f} MiB"


@pytest.mark.timeout(180)
def test_the_wheel_is_typed_and_contains_only_the_package(site_packages: Path) -> None:
    record = next(site_packages.glob("wharfinger-*.dist-info/RECORD")).read_text(encoding="utf-8")
    names = {line.split(",")[0] for line in record.splitlines()}
    assert "wharfinger/py.typed" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name and "bin/" not in name} == {"wharfinger"}


@pytest.mark.timeout(180)
def test_the_default_install_serves_a_folder_over_stdio(site_packages: Path, tmp_path: Path) -> None:
    """Publishing a folder needs no extra. `-I -S` hides the packages of the test environment from the process."""
    (tmp_path / "tides.txt").write_text("high water 06:12\n")
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"_meta": meta}}
    code = f"import sys; sys.path.insert(0, {str(site_packages)!r}); from wharfinger.cli import main; sys.exit(main())"
    completed = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, "serve", "--stdio", str(tmp_path)],
        input=json.dumps(request) + "\n", capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    answer = json.loads(completed.stdout.splitlines()[0])
    assert "tides.txt" in [resource["name"] for resource in answer["result"]["resources"]], completed.stderr


def test_the_changelog_has_this_version() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None
    assert first[1] == wharfinger.__version__


def test_the_readme_names_the_wheel_of_this_version() -> None:
    versions = re.findall(r"wharfinger-([^-]*)-py3-none-any\.whl", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(versions) == {wharfinger.__version__}


def test_the_default_dependencies_match_the_design() -> None:
    """See docs/design.md, Dependencies. All other dependencies are extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[<>=!;\[ ]", line, maxsplit=1)[0] for line in project["dependencies"]}
    assert names == DEFAULT_DEPENDENCIES


def test_constraints_contain_only_names_and_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    wrong = [line for line in lines if not re.fullmatch(r"#.*|[a-z0-9-]+==[0-9][0-9a-z.]*", line)]
    assert wrong == []


def test_every_extra_is_in_all() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    listed = re.search(r"\[(.*)\]", extras["all"][0])
    assert listed is not None
    assert set(listed[1].split(",")) == set(extras) - {"all"}


def test_public_names_exist_and_others_raise_attribute_error() -> None:
    for name in wharfinger.__all__:
        assert getattr(wharfinger, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        wharfinger.Nothing


def test_the_readme_names_the_extras_that_make_serve_installs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    make_extras = re.search(r"^\$\(RUNS\):.*?\.\[([a-z,]+)\]", makefile, re.MULTILINE | re.DOTALL)
    message = re.search(r"`make serve`\s+installs ([^.]*?), which\s+is\s+enough\s+for\s+this\s+page", readme)
    assert make_extras is not None
    assert message is not None
    assert sorted(make_extras[1].split(",")) == sorted(re.findall(r"`(\w+)`", message[1]))
