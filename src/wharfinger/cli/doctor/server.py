"""Checks of a server as a whole: its lists, what it says of itself, the revisions that it speaks."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wharfinger.cli.doctor.offer import Finding, Listed, Offer, said

__all__ = ["check_identity", "check_lists", "check_revisions", "check_tools_only"]

LONG_INSTRUCTIONS = 8192
LARGE_PAGE = 1000


def check_lists(offer: Offer) -> Iterator[Finding]:
    """Lists that fail, or come in one piece."""
    for name in ("tools", "prompts", "resources", "templates"):
        listed: Listed = getattr(offer, name)
        if listed.error:
            yield Finding(
                severity="problem",
                check="list-fails",
                what=f"The list of {name} fails: {listed.error}",
                change="No host can show what is in it: see the server's log.",
            )
        if listed.largest_page > LARGE_PAGE:
            yield Finding(
                severity="advice",
                check="no-pages",
                what=f"The list of {name} has a page of {listed.largest_page:,}.",
                change=f"Answer in pages of at most {LARGE_PAGE:,}, with nextCursor.",
            )
        declared = getattr(offer.capabilities, "resources" if name == "templates" else name)
        if name != "templates" and isinstance(declared, msgspec.Struct) and not listed.items and not listed.error:
            other = offer.templates.items if name == "resources" else ()
            if not other:
                yield Finding(
                    severity="advice",
                    check="nothing-listed",
                    what=f"The server declares {name} and lists none.",
                    change=f"Declare {name} only where there are some.",
                )


def check_identity(offer: Offer) -> Iterator[Finding]:
    """What a server says of itself."""
    if not said(offer.instructions):
        yield Finding(
            severity="advice",
            check="no-instructions",
            what="The server has no instructions.",
            change="Say in a few sentences what it is for and how its tools go together; hosts give that to the model.",
        )
    elif len(offer.instructions) > LONG_INSTRUCTIONS:
        yield Finding(
            severity="advice",
            check="long-instructions",
            what=f"The instructions have {len(offer.instructions):,} characters.",
            change="They are in every conversation: keep the few sentences that matter.",
        )
    if offer.version in ("", "0", "0.0.0"):
        yield Finding(
            severity="advice",
            check="no-version",
            what="The server does not say its version." if not offer.version else f"Its version is {offer.version!r}.",
            change='Give it one, as in Server("name", version="1.0"): reports and caches need it.',
        )


def check_revisions(offer: Offer) -> Iterator[Finding]:
    """Revisions of the protocol that hosts want."""
    if not offer.unspoken:
        return
    spoken = ", ".join(offer.revisions)
    from wharfinger.protocol.revisions import HANDSHAKE, STATELESS

    if not set(offer.revisions) & set(HANDSHAKE):
        yield Finding(
            severity="problem",
            check="no-handshake",
            what=f"The server speaks {spoken} only.",
            change="Most hosts still open with `initialize`: serve 2025-11-25 and 2025-06-18 too.",
        )
    elif not set(offer.revisions) & set(STATELESS):
        yield Finding(
            severity="advice",
            check="no-stateless",
            what=f"The server does not speak {STATELESS[0]}: {spoken}.",
            change="New hosts speak it first, and need one more round trip to find out.",
        )


def check_tools_only(offer: Offer) -> Iterator[Finding]:
    """Resources that most models never see."""
    if (offer.resources.items or offer.templates.items) and not offer.tools.items:
        yield Finding(
            severity="advice",
            check="resources-only",
            what="The server has resources and no tools.",
            change="Several hosts show only tools: add server.include(mirrors()), which reads and lists by tools.",
        )
