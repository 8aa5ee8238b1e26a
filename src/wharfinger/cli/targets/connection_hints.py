"""What to try when a server cannot be reached: another address, a certificate, an installation."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit, urlunsplit

from wharfinger.cli.targets.target import Target

__all__ = ["connection_hint"]

INSTALLED_WITH = {
    "npx": "Node.js (https://nodejs.org)",
    "npm": "Node.js (https://nodejs.org)",
    "node": "Node.js (https://nodejs.org)",
    "uvx": "uv (pip install uv)",
    "uv": "uv (pip install uv)",
    "bunx": "Bun (https://bun.sh)",
    "docker": "Docker",
}
"""Programs that often start a server, and what installs each of them."""
USUAL_PROGRAMS = ("python", "python3", "node", "npx", "uv", "uvx", "docker", "wharfinger")
USUAL_PATHS = ("/mcp", "/sse")
TLS_MESSAGES = ("closed the connection before", "HTTPS port", "HTTP request to an HTTPS")
"""Parts of the errors that plain HTTP gets from a server that expects TLS."""


def connection_hint(target: Target, message: str) -> str:
    """Return a hint on what to try, or an empty string if there is nothing to add to the error's `message`."""
    if target.url.startswith("http"):
        return url_hint(target.url, message)
    return command_hint(target, message) if target.command else ""


def url_hint(url: str, message: str) -> str:
    parts = urlsplit(url)
    parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])  # user info may be a token
    if parts.scheme == "https" and "WRONG_VERSION_NUMBER" in message:
        return f"The server does not speak TLS: try {urlunsplit(parts._replace(scheme='http'))}"
    if parts.scheme == "https" and ("self-signed" in message or "local issuer" in message):
        file = os.environ.get("SSL_CERT_FILE")
        if file and not os.path.isfile(file):
            return f"SSL_CERT_FILE names {os.path.abspath(file)}, and there is no such file."
        return "If the certificate is yours, trust it: set SSL_CERT_FILE to its PEM file, or to its authority's."
    if parts.scheme == "https" and "certificate is not valid for" in message:
        return "Write the URL with a name that the certificate contains."
    if parts.scheme == "http" and any(words in message for words in TLS_MESSAGES):
        return f"If the server speaks TLS, try {urlunsplit(parts._replace(scheme='https'))}"
    path = parts.path.rstrip("/")
    if not path.endswith(USUAL_PATHS) and " Try http" not in message and is_other_service(message):
        return f"The address of a server usually ends in /mcp: try {urlunsplit(parts._replace(path='/mcp'))}"
    return ""


def is_other_service(message: str) -> bool:
    """Return whether the error says that something else answered, such as a web page or another path of the server."""
    # Statuses of an MCP server, and of a proxy before it. Plain web servers answer a POST with 501, among others.
    if re.search(r" answered (?:401|403|429|50[023-9])\b", message):
        return False
    return any(words in message for words in (" answered ", "is not MCP", "the endpoint", "Nothing is here"))


def command_hint(target: Target, message: str) -> str:
    command = target.command
    program = command[0].replace("\\", "/").split("/")[-1]
    if "no such command" in message:
        from wharfinger.cli.suggestions import nearest

        if program in INSTALLED_WITH:
            return f"{program} comes with {INSTALLED_WITH[program]}."
        suggestion = nearest(program, USUAL_PROGRAMS)
        return (
            f"Did you mean {suggestion!r}?"
            if suggestion
            else "Is it installed, and on the PATH? Otherwise give its absolute path."
        )
    if target.own_command and "gave no answer" in message and ".py" in command[-1]:
        return f"Does {command[-1]} wait for something while it is imported? `wharfinger run -v` shows what it prints."
    file = next((word for word in command[1:] if word.endswith(".py")), "")
    if "exit code 0" in message and file:
        return f"Does {file} call server.run()? `wharfinger ls {file}` does not need that."
    return ""
