"""The GitHub workflows: valid, pinned, and with no more permissions than they need."""

from __future__ import annotations

import os
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
    """Return a parsed workflow."""
    workflow: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return workflow


def test_workflows_match_the_schema_of_github() -> None:
    """check-jsonschema includes the schema, so nothing is downloaded."""
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
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
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
    permissions = {name: job["permissions"] for name, job in publish["jobs"].items()}
    assert permissions == {
        "test": {"contents": "read"},
        "build": {"contents": "read"},
        "publish": {"id-token": "write"},
    }
    assert publish["jobs"]["publish"]["environment"]["name"] == "pypi"


def test_only_a_tag_of_tested_code_is_published() -> None:
    job = load("publish.yml")["jobs"]["publish"]
    assert job["if"] == "github.ref_type == 'tag'"
    assert job["needs"] == ["test", "build"]


def test_workflows_start_only_manually_or_from_another_workflow() -> None:
    """YAML 1.1 parses the key `on` as True."""
    assert load("ci.yml")[True].keys() == {"workflow_dispatch", "workflow_call"}
    assert load("publish.yml")[True].keys() == {"workflow_dispatch"}


def test_ci_tests_every_python_version_of_the_classifiers() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert load("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == versions


@pytest.mark.parametrize("job", ["test", "check"])
def test_ci_on_linux_installs_the_same_programs_as_a_run_of_all_checks(job: str) -> None:
    """Both run with `CI=true`, so a test whose program is missing fails."""
    assert "sudo .ci/programs" in [step.get("run") for step in load("ci.yml")["jobs"][job]["steps"]]
    assert ".ci/programs" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert os.access(ROOT / ".ci" / "programs", os.X_OK)


def test_ci_on_windows_installs_the_same_tools_as_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    tools = dict(re.findall(r"^(DIST_TOOLS|TEST_TOOLS) := (.*)$", makefile, re.MULTILINE))
    tool_names = tools["TEST_TOOLS"].replace("$(DIST_TOOLS)", tools["DIST_TOOLS"]).replace("'", "").split()
    extras = ",".join(re.findall(r"--editable '\.\[([a-z,]+)\]'", makefile))
    (command,) = [step["run"] for step in load("ci.yml")["jobs"]["test"]["steps"] if step.get("name") == "Install"]
    assert command.replace('"', "").split("--editable ")[1].split() == [f".[{extras}]", *tool_names]
