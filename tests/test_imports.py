"""The architecture: which packages import which, what the sans-IO core must not use, and what an import loads."""

from __future__ import annotations

import ast
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "src" / "wharfinger"

# A layer may import itself and the layers in rows above its own, but not the other layers of its row (its siblings).
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"types", "errors", "version"}),
    frozenset({"content", "net", "private_files", "option_names"}),
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
    ("wharfinger.__main__", "wharfinger.cli"): "`python -m wharfinger` is the command",
    ("wharfinger.server.app", "wharfinger.sources"): "`Server.from_openapi` makes a source, when it is called",
}

# Module names that may occur in several packages, because they have the same role in each.
ROLE_NAMES = frozenset(
    {"app", "completion", "memory", "resources", "skills", "source", "sqlite", "subscriptions", "tasks", "tools"}
)

# Modules that a state machine must not use: with `time` and `random` it is not deterministic, and the others do I/O.
FORBIDDEN_IN_PROTOCOL = frozenset(
    {
        "aiohttp", "anyio", "asyncio", "concurrent", "http", "httptools", "io", "logging", "multiprocessing", "os",
        "pathlib", "random", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess", "tempfile",
        "threading", "time", "uuid", "uvicorn", "uvloop",
    }
)  # fmt: skip

# Loaded on first use, because the import of each takes longer than that of the rest of the package.
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
def parsed(path: Path) -> ast.Module:
    """Return the code of a file.

    No garbage is collected meanwhile: if a finalizer parses code too, as for a traceback, Python 3.11 raises
    SystemError (gh-106905).
    """
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


@cache
def ast_nodes(path: Path) -> list[ast.AST]:
    """Return every node of a file's code."""
    return list(ast.walk(parsed(path)))


def imports_of(module: str, path: Path) -> Iterator[tuple[str, int]]:
    """Yield the absolute name of every module that `path` imports, with its line.

    These include imports in functions, and those by `import_module` if the name is a constant.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast_nodes(path):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield alias.name, node.lineno
            case ast.ImportFrom(module=base, names=names, level=level):
                if level:
                    parents = package.split(".")
                    base = ".".join([*parents[: len(parents) - level + 1], *filter(None, [base])])
                for alias in names:
                    is_module_import = base == "wharfinger" and is_module(alias.name)
                    yield (f"{base}.{alias.name}" if is_module_import else base or ""), node.lineno
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name, node.lineno
            case _:
                pass


@cache
def is_module(name: str) -> bool:
    """Return whether `from wharfinger import name` imports a module rather than a name of the package."""
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def forbidden_imports() -> list[str]:
    wrong: list[str] = []
    for module, path in modules():
        source_layer = layer(module)
        for target, line in imports_of(module, path):
            if not target.startswith("wharfinger"):
                continue
            target_layer = layer(target)
            if target_layer == source_layer or (module, target) in EXCEPTIONS:
                continue
            if LEVEL[target_layer] >= LEVEL[source_layer]:
                layers = f"{source_layer or '__init__'} may not import {target_layer or '__init__'}"
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {layers}")
    return wrong


def test_modules_import_only_lower_layers() -> None:
    """The layers of a row depend on each other only through protocol/interfaces.py."""
    assert forbidden_imports() == []


def import_cycles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield each strongly connected set of two or more modules (Tarjan's algorithm)."""
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
    """Return which modules each module imports, including imports for type checking and in functions."""
    paths = dict(modules())
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = {target for target, _ in imports_of(module, path) if (module, target) not in EXCEPTIONS}
        for node in ast_nodes(path):
            if isinstance(node, ast.ImportFrom) and not node.level:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names} & paths.keys()
                names |= submodules
                if len(submodules) == len(node.names):
                    names.discard(node.module or "")
        graph[module] = (names & paths.keys()) - {module}
    return graph


def test_import_cycles_have_at_most_three_modules() -> None:
    """Modules of a cycle cannot be understood separately, so a cycle must stay small."""
    assert [cycle for cycle in import_cycles(import_graph()) if len(cycle) > 3] == []


def test_no_module_name_occurs_twice() -> None:
    """The modules of types/ are left out, because they are named after the parts of the protocol."""
    modules_by_name: dict[str, list[str]] = {}
    for module, path in modules():
        if layer(module) != "types" and path.stem not in {"__init__", "__main__", *ROLE_NAMES}:
            modules_by_name.setdefault(path.stem, []).append(module)
    assert [each for each in modules_by_name.values() if len(each) > 1] == []


