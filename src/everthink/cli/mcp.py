"""`everthink mcp`: agents for MCP clients over standard input and output; and a look at any MCP server."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["command"]


class _Targets(click.Group):
    """A group whose first word is one of its commands, or else what to serve."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let `everthink mcp TARGET` mean `everthink mcp serve TARGET`."""
        asks_for_help = bool(args) and args[0] in ("-h", "--help")
        if args and args[0] not in self.commands and not asks_for_help:
            self._refuse_slip(ctx, args[0])
            args = ["serve", *args]
        return super().parse_args(ctx, args)

    def _refuse_slip(self, ctx: click.Context, word: str) -> None:
        """Say which command comes close to a word that is none, and nothing to serve either."""
        import difflib
        import os

        near = difflib.get_close_matches(word, self.commands, n=1)
        if near and ":" not in word and not os.path.exists(word):
            ctx.fail(f"There is no command {word!r}, and nothing to serve there. Did you mean {near[0]!r}?")

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As it is typed."""
        formatter.write_usage(ctx.command_path, "TARGET [OPTIONS]")
        formatter.write_usage(ctx.command_path, "list URL [OPTIONS]")
        formatter.write_usage(ctx.command_path, "call URL TOOL [JSON] [OPTIONS]")


@click.group(
    "mcp",
    cls=_Targets,
    short_help="Offer your agents to MCP clients, or look at an MCP server.",
    help="""Offer your agents to MCP clients, or look at an MCP server.

    `everthink mcp TARGET` speaks MCP over standard input and output, so that a desktop client can start it:
    each agent that chats is a tool ask_…. TARGET is what it is for `serve`: module:app, a file with one app
    or agent, or a folder with agents. A database that a server has open belongs to that server: use its
    address instead, App(mcp=True) and http://host/mcp.

    `list` and `call` are the other side: they show the tools of any MCP server, and call one.

    Needs everthink[mcp].

    \b
    Examples:
      everthink mcp agents
      everthink mcp list http://127.0.0.1:8787/mcp
      everthink mcp call http://127.0.0.1:8787/mcp ask_assistant '{"message": "Hello"}'

    \b
    In the configuration of a desktop client:
      {"mcpServers": {"shop": {"command": "everthink", "args": ["mcp", "agents", "--cwd", "/srv/shop"]}}}""",
)
def command() -> None:
    """The group of its commands."""


@command.command(
    "serve",
    short_help="TARGET: speak MCP over standard input and output.",
    help="""Offer the agents of TARGET to one MCP client, over standard input and output.

    Nothing but the protocol is written to standard output: what agents print goes to standard error, as the
    log does. It ends with its input, or on SIGTERM: exit code 0. 1 when it could not start, 2 when the
    command is written wrongly.

    \b
    Examples:
      everthink mcp agents
      everthink mcp shop.main:app --cwd /home/ada/shop""",
)
@click.argument("target")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False),
    help="The folder to run in, for clients that start programs elsewhere. Its .env counts.",
)
@click.option(
    "--store",
    envvar="EVERTHINK_STORE",
    show_envvar=True,
    help="The database, when TARGET is a folder or an agent: sqlite:///path or postgresql://…",
)
@click.option("--exposed", is_flag=True, help="Offer @exposed methods as well.")
@click.option("--as", "identity", help="In whose name agents are asked; kept with every turn.")
@click.option(
    "--log-level",
    default="warning",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="How much to say on standard error.",
)
def serve(
    target: str, cwd: str | None, store: str | None, exposed: bool, identity: str | None, log_level: str
) -> None:
    """Speak MCP over standard input and output."""
    import asyncio
    import os

    from ..mcp_server.pipes import claim
    from ..mcp_server.settings import check_installed
    from ..serving.missing_models import odd_keys, what_is_missing
    from ..serving.output import say_error
    from ..serving.process import quiet_logs
    from ..serving.target import Asked, load, source_of
    from .env_file import read_env_file

    check_installed("everthink mcp")
    pipes = claim()  # before anything of theirs is imported, which may print
    named_by = source_of("store")
    if cwd is not None:
        os.chdir(cwd)
        read_env_file()
        if store is None and (store := os.environ.get("EVERTHINK_STORE")) is not None:
            named_by = "EVERTHINK_STORE"
    quiet_logs(access=False, level=log_level)
    loaded = load(target, ask=Asked("mcp", store, named_by))
    for note in [*odd_keys(), *what_is_missing(cls for cls, _ in loaded.agents)]:
        say_error(f"Warning: {note}", "yellow")
    asyncio.run(_serve(loaded, pipes, exposed=exposed, identity=identity))


async def _serve(loaded: Any, pipes: Any, *, exposed: bool, identity: str | None) -> None:
    from dataclasses import replace
    from importlib.metadata import version

    from ..access.access import Pass
    from ..identity import kept, mark_of
    from ..mcp_endpoint import McpEndpoint
    from ..mcp_server.catalogue import Catalogue
    from ..mcp_server.service import Offering, Service
    from ..mcp_server.stdio import serve
    from ..serving.output import WrittenWrongly
    from ..think import Think

    app = loaded.app
    if app is None:
        raise WrittenWrongly(
            f"No agent is seen in {loaded.source}.", next_step="Name the App itself, or a folder with agents."
        )
    endpoint = app.mcp or McpEndpoint()
    endpoint = replace(endpoint, exposed=endpoint.exposed or exposed)
    offering = Offering(
        endpoint=endpoint,
        catalogue=Catalogue(app.classes, endpoint, Think),
        open=app.open,
        access=app.access,
        limits=app.limits,
        version=version("everthink"),
    )
    async with app:
        await serve(Service(offering, Pass(identity, kept(identity), mark_of(identity))), pipes)


# --- the other side

_HEADERS = click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME: VALUE",
    help='A header of every request, such as "Authorization: Bearer …". May be given several times.',
)
_TIMEOUT = click.option(
    "--timeout",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds to wait for an answer.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="For scripts.")


@command.command(
    "list",
    short_help="The tools of an MCP server.",
    help="""The tools of the MCP server at URL: their names, what they are for, what they take.

    Exit codes: 0 fine, 1 nobody is there, it is no MCP server, or it does not let you in; 2 written wrongly.

    \b
    Examples:
      everthink mcp list http://127.0.0.1:8787/mcp
      everthink mcp list https://agents.example.com/mcp --header "Authorization: Bearer $TOKEN" --json""",
)
@click.argument("url")
@_HEADERS
@_TIMEOUT
@_JSON
def list_(url: str, headers: tuple[str, ...], timeout: float, as_json: bool) -> None:
    """List the tools of a server."""
    from .mcp_client import list_tools, run

    run(list_tools(url, headers, timeout=timeout, as_json=as_json))


@command.command(
    "call",
    short_help="Call a tool of an MCP server.",
    help="""Call TOOL of the MCP server at URL, with arguments as a JSON object, and print what it gives back.

    Exit codes: 0 fine; 1 the tool failed, nobody is there, it is no MCP server, or it does not let you in;
    2 written wrongly: JSON that is none, a tool that there is not.

    \b
    Examples:
      everthink mcp call http://127.0.0.1:8787/mcp ask_assistant '{"message": "Hello"}'
      everthink mcp call http://127.0.0.1:8787/mcp ask_assistant '{"conversation": "mcp-…"}' --json""",
)
@click.argument("url")
@click.argument("tool")
@click.argument("arguments", metavar="[JSON]", default="{}")
@_HEADERS
@_TIMEOUT
@_JSON
def call(
    url: str, tool: str, arguments: str, headers: tuple[str, ...], timeout: float, as_json: bool
) -> None:
    """Call a tool of a server."""
    from .mcp_client import call_tool, run

    run(call_tool(url, tool, arguments, headers, timeout=timeout, as_json=as_json))
