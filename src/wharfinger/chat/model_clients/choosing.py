"""Determines the endpoint, name and key of a model from a text such as `anthropic/NAME` and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from wharfinger.chat.model_clients.model_errors import ModelNotChosen
from wharfinger.content.redaction import redacted
from wharfinger.content.text import printable

__all__ = ["HOW_TO_CHOOSE", "ModelChoice", "choose_model"]

HOW_TO_CHOOSE = (
    "set WHARFINGER_MODEL, or give -m, to openai/NAME (with OPENAI_API_KEY, or OPENAI_BASE_URL for a compatible"
    " endpoint), anthropic/NAME (with ANTHROPIC_API_KEY) or ollama/NAME (runs on this machine: https://ollama.com)"
)
OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
OLLAMA_PORT = 11434
KNOWN_PREFIXES = {
    "claude": "anthropic",
    "gpt": "openai",
    "chatgpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "llama": "ollama",
    "qwen": "ollama",
    "mistral": "ollama",
    "gemma": "ollama",
}
"""Prefixes of the names of well-known models, for a suggestion when the API is missing."""


class ModelChoice(NamedTuple):
    """A model: its `api`, its `name`, the `base_url` of the endpoint, and the `key`, which may be an empty string."""

    api: str
    name: str
    base_url: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.api}/{self.name}"

    def __repr__(self) -> str:
        return f"<ModelChoice {self} at {redacted(self.base_url)}>"  # without the key

    @property
    def host(self) -> str:
        """The host and port of the endpoint."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


def choose_model(text: str | None, environ: Mapping[str, str]) -> ModelChoice:
    """Return the model that a text names, with the endpoint and the key from the environment.

    Raises:
        ModelNotChosen: there is no text, it names no known API, or a variable is missing or invalid; the message says
            what to set.
    """
    text = (text or "").strip()
    if not text:
        raise ModelNotChosen(f"There is no model to ask: {HOW_TO_CHOOSE}.")
    api, slash, name = text.partition("/")
    if not text.isprintable() or not slash or api not in CHOOSERS or not name:
        raise ModelNotChosen(f"{printable(text)} does not name a model: {suggestion(text)}.")
    return CHOOSERS[api](name, environ)


def suggestion(text: str) -> str:
    """Return advice on how to write the name of a model with its API."""
    for beginning, api in KNOWN_PREFIXES.items():
        if text.lower().startswith(beginning) and "/" not in text:
            return f"write {api}/{printable(text)}"
    return "write openai/NAME, anthropic/NAME or ollama/NAME"


def choose_openai(name: str, environ: Mapping[str, str]) -> ModelChoice:
    """Choose a model of OpenAI, or of the compatible endpoint in OPENAI_BASE_URL, which may need no key."""
    url, key = environ.get("OPENAI_BASE_URL", "").strip(), read_key("OPENAI_API_KEY", environ)
    if not url and not key:
        raise ModelNotChosen(
            f"openai/{name} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a compatible endpoint."
        )
    return ModelChoice("openai", name, check_url("OPENAI_BASE_URL", url or OPENAI_URL), key)


def choose_anthropic(name: str, environ: Mapping[str, str]) -> ModelChoice:
    """Choose a model of Anthropic."""
    url, key = environ.get("ANTHROPIC_BASE_URL", "").strip(), read_key("ANTHROPIC_API_KEY", environ)
    if not key and not url:
        raise ModelNotChosen(f"anthropic/{name} needs a key: set ANTHROPIC_API_KEY.")
    base = check_url("ANTHROPIC_BASE_URL", url or ANTHROPIC_URL)
    return ModelChoice("anthropic", name, base.removesuffix("/v1"), key)


def choose_ollama(name: str, environ: Mapping[str, str]) -> ModelChoice:
    """Choose a model of Ollama, whose `OLLAMA_HOST` may lack the scheme, the host or the port."""
    text = environ.get("OLLAMA_HOST", "").strip().rstrip("/") or "127.0.0.1"
    if "://" not in text:  # with a scheme, its default port applies (ollama: envconfig.Host)
        host, path_slash, path = text.partition("/")
        if host.count(":") > 1 and not {"[", "@"} & set(host):  # an IPv6 address
            host = f"[{host}]"
        elif host.startswith(":"):
            host = f"127.0.0.1{host}"
        if not has_port(host):
            host = f"{host}:{OLLAMA_PORT}"
        text = f"http://{host}{path_slash}{path}"
    parts = urlsplit(check_url("OLLAMA_HOST", text))
    if parts.hostname in ("0.0.0.0", "::"):  # noqa: S104  # the address that a server listens on; not one to connect to
        local = "127.0.0.1" if parts.hostname == "0.0.0.0" else "[::1]"  # noqa: S104
        user, at, _ = parts.netloc.rpartition("@")
        port = f":{parts.port}" if parts.port else ""
        text = parts._replace(netloc=f"{user}{at}{local}{port}").geturl()
    return ModelChoice("ollama", name, text.rstrip("/"), read_key("OLLAMA_API_KEY", environ))


def has_port(host: str) -> bool:
    """Return whether a host ends with a port; the colons of an IPv6 address are in brackets."""
    return ":" in host.rpartition("]")[2]


def check_url(variable: str, url: str) -> str:
    """Return a URL without its final slash.

    Raises:
        ModelNotChosen: it is not an HTTP URL.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise ModelNotChosen(
            f"{variable} is not a URL: {printable(redacted(url))}. Set it to one such as http://127.0.0.1:8080/v1."
        )
    return url.rstrip("/")


def read_key(variable: str, environ: Mapping[str, str]) -> str:
    """Return a key from the environment, or an empty string.

    Raises:
        ModelNotChosen: it has a space, a line end in the middle, or a letter that is not ASCII.
    """
    key = environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelNotChosen(f"{variable} is not a key: it has spaces, line ends or letters that are not ASCII.")
    return key


CHOOSERS = {"openai": choose_openai, "anthropic": choose_anthropic, "ollama": choose_ollama}
