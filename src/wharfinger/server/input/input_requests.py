"""The input that a client can be asked for: forms, URLs, samples of its model, and roots. Does no I/O.

Each `InputQuery` knows which capability it needs, its params in each revision, and how to read the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.errors import Cancelled, Declined, MissingClientCapability, ToolError
from wharfinger.protocol.request import Caller
from wharfinger.protocol.revisions import Revision
from wharfinger.server.input.forms import InvalidAnswer, form_of

__all__ = ["Elicit", "ElicitUrl", "InputQuery", "InvalidAnswer", "Roots", "Sample", "not_declared"]

T = TypeVar("T")


class InputQuery(Protocol):
    """Something that a client can be asked for."""

    method: ClassVar[str]
    key_prefix: ClassVar[str]
    """The prefix of its key if the author chooses none."""
    or_none: bool
    """Whether a refusal gives None instead of an exception."""

    def check(self, caller: Caller) -> None:
        """Raise MissingClientCapability if the caller cannot be asked for this."""
        ...

    def params(self, rules: Revision) -> t.RequestParams:
        """Return the params of `method` in this revision."""
        ...

    def read(self, answer: Raw | bytes) -> Any:
        """Return the value of an answer, which is the result of `method`.

        Raises:
            InvalidAnswer: the answer is malformed or does not match the question.
            Declined, Cancelled: the user refused.
        """
        ...


class _MissingInTool(ToolError, MissingClientCapability):
    """MissingClientCapability for the handshake era, which has no error code for it: a tool reports it to the model."""

    code = -32603
    http_status = 200

    def __init__(self, required: Mapping[str, Any], message: str) -> None:
        MissingClientCapability.__init__(self, required, message)
        self.text, self.result = message, None


def not_declared(rules: Revision, required: Mapping[str, Any], feature: str) -> MissingClientCapability:
    """Return the error of this revision for a client that does not declare a capability (2026-07-28, error codes)."""
    names: list[str] = []
    inner = required
    while inner:
        ((name, inner),) = inner.items()
        names.append(name)
    message = (
        f"This needs {feature}, which the client does not offer: it must declare the capability {'.'.join(names)}."
    )
    return (
        MissingClientCapability(required, message) if rules.has_capability_error else _MissingInTool(required, message)
    )


def _not_in_revision(rules: Revision, required: Mapping[str, Any], feature: str) -> MissingClientCapability:
    message = f"This needs {feature}, which {rules.name} does not have: connect with a newer client."
    return (
        MissingClientCapability(required, message) if rules.has_capability_error else _MissingInTool(required, message)
    )


class Elicit(Generic[T]):
    """A form for the user. `schema` is a struct, a dataclass, a TypedDict, a pydantic model, the type of a single value
    (`str`, `bool`, an enum, …), or a `requestedSchema` as a dict.

    Ask for passwords and other secrets at a URL, never by a form (2026-07-28, elicitation).

    Raises:
        TypeError: the type has a field that a form cannot have.
    """

    method: ClassVar[str] = "elicitation/create"
    key_prefix: ClassVar[str] = "elicit"

    def __init__(self, message: str, schema: type[T] | Mapping[str, Any] | Any, *, or_none: bool = False) -> None:
        self.message = message
        self.or_none = or_none
        self.form = form_of(schema)

    def check(self, caller: Caller) -> None:
        """Require `elicitation`; if the client lists modes, `form` must be one of them."""
        rules, declared = caller.rules, caller.capabilities.elicitation
        if not rules.elicits:
            raise _not_in_revision(rules, {"elicitation": {}}, "a form for the user")
        if declared is UNSET:
            raise not_declared(rules, {"elicitation": {}}, "a form for the user")
        if rules.elicits_urls and declared.form is UNSET and declared.url is not UNSET:
            raise not_declared(rules, {"elicitation": {"form": {}}}, "a form for the user")

    def params(self, rules: Revision) -> t.ElicitRequestParams:
        """Return the params without a mode, which means a form in every revision."""
        return t.ElicitRequestParams(message=self.message, requested_schema=self.form.schema_for(rules))

    def read(self, answer: Raw | bytes) -> T:
        """Return the value that the form asks for."""
        return cast("T", self.form.read(_read_accepted(answer, self.message).content))


class ElicitUrl:
    """A URL for the user to open, for example to sign in or to pay. The answer only says that they agreed to open it.

    Pass `elicitation_id` to `Server.elicitation_complete` when they are done (2025-11-25).

    Raises:
        ValueError: `url` has no scheme, or nothing after it.
    """

    method: ClassVar[str] = "elicitation/create"
    key_prefix: ClassVar[str] = "url"

    def __init__(self, message: str, url: str, *, elicitation_id: str | None = None, or_none: bool = False) -> None:
        if not all(url.partition(":")):
            raise ValueError(f"{url!r} is not a URL that a user can open.")
        self.message = message
        self.url = url
        self.elicitation_id = elicitation_id
        self.or_none = or_none

    def check(self, caller: Caller) -> None:
        """Require `elicitation.url`."""
        rules, declared = caller.rules, caller.capabilities.elicitation
        if not rules.elicits_urls:
            raise _not_in_revision(rules, {"elicitation": {"url": {}}}, "a URL for the user to open")
        if declared is UNSET or declared.url is UNSET:
            raise not_declared(rules, {"elicitation": {"url": {}}}, "a URL for the user to open")

    def params(self, rules: Revision) -> t.ElicitRequestParams:
        """Return the params, with an id only in 2025-11-25, since other revisions have no ids."""
        id: Any = UNSET
        if rules.url_required:
            if self.elicitation_id is None:
                from secrets import token_hex  # on use

                self.elicitation_id = token_hex(16)
            id = self.elicitation_id
        return t.ElicitRequestParams(message=self.message, mode="url", url=self.url, elicitation_id=id)

    def read(self, answer: Raw | bytes) -> bool:
        """Return True: the user agreed to open it."""
        _read_accepted(answer, self.message)
        return True


class _ElicitAnswer(msgspec.Struct):
    action: str
    content: Any = UNSET


def _read_accepted(answer: Raw | bytes, message: str) -> _ElicitAnswer:
    """Return the answer to an elicitation. Raises Declined or Cancelled if the user refused."""
    try:
        decoded = msgspec.json.decode(answer, type=_ElicitAnswer)
    except msgspec.MsgspecError:
        raise InvalidAnswer("expected an object with action") from None
    if decoded.action == "decline":
        raise Declined(f"The user declined: {message}")
    if decoded.action == "cancel":
        raise Cancelled(f"The user cancelled: {message}")
    if decoded.action != "accept":
        raise InvalidAnswer("action: must be one of accept, decline, cancel")
    return decoded


Messages = str | t.SamplingContent | t.SamplingMessage | Sequence[str | t.SamplingContent | t.SamplingMessage]
"""Messages for a model; text and blocks without a role are the user's."""


