"""What to try when a server cannot be reached: the address, the certificate, the command; it connects to nothing."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from wharfinger.cli.targets import Target

__all__ = ["hint"]

COMES_WITH = {
    "npx": "Node.js (https://nodejs.org)",
    "npm": "Node.js (https://nodejs.org)",
    "node": "Node.js (https://nodejs.org)",
    "uvx": "uv (pip install uv)",
    "uv": "uv (pip install uv)",
    "bunx": "Bun (https://bun.sh)",
    "docker": "Docker",
}
"""Where programs come from that commands of servers often begin with."""
USUAL = ("python", "python3", "node", "npx", "uv", "uvx", "docker", "wharfinger")
USUAL_PATHS = ("/mcp", "/sse")
HTTPS_ONLY = ("broke the connection off", "HTTPS port", "HTTP request to an HTTPS")


def hint(target: Target, message: str) -> str:
    """Return one sentence on what to try, empty if there is nothing better than the message itself."""
    if target.url.startswith("http"):
        return _of_url(target.url, message)
    return _of_command(target, message) if target.command else ""


def _of_url(url: str, message: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "https" and "WRONG_VERSION_NUMBER" in message:
        return f"The server does not speak TLS: try {urlunsplit(parts._replace(scheme='http'))}"
    if parts.scheme == "https" and ("self-signed" in message or "local issuer" in message):
        return "If the certificate is yours, trust it: set SSL_CERT_FILE to its PEM file (or that of its authority)."
    if parts.scheme == "http" and any(words in message for words in HTTPS_ONLY):
        return f"If the server speaks TLS, try {urlunsplit(parts._replace(scheme='https'))}"
    path = parts.path.rstrip("/")
    if not path.endswith(USUAL_PATHS) and " Try http" not in message and _answered(message):
        return f"The address of a server usually ends in /mcp: try {urlunsplit(parts._replace(path='/mcp'))}"
    return ""


def _answered(message: str) -> bool:
    """Tell whether something is there that is no server: a wrong path, a web page."""
    if re.search(r" answered (?:401|403|429|50[023-9])\b", message):
        return False
    return any(words in message for words in (" answered ", "is not MCP", "the endpoint", "Nothing is here"))


def _of_command(target: Target, message: str) -> str:
    command = target.command
    program = command[0].replace("\\", "/").split("/")[-1]
    if "no such command" in message:
        from wharfinger.cli.near import nearest

        if program in COMES_WITH:
            return f"{program} comes with {COMES_WITH[program]}."
        meant = nearest(program, USUAL)
        return f"Did you mean {meant!r}?" if meant else "Is it installed, and on the PATH? Or give its absolute path."
    if target.ours and "gave no answer" in message and ".py" in command[-1]:
        return f"Does {command[-1]} wait for something while it is imported? `wharfinger run -v` shows what it prints."
    file = next((word for word in command[1:] if word.endswith(".py")), "")
    if "exit code 0" in message and file:
        return f"Does {file} call server.run()? `wharfinger ls {file}` does not need that."
    return ""
