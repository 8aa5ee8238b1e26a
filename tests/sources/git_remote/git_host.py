"""A git host: `git http-backend` behind nginx, with basic authentication, TLS and redirects."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.conftest import absent, free_port
from tests.sources.git_repository.conftest import GitRepository
from tests.waiting import wait_until, wait_until_listening

TOKEN = "fathoms-8-21-40"
CONFIGURATION = """
daemon off; pid {folder}/pid; error_log {folder}/errors; worker_processes 1;
events {{}}
http {{
    access_log {folder}/access; client_max_body_size 0;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fast;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {tls}
        location /moved/ {{ return 301 {elsewhere}/x.git$is_args$args; }}
        location /broken/ {{ return 503; }}
        location /files/ {{ root {folder}; }}
        location /private/ {{
            auth_basic harbour; auth_basic_user_file {folder}/users;
            rewrite ^/private(/.*)$ $1 break;
            {backend}
        }}
        location / {{ {backend} }}
    }}
}}
"""
BACKEND = """
fastcgi_pass unix:{folder}/cgi; fastcgi_buffering off;
fastcgi_param SCRIPT_FILENAME {backend}; fastcgi_param GIT_HTTP_EXPORT_ALL 1;
fastcgi_param GIT_PROJECT_ROOT {folder}/repositories; fastcgi_param PATH_INFO $uri;
fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method;
fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding; fastcgi_param GIT_PROTOCOL $http_git_protocol;
fastcgi_param REMOTE_USER $remote_user; fastcgi_param REMOTE_ADDR $remote_addr;
"""


def program(name: str, package: str) -> str:
    """Return the path of an installed program, or skip the test."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        absent(f"{name} (on Debian: apt-get install {package})")
    return found or name


class GitHost:
    """A running git host. `stop` simulates an outage, and `start` ends it."""

    def __init__(self, folder: Path, certificate: tuple[Path, Path] | None = None, elsewhere: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.scheme = "https" if certificate else "http"
        self._nginx = program("nginx", "nginx-light")
        cgi = program("fcgiwrap", "fcgiwrap")
        (folder / "repositories").mkdir(parents=True)
        (folder / "files").mkdir()
        (folder / "users").write_text(f"ada:{{PLAIN}}{TOKEN}\nx-access-token:{{PLAIN}}{TOKEN}\n")
        exec_path = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
        backend = BACKEND.format(folder=folder, backend=os.path.join(exec_path, "git-http-backend"))
        tls = ""
        if certificate:
            tls = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
        configuration = CONFIGURATION.format(
            folder=folder, port=self.port, tls=tls, backend=backend, elsewhere=elsewhere or "http://127.0.0.1:1"
        )
        if certificate:
            configuration = configuration.replace(f"127.0.0.1:{self.port};", f"127.0.0.1:{self.port} ssl;", 1)
        if os.getuid() == 0:
            configuration = "user root;" + configuration
        (folder / "nginx.conf").write_text(configuration)
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        self._cgi = subprocess.Popen(
            [cgi, "-c", "4", "-s", f"unix:{folder}/cgi"],
            env=environment,
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def origin(self) -> str:
        """The scheme, host and port of its URLs."""
        return f"{self.scheme}://{'localhost' if self.scheme == 'https' else '127.0.0.1'}:{self.port}"

    @property
    def requests(self) -> str:
        """The access log of nginx."""
        return (self.folder / "access").read_text()

    def add(self, work: GitRepository, name: str = "harbour.git", *, partial: bool = True) -> str:
        """Publish a repository as the remote `origin` of `work`, and return its URL."""
        path = self.folder / "repositories" / name
        work.git("init", "-q", "--bare", "-b", "main", str(path), cwd=self.folder)
        work.git("config", "uploadpack.allowFilter", "true" if partial else "false", cwd=path)
        work.git("remote", "add", "origin", str(path))
        if work.git("for-each-ref"):
            work.git("push", "-q", "--mirror", "origin")
        return f"{self.origin}/{name}"

    def start(self) -> None:
        """Start nginx, and wait until it answers."""
        self._process = subprocess.Popen(
            [self._nginx, "-p", str(self.folder), "-e", f"{self.folder}/errors", "-c", f"{self.folder}/nginx.conf"],
            start_new_session=True,
        )
        wait_until_listening(self._process, self.port, (self.folder / "errors").read_text)
        wait_until((self.folder / "cgi").exists, "fcgiwrap makes its socket")

    def stop(self) -> None:
        """Stop nginx."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(20)
            self._process = None

    def close(self) -> None:
        """Stop nginx and the CGI process."""
        self.stop()
        os.killpg(self._cgi.pid, signal.SIGKILL)
        self._cgi.wait(20)
