"""Extensions: capabilities and methods that a server adds to the core protocol."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET

from tests.server.driving import ALL, ERAS, STATELESS, Wire, ask, make_request
from wharfinger import Context, Server, types
from wharfinger.errors import HeaderMismatch
from wharfinger.protocol.http.rules import check_standard_headers
from wharfinger.protocol.methods import METHODS, Method, add_method
from wharfinger.protocol.request import Request, seal_result
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.server.dependencies import Depends
from wharfinger.server.middleware.chain import Next

TIDES = "com.example/tides"


class ForecastParams(types.RequestParams, kw_only=True):
    port: str
    days: int = 1


class Forecast(types.CacheableResult, kw_only=True):
    port: str
    high_water: list[str]


class ShipMovedParams(types.NotificationParams, kw_only=True):
    ship: str


class OtherParams(types.RequestParams, kw_only=True):
    port: int


def do_nothing() -> None: ...


def tides_server(**options: Any) -> Server:
    server = Server("harbour")

    @server.method("tides/forecast", extension=TIDES, cacheable=True, **options)
    async def forecast(params: ForecastParams, ctx: Context) -> Forecast:
        return Forecast(port=f"{params.port} for {ctx.request_id}", high_water=["06:12"] * params.days)

    return server


async def test_a_method_receives_its_decoded_params_and_its_context() -> None:
    answer = await ask(tides_server(), "tides/forecast", {"port": "Hull", "days": 2}, id=7)
    result = answer["result"]
    assert (result["port"], result["highWater"]) == ("Hull for 7", ["06:12", "06:12"])
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")


async def test_a_session_of_2025_11_25_is_served_without_stateless_members() -> None:
    result = (await ask(tides_server(ttl=5), "tides/forecast", {"port": "Hull"}, "2025-11-25"))["result"]
    assert result == {"port": "Hull for 1", "highWater": ["06:12"]}


async def test_a_cacheable_result_has_the_hints_of_its_method_unless_it_sets_its_own() -> None:
    result = (await ask(tides_server(ttl=5, cache_scope="public"), "tides/forecast", {"port": "Hull"}))["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (5000, "public")
    server = Server("harbour")

    @server.method("tides/forecast", cacheable=True, result=Forecast)
    def forecast(params: ForecastParams) -> Forecast:
        return Forecast(port=params.port, high_water=[], ttl_ms=9)

    assert (await ask(server, "tides/forecast", {"port": "Hull"}))["result"]["ttlMs"] == 9
    assert "ttlMs" not in (await ask(server, "tides/forecast", {"port": "Hull"}, "2025-11-25"))["result"]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_an_extension_method_is_not_found_in_revisions_without_extensions(revision: str) -> None:
    assert (await ask(tides_server(), "tides/forecast", {"port": "Hull"}, revision))["error"]["code"] == -32601


async def test_invalid_params_are_refused_with_their_path() -> None:
    assert (await ask(tides_server(), "tides/forecast", {"port": "Hull", "days": 1}))["result"]
    server = tides_server()
    with pytest.raises(Exception, match=r"params\.port"):
        make_request(server, "tides/forecast", {"port": 1})


@pytest.mark.parametrize("revision", ALL)
def test_an_extension_is_declared_in_revisions_with_extensions(revision: str) -> None:
    declared = tides_server().capabilities(REVISIONS[revision]).extensions
    assert declared == ({TIDES: {}} if revision in ERAS else UNSET)


def test_a_server_without_extensions_declares_none() -> None:
    assert Server("plain").capabilities(REVISIONS[STATELESS]).extensions is UNSET


def test_settings_are_merged_unless_they_conflict() -> None:
    server = Server("harbour")
    server.extensions.declare(TIDES, {"datum": "LAT"})
    server.extensions.declare(TIDES)
    server.extensions.declare(TIDES, {"unit": "m", "datum": "LAT"})
    assert server.extensions.declared == {TIDES: {"datum": "LAT", "unit": "m"}}
    with pytest.raises(ValueError, match="datum='LAT'"):
        server.extensions.declare(TIDES, {"datum": "MSL"})


@pytest.mark.parametrize("id", ["tides", "/tides", "com.example/", "1com/tides", "com..example/t", "com.example/-t"])
def test_an_invalid_identifier_is_refused(id: str) -> None:
    with pytest.raises(ValueError, match="is not the identifier"):
        Server("harbour").extensions.declare(id)


async def test_a_required_extension_must_be_declared_by_the_client() -> None:
    server = tides_server(required=True)
    error = (await ask(server, "tides/forecast", {"port": "Hull"}))["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {TIDES: {}}}}
    meta = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TIDES: {"unit": "ft"}}}}
    request = make_request(server, "tides/forecast", {"port": "Hull", "_meta": meta})
    assert request.caller.extension(TIDES) == {"unit": "ft"}
    assert request.caller.extension("com.example/other") is None
    assert seal_result(request, await server.handlers["tides/forecast"](request), server.result_meta)


def test_the_name_header_must_match_the_params() -> None:
    server = Server("harbour")
    server.extensions.add_method("tides/named_by", lambda params: {}, params=ForecastParams, name_param="port")
    request = make_request(server, "tides/named_by", {"port": "Hull"})
    headers = {b"mcp-protocol-version": STATELESS.encode(), b"mcp-method": b"tides/named_by", b"mcp-name": b"Hull"}
    check_standard_headers(headers, request)
    with pytest.raises(HeaderMismatch):
        check_standard_headers(headers | {b"mcp-name": b"Leith"}, request)


@pytest.mark.parametrize("name", ["tools/call", "initialize", "subscriptions/listen"])
def test_methods_of_the_protocol_cannot_be_replaced(name: str) -> None:
    with pytest.raises(ValueError, match=r"method of the protocol|served already"):
        Server("harbour").extensions.add_method(name, do_nothing)


@pytest.mark.parametrize("name", ["forecast", "tides/", "/tides", "ti des/x", "rpc.x/y"])
def test_an_invalid_method_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a method"):
        Server("harbour").extensions.add_method(name, do_nothing)


def test_a_method_is_registered_once_per_server() -> None:
    server = tides_server()
    tides_server()
    with pytest.raises(ValueError, match="served already"):
        server.extensions.add_method("tides/forecast", do_nothing)


def test_registering_a_known_method_with_other_params_is_refused() -> None:
    tides_server()
    with pytest.raises(ValueError, match="known already"):
        Server("harbour").extensions.add_method("tides/forecast", lambda params: {}, params=OtherParams)


def test_a_method_that_was_refused_can_be_registered_with_other_params() -> None:
    """A bug: its row stayed in the table of the process, and refused the next attempt."""

    class OtherParams(types.RequestParams):
        port: str = ""

    server = Server("tides")
    with pytest.raises(ValueError, match="required=True needs the extension"):
        server.extensions.add_method("tides/refused", lambda params: None, required=True)
    with pytest.raises(TypeError, match="takes 'other'"):
        server.extensions.add_method("tides/refused", lambda params, other: None)
    server.extensions.add_method("tides/refused", lambda params: None, params=OtherParams)


def test_adding_a_known_method_again_returns_its_row() -> None:
    row = add_method(Method("tides/known", "client", OtherParams, types.EmptyResult))
    assert add_method(Method("tides/known", "client", OtherParams, types.EmptyResult)) is row
    assert METHODS["tides/known"] is row


async def test_a_handler_may_return_a_dict_or_none() -> None:
    server = Server("harbour")
    server.extensions.add_method("tides/dict", lambda: {"datum": "LAT"})
    server.extensions.add_method("tides/nothing", lambda: None)
    assert (await ask(server, "tides/dict", {}, "2025-11-25"))["result"] == {"datum": "LAT"}
    assert (await ask(server, "tides/dict"))["result"]["datum"] == "LAT"
    assert (await ask(server, "tides/nothing", {}, "2025-11-25"))["result"] == {}


@pytest.mark.parametrize("value", ["text", ["a list"], {"_meta": {}}, {"resultType": "complete"}])
async def test_an_invalid_result_is_an_internal_error(value: Any) -> None:
    server = Server("harbour")
    server.extensions.add_method("tides/wrong", lambda: value)
    assert (await ask(server, "tides/wrong"))["error"]["code"] == -32603


async def test_a_plain_function_runs_in_a_thread_unless_it_is_inline() -> None:
    server = Server("harbour")
    server.extensions.add_method(
        "tides/thread", lambda: {"main": threading.current_thread() is threading.main_thread()}
    )
    server.extensions.add_method(
        "tides/inline", lambda: {"main": threading.current_thread() is threading.main_thread()}, inline=True
    )
    assert (await ask(server, "tides/thread"))["result"]["main"] is False
    assert (await ask(server, "tides/inline"))["result"]["main"] is True


async def test_extension_methods_use_dependencies_and_middleware() -> None:
    server = Server("harbour")
    methods: list[str] = []

    async def datum() -> str:
        return "LAT"

    async def forecast(datum: Annotated[str, Depends(datum)], params: ForecastParams) -> dict[str, str]:
        return {"datum": datum, "port": params.port}

    @server.middleware
    async def record_method(call: Request, next: Next) -> Any:
        methods.append(call.method)
        return await next(call)

    server.extensions.add_method("tides/depends", forecast)
    assert (await ask(server, "tides/depends", {"port": "Hull"}, "2025-11-25"))["result"] == {
        "datum": "LAT",
        "port": "Hull",
    }
    assert methods == ["tides/depends"]


async def test_a_notification_of_an_extension_reaches_its_function() -> None:
    server = Server("harbour")
    moved: list[str] = []

    @server.notification("notifications/ships/moved")
    def on_moved(params: ShipMovedParams) -> None:
        moved.append(params.ship)

    async with Wire(server, "2025-11-25") as wire:
        wire.notify("notifications/ships/moved", {"ship": "Mary"})
        wire.notify("notifications/ships/moved", {"ship": 1})
        await wire.ask("ping")
    assert moved == ["Mary"]


def test_notification_handlers_must_be_plain_functions_with_new_names() -> None:
    server = Server("harbour")

    async def async_handler(params: ShipMovedParams) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        server.notification("notifications/ships/waits")(async_handler)
    with pytest.raises(ValueError, match="begin with"):
        server.notification("ships/moved")(lambda params: None)
    with pytest.raises(TypeError, match="takes only the params"):
        server.notification("notifications/ships/two")(lambda params, other: None)
    with pytest.raises(ValueError, match=r"taken already|of the protocol"):
        server.notification("notifications/initialized")(lambda params: None)


def test_params_must_be_request_params() -> None:
    class PlainStruct(msgspec.Struct):
        port: str

    with pytest.raises(TypeError, match=r"derives from types\.RequestParams"):
        Server("harbour").extensions.add_method("tides/loose", lambda params: {}, params=PlainStruct)
    with pytest.raises(ValueError, match="no field 'berth'"):
        Server("harbour").extensions.add_method(
            "tides/named", lambda params: {}, params=ForecastParams, name_param="berth"
        )


@pytest.mark.parametrize("early", [True, False])
async def test_extensions_of_a_mounted_server_are_served_by_its_parent(early: bool) -> None:
    whole, middle, part = Server("whole"), Server("middle"), Server("part")

    def extend() -> None:
        part.extensions.add_method("tides/part", lambda: {"of": "part"}, extension=TIDES)
        part.extensions.declare(TIDES, {"datum": "LAT"})
        part.notification("notifications/tides/part")(lambda params: None)

    if early:
        extend()
    middle.include(part)
    whole.include(middle, prefix="m")
    if not early:
        extend()
    assert (await ask(whole, "tides/part"))["result"]["of"] == "part"
    assert whole.capabilities(REVISIONS[STATELESS]).extensions == {TIDES: {"datum": "LAT"}}
    assert "notifications/tides/part" in whole.notification_handlers


def test_including_a_server_with_a_conflicting_method_or_setting_is_refused() -> None:
    whole, part = tides_server(), tides_server()
    with pytest.raises(ValueError, match="both serve the method 'tides/forecast'"):
        whole.include(part, prefix="part")
    assert whole.mounts == []
    first, other = Server("settled"), Server("other")
    first.extensions.declare(TIDES, {"datum": "LAT"})
    other.extensions.declare(TIDES, {"datum": "MSL"})
    with pytest.raises(ValueError, match="datum='LAT'"):
        first.include(other)
    assert first.mounts == []


def test_settings_that_conflict_with_those_of_a_parent_change_nothing() -> None:
    """A bug: the error was raised after the part's own settings had changed, and some of the parent's."""
    whole, middle, part = Server("whole"), Server("middle"), Server("part")
    whole.extensions.declare(TIDES, {"datum": "LAT"})
    middle.include(part)
    whole.include(middle)
    with pytest.raises(ValueError, match="datum='LAT'"):
        part.extensions.declare(TIDES, {"unit": "m", "datum": "MSL"})
    assert part.extensions.declared == middle.extensions.declared == {}
    assert whole.extensions.declared == {TIDES: {"datum": "LAT"}}


def test_settings_of_which_one_conflicts_change_nothing() -> None:
    """A bug: those before it were added."""
    server = Server("harbour")
    server.extensions.declare(TIDES, {"datum": "LAT"})
    with pytest.raises(ValueError, match="datum='LAT'"):
        server.extensions.declare(TIDES, {"unit": "m", "datum": "MSL"})
    assert server.extensions.declared == {TIDES: {"datum": "LAT"}}


def test_including_a_server_that_handles_the_same_notification_is_refused() -> None:
    """A bug: the parent kept its own handler, and the mounted server's was never called."""
    whole, part = Server("whole"), Server("part")
    for server in (whole, part):
        server.notification("notifications/tides/turned")(lambda params: None)
    with pytest.raises(ValueError, match="'whole' and 'part' both handle the notification"):
        whole.include(part)
    assert whole.mounts == []


