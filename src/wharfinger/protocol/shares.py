"""Who holds how much of something bounded, so that a table which one caller has filled has room for another."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from itertools import islice, takewhile
from typing import Generic, TypeVar

__all__ = ["Crowd", "Shares", "name_network", "name_owner"]

Member = TypeVar("Member")

_COMPARED = 64
"""Owners of about the same size that are compared to find the largest, and members looked at to find an idle one."""


def name_owner(principal: str, address: str) -> str:
    """Whose share a caller uses: the principal's, or that of an address where the caller is anonymous.

    A name of one kind is never equal to one of the other.
    """
    return f"principal {principal}" if principal else name_network(address)


@lru_cache(4096)
def name_network(address: str) -> str:
    """Whose share an anonymous caller uses.

    An IPv6 address counts as its /64, which is the least that one customer has (RFC 6177).
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return f"address {address}"
    if isinstance(parsed, IPv6Address):
        mapped = parsed.ipv4_mapped
        return f"address {mapped or ip_network((int(parsed), 64), strict=False)}"
    return f"address {address}"


class Shares:
    """How much each owner holds of one bounded thing: a count, or bytes. Each operation takes constant time."""

    __slots__ = ("_by_size", "_held", "total")

    def __init__(self) -> None:
        self.total = 0
        self._held: dict[str, int] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        """Owners by the number of bits of what they hold."""

    def __getitem__(self, owner: str) -> int:
        return self._held.get(owner, 0)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, owner: str, amount: int = 1) -> None:
        """Count more for `owner`, or less where `amount` is negative."""
        before = self._held.get(owner, 0)
        after = before + amount
        self.total += amount
        if after:
            self._held[owner] = after
        else:
            self._held.pop(owner, None)
        old, new = before.bit_length(), after.bit_length()
        if old != new:
            if old:
                del self._by_size[old][owner]
                if not self._by_size[old]:
                    del self._by_size[old]
            if new:
                self._by_size.setdefault(new, {})[owner] = None

    def has_room(self, owner: str, limit: int, amount: int = 1) -> bool:
        """Whether `owner` may have so much more of what is bounded by `limit`.

        Where it is full, whoever has less than an equal part still gets some: all together may then exceed the limit,
        by no more than its part for each owner.
        """
        if self.total + amount <= limit:
            return True
        owners = len(self._held) + (owner not in self._held)
        return self[owner] + amount <= limit // owners

    def find_largest(self) -> str:
        """The owner who holds most; among more than 64 of about that size, one of them. There must be one."""
        largest = self._by_size[max(self._by_size)]  # at most 64 sizes
        return max(islice(largest, _COMPARED), key=self._held.__getitem__)


class Crowd(Generic[Member]):
    """The members of a bounded table by owner, those of each in the order of their use."""

    __slots__ = ("_owned", "shares")

    def __init__(self) -> None:
        self.shares = Shares()
        self._owned: dict[str, dict[Member, None]] = {}

    def add(self, owner: str, member: Member) -> None:
        """Add a member."""
        self._owned.setdefault(owner, {})[member] = None
        self.shares.add(owner)

    def use(self, owner: str, member: Member) -> None:
        """This member is now the one of its owner that was used last."""
        members = self._owned[owner]
        del members[member]
        members[member] = None

    def discard(self, owner: str, member: Member) -> None:
        """Remove a member; nothing happens where it is none."""
        members = self._owned.get(owner, {})
        if member in members:
            del members[member]
            self.shares.add(owner, -1)
            if not members:
                del self._owned[owner]

    def unused(self, is_old: Callable[[Member], bool]) -> list[Member]:
        """The members that are old, where what was used later is never older."""
        return [member for members in self._owned.values() for member in takewhile(is_old, members)]

    def find_victim(self, owner: str, busy: Callable[[Member], bool]) -> Member | None:
        """Who is to go, so that `owner` may add a member to a full table; None where nobody has to.

        It is the idle member used least recently of whoever has most, else the one of `owner` itself. A busy one goes
        only if its owner has no idle one, and more than `owner` will have.
        """
        shares = self.shares
        if not shares.total:
            return None
        largest = shares.find_largest()
        if shares[largest] > shares[owner]:
            members = self._owned[largest]
            for member in members:
                if not busy(member):
                    return member
            if shares[largest] > shares[owner] + 1:
                return next(iter(members))
        # Asked for again and again by whoever has filled the table: only a few are looked at each time.
        for member in list(islice(self._owned.get(owner, ()), _COMPARED)):
            if not busy(member):
                return member
            self.use(owner, member)
        return None
