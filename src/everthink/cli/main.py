"""The `everthink` command: names and one line each; a command is imported when it is run."""

from __future__ import annotations

import importlib
from typing import Any

import click

__all__ = ["cli", "main"]

COMMANDS = {
    "new": "Start a project: an agent with a tool, and a test.",
    "dev": "Serve your agents on this machine, with reload and a page.",
    "serve": "Serve your agents in production.",
    "chat": "Talk to an agent of a running server in the terminal.",
    "mcp": "Offer your agents to MCP clients, or look at an MCP server.",
    "inspect": "Look into a database: agents, turns, calls.",
    "files": "Look at an agent's files, and change them.",
    "skills": "Check skills, list those of agents, install some.",
    "release": "Try again what was set aside.",
    "export": "Write everything that is kept of an agent, as JSON lines.",
    "erase": "Delete an agent and everything that is kept of it.",
    "crashtest": "Kill your agent at every commit, and see it recover.",
    "doctor": "See what is installed, configured and missing.",
}

ELSEWHERE = {
    "new": "everthink.new_cli.command",
    "files": "everthink.files_cli.command",
    "skills": "everthink.skills_cli.command",
}
"""Commands that have a room of their own."""

WITHOUT_ENV_FILE = ("new", "crashtest")
"""These depend on nothing around them; the others read `.env`."""

CALLED = {
    ("chat", "--url"): "It is called --server.",
    ("chat", "--host"): "Say where it is with --server http://host:port.",
    ("chat", "--port"): "Say where it is with --server http://host:port.",
    ("serve", "--reload"): "`everthink dev` restarts when a file changes; `serve` is for production.",
    ("serve", "--open"): "`everthink dev` has a page to open; `serve` is for production.",
}
"""Options that are expected where they are not, and what there is instead."""

EXAMPLES = """\b
Examples:
  everthink dev                     the demo agent, or yours in ./agents
  everthink new shop-assistant      a project of your own
  everthink chat assistant/room-1   talk to it from a second terminal"""


class Lazy(click.Group):
    """Knows its commands by name. What goes wrong in one of them is told in sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        place = ELSEWHERE.get(cmd_name, f"{__package__}.{cmd_name}")
        return getattr(importlib.import_module(place), "command")  # noqa: B009 - untyped on purpose

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one comes close."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(COMMANDS)}."
            ctx.fail(f"There is no command {args[0]!r}. {hint}")
        if args and args[0] not in WITHOUT_ENV_FILE:
            from .env_file import read_env_file, tell_unknown

            read_env_file()  # before the options are read: some come from the environment
            tell_unknown()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            said = CALLED.get((error.ctx.info_name or "" if error.ctx else "", error.option_name))
            if said is None:
                raise
            raise click.NoSuchOption(error.option_name, f"{error.message} {said}", ctx=error.ctx) from None
        except click.BadParameter as error:
            raise _with_its_place(error) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            ctx.exit(130)
        except BrokenPipeError:
            raise  # click ends quietly when nobody reads any more
        except Exception as error:
            from ..serving.output import exit_code_of, print_unless_traced

            if not print_unless_traced(error):
                raise
            ctx.exit(exit_code_of(error))


def _with_its_place(error: click.BadParameter) -> click.BadParameter:
    """The same, with where the value was set if nobody typed it."""
    from click.core import ParameterSource

    ctx, param = error.ctx, error.param
    if ctx is None or param is None or not isinstance(param.envvar, str):
        return error
    if ctx.get_parameter_source(param.name) is not ParameterSource.ENVIRONMENT:
        return error
    from .env_file import place_of

    where = f"It is set as {param.envvar} in {place_of(param.envvar)}."
    return click.BadParameter(f"{error.message} {where}", ctx, param, error.param_hint)


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"everthink {version('everthink')}")
        ctx.exit()


@click.group(
    cls=Lazy,
    help=f"Chat agents that do not lose their thread.\n\n{EXAMPLES}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Say the version."
)
def cli() -> None:
    """The group of all commands."""


def main() -> None:
    """Run the command line."""
    import sys

    if any("://" in argument or "=" in argument or argument == "--token" for argument in sys.argv[1:]):
        from .process_list import hide_secrets

        hide_secrets(sys.argv[1:])
    cli(prog_name="everthink")
