"""What code that calls tools costs: an execution, a call that is journaled, a replay."""

from __future__ import annotations

import tempfile
import time
from statistics import median
from typing import Any

from everthink.clock import SystemClock
from everthink.codemode import queries
from everthink.codemode.execution import Execution
from everthink.codemode.functions import functions_of
from everthink.monty.sandbox import MontySandbox
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.sandbox.port import Job, NoHost
from everthink.store.port import AgentStore
from everthink.tools.tool import Tool

from .measure import Row

__all__ = ["code"]

CALLS = 100


class _Alone:
    """Calls outside of a turn: the body, and nobody who has a say."""

    async def asks(self, tool: Tool, call_id: str, input: Any) -> bool:
        return False

    async def run(self, tool: Tool, call_id: str, input: Any, *, begin: Any, conclude: Any) -> Any:
        await begin(None)
        return input["n"]


async def _body(given: dict[str, Any]) -> int:
    return given["n"]


async def code(*, repetitions: int) -> list[Row]:
    """Wall time, medians."""
    sandbox = MontySandbox()
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    functions = functions_of("tools", [Tool.from_schema("f", "A tool.", schema, _body)])
    names = {name: function.stub("python") for name, function in functions.items()}
    source = f"for n in range({CALLS}):\n    await tools.f(n=n)"
    with tempfile.TemporaryDirectory() as folder:
        database = await open_store(f"sqlite:///{folder}/bench.db", MIGRATIONS)
        store = AgentStore(database, "Bench/one")

        async def execute(id: str) -> float:
            rows = await queries.calls_of(store, id)
            execution = Execution(
                id,
                store=store,
                clock=SystemClock(),
                inner=_Alone(),  # pyright: ignore[reportArgumentType]
                functions=functions,
                rows=rows,
                changed=lambda: None,
            )
            job = Job(language="python", source=source, names=names, now=1, seed=id)
            began = time.perf_counter()
            outcome = await sandbox.run(job, execution)
            await execution.finish()
            assert outcome.status == "done", outcome.error
            return time.perf_counter() - began

        async def trivial() -> float:
            began = time.perf_counter()
            outcome = await sandbox.run(Job(language="python", source="1"), NoHost())
            assert outcome.value == 1
            return time.perf_counter() - began

        await trivial()
        start = median([await trivial() for _ in range(repetitions * 10)]) * 1e3
        await execute("warm")
        live = median([await execute(f"x{n}") for n in range(repetitions)]) * 1e3 / CALLS
        again = median([await execute(f"x{n}") for n in range(repetitions)]) * 1e3 / CALLS
        await database.close()
    checkout = median([await _checkout(sandbox) for _ in range(repetitions * 10)]) * 1e3
    await sandbox.aclose()
    return [
        Row("a session of Monty, taken and given back", "ms", {"everthink": checkout}).held_to(
            "≤ 1 ms", checkout <= 1
        ),
        Row("code without calls, its types checked", "ms", {"everthink": start}),
        Row("a call of code, journaled (FULL)", "ms", {"everthink": live}).held_to("≤ 1.5 ms", live <= 1.5),
        Row("the same call on replay", "ms", {"everthink": again}),
    ]


async def _checkout(sandbox: MontySandbox) -> float:
    """A session of the worker, for code that needs nothing else: its client is spoken to as well."""
    job = Job(language="python", source="1", check_types=False)
    began = time.perf_counter()
    outcome = await sandbox.run(job, NoHost())
    assert outcome.value == 1
    return time.perf_counter() - began
