"""Turns measured rows into text: medians, one table per mode, and verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .clients import CLIENT_MODES
from .peers import MODES, PEERS
from .workloads import WORKLOADS

OURS, START = "ours", "start"
TITLES = {**MODES, **CLIENT_MODES}
CPU = "cpu_us"
HOT = {"static-32": "reads", "call-32": "tool calls"}
"""The workloads for which the project promises a speed, and their names in verdicts."""
COMPARED = ("rate", CPU)
SATURATED = 0.9
"""If the driver was busy for more than this share of the time, it may have been the bottleneck: a rate is a minimum."""

Key = tuple[str, str, str]
Medians = Mapping[Key, Mapping[str, float]]
"""(mode, workload, peer) -> figure -> median over the turns."""
Figure = Callable[[Medians], float | None]


def medians(rows: Iterable[Mapping[str, Any]]) -> Medians:
    """Return the median over the turns of every figure, and of the ratio of ours to each peer in the same turn.

    Other processes slow down both servers of a turn, so ratios vary less than rates. Starts are not measured in turns:
    of these, the minimum is taken, since other processes can only make a start longer.
    """
    turns: dict[Key, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        if "failed" not in row:
            turns[row["mode"], row["workload"], row["peer"]][row["turn"]] = row
    by_key: dict[Key, Mapping[str, float]] = {}
    for key, measured in turns.items():
        names = [name for name, value in next(iter(measured.values())).items() if not isinstance(value, str)]
        summarize = min if key[0] == START else median
        figures = {name: summarize(row[name] for row in measured.values()) for name in names}
        ours = turns.get((*key[:2], OURS), {})
        for name in COMPARED:
            ratios = [
                _times_better(name, ours[turn], row) for turn, row in measured.items() if name in row and turn in ours
            ]
            if ratios:
                figures[f"ours in {name}"] = median(ratios)
        by_key[key] = figures
    return by_key


def _times_better(figure: str, ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    return ours[figure] / theirs[figure] if figure == "rate" else theirs[figure] / ours[figure]


def advantage(known: Medians, mode: str, workload: str, peer: str, figure: str) -> float | None:
    """Return how many times better ours is than `peer`: a higher rate, or less CPU; None if it was not measured."""
    return known.get((mode, workload, peer), {}).get(f"ours in {figure}")


# Verdicts


@dataclass(frozen=True)
class Rule:
    """A figure and its bound. The run fails if a `required` one is missed; other misses are only reported."""

    text: str
    figure: Figure
    bound: float
    unit: str = "x"
    at_most: bool = False
    required: bool = False

    def verdict(self, known: Medians) -> str:
        """Return `holds`, `missed` or `not measured`."""
        value = self.figure(known)
        if value is None:
            return "not measured"
        return "holds" if (value <= self.bound if self.at_most else value >= self.bound) else "missed"


def times(mode: str, workload: str, peer: str, figure: str = "rate") -> Figure:
    return lambda known: advantage(known, mode, workload, peer, figure)


def plain(mode: str, workload: str, figure: str, scale: float = 1) -> Figure:
    def read(known: Medians) -> float | None:
        value = known.get((mode, workload, OURS), {}).get(figure)
        return None if value is None else value * scale

    return read


_FIGURES = (("rate", "{0}/s over"), (CPU, "CPU of {0} under"))
_PROMISED = (
    ("stdio", "stdio", "mcp2", "mcp 2.3.0", 30),
    ("stdio", "stdio", "ts1", "TypeScript 1.32", 1),
    ("stateless", "stateless HTTP", "mcp2-fast", "mcp 2.3.0 at its fastest", 5.5),
)
_CLIENT_PROMISED = (
    ("client-stdio", "mcp2", "mcp 2.3.0 on stdio", 15),
    ("client-session", "mcp2", "mcp 2.3.0 on HTTP sessions", 4),
    ("client-session", "ts1", "TypeScript 1.32 on HTTP sessions", 1),
    ("client-session", "ts2", "TypeScript 2.4 on HTTP sessions", 1),
    ("client-stateless", "mcp2", "mcp 2.3.0 on stateless HTTP", 4),
    ("client-stateless", "ts2", "TypeScript 2.4 on stateless HTTP", 1),
)
RULES = (
    *(
        Rule(f"{where}, {words.format(what)} {whom}", times(mode, workload, peer, figure), bound, required=True)
        for workload, what in HOT.items()
        for mode, where, peer, whom, bound in _PROMISED
        for figure, words in _FIGURES
    ),
    Rule("`wharfinger serve DIR`, spawn to first answer", plain(START, "serve", "ms"), 150, "ms", True, True),
    Rule("stdio, reads/s of the floor's", times("stdio", "static-32", "floor"), 0.30),
    Rule("stdio, CPU of reads against the floor's", times("stdio", "static-32", "floor", CPU), 0.30),
    Rule("stateless HTTP, reads/s of the floor's", times("stateless", "static-32", "floor"), 0.55),
    Rule("stateless HTTP, CPU of reads against the floor's", times("stateless", "static-32", "floor", CPU), 0.55),
    Rule("HTTP sessions, reads/s over mcp 2.3.0", times("session", "static-32", "mcp2"), 10),
    Rule("HTTP sessions, reads/s of the floor's", times("session", "static-32", "floor"), 0.45),
    Rule("HTTP sessions, CPU of reads against the floor's", times("session", "static-32", "floor", CPU), 0.45),
    *(Rule(f"{mode}, list of 1,000, rate of the floor's", times(mode, "list", "floor"), 1) for mode in MODES),
    *(Rule(f"{mode}, 1 MiB, MB/s of the floor's", times(mode, "blob-1", "floor"), 0.8) for mode in MODES),
    *(Rule(f"{mode}, 50 MiB, MB/s of the floor's", times(mode, "blob-50", "floor"), 0.8) for mode in MODES),
    Rule("stdio, a read of 50 MiB", plain("stdio", "blob-50", "p50_us", 1e-6), 1, "s", True),
    *(
        Rule(f"our client, {words.format('calls')} {whom}", times(mode, "call-32", peer, figure), bound, required=True)
        for mode, peer, whom, bound in _CLIENT_PROMISED
        for figure, words in _FIGURES
    ),
    Rule("our client on stdio, a read of 50 MiB", plain("client-stdio", "blob-50", "p50_us", 1e-6), 1, "s", True, True),
    Rule("10,000 resources registered", plain(START, "resources", "ms"), 100, "ms", True, True),
    Rule("10,000 tools registered", plain(START, "tools", "ms"), 400, "ms", True, True),
    Rule("import of Server, time", plain(START, "import", "ms"), 100, "ms", True),
    Rule("import of Server, memory", plain(START, "import", "mib"), 30, "MiB", True),
    Rule("import of Client, time", plain(START, "client", "ms"), 100, "ms", True),
    Rule("import of Client, memory", plain(START, "client", "mib"), 30, "MiB", True),
)


def meets_rules(known: Medians) -> bool:
    """Return whether no required rule was missed; those that were not measured do not count."""
    return not any(rule.required and rule.verdict(known) == "missed" for rule in RULES)


def verdicts(known: Medians) -> str:
    """Return a line for each rule that was measured, and how many were not."""
    measured = [(rule, value) for rule in RULES if (value := rule.figure(known)) is not None]
    lines = [f"{'':8} {'':66} {'bound':>11} {'measured':>11}"] if measured else []
    for rule, value in measured:
        bound, figure = (f"{number(x)}{'' if rule.unit == 'x' else ' '}{rule.unit}" for x in (rule.bound, value))
        sign, note = "<=" if rule.at_most else ">=", "  required" if rule.required else ""
        lines.append(f"{rule.verdict(known):8} {rule.text:66} {f'{sign} {bound}':>11} {figure:>11}{note}")
    if left := len(RULES) - len(measured):
        lines.append(f"{left} of {len(RULES)} ratios were not measured in this run.")
    return "\n".join(lines)


# Tables


def number(value: float) -> str:
    """Format a number with at least three significant digits and thousands separators."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value < 10 else f"{value:.1f}"


