"""Running a tool: on the loop, in a thread, value by value; limits and cancellation."""

import asyncio
import contextvars
import io
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from everthink.errors import AgentError, ToolInputError, ToolOutputError, ToolTimeout
from everthink.tools.output import jsonable
from everthink.tools.tool import Tool, ToolContext, client_tool, tool

pytestmark = pytest.mark.anyio

who = contextvars.ContextVar("who", default="nobody")


class Agent:
    name = "Ada"

    @tool
    async def greet(self, person: str, ctx: ToolContext) -> str:
        return f"{self.name} greets {person} ({ctx.tool_call_id})"

    @tool
    def shout(self, word: str, times: int = 1) -> str:
        return word.upper() * times

    @tool
    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(1, to + 1):
            yield number


class Louder(Agent):
    @tool
    def shout(self, word: str, times: int = 1) -> str:
        return super().shout(word, times) + "!"


async def values_of(made: Tool, given: Any, ctx: ToolContext, **options: Any) -> list[Any]:
    async with aclosing(made.iterate(given, ctx, **options)) as values:
        return [value async for value in values]


async def test_a_method_is_called_on_the_agent_it_is_bound_to(ctx: ToolContext) -> None:
    assert await Agent.greet.bind(Agent()).call({"person": "Bob"}, ctx) == "Ada greets Bob (call-1)"


async def test_an_unbound_method_is_called_on_the_agent_of_the_context(ctx: ToolContext) -> None:
    ctx.agent = Agent()
    assert await Agent.greet.call({"person": "Bob"}, ctx) == "Ada greets Bob (call-1)"


async def test_a_decorated_method_still_works_as_a_method() -> None:
    agent = Louder()
    assert agent.shout("a", times=2) == "AA!"
    assert await agent.greet("Bob", ToolContext()) == "Ada greets Bob ()"
    assert [n async for n in agent.count(2)] == [1, 2]
    assert Louder.shout(agent, "a") == "A!"


async def test_binding_makes_a_new_tool_and_leaves_functions_alone(ctx: ToolContext) -> None:
    one, two = Agent(), Agent()
    two.name = "Eve"
    bound = Agent.greet.bind(one)
    assert bound.bind(two) is bound
    assert await one.greet.call({"person": "B"}, ctx) == "Ada greets B (call-1)"
    assert await two.greet.call({"person": "B"}, ctx) == "Eve greets B (call-1)"

    @tool
    def free() -> int:
        return 1

    assert free.bind(one) is free


async def test_async_bodies_run_on_the_loop_and_plain_ones_in_a_thread(ctx: ToolContext) -> None:
    @tool
    async def here() -> int:
        return threading.get_ident()

    @tool
    def there() -> int:
        return threading.get_ident()

    assert here.is_async
    assert not there.is_async
    assert await here.call({}, ctx) == threading.get_ident()
    assert await there.call({}, ctx) != threading.get_ident()


async def test_context_variables_reach_the_thread(ctx: ToolContext) -> None:
    @tool
    def ask() -> str:
        return who.get()

    who.set("somebody")
    assert await ask.call({}, ctx) == "somebody"


async def test_input_that_does_not_fit_never_reaches_the_body(ctx: ToolContext) -> None:
    ran: list[int] = []

    @tool
    def run(n: int) -> None:
        ran.append(n)

    with pytest.raises(ToolInputError):
        await run.call({"n": "x"}, ctx)
    assert ran == []
    await run.call({"n": "x"}, ctx, lenient=True)
    assert ran == ["x"]


async def test_what_a_body_raises_comes_out_as_it_is(ctx: ToolContext) -> None:
    @tool
    def broken() -> None:
        raise KeyError("key")

    @tool
    async def late() -> None:
        raise TimeoutError("my own")

    with pytest.raises(KeyError):
        await broken.call({}, ctx)
    with pytest.raises(TimeoutError, match="my own") as caught:
        await tool(late.__wrapped__, timeout=60).call({}, ctx)  # type: ignore[attr-defined]
    assert not isinstance(caught.value, ToolTimeout)


def plain_iterator() -> Iterator[int]:
    yield from (1, 2, 3)


async def async_iterator() -> AsyncIterator[int]:
    for number in (1, 2, 3):
        yield number


async def later(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        (plain_iterator, 3),
        (async_iterator, 3),
        (lambda: later(5), 5),
        (lambda: later(later(6)), 6),
        (lambda: later(async_iterator()), 3),
        (lambda: [1, 2], [1, 2]),
        (lambda: (1, 2), (1, 2)),
        (lambda: {"a": 1}, {"a": 1}),
        (lambda: {1, 2}, {1, 2}),
        (lambda: "text", "text"),
        (lambda: range(3), range(3)),
        (lambda: None, None),
    ],
)
async def test_generators_and_awaitables_are_followed_to_their_last_value(
    returned: Callable[[], Any], result: Any, ctx: ToolContext
) -> None:
    @tool
    def plain() -> Any:
        return returned()

    @tool
    async def coroutine() -> Any:
        return returned()

    assert await plain.call({}, ctx) == result
    assert await coroutine.call({}, ctx) == result
    assert await values_of(plain, {}, ctx) == [result]


