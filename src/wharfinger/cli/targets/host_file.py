"""A host's configuration file: read, edited without losing comments, and replaced in one step with a backup."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wharfinger.cli.error_report import CommandError
from wharfinger.cli.targets import toml_edit
from wharfinger.upstreams import jsonc
from wharfinger.upstreams.host_formats import HostFormat

__all__ = ["HostFile"]


class HostFile:
    """The configuration file of a host, with its current text.

    Args:
        path: the file; one that does not exist counts as empty.
        host: the host that the file belongs to.

    Raises:
        CommandError: the file is not UTF-8.
    """

    def __init__(self, path: Path, host: HostFormat) -> None:
        self.path, self.host = path, host
        self._format = toml_edit if path.suffix == ".toml" else jsonc
        try:
            self.text = path.read_bytes().decode("utf-8")
        except FileNotFoundError:
            self.text = ""
        except UnicodeDecodeError:
            raise CommandError(f"{path} is not UTF-8 and was left unchanged.") from None

    def find(self, name: str, new_entry: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the entry of a server, or None if the file has no such entry.

        Raises:
            CommandError: the text cannot be parsed, or the value of `host.table` is not a table. With `new_entry`,
                the message shows what to add by hand.
        """
        return self._edit(self._format.find, name, new_entry)  # type: ignore[no-any-return]

    def with_entry(self, name: str, entry: dict[str, Any]) -> str:
        """Return the text with an entry set; raises CommandError as `find` does, and MissingExtra for TOML."""
        return self._edit(lambda *arguments: self._format.put(*arguments, entry), name, entry)  # type: ignore[no-any-return]

    def without_entry(self, name: str) -> str:
        """Return the text without an entry; raises as `with_entry` does."""
        return self._edit(self._format.remove, name, None)  # type: ignore[no-any-return]

    def _edit(self, edit: Callable[[str, str, str], Any], name: str, new_entry: dict[str, Any] | None) -> Any:
        import json

        try:
            return edit(self.text, self.host.table, name)
        except ValueError as error:
            advice = ""
            if new_entry and self._format is toml_edit:
                advice = f" Add this by hand:\n{toml_edit.put('', self.host.table, name, new_entry)}"
            elif new_entry:
                advice = f" Add this under {self.host.table!r} by hand: {json.dumps({name: new_entry})}"
            raise CommandError(f"{self.path} cannot be edited ({error}) and was left unchanged.{advice}") from None

    def diff(self, new_text: str) -> str:
        """Return the change as a unified diff."""
        import difflib

        lines = difflib.unified_diff(
            self.text.splitlines(keepends=True),
            new_text.splitlines(keepends=True),
            str(self.path),
            f"{self.path} (changed)",
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)

    def write(self, new_text: str) -> Path | None:
        """Replace the file in one step, and keep links and mode. Returns the backup, or None if there was no file.

        One backup is kept: the file as it was before this change. The name of this program is in the backup's name, so
        that no backup of another program is overwritten.
        """
        import shutil
        import tempfile

        real = self.path.resolve()
        real.parent.mkdir(parents=True, exist_ok=True)
        backup, mode = None, 0o600
        if real.exists():
            backup, mode = real.with_name(f"{real.name}.wharfinger.bak"), real.stat().st_mode & 0o777
            backup.unlink(missing_ok=True)  # a symbolic link with this name is not followed
            backup.touch(mode=0o600, exist_ok=False)  # `copy2` sets the mode only after the content
            shutil.copy2(real, backup)
        out = tempfile.NamedTemporaryFile(dir=real.parent, prefix=real.name + ".", delete=False)  # noqa: SIM115
        temporary = Path(out.name)
        try:
            with out:
                out.write(new_text.encode("utf-8"))
                out.flush()
                os.fsync(out.fileno())
            temporary.chmod(mode)
            temporary.replace(real)
        except BaseException:  # the temporary file has the secrets of the entries
            temporary.unlink(missing_ok=True)
            raise
        return backup
