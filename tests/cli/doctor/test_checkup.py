"""What is told of an offer: each check by one that has the fault, and one that has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.cli.doctor.checkup import check
from wharfinger.cli.doctor.host_support import HOST_SUPPORT
from wharfinger.cli.doctor.offer import Listed, Offer, Read, costs, tokens
from wharfinger.protocol.revisions import SUPPORTED

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


def offer(**options: Any) -> Offer:
    """A good server, with this or that changed."""
    lists: dict[str, Any] = {"tools": [tool()], "prompts": [], "resources": [resource()], "templates": []}
    for name in lists:
        lists[name] = options.pop(name, lists[name])
    listed = {
        name: items if isinstance(items, Listed) else Listed(items=items, largest_page=len(items))
        for name, items in lists.items()
    }
    capabilities = t.ServerCapabilities(
        tools=t.ToolsCapability() if listed["tools"].items else UNSET,
        resources=t.ResourcesCapability() if listed["resources"].items or listed["templates"].items else UNSET,
        completions={},
    )
    fields: dict[str, Any] = {
        "name": "harbour",
        "version": "1.0",
        "instructions": "Ships and berths.",
        "capabilities": capabilities,
        "revisions": SUPPORTED,
    }
    return Offer(**(fields | listed | options))


def found(changed: Offer) -> dict[str, Any]:
    return {finding.check: finding for finding in check(changed)}


def test_nothing_is_told_of_a_good_server() -> None:
    assert check(offer(prompts=[prompt()], templates=[template()])) == []


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
        ("long-name-with-prefix", "advice", {"tools": [tool("b" * 60)]}, "b" * 60),
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
def test_a_fault_is_told_with_its_place(name: str, severity: str, changed: dict[str, Any], where: str) -> None:
    finding = found(offer(**changed))[name]
    assert (finding.severity, finding.where) == (severity, (where,))
    assert finding.change
    assert finding.what


@pytest.mark.parametrize("hints", [{"read_only_hint": False}, {"destructive_hint": True}, {"destructive_hint": False}])
def test_a_tool_that_says_whether_it_destroys_says_whether_it_changes(hints: dict[str, bool]) -> None:
    """What `destructive=True` declares: what destroys is not read-only."""
    assert "no-annotations" not in found(offer(tools=[tool(annotations=t.ToolAnnotations(**hints))]))


@pytest.mark.parametrize(
    ("name", "changed", "what"),
    [
        ("no-instructions", {"instructions": " "}, "no instructions"),
        ("long-instructions", {"instructions": "x" * 10_000}, "10,000 characters"),
        ("no-version", {"version": "0"}, "'0'"),
        ("no-version", {"version": ""}, "does not say"),
        ("no-stateless", {"revisions": ("2025-11-25",), "unspoken": ("2026-07-28",)}, "2026-07-28"),
        ("no-handshake", {"revisions": ("2026-07-28",), "unspoken": ("2025-11-25",)}, "2026-07-28 only"),
        ("resources-only", {"tools": []}, "no tools"),
        ("many-tools", {"tools": [tool(f"berth_{n}") for n in range(50)]}, "50 tools"),
        ("many-tools", {"tools": [tool(f"berth_{n}") for n in range(150)]}, "150 tools"),
        ("costly-tools", {"tools": [tool(input_schema={"$comment": "x" * 90_000})]}, "tokens of every conversation"),
        ("many-resources", {"resources": [resource(f"a:{n}") for n in range(300)]}, "300 resources"),
        ("no-pages", {"resources": Listed(items=[resource()], largest_page=2000)}, "a page of 2,000"),
        ("list-fails", {"resources": Listed(error="Internal error")}, "list of resources fails: Internal error"),
        ("invalid-template", {"templates": [template("a:{b")]}, "cannot be read"),
    ],
)
def test_what_holds_of_the_server_is_told(name: str, changed: dict[str, Any], what: str) -> None:
    assert what in found(offer(**changed))[name].what


def test_templates_without_completion_and_empty_capabilities_are_told() -> None:
    bare = t.ServerCapabilities(resources=t.ResourcesCapability(), prompts=t.PromptsCapability())
    told = found(offer(templates=[template()], capabilities=bare, tools=[tool()]))
    assert "completes no variable" in told["no-completion"].what
    assert "declares prompts" in told["nothing-listed"].what


@pytest.mark.parametrize(
    ("name", "read", "where"),
    [
        ("unreadable", Read(error="Internal error"), "harbour://tide (Internal error)"),
        ("empty-read", Read(), "harbour://tide"),
        (
            "wrong-size",
            Read(contents=(t.ResourceContents(uri="harbour://tide", text="höher"),)),
            "harbour://tide (6 bytes, listed 4)",
        ),
        (
            "wrong-size",
            Read(contents=(t.ResourceContents(uri="harbour://tide", blob=b"12345"),)),
            "harbour://tide (5 bytes, listed 4)",
        ),
        (
            "other-mime-type",
            Read(contents=(t.ResourceContents(uri="harbour://tide", text="1234", mime_type="text/csv"),)),
            "harbour://tide (text/csv, listed text/plain)",
        ),
    ],
)
def test_what_came_of_reading_is_told(name: str, read: Read, where: str) -> None:
    assert found(offer(reads={"harbour://tide": read}))[name].where == (where,)


@pytest.mark.parametrize(
    "contents",
    [
        t.ResourceContents(uri="harbour://tide", text="1234", mime_type="text/plain; charset=utf-8"),
        t.ResourceContents(uri="harbour://tide", text="12", meta={"wharfinger/encoding": "utf-16-le"}),
        t.ResourceContents(uri="harbour://tide", text="12", meta={"wharfinger/window": {"begin": 0, "end": 2}}),
    ],
)
def test_a_read_that_agrees_with_the_list_is_not(contents: t.ResourceContents) -> None:
    assert check(offer(reads={"harbour://tide": Read(contents=(contents,))})) == []


def test_a_page_that_a_tool_names_must_be_there() -> None:
    named = tool(meta={"ui": {"resourceUri": "ui://a/b"}})
    told = found(offer(tools=[named], reads={"ui://a/b": Read(error="not found")}))
    assert told["missing-app"].where == ("assign_berth (ui://a/b)",)
    assert check(offer(tools=[tool(meta={"ui": "odd"})])) == []


def test_problems_come_first() -> None:
    told = check(offer(tools=[tool("get", description="")]))
    assert [finding.severity for finding in told] == ["problem", "advice"]


def test_what_definitions_cost_is_estimated_by_length() -> None:
    dear = tool("dear", description="x" * 4000)
    assert [cost.name for cost in costs(offer(tools=[tool(), dear]))] == ["dear", "assign_berth"]
    assert costs(offer(tools=[dear]))[0].tokens > 1000
    assert (tokens(""), tokens("abc"), tokens("abcde")) == (0, 1, 2)


def test_the_page_on_hosts_tells_of_each_host_in_the_table() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "connect_your_host.md").read_text(encoding="utf-8")
    for support in HOST_SUPPORT:
        assert support.host in page
        assert {support.templates, support.prompts, support.apps} <= {"yes", "no", "?"}


def test_a_schema_as_deep_as_it_likes_is_looked_through() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    assert "schema-reaches-out" not in found(offer(tools=[tool(input_schema=schema)]))
