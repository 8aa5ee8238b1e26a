"""What a type checker knows of a server's author's functions: decorators keep every signature. Checked, never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, assert_type

from wharfinger import Complete, Context, Elicit, ResourceNotFound, Roots, Sample, Server, ToolError, types
from wharfinger.auth import StaticTokens, TokenAuth
from wharfinger.policy import Policy, ReportOnly
from wharfinger.transports.http_server.app import HttpApp


@dataclass
class State:
    berths: dict[str, int]


@asynccontextmanager
async def lifespan(server: Server) -> AsyncGenerator[State, None]:
    yield State({})


server = Server("harbour", instructions="Ships and tides.", lifespan=lifespan)


async def vessels(typed: str) -> list[str]:
    return [typed]


@server.resource("log://{vessel}/today", mime_type="text/plain")
async def todays_log(vessel: Annotated[str, Complete(vessels)]) -> str:
    return vessel


@server.resource("harbour://berths")
def berths(ctx: Context[State]) -> dict[str, int]:
    assert_type(ctx.state, State)
    return ctx.state.berths


@server.tool
async def berth(ship: str, quay: int = 1) -> int:
    if not ship:
        raise ToolError("which ship?")
    return quay


@server.tool(title="Cast off")
def cast_off(ship: str) -> None:
    raise ResourceNotFound(ship)


@server.prompt
def briefing(vessel: str) -> str:
    return vessel


@server.prompt(title="Farewell")
async def farewell(vessel: str) -> str:
    return vessel


async def uses() -> None:
    log: Callable[[str], Coroutine[Any, Any, str]] = todays_log
    assert_type(await todays_log("mary"), str)
    assert_type(await berth("mary", quay=2), int)
    assert_type(briefing("mary"), str)
    assert_type(await farewell(vessel="mary"), str)
    cast_off("mary")
    await log("mary")
    await berth(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    briefing()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    server.tools.add(berth, title="Berth", read_only=True)
    server.tools.add(berth, titel="Berth")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    server.tools.add(berth, title=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    server.resources.add("harbour://quay", count, ttl=60.0)
    server.resources.add("harbour://quay", count, tll=60.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    server.prompts.add(briefing, description="What is new")
    assert_type(server.tools.names(), list[str])
    server.resource_updated("harbour://berths")
    server.list_changed("resources")


async def caller(ctx: Context[State]) -> None:
    contents = await ctx.read_resource("harbour://berths")
    assert_type(contents, types.ReadResourceResult)
    assert_type(await ctx.list_resources(), types.ListResourcesResult)


@dataclass
class Quay:
    side: str


@server.tool
async def asking(ctx: Context) -> str:
    assert_type(await ctx.elicit("Which?", Quay), Quay)
    assert_type(await ctx.elicit("Which?", Quay, or_none=True), Quay | None)
    assert_type(await ctx.elicit("How many?", int), int)
    assert_type(await ctx.elicit_url("Pay the dues", "https://harbour.test/pay"), bool)
    assert_type(await ctx.elicit_url("Pay the dues", "https://harbour.test/pay", or_none=True), bool | None)
    assert_type((await ctx.sample("Hello")).text, str)
    assert_type(await ctx.roots(), list[types.Root])
    assert_type(await ctx.once("a", count), int)
    assert_type(await ctx.once("b", counted), int)
    await ctx.ask(quay=Elicit("Which?", Quay), words=Sample("Hello"), folders=Roots())
    return ""


def count() -> int:
    return 1


async def counted() -> int:
    return 1


class ForecastParams(types.RequestParams, kw_only=True):
    port: str


@server.method("tides/forecast", extension="com.example/tides")
async def forecast(params: ForecastParams) -> types.EmptyResult:
    return types.EmptyResult()


@server.app("ui://harbour/berths", permissions=["camera"], prefers_border=True)
def page() -> str:
    return "<p>"


@server.tool(app="ui://harbour/berths", visibility=["app"])
def refresh() -> int:
    return 1


async def extended() -> None:
    assert_type(await forecast(ForecastParams(port="Hull")), types.EmptyResult)
    assert_type(page(), str)
    assert_type(refresh(), int)
    server.add_app("ui://harbour/other", "<p>", wrong=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def protected(tokens: StaticTokens, rules: Policy) -> None:
    server.run(policy=rules)
    server.run(http="127.0.0.1:8000", auth=tokens, policy="policy.toml", tls_cert="cert.pem")
    server.run(http="127.0.0.1:8000", auth=[tokens], policy=Path("policy.toml"))
    server.run(unix="/run/office.sock", policy=ReportOnly(rules))
    assert_type(server.asgi(auth=TokenAuth(tokens), policy=rules, public_url="https://office.test"), HttpApp)
    server.run(policy=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportArgumentType]


Message = MutableMapping[str, Any]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None: ...


def of_an_api() -> None:
    assert_type(Server.from_fastapi(application, name="shop", allow_operations=["place_order"]), Server)
    assert_type(Server.from_openapi("shop.json", base_url="https://shop.test", tools=False), Server)
    Server.from_fastapi(application, wrong=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Server.from_openapi("shop.json", every="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
