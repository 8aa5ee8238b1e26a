"""The workflows of GitHub: valid, pinned, and with no more permissions than they need."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, absent

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))


def load(name: str) -> dict[Any, Any]:
    """Return one workflow, parsed."""
    found: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return found


def test_workflows_fit_the_schema_of_github() -> None:
    """The schema is the one that check-jsonschema brings along; nothing is downloaded."""
    if find_spec("check_jsonschema") is None:
        absent("check-jsonschema")
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *map(str, FILES),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in FILES] == ["ci.yml", "publish.yml"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_to_a_commit_and_name_its_version(file: Path) -> None:
    """A tag can be moved to other code; a commit cannot."""
    used = re.findall(r"uses: (?!\./)(.*)", file.read_text(encoding="utf-8"))
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_only_the_publishing_job_has_permission_to_write() -> None:
    assert load("ci.yml")["permissions"] == {"contents": "read"}
    publish = load("publish.yml")
    assert publish["permissions"] == {}
    given = {name: job["permissions"] for name, job in publish["jobs"].items()}
    assert given == {"test": {"contents": "read"}, "build": {"contents": "read"}, "publish": {"id-token": "write"}}
    assert publish["jobs"]["publish"]["environment"]["name"] == "pypi"


def test_only_a_tag_of_tested_code_is_published() -> None:
    job = load("publish.yml")["jobs"]["publish"]
    assert job["if"] == "github.ref_type == 'tag'"
    assert job["needs"] == ["test", "build"]


def test_workflows_are_off_until_a_maintainer_switches_them_on() -> None:
    """`on` is a truth value in YAML 1.1."""
    assert load("ci.yml")[True].keys() == {"workflow_dispatch", "workflow_call"}
    assert load("publish.yml")[True].keys() == {"workflow_dispatch"}


def test_ci_tries_every_python_that_the_package_names() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert load("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_windows_installs_what_make_installs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    tools = dict(re.findall(r"^(DIST_TOOLS|TEST_TOOLS) := (.*)$", makefile, re.MULTILINE))
    wanted = tools["TEST_TOOLS"].replace("$(DIST_TOOLS)", tools["DIST_TOOLS"]).replace("'", "").split()
    extras = ",".join(re.findall(r"--editable '\.\[([a-z,]+)\]'", makefile))
    (command,) = [step["run"] for step in load("ci.yml")["jobs"]["test"]["steps"] if step.get("name") == "Install"]
    assert command.replace('"', "").split("--editable ")[1].split() == [f".[{extras}]", *wanted]
