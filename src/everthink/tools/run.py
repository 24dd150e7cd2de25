"""Run the body of a tool.

    Tool.call, Tool.iterate --> run --> user code

Async bodies run on the event loop, plain ones in a thread with a copy of the caller's context variables.
A body that hands back an awaitable, or a generator of a function with `yield`, is followed to its last
value; other iterators (a `map`, a generator expression, a file) are values: nobody means the last alone.
Cancelling the caller always propagates; nothing a body does by itself can look like that.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from ..errors import ToolError, ToolTimeout
from . import threads

__all__ = ["run", "runs_on_loop", "stream", "streams"]

log = logging.getLogger("everthink.tools")


async def run(tool: str, body: Callable[[], Any], *, is_async: bool, timeout: float | None) -> Any:
    """Call `body` and return its one value."""
    async with _guarded(tool, timeout, timeout, is_async=is_async):
        return await _follow(await body() if is_async else await _in_thread(tool, body))


async def stream(tool: str, body: Callable[[], Any], *, timeout: float | None) -> AsyncGenerator[Any, None]:
    """Yield the values of the async generator that `body` makes.

    Only the time spent inside the body counts: a slow reader cannot make a tool time out.
    """
    values = cast("AsyncIterator[Any]", body())
    spent = 0.0
    try:
        while True:
            started = time.monotonic()
            async with _guarded(tool, None if timeout is None else timeout - spent, timeout, is_async=True):
                try:
                    value = await anext(values)
                except StopAsyncIteration:
                    return
            spent += time.monotonic() - started
            yield value
    finally:
        await _close(values)


@asynccontextmanager
async def _guarded(
    tool: str, remaining: float | None, timeout: float | None, *, is_async: bool
) -> AsyncGenerator[None, None]:
    limit = asyncio.timeout(remaining)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise  # the body's own
        raise ToolTimeout(
            f"Tool {tool!r} did not finish within {timeout:g} seconds.",
            kept="It was stopped; what it did before that stays done."
            if is_async
            else "It was given up on; its thread cannot be stopped and may still finish.",
            next_step="Ask it for less, or allow more with @tool(timeout=...).",
        ) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled us: the body waited for something that was cancelled. The turn must go on.
        raise ToolError(f"Tool {tool!r} broke off: something it waited for was cancelled.") from error
    except SystemExit as error:
        raise ToolError(f"Tool {tool!r} tried to end the process.") from error


def runs_on_loop(body: Any) -> bool:
    """True for coroutine functions and async generator functions, also behind partials and `__call__`."""
    return streams(body) or inspect.iscoroutinefunction(_inner(body))


def streams(body: Any) -> bool:
    """True for async generator functions."""
    return inspect.isasyncgenfunction(_inner(body))


def _inner(body: Any) -> Any:
    while isinstance(body, functools.partial):
        body = cast("Any", body).func
    if body is None or inspect.isroutine(body) or isinstance(body, type):
        return body
    return cast("Any", type(body)).__call__


async def _in_thread(tool: str, body: Callable[[], Any]) -> Any:
    """Run `body` in a thread, with a copy of the caller's context variables."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    given_up = threading.Event()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.cancelled():
            if error is not None:
                log.warning("tool %r failed when nobody waited for it any more: %r", tool, error)
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)

    def work() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = body()
            if _is_generator(value):
                # Here and not on the loop: each `next` is the body's own, blocking code.
                value = _last(value, given_up)
        except StopIteration as error:
            failure = RuntimeError("the tool raised StopIteration")  # a future cannot carry the original
            failure.__cause__ = error
        except BaseException as error:  # noqa: BLE001 - it is raised where the tool is awaited
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            loop.call_soon_threadsafe(settle, value, failure)

    threads.start(f"tool {tool}", functools.partial(contextvars.copy_context().run, work))
    try:
        return await done
    finally:
        given_up.set()


async def _follow(value: Any) -> Any:
    """Await awaitables, drain generators. Everything else is a value."""
    while True:
        if inspect.isawaitable(value):
            value = await value
        elif _is_async(value):
            last = None
            values = aiter(cast("AsyncIterable[Any]", value))
            try:
                async for item in values:
                    last = item
            finally:
                await _close(values)
            return last
        elif _is_generator(value):
            return _last(cast("Iterator[Any]", value), None)
        else:
            return value


def _is_async(value: Any) -> bool:
    return isinstance(value, AsyncIterable) and not _is_expression(value)


def _is_generator(value: Any) -> bool:
    return isinstance(value, Generator) and not _is_expression(value)


def _is_expression(value: Any) -> bool:
    """True for `(f(x) for x in …)`, which is a list that was not made yet."""
    return getattr(cast("object", value), "__name__", None) == "<genexpr>"


def _last(values: Iterator[Any], given_up: threading.Event | None) -> Any:
    last = None
    for item in values:
        last = item
        if given_up is not None and given_up.is_set():
            break
    return last


async def _close(values: Any) -> None:
    close = getattr(values, "aclose", None)
    if close is not None:
        await close()
