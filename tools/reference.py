"""Writes docs/reference/: a page for each group of public modules, from signatures and docstrings.

Run `make reference` after a public name, its signature or its docstring changed. A test fails otherwise. The source is
parsed and not imported, so that the pages do not depend on the interpreter or on which extras are installed.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FOLDER = ROOT / "docs" / "reference"
REMEDY = "correct PAGES in tools/reference.py, then run `make reference`"
MAX_SIGNATURE_CHARACTERS = 100
"""A longer signature has a line for each parameter."""
MAX_VALUE_CHARACTERS = 200
"""A longer constant or attribute is shown without its value."""
ALL: tuple[str, ...] = ()
"""Every name in the module's `__all__`."""
PAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "wharfinger": {"wharfinger": ALL},
    "client": {"wharfinger.client": ALL},
    "host": {
        "wharfinger.host": ALL,
        "wharfinger.upstreams": ALL,
        "wharfinger.store.sqlite": ("SqliteStore",),
        "wharfinger.host.function_calling": ("FunctionCalling",),
        "wharfinger.host.function_calls": ("AnswerOptions",),
        "wharfinger.host.model_apis": ("DroppedFromTool", "ToolDefinitions"),
        "wharfinger.host.catalogue": ALL,
        "wharfinger.host.catalogue_lists": (
            "CatalogueEntry",
            "CatalogueFilter",
            "CatalogueFilters",
            "TreeNode",
            "TreePage",
        ),
        "wharfinger.host.catalogue_search": ("CatalogueHit", "CatalogueHits", "RelatedEntry"),
        "wharfinger.host.context": ALL,
    },
    "server": {
        "wharfinger.server": ALL,
        "wharfinger.server.service": ("FeatureService",),
        "wharfinger.server.middleware.chain": ("Call", "Middleware", "Next", "Result", "transparent"),
        "wharfinger.server.middleware.guards": ("Timing", "limit_rate", "limit_size", "log_calls"),
        "wharfinger.server.apps": ("PageOptions", "shows_apps"),
        "wharfinger.server.features.tools": ("ToolFeature", "ToolOptions", "Tools"),
        "wharfinger.server.features.resource": ("ResourceOptions",),
        "wharfinger.server.features.resources": ("Resources",),
        "wharfinger.server.features.prompts": ("PromptFeature", "PromptOptions", "Prompts"),
        "wharfinger.server.extensions": ("Extensions", "MethodOptions"),
        "wharfinger.server.running": ("HttpRunOptions", "UnixRunOptions"),
        "wharfinger.content.mime": ("DIRECTORY",),
        "wharfinger.protocol.limits": ALL,
        "wharfinger.store": ALL,
        "wharfinger.protocol.interfaces": ("Store",),
    },
    "sources": {
        "wharfinger.sources": ALL,
        "wharfinger.source": ALL,
        "wharfinger.sources.polling": ALL,
        "wharfinger.sources.ttl": ("IMMUTABLE_TTL_MS", "ttl_ms"),
        "wharfinger.sources.folder.file_uri": ("split_path",),
        "wharfinger.sources.windows.window": ("parse_window", "read_content", "split_query"),
    },
    "auth": {"wharfinger.auth": ALL, "wharfinger.net": ("is_public",)},
    "policy": {
        "wharfinger.policy": ALL,
        "wharfinger.protocol.interfaces": ("Access", "Authorizer", "Decision"),
        "wharfinger.protocol.principal": ("ANONYMOUS", "LOCAL", "Principal"),
        "wharfinger.record": ALL,
    },
    "transports": {"wharfinger.transports.http_server.app": ALL, "wharfinger.protocol.http.rules": ("HttpLimits",)},
    "testing": {"wharfinger.testing": ALL},
    "errors": {"wharfinger.errors": ALL},
    "types": {"wharfinger.types": ALL, "wharfinger.types.apps": ALL},
}
"""The modules of each page, and which of their names are public. The first page but `wharfinger` that has a name
documents it; the others link there."""
SHOWN_DECORATORS = {"abstractmethod", "asynccontextmanager", "classmethod", "contextmanager", "staticmethod"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """The statements that define a name, overloads first. There are none if the name is from another package."""

    module: str
    name: str
    nodes: tuple[ast.stmt, ...]
    doc: str | None

    @property
    def node(self) -> ast.stmt:
        return self.nodes[-1]


class Member(NamedTuple):
    """A method, property or attribute of a class."""

    name: str
    nodes: tuple[ast.stmt, ...]
    doc: str | None


# Finding definitions


def file_of(module: str) -> Path | None:
    """Return the file of a module of this package, or None if it is not a module of this package."""
    path = SOURCE / module.replace(".", "/")
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def statements(module: str) -> tuple[ast.stmt, ...]:
    """Return the statements of a module, with those inside `if` and `try`.

    Raises:
        LookupError: there is no such module.
    """
    file = file_of(module)
    if file is None:
        raise LookupError(f"There is no module {module}: {REMEDY}")
    return tuple(flatten(ast.parse(file.read_text(encoding="utf-8")).body))


def flatten(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, with those inside `if` and `try`."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try):
            yield from flatten(statement.body)
            yield from flatten(statement.orelse)
        else:
            yield statement


def exports(module: str) -> list[str]:
    """Return the names in the module's `__all__`."""
    for statement in statements(module):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(statement.value)
            return names
    raise LookupError(f"{module} has no __all__")


def defined_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement of a module or class defines."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def docstring(statement: ast.stmt, following: ast.stmt | None) -> str | None:
    """Return the docstring of a definition, or the string that follows an assignment."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return ast.get_docstring(statement)
    match following:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return None


def definitions(body: tuple[ast.stmt, ...]) -> dict[str, tuple[tuple[ast.stmt, ...], str | None]]:
    """Return the names that a body defines, each with its statements and its docstring."""
    by_name: dict[str, tuple[tuple[ast.stmt, ...], str | None]] = {}
    for statement, following in zip(body, (*body[1:], None), strict=True):
        for name in defined_names(statement):
            earlier_nodes, earlier_doc = by_name.get(name, ((), None))
            overloads = tuple(node for node in earlier_nodes if "overload" in decorators(node))
            by_name[name] = ((*overloads, statement), docstring(statement, following) or earlier_doc)
    return by_name


def find(module: str, name: str) -> Definition | None:
    """Return the definition of a name of a module, following imports; None if the name is a module.

    Raises:
        LookupError: the module does not define or import the name.
    """
    defined = definitions(statements(module)).get(name)
    if defined is not None:
        return Definition(module, name, *defined)
    for statement in statements(module):
        if isinstance(statement, ast.ImportFrom):
            origin = imported_from(module, statement)
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    if file_of(f"{origin}.{alias.name}"):
                        return None
                    if file_of(origin):
                        return find(origin, alias.name)
                    return Definition(origin, alias.name, (), None)
    raise LookupError(f"{module} does not define {name}: correct its __all__, or {REMEDY}")


def imported_from(module: str, statement: ast.ImportFrom) -> str:
    """Return the absolute name of the module that a statement imports from."""
    if not statement.level:
        return statement.module or ""
    file = file_of(module)
    package = module.split(".") if file and file.name == "__init__.py" else module.split(".")[:-1]
    above = package[: len(package) - statement.level + 1]
    return ".".join([*above, *([statement.module] if statement.module else [])])


def members(definition: Definition) -> dict[str, Member]:
    """Return the public members of a class, its own first, then those of its bases.

    A member without a docstring gets that of the member that it overrides.
    """
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    body = tuple(flatten(node.body))
    by_name = {name: Member(name, *defined) for name, defined in definitions(body).items()}
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            for member in instance_attributes(statement):
                by_name.setdefault(member.name, member)
    for base in bases(definition):
        for name, member in members(base).items():
            own = by_name.setdefault(name, member)
            by_name[name] = own._replace(doc=own.doc or member.doc)
    return {name: member for name, member in by_name.items() if name == "__init__" or not name.startswith("_")}


def instance_attributes(init: ast.FunctionDef) -> Iterator[Member]:
    """Yield the attributes that `__init__` sets. An attribute that is set to a parameter gets its type."""
    types = {argument.arg: argument.annotation for argument in (*init.args.args, *init.args.kwonlyargs)}
    body = list(flatten(init.body))
    for statement, following in zip(body, [*body[1:], None], strict=True):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                assigned = getattr(statement, "value", None)
                annotation = getattr(statement, "annotation", None) or types.get(getattr(assigned, "id", ""))
                text = f"{target.attr}: {ast.unparse(annotation)}" if annotation else target.attr
                yield Member(target.attr, (ast.parse(text).body[0],), docstring(statement, following))


def bases(definition: Definition) -> Iterator[Definition]:
    """Yield the classes of this package that a class inherits from."""
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    for base in node.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(name, ast.Attribute) and ast.unparse(name.value) == "t":  # `from wharfinger import types as t`
            module, base_name = "wharfinger.types", name.attr
        elif isinstance(name, ast.Name):
            module, base_name = definition.module, name.id
        else:
            continue
        try:
            parent = find(module, base_name)
        except LookupError:  # a builtin
            continue
        if parent is not None and parent.nodes and isinstance(parent.node, ast.ClassDef):
            yield parent


def decorators(node: ast.stmt) -> list[str]:
    """Return the names of the decorators of a function, without their arguments."""
    nodes = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
    return [ast.unparse(item.func if isinstance(item, ast.Call) else item).rpartition(".")[2] for item in nodes]


# Writing


def source(node: ast.AST) -> str:
    """Return an expression as the project writes it: with double quotes."""
    return re.sub(r"'([^'\"\\]*)'", r'"\1"', ast.unparse(node))


def parameters(arguments: ast.arguments) -> list[str]:
    """Return each parameter with its annotation and default, and `/` and `*`."""

    def parameter(argument: ast.arg, default: ast.expr | None, stars: str = "") -> str:
        text = stars + argument.arg + (f": {source(argument.annotation)}" if argument.annotation else "")
        if default is None:
            return text
        return f"{text} = {source(default)}" if argument.annotation else f"{text}={source(default)}"

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    parts = [parameter(argument, default) for argument, default in zip(positional, defaults, strict=True)]
    if arguments.posonlyargs:
        parts.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        parts.append(parameter(arguments.vararg, None, "*"))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [
        parameter(argument, default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        parts.append(parameter(arguments.kwarg, None, "**"))
    return parts


def signature(node: Function, name: str) -> str:
    """Return the signature of a function, as in a stub file."""
    lines = [f"@{decorator}\n" for decorator in decorators(node) if decorator in SHOWN_DECORATORS | {"overload"}]
    begin = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}def {name}("
    end = f"){f' -> {source(node.returns)}' if node.returns else ''}: ..."
    parts = parameters(node.args)
    whole = begin + ", ".join(parts) + end
    if len(whole) > MAX_SIGNATURE_CHARACTERS:
        whole = begin + "\n" + "".join(f"    {part},\n" for part in parts) + end
    return "".join(lines) + whole


def value(node: ast.stmt, name: str) -> str:
    """Return an attribute or a constant with its type, and with its value if that is short."""
    text = f"{name}: {source(node.annotation)}" if isinstance(node, ast.AnnAssign) else name
    content = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    whole = text if content is None else f"{text} = {source(content)}"
    return whole if len(whole) <= MAX_VALUE_CHARACTERS else text


def heading(definition: Definition, name: str) -> str:
    """Return the declaration of a definition: of a class with its `__init__`."""
    node = definition.node
    if isinstance(node, ast.ClassDef):
        arguments = [source(base) for base in node.bases if not source(base).startswith("_")]
        arguments += [f"{keyword.arg}={source(keyword.value)}" for keyword in node.keywords]
        text = f"class {name}({', '.join(arguments)})" if arguments else f"class {name}"
        init = members(definition).get("__init__")
        if init is None:
            return f"{text}: ..."
        signatures = "\n".join(signature(item, "__init__") for item in init.nodes if isinstance(item, Function))
        return f"{text}:\n" + "\n".join(f"    {line}" for line in signatures.splitlines())
    return declaration(definition.nodes, name)


def declaration(nodes: tuple[ast.stmt, ...], name: str) -> str:
    """Return the signature of a function, or its overloads, or an attribute with its type."""
    functions = [node for node in nodes if isinstance(node, Function)]
    overloads = [node for node in functions if "overload" in decorators(node)]
    if functions:
        return "\n".join(signature(node, name) for node in overloads or functions)
    return value(nodes[-1], name)


def is_attribute(member: Member) -> bool:
    """Return whether a member is an attribute or a property."""
    node = member.nodes[-1]
    return not isinstance(node, Function) or bool({"property", "cached_property"} & set(decorators(node)))


def attribute(member: Member) -> str:
    """Return a line of a list: an attribute or property, its type and its description."""
    node = member.nodes[-1]
    if isinstance(node, Function):
        text = f"{member.name}: {source(node.returns)}" if node.returns else member.name
    else:
        text = value(node, member.name)
    doc = "" if member.doc is None else ": " + prose(member.doc).replace("\n", "\n  ").replace("\n  \n", "\n\n")
    return f"- `{text}`{doc}"


def prose(doc: str) -> str:
    """Return a docstring as Markdown: sections such as `Raises:` become lists."""
    lines: list[str] = []
    inside = False
    for line in doc.splitlines():
        if section := re.fullmatch(r"(Args|Raises|Returns|Yields):", line):
            lines += [f"**{section[1]}**", ""]
            inside = True
        elif inside and (item := re.fullmatch(r"    ([\w., *]+): (.*)", line)):
            names = ", ".join(f"`{name}`" for name in item[1].split(", "))
            lines.append(f"- {names}: {escape(item[2])}")
        elif inside and line.startswith("    "):
            lines.append("  " + escape(line.strip()))
        else:
            inside = inside and not line
            lines.append(line if line.startswith("    ") else escape(line))
    return "\n".join(lines)


def escape(line: str) -> str:
    """Escape `<` outside of backticks, which Markdown would read as HTML."""
    return "".join(
        part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(re.split(r"(`[^`]*`)", line))
    )


def code(text: str) -> str:
    """Return a block of code that the tests of the documents do not run."""
    return f'```python norun="a signature"\n{text}\n```'


def anchor(name: str) -> str:
    """Return the URL fragment of a heading."""
    return re.sub(r"[^\w\- ]", "", name.lower())


@cache
def homes() -> dict[tuple[str, str], tuple[str, str]]:
    """Return for each definition the page that documents it, and its name there."""
    by_definition: dict[tuple[str, str], tuple[str, str]] = {}
    for page in sorted(PAGES, key=lambda page: page == "wharfinger"):  # the package itself comes last
        for _, name, definition in entries(page):
            if definition is not None:
                by_definition.setdefault((definition.module, definition.name), (page, name))
    return by_definition


def entries(page: str) -> Iterator[tuple[str, str, Definition | None]]:
    """Yield each public name of a page once, with its module and its definition."""
    seen: set[tuple[str, str]] = set()
    for module, names in PAGES[page].items():
        for name in names or exports(module):
            definition = find(module, name)
            key = (module, name) if definition is None else (definition.module, definition.name)
            if key not in seen:
                seen.add(key)
                yield module, name, definition


def entry(page: str, module: str, name: str, definition: Definition | None) -> str:
    """Return the section of one name."""
    if definition is None:
        return f"## {name}\n\nA module: [{name}]({name}.md)."
    home, home_name = homes()[definition.module, definition.name]
    if home != page:
        return f"## {name}\n\nSee [{home_name}]({home}.md#{anchor(home_name)})."
    if not definition.nodes:
        return f"## {name}\n\nFrom `{definition.module}`."
    where = "" if module == next(iter(PAGES[page])) else f"In `{module}`."
    parts = [f"## {name}", where, code(heading(definition, name)), prose(definition.doc or "")]
    if isinstance(definition.node, ast.ClassDef):
        by_name = members(definition)
        init = by_name.pop("__init__", None)
        if init is not None and init.doc:
            parts.append(prose(init.doc))
        inherited = inherited_from(definition)
        parts += [f"Inherits from {', '.join(link for _, link in inherited)}."] if inherited else []
        hidden = {member for base, _ in inherited for member in members(base)} - own_names(definition)
        documented = [member for member in by_name.values() if member.name not in hidden]
        attributes = [attribute(member) for member in documented if is_attribute(member)]
        parts += ["**Attributes**", "\n".join(attributes)] if attributes else []
        for member in documented:
            if not is_attribute(member):
                parts += [
                    f"### {name}.{member.name}",
                    code(declaration(member.nodes, member.name)),
                    prose(member.doc or ""),
                ]
    return "\n\n".join(part for part in parts if part)


def own_names(definition: Definition) -> set[str]:
    """Return the names that a class defines itself."""
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    return set(definitions(tuple(flatten(node.body))))


def inherited_from(definition: Definition) -> list[tuple[Definition, str]]:
    """Return the bases of a class that have their own section, each with a link to it."""
    links: list[tuple[Definition, str]] = []
    for base in bases(definition):
        if (base.module, base.name) in homes():
            page, name = homes()[base.module, base.name]
            links.append((base, f"[{name}]({page}.md#{anchor(name)})"))
    return links


def render(page: str) -> str:
    """Return the text of one page."""
    modules = list(PAGES[page])
    title = modules[0]
    first = ast.get_docstring(ast.Module(list(statements(title)), []))
    text = [f"# `{title}`", prose(first or "")]
    text += [entry(page, module, name, definition) for module, name, definition in entries(page)]
    return "\n\n".join(text) + "\n"


def index() -> str:
    """Return the text of the page that lists the others."""
    lines = [
        "# API reference",
        "Every public name, with its signature and its docstring. `make reference` writes these pages from the source.",
    ]
    items: list[str] = []
    for page, modules in PAGES.items():
        names = [name for _, name, _ in entries(page)]
        first_names = ", ".join(f"`{name}`" for name in names[:6]) + (" and more" if len(names) > 6 else "")
        items.append(f"- [`{next(iter(modules))}`]({page}.md): {first_names}")
    return "\n\n".join([*lines, "\n".join(items)]) + "\n"


def pages() -> dict[str, str]:
    """Return the text of each file of docs/reference/."""
    return {"index.md": index()} | {f"{page}.md": render(page) for page in PAGES}


def undocumented() -> list[str]:
    """Return the public names that have no docstring: classes, functions, constants, methods and properties."""
    missing: list[str] = []
    for page in PAGES:
        for module, name, definition in entries(page):
            if definition is None or not definition.nodes:
                continue
            if definition.doc is None:
                missing.append(f"{module}.{name}")
            if isinstance(definition.node, ast.ClassDef):
                missing += [
                    f"{module}.{name}.{member.name}"
                    for member in members(definition).values()
                    if member.name != "__init__" and member.doc is None and isinstance(member.nodes[-1], Function)
                ]
    return missing


def main() -> None:
    """Write the pages, and remove those that are not in `PAGES` any more."""
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for file in FOLDER.glob("*.md"):
        if file.name not in texts:
            file.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except LookupError as error:  # something was renamed
        sys.exit(str(error))
