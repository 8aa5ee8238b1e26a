"""The agent frameworks that visit servers of ours: where they are installed, and what each does with an answer.

docs/interoperability.md shows these rows, and test_agents.py shows that they are true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.interop.places import HANDSHAKE, PROGRAMS, ROOT, STATELESS, installed, node_program


@dataclass(frozen=True)
class Framework:
    """An agent framework.

    Attributes:
        program: The program that drives it, in peers/.
        title: Its name.
        environment: Where it is installed; `NAME_js` are npm packages.
        packages: The packages that a user installs.
        revision: The revision that it speaks with a server of ours.
        reads: Whether it can list and read resources.
        link: What the model sees of an answer of a text and a link to a resource: `both`, `nothing` of either, or the
            agent's run `fails`.
        local: Whether it checks arguments itself, before the server can say what is wrong with them.
        mute: Whether it says of an error that is no result only that there was one.
        target: The make target that installs it.
    """

    program: str
    title: str
    environment: str
    packages: tuple[str, ...]
    revision: str
    link: str
    reads: bool = True
    local: bool = False
    mute: bool = False
    target: str = "interop"

    def command(self) -> list[str]:
        """What drives it; skips the test, or fails in CI, if it is not installed."""
        if self.environment.endswith("_js"):
            return node_program(self.environment, f"{self.program}_agent.mjs")
        python = installed(self.environment, "bin/python", self.target)
        return [python, str(PROGRAMS / f"{self.program}_agent.py")]

    def versions(self) -> dict[str, str]:
        """The pinned version of each of its packages."""
        return {name: pinned(self.environment)[name] for name in self.packages}

    def row(self) -> str:
        """Its row in the table of the page."""
        versions = ", ".join(f"`{name}` {version}" for name, version in self.versions().items())
        reads = "yes" if self.reads else "not supported"
        return f"| {self.title} | {versions} | {self.revision} | yes | yes | {reads} | yes | {LINKS[self.link]} |"


LINKS = {"both": "text and link", "nothing": "**neither text nor link**", "fails": "**the run ends**"}


def pinned(environment: str) -> dict[str, str]:
    """Name and version of what an environment holds (of npm packages: those that are asked for)."""
    folder = ROOT / "tests" / "interop"
    if (folder / environment).is_dir():
        wanted: dict[str, str] = json.loads((folder / environment / "package.json").read_text())["dependencies"]
        return wanted
    rows = (folder / f"{environment}.txt").read_text().split()
    return {name: version for name, _, version in (row.partition("==") for row in rows)}


FRAMEWORKS = [
    Framework("langchain", "LangChain", "agents1", ("langchain", "langchain-mcp-adapters"), HANDSHAKE, "fails"),
    Framework("llamaindex", "LlamaIndex", "agents2", ("llama-index-core", "llama-index-tools-mcp"), HANDSHAKE, "both"),
    Framework("pydantic_ai", "Pydantic AI", "agents2", ("pydantic-ai-slim",), STATELESS, "both"),
    Framework(
        "openai_agents", "OpenAI Agents", "agents2", ("openai-agents",), STATELESS, "both",
        local=True, mute=True,
    ),
    Framework("autogen", "AutoGen", "agents1", ("autogen-agentchat", "autogen-ext"), HANDSHAKE, "nothing"),
    Framework(
        "semantic_kernel", "Semantic Kernel", "semantic_kernel", ("semantic-kernel",), HANDSHAKE, "nothing",
        reads=False, local=True, target="interop-all",
    ),
    Framework("google_adk", "Google ADK", "agents2", ("google-adk",), HANDSHAKE, "both"),
    Framework("ai_sdk", "AI SDK", "agents_js", ("ai", "@ai-sdk/mcp"), STATELESS, "both"),
    Framework("mastra", "Mastra", "agents_js", ("@mastra/core", "@mastra/mcp"), STATELESS, "both", local=True),
]  # fmt: skip
