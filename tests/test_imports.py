"""The architecture: which packages import which, what the sans-IO core must not use, and what an import loads."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "wharfinger"

# A layer may import itself and the layers in rows above its own, but not the other layers of its row (its siblings).
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"types", "errors", "version"}),
    frozenset({"content", "net", "private_files"}),
    frozenset({"protocol"}),
    frozenset({"fetching"}),
    frozenset({"transports", "auth", "policy", "record", "bus", "store"}),
    frozenset({"source"}),
    frozenset({"server", "client"}),
    frozenset({"upstreams"}),
    frozenset({"sources"}),
    frozenset({"host", "gateway"}),
    frozenset({"web", "chat", "testing"}),
    frozenset({"", "cli", "__main__"}),
)
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row}

# Imports that are allowed although the rows forbid them, each with its reason.
EXCEPTIONS = {
    ("cli", ""): "the command says which version it is",
    ("__main__", "cli"): "`python -m wharfinger` is the command",
}

# Module names that may occur more than once, because each names the same role in its package.
ROLES = frozenset(
    {"app", "completion", "memory", "resources", "skills", "source", "sqlite", "subscriptions", "tasks", "tools"}
)

# Modules that a state machine must not use: with `time` and `random` it is not repeatable, and the others do I/O.
FORBIDDEN_IN_PROTOCOL = frozenset(
    {
        "aiohttp", "anyio", "asyncio", "concurrent", "http", "httptools", "io", "logging", "multiprocessing", "os",
        "pathlib", "random", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess", "tempfile",
        "threading", "time", "uuid", "uvicorn", "uvloop",
    }
)  # fmt: skip

# Loaded on first use, because each costs more than the rest of the package together.
ONLY_ON_USE = frozenset(
    {"aiohttp", "click", "httptools", "pybase64", "rich", "sqlite3", "uvicorn", "uvloop", "watchfiles"}
)


def modules() -> list[tuple[str, Path]]:
    return sorted(
        (".".join(("wharfinger", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"), path)
        for path in PACKAGE.rglob("*.py")
    )


def layer(module: str) -> str:
    """Return the layer of a module: `server` for `wharfinger.server.app`, and `` for the package's own `__init__`."""
    return [*module.split("."), ""][1]


@cache
def parsed_nodes(path: Path) -> list[ast.AST]:
    """Return every node of a file's code."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_of(module: str, path: Path) -> Iterator[tuple[str, int]]:
    """Yield the absolute name of every module that `path` imports, in functions too, with its line."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in parsed_nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])]
                )
            for alias in node.names:
                named = base == "wharfinger" and is_module(alias.name)
                yield (f"{base}.{alias.name}" if named else base), node.lineno


@cache
def is_module(name: str) -> bool:
    """Return whether `from wharfinger import name` imports a module rather than a name of the package."""
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def forbidden_edges() -> list[str]:
    wrong: list[str] = []
    for module, path in modules():
        mine = layer(module)
        for target, line in imports_of(module, path):
            if not target.startswith("wharfinger"):
                continue
            theirs = layer(target)
            if theirs == mine or (mine, theirs) in EXCEPTIONS:
                continue
            if LEVEL[theirs] >= LEVEL[mine]:
                wrong.append(
                    f"{path.relative_to(ROOT)}:{line}: {mine or '__init__'} may not import {theirs or '__init__'}"
                )
    return wrong


def test_imports_point_only_down() -> None:
    """Siblings depend on each other only through protocol/interfaces.py."""
    assert forbidden_edges() == []


def import_cycles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield the sets of two or more modules that import one another in a circle (Tarjan's algorithm)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for target in graph[module]:
            if target not in numbers:
                yield from visit(target)
            if target in stack:
                lowest[module] = min(lowest[module], lowest[target])
        if lowest[module] == numbers[module]:
            start = stack.index(module)
            found, stack[start:] = stack[start:], []
            if len(found) > 1:
                yield sorted(found)

    for module in graph:
        if module not in numbers:
            yield from visit(module)


def import_graph() -> dict[str, set[str]]:
    """Return which modules each module imports, also for types only and inside functions."""
    paths = dict(modules())
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = {target for target, _ in imports_of(module, path)}
        for node in parsed_nodes(path):
            if isinstance(node, ast.ImportFrom) and not node.level:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names} & paths.keys()
                names |= submodules
                if len(submodules) == len(node.names):
                    names.discard(node.module or "")
        graph[module] = (names & paths.keys()) - {module}
    return graph


def test_no_more_than_three_modules_import_one_another() -> None:
    """A larger circle is one module in many files: to read one of them, read them all."""
    assert [circle for circle in import_cycles(import_graph()) if len(circle) > 3] == []


def test_no_module_name_occurs_twice() -> None:
    """A name belongs to one file. The modules of types/ are left out, since they name the parts of the protocol."""
    places: dict[str, list[str]] = {}
    for module, path in modules():
        if layer(module) != "types" and path.stem not in {"__init__", "__main__", *ROLES}:
            places.setdefault(path.stem, []).append(module)
    assert [each for each in places.values() if len(each) > 1] == []


