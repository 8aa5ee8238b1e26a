"""The policy of `--policy`, or of the file of `serve -f`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from wharfinger.policy import Policy
    from wharfinger.server import Server

__all__ = ["INLINE", "set_policy"]

INLINE = "wharfinger.policy"
"""Key of `ctx.meta`. Its value: the file that contains the rules, and the function that reads them (`server_file`)."""


def set_policy(ctx: click.Context, server: Server, file: str, report_only: bool) -> None:
    """Let the server enforce the policy in `file`, or else in the file of `serve -f`. The policy's tests must pass.

    Raises:
        UnusablePolicy: the policy cannot be used, or a test fails; the message names the rule or the test.
        click.UsageError: `report_only` is true, and there is no policy.
    """
    inline: tuple[Path, Callable[[Path], Policy]] | None = ctx.meta.get(INLINE)
    if not file and inline is None:
        if report_only:
            raise click.UsageError("--policy-report-only needs a policy: add --policy FILE.", ctx)
        return
    from wharfinger.policy import Policy
    from wharfinger.server.policy_file import PolicyFile

    path, load = (Path(file), Policy.load) if file or inline is None else inline
    server.policy = PolicyFile(path, load=load, report_only=report_only)
    server.server_policy.check_tests()
