"""Hypothesis strategies for policies over a small set of URIs, names and principals."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from wharfinger.policy import Rule
from wharfinger.protocol.principal import ANONYMOUS, LOCAL, Principal

NAMES = ("a", "b", "a%20b", "a*b", "%C3%A9")
URIS = [
    f"{root}/{'/'.join(path)}"
    for root in ("file://", "git://a", "git://b")
    for depth in (1, 2, 3)
    for path in product(NAMES[:3] if depth == 3 else NAMES, repeat=depth)
] + ["file:///", "git://a", "git://b/", "note:a", "note:b/a", "note:b/a?x=1", "file:///a/b?from=3"]
TARGETS = [*URIS, "tool:a", "tool:ab", "prompt:a", "prompt:a/b"]
ACTIONS = ("read", "call", "prompt", "query", "inspect")

PRINCIPALS = [
    LOCAL,
    ANONYMOUS,
    Principal(subject="ann", issuer="https://one.example", scopes=frozenset({"docs.read"})),
    Principal(subject="ann", issuer="https://two.example", claims={"groups": ["staff", "tea"]}),
    Principal(subject="bob", client="app", claims={"groups": "staff", "email": "bob@a.example"}),
    Principal(subject="eve", claims={"email": "eve@a.example", "email_verified": True}, scopes=frozenset({"x"})),
]

segments = st.sampled_from(["a", "b", "*", "**", "a*", "*b", "a%20b", "a%2Ab", "a*b", "%C3%A9", "**", "**"])
patterns = st.one_of(
    st.builds(
        lambda root, path: root + "/".join(path),
        st.sampled_from(["file:///", "git://", "git://a/", "note:", "git://*/"]),
        st.lists(segments, min_size=1, max_size=4),
    ),
    st.sampled_from(["**", "tool:a", "tool:*", "tool:a*", "prompt:*", "prompt:a/b", "file:///a/", "git://a", "note:*"]),
)


def one_or_several(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str | tuple[str, ...]]:
    """Generate one text, or a tuple of up to three."""
    return st.one_of(texts, st.lists(texts, min_size=1, max_size=3).map(tuple))


who = st.sampled_from(
    [
        *("anyone", "signed-in", "local", "sub:ann", "sub:*", "sub:eve", "group:staff", "group:t*"),
        *("scope:docs.read", "client:app", "email:*@a.example"),
    ]
)
actions = st.sampled_from([*ACTIONS, "list", "search", "complete", "watch"])
rules = st.one_of(
    st.builds(
        Rule,
        who=one_or_several(who),
        do=st.one_of(st.none(), one_or_several(actions)),
        what=st.one_of(st.none(), one_or_several(patterns), one_or_several(patterns)),
        issuer=st.sampled_from([None, None, None, "https://one.example"]),
        scopes=st.sampled_from([(), (), (), "docs.read", ("docs.read", "x")]),
        reveal=st.booleans(),
    ),
    st.builds(
        Rule,
        who=one_or_several(who),
        level=st.sampled_from(["read", "write", "execute", "admin"]),
        what=one_or_several(patterns),
    ),
)
