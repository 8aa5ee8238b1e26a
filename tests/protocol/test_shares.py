"""Who holds how much: equal parts where something is full, and who has most."""

from __future__ import annotations

import random

import pytest

from wharfinger.protocol.shares import Shares, name_owner


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
def test_owners_are_told_apart(one: tuple[str, str], other: tuple[str, str], same: bool) -> None:
    assert (name_owner(*one) == name_owner(*other)) is same


def test_what_is_full_has_room_for_who_has_less_than_an_equal_part() -> None:
    shares = Shares()
    assert shares.has_room("greedy", 10, 10)
    shares.add("greedy", 10)
    assert not shares.has_room("greedy", 10)
    assert shares.has_room("other", 10, 5)
    assert not shares.has_room("other", 10, 6)
    shares.add("other", 5)
    assert not shares.has_room("other", 10)
    assert shares.has_room("third", 10, 3)


def test_who_has_most_is_found_whatever_happens() -> None:
    shares, held, source = Shares(), dict.fromkeys("abcdefgh", 0), random.Random(7)
    for _ in range(5000):
        owner = source.choice("abcdefgh")
        amount = source.randint(-min(held[owner], 9), 9)
        held[owner] += amount
        shares.add(owner, amount)
        assert shares[owner] == held[owner]
        assert shares.total == sum(held.values())
        assert len(shares) == sum(map(bool, held.values()))
        if shares.total:
            assert held[shares.find_largest()] == max(held.values())
    for owner, amount in held.items():
        shares.add(owner, -amount)
    assert (shares.total, len(shares), shares._by_size) == (0, 0, {})


def test_ten_thousand_owners_are_no_slower_to_look_through() -> None:
    shares = Shares()
    for number in range(10_000):
        shares.add(f"small {number}", 3)
    shares.add("large", 8)
    assert shares.find_largest() == "large"
    shares.add("large", -8)
    assert shares[shares.find_largest()] == 3
