"""Context for a model: resources chosen by the user, by rules or by a model, within a budget of tokens."""

from wharfinger.host.context.choices import Choice, Choices, ContextRequest, Select
from wharfinger.host.context.context_blocks import Block, ContextBlocks, LeftOut
from wharfinger.host.context.context_builder import DEFAULT_BUDGET, build_context
from wharfinger.host.context.mentions import find_mentions, mention_of
from wharfinger.host.context.model_selection import select_with
from wharfinger.host.context.selection_rules import rules
from wharfinger.host.context.token_counts import CountTokens, estimate_tokens

__all__ = [
    "DEFAULT_BUDGET",
    "Block",
    "Choice",
    "Choices",
    "ContextBlocks",
    "ContextRequest",
    "CountTokens",
    "LeftOut",
    "Select",
    "build_context",
    "estimate_tokens",
    "find_mentions",
    "mention_of",
    "rules",
    "select_with",
]
