"""The configurations of docs/deploy.md are accepted by their programs and work with a real server."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.conftest import ROOT, absent, free_port
from tests.docs.pages import blocks_of
from tests.waiting import wait_until

PAGE = ROOT / "docs" / "deploy.md"
FILES = {block.options["file"]: block.text for block in blocks_of(PAGE) if "file" in block.options}
WHARFINGER = str(Path(sys.executable).with_name("wharfinger"))
TOKEN = "0123456789abcdef0123456789abcdef"
TIMEOUT_SECONDS = 60.0


@contextlib.contextmanager
def run_program(command: list[str], url: str, context: ssl.SSLContext | None = None, **options: Any) -> Iterator[Any]:
    """Run a program. The block begins when `url` answers, and the program ends with it."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options)

        def output() -> str:
            out.seek(0)
            return out.read().decode()

        def answers() -> bool:
            assert process.poll() is None, f"{command[0]} ended\n{output()}"
            return status(url, context) == 200

        try:
            wait_until(answers, f"{command[0]} answers at {url}", seconds=TIMEOUT_SECONDS, details=output)
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """Ask a program to end, and kill it if it does not."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def status(url: str, context: ssl.SSLContext | None = None, **headers: str) -> int:
    try:
        with urlopen(Request(url, headers=headers), timeout=20, context=context) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": more.get("XDG_CACHE_HOME", "/nonexistent"), "LANG": "C.UTF-8", **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder to publish, a copy of the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "charts")
    return tmp_path / "charts"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if not shutil.which("openssl"):
        absent("openssl (on Debian: apt-get install openssl)")
    key, certificate = tmp_path / "charts.key", tmp_path / "charts.pem"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {key} -out {certificate}".split(),
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


# The container


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments. Continued lines are joined."""
    text = re.sub(r"\\\n\s*", " ", FILES["Dockerfile"])
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line.strip()]


