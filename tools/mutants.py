"""Makes small faults in the source at random, one at a time, and reports those that no test notices.

    python tools/mutants.py protocol server client --count 100 --seed 7
    python tools/mutants.py protocol/lines.py --count 20 --only tests/protocol

A fault is one of: a comparison changed, `and` and `or` swapped, a `not` dropped, a number raised by one, a branch never
taken, a call dropped. Each is made in a copy of the repository, so the working tree does not change. The tests run in
rounds, until one fails: the tests named after the module, those that import it, those of its package, then all quick
ones. The output names the test that notices a fault: on a busy machine, make sure that it fails because of the fault.
`--rounds 3` leaves out the last round, which takes minutes. A fault that survives is printed as a diff. Decide for each
whether it changes any behaviour. If it does not, leave it out of later samples with `--skip FILE:LINE:COLUMN`.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "wharfinger"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COPIED = [
    *(path.strip("/") for path in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]), "pyproject.toml",
]  # fmt: skip
"""What a source distribution contains, in which all tests run."""
SLOW = ("conformance", "docs", "interop", "security", "test_package.py", "test_dist.py")
ROUND_SECONDS = 1200
"""A round that takes longer, even on a busy machine, counts as an endless loop."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutant(NamedTuple):
    """One fault: its position, its kind, and the whole source file with the fault."""

    path: Path
    line: int
    column: int
    kind: str
    source: str

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(SOURCE)}:{self.line}:{self.column}"

    def diff(self) -> str:
        before = self.path.read_text(encoding="utf-8").splitlines()
        lines = difflib.unified_diff(before, self.source.splitlines(), lineterm="", n=2)
        return "\n".join(f"    {line}" for line in lines if not line.startswith(("---", "+++")))


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every fault that can be made in one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    ignored = ignored_nodes(tree)
    for node in ast.walk(tree):
        if node not in ignored:
            for kind, target, replacement in changes(node):
                source = replace_node(text, target, replacement)
                yield Mutant(path, target.lineno, target.col_offset, kind, source)


