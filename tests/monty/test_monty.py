"""Python in Monty: calls, files, limits, and what becomes of code that will not end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from everthink.monty import sandbox as monty_sandbox
from everthink.monty.advice import blocking
from everthink.monty.sandbox import MontySandbox
from everthink.sandbox.lock import NEEDED, unsupported
from everthink.sandbox.port import HostRefused, Job, Limits, NoHost, Outcome, Pause
from everthink.testing.contracts.sandbox.case import Asked
from tests.mcp.serving import children, is_gone, parent, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LIMITS = Limits(wall=30, cpu=20)


@pytest.fixture
async def sandbox() -> AsyncIterator[MontySandbox]:
    before = children()
    opened = MontySandbox()
    yield opened
    await opened.aclose()
    assert children() == before


async def run(sandbox: MontySandbox, source: str, host: Any = None, **options: Any) -> Outcome:
    options.setdefault("limits", LIMITS)
    return await sandbox.run(Job(language="python", source=source, **options), host or Asked())


async def test_it_can_run_here_and_its_workers_are_locked_in(sandbox: MontySandbox) -> None:
    assert await sandbox.check() is None
    if unsupported() is None:
        held = await sandbox.held()
        assert {step: held[step] for step in NEEDED} == dict.fromkeys(NEEDED, "")


async def test_without_the_extra_it_says_what_to_install(
    sandbox: MontySandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> None:
        return None

    monkeypatch.setattr(monty_sandbox, "find_spec", nothing)
    assert "pip install 'everthink[sandbox]'" in (await sandbox.check() or "")


@pytest.mark.memory_case(392)
async def test_a_call_gets_its_arguments_and_gives_its_answer(sandbox: MontySandbox) -> None:
    async def answer(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return {"sum": sum(args) + sum(kwargs.values()), "data": b"\x00"}

    host = Asked(answer)
    outcome = await run(
        sandbox, "r = await tools.add(1, two=2)\n[r, await ask(3)]", host, names={"tools.add": "", "ask": ""}
    )
    assert outcome.value == [{"sum": 3, "data": b"\x00"}, {"sum": 3, "data": b"\x00"}], outcome.error
    assert host.calls == [("tools.add", [1], {"two": 2}), ("ask", [3], {})]
    assert (outcome.status, outcome.calls) == ("done", 2)


async def test_a_refusal_can_be_caught_and_a_pause_cannot(sandbox: MontySandbox) -> None:
    async def refused(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise HostRefused("not without a person")

    async def paused(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise Pause

    source = "try:\n    await ask()\nexcept BaseException as e:\n    said = str(e)\nprint('on')\nsaid"
    caught = await run(sandbox, source, Asked(refused), names={"ask": ""})
    assert (caught.value, caught.stdout) == ("not without a person", "on\n")
    gone = await run(sandbox, source, Asked(paused), names={"ask": ""})
    assert (gone.status, gone.stdout, gone.value) == ("paused", "", None)


async def test_a_host_that_breaks_is_not_mistaken_for_code_that_does(sandbox: MontySandbox) -> None:
    async def broken(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return 1 // 0

    with pytest.raises(ZeroDivisionError):
        await run(sandbox, "await ask()", Asked(broken), names={"ask": ""})
    assert (await run(sandbox, "1 + 1")).value == 2


async def test_answers_are_given_one_by_one_in_their_order(sandbox: MontySandbox) -> None:
    # Given answers that come in another order than the questions
    gates = [asyncio.Event() for _ in range(3)]

    async def answer(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if args[0] == 2:
            gates[2].set()
        await gates[args[0]].wait()
        if args[0]:
            gates[args[0] - 1].set()
        return args[0]

    source = (
        "import asyncio\nseen = []\n"
        "async def one(n):\n    seen.append(await ask(n))\n"
        "await asyncio.gather(one(0), one(1), one(2))\nseen"
    )
    assert (await run(sandbox, source, Asked(answer), names={"ask": ""})).value == [2, 1, 0]


async def test_the_same_clock_and_seed_make_the_same_run(sandbox: MontySandbox) -> None:
    source = "import random, time, datetime\n[random.random(), time.time(), str(datetime.datetime.now())]"
    one = await run(sandbox, source, now=1_750_000_000_000, seed="a")
    assert one.value == (await run(sandbox, source, now=1_750_000_000_000, seed="a")).value
    assert one.value[1] == 1_750_000_000.0
    assert one.value[0] != (await run(sandbox, source, now=1_750_000_000_000, seed="b")).value[0]


async def test_files_are_those_of_the_job_and_changes_come_back(sandbox: MontySandbox) -> None:
    outcome = await run(
        sandbox,
        "from pathlib import Path\n"
        "text = open('/in/a.txt').read()\n"
        "Path('/out').mkdir()\n"
        "with open('/out/b.txt', 'w') as f:\n    f.write(text)\n    f.write('!')\n"
        "Path('/in/old').unlink()\n"
        "Path('/in/a.txt').rename('/in/c.txt')\n"
        "sorted(str(p) for p in Path('/in').iterdir())",
        files={"/in/a.txt": b"x", "/in/old": b"y", "/in/same": b"z"},
    )
    assert outcome.value == ["/in/c.txt", "/in/same"], outcome.error
    assert outcome.changed == {"/out/b.txt": b"x!", "/in/c.txt": b"x"}
    assert outcome.deleted == ("/in/a.txt", "/in/old")
    assert outcome.folders == {"/in", "/out"}


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "../../etc/passwd"])
async def test_files_of_this_machine_are_not_there(sandbox: MontySandbox, path: str) -> None:
    outcome = await run(sandbox, f"open({path!r}).read()")
    assert outcome.status == "failed"
    assert "FileNotFoundError" in (outcome.error or "")


@pytest.mark.parametrize(
    ("source", "limits", "status", "named"),
    [
        (
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            {"cpu": 0.2},
            "timeout",
            "cpu",
        ),
        ("while True: pass", {"wall": 0.2}, "timeout", "wall"),
        ("await ask()", {"wall": 0.2}, "timeout", "wall"),
        ("x = [0]\nwhile True: x = x + x", {}, "memory", "memory"),
        ("10 ** 10 ** 8", {}, "memory", "memory"),
        (
            "while True:\n    try:\n        await quick()\n    except BaseException: pass",
            {"calls": 3},
            "calls",
            "calls",
        ),
    ],
)
async def test_a_limit_that_stops_code_is_named(
    sandbox: MontySandbox, source: str, limits: dict[str, Any], status: str, named: str
) -> None:
    class Slow(Asked):
        async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            return await asyncio.Event().wait() if name == "ask" else None

    names = {"ask": "", "quick": ""}
    outcome = await run(sandbox, source, Slow(), names=names, limits=replace(LIMITS, **limits))
    assert outcome.status == status
    assert f"({named}" in (outcome.error or "")
    assert (await run(sandbox, "'next'")).value == "next"


async def test_output_is_seen_as_it_comes_and_the_beginning_is_kept(sandbox: MontySandbox) -> None:
    host = Asked()
    source = "import sys\nfor i in range(5): print('123456789')\nprint('no', file=sys.stderr)"
    outcome = await run(sandbox, source, host, limits=replace(LIMITS, output=25))
    assert (outcome.stdout, outcome.stderr) == ("123456789\n123456789\n12345", "no\n")
    assert outcome.dropped_bytes == 25
    assert host.written("stdout") == outcome.stdout


async def test_a_run_that_is_cancelled_kills_the_guest_and_the_next_one_runs(sandbox: MontySandbox) -> None:
    begun = asyncio.Event()

    async def note(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        begun.set()

    endless = run(sandbox, "await ask()\nwhile True: pass", Asked(note), names={"ask": ""})
    running = asyncio.create_task(endless)
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await run(sandbox, "'next'")).value == "next"


async def test_closing_ends_what_runs(sandbox: MontySandbox) -> None:
    begun = asyncio.Event()

    async def note(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        begun.set()

    endless = run(sandbox, "await ask()\nwhile True: pass", Asked(note), names={"ask": ""})
    running = asyncio.create_task(endless)
    await begun.wait()
    await sandbox.aclose()
    assert (await running).status == "crashed"
    assert "closed" in ((await run(sandbox, "1")).error or "")


@pytest.mark.parametrize(
    "job", [{"language": "bash"}, {"style": "command"}, {"limits": Limits(memory=1 << 40)}]
)
async def test_a_job_that_does_not_fit_is_refused(sandbox: MontySandbox, job: dict[str, Any]) -> None:
    options: dict[str, Any] = {"language": "python", "source": "1", **job}
    outcome = await sandbox.run(Job(**options), NoHost())
    assert (outcome.status, outcome.exit_code) == ("failed", None)
    assert "Nothing was run." in (outcome.error or "")


@pytest.mark.parametrize(
    ("source", "way"),
    [
        ("class E(ValueError): pass\nraise E()", "Use plain classes"),
        ("def f():\n    yield 1\nlist(f())", "Build a list"),
        ("import statistics", "sum(values) / len(values)"),
        ("import requests", "call a tool"),
    ],
)
async def test_what_python_lacks_here_is_told_with_the_way_round(
    sandbox: MontySandbox, source: str, way: str
) -> None:
    outcome = await run(sandbox, source)
    assert outcome.status == "failed"
    assert way in (outcome.error or "")
    assert "subset of Python" in (outcome.error or "")


@pytest.mark.parametrize(
    "source",
    [
        "import re\nm = re.match('a', 'a')\nm.group()",
        "d = {'a': 1}\nx = d.get('b')\n(x or 0) + 1",
        "values = [3, 1]\nvalues.sort()\nvalues",
        "try:\n    raise FileNotFoundError('x')\nexcept OSError as e:\n    r = str(e)\nr",
        "list(map(str, filter(None, [1, 0])))",
    ],
)
async def test_code_that_a_checker_of_types_only_doubts_runs(sandbox: MontySandbox, source: str) -> None:
    outcome = await run(sandbox, source)
    assert outcome.status == "done", outcome.error


def test_only_what_is_certain_is_refused() -> None:
    doubt = "main.py:1:1: error[unresolved-attribute] Attribute `group` may be missing on `Match[str] | None`"
    certain = "main.py:2:1: error[unresolved-reference] Name `x` used when not defined"
    assert blocking(doubt, {}) is None
    assert blocking(f"{doubt}\n{certain}", {}) == "Nothing was run. line 2: Name `x` used when not defined"


# --- calls that nobody awaits

BEGUN = "from typing import Any\nimport bridge\nb: Any = bridge\n"
NAMES = {"bridge.call": "async def call(verb: str) -> Any: ..."}


async def test_a_call_that_nobody_awaits_is_finished_and_its_refusal_told(sandbox: MontySandbox) -> None:
    done: list[str] = []

    async def answer(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0)
        if args[0] == "no":
            raise HostRefused("You may not.")
        done.append(args[0])

    finished = await run(sandbox, f"{BEGUN}x = b.call('a')\n1", Asked(answer), names=NAMES)
    assert (finished.status, finished.value, done) == ("done", 1, ["a"])

    refused = await run(sandbox, f"{BEGUN}x = b.call('no')\n1", Asked(answer), names=NAMES)
    assert refused.status == "failed"
    assert "You may not." in (refused.error or "")
    assert "Nobody has awaited this: write `await` before the call." in (refused.error or "")

    both = f"import asyncio\n{BEGUN}try:\n    await asyncio.gather(b.call('no'), b.call('no'), b.call('b'))\nexcept Exception:\n    pass\n2"  # noqa: E501
    caught = await run(sandbox, both, Asked(answer), names=NAMES)
    assert (caught.status, caught.value, done) == ("done", 2, ["a", "b"])


async def test_a_call_in_the_place_of_a_value_is_no_value(sandbox: MontySandbox) -> None:
    async def answer(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return args[0]

    for code in ("[b.call('a')]", "await b.call(b.call('a'))", "async def f():\n    return 1\n{'n': f()}"):
        told = await run(sandbox, f"{BEGUN}{code}", Asked(answer), names=NAMES)
        assert (told.status, "nobody has awaited it" in (told.error or "")) == ("failed", True)
    plain = await run(sandbox, "['<coroutine>', 'see <coroutine object f>']")
    assert plain.value == ["<coroutine>", "see <coroutine object f>"]


async def test_a_sleep_that_nobody_awaits_is_not_waited_for(sandbox: MontySandbox) -> None:
    ended = await run(sandbox, "import asyncio\nx = asyncio.sleep(20)\n1")
    assert (ended.status, ended.value) == ("done", 1)
    assert ended.seconds < 15


# --- Monty's client, in a process of its own

HOSTILE = "a = (0,)\nfor i in range(30):\n    a = (a, a)\n"


@pytest.mark.parametrize(
    "source",
    [
        "{a: 1}",
        "await ask({a: 1})",
        "await ask(x={1: {a}})",
        "open({a: 1})",
        "from pathlib import Path\nPath('/a').write_text({a: 1})",
    ],
)
async def test_what_takes_long_to_be_read_is_not_read_in_this_process(
    sandbox: MontySandbox, source: str
) -> None:
    # Given a tuple of a few bytes that takes minutes to be hashed
    assert await sandbox.check() is None
    before = time.process_time()
    outcome = await run(sandbox, HOSTILE + source, names={"ask": ""}, limits=replace(LIMITS, cpu=1.5))
    # Then it is refused, or whoever reads it is ended, and this process has done next to nothing
    assert time.process_time() - before < 0.75
    if outcome.status != "failed":
        assert outcome.status == "timeout"
        assert "(cpu) to read what the code gave" in (outcome.error or "")
    assert (await run(sandbox, "'next'")).value == "next"


async def test_a_client_that_is_killed_takes_its_worker_along(sandbox: MontySandbox) -> None:
    assert await sandbox.check() is None
    [client] = sandbox.pids
    [worker] = [int(name) for name in os.listdir("/proc") if name.isdigit() and parent(int(name)) == client]
    os.kill(client, signal.SIGKILL)
    await until(lambda: is_gone(worker))
    assert (await run(sandbox, "'next'")).value == "next"


async def test_code_that_waits_for_a_person_leaves_its_client_warm(sandbox: MontySandbox) -> None:
    async def paused(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise Pause

    assert await sandbox.check() is None
    [pid] = sandbox.pids
    waiting = await run(sandbox, "open('/a')", Asked(paused), names={"files.stat": ""})
    assert (waiting.status, sandbox.pids) == ("paused", [pid])
    assert (await run(sandbox, "1 / 0")).status == "failed"
    assert (await run(sandbox, "'next'")).value == "next"
    assert sandbox.pids == [pid]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{'__bytes__': 'x', '__bytes__y': b'z'}", {"__bytes__": "x", "__bytes__y": b"z"}),
        ("[2 ** 70, -0.5, float('nan'), None, True]", [2**70, -0.5, "nan", None, True]),
        ("import datetime\n[datetime.date(2026, 1, 2), (1, {2})]", ["2026-01-02", [1, [2]]]),
        ("from pathlib import Path\n{Path('/a'): Path('/b')}", {"/a": "/b"}),
        ("'\\x00\\u2028é😀'", "\x00\u2028é😀"),
    ],
)
async def test_values_come_as_they_are(sandbox: MontySandbox, source: str, value: Any) -> None:
    outcome = await run(sandbox, source)
    assert outcome.value == value, outcome.error


async def test_what_is_long_only_on_its_way_is_refused(sandbox: MontySandbox) -> None:
    outcome = await run(sandbox, "'\\x00' * 8_000_000")
    assert (outcome.status, outcome.value) == ("failed", None)
    assert "The result has more than 35,651,584 bytes as JSON" in (outcome.error or "")
    assert (await run(sandbox, "'😀' * 8_000_000")).value == "😀" * 8_000_000


async def test_a_number_that_the_host_cannot_write_is_an_error_of_the_call(sandbox: MontySandbox) -> None:
    async def answer(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return 10**6_000

    told = await run(sandbox, "await ask()", Asked(answer), names={"ask": ""})
    assert told.status == "failed"
    assert "cannot be given to code" in (told.error or "")


async def test_an_error_with_a_long_message_is_cut(sandbox: MontySandbox) -> None:
    outcome = await run(sandbox, "raise ValueError('x' * 20_000_000 + 'end')")
    assert outcome.status == "failed"
    assert len(outcome.error or "") < 30_000
    assert (outcome.error or "").endswith("end")
