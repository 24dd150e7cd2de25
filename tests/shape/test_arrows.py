"""Who may know whom. The table is the architecture; the tests hold the code to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .source import Module, modules

# Values: no clock of their own choosing, no I/O, known to everybody. One only ever points up.
VALUES: dict[str, set[str]] = {
    "facades": set(),
    "errors": set(),
    "masking": set(),
    "plain": set(),
    "words": set(),
    "consent": {"plain"},
    "logs": {"masking", "plain"},
    "abort": set(),
    "clock": set(),
    "address": {"errors"},
    "backoff": set(),
    "collecting": set(),
    "weight": set(),
    "empty": set(),
    "causes": {"errors"},
    "accepting": {"causes"},
    "current": set(),
    "own": set(),
    "limits": {"errors"},
    "kinds": {"errors"},
    "calling": {"errors", "kinds"},
    "holds": {"calling"},
    "settings": {"errors", "kinds"},
    "surface": {"errors", "settings"},
    "mcp_endpoint": {"kinds", "surface"},
    "identity": {"errors"},
    "store_urls": {"errors", "masking"},
    "media_types": set(),
    "text_diff": {"errors"},
    "messages": {"clock", "errors", "kinds"},
    "json_values": {"errors", "messages", "settings"},
    "chunks": {"errors", "messages"},
}

# A room may import itself, the values, and what stands to its right: a whole room ("session") or one module
# of it ("store.port"). From top to bottom, a room only ever points up. Imports inside functions and
# under TYPE_CHECKING count as well.
PORTS = {"store.port", "models.port", "tools", "observe.events"}
ROOMS: dict[str, set[str]] = {
    # The frames of the protocol, and how much of one is read.
    "wire": set(),
    # Which addresses may be opened that others chose: asked by everything that opens one.
    "guard": {"wire.bounds"},
    # Programs that run for us.
    "programs": set(),
    # A directory that nothing leads out of.
    "confined": set(),
    "object_contents": set(),
    # Ports, each with its adapters beside it.
    "store": set(),
    "sqlite": {"store"},
    "postgres": {"store"},
    "open_store": {"store", "sqlite", "postgres"},
    "models": {"guard"},
    "tools": {"models.port", "store.port"},
    # What happened, told to whoever listens.
    "observe": {"models.port"},
    "tasks": {"observe.events"},
    # Where an agent's files are, and what may be done with them.
    "workspace": {
        "confined",
        "object_contents",
        "store.borrowed",
        "store.port",
        "observe.events",
        "observe.workspace_events",
    },
    # The core: values and ports only.
    "context": {"store.port", "models.tokens", "tools"},
    "session": {
        "store.port",
        "models.port",
        "models.tokens",
        "tools",
        "observe.events",
        "context",
        "workspace.paths",
        "workspace.port",
        "workspace.queries",
        "workspace.stored",
    },
    "hooks": {"models.port", "tools"},
    "journal": {"store.port", "models.port", "tools", "context", "session", "hooks"},
    "prompt": {"models.port", "tools", "session", "journal"},
    "turn": {
        *PORTS,
        "prompt",
        "models.timeout",
        "models.structured",
        "observe.bus",
        "context",
        "session",
        "hooks",
        "journal",
    },
    "door": {*PORTS, "session", "hooks", "journal", "turn"},
    "recovery": {*PORTS, "session", "hooks", "journal", "turn", "door"},
    "fibers": {"store.port", "observe.events", "hooks"},
    "schedules": {"store.port", "observe.events", "tasks", "hooks", "door"},
    # Agents below agents, and their runs: they are turns of the children, asked for through the door.
    "children": {
        *PORTS,
        "models.structured",
        "observe.run_events",
        "hooks",
        "journal",
        "turn",
        "door",
        "schedules.callbacks",
        "wire.frames",
    },
    # Edges: they import the core, the core never imports them.
    # How somebody lets us in: kept over restarts, sealed.
    "oauth": set(),
    "mcp": {*PORTS, "guard", "programs", "oauth", "tasks"},
    # Where code runs that nobody has read: in locked children.
    "sandbox": {"programs"},
    "monty": {"sandbox"},
    # Real processes behind the same port, each in a machine of its own.
    "machines": {"programs", "sandbox"},
    # The tools with which a model works in files.
    "file_tools": {"models.port", "store.port", "tools", "workspace", "sandbox.port"},
    # Code that a model writes, and that calls its tools.
    "codemode": {
        "models.port",
        "store.port",
        "tools",
        "journal.ledger",
        "journal.tool_errors",
        "turn.inner",
        "workspace",
        "file_tools.place",
        "sandbox.port",
        "monty.advice",
        "wire.bounds",
    },
    # Pages of the web, through a browser that reaches nothing private.
    "browser": {
        "guard",
        "programs",
        "models.port",
        "models.structured",
        "store.port",
        "tools",
        "workspace",
        "file_tools",
        "codemode",
    },
    # What becomes of an agent's files in the long run.
    "keeping": {"object_contents", "store.port", "workspace", "journal.queries", "session.queries"},
    # Those of one process, and which of them run here.
    "engines": {"sandbox", "monty", "machines", "browser"},
    # Skills as values, and what a script of one is asked to do.
    "skill_values": {"tools"},
    # Scripts that come with skills, each in the sandbox of its language.
    "skill_scripts": {
        "guard",
        "tools",
        "workspace.port",
        "journal.tool_errors",
        "sandbox.port",
        "sandbox.braces",
        "machines",
        "engines.sandboxes",
        "skill_values",
    },
    # Instructions with their files: where they are, what the prompt says of them, the tools to use them.
    "skills": {
        "guard",
        "confined",
        "models.port",
        "store.port",
        "tools",
        "workspace",
        "context",
        "session",
        "hooks",
        "skill_values",
        "skill_scripts.runner",
    },
    # Platforms where people talk, behind one port: Telegram, Slack, Discord.
    "messengers": {"guard"},
    # What comes in from them as turns, and answers that are shown there.
    "deliveries": {
        "messengers",
        *PORTS,
        "observe.messenger_events",
        "tasks",
        "session",
        "hooks",
        "journal",
        "turn",
        "door",
        "children",
    },
    # Code with declared rights that adds tools and hooks, each in a sandbox of its own.
    "extensions": {
        "guard",
        "models.port",
        "store.port",
        "tools",
        "context",
        "session",
        "hooks",
        "journal.tool_errors",
        "sandbox.port",
        "engines.sandboxes",
        "skill_scripts.bridge",
        "skill_scripts.rights",
    },
    "cluster": {"store", "postgres"},
    "runtime": {
        "messengers",
        "deliveries",
        "keeping",
        "cluster",
        "workspace",
        "sandbox",
        "engines",
        "codemode",
        "file_tools",
        "browser",
        "skills",
        "extensions",
        "store",
        "models",
        "tools",
        "observe",
        "tasks",
        "context",
        "session",
        "hooks",
        "journal",
        "prompt",
        "turn",
        "door",
        "recovery",
        "fibers",
        "schedules",
        "children",
        "mcp",
        "oauth",
    },
    # Who may come in, and what they may do: asked by the server and by the page of `everthink dev`.
    "access": {"observe", "wire", "runtime.rpc"},
}
ARROWS: dict[str, set[str]] = VALUES | {room: targets | set(VALUES) for room, targets in ROOMS.items()}

CORE = (
    "wire",
    "context",
    "session",
    "hooks",
    "journal",
    "turn",
    "door",
    "recovery",
    "fibers",
    "schedules",
    "children",
)

# The rooms on the outside: what users write and run. They may import everything above, and each other
# only as drawn here.
OUTSIDE: dict[str, set[str]] = {
    "server": {"wire"},
    # Façades: what users import by theme. Nobody of ours imports them.
    "chat": set(),
    "memory": set(),
    "timers": set(),
    "declaring": set(),
    "agent": {"declaring", "server.connections"},  # what its hooks are given
    "chat_hooks": set(),
    "think": {"agent", "chat_hooks"},
    "webhooks": {"server"},  # given the parts of an app, where a class has messengers
    "mcp_server": {"server"},  # given the parts of an app; app imports it when `mcp` is asked for
    "app": {"agent", "think", "server", "mcp_server", "webhooks"},
    "framework": {"app"},  # a façade
    "client": {"wire"},
    "testing": {"agent", "think", "server", "app", "wire", "client"},
    "devtools": {"agent", "think", "server", "app"},
    "serving": {"agent", "think", "server", "app", "devtools"},
    "cli": {"agent", "think", "server", "mcp_server", "app", "devtools", "testing", "serving", "client"},
    "files_cli": {"cli", "serving"},  # a command of its own size; cli finds it by name
    "new_cli": {"serving"},  # and this one
    "skills_cli": {"cli", "serving", "think"},  # so is this one
}

# An import against the arrows that we live with: (module, what it imports) -> why.
ALLOWED: dict[tuple[str, str], str] = {}

# What the core must not import, whoever wrote it: databases, servers, providers, exporters.
FOREIGN = {
    "anthropic",
    "asyncpg",
    "fastapi",
    "httpx",
    "httpx2",
    "mcp",
    "obstore",
    "openai",
    "opentelemetry",
    "pydantic_ai",
    "socket",
    "sqlite3",
    "starlette",
    "subprocess",
    "uvicorn",
    "websockets",
}

# Time and ids arrive as arguments in the core.
IMPURE = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "uuid.uuid1",
    "uuid.uuid4",
    "os.urandom",
}


def allowed(room: str) -> set[str]:
    """What `room` may import, itself excluded."""
    return ARROWS[room] if room in ARROWS else set(ARROWS) | OUTSIDE[room]


def arrows(module: Module) -> Iterator[tuple[str, int]]:
    """The other rooms' modules that `module` imports, and where."""
    for imported in module.imports():
        target = imported.name.removeprefix("everthink.")
        if target != imported.name and target.partition(".")[0] != module.room:
            yield target, imported.line


