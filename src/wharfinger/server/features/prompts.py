"""Prompts: messages that a user chooses and fills in. Decodes their arguments and builds their messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.text import printable
from wharfinger.errors import InvalidParams
from wharfinger.protocol.request import Request
from wharfinger.server.features.feature_registration import (
    check_options,
    check_scopes,
    feature_name,
    refuse_generator,
    unwrap,
)
from wharfinger.server.features.feature_set import Features, VisibleFeature
from wharfinger.server.features.handler_function import HandlerFunction
from wharfinger.server.features.listing import PagedList
from wharfinger.server.features.media import Media
from wharfinger.server.features.result_errors import check_texts, unusable_result
from wharfinger.server.features.tool_results import BLOCKS, read_media
from wharfinger.server.signature.arguments import BadArguments, Signature
from wharfinger.server.signature.complete import Complete
from wharfinger.types.base import or_unset

if TYPE_CHECKING:
    from typing import Unpack

    from wharfinger.protocol.interfaces import Handler
    from wharfinger.server.services import Services

__all__ = ["PromptFeature", "PromptOptions", "Prompts", "unknown_prompt"]


class PromptOptions(TypedDict, total=False):
    """Options for registering a prompt."""

    name: str | None
    """Its name for clients; by default the function's name."""
    title: str | None
    description: str | None
    """Its description for people; by default the function's docstring before its first section."""
    icons: Sequence[t.Icon] | None
    meta: dict[str, Any] | None
    """`_meta` of the definition."""
    inline: bool
    """Whether a plain function runs on the event loop instead of in a thread, because it never blocks."""
    timeout: float | None
    """Seconds that a request for its messages may take."""
    scopes: Sequence[str] | str | None
    """Scopes that a caller's token must have, all of them. Otherwise it is not listed, and requests get HTTP 403."""


class PromptFeature:
    """A registered prompt: its definition and its function.

    Raises:
        TypeError: the type of a parameter cannot be converted from a string, or the function is a generator.
        ValueError: the name is empty, or an option has a value that is not valid.
    """

    __slots__ = ("_call", "_services", "completers", "definition", "name", "scopes", "signature")

    definition: t.Prompt
    completers: Mapping[str, Complete]
    """The completers of arguments, by name."""

    def __init__(self, services: Services, function: Callable[..., Any], options: PromptOptions) -> None:
        function = unwrap(function)
        refuse_generator(function)
        self.signature = Signature(function)
        self.completers = self.signature.completers
        self.name = feature_name(function, options.get("name"))
        if not self.name:
            raise ValueError("A prompt needs a name.")
        self.scopes = check_scopes(options.get("scopes"))
        """The scopes that a caller's token must have."""
        self._services = services
        self._call = HandlerFunction(
            services,
            function,
            signature=self.signature,
            inline=options.get("inline", False),
            timeout=options.get("timeout"),
        )
        # `finish` runs while dependencies are open. `fill` calls `_make_result` again, which then changes nothing.
        self._call.finish = self._make_result
        arguments = [
            t.PromptArgument(
                name=parameter.name,
                description=parameter.description or UNSET,
                required=True if parameter.required else UNSET,
            )
            for parameter in self.signature.parameters.values()
        ]
        self.definition = t.Prompt(
            name=self.name,
            title=or_unset(options.get("title")),
            description=options.get("description") or self.signature.summary or UNSET,
            arguments=arguments or UNSET,
            icons=UNSET if (icons := options.get("icons")) is None else list(icons),
            meta=or_unset(options.get("meta")),
        )

    async def fill(self, request: Request) -> t.GetPromptResult:
        """Call the function with the arguments of `prompts/get`.

        Raises:
            InvalidParams: an argument is missing, unknown, or cannot be converted to its parameter's type.
        """
        given = request.params.arguments
        try:
            arguments = self.signature.decode_strings({} if given is UNSET else given)
        except BadArguments as error:
            raise InvalidParams("Invalid arguments: " + "; ".join(error.faults)) from None
        return await self._make_result(request, await self._call.invoke(request, arguments))

    async def _make_result(self, request: Request, value: Any) -> t.GetPromptResult:
        function = self._call.function
        result = value if isinstance(value, t.GetPromptResult) else None
        several: Any = value if result is None else result.messages
        items = cast("Sequence[Any]", several if isinstance(several, (list, tuple)) else [several])
        try:
            messages = await read_media(self._services, request, [_to_message(item) for item in items])
        except (TypeError, ValueError, OSError) as error:
            raise unusable_result(function, value, error) from error
        check_texts(function, [message.content for message in messages])
        if result is not None:
            return msgspec.structs.replace(result, messages=messages)
        return t.GetPromptResult(messages=messages, description=self.definition.description)