@pytest.mark.parametrize(
    "returned",
    [
        lambda: filter(None, [1, 2]),
        lambda: map(str, [1, 2]),
        lambda: zip([1], [2], strict=True),
        lambda: reversed([1, 2]),
        lambda: iter([]),
        lambda: (number for number in (1, 2)),
        lambda: (number async for number in async_iterator()),
        lambda: io.StringIO("one\ntwo\n"),
    ],
)
async def test_an_iterator_that_is_returned_is_no_result_and_the_words_say_what_to_return(
    returned: Callable[[], Any], ctx: ToolContext
) -> None:
    @tool
    def plain() -> Any:
        return returned()

    @tool
    async def coroutine() -> Any:
        return returned()

    for one in (plain, coroutine):
        with pytest.raises(ToolOutputError, match=r"returned something that is not JSON.*Return "):
            jsonable(await one.call({}, ctx), tool=one.name)


async def test_a_plain_generator_is_drained_in_its_thread(ctx: ToolContext) -> None:
    threads: set[int] = set()

    @tool
    def steps() -> Iterator[int]:
        for number in range(3):
            threads.add(threading.get_ident())
            yield number

    assert not steps.streams
    assert await steps.call({}, ctx) == 2
    assert threading.get_ident() not in threads


async def test_an_async_generator_streams_each_value(ctx: ToolContext) -> None:
    count = Agent().count
    assert count.streams
    assert await values_of(count, {"to": 3}, ctx) == [1, 2, 3]
    assert await values_of(count, {"to": 0}, ctx) == []
    assert await count.call({"to": 3}, ctx) == 3
    assert await count.call({"to": 0}, ctx) is None


async def test_stopping_early_lets_a_streaming_body_clean_up(ctx: ToolContext) -> None:
    cleaned = asyncio.Event()

    @tool
    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            cleaned.set()

    async with aclosing(endless.iterate({}, ctx)) as values:
        assert await anext(values) == 1
    assert cleaned.is_set()


async def test_an_async_tool_over_its_limit_is_stopped(ctx: ToolContext) -> None:
    stopped = asyncio.Event()

    @tool(timeout=0.01)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(ToolTimeout, match=r"'hang' did not finish within 0\.01 seconds") as caught:
        await hang.call({}, ctx)
    assert stopped.is_set()
    assert caught.value.next_step


async def test_a_plain_tool_over_its_limit_is_given_up_on(ctx: ToolContext) -> None:
    let_go = threading.Event()
    ended = threading.Event()

    @tool(timeout=0.01)
    def hang() -> Iterator[int]:
        try:
            let_go.wait()
            while True:
                yield 1
        finally:
            ended.set()

    with pytest.raises(ToolTimeout, match="cannot be stopped"):
        await hang.call({}, ctx)
    let_go.set()
    # A generator is not drained any further once nobody waits.
    assert await asyncio.to_thread(ended.wait, 10)


async def test_a_streaming_tool_over_its_limit_is_stopped_after_what_it_gave(ctx: ToolContext) -> None:
    stopped = asyncio.Event()

    @tool(timeout=0.01)
    async def hang() -> AsyncIterator[int]:
        yield 1
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    values = hang.iterate({}, ctx)
    assert await anext(values) == 1
    with pytest.raises(ToolTimeout):
        await anext(values)
    assert stopped.is_set()


async def test_a_slow_reader_does_not_make_a_stream_time_out(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("everthink.tools.run.time.monotonic", lambda: now[0])

    @tool(timeout=5)
    async def two() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0)
        yield 2

    given: list[int] = []
    async for value in two.iterate({}, ctx):
        given.append(value)
        now[0] += 60
    assert given == [1, 2]


@pytest.mark.parametrize("streaming", [False, True])
async def test_cancelling_the_caller_cancels_the_body_and_propagates(
    streaming: bool, ctx: ToolContext
) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @tool(timeout=60)
    async def hang() -> None:
        await wait()

    @tool(timeout=60)
    async def stream() -> AsyncIterator[int]:
        await wait()
        yield 1

    task = asyncio.create_task((stream if streaming else hang).call({}, ctx))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


async def test_cancelling_the_caller_of_a_plain_tool_does_not_wait_for_its_thread(ctx: ToolContext) -> None:
    loop = asyncio.get_running_loop()
    started, let_go = asyncio.Event(), threading.Event()

    @tool
    def hang() -> None:
        loop.call_soon_threadsafe(started.set)
        let_go.wait()

    task = asyncio.create_task(hang.call({}, ctx))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    let_go.set()


