"""Runs a server: silently over stdio, with one line over a Unix socket, or over HTTP with banner and access log."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from signal import SIGINT
from typing import TYPE_CHECKING

import click

from wharfinger.cli.error_report import CTRL_C_EXIT_CODE
from wharfinger.cli.options import Verbosity, bearer_token
from wharfinger.cli.serving.limits_option import apply_limits
from wharfinger.cli.serving.listen_address import is_any_address
from wharfinger.net import is_loopback

if TYPE_CHECKING:
    from wharfinger.auth import TokenAuth
    from wharfinger.cli.render.banner import Banner, ServerAddress
    from wharfinger.cli.serving.serving_options import HttpSettings
    from wharfinger.protocol.interfaces import Store, Verify
    from wharfinger.server import Server
    from wharfinger.web.browse_site import BrowseSite

__all__ = ["serve_http", "serve_stream"]

TRIED_PORTS = 100
"""Number of ports that are tried, from the default port on."""


def serve_stream(
    server: Server, unix: str | None, limits: tuple[str, ...], verbosity: Verbosity, *, tracebacks: bool = False
) -> int:
    """Serve on the Unix socket `unix`, or over stdio, where stdout carries nothing but the protocol.

    Returns:
        The exit code: 130 after Ctrl-C, 0 otherwise.
    """
    from wharfinger.cli.stderr_log import log_to_stderr

    log_to_stderr(verbosity, tracebacks=tracebacks)
    server.limits = apply_limits(server.limits, limits)
    if unix is not None:
        from wharfinger.transports.unix_server import serve_unix

        def ready() -> None:
            if not verbosity.quiet:
                click.echo(f"Serving {server.info.name} at unix:{os.path.abspath(unix)}")

        return CTRL_C_EXIT_CODE if serve_unix(server, unix, on_ready=ready) else 0
    from wharfinger.transports.stdio_server import serve_stdio

    return CTRL_C_EXIT_CODE if serve_stdio(server) else 0


def serve_http(
    server: Server,
    settings: HttpSettings,
    banner_for: Callable[[ServerAddress], Banner],
    verbosity: Verbosity,
    *,
    tracebacks: bool = False,
) -> int:
    """Serve over HTTP until a signal, with banner and access log on stdout and everything else on stderr.

    `banner_for` makes the banner. It may block, so it is called in a thread while the first requests are served.

    Returns:
        The exit code: 130 after Ctrl-C, 0 after SIGTERM.

    Raises:
        click.UsageError: options do not fit together, or none of the tried ports is free.
        AddressInUse: the user has chosen a port, and it is in use.
    """
    import asyncio

    from wharfinger.cli.render.printer import Printer
    from wharfinger.cli.serving.access_log import AccessLog
    from wharfinger.cli.serving.limits_option import http_limits
    from wharfinger.cli.serving.page_items import PageData
    from wharfinger.cli.stderr_log import log_to_stderr
    from wharfinger.transports.accepting import AddressInUse
    from wharfinger.transports.http_server import runner

    log_to_stderr(verbosity, tracebacks=tracebacks)
    server.limits = apply_limits(server.limits, settings.limits)
    printer = Printer()
    banners: list[Banner] = []
    tasks: list[asyncio.Task[None]] = []
    if not verbosity.quiet:
        AccessLog(printer.print).follow(server)

    async def show(url: str) -> None:
        from wharfinger.cli.render.banner import banner_text

        # The signal handlers are set by now: a script may wait for the banner and then send a signal.
        published_address = server_address(url, settings)
        if site is not None:
            published_address = published_address._replace(page=published_address.page.rstrip("/") + site.entry)
        banners.append(await asyncio.to_thread(banner_for, published_address))
        if not verbosity.quiet:
            printer.print(banner_text(banners[0]).rstrip("\n"))

    def ready(url: str) -> None:
        named = settings.public_url or settings.allow_host
        if is_any_address(settings.listen.host) and not named and not verbosity.quiet:
            click.echo(
                "Requests to another host than localhost are refused. To let other machines use the server by its name "
                "or address, pass --allow-host NAME or --public-url URL.",
                err=True,
            )
        tasks.append(asyncio.get_running_loop().create_task(show(url)))
        if auth is not None and not verbosity.quiet:
            tasks.append(asyncio.get_running_loop().create_task(report_unreachable(auth)))

    data = PageData(server)
    site = make_site(server, settings) if settings.browse else None

    async def page() -> tuple[str, bytes]:
        from wharfinger.cli.render.banner import without_content
        from wharfinger.cli.render.start_page import start_page

        if not banners:
            from wharfinger.errors import Overloaded

            raise Overloaded("The server is starting.")
        banner = banners[0] if server.policy is None else without_content(banners[0])
        return "text/html; charset=utf-8", start_page(banner, await data.items()).encode("utf-8", "surrogateescape")

    listen, auth = settings.listen, None
    try:
        verify = bearer_check(settings.token_env) if settings.token_env else None
        check_credentials(settings)
        if settings.token_env or settings.tokens or settings.auth:
            forbid_core_files()
        for port in range(listen.port, listen.port + (1 if listen.chosen else TRIED_PORTS)):
            auth = server.server_policy.bind_auth(token_auth(settings, port, server.store))
            try:
                serving = runner.serve_http(
                    server,
                    listen.host,
                    port,
                    verify=verify,
                    auth=auth,
                    insecure=settings.insecure,
                    allow_hosts=settings.allow_host,
                    allow_origins=settings.allow_origin,
                    public_url=settings.public_url,
                    tls_cert=settings.tls_cert,
                    tls_key=settings.tls_key,
                    limits=http_limits(settings.limits),
                    pages={"/": page},
                    contents=data.read,
                    site=site,
                    on_ready=ready,
                )
                signal = runner.run_in_loop(serving)
            except AddressInUse:
                if listen.chosen:
                    raise
                if not verbosity.quiet and port + 1 < listen.port + TRIED_PORTS:
                    click.echo(f"Port {port} is in use: trying {port + 1}.", err=True)
            else:
                return CTRL_C_EXIT_CODE if signal == SIGINT else 0
        last = listen.port + TRIED_PORTS - 1
        raise click.UsageError(f"The ports {listen.port} to {last} are in use: choose one with --http HOST:PORT.")
    except ValueError as error:
        from wharfinger.cli.tracebacks import place_of

        if place_of(error):  # it comes from the code of the server's author, such as its lifespan
            raise
        raise click.UsageError(str(error)) from None
    finally:
        printer.close()
        sys.stdout.flush()


def make_site(server: Server, settings: HttpSettings) -> BrowseSite:
    """Return the live page of this server. It calls the server as the principal of its visitor.

    Raises:
        MissingExtra: the extra `browse` is not installed.
    """
    from pathlib import Path

    from wharfinger.cli.render.formatting import slug
    from wharfinger.server.server_inspection import ServerInspection
    from wharfinger.transports.memory import MemoryTarget
    from wharfinger.upstreams.config import ServerConfig
    from wharfinger.web.browse_site import BrowseSite

    name = slug(server.info.name, fallback="server")
    protected = bool(settings.token_env or settings.tokens or settings.auth)
    directory = os.environ.get(PAGE_DIRECTORY_VARIABLE)
    return BrowseSite(
        lambda principal: [ServerConfig(name=name, target=MemoryTarget(server, principal))],
        name=name,
        shared=False,
        inspection=ServerInspection(server, shared=bool(settings.tokens or settings.auth)),
        directory=Path(directory) if directory and not protected else None,
        asks_for_token=protected,
    )


PAGE_DIRECTORY_VARIABLE = "_WHARFINGER_PAGE_DIRECTORY"
"""Set by `--reload`: the private folder from which a restarted server knows the visitors of its page."""


def server_address(url: str, settings: HttpSettings) -> ServerAddress:
    """Return the address that clients use for the server whose base URL is `url`."""
    from wharfinger.cli.render.banner import ServerAddress
    from wharfinger.cli.serving.listen_address import reachable_url

    base = reachable_url(url)
    if settings.public_url:
        base = settings.public_url.removesuffix("/").removesuffix("/mcp")
    token_env = settings.token_env or ("WHARFINGER_TOKEN" if settings.tokens else "")
    return ServerAddress(f"{base}/mcp", f"{base}/", token_env, settings.auth, settings.tokens)


def check_credentials(settings: HttpSettings) -> None:
    """Raise click.UsageError if the options for tokens do not fit together."""
    if settings.token_env and (settings.tokens or settings.auth):
        raise click.UsageError("--token-env accepts a single token: leave it out, or leave out --tokens and --auth.")
    if settings.require_scope and not (settings.tokens or settings.auth):
        raise click.UsageError("--require-scope is for tokens with scopes: add --tokens FILE or --auth ISSUER_URL.")
    has_known_url = settings.public_url or (is_loopback(settings.listen.host) and settings.listen.port)
    if settings.auth and not has_known_url:
        raise click.UsageError(
            "--auth needs --public-url: the authorization server issues tokens for the URL that clients use."
        )


def token_auth(settings: HttpSettings, port: int, store: Store | None = None) -> TokenAuth | None:
    """Return the check of tokens that `--tokens` and `--auth` ask for, or None without these options.

    The ids of used DPoP proofs are kept in `store`, by default in memory.

    Raises:
        TokenFileError: the file of tokens cannot be used.
        ValueError: an issuer is not an https URL.
    """
    if not settings.tokens and not settings.auth:
        return None
    from wharfinger.auth import JWTVerifier, StaticTokens, TokenAuth

    scheme = "https" if settings.tls_cert else "http"
    host = f"[{settings.listen.host}]" if ":" in settings.listen.host else settings.listen.host
    base = settings.public_url.removesuffix("/").removesuffix("/mcp") or f"{scheme}://{host}:{port}"
    verifiers = [JWTVerifier(issuer=issuer, audience=f"{base}/mcp") for issuer in settings.auth]
    files = [StaticTokens(settings.tokens)] if settings.tokens else []
    return TokenAuth(*files, *verifiers, require_scopes=settings.require_scope, store=store)


async def report_unreachable(auth: TokenAuth) -> None:
    """Fetch the keys of the authorization servers. Print a line to stderr for each set that cannot be fetched."""
    import asyncio

    from wharfinger.auth import JWTVerifier, VerifierUnavailable
    from wharfinger.content.text import escape_controls

    async def fetch(verifier: JWTVerifier) -> None:
        try:
            await verifier.fetch_keys()
        except VerifierUnavailable as error:
            line = (
                f"Requests with tokens of {verifier.issuer} get 503 for now: {error} Its keys are fetched again when "
                "such a token arrives."
            )
            click.echo(escape_controls(line), err=True)

    await asyncio.gather(*(fetch(verifier) for verifier in auth.verifiers if isinstance(verifier, JWTVerifier)))


def forbid_core_files() -> None:
    """Prevent this process from writing a core file: it would contain tokens, which stay valid after a crash."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def bearer_check(variable: str) -> Verify:
    """Return the check that a request has the bearer token in the environment variable `variable`.

    Raises:
        click.UsageError: the variable is not set.
        ValueError: the token is too short.
    """
    from wharfinger.auth import static_token

    return static_token(bearer_token(variable))
