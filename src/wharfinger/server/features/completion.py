"""Completion of prompts' arguments and templates' variables by functions that stand beside them; knows no values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams
from wharfinger.protocol.request import Request
from wharfinger.server.context import Context
from wharfinger.server.dependencies import Needs, Opened, needs_of
from wharfinger.server.features.handler_function import owner_of

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["MOST", "Complete", "Completions"]

MOST = 100
"""Values in one answer (completion/complete, all revisions)."""

Completer = Callable[..., Any]


class Complete:
    """Marks a parameter with what completes it: `vessel: Annotated[str, Complete(vessels)]`.

    `values` is a function of what is typed so far, `(typed)` or `(typed, others)`, where `others` maps the other
    arguments that are known to their text; it returns strings, best first, and may be async. It may take the `Context`
    and dependencies besides. Or it is a fixed sequence of strings, of which those are shown that begin with what is
    typed.
    """

    __slots__ = ("context", "needs", "takes_others", "values")

    context: str | None
    """The name of the parameter that wants the `Context`."""
    needs: Needs
    """What its dependencies fill."""

    def __init__(self, values: Completer | Sequence[str]) -> None:
        if isinstance(values, str) or not (callable(values) or isinstance(values, Sequence)):
            raise TypeError("Complete() takes a function or a list of texts, such as Complete(vessels).")
        self.values = values
        self.context, self.needs = needs_of(values) if callable(values) else (None, {})
        self.takes_others = callable(values) and _takes_two(values, {self.context, *self.needs})


def _takes_two(function: Completer, filled: Collection[str | None]) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in filled]
    wanted = [p for p in parameters if p.kind in positional and p.default is p.empty]
    if len(wanted) > 2 or not any(p.kind in (*positional, p.VAR_POSITIONAL) for p in parameters):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"{name}() cannot complete: it must take (typed) or (typed, others).")
    return len([p for p in parameters if p.kind in positional]) > 1


class Completions:
    """The handler of `completion/complete` for everything of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def complete(self, request: Request) -> t.CompleteResult:
        """Values for one argument of a prompt, or one variable of a template; none where nothing completes it.

        Raises:
            InvalidParams: there is no such prompt, template, argument or variable.
        """
        params: t.CompleteRequestParams = request.params
        for mount in self._server.mounts:
            if mount.completes(params.ref):
                completed: t.CompleteResult = await mount.complete(request)
                return completed
        others = {} if params.context is UNSET else params.context.arguments or {}
        values = await self._find(request, params.ref, params.argument.name)(params.argument.value, others)
        return t.CompleteResult(completion=completion_of(values))

    def _find(
        self, request: Request, ref: t.CompletionReference, argument: str
    ) -> Callable[[str, Mapping[str, str]], Awaitable[Any]]:
        if isinstance(ref, t.PromptReference):
            prompt = self._server.prompts.get(ref.name)
            return self._by_marker(request, prompt.signature.parameters, prompt.completers, argument)
        feature = self._server.resources.templates.by_key.get(ref.uri)
        if feature is not None and feature.template is not None:
            return self._by_marker(request, feature.template.variables, feature.completers, argument)
        for source in self._server.resources.sources:
            if any(template.uri_template == ref.uri for template in source.templates):
                complete = self._server.adapt(source.complete)
                return lambda value, others: complete(owner_of(request), ref.uri, argument, value, others)
        if ref.uri in self._server.resources.static.by_key:
            raise InvalidParams("This resource has no variables.")
        raise InvalidParams("There is no such resource template: send its text as resources/templates/list shows it.")

    def _by_marker(
        self, request: Request, names: Any, completers: Mapping[str, Complete], argument: str
    ) -> Callable[[str, Mapping[str, str]], Awaitable[Any]]:
        if argument not in names:
            raise InvalidParams(f"There is no such argument: one of {', '.join(names) or 'none'} was expected.")
        marker = completers.get(argument)

        async def complete(typed: str, others: Mapping[str, str]) -> Any:
            if marker is None:
                return ()
            if not callable(marker.values):
                return [value for value in marker.values if value.startswith(typed)]
            given = (typed, others) if marker.takes_others else (typed,)
            if marker.context is None and not marker.needs:
                return await self._server.adapt(marker.values)(owner_of(request), *given)
            filled: dict[str, Any] = {}
            if marker.context is not None:
                filled[marker.context] = Context(self._server, request)
            async with Opened(self._server, request, filled.get(marker.context or "")) as opened:
                await opened.fill(marker.needs, filled)
                values = await self._server.adapt(functools.partial(marker.values, **filled))(owner_of(request), *given)
                return completion_of(values)  # read while what it depends on is open

        return complete


def completion_of(values: Any) -> t.Completion:
    """What a completer returned, within the protocol's bound; a `Completion` may tell a total of its own."""
    if isinstance(values, t.Completion):
        shown, more = values.values[:MOST], len(values.values) > MOST
        return t.Completion(values=shown, total=values.total, has_more=True if more else values.has_more)
    if isinstance(values, (str, bytes)) or (values is not None and not hasattr(values, "__iter__")):
        raise TypeError(f"a completer returned {type(values).__name__}: return a list of texts")
    found = [str(value) for value in values or ()]
    return t.Completion(values=found[:MOST], total=len(found), has_more=len(found) > MOST)
