"""A MariaDB server for tests, on a Unix socket and a local port."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from tests.conftest import absent, free_port
from tests.waiting import wait_until

__all__ = ["PASSWORD", "MariaDBServer"]

PASSWORD = "hush-hush"
START_SECONDS = 60


class MariaDBServer:
    """A server in a temporary folder. `run` runs statements with the `mariadb` client as the administrator."""

    def __init__(self, *options: str) -> None:
        program = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None or find_spec("pymysql") is None or shutil.which("mariadb-install-db") is None:
            absent("MariaDB (Debian package mariadb-server) or PyMySQL")
        self.folder = Path(tempfile.mkdtemp(prefix="wharfinger-db-"))
        self.socket = self.folder / "socket"
        self.port = free_port()
        self._as_root = ["--user=root"] if os.geteuid() == 0 else []
        self._command = [
            str(program), "--no-defaults", f"--datadir={self.folder}/data", f"--socket={self.socket}",
            "--bind-address=127.0.0.1", f"--port={self.port}", "--innodb-buffer-pool-size=64M",
            "--sql-mode=PIPES_AS_CONCAT", "--max-recursive-iterations=100000",
            *options, *self._as_root,
        ]  # fmt: skip
        self._number = 0
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data",
             "--auth-root-authentication-method=normal", *self._as_root],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        self.start()
        self.run(
            f"CREATE USER reader@'%' IDENTIFIED BY '{PASSWORD}'; CREATE USER plain@'%' IDENTIFIED BY '{PASSWORD}'; "
            "GRANT SELECT, SHOW VIEW, EXECUTE ON `test\\_%`.* TO reader@'%'; "
            "GRANT SELECT ON `test\\_%`.* TO plain@'%'; "
            "DELETE FROM mysql.global_priv WHERE User = ''; DELETE FROM mysql.db WHERE User IN ('', 'PUBLIC'); "
            "FLUSH PRIVILEGES"
        )

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers() -> bool:
            assert self.process.poll() is None, "the server ended"
            return self.run("SELECT 1") == "1\n"

        wait_until(answers, "the server answers", seconds=START_SECONDS, ignore=subprocess.CalledProcessError)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def suspend(self) -> None:
        """Suspend the server, and wait until all its threads have stopped: right after `kill` one may still answer."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def run(self, statements: str, database: str = "", *, options: tuple[str, ...] = ()) -> str:
        """Run statements, and return what the `mariadb` client prints."""
        command = [
            "mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "--batch", "--skip-column-names",
            "--default-character-set=utf8mb4", *options, *([database] if database else []),
        ]  # fmt: skip
        process = subprocess.run(
            command, input=statements.encode(), check=True, capture_output=True, timeout=START_SECONDS
        )
        return process.stdout.decode()

    def database(self, statements: str = "") -> str:
        """Create a database, and return its name."""
        self._number += 1
        name = f"test_{self._number}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        if statements:
            self.run(statements, name)
        return name

    def url(self, database: str, account: str = "reader", password: str = PASSWORD, scheme: str = "mysql") -> str:
        """Return the URL of a database on the socket."""
        user = f"{account}:{password}" if password else account
        return f"{scheme}://{user}@localhost/{quote(database, safe='')}?unix_socket={self.socket}"

    def close(self) -> None:
        """Stop the server, and remove its folder."""
        self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)
