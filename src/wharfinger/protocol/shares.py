"""Counts each owner's use of something bounded, so that no owner can keep the others out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from itertools import islice, takewhile
from typing import Generic, TypeVar

__all__ = ["FairTable", "Shares", "name_network", "name_owner", "name_principal"]

Member = TypeVar("Member")

_MAX_COMPARED = 64
"""The maximum number of owners that `find_largest` compares, and of members of the adding owner that `find_victim`
checks."""


def name_owner(key: str, address: str) -> str:
    """Return the owner whose share a caller uses: the principal with this key, or the address of an anonymous caller.

    The names of principals and of addresses are never equal.
    """
    return name_principal(key) if key else name_network(address)


@lru_cache(4096)
def name_principal(key: str) -> str:
    """Return the owner whose share a principal with this key uses."""
    return f"principal {key}"


@lru_cache(4096)
def name_network(address: str) -> str:
    """Return the owner whose share an anonymous caller uses.

    An IPv6 address counts as its /64, because one customer has at least that (RFC 6177).
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
    """The amount that each owner uses of something bounded: a count, or bytes. Each operation takes constant time."""

    __slots__ = ("_amounts", "_by_size", "total")

    def __init__(self) -> None:
        self.total = 0
        self._amounts: dict[str, int] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        """Owners by the bit length of the amount that they hold."""

    def __getitem__(self, owner: str) -> int:
        return self._amounts.get(owner, 0)

    def __len__(self) -> int:
        return len(self._amounts)

    def add(self, owner: str, amount: int = 1) -> None:
        """Count more for `owner`, or less if `amount` is negative."""
        before = self._amounts.get(owner, 0)
        after = before + amount
        self.total += amount
        if after:
            self._amounts[owner] = after
        else:
            self._amounts.pop(owner, None)
        old, new = before.bit_length(), after.bit_length()
        if old != new:
            if old:
                del self._by_size[old][owner]
                if not self._by_size[old]:
                    del self._by_size[old]
            if new:
                self._by_size.setdefault(new, {})[owner] = None

    def has_room(self, owner: str, limit: int, amount: int = 1) -> bool:
        """Return whether `owner` may have `amount` more.

        It may if the total then stays within `limit`, or if the owner then has at most an equal share (limit / owners).
        In the second case the total may exceed the limit: with n owners, up to limit × (1 + 1/2 + … + 1/n).
        """
        if self.total + amount <= limit:
            return True
        owners = len(self._amounts) + (owner not in self._amounts)
        return self[owner] + amount <= limit // owners

    def find_largest(self) -> str:
        """Return the owner who holds the most. If more than 64 hold about as much, it may be any of these.

        There must be an owner.
        """
        largest = self._by_size[max(self._by_size)]  # there are at most 64 bit lengths
        return max(islice(largest, _MAX_COMPARED), key=self._amounts.__getitem__)


class FairTable(Generic[Member]):
    """The members of a bounded table, by owner; each owner's members are in the order of their last use."""

    __slots__ = ("_owned", "shares")

    def __init__(self) -> None:
        self.shares = Shares()
        self._owned: dict[str, dict[Member, None]] = {}

    def add(self, owner: str, member: Member) -> None:
        """Add a member."""
        self._owned.setdefault(owner, {})[member] = None
        self.shares.add(owner)

    def use(self, owner: str, member: Member) -> None:
        """Record that the owner used this member just now."""
        members = self._owned[owner]
        del members[member]
        members[member] = None

    def discard(self, owner: str, member: Member) -> None:
        """Remove a member, if it is in the table."""
        members = self._owned.get(owner, {})
        if member in members:
            del members[member]
            self.shares.add(owner, -1)
            if not members:
                del self._owned[owner]

    def find_old(self, is_old: Callable[[Member], bool]) -> list[Member]:
        """Return the members for which `is_old` is true. For each owner, the search ends at the first that is not."""
        return [member for members in self._owned.values() for member in takewhile(is_old, members)]

    def find_victim(self, owner: str, is_busy: Callable[[Member], bool]) -> Member | None:
        """Return the member to remove so that `owner` may add one to a full table; None if there is none.

        If the largest owner has more members than `owner`, it loses the idle member that it used least recently. If all
        of its members are busy, and it has more than `owner` will have, it loses a busy one. Otherwise `owner` loses an
        idle member.
        """
        shares = self.shares
        if not shares.total:
            return None
        largest = shares.find_largest()
        if shares[largest] > shares[owner]:
            members = self._owned[largest]
            for member in members:
                if not is_busy(member):
                    return member
            if shares[largest] > shares[owner] + 1:
                return next(iter(members))
        # An owner with many members may call this again and again: check only a few each time. The busy ones among them
        # move to the end, so that the next call checks others.
        for member in list(islice(self._owned.get(owner, ()), _MAX_COMPARED)):
            if not is_busy(member):
                return member
            self.use(owner, member)
        return None
