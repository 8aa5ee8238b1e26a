"""Measures this project, its peers and the floors in turns, in one run.

    python benchmarks/run.py --quick                                  everything, roughly
    python benchmarks/run.py                                          everything, medians of three rounds
    python benchmarks/run.py --only stdio,static-32 --peers floor,ours,mcp2
    python benchmarks/run.py --only start --peers ours
    python benchmarks/run.py --only client-stdio,client-session       our client and the others

The first run builds one environment per peer under .bench/. Progress goes to stderr, the tables to stdout. The exit
status is 1 if a required ratio was missed or an answer of ours was wrong. Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.harness import clients, environments, measure, report
from benchmarks.harness.arguments import names_of
from benchmarks.harness.clients import CLIENT_MODES
from benchmarks.harness.peers import BY_NAME, MODES, PEERS, Peer
from benchmarks.harness.process import settle_driver
from benchmarks.harness.workloads import WORKLOADS, Workload

ALL_MODES = {**MODES, **CLIENT_MODES}


def options(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="one short round of everything: a couple of minutes")
    known = {*ALL_MODES, report.START, *(workload.name for workload in WORKLOADS)}
    add(
        "--only",
        type=names_of(known),
        default=[],
        metavar="A,B",
        help=f"of the modes {', '.join(ALL_MODES)} and {report.START}, and of the workloads "
        + ", ".join(workload.name for workload in WORKLOADS),
    )
    add(
        "--peers",
        type=names_of(BY_NAME),
        default=list(BY_NAME),
        metavar="A,B",
        help=f"of {', '.join(BY_NAME)} (default: all)",
    )
    add("--rounds", type=int, metavar="N", help="fresh processes each (default: 3, --quick: 1)")
    add(
        "--seconds",
        type=float,
        metavar="S",
        help="for one workload of one server, in three visits (default: 1, --quick: 0.5)",
    )
    add(
        "--warm",
        type=float,
        metavar="S",
        help="warm-up of a server, Node four times as long (default: 2, --quick: 0.5)",
    )
    add("--json", type=Path, metavar="OUT", help="write every measurement to this file")
    chosen = parser.parse_args(argv)
    for name, quick, usual in (("rounds", 1, 3), ("seconds", 0.5, 1.0), ("warm", 0.5, 2.0)):
        if getattr(chosen, name) is None:
            setattr(chosen, name, quick if chosen.quick else usual)
    return chosen


def choose(only: list[str]) -> tuple[list[str], list[Workload], bool]:
    """Return the modes, the workloads, and whether starts are measured.

    If `only` names no mode, all modes are measured; if it names no workload, all workloads.
    """
    named = [workload for workload in WORKLOADS if workload.name in only]
    modes = [mode for mode in ALL_MODES if mode in only]
    if only and not modes and not named:
        return [], [], True
    return modes or list(ALL_MODES), named or list(WORKLOADS), not only or report.START in only


def prepare(names: list[str]) -> list[Peer]:
    """Build the environments of these peers. Returns the peers for which this succeeded."""
    ready = []
    for peer in (peer for peer in PEERS if peer.name in names):
        try:
            environments.build(peer.environment)
            ready.append(peer)
        except environments.SetupFailed as error:
            measure.say(f"without {peer.name}: {error}")
    return ready


def main() -> int:
    chosen = options()
    modes, workloads, starts = choose(chosen.only)
    if any(mode in CLIENT_MODES for mode in modes) and "floor" not in chosen.peers:
        environments.build(BY_NAME["floor"].environment)  # the server of every client
    peers = prepare(chosen.peers)
    settle_driver()
    about = {"machine": measure.machine(), "options": {k: v for k, v in vars(chosen).items() if k != "json"}}
    rows: list[dict[str, Any]] = []
    for number in range(chosen.rounds):
        for mode in modes:
            if mode in CLIENT_MODES:
                rows += clients.requests(mode, peers, workloads, number, chosen.seconds, chosen.warm)
                continue
            taking_part = [peer for peer in peers if mode in peer.modes]
            rows += measure.requests(mode, taking_part, workloads, number, chosen.seconds, chosen.warm)
        for turn in range(measure.TURNS if starts else 0):
            rows += measure.start(peers, number * measure.TURNS + turn)
    if chosen.json:
        chosen.json.write_text(json.dumps({**about, "rows": rows}, indent=1))
    print(report.render(rows))
    ours_wrong = any(row["peer"] == report.OURS and (row.get("errors") or "failed" in row) for row in rows)
    return int(ours_wrong or not report.meets_rules(report.medians(rows)))


if __name__ == "__main__":
    sys.exit(main())
