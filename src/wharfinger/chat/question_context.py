"""Chooses the resources for a question: those that it mentions, and those that rules choose from the catalogue."""

from __future__ import annotations

import hashlib
import inspect
from typing import TYPE_CHECKING

import msgspec

from wharfinger import types as t
from wharfinger.chat.model_clients.message_parts import PICTURE_TYPES
from wharfinger.content.search_query import MAX_QUERY_CHARACTERS
from wharfinger.errors import InvalidArgument
from wharfinger.host.context import Block, Choice, Choices, ContextRequest, find_mentions, rules
from wharfinger.host.context.context_blocks import block_text
from wharfinger.host.context.context_builder import MIN_TOKENS
from wharfinger.host.context.mentions import ResourceNames, UnknownMention, choice_of

if TYPE_CHECKING:
    from wharfinger.host import Host

__all__ = ["ChosenContext", "QuestionContext", "UsedResource"]

MENTION_WEIGHT = 4.0
"""The weight of a mentioned resource when the budget is divided. The best one that the rules choose has 1."""


class UsedResource(msgspec.Struct):
    """A resource in the context of a question."""

    uri: str
    server: str
    reason: str
    tokens: int
    missing: str = ""
    """A sentence about the missing part; empty if the resource is whole."""


class ChosenContext(msgspec.Struct):
    """The resources for a question, as blocks of its message. `versions` has the version of each resource."""

    used: list[UsedResource] = msgspec.field(default_factory=list[UsedResource])
    content: list[t.SamplingContent] = msgspec.field(default_factory=list[t.SamplingContent])
    versions: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    notes: list[str] = msgspec.field(default_factory=list[str])
    """Sentences about resources that were left out, and servers that were not searched."""
    mention_notes: list[str] = msgspec.field(default_factory=list[str])
    """Those of the notes that are about mentioned resources."""


class QuestionContext:
    """Chooses the resources for each question in a conversation. `last` has the resources for the last question."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.last = ChosenContext()

    async def choose(self, question: str, versions: dict[str, str], *, budget: int, by_rules: bool) -> ChosenContext:
        """Return the resources for a question.

        `versions` has the version of each resource that the model has already. In the same version, a resource is not
        sent again.

        Raises:
            InvalidArgument: a mention at the beginning matches several resources, or it has a colon and matches none.
        """
        chosen = self.last = ChosenContext()
        if budget < MIN_TOKENS:
            for choice in await self._mentioned(question):
                reason = f"the budget is {budget}, and resources need at least {MIN_TOKENS} tokens"
                chosen.mention_notes.append(f"Left out @{choice.uri}: {reason}")
            chosen.notes += chosen.mention_notes
            return chosen

        mentioned: list[Choice] = []

        async def select(request: ContextRequest) -> Choices:
            mentioned.extend(await self._mentioned(question))
            choices = Choices(mentioned)
            if by_rules:
                mentioned_keys = {(choice.server, choice.uri) for choice in mentioned}
                more = rules()(request)
                more = await more if inspect.isawaitable(more) else more
                choices += [
                    choice
                    for choice in more
                    if not isinstance(choice, Choice) or (choice.server, choice.uri) not in mentioned_keys
                ]
                choices.notes = getattr(more, "notes", ())
            return choices

        context = await self._host.context(question, budget=budget, select=select)
        for block in context:
            self._add(chosen, block, versions)
        for left in context.left_out:
            note = f"Left out @{left.uri}: {left.reason}"
            chosen.notes.append(note)
            if any((choice.server, choice.uri) == (left.server, left.uri) for choice in mentioned):
                chosen.mention_notes.append(note)
        chosen.notes += context.notes
        return chosen

    async def _mentioned(self, question: str) -> list[Choice]:
        """Return the resources that the question mentions.

        A mention without a colon is ignored if it matches no resource: it may be the name of a person. After the
        beginning of the question, any mention that does not match one resource is ignored: it may be in a pasted text.
        """
        mentions: list[Choice] = []
        catalogue = self._host.catalogue
        names = ResourceNames(catalogue)
        at_beginning = find_mentions(question[:MAX_QUERY_CHARACTERS])
        for mention in find_mentions(question):
            try:
                choice = await choice_of(catalogue, mention, list(self._host.servers), names)
            except InvalidArgument as error:
                is_unknown = isinstance(error, UnknownMention)
                if mention not in at_beginning or (is_unknown and ":" not in mention):
                    continue
                if is_unknown:
                    raise UnknownMention(f"{error} The question is not sent.") from None
                raise
            mentions.append(choice._replace(weight=MENTION_WEIGHT, reason="mentioned in the question"))
        return mentions

    def _add(self, chosen: ChosenContext, block: Block, versions: dict[str, str]) -> None:
        key, whole = f"{block.server} {block.uri}", f"{block.version} "
        digest = hashlib.sha256(block.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        version = whole + digest if block.missing else whole
        is_known = versions.get(key) in (version, whole)
        chosen.versions[key] = versions[key] if is_known else version
        if is_known:
            chosen.used.append(UsedResource(block.uri, block.server, "the model has it already", 0))
            return
        chosen.used.append(UsedResource(block.uri, block.server, block.reason, block.tokens, block.missing))
        chosen.content.append(t.TextContent(text=block_text(block)))
        if block.mime_type in PICTURE_TYPES and block.data:
            chosen.content.append(t.ImageContent(data=block.data, mime_type=block.mime_type))