class Sample:
    """A request to the client's model. `messages` is text, a block of content, a message, or a list of these.

    The client and its user may change anything, such as the `temperature`, and may decline.

    Raises:
        ValueError: there is no message, tool uses and tool results do not match (2026-07-28, sampling), or `max_tokens`
            is below 1.
    """

    method: ClassVar[str] = "sampling/createMessage"
    key_prefix: ClassVar[str] = "sample"

    def __init__(
        self,
        messages: Messages,
        *,
        max_tokens: int = 1024,
        system: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        tools: Sequence[t.Tool] | None = None,
        tool_choice: str | t.ToolChoice | None = None,
        model_preferences: t.ModelPreferences | str | Sequence[str] | None = None,
        include_context: str | None = None,
        metadata: dict[str, Any] | None = None,
        or_none: bool = False,
    ) -> None:
        if model_preferences is not None and not isinstance(model_preferences, t.ModelPreferences):
            names = [model_preferences] if isinstance(model_preferences, str) else model_preferences
            model_preferences = t.ModelPreferences(hints=[t.ModelHint(name=name) for name in names])
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}: a model needs at least one to answer with.")
        self.or_none = or_none
        self._messages = _to_messages(messages)
        t.check_tool_use(self._messages)
        self._uses_tools = tools is not None or tool_choice is not None
        self._includes_context = include_context not in (None, "none")
        params: dict[str, Any] = {
            "system_prompt": system,
            "temperature": temperature,
            "stop_sequences": None if stop_sequences is None else list(stop_sequences),
            "tools": None if tools is None else list(tools),
            "tool_choice": t.ToolChoice(mode=cast("Any", tool_choice)) if isinstance(tool_choice, str) else tool_choice,
            "model_preferences": model_preferences,
            "include_context": include_context,
            "metadata": metadata,
        }
        self._params = t.CreateMessageRequestParams(
            messages=[],
            max_tokens=max_tokens,
            **{name: value for name, value in params.items() if value is not None},
        )

    def check(self, caller: Caller) -> None:
        """Require `sampling`, and `sampling.tools` or `sampling.context` if the request uses them."""
        rules, declared = caller.rules, caller.capabilities.sampling
        if declared is UNSET:
            raise not_declared(rules, {"sampling": {}}, "the client's model")
        blocks = [block for message in self._messages for block in _blocks(message)]
        tool_blocks = (t.ToolUseContent, t.ToolResultContent)
        uses_tools = self._uses_tools or any(isinstance(block, tool_blocks) for block in blocks)
        if uses_tools and not rules.samples_blocks:
            raise _not_in_revision(rules, {"sampling": {"tools": {}}}, "a model that uses tools")
        if uses_tools and declared.tools is UNSET:
            raise not_declared(rules, {"sampling": {"tools": {}}}, "a model that uses tools")
        if self._includes_context and rules.samples_blocks and declared.context is UNSET:
            raise not_declared(rules, {"sampling": {"context": {}}}, "context of other servers")
        if "audio" in rules.unknown_blocks and any(isinstance(block, t.AudioContent) for block in blocks):
            raise _not_in_revision(rules, {"sampling": {}}, "a model that takes audio")

    def params(self, rules: Revision) -> t.CreateMessageRequestParams:
        """Return the params. Before 2025-11-25 a message has one block, so several blocks become several messages."""
        messages: list[t.SamplingMessage] = []
        for message in self._messages:
            blocks = _blocks(message)
            if rules.samples_blocks and len(blocks) > 1:
                messages.append(msgspec.structs.replace(message, content=blocks))
            else:
                messages += [msgspec.structs.replace(message, content=block) for block in blocks]
        return msgspec.structs.replace(self._params, messages=messages)

    def read(self, answer: Raw | bytes) -> t.CreateMessageResult:
        """Return the model's message."""
        return _decode(answer, t.CreateMessageResult)


