"""A principal is identified by its issuer and subject, whichever token it presents."""

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.protocol.principal import ANONYMOUS, LOCAL, Principal


def test_a_new_token_of_the_same_caller_has_the_same_key() -> None:
    first = Principal(subject="ann", issuer="https://id.example", scopes=frozenset({"read"}), expires=1.0)
    second = Principal(subject="ann", issuer="https://id.example", client="other", claims={"groups": ["staff"]})
    assert first.key == second.key != ""


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_two_callers_never_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    keys = [Principal(issuer=issuer, subject=subject).key for issuer, subject in (one, other) if subject]
    assert len(set(keys)) == len({pair for pair in (one, other) if pair[1]})


def test_neither_an_anonymous_nor_a_local_caller_has_a_key() -> None:
    assert (ANONYMOUS.key, LOCAL.key) == ("", "")
    assert Principal(subject="local").key != "", "a token cannot make its bearer the local user"


def test_the_repr_of_a_principal_has_no_claims() -> None:
    assert "secret" not in repr(Principal(subject="ann", claims={"phone": "secret"}))
