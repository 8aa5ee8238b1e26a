"""The `wharfinger` command."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 1 failed (tool error, not found, …), 2 usage, 3 cannot connect, 4 not authorised, 130 Ctrl-C.
    A failure other than Ctrl-C prints a line on stderr that says what is wrong, and its details on lines after it.
    """
    import gc

    # Nearly all objects that imports create stay alive, and collecting garbage takes a fifth of the time to start.
    gc.set_threshold(50_000, 10, 10)
    try:
        from wharfinger.cli.app import run
    except KeyboardInterrupt:  # the module that reports errors is not imported yet
        return 130

    return run(args)
