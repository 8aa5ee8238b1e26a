"""`wharfinger complete` prints one suggestion per line."""

from __future__ import annotations

import json

from tests.cli.conftest import RunCli


def test_completions_are_printed_one_per_line(run_cli: RunCli, harbour_url: str) -> None:
    assert run_cli("complete", harbour_url, "briefing", "vessel", "ma") == (0, "mary\nmarta\n", "")
    assert run_cli("complete", harbour_url, "log://{vessel}/today", "vessel")[1].split() == ["mary", "marta", "olga"]
    assert json.loads(run_cli("complete", "--json", harbour_url, "briefing", "vessel", "o", "notes=x")[1])[
        "values"
    ] == ["olga"]
    assert run_cli("complete", harbour_url, "briefing")[0] == 2


def test_the_word_after_the_argument_is_its_value_even_if_it_is_empty_or_has_an_equals_sign(
    run_cli: RunCli, harbour_url: str
) -> None:
    assert run_cli("complete", harbour_url, "briefing", "vessel", "", "notes=x")[1].split() == ["mary", "marta", "olga"]
    assert run_cli("complete", harbour_url, "briefing", "vessel", "notes=x") == (0, "", "")
    assert "If there is no VALUE yet, write ''." in " ".join(run_cli("complete", "--help")[1].split())


def test_a_variable_that_a_template_does_not_have_is_reported(run_cli: RunCli, harbour_url: str) -> None:
    code, out, err = run_cli("complete", harbour_url, "log://{vessel}/{day}", "ship")
    assert (code, out) == (2, "")
    assert "log://{vessel}/{day} has no variable 'ship': it has vessel, day." in err


def test_an_unknown_reference_is_reported_with_the_names_of_its_kind(run_cli: RunCli, harbour_url: str) -> None:
    """A bug: for an unknown prompt, templates were listed too."""
    code, _, error = run_cli("complete", harbour_url, "nothing", "vessel")
    assert (code, error.splitlines()[1:]) == (1, ["  | There is: briefing."])
    code, _, error = run_cli("complete", harbour_url, "a://{nothing}", "nothing")
    assert (code, error.splitlines()[1:]) == (1, ["  | There is: log://{vessel}/today."])
