"""Each check of `wharfinger doctor` reports servers with its fault and no other servers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.cli.doctor.checks import CHECKS, check
from wharfinger.cli.doctor.survey import SampleRead, Survey, SurveyedList, tokens, tool_costs
from wharfinger.protocol.revisions import SUPPORTED

NOT_JSON = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
GOOD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ship": {"type": "string", "description": "Name of the ship."}},
}


def tool(name: str = "assign_berth", **options: Any) -> t.Tool:
    fields: dict[str, Any] = {
        "title": "Assign a berth",
        "description": "Give a ship a berth at the quay with the most water.",
        "input_schema": GOOD_SCHEMA,
        "annotations": t.ToolAnnotations(read_only_hint=False, destructive_hint=True),
    }
    return t.Tool(name=name, **(fields | options))


def resource(uri: str = "harbour://tide", **options: Any) -> t.Resource:
    fields: dict[str, Any] = {"name": "tide", "title": "Tide", "mime_type": "text/plain", "size": 4}
    return t.Resource(uri=uri, **(fields | options))


def template(text: str = "harbour://{ship}", **options: Any) -> t.ResourceTemplate:
    return t.ResourceTemplate(**({"uri_template": text, "name": "ship", "description": "The log of a ship."} | options))


def prompt(name: str = "brief_captain", **options: Any) -> t.Prompt:
    fields: dict[str, Any] = {"title": "Brief", "description": "Tell a captain of the port.", "arguments": UNSET}
    return t.Prompt(name=name, **(fields | options))


def survey(**options: Any) -> Survey:
    """Return the survey of a correct server, with changes."""
    lists: dict[str, Any] = {"tools": [tool()], "prompts": [], "resources": [resource()], "templates": []}
    for name in lists:
        lists[name] = options.pop(name, lists[name])
    surveyed_lists = {
        name: items if isinstance(items, SurveyedList) else SurveyedList(items=items, largest_page=len(items))
        for name, items in lists.items()
    }
    capabilities = t.ServerCapabilities(
        tools=t.ToolsCapability() if surveyed_lists["tools"].items else UNSET,
        resources=t.ResourcesCapability()
        if surveyed_lists["resources"].items or surveyed_lists["templates"].items
        else UNSET,
        completions={},
    )
    fields: dict[str, Any] = {
        "name": "harbour",
        "version": "1.0",
        "instructions": "Ships and berths: harbour://SHIP is the log of a ship.",
        "capabilities": capabilities,
        "supported": SUPPORTED,
    }
    return Survey(**(fields | surveyed_lists | options))


def findings_by_check(changed: Survey) -> dict[str, Any]:
    return {finding.check: finding for finding in check(changed)}


def test_a_good_server_has_no_findings() -> None:
    assert check(survey(prompts=[prompt()], templates=[template()])) == []


@pytest.mark.parametrize(
    ("name", "severity", "changed", "where"),
    [
        ("no-description", "problem", {"tools": [tool(description=UNSET)]}, "assign_berth"),
        ("no-description", "problem", {"prompts": [prompt(description="")]}, "brief_captain"),
        ("no-description", "advice", {"templates": [template(description=UNSET)]}, "harbour://{ship}"),
        ("no-description", "advice", {"resources": [resource(title=UNSET)]}, "harbour://tide"),
        ("short-description", "advice", {"tools": [tool(description="Berth.")]}, "assign_berth"),
        ("long-description", "advice", {"tools": [tool(description="x" * 2000)]}, "assign_berth"),
        ("no-title", "advice", {"tools": [tool(title=UNSET)]}, "assign_berth"),
        ("vague-name", "advice", {"tools": [tool("get")]}, "get"),
        ("vague-name", "advice", {"tools": [tool("tool_1")]}, "tool_1"),
        ("vague-name", "advice", {"prompts": [prompt("x")]}, "x"),
        ("duplicate-name", "problem", {"tools": [tool(), tool()]}, "assign_berth"),
        ("confusable-names", "advice", {"tools": [tool(), tool("assignBerth")]}, "assign_berth / assignBerth"),
        ("invalid-name", "problem", {"tools": [tool("assign berth")]}, "'assign berth'"),
        ("unportable-name", "advice", {"tools": [tool("berth.assign")]}, "berth.assign"),
        ("long-name", "problem", {"tools": [tool("b" * 65)]}, "b" * 65),
        ("long-name-with-prefix", "advice", {"tools": [tool("b" * 60)]}, "mcp__harbour__" + "b" * 60),
        ("schema-not-object", "problem", {"tools": [tool(input_schema={"type": "array"})]}, "assign_berth"),
        ("schema-choice", "advice", {"tools": [tool(input_schema={"type": "object", "oneOf": []})]}, "assign_berth"),
        (
            "schema-reaches-out",
            "problem",
            {"tools": [tool(input_schema=GOOD_SCHEMA | {"not": [{"$ref": "https://example.com/s.json"}]})]},
            "assign_berth",
        ),
        (
            "large-schema",
            "advice",
            {"tools": [tool(input_schema=GOOD_SCHEMA | {"$comment": "x" * 9000})]},
            "assign_berth",
        ),
        (
            "invalid-header",
            "problem",
            {"tools": [tool(input_schema={"type": "object", "properties": {"a": {"x-mcp-header": "no token"}}})]},
            "assign_berth (x-mcp-header must be a header name (RFC 9110 token).)",
        ),
        (
            "argument-without-description",
            "advice",
            {"tools": [tool(input_schema={"type": "object", "properties": {"ship": {"type": "string"}}})]},
            "assign_berth.ship",
        ),
        (
            "argument-without-description",
            "advice",
            {"prompts": [prompt(arguments=[t.PromptArgument(name="ship")])]},
            "brief_captain.ship",
        ),
        (
            "argument-without-type",
            "advice",
            {"tools": [tool(input_schema={"type": "object", "properties": {"ship": {"description": "Any."}}})]},
            "assign_berth.ship",
        ),
        ("no-annotations", "advice", {"tools": [tool(annotations=UNSET)]}, "assign_berth"),
        ("no-annotations", "advice", {"tools": [tool(annotations=t.ToolAnnotations(title="x"))]}, "assign_berth"),
        (
            "contradicting-annotations",
            "problem",
            {"tools": [tool(annotations=t.ToolAnnotations(read_only_hint=True, destructive_hint=True))]},
            "assign_berth",
        ),
        ("duplicate-uri", "problem", {"resources": [resource(), resource()]}, "harbour://tide"),
        ("invalid-uri", "problem", {"resources": [resource("tide")]}, "'tide'"),
        ("no-mime-type", "advice", {"resources": [resource(mime_type=UNSET)]}, "harbour://tide"),
        ("no-size", "advice", {"resources": [resource(size=UNSET)]}, "harbour://tide"),
        ("app-of-another-type", "problem", {"resources": [resource("ui://a/b")]}, "ui://a/b (text/plain)"),
    ],
)  # fmt: skip
def test_a_fault_is_reported_with_the_name_of_the_feature(
    name: str, severity: str, changed: dict[str, Any], where: str
) -> None:
    finding = findings_by_check(survey(**changed))[name]
    assert (finding.severity, finding.where) == (severity, (where,))
    assert finding.change
    assert finding.what


@pytest.mark.parametrize("hints", [{"read_only_hint": False}, {"destructive_hint": True}, {"destructive_hint": False}])
def test_a_read_only_or_destructive_hint_is_enough_annotation(hints: dict[str, bool]) -> None:
    """As with `destructive=True`: a destructive tool is not read-only."""
    assert "no-annotations" not in findings_by_check(survey(tools=[tool(annotations=t.ToolAnnotations(**hints))]))


@pytest.mark.parametrize(
    ("name", "changed", "where"),
    [
        ("no-instructions", {"instructions": " "}, ()),
        ("long-instructions", {"instructions": "x" * 8193}, ("8,193 characters",)),
        ("unexplained-scheme", {"instructions": "Ships."}, ("harbour: (harbour://tide)",)),
        (
            "unexplained-scheme",
            {"resources": [], "templates": [template("Berth://{n}", description="")]},
            ("berth: (Berth://{n})",),
        ),
        ("no-version", {"version": "0"}, ()),
        ("no-version", {"version": ""}, ()),
        ("no-stateless", {"supported": ("2025-11-25",), "unsupported": ("2026-07-28",)}, ()),
        ("no-handshake", {"supported": ("2026-07-28",), "unsupported": ("2025-11-25",)}, ()),
        ("resources-only", {"tools": []}, ()),
        ("many-tools", {"tools": [tool(f"berth_{n}") for n in range(41)]}, ("41",)),
        ("many-tools", {"tools": [tool(f"berth_{n}") for n in range(128)]}, ("128",)),
        ("too-many-tools", {"tools": [tool(f"berth_{n}") for n in range(129)]}, ("129",)),
        ("costly-tools", {"tools": [tool(input_schema={"$comment": "x" * 90_000})]}, ("about 22,522 tokens",)),
        ("many-resources", {"resources": [resource(f"a:{n}") for n in range(201)]}, ("201",)),
        (
            "many-resources",
            {"resources": SurveyedList(items=[resource(f"a:{n}") for n in range(201)], more=True)},
            ("201 or more",),
        ),
        (
            "no-pages",
            {"resources": SurveyedList(items=[resource()], largest_page=1001)},
            ("resources (1,001 on a page)",),
        ),
        ("list-fails", {"resources": SurveyedList(error="Internal error")}, ("resources (Internal error)",)),
        ("no-completion", {"templates": [template()], "capabilities": t.ServerCapabilities()}, ()),
        (
            "nothing-listed",
            {"capabilities": t.ServerCapabilities(prompts=t.PromptsCapability(), tools=t.ToolsCapability())},
            ("prompts",),
        ),
        (
            "nothing-listed",
            {"resources": [], "capabilities": t.ServerCapabilities(resources=t.ResourcesCapability())},
            ("resources",),
        ),
    ],
)
def test_a_fault_of_the_server_is_reported(name: str, changed: dict[str, Any], where: tuple[str, ...]) -> None:
    assert findings_by_check(survey(**changed))[name].where == where


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("long-instructions", {"instructions": "x" * 8192}),
        ("unexplained-scheme", {"instructions": "Read HARBOUR:// URIs."}),
        ("unexplained-scheme", {"instructions": "Ships.", "templates": [template()]}),
        ("unexplained-scheme", {"instructions": "Ships.", "resources": [resource(description="The tide now.")]}),
        (
            "unexplained-scheme",
            {"instructions": "", "resources": [resource("file:///a"), resource("https://a.example/")]},
        ),
        ("many-tools", {"tools": [tool(f"berth_{n}") for n in range(40)]}),
        ("too-many-tools", {"tools": [tool(f"berth_{n}") for n in range(128)]}),
        ("many-tools", {"tools": [tool(f"berth_{n}") for n in range(129)]}),
        ("many-resources", {"resources": [resource(f"a:{n}") for n in range(200)]}),
        ("no-pages", {"resources": SurveyedList(items=[resource()], largest_page=1000)}),
        ("long-description", {"tools": [tool(description="x" * 1024)]}),
        ("short-description", {"tools": [tool(description="x" * 12)]}),
        ("long-name", {"tools": [tool("b" * 64)]}),
        ("long-name-with-prefix", {"tools": [tool("b" * (64 - len("mcp__harbour__")))]}),
        ("invalid-name", {"tools": [tool("b" * 128)]}),
        ("vague-name", {"tools": [tool("abc")]}),
        ("nothing-listed", {"resources": [], "templates": [template()]}),
        ("nothing-listed", {"tools": SurveyedList(error="Internal error")}),
        ("no-stateless", {"supported": ("2025-11-25",)}),
        ("no-description", {"resources": [resource(f"a:{n}", title=UNSET) for n in range(201)]}),
    ],
)
def test_a_value_just_within_a_bound_has_no_finding(name: str, changed: dict[str, Any]) -> None:
    assert name not in findings_by_check(survey(**changed))


def test_letters_and_vowel_signs_of_other_scripts_distinguish_names() -> None:
    """A bug: names without ASCII letters were reported as different only in punctuation."""
    names = ["要約", "翻訳", "की", "का", "größer", "großer"]
    findings = check(survey(prompts=[prompt(name) for name in names]))
    assert "confusable-names" not in [finding.check for finding in findings]


def test_an_invalid_template_is_reported_with_the_reason() -> None:
    (where,) = findings_by_check(survey(templates=[template("a:{b")]))["invalid-template"].where
    assert where.startswith("a:{b ('{' without '}'")


def test_each_check_is_unique_by_name_and_kind_of_item() -> None:
    assert len({(check.name, check.what) for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(
    ("name", "read", "where"),
    [
        ("unreadable", SampleRead(error="Internal error"), "harbour://tide (Internal error)"),
        ("empty-read", SampleRead(), "harbour://tide"),
        (
            "wrong-size",
            SampleRead(contents=(t.ResourceContents(uri="harbour://tide", text="höher"),)),
            "harbour://tide (6 bytes, listed 4)",
        ),
        (
            "wrong-size",
            SampleRead(contents=(t.ResourceContents(uri="harbour://tide", blob=b"12345"),)),
            "harbour://tide (5 bytes, listed 4)",
        ),
        (
            "other-mime-type",
            SampleRead(contents=(t.ResourceContents(uri="harbour://tide", text="1234", mime_type="text/csv"),)),
            "harbour://tide (text/csv, listed text/plain)",
        ),
        (
            "false-mime-type",
            SampleRead(contents=(t.ResourceContents(uri="harbour://tide", text="{no}", mime_type="application/json"),)),
            f"harbour://tide (declared application/json, but it is not JSON: {NOT_JSON})",
        ),
        (
            "false-mime-type",
            SampleRead(contents=(t.ResourceContents(uri="harbour://tide", blob=b"<svg", mime_type="image/png"),)),
            "harbour://tide (declared image/png, but it begins like image/svg+xml)",
        ),
        (
            "false-mime-type",
            SampleRead(contents=(t.ResourceContents(uri="harbour://tide", blob=b"GIF89a\1\0", mime_type="image/gif"),)),
            "harbour://tide (declared text/plain, but it begins like image/gif)",
        ),
    ],
)
def test_a_fault_of_a_read_is_reported(name: str, read: SampleRead, where: str) -> None:
    assert findings_by_check(survey(reads={"harbour://tide": read}))[name].where == (where,)


@pytest.mark.parametrize(
    "contents",
    [
        t.ResourceContents(uri="harbour://tide", text="1234", mime_type="text/plain; charset=utf-8"),
        t.ResourceContents(uri="harbour://tide", text="12", meta={"wharfinger/encoding": "utf-16-le"}),
        t.ResourceContents(uri="harbour://tide", text="12", meta={"wharfinger/window": {"begin": 0, "end": 2}}),
    ],
)
def test_a_read_that_matches_the_list_is_not_reported(contents: t.ResourceContents) -> None:
    assert check(survey(reads={"harbour://tide": SampleRead(contents=(contents,))})) == []


def test_a_missing_app_of_a_tool_is_reported() -> None:
    tool_with_app = tool(meta={"ui": {"resourceUri": "ui://a/b"}})
    findings = findings_by_check(survey(tools=[tool_with_app], reads={"ui://a/b": SampleRead(error="not found")}))
    assert findings["missing-app"].where == ("assign_berth (ui://a/b)",)
    assert check(survey(tools=[tool(meta={"ui": "odd"})])) == []


def test_problems_are_reported_before_advice() -> None:
    findings = check(survey(tools=[tool("get", description="")]))
    assert [finding.severity for finding in findings] == ["problem", "advice"]


def test_the_cost_of_definitions_is_estimated_by_length() -> None:
    dear = tool("dear", description="x" * 4000)
    assert [cost.name for cost in tool_costs(survey(tools=[tool(), dear]))] == ["dear", "assign_berth"]
    assert tool_costs(survey(tools=[dear]))[0].tokens > 1000
    assert (tokens(""), tokens("abc"), tokens("abcde")) == (0, 1, 2)


def test_a_deeply_nested_schema_is_checked() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    assert "schema-reaches-out" not in findings_by_check(survey(tools=[tool(input_schema=schema)]))
