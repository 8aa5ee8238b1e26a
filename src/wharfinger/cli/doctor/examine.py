"""Examines a server for `wharfinger doctor`: reads its lists, and a sample of its resources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.cli.doctor.survey import SampleRead, Survey, SurveyedList, app_uri_of
from wharfinger.client import Client
from wharfinger.client.results import Listing
from wharfinger.errors import ConnectionLost, MethodNotFound, RequestTimeout, WharfingerError

__all__ = ["AllTools", "examine"]

LIST_ITEMS = 5_000
"""Maximum number of items of one list that are examined."""
SAMPLE_BYTES = 4 << 20
"""Maximum size, according to the list, of a resource in the sample. Pages that tools name may be larger."""
SAMPLE_SECONDS = 20.0
"""Maximum time for all reads together."""
READ_SECONDS = 10.0
"""Maximum time for one read."""


class AllTools:
    """Middleware of the client that keeps all listed tools, including those that the client itself leaves out."""

    def __init__(self) -> None:
        self.tools: list[t.Tool] = []

    async def __call__(self, call: Any, proceed: Callable[[Any], Any]) -> Any:
        result = await proceed(call)
        if isinstance(result, t.ListToolsResult):
            self.tools += result.tools
        return result


async def examine(client: Client, all_tools: AllTools, sample: int) -> Survey:
    """Read all lists of the server, the pages that its tools name, and at most `sample` other resources.

    If `sample` is 0, no resource is read. `all_tools` is middleware of the client.
    """
    capabilities = client.capabilities
    listings: dict[str, tuple[Any, Callable[..., Listing[Any]]]] = {
        "tools": (capabilities.tools, client.list_tools),
        "prompts": (capabilities.prompts, client.list_prompts),
        "resources": (capabilities.resources, client.list_resources),
        "templates": (capabilities.resources, client.list_resource_templates),
    }
    lists = {
        name: SurveyedList() if declared is UNSET else await read_list(listing(bypass_cache=True), name == "templates")
        for name, (declared, listing) in listings.items()
    }
    lists["tools"].items = all_tools.tools[:LIST_ITEMS]
    lists["tools"].more |= len(all_tools.tools) > LIST_ITEMS
    survey = Survey(
        name=client.server_info.name if client.server_info else "",
        version=client.server_info.version if client.server_info else "",
        instructions=client.instructions or "",
        capabilities=capabilities,
        supported=(client.revision,),
        tools=lists["tools"],
        prompts=lists["prompts"],
        resources=lists["resources"],
        templates=lists["templates"],
    )
    survey.reads = await read_resources(client, choose(survey, sample))
    return survey


async def read_list(listing: Listing[Any], optional: bool) -> SurveyedList:
    """Read at most `LIST_ITEMS` of a list. An `optional` list may lack its method: then it is empty, without error."""
    surveyed = SurveyedList(items=[])
    try:
        async for page in listing.pages():
            surveyed.items += page
            surveyed.largest_page = max(surveyed.largest_page, len(page))
            if len(surveyed.items) > LIST_ITEMS:
                del surveyed.items[LIST_ITEMS:]
                surveyed.more = True
                break
    except ConnectionLost:
        raise
    except WharfingerError as error:
        if not (optional and isinstance(error, MethodNotFound)):
            surveyed.error = str(error)
    return surveyed


def choose(survey: Survey, sample: int) -> list[str]:
    """Choose the URIs to read: the pages that tools name, and resources spread over the whole list."""
    if sample == 0:
        return []
    small = [
        item.uri
        for item in survey.resources.items
        if item.mime_type != "inode/directory" and not (isinstance(item.size, int) and item.size > SAMPLE_BYTES)
    ]
    pages = [app_uri_of(tool) for tool in survey.tools.items] if survey.capabilities.resources is not UNSET else []
    count = min(sample, len(small))
    spread = (small[number * len(small) // count] for number in range(count))
    return list(dict.fromkeys([*filter(None, pages), *spread]))


async def read_resources(client: Client, uris: Sequence[str]) -> dict[str, SampleRead]:
    """Read resources one after another, for at most `SAMPLE_SECONDS`. A read that this limit cuts short is left out."""
    reads: dict[str, SampleRead] = {}
    now = asyncio.get_running_loop().time
    end = now() + SAMPLE_SECONDS
    for uri in uris:
        remaining = end - now()
        if remaining <= 0:
            break
        try:
            result = await client.read_resource(uri, timeout=min(remaining, READ_SECONDS))
            reads[uri] = SampleRead(contents=tuple(result.contents))
        except ConnectionLost:
            raise
        except WharfingerError as error:
            if isinstance(error, RequestTimeout) and remaining < READ_SECONDS:
                break  # this read had less time than others: do not report it
            reads[uri] = SampleRead(error=str(error))
    return reads