def test_no_public_class_name_occurs_twice() -> None:
    modules_by_name: dict[str, list[str]] = {}
    for module, path in modules():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules_by_name.setdefault(node.name, []).append(module)
    assert {name: each for name, each in modules_by_name.items() if len(each) > 1} == {}


def test_no_package_has_only_one_module() -> None:
    parts = dict.fromkeys((module for module, path in modules() if path.name == "__init__.py"), 0)
    for module, _ in modules():
        if module.rpartition(".")[0] in parts:
            parts[module.rpartition(".")[0]] += 1
    assert [package for package, count in parts.items() if count < 2] == []


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer(module) for module, _ in modules()} <= LEVEL.keys()


def test_the_protocol_imports_no_clock_socket_or_event_loop() -> None:
    """The core is sans-IO: callers pass the time, random values and received data."""
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
        for node in ast_nodes(path):
            if not isinstance(node, ast.Call):
                continue
            name = dotted_name(node.func)
            prints = name == "print" and layer(module) not in ("cli", "__main__")
            if prints or name in ("logging.basicConfig", "logging.config.dictConfig", "logging.addLevelName"):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert wrong == []


def dotted_name(node: ast.expr) -> str:
    """Return the dotted name of a function, or an incomplete one if it is called on an expression."""
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
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(completed.stdout))


# Top-level modules that an import of the package may load: light parts of the standard library, msgspec and ours.
MAY_LOAD = frozenset(
    {
        "wharfinger", "msgspec",
        "atexit",
        "decimal",
        "platform",
        "typing_extensions",  # imported by msgspec if it is installed
        "ssl",  # imported by asyncio
        "abc", "annotationlib", "array", "ast", "asyncio", "base64", "binascii", "bisect", "calendar", "codecs",
        "collections", "concurrent", "contextlib", "contextvars", "copy", "copyreg", "dataclasses", "datetime", "dis",
        "enum", "errno", "fnmatch", "functools", "genericpath", "hashlib", "heapq", "hmac", "importlib", "inspect",
        "io", "itertools", "json", "keyword", "linecache", "locale", "logging", "math", "mimetypes", "ntpath",
        "numbers", "opcode", "operator", "os", "pathlib", "posixpath", "random", "re", "reprlib", "secrets", "select",
        "selectors", "shlex", "signal", "socket", "stat", "string", "struct", "subprocess", "tempfile", "textwrap",
        "threading", "time", "token", "tokenize", "traceback", "types", "typing", "unicodedata", "urllib", "uuid",
        "warnings", "weakref", "zlib", "queue", "ipaddress", "gc",
        # C parts of these modules, and imports of the standard library
        "zipfile", "zipimport", "bz2", "lzma", "shutil", "pwd", "grp", "fcntl", "posix", "resource",
        "glob",  # imported by pathlib since Python 3.13
    }
)  # fmt: skip


@pytest.mark.parametrize("code", ["import wharfinger", "from wharfinger import Server", "from wharfinger import Client",
                                  "from wharfinger import Host",
                                  "from wharfinger import Server, Client, Context, Complete, ToolError"])  # fmt: skip
def test_an_import_loads_only_light_modules(code: str) -> None:
    """HTTP servers, HTTP clients, file watchers, databases and terminal libraries are loaded on first use."""
    loaded = {name.split(".")[0] for name in loaded_modules(code)}
    assert loaded & ONLY_ON_USE == set()
    unexpected = {name for name in loaded if not name.startswith("_")} - MAY_LOAD
    assert unexpected == set()


def test_importing_the_package_loads_only_its_version() -> None:
    loaded = {name for name in loaded_modules("import wharfinger") if name.startswith("wharfinger")}
    assert loaded == {"wharfinger", "wharfinger.version"}


@pytest.mark.parametrize("name", ["Server", "Client"])
def test_an_import_takes_less_than_30_mib(name: str) -> None:
    """The resident memory of a fresh interpreter that has imported the name, as /proc reports it."""
    code = f"from wharfinger import {name}\nprint(open('/proc/self/status').read())"
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    row = next(line for line in completed.stdout.splitlines() if line.startswith("VmRSS"))
    assert int(row.split()[1]) < 30 * 1024
