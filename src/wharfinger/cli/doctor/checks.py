"""The checks of `wharfinger doctor`, one in each row: the problem, the function that finds it, and the advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from wharfinger.cli.doctor import predicates as p
from wharfinger.cli.doctor.survey import Survey, as_json, text_of, tool_costs

__all__ = ["CHECKS", "DoctorFinding", "check"]

Severity = Literal["problem", "advice"]

SHORT_DESCRIPTION_CHARACTERS, LONG_DESCRIPTION_CHARACTERS = 12, 1024
MAX_INSTRUCTIONS_CHARACTERS = 8192
MAX_SCHEMA_CHARACTERS = 8192
"""Maximum number of characters of one tool's input schema as JSON."""
COSTLY_TOKENS = 20_000
"""Maximum number of tokens of the definitions of all tools: a tenth of a common context window."""
MANY_TOOLS, TOO_MANY_TOOLS = 40, 128
MANY_RESOURCES = 200


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to change: the problem, with the names or URIs in `where`, and the advice."""

    severity: Severity
    check: str
    what: str
    change: str
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One check. `find` returns the names, URIs or facts with the fault `what`, or True if the server itself has it."""

    severity: Severity
    name: str
    what: str
    find: Callable[[Survey], Iterable[str] | bool]
    change: str


def check(survey: Survey) -> list[DoctorFinding]:
    """Run all checks and return their findings, problems first."""
    findings: list[DoctorFinding] = []
    for row in CHECKS:
        faults = row.find(survey)
        where = () if isinstance(faults, bool) else tuple(faults)
        if where or faults is True:
            findings.append(
                DoctorFinding(severity=row.severity, check=row.name, what=row.what, change=row.change, where=where)
            )
    return sorted(findings, key=lambda finding: finding.severity != "problem")


def checks_of(kind: str) -> tuple[Check, ...]:
    """Return the checks that tools and prompts have in common."""
    return (
        Check("problem", "duplicate-name", f"Several {kind} have the same name", p.duplicates(kind, "name"),
              "Only one of them can be called: rename the others."),
        Check("advice", "confusable-names", f"Names of {kind} differ only in case or punctuation",
              p.confusable_names(kind), "Models mix them up: give them names that show the difference."),
        Check("advice", "vague-name", f"Names of {kind} do not say what they do", p.names_where(kind, p.is_vague),
              "Name the action and its object, such as find_berth: a model sees it among tools of other servers."),
        Check("problem", "no-description", f"{kind.capitalize()} without a description",
              p.names_where(kind, lambda item: not text_of(item.description)),
              "A model chooses by the description: write a docstring, or pass description=."),
        Check("advice", "short-description", f"Descriptions of {kind} hardly say more than the name",
              p.names_where(kind, lambda item: 0 < len(text_of(item.description)) < SHORT_DESCRIPTION_CHARACTERS),
              "Say what it does, when to use it, and what it returns."),
        Check("advice", "long-description",
              f"Descriptions of {kind} have more than {LONG_DESCRIPTION_CHARACTERS:,} characters",
              p.names_where(kind, lambda item: len(text_of(item.description)) > LONG_DESCRIPTION_CHARACTERS),
              "They are part of every conversation, and some hosts cut them: keep what is needed to choose."),
        Check("advice", "no-title", f"{kind.capitalize()} without a title",
              p.names_where(kind, lambda item: not p.has_title(item)),
              "Menus show it instead of the name: pass title=."),
    )  # fmt: skip


def tools_over(number: int, at_most: int | None = None) -> Callable[[Survey], Iterable[str]]:
    """Return a `Check.find` that returns the number of tools if it is over `number`, but not over `at_most`."""

    def find(survey: Survey) -> Iterable[str]:
        amount = len(survey.tools.items)
        is_found = amount > number and (at_most is None or amount <= at_most)
        return [f"{amount}{' or more' if survey.tools.more else ''}"] if is_found else []

    return find


def costly_total(survey: Survey) -> Iterable[str]:
    """Return the number of tokens that all tools take, if it is too large."""
    total = sum(cost.tokens for cost in tool_costs(survey))
    return [f"about {total:,} tokens"] if total > COSTLY_TOKENS else []


def many_resources(survey: Survey) -> Iterable[str]:
    """Return the number of resources, if it is too large for a menu."""
    amount = len(survey.resources.items)
    return [f"{amount:,}{' or more' if survey.resources.more else ''}"] if amount > MANY_RESOURCES else []


def undescribed_resources(survey: Survey) -> Iterable[str]:
    """Find resources that have neither description nor title, except in a long list, which nobody reads to the end."""
    items = survey.resources.items if len(survey.resources.items) <= MANY_RESOURCES else ()
    return (item.uri for item in items if not text_of(item.description) and not text_of(item.title))