class Roots:
    """The client's roots: the folders in which its user works."""

    method: ClassVar[str] = "roots/list"
    key_prefix: ClassVar[str] = "roots"

    def __init__(self, *, or_none: bool = False) -> None:
        self.or_none = or_none

    def check(self, caller: Caller) -> None:
        """Require `roots`."""
        if caller.capabilities.roots is UNSET:
            raise not_declared(caller.rules, {"roots": {}}, "the client's roots")

    def params(self, rules: Revision) -> t.RequestParams:
        """Return empty params."""
        return t.RequestParams()

    def read(self, answer: Raw | bytes) -> list[t.Root]:
        """Return the roots, which must be `file:` URIs."""
        roots = _decode(answer, t.ListRootsResult).roots
        if any(not root.uri.startswith("file:") for root in roots):
            raise InvalidAnswer("roots: every uri must be a file: URI")
        return roots


def _decode(answer: Raw | bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise InvalidAnswer(str(error).replace("`", "")) from None


# --- messages to a model ----------------------------------------------------------------------------------------------


def _to_messages(messages_or_one: Any) -> list[t.SamplingMessage]:
    is_sequence = isinstance(messages_or_one, (list, tuple))
    items: list[Any] = list(cast("Any", messages_or_one)) if is_sequence else [messages_or_one]
    if not items:
        raise ValueError("A model needs at least one message.")
    messages: list[t.SamplingMessage] = []
    for item in items:
        if isinstance(item, t.SamplingMessage):
            messages.append(item)
        else:
            content = t.TextContent(text=item) if isinstance(item, str) else item
            messages.append(t.SamplingMessage(role="user", content=content))
    return messages


def _blocks(message: t.SamplingMessage) -> list[t.SamplingContent]:
    return message.content if isinstance(message.content, list) else [message.content]
