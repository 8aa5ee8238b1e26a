"""Our server, through its public API."""

import spec

from wharfinger import Server

server = Server(spec.NAME, version=spec.VERSION)


@server.resource(spec.STATIC_URI, mime_type=spec.TEXT)
async def static() -> str:
    return spec.STATIC_TEXT


@server.resource(spec.BLOB_URI, mime_type=spec.BINARY)
async def blob() -> bytes:
    return spec.BLOB


@server.resource(spec.BIG_BLOB_URI, mime_type=spec.BINARY)
async def big_blob() -> bytes:
    return spec.big_blob()


@server.resource(spec.ITEM_TEMPLATE, mime_type=spec.JSON)
async def item(id: str) -> str:
    return spec.item_text(id)


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


async def entry() -> str:
    return "entry"


for uri, name in spec.ENTRIES:
    server.resource(uri, name=name, mime_type=spec.TEXT)(entry)


if __name__ == "__main__":
    port, _ = spec.arguments()
    if port is None:
        server.run()
    else:
        server.run(http=f"127.0.0.1:{port}")
