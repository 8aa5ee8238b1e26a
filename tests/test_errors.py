"""The hierarchy of errors: codes, statuses and messages, of local and of remote errors."""

from __future__ import annotations

import inspect

import pytest

from wharfinger import errors
from wharfinger.content.redaction import redacted_text
from wharfinger.errors import ProtocolError, RemoteError, WharfingerError, remote_error

TREE = {thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, WharfingerError)}

ON_THE_WIRE = {
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
"""The specification's codes (spec: base protocol, error codes), with the HTTP status of 2026-07-28."""


def test_codes_and_statuses_are_those_of_the_specification() -> None:
    local = {kind for kind in TREE if issubclass(kind, ProtocolError) and not kind.remote} - {ProtocolError}
    assert {kind: (kind.code, kind.http_status) for kind in local} == ON_THE_WIRE


def test_tree_in_the_docstring_names_every_class() -> None:
    described = errors.__doc__ or ""
    lines = [line.split("──", 1)[1].split()[0] for line in described.splitlines() if "──" in line]
    assert sorted(lines) == sorted(kind.__name__ for kind in TREE - {WharfingerError})


def test_tree_in_the_docstring_shows_the_codes() -> None:
    described = errors.__doc__ or ""
    for kind, (code, status) in ON_THE_WIRE.items():
        line = next(line for line in described.splitlines() if f"── {kind.__name__} " in line)
        assert line.split("──", 1)[1].split()[1:3] == [str(code), str(status)], kind


def test_every_class_is_public_and_has_a_docstring() -> None:
    assert {kind.__name__ for kind in TREE} == set(errors.__all__) - {"remote_error"}
    assert [kind for kind in TREE if not inspect.getdoc(kind)] == []


def test_exit_codes_are_those_of_the_command_line() -> None:
    others = {kind: kind.exit_code for kind in TREE if kind.exit_code != 1}
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


@pytest.mark.parametrize("kind", [errors.ParseError, errors.InvalidRequest, errors.MethodNotFound, errors.Overloaded])
def test_default_message_is_a_sentence(kind: type[ProtocolError]) -> None:
    message = str(kind())
    assert message == kind().message
    assert message.endswith((".", "}")) and message[0].isupper()


def test_data_of_refusals_has_the_shape_of_the_schema() -> None:
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