def test_the_dockerfile_is_well_formed_and_does_not_run_as_root() -> None:
    names = [name for name, _ in instructions()]
    known = {"FROM", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert names[0] == "FROM" and set(names) <= known and names.count("CMD") == 1
    assert dict(instructions())["USER"] not in ("0", "root")
    for name, rest in instructions():
        if name == "RUN":
            assert subprocess.run(["sh", "-n", "-c", rest], check=False).returncode == 0, rest
        if "CMD" in (name, *rest.split()):
            command = json.loads(rest[rest.index("[") :])  # the form without a shell: signals reach the program
            assert all(isinstance(word, str) for word in command)


def test_the_container_command_serves_callers_with_the_token(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    command = json.loads(dict(instructions())["CMD"])
    assert command[0] == "wharfinger"
    words = [word.replace("8000", str(port)).replace("/data", str(folder)) for word in command[1:]]
    base = f"http://127.0.0.1:{port}"
    variables = environment(CHARTS_TOKEN=TOKEN, XDG_CACHE_HOME=str(tmp_path / "cache"))
    with run_program([WHARFINGER, *words], f"{base}/healthz", env=variables) as process:
        health = dict(instructions())["HEALTHCHECK"]
        check = json.loads(health[health.index("[") :])
        words = [word.replace("8000", str(port)).replace("timeout=2", "timeout=20") for word in check[1:]]
        health_command = [sys.executable, *words]
        assert subprocess.run(health_command, check=False).returncode == 0
        assert status(f"{base}/mcp") == 401
        assert status(f"{base}/mcp", Host="evil.example", Authorization=f"Bearer {TOKEN}") == 403
        assert list_resources(f"{base}/mcp", variables)
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0
    assert subprocess.run(health_command, check=False, stderr=subprocess.DEVNULL).returncode != 0


def list_resources(url: str, variables: dict[str, str]) -> str:
    result = subprocess.run(
        [WHARFINGER, "ls", "--token-env", "CHARTS_TOKEN", url],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "tides.log" in result.stdout
    return result.stdout


# systemd


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(FILES["charts.service"])
    return parser


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if not verify:
        absent("systemd-analyze (on Debian: apt-get install systemd)")
    path = tmp_path / "charts.service"
    path.write_text(FILES["charts.service"].replace("/opt/wharfinger/bin/wharfinger", WHARFINGER))
    (tmp_path / "runtime").mkdir(mode=0o700)
    result = subprocess.run(
        [verify, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False,
        env=environment(XDG_RUNTIME_DIR=str(tmp_path / "runtime")),
    )  # fmt: skip
    errors = [line for line in result.stderr.splitlines() if "charts.service" in line]
    assert errors == [], result.stderr


def test_the_unit_command_serves_and_ends_with_code_0(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/wharfinger") and service["Restart"] == "on-failure"
    words = [word.replace("8000", str(port)).replace("/srv/charts", str(folder)) for word in words]
    variables = environment(CHARTS_TOKEN=TOKEN, XDG_CACHE_HOME=str(tmp_path / "cache"))
    with run_program([WHARFINGER, *words], f"http://127.0.0.1:{port}/healthz", env=variables) as process:
        list_resources(f"http://127.0.0.1:{port}/mcp", variables)
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0, "systemd would restart it after this exit code"


# Proxies


@contextlib.contextmanager
def running_backend(folder: Path, cache: Path) -> Iterator[int]:
    """Run a server with the command of the page's unit and the public name localhost, and yield its port."""
    port = free_port()
    _, *words = shlex.split(unit()["Service"]["ExecStart"])
    replacements = {"8000": str(port), "/srv/charts": str(folder), "charts.example": "localhost"}
    for before, after in replacements.items():
        words = [word.replace(before, after) for word in words]
    variables = environment(CHARTS_TOKEN=TOKEN, XDG_CACHE_HOME=str(cache))
    with run_program([WHARFINGER, *words], f"http://127.0.0.1:{port}/healthz", env=variables):
        yield port


def check_proxy(port: int, folder: Path, certificate: Path) -> None:
    """Check that a client lists resources and is notified at once through a TLS proxy at localhost."""
    url = f"https://localhost:{port}/mcp"
    variables = environment(CHARTS_TOKEN=TOKEN, SSL_CERT_FILE=str(certificate), PYTHONUNBUFFERED="1")
    context = ssl.create_default_context(cafile=str(certificate))
    assert status(url, context) == 401
    list_resources(url, variables)
    for revision in ("2025-11-25", "2026-07-28"):
        check_notification(url, folder, variables, revision)
    if shutil.which("curl"):
        curl = ["curl", "--silent", "--http2", "--cacert", str(certificate), "--output", os.devnull]
        result = subprocess.run(
            [*curl, "--write-out", "%{http_version}", f"https://localhost:{port}/healthz"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert result.stdout == "2"


def check_notification(url: str, folder: Path, variables: dict[str, str], revision: str) -> None:
    uri = "file:///charts/tides.log"
    command = [WHARFINGER, "watch", "--token-env", "CHARTS_TOKEN", "--revision", revision, url, uri]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables)
    assert watch.stdout is not None
    try:
        first = watch.stdout.readline()
        assert "Watching" in first, first + watch.stdout.read()
        with (folder / "tides.log").open("a") as log:
            log.write("2026-07-01T12:00:00 3.140 m falling\n")
        assert f"changed {uri}" in watch.stdout.readline()  # hangs if the proxy buffers the notification
    finally:
        end(watch)
        watch.stdout.close()


def test_nginx_accepts_its_configuration_and_forwards_streams(
    folder: Path, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not nginx:
        absent("nginx (on Debian: apt-get install nginx-light)")
    port = free_port()
    with running_backend(folder, tmp_path / "cache") as backend_port:
        site = FILES["charts.conf"]
        for before, after in {
            "127.0.0.1:8000": f"127.0.0.1:{backend_port}",
            "listen 443": f"listen 127.0.0.1:{port}",
            "charts.example": "localhost",
            "/etc/ssl/charts.pem": str(certificate[0]),
            "/etc/ssl/charts.key": str(certificate[1]),
        }.items():
            assert before in site
            site = site.replace(before, after)
        (tmp_path / "charts.conf").write_text(site)
        temp_paths = "\n".join(
            f"{name}_temp_path {tmp_path}/{name};" for name in ("proxy", "client_body", "fastcgi", "uwsgi", "scgi")
        )
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/errors;\nevents {{}}\n"
            f"http {{ access_log off; {temp_paths} include {tmp_path}/charts.conf; }}\n"
        )
        command = [nginx, "-p", str(tmp_path), "-e", f"{tmp_path}/errors", "-c", f"{tmp_path}/nginx.conf"]
        result = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        assert result.returncode == 0 and "warn" not in result.stderr, result.stderr
        context = ssl.create_default_context(cafile=str(certificate[0]))
        with run_program(command, f"https://localhost:{port}/healthz", context):
            check_proxy(port, folder, certificate[0])
            evil = {"Host": "evil.example", "Authorization": f"Bearer {TOKEN}"}
            assert status(f"https://localhost:{port}/mcp", context, **evil) == 403


def test_caddy_accepts_its_configuration_and_forwards_streams(
    folder: Path, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    caddy = shutil.which("caddy")
    if not caddy:
        absent("caddy (on Debian: apt-get install caddy)")
    port = free_port()
    with running_backend(folder, tmp_path / "cache") as backend_port:
        site = FILES["Caddyfile"].replace("127.0.0.1:8000", f"127.0.0.1:{backend_port}")
        start = f"https://localhost:{port} {{\n    tls {certificate[0]} {certificate[1]}\n"
        assert "charts.example {\n" in site
        site = site.replace("{\n", "{\n    admin off\n    auto_https disable_redirects\n", 1)
        site = site.replace("charts.example {\n", start)
        (tmp_path / "Caddyfile").write_text(site)
        variables = environment(XDG_DATA_HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
        options = ["--config", f"{tmp_path}/Caddyfile", "--adapter", "caddyfile"]
        result = subprocess.run(
            [caddy, "validate", *options], capture_output=True, text=True, env=variables, check=False
        )
        assert result.returncode == 0, result.stderr
        context = ssl.create_default_context(cafile=str(certificate[0]))
        with run_program([caddy, "run", *options], f"https://localhost:{port}/healthz", context, env=variables):
            check_proxy(port, folder, certificate[0])
