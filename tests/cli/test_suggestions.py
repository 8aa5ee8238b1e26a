"""A mistake gets a suggestion: similar names, the right command, or the right address."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from wharfinger.cli import main
from wharfinger.cli.suggestions import name_suggestion, nearest

SERVER = """\
from wharfinger import Server, ToolError

server = Server("harbour")


@server.resource("harbour://tide")
def tide() -> str:
    return "3 m"


@server.tool
def berth(ship: str = "") -> str:
    raise ToolError("no berth, not found")


@server.prompt
def briefing(ship: str) -> str:
    return ship


if __name__ == "__main__":
    server.run()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and current folder with a server in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "harbour.py").write_text(SERVER)
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "a.md").write_text("a")
    (tmp_path / "my charts").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["serve", "charts", "--http", "127.0.0.1:80x00"], 2, "'80x00' in '127.0.0.1:80x00' is not a port number"),
        (["serve", "charts", "--http", ":99999"], 2, "'99999' in ':99999' is not a port number"),
        (["serve", "harbour.py"], 2, "run the server in it with `wharfinger run harbour.py`"),
        (["run", "charts"], 2, "publish it with `wharfinger serve charts`"),
        (["run", "charts/a.md"], 2, "is not a Python file: publish it with `wharfinger serve"),
        (["run", "harbor.py"], 2, "harbour.py?"),
        (["ls", "harbor.py"], 2, "harbor.py: no such file. Did you mean harbour.py?"),
        (["ls", "chart/"], 2, "chart/: no such folder. Did you mean charts?"),
        (["ls", "my", "charts"], 2, "put it in quotes, 'my charts'."),
        (["ls", "8000"], 2, "write http://127.0.0.1:8000/mcp"),
        (["ls", "localhost:8000"], 2, "for a URL write http://localhost:8000/mcp"),
        (["ls", "example.test/mcp"], 2, "for a URL write https://example.test/mcp"),
        (["ls", "http:/127.0.0.1:8000/mcp"], 2, "is not a URL: write http://127.0.0.1:8000/mcp"),
        (["ls", "http://:8000/mcp"], 2, "is not a URL, it lacks a host"),
        (["ls", "http://127.0.0.1:99999/mcp"], 2, "is not a URL (Port out of range"),
        (["ls", "nothing"], 2, "No configuration file was found: searched mcp.json, .mcp.json, "),
        (["list", "harbour.py"], 2, "No such command 'list'. Did you mean `wharfinger ls`?"),
        (["cal", "harbour.py"], 2, "No such command 'cal'. Did you mean 'call'?"),
        (["harbour.py"], 2, "Run it with `wharfinger run harbour.py`"),
        (["call", "harbour.py"], 2, "Missing NAME: `wharfinger ls --tools TARGET` lists the tools"),
        (["call", "harbour.py", "berth", "--ship", "Mary"], 2, "An argument of the tool is written ship=TEXT."),
        (["call", "harbour.py", "berth", "ship", "=", "Mary"], 2, "without spaces around the ="),
        (["call", "harbour.py", "berth", '{"ship": "Mary"}'], 2, "--input FILE, or --input -, reads"),
        (["call", "harbour.py", "berth", "--input", '{"ship": "Mary"}'], 2, "--input takes a file"),
        (["add", "claude-desktp", "charts"], 2, "Did you mean 'claude-desktop'?"),
        (["ls", "--tool", "harbour.py"], 2, "Did you mean '--tools'?"),
        (["ls", "--header", "Authorization", "http://x/mcp"], 2, "'Authorization': write 'NAME: VALUE'."),
        (["-v", "ls", "charts"], 2, "options follow the command, as in `wharfinger ls -v`"),
        (["run", ".harbour"], 2, "is not the name of a module"),
        (["add", "cursor", "--name", "a b", "charts"], 2, "at most 64 letters, digits, '_', '-' and '.', such as a-b."),
        (["prompt", "charts", "x"], 1, "The server has no prompts; it has resources and tools: `ls --resources`"),
        (["read", "charts", "a.md"], 1, "Did you mean 'file:///charts/a.md'?"),
        (["watch", "charts", "charts/a.md"], 1, "Did you mean 'file:///charts/a.md'?"),
        (["ls", "--", "pyton", "x.py"], 3, "Did you mean 'python'?"),
        (["ls", "--", "uvx-not-there"], 3, "Is it installed, and on the PATH?"),
        (["ls", "--", sys.executable, "harbour2.py"], 3, "Does harbour2.py call server.run()?"),
    ],
    ids=lambda value: " ".join(value).replace("/", "|")[-40:] if isinstance(value, list) else "",
)
def test_a_mistake_is_reported_with_a_suggestion(
    home: Path, words: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "harbour2.py").write_text(SERVER.partition("if __name__")[0])
    assert main(words) == code
    err = capsys.readouterr().err
    assert err.startswith("wharfinger: ")
    assert expected in err
    assert err.count("\n") <= 2
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["call", "harbour.py", "Birth"], "Did you mean 'berth'?"),
        (["call", "harbour.py", "xyz"], "There is: berth."),
        (["prompt", "harbour.py", "brief"], "Did you mean 'briefing'?"),
        (["complete", "harbour.py", "breifing", "ship"], "Did you mean 'briefing'?"),
        (["read", "harbour.py", "harbour://tides"], "Did you mean harbour://tide?"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest(
    words: list[str], expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert expected in capfd.readouterr().err


def test_a_failing_tool_is_not_reported_as_unknown(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "harbour.py", "berth"]) == 1
    assert capfd.readouterr().err == "wharfinger: no berth, not found\n"


def test_an_unknown_server_is_reported_with_the_searched_files(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "mcp.json").write_text('{"mcpServers": {"harbour": {"command": "python"}}}')
    assert main(["ls", "habor"]) == 2
    assert "Did you mean 'harbour'? Searched mcp.json (harbour)." in capsys.readouterr().err


class PageHandler(BaseHTTPRequestHandler):
    """Answers every request with a web page and the status in its path."""

    def do_POST(self) -> None:
        status = self.path.strip("/")
        body = b"<html></html>"
        self.send_response(int(status) if status.isdigit() else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


Serve = Callable[[ssl.SSLContext | None], int]


@pytest.fixture
def pages() -> Iterator[Serve]:
    """Serve web pages at a port."""
    servers: list[ThreadingHTTPServer] = []

    def serve(tls: ssl.SSLContext | None) -> int:
        server = ThreadingHTTPServer(("127.0.0.1", 0), PageHandler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.server_address[1]

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("path", "code", "expected"),
    [
        ("/200", 3, "The address of a server usually ends in /mcp: try http://127.0.0.1:PORT/mcp"),
        ("/", 3, "ry http://127.0.0.1:PORT/mcp"),  # "Try" or "try"
        ("/403", 4, "answered 403 Forbidden"),
        ("/500", 3, "answered 500 Internal Server Error"),
    ],
)
def test_a_web_page_is_reported_with_the_usual_path(
    pages: Serve, path: str, code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    port = pages(None)
    assert main(["ls", f"http://127.0.0.1:{port}{path}"]) == code
    err = capsys.readouterr().err
    assert expected.replace("PORT", str(port)) in err
    assert err.count("\n") <= 2
    if path in ("/403", "/500"):
        assert "usually ends" not in err


@pytest.mark.parametrize("user_info", ["s3cret@", "me:s3cret@"])
def test_a_suggested_url_has_no_user_info(pages: Serve, user_info: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A bug: a token without a password was printed."""
    port = pages(None)
    assert main(["ls", f"http://{user_info}127.0.0.1:{port}/200"]) == 3
    err = capsys.readouterr().err
    assert f"try http://127.0.0.1:{port}/mcp" in err
    assert "s3cret" not in err


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrusted certificate, with its key in the same file."""
    file = tmp_path_factory.mktemp("tls") / "own.pem"
    words = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=own.example -addext subjectAltName=IP:127.0.0.1"
    )
    result = subprocess.run([*words.split(), "-keyout", str(file), "-out", f"{file}.crt"], capture_output=True)
    if result.returncode:
        pytest.skip("openssl is missing")
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def test_a_wrong_scheme_and_an_unknown_certificate_are_reported_with_advice(
    pages: Serve, certificate: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    secure, plain = pages(tls), pages(None)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert main(["ls", f"https://127.0.0.1:{plain}/mcp"]) == 3
    assert f"does not speak TLS: try http://127.0.0.1:{plain}/mcp" in capsys.readouterr().err
    assert main(["ls", f"http://127.0.0.1:{secure}/mcp"]) == 3
    assert f"If the server speaks TLS, try https://127.0.0.1:{secure}/mcp" in capsys.readouterr().err
    assert main(["ls", f"https://127.0.0.1:{secure}/mcp"]) == 3
    assert "set SSL_CERT_FILE to its PEM file" in capsys.readouterr().err
    missing = certificate.with_name("missing.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(missing))
    assert main(["ls", f"https://127.0.0.1:{secure}/mcp"]) == 3
    assert f"SSL_CERT_FILE names {missing}, and there is no such file." in capsys.readouterr().err


def test_the_certificate_of_ssl_cert_file_is_trusted(
    pages: Serve, certificate: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    url, trusted = f"https://127.0.0.1:{pages(tls)}/mcp", {"SSL_CERT_FILE": f"{certificate}.crt"}
    _, err = start("ls", url, env=trusted).communicate(timeout=20)
    assert "answered 404" in err
    assert "TLS" not in err
    _, err = start("ls", url.replace("127.0.0.1", "localhost"), env=trusted).communicate(timeout=20)
    assert "certificate is not valid for 'localhost')." in err
    assert "Write the URL with a name that the certificate contains." in err


def test_names_are_compared_without_case_and_suggestions_are_bounded() -> None:
    assert nearest("TIDE", ["tides", "berth"]) == "tides"
    assert nearest("x" * 100_000, ["y" * 100_000] * 100_000) == ""
    assert name_suggestion("zzz", []) == ""
    assert name_suggestion("zzz", [f"name{n}" for n in range(14)]).endswith("name11, and 2 more.")
