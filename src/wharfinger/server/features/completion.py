"""Completion of the arguments of prompts and the variables of templates."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams
from wharfinger.protocol.interfaces import Access
from wharfinger.protocol.request import Request
from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.server.dependencies import OpenDependencies
from wharfinger.server.owners import owner_of

if TYPE_CHECKING:
    from wharfinger.server.features.prompts import Prompts
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.part import Part
    from wharfinger.server.services import Services
    from wharfinger.server.signature.complete import Complete
    from wharfinger.source import Source

__all__ = ["MAX_VALUES", "Completions"]

MAX_VALUES = 100
"""Values in one answer (completion/complete, all revisions)."""


class Completions:
    """Serves `completion/complete` for one server."""

    def __init__(self, services: Services, prompts: Prompts, resources: Resources) -> None:
        self._services = services
        self._prompts = prompts
        self._resources = resources

    async def complete(self, request: Request) -> t.CompleteResult:
        """Return values for an argument of a prompt or a variable of a template; an empty list if it has no completer.

        Raises:
            InvalidParams: there is no such prompt, template, argument or variable.
        """
        params: t.CompleteRequestParams = request.params
        ref, part = self._place(params.ref)
        if part is not None:
            completed: t.CompleteResult = await part.serve(request, ref=ref)
            if request.access is not None and isinstance(ref, t.ResourceTemplateReference):
                others = {} if params.context is UNSET else params.context.arguments or {}
                shown = _readable(request.access, ref.uri, params.argument.name, others, completed.completion)
                return msgspec.structs.replace(completed, completion=shown)
            return completed
        others = {} if params.context is UNSET else params.context.arguments or {}
        values = await self._find(request, ref, params.argument.name)(params.argument.value, others)
        completion = completion_of(values)
        if request.access is not None and isinstance(ref, t.ResourceTemplateReference):
            completion = _readable(request.access, ref.uri, params.argument.name, others, completion)
        return t.CompleteResult(completion=completion)

    def _place(self, ref: t.CompletionReference) -> tuple[t.CompletionReference, Part | None]:
        """Return the name of the prompt or template in its part, and the part; None if it is the server's own."""
        if isinstance(ref, t.PromptReference):
            prompt = self._prompts.features.find(ref.name)
            if prompt is None or prompt.part is None:
                return ref, None
            return msgspec.structs.replace(ref, name=prompt.key), prompt.part
        template = self._resources.templates.find(ref.uri)
        return ref, self._resources.part_of_template(ref.uri) if template is None else template.part

    def _find(
        self, request: Request, ref: t.CompletionReference, argument: str
    ) -> Callable[[str, Mapping[str, str]], Awaitable[Any]]:
        if isinstance(ref, t.PromptReference):
            prompt = self._prompts.get(ref.name)
            return self._by_marker(request, prompt.signature.parameters, prompt.completers, argument)
        feature = self._resources.templates.by_key.get(ref.uri)
        if feature is not None and feature.template is not None:
            return self._by_marker(request, feature.template.variables, feature.completers, argument)
        for source in self._resources.sources:
            if any(template.uri_template == ref.uri for template in source.templates):
                return functools.partial(self._of_source, request, source, ref.uri, argument)
        if ref.uri in self._resources.static.by_key:
            raise InvalidParams("This resource has no variables.")
        raise InvalidParams("There is no such resource template: send its uriTemplate from resources/templates/list.")

    async def _of_source(
        self, request: Request, source: Source, template: str, argument: str, value: str, others: Mapping[str, str]
    ) -> t.Completion:
        complete = functools.partial(self._resources.calls.call, source, source.complete, owner_of(request))
        values = await complete(template, argument, value, others)
        found = completion_of(values)
        if found.has_more is True and not isinstance(values, t.Completion):
            found.total = UNSET  # a source stops there, so it does not know how many there are
        return found

    def _by_marker(
        self, request: Request, names: Any, completers: Mapping[str, Complete], argument: str
    ) -> Callable[[str, Mapping[str, str]], Awaitable[Any]]:
        if argument not in names:
            raise InvalidParams(f"There is no such argument: one of {', '.join(names) or 'none'} was expected.")
        marker = completers.get(argument)

        async def complete_it(typed: str, others: Mapping[str, str]) -> Any:
            if marker is None:
                return ()
            if not callable(marker.values):
                return [value for value in marker.values if value.startswith(typed)]
            given = (typed, others) if marker.takes_others else (typed,)
            if marker.context is None and not marker.needs:
                return await self._services.pool.adapt(marker.values)(owner_of(request), *given)
            filled: dict[str, Any] = {}
            if marker.context is not None:
                filled[marker.context] = self._services.context(request)
            async with OpenDependencies(self._services, request, filled.get(marker.context or "")) as opened:
                await opened.fill(marker.needs, filled)
                complete = self._services.pool.adapt(functools.partial(marker.values, **filled))
                values = await complete(owner_of(request), *given)
                return completion_of(values)  # read while its dependencies are open

        return complete_it


def _readable(
    access: Access, text: str, argument: str, others: Mapping[str, str], completion: t.Completion
) -> t.Completion:
    """Return those values of a template's variable with which a URI results that the caller may read.

    If other variables are missing, a value stays if the caller may read anything that begins like the URI up to there.
    A total would count hidden values, so it is left out if some are.
    """
    template = UriTemplate(text)
    shown = [value for value in completion.values if _may_lead(access, template, {**others, argument: value}, argument)]
    if len(shown) == len(completion.values):
        return completion
    return t.Completion(values=shown, total=UNSET, has_more=False)


def _may_lead(access: Access, template: UriTemplate, values: Mapping[str, str], argument: str) -> bool:
    """Return whether the values so far lead to a URI that the caller may read."""
    uri, names, whole = template.beginning(values)
    if whole:
        return access.allows("read", uri) or access.may_read_below(uri if uri.endswith("/") else f"{uri}/")
    return access.may_read_below(uri) if argument in names else access.reads_all_below(uri)


def completion_of(values: Any) -> t.Completion:
    """Convert the return value of a completer to a result, cut to the protocol's limit."""
    if isinstance(values, t.Completion):
        shown, more = values.values[:MAX_VALUES], len(values.values) > MAX_VALUES
        return t.Completion(values=shown, total=values.total, has_more=True if more else values.has_more)
    if isinstance(values, (str, bytes)) or (values is not None and not hasattr(values, "__iter__")):
        raise TypeError(f"a completer returned {type(values).__name__}: return a list of texts")
    found = [str(value) for value in values or ()]
    return t.Completion(values=found[:MAX_VALUES], total=len(found), has_more=len(found) > MAX_VALUES)
