"""Loads the Server from a file or module of the user."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from wharfinger.cli.error_report import CommandError

if TYPE_CHECKING:
    from wharfinger.server import Server

__all__ = ["load_server", "source_file", "split_place"]

PREFERRED_NAMES = ("server", "app", "mcp")
"""Variables that are preferred if a module has several servers, the most preferred first."""


def split_place(place: str) -> tuple[str, str]:
    """Split `FILE[:name]` or `module[:name]`; the name may be empty."""
    if Path(place).exists():
        return place, ""
    where, colon, name = place.rpartition(":")
    return (where, name) if colon and where else (place, "")


def source_file(place: str) -> str:
    """Return the absolute path of the file that `place` names, or an empty string for a module."""
    where = split_place(place)[0]
    path = Path(where)
    return str(path.absolute()) if path.suffix == ".py" or path.is_file() else ""


def load_server(place: str) -> Server:
    """Import `FILE[:name]` or `module[:name]` and return its server.

    Raises:
        click.UsageError: there is no such file, module, name or server.
        CommandError: the import failed.
    """
    where, name = split_place(place)
    if Path(where).is_dir() and not (Path(where) / "__init__.py").exists():
        raise click.UsageError(f"{where} is a folder: publish it with `wharfinger serve {where}`.")
    file = source_file(place)
    module = import_file(file) if file else import_named(where)
    return find_server(module, where, name)


def import_file(path: str) -> ModuleType:
    """Import a file under its own name, with its folder on `sys.path`, like `python FILE`."""
    from importlib.util import module_from_spec, spec_from_file_location

    if not Path(path).is_file():
        from wharfinger.cli.targets.target import near_file

        raise click.UsageError(f"No such file: {path}.{near_file(path)}")
    spec = spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path} is not a Python file: publish it with `wharfinger serve {Path(path).parent}`.")
    module = module_from_spec(spec)
    sys.path.insert(0, str(Path(path).parent))
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise import_error(path, error) from error
    return module


def import_named(name: str) -> ModuleType:
    """Import a module by its name, with the current folder on `sys.path`, like `python -m`."""
    from importlib import import_module

    sys.path.insert(0, str(Path.cwd()))
    if name.startswith(".") or not name:
        raise click.UsageError(f"{name!r} is not the name of a module: give the path of a file, or package.module.")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise click.UsageError(
                f"No module or file named {name!r} here ({Path.cwd()}): give the path of the file, "
                "or run the command in the folder that contains the package."
            ) from None
        raise import_error(name, error) from error
    except (Exception, SystemExit) as error:
        raise import_error(name, error) from error


def import_error(place: str, error: BaseException) -> CommandError:
    """Return an error that says in one line where and why the import failed."""
    from wharfinger.cli.tracebacks import place_of

    text = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}".rstrip(": ")
    if isinstance(error, ModuleNotFoundError) and error.name:
        text += f". Is it installed for this Python? {sys.executable} -m pip install {error.name.partition('.')[0]}"
    return CommandError(f"{place_of(error) or place}: {text} (-v shows the traceback)")


def find_server(module: ModuleType, place: str, name: str) -> Server:
    """Return the server that `name` names. Without a name, return the one with a usual name, or else the only server.

    A server that is mounted into another is found only by its name.
    """
    from wharfinger.server import Server

    if name:
        value = getattr(module, name, None)
        if isinstance(value, Server):
            return value
        problem = f"is a {type(value).__name__}, not a Server" if hasattr(module, name) else "does not exist"
        raise click.UsageError(f"{name!r} {problem} in {place}; it has {', '.join(servers(module)) or 'no Server'}.")
    choices = {name: server for name, server in servers(module).items() if not server.parents}
    for usual in PREFERRED_NAMES:
        if usual in choices:
            return choices[usual]
    distinct = {id(server): server for server in choices.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if distinct:
        raise click.UsageError(
            f"{place} has several servers ({', '.join(choices)}): choose one, such as {place}:{next(iter(choices))}"
        )
    raise click.UsageError(f'No Server in {place}: create one at module level, server = Server("name").')


def servers(module: ModuleType) -> dict[str, Server]:
    """Return a module's servers by name."""
    from wharfinger.server import Server

    return {name: value for name, value in vars(module).items() if isinstance(value, Server)}
