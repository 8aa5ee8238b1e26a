"""The tested agent frameworks: where they are installed, and how each handles answers.

docs/interoperability.md shows these rows, and test_agents.py tests them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.conftest import ROOT
from tests.interop.programs import HANDSHAKE, PROGRAMS, STATELESS, installed, node_program


@dataclass(frozen=True)
class Framework:
    """An agent framework.

    Attributes:
        program: The program in peers/ that runs it, without `_agent.py`.
        title: Its name.
        environment: Where it is installed. `NAME_js` are npm packages.
        packages: The packages that a user installs.
        revision: The revision that it speaks with our servers.
        reads: Whether it can list and read resources.
        link: What the model gets of a result with a text and a resource link: `both`, `nothing`, or the run `fails`.
        validates_arguments: Whether it checks arguments itself, so that the model does not see the server's message.
        hides_protocol_errors: Whether it hides the message of a JSON-RPC error from the model.
        target: The make target that installs it.
    """

    program: str
    title: str
    environment: str
    packages: tuple[str, ...]
    revision: str
    link: str
    reads: bool = True
    validates_arguments: bool = False
    hides_protocol_errors: bool = False
    target: str = "interop"

    def command(self) -> list[str]:
        """Return the command that runs it. Skips the test, or fails it in CI, if it is not installed."""
        if self.environment.endswith("_js"):
            return node_program(self.environment, f"{self.program}_agent.mjs")
        python = installed(self.environment, "bin/python", self.target)
        return [python, str(PROGRAMS / f"{self.program}_agent.py")]

    def versions(self) -> dict[str, str]:
        """Return the pinned version of each of its packages."""
        return {name: pinned_versions(self.environment)[name] for name in self.packages}

    def row(self) -> str:
        """Return its row in the table of the page."""
        versions = ", ".join(f"`{name}` {version}" for name, version in self.versions().items())
        reads = "yes" if self.reads else "not supported"
        return f"| {self.title} | {versions} | {self.revision} | yes | yes | {reads} | yes | {LINKS[self.link]} |"


LINKS = {"both": "text and link", "nothing": "**neither text nor link**", "fails": "**the run ends**"}


def pinned_versions(environment: str) -> dict[str, str]:
    """Return the pinned packages of an environment. Of npm packages, these are the direct dependencies."""
    folder = ROOT / "tests" / "interop"
    if (folder / environment).is_dir():
        dependencies: dict[str, str] = json.loads((folder / environment / "package.json").read_text())["dependencies"]
        return dependencies
    rows = (folder / f"{environment}.txt").read_text().split()
    return {name: version for name, _, version in (row.partition("==") for row in rows)}


FRAMEWORKS = [
    Framework("langchain", "LangChain", "agents1", ("langchain", "langchain-mcp-adapters"), HANDSHAKE, "fails"),
    Framework("llamaindex", "LlamaIndex", "agents2", ("llama-index-core", "llama-index-tools-mcp"), HANDSHAKE, "both"),
    Framework("pydantic_ai", "Pydantic AI", "agents2", ("pydantic-ai-slim",), STATELESS, "both"),
    Framework(
        "openai_agents", "OpenAI Agents", "agents2", ("openai-agents",), STATELESS, "both",
        validates_arguments=True, hides_protocol_errors=True,
    ),
    Framework("autogen", "AutoGen", "agents1", ("autogen-agentchat", "autogen-ext"), HANDSHAKE, "nothing"),
    Framework(
        "semantic_kernel", "Semantic Kernel", "semantic_kernel", ("semantic-kernel",), HANDSHAKE, "nothing",
        reads=False, validates_arguments=True, target="interop-all",
    ),
    Framework("google_adk", "Google ADK", "agents2", ("google-adk",), HANDSHAKE, "both"),
    Framework("ai_sdk", "AI SDK", "agents_js", ("ai", "@ai-sdk/mcp"), STATELESS, "both"),
    Framework(
        "mastra", "Mastra", "agents_js", ("@mastra/core", "@mastra/mcp"), STATELESS, "both",
        validates_arguments=True,
    ),
]  # fmt: skip
