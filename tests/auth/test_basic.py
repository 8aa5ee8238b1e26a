"""The header with which a client identifies itself to an authorization server."""

import base64

from wharfinger.auth.basic import basic_authorization


def test_the_id_and_the_secret_are_form_encoded() -> None:
    """RFC 6749, appendix B, with its example."""
    scheme, _, credentials = basic_authorization(" %&+£€", "a:b/~").partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(credentials) == b"+%25%26%2B%C2%A3%E2%82%AC:a%3Ab%2F~"