def rooms() -> list[str]:
    return sorted({module.room for module in modules() if module.room})


@pytest.mark.parametrize("room", rooms())
def test_a_room_imports_only_what_the_table_allows(room: str) -> None:
    assert room in ARROWS or room in OUTSIDE, f"{room!r} is a new room: draw its arrows in this file."
    broken = [
        f"{module.place}:{line} imports {target}"
        for module in modules()
        if module.room == room
        for target, line in arrows(module)
        if not any(target == known or target.startswith(known + ".") for known in allowed(room))
        and (module.short, target) not in ALLOWED
    ]
    assert broken == []


def test_the_table_points_one_way() -> None:
    drawn: list[str] = []
    for room, targets in [*ARROWS.items(), *OUTSIDE.items()]:
        later = {target for target in targets if target.partition(".")[0] not in [*drawn, room]}
        assert not later, f"{room} points down to {later}"
        drawn.append(room)


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = {room: set() for room in rooms()}
    for module in modules():
        if module.room:
            edges[module.room] |= {
                target.partition(".")[0]
                for target, _ in arrows(module)
                if (module.short, target) not in ALLOWED
            }
    while free := [room for room, targets in edges.items() if not targets & set(edges)]:
        for room in free:
            del edges[room]
    assert edges == {}, "these rooms import each other in a circle"


