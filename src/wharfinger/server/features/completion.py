"""Completion of the arguments of prompts and the variables of templates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
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
from wharfinger.server.threads import is_async

if TYPE_CHECKING:
    from wharfinger.server.features.prompts import Prompts
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.part import Part
    from wharfinger.server.services import Services
    from wharfinger.server.signature.complete import Complete
    from wharfinger.source import Source

__all__ = ["MAX_VALUES", "Completions", "unknown_template"]

MAX_VALUES = 100
"""The maximum number of values in one answer (completion/complete, all revisions)."""


def _show_all(value: str) -> bool:
    return True


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
        ref, part = await self._locate(params.ref)
        if part is not None:
            completed: t.CompleteResult = await part.serve(request, ref=ref)
            return completed
        if isinstance(ref, t.PromptReference):
            prompt = self._prompts.get(ref.name)
            names: Collection[str] = prompt.signature.parameters
            return t.CompleteResult(completion=await self._run_completer(request, names, prompt.completers))
        feature = self._resources.templates.by_key.get(ref.uri)
        if feature is not None and feature.template is not None:
            names, is_shown = feature.template.variables, _value_filter(request, ref.uri)
            return t.CompleteResult(completion=await self._run_completer(request, names, feature.completers, is_shown))
        for source in self._resources.sources:
            if any(template.uri_template == ref.uri for template in source.templates):
                return t.CompleteResult(completion=await self._complete_by_source(request, source, ref.uri))
        if ref.uri in self._resources.static.by_key:
            raise InvalidParams("This resource has no variables.")
        raise unknown_template()

    async def _locate(self, ref: t.CompletionReference) -> tuple[t.CompletionReference, Part | None]:
        """Return the reference with the name that its part uses, and the part; None if the server itself has it.

        If no source has the template, this waits for those that are starting.
        """
        if isinstance(ref, t.PromptReference):
            prompt = self._prompts.features.find(ref.name)
            if prompt is None or prompt.part is None:
                return ref, None
            return msgspec.structs.replace(ref, name=prompt.key), prompt.part
        template = self._resources.templates.find(ref.uri)
        if template is None and not self._resources.has_source_template(ref.uri):
            await self._resources.wait_for_starts()
        return ref, self._resources.part_of_template(ref.uri) if template is None else template.part

    async def _complete_by_source(self, request: Request, source: Source, template: str) -> t.Completion:
        params: t.CompleteRequestParams = request.params
        values = await self._resources.calls.call(
            source,
            source.complete,
            owner_of(request),
            template,
            params.argument.name,
            params.argument.value,
            _others(params),
        )
        completion = completion_of(values, _value_filter(request, template))
        if not isinstance(values, t.Completion) and len(values) > MAX_VALUES:
            # A source returns at most one value more than the limit, so it does not say how many there are.
            completion.total, completion.has_more = UNSET, completion.has_more or UNSET
        return completion

    async def _run_completer(
        self,
        request: Request,
        names: Collection[str],
        completers: Mapping[str, Complete],
        is_shown: Callable[[str], bool] = _show_all,
    ) -> t.Completion:
        """Return the values for the argument of a request; `names` are the arguments that exist."""
        argument, owner, pool = request.params.argument, owner_of(request), self._services.pool
        if argument.name not in names:
            raise InvalidParams(f"There is no such argument: one of {', '.join(names) or 'none'} was expected.")
        marker = completers.get(argument.name)
        if marker is None:
            return completion_of(())
        if not callable(marker.values):
            return completion_of([value for value in marker.values if value.startswith(argument.value)], is_shown)
        arguments = (argument.value, _others(request.params)) if marker.takes_others else (argument.value,)
        if marker.context is None and not marker.needs:
            return completion_of(await pool.call(owner, marker.values, *arguments), is_shown)
        filled: dict[str, Any] = {}
        context: Any = None
        if marker.context is not None and is_async(marker.values):
            context = filled[marker.context] = self._services.context(request)
        elif marker.context is not None:
            filled[marker.context] = self._services.context(request).for_plain_function()
        async with OpenDependencies(self._services, request, context) as opened:
            await opened.fill(marker.needs, filled)
            filled |= zip(marker.names, arguments, strict=False)  # by name: the context may be the first parameter
            complete = functools.partial(marker.values, **filled)
            values = await pool.call(owner, complete, *arguments[len(marker.names) :])
            return completion_of(values, is_shown)  # iterated while the completer's dependencies are open


def unknown_template() -> InvalidParams:
    """Return the error for a template that does not exist, or that the caller may not know."""
    return InvalidParams("There is no such resource template: send its uriTemplate from resources/templates/list.")


def _others(params: t.CompleteRequestParams) -> Mapping[str, str]:
    """Return the texts of the other arguments, by name."""
    return {} if params.context is UNSET else params.context.arguments or {}


def _value_filter(request: Request, template_text: str) -> Callable[[str], bool]:
    """Return a function that returns whether the caller may know a value of the variable that a request completes.

    The caller must be able to read the URI with this value. If other variables are missing, only the beginning of the
    URI is known. If that contains the value, the caller must be able to read some URI that begins so. If not, the
    caller must be able to read every such URI.
    """
    access: Access | None = request.access
    if access is None:
        return _show_all
    template, others, argument = UriTemplate(template_text), _others(request.params), request.params.argument.name

    def is_shown(value: str) -> bool:
        uri, names, whole = template.expand_beginning({**others, argument: value})
        if not whole:
            return access.may_read_below(uri) if argument in names else access.reads_all_below(uri)
        return access.allows("read", uri) or (uri.endswith("/") and access.may_read_below(uri))

    return is_shown


def completion_of(values: Any, is_shown: Callable[[str], bool] = _show_all) -> t.Completion:
    """Convert a completer's return value to a result with the shown values, up to the protocol's limit.

    If some values are not shown, the total that the completer gave is left out, since it counts them too.

    Raises:
        TypeError: the value is text, or cannot be iterated.
    """
    if isinstance(values, t.Completion):
        shown = [value for value in values.values if is_shown(value)]
        if len(shown) < len(values.values):
            return t.Completion(values=shown[:MAX_VALUES], has_more=True if len(shown) > MAX_VALUES else UNSET)
        more = True if len(shown) > MAX_VALUES else values.has_more
        return t.Completion(values=shown[:MAX_VALUES], total=values.total, has_more=more)
    if isinstance(values, (str, bytes)) or (values is not None and not hasattr(values, "__iter__")):
        raise TypeError(f"a completer returned {type(values).__name__}: return a list of strings")
    shown = [text for value in values or () if is_shown(text := str(value))]
    return t.Completion(values=shown[:MAX_VALUES], total=len(shown), has_more=len(shown) > MAX_VALUES)