async def test_tools_that_never_return_do_not_use_up_the_pool_of_the_loop(ctx: ToolContext) -> None:
    let_go = threading.Event()

    @tool
    def hang(n: int) -> int:
        let_go.wait()
        return n

    hanging = [asyncio.create_task(hang.call({"n": n}, ctx)) for n in range(100)]
    assert await asyncio.to_thread(lambda: "free") == "free"
    let_go.set()
    assert await asyncio.gather(*hanging) == list(range(100))


@pytest.mark.slow
async def test_a_tool_that_never_returns_does_not_keep_the_process_alive() -> None:
    code = """
import asyncio, threading
from everthink.tools.tool import tool, ToolContext

@tool(timeout=0.01)
def hang() -> None:
    threading.Event().wait()

async def main():
    try:
        await hang.call({}, ToolContext())
    except Exception as error:
        print(type(error).__name__)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert out.strip() == b"ToolTimeout"


async def test_a_failure_after_nobody_waits_is_logged(
    ctx: ToolContext, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    let_go, logged = threading.Event(), asyncio.Event()

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            loop.call_soon_threadsafe(logged.set)

    @tool(timeout=0.01)
    def late() -> None:
        let_go.wait()
        raise KeyError("too late")

    handler = Seen()
    logging.getLogger("everthink.tools").addHandler(handler)
    try:
        with pytest.raises(ToolTimeout):
            await late.call({}, ctx)
        let_go.set()
        async with asyncio.timeout(10):
            await logged.wait()
    finally:
        logging.getLogger("everthink.tools").removeHandler(handler)
    assert "'late' failed when nobody waited" in caplog.text


async def test_a_cancellation_asked_for_just_before_the_call_is_not_lost(ctx: ToolContext) -> None:
    @tool
    async def pause() -> None:
        await asyncio.sleep(0)

    async def turn() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await pause.call({}, ctx)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(turn())


async def test_something_cancelled_inside_a_body_does_not_look_like_a_cancelled_turn(
    ctx: ToolContext,
) -> None:
    @tool
    async def careless() -> None:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner

    with pytest.raises(AgentError, match="'careless' broke off"):
        await careless.call({}, ctx)


async def test_a_body_cannot_end_the_process(ctx: ToolContext) -> None:
    @tool
    def leave() -> None:
        raise SystemExit(3)

    @tool
    async def leave_too() -> None:
        raise SystemExit(3)

    for made in (leave, leave_too):
        with pytest.raises(AgentError, match="tried to end the process"):
            await made.call({}, ctx)


async def test_stop_iteration_from_a_thread_is_an_error_not_a_hang(ctx: ToolContext) -> None:
    @tool(timeout=60)
    def stop() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await stop.call({}, ctx)


async def test_progress_goes_to_whoever_shows_it(ctx: ToolContext) -> None:
    shown: list[Any] = []

    async def show(value: Any) -> None:
        shown.append(value)

    @tool
    async def work(context: ToolContext) -> str:
        await context.progress({"done": 0.5})
        return "done"

    assert await work.call({}, ctx) == "done"
    ctx.show = show
    assert await work.call({}, ctx) == "done"
    assert shown == [{"done": 0.5}]


async def test_every_context_parameter_is_filled_whatever_its_name(ctx: ToolContext) -> None:
    @tool
    def same(a: ToolContext, b: "ToolContext | None" = None, *, c: ToolContext) -> bool:
        return a is b is c

    assert await same.call({}, ctx) is True


async def test_an_object_with_an_async_call_runs_on_the_loop(ctx: ToolContext) -> None:
    class Ask:
        async def __call__(self, n: int) -> int:
            return threading.get_ident()

    made = tool(Ask(), name="ask")
    assert made.is_async
    assert await made.call({"n": 1}, ctx) == threading.get_ident()


async def test_class_and_static_methods_are_called_as_such(ctx: ToolContext) -> None:
    class Base:
        @tool
        @classmethod
        def kind(cls, n: int) -> str:
            return f"{cls.__name__}{n}"

        @tool
        @staticmethod
        def double(n: int) -> int:
            return 2 * n

    class Sub(Base): ...

    assert await Sub.__mro__[1].__dict__["kind"].bind(Sub()).call({"n": 1}, ctx) == "Sub1"
    assert await Sub().double.call({"n": 2}, ctx) == 4


async def test_a_client_tool_has_nothing_to_run(ctx: ToolContext) -> None:
    locate = client_tool("locate")
    with pytest.raises(TypeError, match="browser"):
        await locate.call({}, ctx)
    with pytest.raises(TypeError, match="no function"):
        locate()