def test_no_allowance_is_kept_longer_than_needed() -> None:
    used = {(module.short, target) for module in modules() for target, _ in arrows(module)}
    assert set(ALLOWED) <= used


@pytest.mark.parametrize("room", CORE)
def test_the_core_imports_no_database_server_or_provider(room: str) -> None:
    broken = [
        f"{module.place}:{imported.line} imports {imported.name}"
        for module in modules()
        if module.room == room
        for imported in module.imports()
        if imported.name.partition(".")[0] in FOREIGN
    ]
    assert broken == []


@pytest.mark.parametrize("room", CORE)
def test_the_core_is_given_its_time_and_its_ids(room: str) -> None:
    broken = [
        f"{module.place}:{line} uses {name}"
        for module in modules()
        if module.room == room
        for name, line in impure_uses(module.tree)
    ]
    assert broken == []


def impure_uses(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every mention of a clock or an id maker, under whatever name it was imported."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            first, dot, rest = ast.unparse(node).partition(".")
            full = names.get(first, "") + dot + rest
            if full in IMPURE:
                yield full, node.lineno


@pytest.mark.parametrize(
    "source",
    [
        "import time\nstart = time.time()",
        "from time import monotonic as now\nstart = now()",
        "import datetime as dt\nstart = dt.datetime.now(dt.UTC)",
        "from datetime import datetime\nstart = datetime.now()",
        "from uuid import uuid4\nmake = uuid4",
    ],
)
def test_a_clock_is_found_under_any_name(source: str) -> None:
    assert list(impure_uses(ast.parse(source)))


def test_talking_about_time_is_no_clock() -> None:
    assert not list(
        impure_uses(ast.parse("from datetime import datetime\ndef f(now: datetime): return now.time()"))
    )
