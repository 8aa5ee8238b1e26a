"""The hierarchy of errors: codes, statuses and messages, of local and of remote errors."""

from __future__ import annotations

import inspect

import pytest

from wharfinger import errors
from wharfinger.content.redaction import redacted_text
from wharfinger.errors import ProtocolError, RemoteError, WharfingerError, remote_error

ERROR_CLASSES = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, WharfingerError)}

CODES_AND_STATUSES = {
    errors.ParseError: (-32700, 400),
    errors.InvalidRequest: (-32600, 400),
    errors.InsufficientScope: (-32600, 403),
    errors.MethodNotFound: (-32601, 404),
    errors.InvalidParams: (-32602, 200),
    errors.InvalidArgument: (-32602, 200),
    errors.InternalError: (-32603, 200),
    errors.HandlerFailed: (-32603, 200),
    errors.Overloaded: (-32603, 503),
    errors.RateLimited: (-32603, 429),
    errors.HeaderMismatch: (-32020, 400),
    errors.MissingClientCapability: (-32021, 400),
    errors.UnsupportedVersion: (-32022, 400),
    errors.ResourceNotFound: (-32602, 200),
    errors.PermissionDenied: (-32602, 200),
    errors.URLElicitationRequired: (-32042, 200),
    errors.NoAnswer: (-32603, 200),
    errors.Declined: (-32603, 200),
    errors.Cancelled: (-32603, 200),
}
"""The codes of the specification (base protocol, error codes), with their HTTP status in 2026-07-28."""


def test_codes_and_statuses_match_the_specification() -> None:
    local = {
        error_class
        for error_class in ERROR_CLASSES
        if issubclass(error_class, ProtocolError) and not error_class.remote
    } - {ProtocolError}
    assert {error_class: (error_class.code, error_class.http_status) for error_class in local} == CODES_AND_STATUSES


def test_the_tree_in_the_docstring_names_every_class() -> None:
    docstring = errors.__doc__ or ""
    lines = [line.split("──", 1)[1].split()[0] for line in docstring.splitlines() if "──" in line]
    assert sorted(lines) == sorted(error_class.__name__ for error_class in ERROR_CLASSES - {WharfingerError})


def test_the_tree_in_the_docstring_shows_codes_and_statuses() -> None:
    docstring = errors.__doc__ or ""
    for error_class, (code, status) in CODES_AND_STATUSES.items():
        line = next(line for line in docstring.splitlines() if f"── {error_class.__name__} " in line)
        assert line.split("──", 1)[1].split()[1:3] == [str(code), str(status)], error_class


def test_every_class_is_public_and_has_a_docstring() -> None:
    assert {error_class.__name__ for error_class in ERROR_CLASSES} == set(errors.__all__) - {"remote_error"}
    assert [error_class for error_class in ERROR_CLASSES if not inspect.getdoc(error_class)] == []


def test_connection_errors_have_their_own_exit_codes() -> None:
    others = {error_class: error_class.exit_code for error_class in ERROR_CLASSES if error_class.exit_code != 1}
    assert others == {
        errors.ConnectionFailed: 3,
        errors.ConnectionLost: 3,
        errors.NotAuthorized: 4,
        errors.NotMCP: 3,
        errors.UnsupportedRevision: 3,
    }


def test_an_instance_may_override_the_values_of_its_class() -> None:
    error = errors.InvalidParams("Send _meta.", http_status=400, data={"a": 1}, id=7)
    assert (error.code, error.http_status, error.message, error.data, error.id) == (
        -32602,
        400,
        "Send _meta.",
        {"a": 1},
        7,
    )
    assert (errors.InvalidParams.http_status, errors.InvalidParams.id) == (200, None)


@pytest.mark.parametrize(
    "error_class", [errors.ParseError, errors.InvalidRequest, errors.MethodNotFound, errors.Overloaded]
)
def test_the_default_message_is_a_sentence(error_class: type[ProtocolError]) -> None:
    message = str(error_class())
    assert message == error_class().message
    assert message.endswith((".", "}")) and message[0].isupper()


def test_error_data_matches_the_schema() -> None:
    assert errors.UnsupportedVersion("1999-01-01", ["2026-07-28"]).data == {
        "supported": ["2026-07-28"],
        "requested": "1999-01-01",
    }
    assert errors.MissingClientCapability({"sampling": {}}).data == {"requiredCapabilities": {"sampling": {}}}
    assert errors.ResourceNotFound("a:b").data == {"uri": "a:b"}


@pytest.mark.parametrize(
    ("code", "data", "expected"),
    [
        (-32002, None, errors.RemoteResourceNotFound),
        (-32602, {"uri": "a:b"}, errors.RemoteResourceNotFound),
        (-32602, {"uri": 5}, errors.RemoteInvalidParams),
        (-32602, None, errors.RemoteInvalidParams),
        (-32601, None, errors.RemoteMethodNotFound),
        (-32603, None, RemoteError),
        (5, "x", RemoteError),
    ],
)
def test_the_class_of_a_remote_error_depends_on_its_code(code: int, data: object, expected: type[RemoteError]) -> None:
    error = remote_error(code, "No.", data)
    assert type(error) is expected
    assert (error.code, error.message, error.data, error.remote) == (code, "No.", data, True)
    assert str(error) == f"No. (error {code})"


def test_a_remote_missing_resource_is_a_resource_not_found() -> None:
    error = remote_error(-32002, "Gone.", {"uri": "a:b"})
    assert isinstance(error, errors.ResourceNotFound)
    assert error.uri == "a:b"
    assert not errors.ResourceNotFound.remote


def test_the_stderr_of_a_child_process_is_part_of_the_message() -> None:
    error = errors.ConnectionFailed("`harbour` ended at once.", stderr="Traceback\nKeyError: 'x'\n")
    assert str(error) == "`harbour` ended at once.\nTraceback\nKeyError: 'x'"
    assert isinstance(error, ConnectionError)


def test_timeouts_are_timeout_errors_and_missing_extras_are_import_errors() -> None:
    assert isinstance(errors.RequestTimeout("Too slow."), TimeoutError)
    text = "git: needs the extra 'git'. Run pip install 'wharfinger[git]', or uvx --from 'wharfinger[git]' wharfinger"
    assert str(errors.MissingExtra("git", "git:")) == text
    assert isinstance(errors.MissingExtra("git", "git:"), ImportError)


def test_the_command_that_installs_an_extra_is_not_redacted() -> None:
    """`'auth': pip` looks like a password because of its name."""
    text = str(errors.MissingExtra("auth", "Verifying signed tokens"))
    assert redacted_text(text) == text