class Prompts:
    """The prompts of one server."""

    def __init__(self, services: Services, page_size: int | None) -> None:
        self._services = services
        self.features: Features[PromptFeature] = Features("prompt", lambda: services.watching.list_changed("prompts"))
        self.listing = PagedList("prompts", self.features, services, page_size, _prompts_result)

    def add(
        self, function: Callable[..., Any], *, fallback: bool = False, **options: Unpack[PromptOptions]
    ) -> PromptFeature:
        """Register a function as a prompt, and report that the list has changed.

        Its parameters are the prompt's arguments, converted from text. It returns text, content, messages, a list of
        these, or a `GetPromptResult`. Another prompt of the same name replaces a `fallback`.

        Raises:
            TypeError: the type of a parameter cannot be converted from text, the function is a generator, or an option
                is unknown.
            ValueError: the name is taken or empty, or an option has a value that is not valid.
        """
        check_options("prompt", function, options, PromptOptions)
        prompt = PromptFeature(self._services, function, options)
        self.features.add(prompt.name, prompt, fallback=fallback)
        if prompt.scopes:
            self._services.enforce_scopes()
        self._services.serve("prompts")
        return prompt

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the methods of prompts."""
        return {"prompts/list": self.listing.serve, "prompts/get": self.fill}

    def remove(self, name: str) -> None:
        """Remove a prompt, and report that the list has changed.

        Raises:
            KeyError: there is no prompt of this name.
        """
        self.features.remove(name)

    def disable(self, name: str) -> None:
        """Disable a prompt until `enable`: it is not listed and cannot be used. Reports that the list has changed.

        Raises:
            KeyError: there is no prompt of this name.
        """
        self.features.disable(name)

    def enable(self, name: str) -> None:
        """Enable a disabled prompt again, at its old position, and report that the list has changed.

        Raises:
            KeyError: there is no prompt of this name.
        """
        self.features.enable(name)

    def names(self) -> list[str]:
        """Return the names of all enabled prompts in the order of the list, with those of mounted servers."""
        return [name for name, _ in self.features.items()]

    def get(self, name: str) -> PromptFeature:
        """Return the prompt of this name.

        Raises:
            InvalidParams: there is no such prompt.
        """
        return self._find(name).feature

    def _find(self, name: str) -> VisibleFeature[PromptFeature]:
        found = self.features.find(name)
        if found is None:
            raise unknown_prompt(name)
        return found

    async def fill(self, request: Request) -> t.GetPromptResult:
        """Serve `prompts/get`.

        Raises:
            InvalidParams: there is no such prompt, or its arguments are not valid.
        """
        found = self._find(request.params.name)
        if found.part is None or found.part.direct["prompts/get"]:
            return await found.feature.fill(request)
        filled: t.GetPromptResult = await found.part.serve(request, name=found.key)
        return filled


def unknown_prompt(name: str) -> InvalidParams:
    """Return the error for a prompt that does not exist, or that the caller may not know."""
    return InvalidParams(f"Unknown prompt: {printable(name)}")


def _prompts_result(shown: list[Any], next_cursor: Any) -> t.ListPromptsResult:
    return t.ListPromptsResult(prompts=shown, next_cursor=next_cursor)


def _to_message(value: Any) -> t.PromptMessage:
    """Convert a function's result to a message; content without a role gets the role `user`."""
    if isinstance(value, t.PromptMessage):
        return value
    role: Any = "user"
    fields = cast("Mapping[str, object]", value if isinstance(value, Mapping) else {})
    if len(fields) == 2 and "role" in fields and "content" in fields:  # a message as a dict
        role, value = fields["role"], fields["content"]
        if isinstance(value, Mapping):
            value = msgspec.convert(cast("object", value), t.ContentBlock)
        if role not in ("user", "assistant"):
            raise TypeError("the role of a prompt's message must be user or assistant")
    if isinstance(value, str):
        value = t.TextContent(text=value)
    if not isinstance(value, (*BLOCKS, Media)):
        raise TypeError(
            f"{type(cast('object', value)).__name__}: return text, PromptMessage, content, or a list of these"
        )
    return t.PromptMessage(role=role, content=cast("Any", value))
