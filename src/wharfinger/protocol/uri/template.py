"""URI templates (RFC 6570, level 4): expand a template, and match a URI to a template.

The RFC defines only expansion. Matching follows these rules:

- The URI is not normalised. Only the case of escapes is ignored, and characters that a URI cannot contain (such as "ü"
  or a space) are equal to their escaped form. A URI with a malformed escape, or with escapes that are not UTF-8,
  matches nothing.
- Values are decoded once, after matching: "%252e" is the value "%2e".
- A value that could lead a handler out of its folder does not match (see `is_unsafe`): a segment never contains a
  separator, and `{+x}` and `{#x}` contain no ".." unless `allow_traversal` is set. A query may contain anything.
- `{x}` is at least one character, without "/", "?" and "#". Other reserved characters may be unescaped, except one that
  begins the next part. `{/x*}` is a list of segments. `{+x}` and `{#x}` may be empty, and may contain anything but a
  "?", "#" or "&" that a later part needs.
- Expressions with an operator (`{/x}`, `{.x}`, `{;x}`, `{?x}`, `{&x}`, `{#x}`) may be absent; their variables are then
  missing. The names in `{;…}` and in `{?…}{&…}` may come in any order. An unknown or repeated name does not match,
  unless an exploded variable takes it.
- An exploded variable is a list. A named one (`{?x*}`) is the list of all values that have its name. If there are
  none, it is a map of the names that no other variable has. An unnamed one is a map only if `maps` says so, because
  "/year=2024/month=05" is more often a path than a map.
- If a variable could contain the literal after it, the last occurrence ends the variable: `{name}.{ext}` reads
  "a.tar.gz" as "a.tar" and "gz". A template such as `{a}{b}`, which does not say where a variable ends, can only be
  expanded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from wharfinger.errors import WharfingerError
from wharfinger.protocol.uri.matcher import Atom, Matcher, Placeholder, UnclearBoundary, may_meet

__all__ = [
    "Expression",
    "InvalidTemplate",
    "UnmatchableTemplate",
    "UriTemplate",
    "Value",
    "Variable",
    "canonical_uri",
    "is_unsafe",
]

Value = str | list[str] | dict[str, str]
"""The value of a variable."""

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RESERVED = frozenset(":/?#[]@!$&'()*+,;=")
_ANY = _UNRESERVED | _RESERVED | {"%"}
_SEGMENT = _ANY - frozenset("/?#")


class InvalidTemplate(WharfingerError, ValueError):
    """The text is not a URI template (RFC 6570 §2); `position` is the index of the error."""

    text: str
    position: int

    def __init__(self, problem: str, text: str, position: int) -> None:
        self.text = text
        self.position = position
        super().__init__(f"{problem} at position {position} of the URI template {text!r}")


class UnmatchableTemplate(WharfingerError, ValueError):
    """A valid template that a server cannot use: it does not say where a variable ends. Clients can expand it."""

    def __init__(self, text: str, variable: str) -> None:
        self.text = text
        super().__init__(
            f"The URI template {text!r} can be read in several ways: it does not say where the variable {variable!r} "
            "begins or ends. Put a literal such as '/' between it and the variable next to it."
        )


class Operator(NamedTuple):
    """The syntax of one kind of expression (RFC 6570, appendix A)."""

    first: str
    separator: str
    named: bool
    if_empty: str
    keeps_reserved: bool


OPERATORS: Mapping[str, Operator] = {
    "": Operator("", ",", False, "", False),
    "+": Operator("", ",", False, "", True),
    "#": Operator("#", ",", False, "", True),
    ".": Operator(".", ".", False, "", False),
    "/": Operator("/", "/", False, "", False),
    ";": Operator(";", ";", True, "", False),
    "?": Operator("?", "&", True, "=", False),
    "&": Operator("&", "&", True, "=", False),
}


class Variable(NamedTuple):
    """One variable of an expression; `limit` is the prefix modifier in characters, or 0."""

    name: str
    limit: int = 0
    explode: bool = False


class Expression(NamedTuple):
    """An expression in braces."""

    operator: str
    variables: tuple[Variable, ...]


class UriTemplate:
    """A parsed template. Templates with the same text are equal.

    `maps` has the names of exploded variables that match as maps, in expressions whose URIs have no names (`{x*}`,
    `{/x*}`, ...). With `allow_traversal`, `{+x}` and `{#x}` match absolute paths, "." and ".." segments, and
    encoded separators.

    Raises:
        InvalidTemplate: the text is not a template.
    """

    __slots__ = ("_matcher", "_plain", "_repeats", "_slots", "allow_traversal", "atoms", "parts", "text", "variables")

    text: str
    variables: tuple[str, ...]
    """The names without duplicates, in order of appearance."""
    parts: tuple[str | Expression, ...]
    """The literals, with characters escaped that URIs cannot contain, and the expressions."""
    atoms: tuple[Atom, ...]
    """The literals and placeholders that a URI must match, in order."""

    def __init__(self, text: str, *, maps: Collection[str] = (), allow_traversal: bool = False) -> None:
        self.text = text
        self.allow_traversal = allow_traversal
        self.parts = tuple(parse(text))
        names = [v.name for part in self.parts if isinstance(part, Expression) for v in part.variables]
        self.variables = tuple(dict.fromkeys(names))
        self._repeats = len(names) != len(self.variables)
        self._slots, self.atoms = _slots_and_atoms(self.parts, frozenset(maps))
        self._matcher: Matcher | None = None
        self._plain = not self._repeats and all(
            slot.read is _read_one and not slot.variables[0].limit and slot.operator not in ("+", "#")
            for slot in self._slots
        )
        """Whether each placeholder has one variable, whose value is the matched text if that has no escapes."""

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UriTemplate) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def matcher(self) -> Matcher:
        """The matcher of URIs for this template.

        Raises:
            UnmatchableTemplate: the template does not say where a variable ends.
        """
        if self._matcher is None:
            try:
                self._matcher = Matcher(self.atoms)
            except UnclearBoundary as error:
                raise UnmatchableTemplate(self.text, self._slots[error.placeholder].variables[0].name) from None
        return self._matcher

    def expand(self, values: Mapping[str, object]) -> str:
        """Return the URI for these values (RFC 6570 §3): text, numbers, lists, maps; None, [] and {} are undefined.

        Raises:
            TypeError: a value is of another type, or a prefix modifier is used on a list or map.
        """
        return "".join(part if isinstance(part, str) else _expand(part, values) for part in self.parts)

    def expand_beginning(self, values: Mapping[str, object]) -> tuple[str, frozenset[str], bool]:
        """Return the beginning of the URI, the names of the variables in it, and whether it is complete.

        It is complete if it reaches the query, `{#x}` or the end of the template. Otherwise it ends before the first
        expression that has a variable without a value.
        """
        text, names = "", frozenset[str]()
        for part in self.parts:
            if "?" in text:
                break
            if isinstance(part, str):
                text += part
                continue
            if part.operator in ("?", "&", "#"):
                break
            expected = {variable.name for variable in part.variables}
            if not expected <= values.keys():
                return text, names, False
            text, names = text + _expand(part, values), names | expected
        return text.partition("?")[0], names, True

    def match(self, uri: str, *, check: bool = True) -> dict[str, Value] | None:
        """Return the values of the variables in `uri`; None if it does not match.

        Takes linear time. Without `check`, values that `is_unsafe` refuses match too.

        Raises:
            UnmatchableTemplate: the template does not say where a variable ends.
        """
        canonical = canonical_uri(uri)
        return None if canonical is None else self.match_canonical(canonical, check=check)

    def match_canonical(self, uri: str, *, check: bool = True) -> dict[str, Value] | None:
        """Match a URI that `canonical_uri` returned; see `match`."""
        contents = (self._matcher or self.matcher).fit(uri)
        if contents is None:
            return None
        if self._plain and "%" not in uri:  # nothing to decode; only an escape could hide a separator
            if check and ("." in contents or ".." in contents):
                return None
            if None not in contents:
                return dict(zip(self.variables, contents))  # type: ignore[arg-type]  # noqa: B905  # strict= costs 0.1 µs
        pairs: list[tuple[Variable, Value]] = []
        try:
            for slot, content in zip(self._slots, contents, strict=True):
                if content is None:
                    continue
                before = len(pairs)
                if not slot.read(slot, content, pairs):
                    return None
                if check and self._refuses(slot, content, pairs[before:]):
                    return None
        except ValueError:  # an escape that was cut off by a literal, or bytes that are not UTF-8
            return None
        if self._repeats:
            return _merge_repeated(pairs)
        return {variable.name: value for variable, value in pairs}

    def _refuses(self, slot: Slot, content: str, found: VariableValues) -> bool:
        """Return whether the values of a slot could lead a handler out of its folder. A query may contain anything."""
        if "?" in slot.operator or slot.operator == "&":
            return False
        if slot.operator in ("+", "#"):
            if self.allow_traversal:
                return False
            return "%2F" in content or any(is_unsafe(text, path=True) for text in _texts(found))
        values = [value for _, value in found]
        absolute = any(isinstance(value, list) and len(value) > 1 and not value[0] for value in values)
        return absolute or any(is_unsafe(text) for text in _texts(found))

    def overlaps(self, other: UriTemplate) -> bool:
        """Return whether some URI can match both. The names in a query are not compared."""
        return may_meet(self.atoms, other.atoms)


# --- safe values ------------------------------------------------------------------------------------------------------

_UNSAFE_PART = re.compile(r"[/\\\x00-\x1f\x7f]|\A\.\.?\Z")
_UNSAFE_PATH = re.compile(r"[\\\x00-\x1f\x7f]|\A(?:/|.:)|(?:\A|/)\.\.?(?:/|\Z)")


def is_unsafe(value: str, *, path: bool = False) -> bool:
    """Return whether a decoded value could lead out of the folder that a handler joins it to.

    A segment is unsafe if it is "." or "..", or contains a separator ("/" or a backslash) or a control character. A
    `path` may contain "/", but must not begin with "/" or a drive such as "C:", and must not have the segments "." or
    "..".
    """
    return (_UNSAFE_PATH if path else _UNSAFE_PART).search(value) is not None


def _texts(found: VariableValues) -> Iterator[str]:
    for _, value in found:
        if isinstance(value, str):
            yield value
        else:
            yield from value
            if isinstance(value, dict):
                yield from value.values()


# --- URIs -------------------------------------------------------------------------------------------------------------

_WITHOUT_ESCAPES = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]*+")
_FOREIGN = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]++")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})++")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_UNRESERVED = re.compile(r"[^A-Za-z0-9\-._~]++")
_FOREIGN_OR_BROKEN_ESCAPE = re.compile(r"(?!%[0-9A-Fa-f]{2})[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]")


def canonical_uri(uri: str) -> str | None:
    """Return the URI with its escapes in upper case, and with the characters escaped that a URI cannot contain.

    Returns None if an escape is malformed or is not UTF-8.
    """
    if _WITHOUT_ESCAPES.fullmatch(uri):
        return uri
    if _BROKEN_ESCAPE.search(uri):
        return None
    try:
        escaped = _ESCAPES.sub(_checked_escapes, uri)
        return _FOREIGN.sub(_escape, escaped)
    except ValueError:
        return None


def _checked_escapes(match: re.Match[str]) -> str:
    _unescape(match)
    return match[0].upper()


def _unescape(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("%", "")).decode()


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def _decode(content: str) -> str:
    if "%" not in content:
        return content
    if _BROKEN_ESCAPE.search(content):
        raise ValueError("a broken escape")
    return _ESCAPES.sub(_unescape, content)


def _encode(value: str, keeps_reserved: bool) -> str:
    return (_FOREIGN_OR_BROKEN_ESCAPE if keeps_reserved else _NOT_UNRESERVED).sub(_escape, value)


# --- syntax (RFC 6570 §2) ---------------------------------------------------------------------------------------------

_NAME = re.compile(r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*+")
_LIMIT = re.compile(r"[1-9][0-9]{0,3}(?![0-9])")
_NOT_LITERAL = re.compile(r"[\x00-\x20\x7f\"<>\\^`|{}]|%(?![0-9A-Fa-f]{2})|[\ud800-\udfff]")
_FUTURE_OPERATORS = frozenset("=,!@|")


def parse(text: str) -> Iterable[str | Expression]:
    """Yield the literals and expressions of a template.

    Raises:
        InvalidTemplate: the text is not a template.
    """
    index = 0
    while index < len(text):
        opening = text.find("{", index)
        end = len(text) if opening < 0 else opening
        if end > index:
            yield _parse_literal(text, index, end)
        if opening < 0:
            return
        closing = text.find("}", opening)
        if closing < 0:
            raise InvalidTemplate("'{' without '}'", text, opening)
        yield _parse_expression(text, opening + 1, closing)
        index = closing + 1


def _parse_literal(text: str, start: int, end: int) -> str:
    wrong = _NOT_LITERAL.search(text, start, end)
    if wrong is not None:
        char = wrong[0]
        problem = {"}": "'}' without '{'", "%": "'%' without two hexadecimal digits"}.get(char)
        raise InvalidTemplate(problem or f"the character {char!r}, which must be percent-encoded,", text, wrong.start())
    return _FOREIGN.sub(_escape, _ESCAPES.sub(lambda found: found[0].upper(), text[start:end]))


def _parse_expression(text: str, start: int, end: int) -> Expression:
    operator = text[start] if text[start] in OPERATORS else ""
    if text[start] in _FUTURE_OPERATORS:
        raise InvalidTemplate(f"the operator {text[start]!r}, which is reserved by RFC 6570,", text, start)
    index = start + len(operator)
    variables: list[Variable] = []
    while True:
        variable, index = _parse_variable(text, index, end)
        variables.append(variable)
        if index == end:
            return Expression(operator, tuple(variables))
        if text[index] != ",":
            raise InvalidTemplate(f"{text[index]!r} where ',' or '}}' belongs", text, index)
        index += 1


def _parse_variable(text: str, start: int, end: int) -> tuple[Variable, int]:
    name = _NAME.match(text, start, end)
    if name is None:
        raise InvalidTemplate("no variable name (letters, digits, '_', single dots)", text, start)
    index = name.end()
    if index < end and text[index] == "*":
        return Variable(name[0], explode=True), index + 1
    if index < end and text[index] == ":":
        limit = _LIMIT.match(text, index + 1, end)
        if limit is None:
            raise InvalidTemplate("no prefix length from 1 to 9999", text, index + 1)
        return Variable(name[0], int(limit[0])), limit.end()
    return Variable(name[0]), index


# --- expansion (RFC 6570 §3) ------------------------------------------------------------------------------------------


def _expand(expression: Expression, values: Mapping[str, object]) -> str:
    operator = OPERATORS[expression.operator]
    pieces: list[str] = []
    for variable in expression.variables:
        value = values.get(variable.name)
        if isinstance(value, Mapping):
            pieces += _expand_map(operator, variable, value)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, (list, tuple)):
            pieces += _expand_list(operator, variable, value)  # pyright: ignore[reportUnknownArgumentType]
        elif value is not None:
            whole = _scalar_text(variable, value)
            text = _encode(whole[: variable.limit] if variable.limit else whole, operator.keeps_reserved)
            pieces.append(_with_name(operator, variable.name, text) if operator.named else text)
    return operator.first + operator.separator.join(pieces) if pieces else ""


def _expand_list(operator: Operator, variable: Variable, value: Sequence[object]) -> list[str]:
    texts = [_encode(_scalar_text(variable, v), operator.keeps_reserved) for v in value if v is not None]
    _refuse_limit(variable)
    if not texts:
        return []
    if variable.explode:
        return [_with_name(operator, variable.name, text) for text in texts] if operator.named else texts
    joined = ",".join(texts)
    return [_with_name(operator, variable.name, joined) if operator.named else joined]


def _expand_map(operator: Operator, variable: Variable, value: Mapping[object, object]) -> list[str]:
    def encode(member: object) -> str:
        return _encode(_scalar_text(variable, member), operator.keeps_reserved)

    _refuse_limit(variable)
    pairs = [(encode(key), encode(member)) for key, member in value.items() if member is not None]
    if not pairs:
        return []
    if variable.explode:
        return [_with_name(operator, key, text) if operator.named else f"{key}={text}" for key, text in pairs]
    joined = ",".join(f"{key},{text}" for key, text in pairs)
    return [_with_name(operator, variable.name, joined) if operator.named else joined]


def _with_name(operator: Operator, name: str, text: str) -> str:
    return f"{name}={text}" if text else name + operator.if_empty


def _scalar_text(variable: Variable, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise TypeError(f"variable {variable.name!r}: {type(value).__name__} cannot be part of a URI")


def _refuse_limit(variable: Variable) -> None:
    if variable.limit:
        raise TypeError(f"variable {variable.name!r}: a prefix modifier applies to text only (RFC 6570 §2.4.1)")


# --- matching ---------------------------------------------------------------------------------------------------------

VariableValues = list[tuple[Variable, Value]]


class Slot(NamedTuple):
    """The variables of one placeholder, and how to read them; `read` returns False if the content does not match."""

    operator: str
    variables: tuple[Variable, ...]
    maps: frozenset[str]
    read: Callable[[Slot, str, VariableValues], bool]


def _slots_and_atoms(
    parts: Sequence[str | Expression], maps: frozenset[str]
) -> tuple[tuple[Slot, ...], tuple[Atom, ...]]:
    """Return the slots and atoms of a template. Works backwards, because a placeholder depends on what follows it."""
    slots: list[Slot] = []
    atoms: list[Atom] = []
    next_first: frozenset[str] = frozenset()  # the characters that begin the next part, if it is literal or optional
    later: frozenset[str] = frozenset()  # "?", "#" and "&" that later parts need: `{+x}` must not contain them
    for part in reversed(_parts_to_match(parts)):
        if isinstance(part, str):
            atoms.append(part)
            next_first, later = frozenset(part[0]), later | (frozenset(part) & {"?", "#"})
            continue
        placeholder = _make_placeholder(part, next_first, later)
        atoms.append(placeholder)
        slots.append(Slot(part.operator, part.variables, maps, _choose_reader(part)))
        next_first = next_first | frozenset(placeholder.opener) if placeholder.opener else frozenset()
        later |= frozenset(placeholder.opener) & {"?", "#"} if placeholder.opener != "?&" else {"?", "&"}
    slots.reverse()
    atoms.reverse()
    return tuple(slots), tuple(atoms)


def _parts_to_match(parts: Sequence[str | Expression]) -> list[str | Expression]:
    """Return the parts as they are matched: `{/a,b}` as `{/a}{/b}`, and `{?a}{&b}` as one group of names.

    That group has the operator "?&": it begins with "&" if `{?a}` is undefined.
    """
    joined: list[str | Expression] = []
    for part in parts:
        last = joined[-1] if joined else ""
        if isinstance(part, str):
            joined.append(part)
        elif part.operator in ("/", "."):
            joined += [Expression(part.operator, (variable,)) for variable in part.variables]
        elif isinstance(last, Expression) and (last.operator, part.operator) in _JOINED:
            joined[-1] = Expression(
                "?&" if last.operator.startswith("?") else part.operator, last.variables + part.variables
            )
        else:
            joined.append(part)
    return joined


_JOINED = {("?", "&"), ("?&", "&"), ("&", "&"), (";", ";")}


def _make_placeholder(part: Expression, next_first: frozenset[str], later: frozenset[str]) -> Placeholder:
    """Return the placeholder of an expression.

    `{+x}` and `{#x}` hold all characters but those of `later`. Other expressions do not hold the reserved characters of
    `next_first`, apart from their own separators.
    """
    operator, single = part.operator, len(part.variables) == 1 and not part.variables[0].explode
    max_count = part.variables[0].limit if single else 0
    if operator in ("+", "#"):
        return Placeholder(_ANY - later, OPERATORS[operator].first, 0, max_count)
    if operator in ("?", "&", "?&"):
        return Placeholder(_ANY - {"#"} - (next_first & _RESERVED - {"&", "="}), operator)
    if operator == ";":
        return Placeholder(_SEGMENT - (next_first & _RESERVED - {";", "="}), ";")
    own = frozenset("/" if operator == "/" else ",") if not single else frozenset[str]()
    chars = (_SEGMENT | own) - (next_first & _RESERVED - own)
    return Placeholder(chars, OPERATORS[operator].first, 0 if operator else 1, max_count)


def _choose_reader(part: Expression) -> Callable[[Slot, str, VariableValues], bool]:
    if part.operator == "?&" or OPERATORS[part.operator].named:
        return _read_names
    single = len(part.variables) == 1 and not part.variables[0].explode
    return _read_one if single else _read_pieces


def _read_one(slot: Slot, content: str, found: VariableValues) -> bool:
    return _keep(slot.variables[0], _decode(content), found)


def _keep(variable: Variable, value: str, found: VariableValues) -> bool:
    """Add a value. Returns False if it is longer than the prefix modifier of its variable allows."""
    found.append((variable, value))
    return not variable.limit or len(value) <= variable.limit


def _read_pieces(slot: Slot, content: str, found: VariableValues) -> bool:
    """Assign the pieces to the variables in order; an exploded one takes the pieces that the others leave."""
    pieces = content.split(OPERATORS[slot.operator].separator) if content or slot.operator not in ("", "+") else []
    spare = len(pieces) - sum(not variable.explode for variable in slot.variables)
    index = 0
    for variable in slot.variables:
        if variable.explode:
            taken = pieces[index : index + max(spare, 0)]
            spare = 0
            if taken and not _keep_exploded(slot, variable, taken, found):
                return False
            index += len(taken)
        elif index < len(pieces):
            if not _keep(variable, _decode(pieces[index]), found):
                return False
            index += 1
    return index == len(pieces)


def _keep_exploded(slot: Slot, variable: Variable, pieces: list[str], found: VariableValues) -> bool:
    if variable.name not in slot.maps:
        found.append((variable, [_decode(piece) for piece in pieces]))
        return True
    pairs = [piece.partition("=") for piece in pieces]
    found.append((variable, {_decode(name): _decode(value) for name, _, value in pairs}))
    return all(equals for _, equals, _ in pairs)


def _read_names(slot: Slot, content: str, found: VariableValues) -> bool:
    """Read names in any order.

    The first value of a name goes to the plain variable with this name. Other values go to the list of the exploded
    variable with their name, or else to the map of the first exploded variable without a list.
    """
    if not content:
        return slot.operator != ";"
    plain = {variable.name: variable for variable in slot.variables if not variable.explode}
    exploded = {variable.name: variable for variable in slot.variables if variable.explode}
    lists: dict[str, list[str]] = {}
    others: dict[str, str] = {}
    for piece in content.split(";" if slot.operator == ";" else "&"):
        name, _, value = piece.partition("=")
        variable = plain.pop(name, None)
        if variable is not None:
            if not _keep(variable, _decode(value), found):
                return False
        elif name in exploded:
            lists.setdefault(name, []).append(_decode(value))
        elif _decode(name) in others:
            return False
        else:
            others[_decode(name)] = _decode(value)
    found += [(exploded[name], values) for name, values in lists.items()]
    if others:
        without_list = next((variable for name, variable in exploded.items() if name not in lists), None)
        if without_list is None:
            return False
        found.append((without_list, others))
    return True


def _merge_repeated(found: VariableValues) -> dict[str, Value] | None:
    """Return one value for each variable, or None if a variable occurs several times with different values.

    The value is the complete one if there is one, else the longest prefix.
    """
    values: dict[str, Value] = {}
    for variable, value in sorted(found, key=lambda pair: (pair[0].limit != 0, -len(pair[1]))):
        known = values.setdefault(variable.name, value)
        if variable.limit and isinstance(known, str):
            known = known[: variable.limit]
        if known != value:
            return None
    return values