CHECKS: tuple[Check, ...] = (
    # The lists.
    Check("problem", "list-fails", "Lists fail", p.failed_lists,
          "No host can show what is in them: see the server's log."),
    Check("advice", "no-pages", "Lists have large pages", p.large_pages,
          f"Answer in pages of at most {p.MAX_PAGE_ITEMS:,}, with nextCursor."),
    Check("advice", "nothing-listed", "The server declares capabilities, but lists nothing", p.empty_capabilities,
          "Declare a capability only if there is something to list."),
    # Reads of resources.
    Check("problem", "unreadable", "Resources cannot be read", p.unreadable,
          "What is listed must be readable: fix it, or do not list it."),
    Check("problem", "empty-read", "Reading returns no content",
          lambda survey: (uri for uri, read in survey.reads.items() if not (read.error or read.contents)),
          "An empty resource has one content with an empty text."),
    Check("problem", "wrong-size", "Resources have a different size than the list says", p.wrong_sizes,
          "`size` is in bytes, before any encoding: correct it, or leave it out."),
    Check("advice", "other-mime-type", "Resources have a different MIME type than the list says", p.wrong_mime_types,
          "Use the same type in both places."),
    Check("problem", "false-mime-type", "Contents contradict their MIME type", p.contradicted_types,
          "Hosts trust the type: correct it, or the content."),
    # Tools and prompts.
    *checks_of("tools"),
    *checks_of("prompts"),
    Check("problem", "invalid-name", "Names of tools have forbidden characters, or more than 128 characters",
          lambda survey: (repr(tool.name) for tool in survey.tools.items if not p.VALID_NAME.fullmatch(tool.name)),
          "Use letters, digits, '_' and '-'."),
    Check("advice", "unportable-name", "Names of tools have '.' or '/'",
          p.names_where("tools", lambda tool: p.VALID_NAME.fullmatch(tool.name)
                        and not p.PORTABLE_NAME.fullmatch(tool.name)),
          "Model APIs accept letters, digits, '_' and '-': hosts must rename these tools, or leave them out."),
    Check("problem", "long-name", f"Names of tools have more than {p.MAX_NAME_CHARACTERS} characters",
          p.names_where("tools", lambda tool: p.MAX_NAME_CHARACTERS < len(tool.name) <= 128),
          f"Model APIs accept {p.MAX_NAME_CHARACTERS}."),
    Check("advice", "long-name-with-prefix",
          f"Names of tools have more than {p.MAX_NAME_CHARACTERS} characters with the prefix that hosts add",
          p.names_too_long_with_prefix, "Shorten the name of the tool or of the server."),
    Check("problem", "schema-not-object", "Input schemas do not describe an object",
          p.schemas_where(lambda schema: schema.get("type") != "object"),
          'Arguments are a JSON object: write "type": "object" at the root.'),
    Check("advice", "schema-choice", "Input schemas have oneOf, anyOf or allOf at the root",
          p.schemas_where(lambda schema: {"oneOf", "anyOf", "allOf"} & schema.keys()),
          "Several model APIs reject that: move the choice into a property."),
    Check("problem", "schema-reaches-out", "Input schemas refer to other documents",
          p.schemas_where(p.has_external_reference), "References are not fetched: copy the definition into $defs."),
    Check("advice", "large-schema", f"Input schemas have more than {MAX_SCHEMA_CHARACTERS:,} characters",
          p.schemas_where(lambda schema: len(as_json(schema)) > MAX_SCHEMA_CHARACTERS),
          "They are part of every conversation: split the tool, or take fewer arguments."),
    Check("problem", "invalid-header", "Tools have an invalid x-mcp-header", p.invalid_headers,
          "Clients of stateless HTTP must leave these tools out."),
    Check("advice", "no-annotations", "Tools do not say whether they change anything",
          p.names_where("tools", lambda tool: p.hint(tool, "read_only_hint") is None
                        and p.hint(tool, "destructive_hint") is None),
          "Hosts ask a person before each call: set readOnlyHint, or destructiveHint if the tool changes something."),
    Check("problem", "contradicting-annotations", "Tools have both readOnlyHint and destructiveHint",
          p.names_where("tools", lambda tool: p.hint(tool, "read_only_hint") and p.hint(tool, "destructive_hint")),
          "Set only one of readOnlyHint and destructiveHint."),
    Check("advice", "argument-without-description", "Arguments without a description", p.arguments_without_description,
          'Say what goes in, with unit and format: `Args:` in the docstring, or Annotated[str, "…"].'),
    Check("advice", "argument-without-type", "Arguments without a type", p.arguments_without_type,
          "A model may send anything: annotate the parameter."),
    Check("advice", "many-tools", "The server has many tools", tools_over(MANY_TOOLS, at_most=TOO_MANY_TOOLS),
          "With many tools, models choose worse: merge some, or split the server."),
    Check("problem", "too-many-tools", "The server has too many tools", tools_over(TOO_MANY_TOOLS),
          f"Hosts send at most {TOO_MANY_TOOLS} tools of all servers together: split the server, or merge tools."),
    Check("advice", "costly-tools", "The definitions of the tools take many tokens of every conversation", costly_total,
          "Shorten the largest ones: descriptions, enums, nested objects."),
    # Resources and templates.
    Check("problem", "duplicate-uri", "Several resources have the same URI", p.duplicates("resources", "uri"),
          "Only one of them can be read: give each its own URI."),
    Check("problem", "invalid-uri", "URIs of resources are not absolute",
          lambda survey: (repr(item.uri) for item in survey.resources.items if not p.ABSOLUTE_URI.fullmatch(item.uri)),
          "Write a scheme and a path, such as harbour://berths/7."),
    Check("advice", "no-mime-type", "Resources without a MIME type",
          p.resources_where(lambda item: not text_of(item.mime_type)),
          "Hosts use it to choose how to show them: pass mime_type=."),
    Check("advice", "no-size", "Resources without a size",
          p.resources_where(lambda item: not isinstance(item.size, int) and item.mime_type != "inode/directory"),
          "A host that does not know the size may read everything to find out: pass size= if it is known."),
    Check("advice", "no-description", "Resources with neither title nor description", undescribed_resources,
          "Menus show it next to the name: pass title= or description=."),
    Check("advice", "no-description", "Resource templates without a description",
          lambda survey: (item.uri_template for item in survey.templates.items if not text_of(item.description)),
          "Say what the variables mean: people and models know nothing else about them."),
    Check("problem", "invalid-template", "Resource templates are invalid", p.invalid_templates,
          "Templates follow RFC 6570."),
    Check("advice", "unexplained-scheme", "The server has URI schemes of its own, and does not explain them",
          p.unexplained_schemes,
          "Say what they mean and which parameters they take: in the instructions, or in a template's description."),
    Check("advice", "no-completion", "The server has templates, but completes no variables",
          lambda survey: bool(survey.templates.items) and not isinstance(survey.capabilities.completions, dict),
          "People pick from completions, or have to guess: Annotated[str, Complete(function)]."),
    Check("problem", "outage", "Data is missing or could not be renewed", p.outages,
          "Check that the server can reach it: the address, the network, and its credentials."),
    Check("problem", "missing-app", "Tools name a page that cannot be read", p.missing_pages,
          "Publish it with server.add_app(), or correct `_meta.ui.resourceUri`."),
    Check("problem", "app-of-another-type", "Pages have a MIME type that hosts do not show", p.pages_of_another_type,
          "Use text/html;profile=mcp-app."),
    Check("advice", "many-resources", "The server lists many resources", many_resources,
          "Some hosts put the whole list into a menu or a prompt: list what matters, and add a template for the rest."),
    Check("advice", "resources-only", "The server has resources and no tools",
          lambda survey: bool(survey.resources.items or survey.templates.items) and not survey.tools.items,
          "Several hosts show only tools: add server.include(resource_tools()), which lists and reads with tools."),
    # The server.
    Check("problem", "no-handshake", "The server speaks no revision that most hosts use", p.no_handshake,
          "Most hosts still open with `initialize`: serve 2025-11-25 and 2025-06-18 too."),
    Check("advice", "no-stateless", "The server does not speak 2026-07-28", p.no_stateless,
          "New hosts try it first, and need one more round trip to fall back."),
    Check("advice", "no-instructions", "The server has no instructions",
          lambda survey: not text_of(survey.instructions),
          "Say in a few sentences what it is for and how its tools work together; hosts give them to the model."),
    Check("advice", "long-instructions", "The instructions are long",
          lambda survey: [f"{len(survey.instructions):,} characters"]
          if len(survey.instructions) > MAX_INSTRUCTIONS_CHARACTERS else [],
          "They are part of every conversation: keep the few sentences that matter."),
    Check("advice", "no-version", "The server has no version",
          lambda survey: survey.version in ("", "0", "0.0.0"),
          'Set one, as in Server("name", version="1.0"): bug reports and caches need it.'),
)  # fmt: skip
"""All checks, in the order in which findings of the same severity are shown."""
