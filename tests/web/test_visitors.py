"""The visitors of the page are kept when a server is restarted, unless they have signed out."""

from pathlib import Path

from wharfinger.protocol.principal import ANONYMOUS
from wharfinger.web.visitors import Visitors


def test_a_visitor_who_signed_out_is_not_admitted_after_a_restart(tmp_path: Path) -> None:
    visitors = Visitors(tmp_path)
    left, stays = visitors.admit(ANONYMOUS), visitors.admit(ANONYMOUS)
    visitor = visitors.find(left)
    assert visitor is not None
    visitors.forget(visitor)
    restarted = Visitors(tmp_path)
    assert restarted.find(left) is None
    assert restarted.find(stays) is not None