def test_no_public_class_name_occurs_twice() -> None:
    places: dict[str, list[str]] = {}
    for module, path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: each for name, each in places.items() if len(each) > 1} == {}


def test_no_package_has_only_one_module() -> None:
    parts = dict.fromkeys((module for module, path in modules() if path.name == "__init__.py"), 0)
    for module, _ in modules():
        if module.rpartition(".")[0] in parts:
            parts[module.rpartition(".")[0]] += 1
    assert [package for package, count in parts.items() if count < 2] == []


def test_every_module_is_of_a_known_layer() -> None:
    assert {layer(module) for module, _ in modules()} <= LEVEL.keys()


def test_protocol_touches_no_clock_socket_or_loop() -> None:
    """The core is sans-IO: whatever it needs from outside is passed in."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {target}"
        for module, path in modules()
        if layer(module) in ("protocol", "types", "errors")
        for target, line in imports_of(module, path)
        if target.split(".")[0] in FORBIDDEN_IN_PROTOCOL
    ]
    assert wrong == []


def test_types_import_no_other_part_of_the_package() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {target}"
        for module, path in modules()
        if layer(module) == "types"
        for target, line in imports_of(module, path)
        if target.startswith("wharfinger") and layer(target) != "types"
    ]
    assert wrong == []


def test_only_the_command_prints_and_no_module_configures_logging() -> None:
    """A library does not print, and configures neither handlers nor levels."""
    wrong: list[str] = []
    for module, path in modules():
        for node in parsed_nodes(path):
            if not isinstance(node, ast.Call):
                continue
            name = dotted_name(node.func)
            prints = name == "print" and layer(module) not in ("cli", "__main__")
            if prints or name in ("logging.basicConfig", "logging.config.dictConfig", "logging.addLevelName"):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert wrong == []


def dotted_name(node: ast.expr) -> str:
    """Return the dotted name of a function; only its last part if it is not a plain name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def loaded_modules(code: str) -> set[str]:
    """Return the modules that `code` loads in a fresh interpreter."""
    program = (
        "import sys; before = set(sys.modules)\n"
        f"{code}\n"
        "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stdout))


# Top-level modules that an import of the package may load: light parts of the standard library, msgspec and ours.
MAY_LOAD = frozenset(
    {
        "wharfinger", "msgspec",
        "atexit",
        "decimal",
        "platform",
        "typing_extensions",  # by msgspec, where it is installed
        "ssl",  # asyncio
        "abc", "annotationlib", "array", "ast", "asyncio", "base64", "binascii", "bisect", "calendar", "codecs",
        "collections", "concurrent", "contextlib", "contextvars", "copy", "copyreg", "dataclasses", "datetime", "dis",
        "enum", "errno", "fnmatch", "functools", "genericpath", "hashlib", "heapq", "hmac", "importlib", "inspect",
        "io", "itertools", "json", "keyword", "linecache", "locale", "logging", "math", "mimetypes", "ntpath",
        "numbers", "opcode", "operator", "os", "pathlib", "posixpath", "random", "re", "reprlib", "secrets", "select",
        "selectors", "shlex", "signal", "socket", "stat", "string", "struct", "subprocess", "tempfile", "textwrap",
        "threading", "time", "token", "tokenize", "traceback", "types", "typing", "unicodedata", "urllib", "uuid",
        "warnings", "weakref", "zlib", "queue", "ipaddress", "gc",
        # C parts of these modules, and what the standard library itself imports
        "zipfile", "zipimport", "bz2", "lzma", "shutil", "pwd", "grp", "fcntl", "posix", "resource",
        "glob",  # pathlib, from 3.13 on
    }
)  # fmt: skip


@pytest.mark.parametrize("code", ["import wharfinger", "from wharfinger import Server", "from wharfinger import Client",
                                  "from wharfinger import Host",
                                  "from wharfinger import Server, Client, Context, Complete, ToolError"])  # fmt: skip
def test_an_import_loads_nothing_heavy(code: str) -> None:
    """Web servers, web clients, watchers, TLS and terminals are loaded when they are used."""
    loaded = {name.split(".")[0] for name in loaded_modules(code)}
    assert loaded & ONLY_ON_USE == set()
    unexpected = {name for name in loaded if not name.startswith("_")} - MAY_LOAD
    assert unexpected == set()


def test_importing_the_package_alone_loads_none_of_its_parts() -> None:
    loaded = {name for name in loaded_modules("import wharfinger") if name.startswith("wharfinger")}
    assert loaded == {"wharfinger", "wharfinger.version"}


@pytest.mark.parametrize("name", ["Server", "Client"])
def test_an_import_stays_under_30_mib(name: str) -> None:
    """The resident memory of a fresh interpreter that has imported the name, as /proc reports it."""
    code = f"from wharfinger import {name}\nprint(open('/proc/self/status').read())"
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    row = next(line for line in done.stdout.splitlines() if line.startswith("VmRSS"))
    assert int(row.split()[1]) < 30 * 1024
