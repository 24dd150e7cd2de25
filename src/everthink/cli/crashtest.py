"""`everthink crashtest`: kill the server at every commit of a conversation and see whether one notices."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..testing.crashtest import CrashTest, Report, Verdict

__all__ = ["command"]

EXIT_FAILED = 1
EXIT_UNTESTED = 2
SAMPLE = "everthink.testing.crashtest.sample:Traveller"


@click.command(
    "crashtest",
    short_help="Kill your agent at every commit, and see it recover.",
    help="""Kill your agent at every commit of a conversation, and see it recover.

    AGENT is module:Class, SCRIPT a YAML file with the conversation (docs/durability.md); without both,
    the built-in sample is played. The script is played once to count the commits, then once per
    commit with the server killed just before it is written, and once just after. Each time a new process
    must finish the conversation: the transcript is the same, a reader who stayed has lost nothing and
    seen nothing twice, each tool has acted once or is reported, no provider would refuse the prompts, and
    no turn is left open.

    The agent's model must decide from the prompt alone, so that it gives the same answer after a restart.
    Databases are new and removed afterwards. Exit code 0 when every point passed, 1 when one did not, 2
    when it could not be tested.

    \b
    Examples:
      everthink crashtest
      everthink crashtest shop.agents:Support support.yaml --points sample:40
      everthink crashtest shop.agents:Support support.yaml --points 17:after --json
      everthink crashtest --store postgresql://me@localhost/scratch --jobs 4""",
)
@click.argument("agent", required=False)
@click.argument("script", required=False, type=click.Path(path_type=Path))
@click.option(
    "--store",
    default="sqlite",
    show_default=True,
    help="sqlite, or postgresql://… (each run gets a schema of its own).",
)
@click.option(
    "--points",
    default="all",
    show_default=True,
    help="all, sample:N (spread evenly), or commits such as 3,7:after,9:before.",
)
@click.option(
    "--again",
    help="Kill the process that recovers as well, at this commit of its own: 2:after, or 2:after,1 for two.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="How many at a time. [default: the number of processors]",
)
@click.option(
    "--patience",
    default=30.0,
    show_default=True,
    type=click.FloatRange(1.0),
    help="Seconds that one step of the script may take.",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def command(
    agent: str | None,
    script: Path | None,
    store: str,
    points: str,
    again: str | None,
    jobs: int | None,
    patience: float,
    as_json: bool,
) -> None:
    """Pull the plug, many times."""
    from ..errors import AgentError
    from ..serving.output import print_error, print_json
    from ..testing.crashtest import CrashTest, choose, read_script
    from ..testing.crashtest.runner import cut_from
    from ..testing.crashtest.sample import SCRIPT

    if agent is not None and script is None:
        raise click.UsageError("Name a script as well: everthink crashtest module:Agent script.yaml")
    try:
        more = tuple(cut_from(word) for word in again.split(",")) if again else ()
        choose(points, 1)  # What cannot be understood is told before anything is run.
        test = CrashTest(
            agent or SAMPLE, read_script(script or SCRIPT), store=store, patience=patience, again=more
        )
        at_once = jobs or os.cpu_count() or 1
        report = asyncio.run(_run(test, points, at_once, quiet=as_json))
    except AgentError as error:
        print_error(error)
        raise SystemExit(EXIT_UNTESTED) from None
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None  # SIGTERM: as Ctrl-C
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)
    if report.of("failed"):
        raise SystemExit(EXIT_FAILED)


async def _run(test: CrashTest, points: str, jobs: int, *, quiet: bool) -> Report:
    # As Ctrl-C: processes, files and schemas are removed on the way out. Not by raising SIGINT: what a shell
    # starts in the background ignores that.
    work = asyncio.current_task()
    assert work is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    return await (_quietly if quiet else _with_progress)(test, points, jobs)


async def _quietly(test: CrashTest, points: str, jobs: int) -> Report:
    from ..testing.crashtest import choose

    return await test.run(choose(points, await test.rehearse()), jobs=jobs)


async def _with_progress(test: CrashTest, points: str, jobs: int) -> Report:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ..testing.crashtest import choose

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]}", style="bold red"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("Playing it without a crash", total=None, failed="")
        commits = await test.rehearse()
        chosen = choose(points, commits)
        bar.update(task, description="Pulling the plug", total=len(chosen), completed=0)
        told = _counting(lambda failed: bar.update(task, advance=1, failed=failed))
        return await test.run(chosen, jobs=jobs, told=told)


def _counting(show: Callable[[str], object]) -> Callable[[Verdict], None]:
    failed = 0

    def told(verdict: Verdict) -> None:
        nonlocal failed
        failed += verdict.status == "failed"
        show(f"{failed} failed" if failed else "")

    return told


def _show(report: Report) -> None:
    from ..serving.output import say

    failed, missed = report.of("failed"), report.of("not reached")
    if failed:
        _table(failed)
        _logs(failed[0])
    told = f"{len(report.of('passed'))} of {len(report.verdicts)} crash points passed"
    say(f"{told} ({report.commits} commits, {report.seconds:.0f} s).", "bold red" if failed else "bold green")
    if missed:
        say(f"{len(missed)} were not reached: commits of a stream differ a little from run to run.", "dim")


def _table(failed: list[Verdict]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..testing.crashtest.runner import spelled

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=200)  # A pipe has no edge.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("point", no_wrap=True)
    table.add_column("step", ratio=1)
    table.add_column("commit", ratio=1)
    table.add_column("what went wrong", ratio=3)
    for verdict in failed:
        wrong = Text("\n").join(
            Text.assemble((f"{failure.kind} ", "red"), failure.what) for failure in verdict.failures
        )
        writes = ", ".join((verdict.cut or {}).get("writes", []))
        table.add_row(spelled(verdict.point), verdict.step, writes, wrong)
    console.print(table)


def _logs(verdict: Verdict) -> None:
    from ..serving.output import say
    from ..testing.crashtest.runner import spelled

    lines = [
        line for line in verdict.log.splitlines() if not line.startswith(("everthink serves", "  ws://"))
    ]
    if lines:
        say(f"What the server said at {spelled(verdict.point)}:", "bold")
        for line in lines[-20:]:
            say(f"  {line}", "dim")
        say()
