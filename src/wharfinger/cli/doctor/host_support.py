"""What each host shows of a server, as a table; `docs/connect_your_host.md` tells the same in words.

As of November 2026: resources from the hosts' own source or their users' reports, prompts and apps from the protocol's
own lists of clients. A line that is wrong by now is a bug of this file.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["HOST_SUPPORT", "Support"]

Shown = Literal["yes", "no", "?"]


class Support(NamedTuple):
    """One host: who gets at resources (`person`, `model`, both, nobody), and whether it shows prompts and apps.

    All of them call tools.
    """

    host: str
    resources: str
    templates: Shown
    prompts: Shown
    apps: Shown


HOST_SUPPORT: tuple[Support, ...] = (
    Support("VS Code (Copilot)", "person, model", "yes", "yes", "yes"),
    Support("Claude Code", "person, model", "?", "yes", "no"),
    Support("Claude Desktop", "person", "no", "yes", "yes"),
    Support("Codex CLI", "model", "yes", "no", "no"),
    Support("Gemini CLI", "person, model", "no", "yes", "no"),
    Support("opencode", "person, model", "yes", "?", "?"),
    Support("goose", "model", "?", "yes", "yes"),
    Support("Cline", "model", "yes", "no", "no"),
    Support("Cursor", "?", "?", "yes", "yes"),
    Support("ChatGPT", "no", "no", "no", "yes"),
    Support("Zed", "no", "no", "yes", "?"),
    Support("LibreChat", "no", "no", "no", "no"),
)
