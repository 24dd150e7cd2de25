"""`everthink serve`: production."""

from __future__ import annotations

import click

from .env_file import served_option

__all__ = ["command"]


@click.command(
    "serve",
    short_help="Serve your agents in production.",
    help="""Serve your agents in production.

    TARGET is module:app, a file with one app or agent, or a folder with agents. One process serves them all:
    an agent lives in one process, and a process mostly waits for models. A second one may use the same
    PostgreSQL database: each agent has one owner at a time, and the other process answers 503 for it.
    Requests are not passed on yet.

    SIGTERM or Ctrl-C stops it gracefully: connections are told to come back, running turns get time
    to finish, the rest are cut at a chunk and kept. Exit code 0 after that, 1 when it could not
    start, 2 when the command is written wrongly.

    Settings in a file .env of this folder count where the environment does not say otherwise.

    \b
    Examples:
      everthink serve agents --host 0.0.0.0 --port 8080
      everthink serve shop.main:app --forwarded-allow-ips 10.0.0.1""",
)
@click.argument("target")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="HOST",
    help="Where to listen. In a container: 0.0.0.0",
)
@click.option(
    "--port",
    default=8787,
    show_default=True,
    envvar="PORT",
    type=click.IntRange(0, 65535),
    help="Which port; 0 takes any free one.",
)
@served_option
@click.option(
    "--proxy-headers/--no-proxy-headers",
    default=True,
    show_default=True,
    help="Believe X-Forwarded-For and X-Forwarded-Proto …",
)
@click.option(
    "--forwarded-allow-ips",
    default="127.0.0.1",
    show_default=True,
    help="… from these addresses, comma-separated; * is everybody.",
)
@click.option(
    "--access-log/--no-access-log",
    default=True,
    show_default=True,
    help="One line per request on standard output.",
)
@click.option(
    "--graceful-timeout",
    default=30,
    show_default=True,
    type=click.IntRange(0),
    help="Seconds that requests, and turns of a folder's agents, get to finish.",
)
@click.option(
    "--log-level",
    default="warning",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="How much to say on standard error.",
)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="One; see above.")
def command(
    target: str,
    host: str,
    port: int,
    store: str | None,
    proxy_headers: bool,
    forwarded_allow_ips: str,
    access_log: bool,
    graceful_timeout: int,
    log_level: str,
    workers: int,
) -> None:
    """Serve in production."""
    from ..serving.output import EXIT_PROBLEM, WrittenWrongly, say_error

    if workers > 1:
        raise WrittenWrongly(
            f"everthink runs in one process, not in {workers}: an SQLite file has one owner, and an agent "
            "lives in one place.",
            kept="Nothing was started.",
            next_step="One process serves thousands of conversations, because it waits for models most of "
            "the time. Leave --workers out.",
        )

    from ..serving.missing_models import odd_keys, what_is_missing
    from ..serving.process import address, describe, listen, quiet_logs, run, tell, warn_when_open
    from ..serving.target import Asked, load, source_of

    quiet_logs(access=access_log, level=log_level)
    ask = Asked("serve", store, source_of("store"), float(graceful_timeout))
    loaded = load(target, ask=ask)
    listener = listen(host, port)

    warn_when_open(loaded, listener)

    def ready() -> None:
        tell(f"everthink serves {loaded.source} at {address(listener)}")
        for line in describe(loaded, address(listener)):
            tell(line)
        for note in [*odd_keys(), *what_is_missing(cls for cls, _ in loaded.agents)]:
            say_error(f"Warning: {note}", "yellow")

    fine = run(
        loaded.asgi,
        listener,
        ready=ready,
        graceful_timeout=graceful_timeout,
        proxy_headers=proxy_headers,
        forwarded_allow_ips=forwarded_allow_ips,
        access_log=access_log,
        limits=loaded.app.limits if loaded.app else None,
    )
    if not fine:
        raise SystemExit(EXIT_PROBLEM)
    tell("Stopped.")