def ignored_nodes(tree: ast.AST) -> set[ast.AST]:
    """Return the nodes whose faults do not affect users: annotations, code for type checkers, logging, `__repr__`."""
    ignored: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                parts = [annotation]
            case ast.FunctionDef(name="__repr__") | ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
                parts = [node]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
                parts = [node]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                overload = any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)
                parts = [node if overload else node.returns]
            case ast.ClassDef(bases=bases) if any(ast.unparse(base).startswith("Protocol") for base in bases):
                parts = [node]
            case ast.If(test=test) if ast.unparse(test) == "TYPE_CHECKING":
                parts = [node]
            case _:
                pass
        for part in parts:
            if part is not None:
                ignored.update(ast.walk(part))
    return ignored


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the faults of one node: the kind, the node to replace, and its replacement."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for index, op in enumerate(ops):
                other = [*ops[:index], COMPARISONS[type(op)](), *ops[index + 1 :]]
                yield "comparison changed", node, f"({ast.unparse(ast.Compare(left, other, comparators))})"
        case ast.BoolOp(op=op, values=values):
            swapped = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and/or swapped", node, f"({ast.unparse(ast.BoolOp(swapped, values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not dropped", node, f"({ast.unparse(operand)})"
        case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
            yield "number raised", node, f"({value + 1!r})"
        case ast.If(test=test) if not isinstance(test, ast.NamedExpr):
            yield "branch never taken", test, f"(False and ({ast.unparse(test)}))"
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield "call dropped", node, "pass"
        case _:
            pass


def replace_node(text: str, node: ast.expr | ast.stmt, replacement: str) -> str:
    """Return the source with one node replaced. Columns of a syntax tree count UTF-8 bytes."""
    data = text.encode()
    lines = data.splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    return (data[:start] + replacement.encode() + data[end:]).decode()


def rounds(path: Path, only: list[str]) -> Iterator[list[str]]:
    """Yield the tests of each round: first those that are most likely to notice a fault in this file."""
    if only:
        yield only
        return
    name, package = path.stem, path.relative_to(SOURCE).parts[0]
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    own = [str(p.relative_to(ROOT)) for p in files if p.name == f"test_{name}.py"]
    if own:
        yield own
    module = ".".join(("wharfinger", *path.relative_to(SOURCE).with_suffix("").parts))
    users = [
        str(p.relative_to(ROOT)) for p in files if not {*p.parts} & {*SLOW} and module in p.read_text(encoding="utf-8")
    ]
    if users := [file for file in users if file not in own]:
        yield users
    if (ROOT / "tests" / package).is_dir():  # pytest fails if it is missing, which would look like a noticed fault
        yield [f"tests/{package}"]
    yield ["tests", *(f"--ignore=tests/{name}" for name in SLOW)]


def find_killer(mutant: Mutant, copy: Path, only: list[str], max_rounds: int) -> str:
    """Return the test that notices a fault, or an empty string. Restores the copy afterwards."""
    target = copy / mutant.path.relative_to(ROOT)
    original = target.read_text(encoding="utf-8")
    target.write_text(mutant.source, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--timeout=60"]
    try:
        for tests in islice(rounds(mutant.path, only), max_rounds):
            try:
                done = subprocess.run(
                    [*command, *tests], cwd=copy, env=environment, capture_output=True, text=True, timeout=ROUND_SECONDS
                )
            except subprocess.TimeoutExpired:
                return f"{tests[0]} (endless)"
            if done.returncode not in (0, 5):
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return failed[1] if failed else tests[0]
        return ""
    finally:
        target.write_text(original, encoding="utf-8")


def copy_repository(folder: Path) -> Path:
    """Copy the repository to a folder. The copy has a link to the directory of shared test data, if there is one."""
    copy = folder / ROOT.name
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.mkdir(exist_ok=True, parents=True)
            shutil.copy(ROOT / name, copy / name)
    if (ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to((ROOT.parent / "shared").resolve())
    return copy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", nargs="+", help="packages or files below src/wharfinger")
    parser.add_argument("--count", type=int, default=20, help="how many faults to make (20)")
    parser.add_argument("--seed", type=int, default=1, help="the sample; the same number makes the same faults (1)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (1)")
    parser.add_argument("--only", nargs="*", default=[], help="run these tests only, instead of the rounds")
    parser.add_argument("--rounds", type=int, default=4, help="how many of the rounds to run (4)")
    parser.add_argument("--at", nargs="*", default=[], metavar="FILE:LINE", help="only faults at these places")
    parser.add_argument("--skip", nargs="*", default=[], metavar="FILE:LINE:COLUMN", help="places known as equivalent")
    options = parser.parse_args()

    files = [p for where in options.where for p in sorted([SOURCE / where] if (SOURCE / where).is_file() else
             (SOURCE / where).rglob("*.py"))]  # fmt: skip
    found = [mutant for path in files for mutant in mutants(path) if mutant.place not in options.skip]
    if options.at:
        found = [m for m in found if any(m.place == at or m.place.startswith(f"{at}:") for at in options.at)]
    sample = random.Random(options.seed).sample(found, min(options.count, len(found)))
    print(f"{len(sample)} of {len(found)} possible faults", flush=True)

    survived = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as threads:
        free: Queue[Path] = Queue()
        for number in range(options.jobs):
            free.put(copy_repository(Path(folder) / str(number)))

        def judge(mutant: Mutant) -> tuple[Mutant, str, float]:
            started, copy = time.monotonic(), free.get()
            try:
                return mutant, find_killer(mutant, copy, options.only, options.rounds), time.monotonic() - started
            finally:
                free.put(copy)

        for mutant, tests, seconds in threads.map(judge, sample):
            verdict = f"killed by {tests}" if tests else "SURVIVED"
            print(f"{mutant.place}: {mutant.kind}: {verdict} ({seconds:.0f} s)", flush=True)
            if not tests:
                survived += 1
                print(mutant.diff(), flush=True)
    print(f"{len(sample) - survived} killed, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
