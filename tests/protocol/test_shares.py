"""Shares of a bounded resource: an equal share for each owner when it is full, and the largest owner."""

from __future__ import annotations

import random

import pytest

from wharfinger.protocol.shares import FairTable, Shares, name_owner


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("", "2001:db8::1"), ("", "2001:db8::ffff:1"), True),
        (("", "2001:db8::1"), ("", "2001:db8:0:1::1"), False),
        (("", "::ffff:192.0.2.1"), ("", "192.0.2.1"), True),
        (("", "192.0.2.1"), ("", "192.0.2.2"), False),
        (("", "fe80::1%eth0"), ("", "fe80::2%eth0"), True),
        (("ann", "192.0.2.1"), ("ann", "192.0.2.2"), True),
        (("ann", "192.0.2.1"), ("bob", "192.0.2.1"), False),
        (("192.0.2.1", ""), ("", "192.0.2.1"), False),
        (("ann", ""), ("", "principal ann"), False),
        (("", "not an address"), ("", "not an address"), True),
    ],
)
def test_owners_are_principals_or_prefixes_of_addresses(
    one: tuple[str, str], other: tuple[str, str], same: bool
) -> None:
    assert (name_owner(*one) == name_owner(*other)) is same


def test_a_full_table_has_room_for_owners_with_less_than_an_equal_share() -> None:
    shares = Shares()
    assert shares.has_room("greedy", 10, 10)
    shares.add("greedy", 10)
    assert not shares.has_room("greedy", 10)
    assert shares.has_room("other", 10, 5)
    assert not shares.has_room("other", 10, 6)
    shares.add("other", 5)
    assert not shares.has_room("other", 10)
    assert shares.has_room("third", 10, 3)


def test_find_largest_returns_an_owner_with_the_largest_share() -> None:
    shares, amounts, rng = Shares(), dict.fromkeys("abcdefgh", 0), random.Random(7)
    for _ in range(5000):
        owner = rng.choice("abcdefgh")
        amount = rng.randint(-min(amounts[owner], 9), 9)
        amounts[owner] += amount
        shares.add(owner, amount)
        assert shares[owner] == amounts[owner]
        assert shares.total == sum(amounts.values())
        assert len(shares) == sum(map(bool, amounts.values()))
        if shares.total:
            assert amounts[shares.find_largest()] == max(amounts.values())
    for owner, amount in amounts.items():
        shares.add(owner, -amount)
    assert (shares.total, len(shares), shares._by_size) == (0, 0, {})


def test_find_largest_works_with_ten_thousand_owners() -> None:
    shares = Shares()
    for number in range(10_000):
        shares.add(f"small {number}", 3)
    shares.add("large", 8)
    assert shares.find_largest() == "large"
    shares.add("large", -8)
    assert shares[shares.find_largest()] == 3


def test_the_owner_of_an_ipv6_address_is_its_prefix_of_64_bits() -> None:
    assert name_owner("", "2001:db8::1") == name_owner("", "2001:db8::ffff:0:0:1") == "address 2001:db8::/64"
    assert name_owner("", "2001:db8:0:1::") == "address 2001:db8:0:1::/64"


def test_a_table_that_is_not_full_has_room_beyond_an_equal_share() -> None:
    shares = Shares()
    shares.add("large", 8)
    shares.add("small", 1)
    assert shares.has_room("large", 10)
    assert not shares.has_room("large", 10, 2)
    assert shares.has_room("small", 10, 4)
    assert not shares.has_room("small", 10, 5)
    assert shares.has_room("third", 10, 3)
    assert not shares.has_room("third", 10, 4)


def test_find_largest_examines_64_owners_of_similar_size() -> None:
    for others, is_found in ((63, True), (64, False)):
        shares = Shares()
        for number in range(others):
            shares.add(f"owner {number}", 4)
        shares.add("largest", 7)
        assert (shares.find_largest() == "largest") is is_found


def fair_table(**owned: str) -> FairTable[str]:
    """Return a table with these owners. Each letter is a member."""
    table: FairTable[str] = FairTable()
    for owner, members in owned.items():
        for member in members:
            table.add(owner, member)
    return table


def never_busy(member: str) -> bool:
    return False


def test_members_are_counted_by_owner() -> None:
    table = fair_table(a="xy", b="z")
    assert (table.shares["a"], table.shares["b"], table.shares.total) == (2, 1, 3)
    table.discard("a", "z")
    table.discard("c", "x")
    assert table.shares.total == 3
    table.discard("a", "x")
    table.discard("a", "x")
    assert (table.shares["a"], table.shares.total) == (1, 2)
    table.discard("a", "y")
    table.discard("b", "z")
    assert (len(table.shares), table.shares.total, table._owned) == (0, 0, {})


def test_find_old_returns_the_old_members_of_each_owner_up_to_the_first_recent_one() -> None:
    table = fair_table(a="xyz", b="uvw")
    old = {"x", "y", "u", "w"}
    assert table.find_old(old.__contains__) == ["x", "y", "u"]
    table.use("a", "x")
    assert table.find_old(old.__contains__) == ["y", "u"]


@pytest.mark.parametrize(
    ("owned", "busy", "victim"),
    [
        ({}, "", None),
        ({"a": "xyz"}, "", "x"),
        ({"a": "xyz"}, "x", "y"),
        ({"a": "xyz", "b": "u"}, "x", "y"),
        ({"a": "xyz", "b": "u"}, "xyz", "x"),
        ({"a": "xyz", "b": "uv"}, "xyz", "u"),
        ({"a": "xyz", "b": "uv"}, "xyzu", "v"),
        ({"a": "xyz", "b": "uv"}, "xyzuv", None),
        ({"a": "wxyz", "b": "uv"}, "wxyz", "w"),
        ({"a": "xy", "b": "uv"}, "", "u"),
        ({"a": "xy", "b": "uv"}, "uv", None),
        ({"a": "x", "b": "uv"}, "u", "v"),
        ({"a": "x"}, "x", None),
        ({"b": "u"}, "", "u"),
    ],
)
def test_the_victim_is_an_idle_member_of_the_largest_owner(
    owned: dict[str, str], busy: str, victim: str | None
) -> None:
    assert fair_table(**owned).find_victim("b", busy.__contains__) == victim


def test_the_victim_is_the_least_recently_used_member() -> None:
    table = fair_table(a="xyz")
    table.use("a", "x")
    assert table.find_victim("b", never_busy) == "y"
    assert fair_table(a="xyz").find_victim("a", "x".__contains__) == "y"


def test_find_victim_examines_64_members_at_a_time() -> None:
    table: FairTable[int] = FairTable()
    for number in range(65):
        table.add("a", number)
    examined: list[int] = []

    def is_busy(number: int) -> bool:
        examined.append(number)
        return number != 64

    assert table.find_victim("a", is_busy) is None
    assert examined == list(range(64))
    assert table.find_victim("a", is_busy) == 64
    assert examined[64:] == [64]
