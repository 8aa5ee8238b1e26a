"""Builds one environment per peer under `.bench/`, from the versions in `pins/`."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
ROOT = BENCHMARKS.parent
HOME = ROOT / ".bench"
PINS = BENCHMARKS / "pins"
LOGS = HOME / "logs"

OURS = "ours"
"""Built from this repository (editable, with the extra `fast`) instead of from a list of pins."""


class SetupFailed(Exception):
    """An environment could not be built; the message says which command failed and why."""


def python(name: str) -> Path:
    """Return the interpreter of environment `name`."""
    folder, suffix = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
    return HOME / name / folder / f"python{suffix}"


def script(name: str, command: str) -> Path:
    """Return a console script of environment `name`."""
    return python(name).with_name(command)


def node_folder(name: str) -> Path:
    """Return the folder of a Node environment. It has the server files too, since they import from their folder."""
    return HOME / name


def tool(command: str) -> str:
    """Return the path of `node` or `npm`: on PATH, or in the copy that `make` installs.

    Raises:
        SetupFailed: it is not installed.
    """
    found = shutil.which(command, path=f"{os.environ.get('PATH', '')}{os.pathsep}{ROOT / '.node' / 'bin'}")
    if found is None:
        raise SetupFailed(f"{command} is missing: install Node 20 or later")
    return found


def build(name: str) -> None:
    """Build environment `name` unless it is up to date.

    Raises:
        SetupFailed: a command failed.
    """
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    if name == OURS:
        _python_environment(name, _our_requirements(), [ROOT / "pyproject.toml", ROOT / "constraints.txt"])
    elif (pins := PINS / f"{name}.txt").exists():
        # The list has every dependency: exactly the versions in the file are measured.
        _python_environment(name, ["--no-deps", "-r", str(pins)], [pins])
    else:
        _node_environment(name, PINS / f"{name}.json")


def _our_requirements() -> list[str]:
    constraints = ROOT / "constraints.txt"
    return ["-e", f"{ROOT}[fast]", *(["-c", str(constraints)] if constraints.exists() else [])]


def _python_environment(name: str, requirements: list[str], inputs: list[Path]) -> None:
    with _Stamp(name, [f"{sys.version_info[:3]}", *requirements], inputs) as stale:
        if stale:
            _announce(name)
            shutil.rmtree(HOME / name, ignore_errors=True)
            _create(HOME / name)
            _run([str(python(name)), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])


def _create(folder: Path) -> None:
    """Create a virtual environment with pip, using venv, virtualenv or uv."""
    if importlib.util.find_spec("ensurepip"):
        return _run([sys.executable, "-m", "venv", str(folder)])
    if importlib.util.find_spec("virtualenv"):
        return _run([sys.executable, "-m", "virtualenv", "-q", str(folder)])
    if uv := shutil.which("uv"):
        return _run([uv, "venv", "-q", "--seed", "--python", sys.executable, str(folder)])
    raise SetupFailed("no way to create a virtual environment: install python3-venv (Debian), virtualenv or uv")


def _node_environment(name: str, package: Path) -> None:
    folder = HOME / name
    with _Stamp(name, [], [package]) as stale:
        if stale:
            npm = tool("npm")
            _announce(name)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            shutil.copy(package, folder / "package.json")
            _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"], cwd=folder)
    for file in [*(BENCHMARKS / "servers").glob("*.mjs"), *(BENCHMARKS / "clients").glob("*.mjs")]:
        shutil.copy(file, folder / file.name)


class _Stamp:
    """A context manager whose value is whether an environment is stale. Marks it as fresh unless the block raises."""

    def __init__(self, name: str, words: list[str], inputs: list[Path]) -> None:
        self.file = HOME / f"{name}.stamp"
        digest = hashlib.sha256("\n".join(words).encode())
        for path in inputs:
            digest.update(path.read_bytes() if path.exists() else b"")
        self.digest = digest.hexdigest()

    def __enter__(self) -> bool:
        fresh = self.file.exists() and self.file.read_text() == self.digest
        if not fresh:
            self.file.unlink(missing_ok=True)
        return not fresh

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.file.write_text(self.digest)


def _announce(name: str) -> None:
    print(f"building environment {name} …", file=sys.stderr, flush=True)


def _run(argv: list[str], cwd: Path | None = None) -> None:
    # Variables such as PYTHONDONTWRITEBYTECODE would leave packages uncompiled, and make every start slower.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupFailed(f"{' '.join(argv)} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
