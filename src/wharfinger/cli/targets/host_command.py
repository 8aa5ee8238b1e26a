"""Adds and removes a server with the host's own command, for the hosts in `COMMANDS`.

A host's command writes to the file that the installed version uses, and is safe while the host runs. An edit of the
file may be lost: Claude Code rewrites its file all the time. `gemini mcp add` (0.61) is left out on purpose: it
replaces every `${NAME}` of the other servers in the file with the value of the variable, which writes secrets to disk,
and deletes the servers of a project that is not trusted yet.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from wharfinger.cli.error_report import CommandError
from wharfinger.upstreams.host_formats import HOSTS, LocalServer, RemoteServer, entry

__all__ = ["add_commands", "remove_commands", "run"]

COMMAND_SECONDS = 60.0
OUTPUT_BYTES = 4096
"""Maximum number of bytes at the end of a command's output that are shown."""

Words = tuple[str, ...]


@dataclass(frozen=True)
class HostCommand:
    """The command of one host.

    `add` returns the arguments that add a server, `remove` those that remove one; each returns None if the command
    cannot do that. The first parameter of both is true if the server belongs to the project instead of the user.
    `replaces` is true if adding an existing name replaces its server; otherwise that server is removed first.
    """

    program: str
    add: Callable[[bool, str, LocalServer | RemoteServer], Words | None]
    remove: Callable[[bool, str], Words | None]
    replaces: bool


def claude_add(project: bool, name: str, server: LocalServer | RemoteServer) -> Words:
    """`claude mcp add-json` takes the entry in the format of the file."""
    return ("mcp", "add-json", "--scope", scope(project), name, json.dumps(entry(HOSTS["claude-code"], server)))


def code_add(project: bool, name: str, server: LocalServer | RemoteServer) -> Words | None:
    """`code --add-mcp` takes the entry with its name, and writes the user's file only."""
    return None if project else ("--add-mcp", json.dumps({"name": name, **entry(HOSTS["vscode"], server)}))


def codex_add(project: bool, name: str, server: LocalServer | RemoteServer) -> Words | None:
    """`codex mcp add` takes options for everything but headers, and writes the user's file only."""
    if project:
        return None
    if isinstance(server, LocalServer):
        env = (word for item in server.env.items() for word in ("--env", "=".join(item)))
        return ("mcp", "add", *env, name, "--", *server.command)
    token = ("--bearer-token-env-var", server.token_env) if server.token_env else ()
    return None if server.headers else ("mcp", "add", name, "--url", server.url, *token)


def scope(project: bool) -> str:
    """Return the name of a scope for Claude Code."""
    return "project" if project else "user"


COMMANDS = {
    "claude-code": HostCommand(
        "claude", claude_add, lambda project, name: ("mcp", "remove", "--scope", scope(project), name), replaces=False
    ),
    "vscode": HostCommand("code", code_add, lambda project, name: None, replaces=True),
    "codex": HostCommand(
        "codex", codex_add, lambda project, name: None if project else ("mcp", "remove", name), replaces=True
    ),
}


def add_commands(
    host: str, project: bool, name: str, server: LocalServer | RemoteServer, *, name_is_taken: bool
) -> list[Words]:
    """Return the commands that add a server, or none if the file has to be edited instead.

    If the host already has a server of this name, its server is replaced.
    """
    row, program = COMMANDS.get(host), program_path(host)
    words = row.add(project, name, server) if row and program else None
    if row is None or words is None:
        return []
    removal = remove_commands(host, project, name) if name_is_taken and not row.replaces else []
    return [*removal, (program, *words)]


def remove_commands(host: str, project: bool, name: str) -> list[Words]:
    """Return the command that removes a server, or none if the file has to be edited instead."""
    row, program = COMMANDS.get(host), program_path(host)
    words = row.remove(project, name) if row and program else None
    return [(program, *words)] if words else []


def program_path(host: str) -> str:
    """Return the path of a host's program on PATH, or an empty string if there is none that can be used.

    A batch file on Windows (`code.cmd`) cannot be used: its interpreter changes the quotes of JSON in the arguments.
    """
    path = shutil.which(COMMANDS[host].program) if host in COMMANDS else None
    return "" if path is None or (sys.platform == "win32" and path.lower().endswith((".cmd", ".bat"))) else path


def run(command: Words, advice: str) -> str:
    """Run one command of a host and return the end of its output.

    Raises:
        CommandError: it could not be started, failed, or took more than a minute; the message ends with `advice`.
    """
    with tempfile.TemporaryFile() as output:  # a pipe would stay open if the command leaves a process running
        try:
            completed = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            problem = f"ended with exit code {completed.returncode}" if completed.returncode else ""
        except subprocess.TimeoutExpired:
            problem = f"was stopped after {COMMAND_SECONDS:.0f} s"
        except OSError as error:
            problem = f"could not be started ({error.strerror})"
        output.seek(max(0, output.seek(0, 2) - OUTPUT_BYTES))
        printed = output.read().decode("utf-8", "replace").strip()
    if problem:
        # The arguments are left out, because they contain the values of variables and headers.
        failed = CommandError(f"{command[0]} {problem}. {advice}")
        failed.add_note(printed)
        raise failed
    return printed
