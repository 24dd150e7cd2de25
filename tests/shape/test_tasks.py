"""Nothing fails unheard: every place that starts a task, and who hears what it raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .source import modules

STARTS = {"FiberTask", "create_task", "ensure_future"}

# Where a task is started by hand, and who awaits it. Everything else goes through `tasks.begin`, or the
# `background` of an agent, which does: what it raises is logged with its traceback and told as an event.
AWAITED = {
    "accepting": "the caller awaits; `_unheard` tells what a caller that has left does not hear",
    "browser.browsers": "whoever lent the page awaits; `close` awaits what ends by itself",
    "browser.cdp": "what ends the conversation is told to whoever waits, and logged",
    "browser.chromium": "awaited in the same function",
    "browser.tab": "waits, cancelled in the same function",
    "children.detached": "awaited in the same function; what is seen through goes to `background`",
    "cli.dev": "the command waits for all of them",
    "cli.doctor": "awaited in the same function",
    "client.below": "`close` awaits; what one raises is logged",
    "client.exchange": "what one raises ends the exchange, and whoever waits is told",
    "client.line": "closing the line awaits the keeper; what ends it is told to whoever listens",
    "children.following": "awaited, or cancelled in the same function",
    "children.runs": "the caller awaits; what goes on without them goes to `background`",
    "children.watching": "awaited in the same function; what goes on without the caller goes to `background`",
    "cluster.membership": "whoever claims an agent, or leaves, awaits it",
    "codemode.execution": "the code awaits its answers; what has begun is awaited by `finish`",
    "codemode.tool": "the code awaits what is shown of it; what showing raises is logged there",
    "context.bound_block": "the caller awaits; when it has left, `_report` logs",
    "deliveries.delivery": "cancelled in the same function; what typing raises is logged there",
    "devtools.inspector": "awaited when the socket ends",
    "door.admission": "the caller awaits the admission; `_run` tells of everything that breaks a turn off",
    "door.concurrency": "a timer, cancelled in the same function",
    "extensions.dispatching": "`background` of the agent; what an extension raises is logged there",
    "file_tools.bash": "the script awaits what is shown of it; what showing raises is logged there",
    "fibers.fibers": "`_ended` logs and tells",
    "fibers.recovery": "awaited by whoever scans; a handler that is late goes to `background`",
    "guard.proxy": "`close` awaits; what a connection raises ends it, and is answered to the program",
    "journal.writer": "awaited in the same function, however often whoever waits is cancelled",
    "machines.process": "whoever kills it awaits its end",
    "machines.running": "awaited in the same run; what a host raises is raised by it",
    "machines.sandbox": "whoever asked for the job awaits it, or has it cancelled and waits",
    "mcp.calls": "the call awaits what is shown of it; what showing raises is logged there",
    "mcp.link": "the owner task turns everything into a state; what a call raises its caller hears",
    "mcp.servers": "waits, cancelled in the same function",
    "mcp.shared": "whoever opens them awaits",
    "observe.bus": "`_finish` logs what a subscriber raises",
    "recovery.recover": "awaited in the same function; a hook that does not end goes to `background`",
    "recovery.trials": "`load` awaits; `_written` logs",
    "runtime.claims": "whoever takes an agent of the family awaits",
    "runtime.chat": "awaited in the same function",
    "runtime.directory": "whoever reaches, evicts or erases the agent awaits; `_erase_idle` awaits",
    "runtime.waker": "`_run` and `_wake` catch everything, log it and try again",
    "sandbox.guest": "`_work` tells the host of everything; a watch ends with its job",
    "deliveries.courier": "waits, cancelled in the same function",
    "messengers.connections": "awaited, or cancelled, in the same function; what is left behind is closed",
    "deliveries.sending": "the caller awaits; one that is cancelled waits a moment for what is on its way",
    "monty.sandbox": "the guest waits for it; what a host raises is raised by the run",
    "sandbox.pool": "whoever gives a child back, or closes the pool, awaits",
    "sandbox.running": "awaited in the same run; what a host raises is raised by it",
    "schedules.alarms": "`run_due` awaits, for the waker, which tries again",
    "app.app": "whoever opens the app awaits",
    "server.asgi": "awaited when the socket ends",
    "server.chat_sockets": "`_catch_up` logs; whoever joins awaits it",
    "store.crashpoints": "`close` awaits",
    "postgres.store": "`close` awaits",
    "postgres.writer": "each commit's future gets what is raised",
    "sqlite.store": "`close` awaits",
    "tasks": "this is the place",
    "workspace.disk": "`apply` awaits; a caller that has left waits for the thread",
    "workspace.stored": "`_seen_through` awaits, also for a caller that has left",
    "turn.attempt": "awaited in the same function",
    "turn.calls": "`finished` awaits; what is abandoned goes to `background`",
}


def started() -> Iterator[str]:
    """The modules that start tasks by hand."""
    for module in modules():
        if module.room == "testing":
            continue
        calls = (node.func for node in ast.walk(module.tree) if isinstance(node, ast.Call))
        if any(getattr(func, "attr", getattr(func, "id", None)) in STARTS for func in calls):
            yield module.short


def test_every_place_that_starts_a_task_says_who_hears_what_it_raises() -> None:
    assert set(started()) == set(AWAITED)