def test_a_mounted_server_cannot_add_or_include_what_a_server_above_it_serves() -> None:
    """A bug: the function of the mounted server was accepted, and never called."""
    whole, middle, part = Server("whole"), Server("middle"), Server("part")
    whole.method("tides/whole")(lambda params: {})
    whole.notification("notifications/tides/whole")(lambda params: None)
    whole.include(middle)
    part.method("tides/whole")(lambda params: {})
    with pytest.raises(ValueError, match="'whole' and 'part' both serve the method 'tides/whole'"):
        middle.include(part)
    with pytest.raises(ValueError, match="'whole' and 'middle' both serve the method 'tides/whole'"):
        middle.method("tides/whole")(lambda params: {})
    with pytest.raises(ValueError, match="'whole' and 'middle' both handle the notification"):
        middle.notification("notifications/tides/whole")(lambda params: None)
    assert middle.mounts == []
    assert "tides/whole" not in middle.handlers
    assert "notifications/tides/whole" not in middle.notification_handlers


def test_a_server_with_methods_that_is_included_twice_is_refused_for_that_reason() -> None:
    whole, part = Server("whole"), tides_server()
    whole.include(part)
    with pytest.raises(ValueError, match="includes 'harbour' already"):
        whole.include(part, prefix="again")


async def test_a_result_can_override_each_caching_hint() -> None:
    server = Server("harbour")
    hints: dict[str, Any] = {}

    @server.method("tides/forecast", extension=TIDES, cacheable=True, ttl=5, cache_scope="public")
    async def forecast(params: ForecastParams) -> Forecast:
        return Forecast(port="x", high_water=[], **hints)

    for own_hints, expected in (
        ({}, (5000, "public")),
        ({"ttl_ms": 7}, (7, "public")),
        ({"cache_scope": "private"}, (5000, "private")),
        ({"ttl_ms": 7, "cache_scope": "private"}, (7, "private")),
    ):
        hints.clear()
        hints.update(own_hints)
        result = (await ask(server, "tides/forecast", {"port": "x"}))["result"]
        assert (result["ttlMs"], result["cacheScope"]) == expected
        older = (await ask(server, "tides/forecast", {"port": "x"}, "2025-11-25"))["result"]
        assert set(older) == {"port", "highWater"}


async def test_models_and_raw_json_are_valid_results_but_lists_and_text_are_not() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        port: str

    class AliasedModel(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        town: str = pydantic.Field(alias="port")

    server = Server("harbour")
    results: list[Any] = [
        Model(port="Hull"),
        AliasedModel(port="Hull"),
        msgspec.Raw(b'{"port":"Hull"}'),
        {"port": "Hull"},
        types.Result(),
        {"resultType": "x"},
        [1],
        "text",
    ]

    @server.method("tides/anything")
    async def forecast(params: ForecastParams) -> Any:
        return results.pop(0)

    for _ in range(4):
        assert (await ask(server, "tides/anything", {"port": "x"}))["result"]["port"] == "Hull"
    assert "result" in await ask(server, "tides/anything", {"port": "x"})
    for _ in range(3):
        assert (await ask(server, "tides/anything", {"port": "x"}))["error"]["code"] == -32603


def test_names_of_notifications_are_validated() -> None:
    for name, message in (
        ("no name", "is not the name of a method"),
        ("tools/list", "is a method of the protocol"),
        ("tides/turned", "begin with 'notifications/'"),
    ):
        with pytest.raises(ValueError, match=message):
            Server("s").notification(name)(do_nothing)