def table(corner: str, columns: Sequence[str], lines: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a table of aligned columns; a line without cells is a heading."""
    rows = [(corner, list(columns)), *((name, list(cells)) for name, cells in lines)]
    first = max(len(name) for name, _ in rows)
    wide = max((len(cell) for _, cells in rows for cell in cells), default=0)
    return "\n".join(
        (f"{name:<{first}}" + "".join(f"  {cell:>{wide}}" for cell in cells)).rstrip() for name, cells in rows
    )


def mode_table(known: Medians, mode: str) -> str:
    """Return the table of one mode: all workloads, and the ratio of ours to each peer."""
    here = {key: figures for key, figures in known.items() if key[0] == mode}
    peers = [peer.name for peer in PEERS if any(key[2] == peer.name for key in here)]
    lines: list[tuple[str, Sequence[str]]] = []
    for workload in WORKLOADS:
        cells = [here.get((mode, workload.name, peer), {}) for peer in peers]
        if not any(cells):
            continue
        lines += [(f"{workload.name}: {workload.about}", ())]
        unit, figure = ("MB/s", "mib_s") if workload.mib else ("requests/s", "rate")
        scale = 1.048576 if workload.mib else 1
        lines += [
            (f"  {unit}", [_rate(cell, figure, scale) for cell in cells]),
            ("  CPU µs/request", [_cell(cell, CPU) for cell in cells]),
            ("  driver_busy", [f"{cell['driver_busy']:.2f}" if cell else "-" for cell in cells]),
        ]
        for label, name in (("  ours, in rate", "rate"), ("  ours, in CPU", CPU)):
            ratios = [_versus(known, mode, workload.name, peer, name) for peer in peers]
            if any(ratio not in ("", "-") for ratio in ratios):
                lines.append((label, ratios))
    return table(TITLES[mode], peers, lines)


def _versus(known: Medians, mode: str, workload: str, peer: str, figure: str) -> str:
    if peer == OURS:
        return ""
    ratio = advantage(known, mode, workload, peer, figure)
    return "-" if ratio is None else f"{number(ratio)}x"


def _rate(cell: Mapping[str, float], figure: str, scale: float) -> str:
    if not cell:
        return "-"
    return number(cell[figure] * scale) + ("*" if cell["driver_busy"] > SATURATED else "")


def _cell(cell: Mapping[str, float], figure: str) -> str:
    return number(cell[figure]) if figure in cell else "-"


STARTS = (
    ("import, ms", "import", "ms"),
    ("import, MiB resident", "import", "mib"),
    ("import of Client, ms", "client", "ms"),
    ("import of Client, MiB resident", "client", "mib"),
    ("spawn to first answer, ms", "spawn", "ms"),
    ("  CPU of it, ms", "spawn", "cpu_ms"),
    ("idle, MiB resident", "spawn", "mib"),
    ("10,000 resources registered, ms", "resources", "ms"),
    ("10,000 tools registered, ms", "tools", "ms"),
    ("serve DIR to first answer, ms", "serve", "ms"),
    ("serve DIR idle, MiB resident", "serve", "mib"),
)


def start_table(known: Medians) -> str:
    """Return the table of start-up times and memory, with 1,000 registered resources."""
    peers = [peer.name for peer in PEERS if any(key[0] == START and key[2] == peer.name for key in known)]
    lines = []
    for label, workload, figure in STARTS:
        cells = [_cell(known.get((START, workload, peer), {}), figure) for peer in peers]
        if any(cell != "-" for cell in cells):
            lines.append((label, cells))
    return table(START, peers, lines)


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the whole report, which is printed at the end of a run."""
    known = medians(rows)
    modes = [mode for mode in TITLES if any(key[0] == mode for key in known)]
    parts = [mode_table(known, mode) for mode in modes]
    if modes:
        parts.append(
            f'* the driver was busy for more than {SATURATED:.0%} of the time: the rate says "at least", CPU is exact.'
        )
    if any(key[0] == START for key in known):
        parts.append(start_table(known))
    if any(key[2] == OURS for key in known):
        parts.append(verdicts(known))
    wrong = [
        f"{row['peer']}, {row['mode']} {row['workload']}: {row['errors']} wrong answers"
        for row in rows
        if row.get("errors")
    ]
    failed = [
        f"{row['peer']}, {row['mode']} {row['workload']}: {row['failed'].splitlines()[0]}"
        for row in rows
        if "failed" in row
    ]
    if wrong or failed:
        parts.append("\n".join(["FAILED", *wrong, *failed]))
    return "\n\n".join(parts)
