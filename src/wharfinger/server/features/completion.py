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
"""The maximum number of values in one answer (completion/complete, all revisions)."""


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
        ref, part = self._locate(params.ref)
        if part is not None:
            completed: t.CompleteResult = await part.serve(request, ref=ref)
            return completed
        others = {} if params.context is UNSET else params.context.arguments or {}
        is_shown = _show_all
        if request.access is not None and isinstance(ref, t.ResourceTemplateReference):
            is_shown = functools.partial(
                _leads_to_readable, request.access, UriTemplate(ref.uri), others, params.argument.name
            )
        complete = self._find_completer(request, ref, params.argument.name, is_shown)
        values = await complete(params.argument.value, others)
        return t.CompleteResult(completion=completion_of(values, is_shown))

    def _locate(self, ref: t.CompletionReference) -> tuple[t.CompletionReference, Part | None]:
        """Return the reference with the name that its part uses, and the part; None if the server itself has it."""
        if isinstance(ref, t.PromptReference):
            prompt = self._prompts.features.find(ref.name)
            if prompt is None or prompt.part is None:
                return ref, None
            return msgspec.structs.replace(ref, name=prompt.key), prompt.part
        template = self._resources.templates.find(ref.uri)
        return ref, self._resources.part_of_template(ref.uri) if template is None else template.part

    def _find_completer(
        self, request: Request, ref: t.CompletionReference, argument: str, is_shown: Callable[[str], bool]
    ) -> Callable[[str, Mapping[str, str]], Awaitable[Any]]:
        """Return a function that completes an argument, called with the typed text and the other arguments."""
        if isinstance(ref, t.PromptReference):
            prompt = self._prompts.get(ref.name)
            return self._completer_of_feature(
                request, prompt.signature.parameters, prompt.completers, argument, is_shown
            )
        feature = self._resources.templates.by_key.get(ref.uri)
        if feature is not None and feature.template is not None:
            return self._completer_of_feature(
                request, feature.template.variables, feature.completers, argument, is_shown
            )
        for source in self._resources.sources:
            if any(template.uri_template == ref.uri for template in source.templates):
                return functools.partial(self._complete_by_source, request, source, ref.uri, argument, is_shown)
        if ref.uri in self._resources.static.by_key:
            raise InvalidParams("This resource has no variables.")
        raise InvalidParams("There is no such resource template: send its uriTemplate from resources/templates/list.")

    async def _complete_by_source(
        self,
        request: Request,
        source: Source,
        template: str,
        argument: str,
        is_shown: Callable[[str], bool],
        value: str,
        others: Mapping[str, str],
    ) -> t.Completion:
        complete = functools.partial(self._resources.calls.call, source, source.complete, owner_of(request))
        values = await complete(template, argument, value, others)
        completion = completion_of(values, is_shown)
        if completion.has_more is True and not isinstance(values, t.Completion):
            completion.total = UNSET  # a source returns only one more, so it does not know how many there are
        return completion

    def _completer_of_feature(
        self,
        request: Request,
        names: Any,
        completers: Mapping[str, Complete],
        argument: str,
        is_shown: Callable[[str], bool],
    ) -> Callable[[str, Mapping[str, str]], Awaitable[Any]]:
        if argument not in names:
            raise InvalidParams(f"There is no such argument: one of {', '.join(names) or 'none'} was expected.")
        marker = completers.get(argument)

        async def run_completer(typed: str, others: Mapping[str, str]) -> Any:
            if marker is None:
                return ()
            if not callable(marker.values):
                return [value for value in marker.values if value.startswith(typed)]
            arguments = (typed, others) if marker.takes_others else (typed,)
            if marker.context is None and not marker.needs:
                return await self._services.pool.adapt(marker.values)(owner_of(request), *arguments)
            filled: dict[str, Any] = {}
            if marker.context is not None:
                filled[marker.context] = self._services.context(request)
            async with OpenDependencies(self._services, request, filled.get(marker.context or "")) as opened:
                await opened.fill(marker.needs, filled)
                filled |= zip(marker.names, arguments, strict=False)  # by name: the context may be the first parameter
                complete = self._services.pool.adapt(functools.partial(marker.values, **filled))
                values = await complete(owner_of(request), *arguments[len(marker.names) :])
                return completion_of(values, is_shown)  # read while its dependencies are open

        return run_completer


def _show_all(value: str) -> bool:
    return True


def _leads_to_readable(
    access: Access, template: UriTemplate, others: Mapping[str, str], argument: str, value: str
) -> bool:
    """Return whether the caller may read the URI that results if the variable `argument` has this value.

    If other variables are missing, return whether the caller may read a URI with the same beginning.
    """
    uri, names, whole = template.expand_beginning({**others, argument: value})
    if not whole:
        return access.may_read_below(uri) if argument in names else access.reads_all_below(uri)
    return access.allows("read", uri) or (uri.endswith("/") and access.may_read_below(uri))


def completion_of(values: Any, is_shown: Callable[[str], bool] = _show_all) -> t.Completion:
    """Convert a completer's return value to a result with the shown values, up to the protocol's limit.

    If values are left out, so is the total that the completer gave, since it counts them too.
    """
    if isinstance(values, t.Completion):
        shown = [value for value in values.values if is_shown(value)]
        if len(shown) < len(values.values):
            return t.Completion(values=shown[:MAX_VALUES])
        more = True if len(shown) > MAX_VALUES else values.has_more
        return t.Completion(values=shown[:MAX_VALUES], total=values.total, has_more=more)
    if isinstance(values, (str, bytes)) or (values is not None and not hasattr(values, "__iter__")):
        raise TypeError(f"a completer returned {type(values).__name__}: return a list of strings")
    shown = [text for value in values or () if is_shown(text := str(value))]
    return t.Completion(values=shown[:MAX_VALUES], total=len(shown), has_more=len(shown) > MAX_VALUES)
