"""The connections to servers, with the catalogue and the questions that the page shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from wharfinger import types as t
from wharfinger.client import ClientOptions
from wharfinger.host.catalogue import Catalogue
from wharfinger.upstreams.config import ServerConfig
from wharfinger.upstreams.upstream import Upstream, UpstreamChange
from wharfinger.upstreams.upstreams import Upstreams
from wharfinger.version import __version__
from wharfinger.web.server_questions import ServerQuestions

__all__ = ["ServerConnections"]


class ServerConnections:
    """Connections to servers, for one tab or for all. `async with` opens and ends them."""

    def __init__(
        self, configs: Sequence[ServerConfig], *, read_only: bool = False, options: ClientOptions | None = None
    ) -> None:
        """With `read_only`, this is another principal's view: no tool may be called, and no question is answered.

        `options` are further options of the clients.
        """
        self.read_only = read_only
        self._client_options = options or ClientOptions()
        self.questions = defaultdict[str, ServerQuestions](ServerQuestions)
        """The questions of each server, by its name."""
        self.upstreams = Upstreams(list(configs), options=self._options)
        self.catalogue = Catalogue(self.upstreams, patience=0)  # do not wait: the page follows the catalogue's changes
        self._stop_listening = self.upstreams.on_change(self._changed)
        self.listeners: list[Callable[[UpstreamChange], None]] = []
        """Called when the state or a list of a server has changed."""

    def _options(self, config: ServerConfig) -> ClientOptions:
        options = self._client_options.copy()
        options["info"] = t.Implementation(name="wharfinger browse", version=__version__)
        if not self.read_only:
            questions = self.questions[config.name]
            options["elicitation"], options["consent"] = questions.ask, questions.ask_to_open
        return options

    def _changed(self, change: UpstreamChange) -> None:
        if change.kind == "resources":
            self.catalogue.list_changed(change.server)
        for listener in tuple(self.listeners):
            listener(change)

    def server(self, name: str) -> Upstream | None:
        """Return the server with this name, or None."""
        return self.upstreams.get(name)

    async def __aenter__(self) -> Self:
        await self.upstreams.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_listening()
        await self.catalogue.close()
        await self.upstreams.close()
