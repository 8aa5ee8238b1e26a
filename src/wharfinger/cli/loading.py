"""Find the Server in a file or module that a user wrote; every failure says what to change."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from wharfinger.cli.failures import Failed

if TYPE_CHECKING:
    from wharfinger.server import Server

__all__ = ["load_server", "source_file", "split_place"]

PREFERRED = ("server", "app", "mcp")
"""Names that win where a module holds several servers."""


def split_place(place: str) -> tuple[str, str]:
    """Split `FILE[:name]` or `module[:name]`; the name may be empty."""
    if Path(place).exists():
        return place, ""
    where, colon, name = place.rpartition(":")
    return (where, name) if colon and where else (place, "")


def source_file(place: str) -> str:
    """Return the absolute path of the file that `place` names, or empty for a module."""
    where = split_place(place)[0]
    path = Path(where)
    return str(path.absolute()) if path.suffix == ".py" or path.is_file() else ""


def load_server(place: str) -> Server:
    """Import `FILE[:name]` or `module[:name]` and return its server.

    Raises:
        click.UsageError: there is no such file, module, name or server.
        Failed: the code raised while it was imported.
    """
    where, name = split_place(place)
    if Path(where).is_dir() and not (Path(where) / "__init__.py").exists():
        raise click.UsageError(f"{where} is a folder: to publish it write `wharfinger serve {where}`.")
    module = import_file(source_file(place)) if source_file(place) else import_named(where)
    return find_server(module, where, name)


def import_file(path: str) -> ModuleType:
    """Import a file under its own name, with its folder on the path, as `python FILE` would but for `__main__`."""
    from importlib.util import module_from_spec, spec_from_file_location

    if not Path(path).is_file():
        from wharfinger.cli.targets import near_file

        raise click.UsageError(f"No such file: {path}.{near_file(path)}")
    spec = spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(
            f"{path} is not a Python file: to publish it write `wharfinger serve {Path(path).parent}`."
        )
    module = module_from_spec(spec)
    sys.path.insert(0, str(Path(path).parent))
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise broken(path, error) from error
    return module


def import_named(name: str) -> ModuleType:
    """Import a module by its name, with the current folder on the path, as `python -m` would."""
    from importlib import import_module

    sys.path.insert(0, str(Path.cwd()))
    if name.startswith(".") or not name:
        raise click.UsageError(f"{name!r} is no name of a module: give the path of a file, or package.module.")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise click.UsageError(
                f"No module or file named {name!r} here ({Path.cwd()}): give the path of the file, "
                "or run in the folder that holds the package."
            ) from None
        raise broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise broken(name, error) from error


def broken(place: str, error: BaseException) -> Failed:
    """Say where the user's code failed, in one line."""
    from wharfinger.cli.causes import place_of

    text = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}".rstrip(": ")
    if isinstance(error, ModuleNotFoundError) and error.name:
        text += f". Is it installed for this Python? {sys.executable} -m pip install {error.name.partition('.')[0]}"
    return Failed(f"{place_of(error) or place}: {text} (-v shows the traceback)")


def find_server(module: ModuleType, place: str, name: str) -> Server:
    """Pick the server that is named, else the one with a usual name, else the only one that is no part of another."""
    from wharfinger.server import Server

    if name:
        value = getattr(module, name, None)
        if isinstance(value, Server):
            return value
        problem = f"is a {type(value).__name__}, not a Server" if hasattr(module, name) else "is not there"
        raise click.UsageError(f"{name!r} {problem} in {place}; it has {listed(module)}.")
    found = {name: server for name, server in servers(module).items() if not server.part_of}
    for usual in PREFERRED:
        if usual in found:
            return found[usual]
    distinct = {id(server): server for server in found.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if distinct:
        raise click.UsageError(f"{place} has several servers ({', '.join(found)}): write {place}:{next(iter(found))}")
    raise click.UsageError(f'No Server in {place}: make one at module level, server = Server("name").')


def servers(module: ModuleType) -> dict[str, Server]:
    """List a module's servers by name."""
    from wharfinger.server import Server

    return {name: value for name, value in vars(module).items() if isinstance(value, Server)}


def listed(module: ModuleType) -> str:
    """Name a module's servers."""
    return ", ".join(servers(module)) or "no Server at all"
