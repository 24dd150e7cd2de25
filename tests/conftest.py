"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from everthink import App, Think
from tests.support.chromium import remove_shared_chromium
from tests.support.distributing import files_and_rooms
from tests.support.postgres import remove_shared_cluster
from tests.support.quick import mark_slow, watched
from tests.support.template import copied_tables


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="Run the files, and the tests in each, in an order that this number makes.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """`--hypothesis-profile quick`: a quarter of the cases, for `make check`."""
    if config.getoption("--hypothesis-profile", None) == "quick":
        from hypothesis import settings

        settings.register_profile("quick", max_examples=25)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Files stay whole, and what reads the whole source is read by one process."""
    return files_and_rooms(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow files last. With `--shuffle`: another order, the same in every process. Files stay whole, for what
    they share."""
    mark_slow(items)
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    dice = random.Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = list(files.values())
    dice.shuffle(order)
    for tests in order:
        dice.shuffle(tests)
    items[:] = [item for tests in order for item in tests]


def pytest_collection_finish() -> None:
    """Thousands of tests stay in memory to the end: nobody need look through them for garbage each time.
    What one test leaves is looked for when there is more of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that starts a process says so."""
    return (yield from watched(item))


LONGEST = 240
"""So many seconds an async test may take."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """End an async test that hangs from inside its loop. A signal would leave it there, and whatever tidies
    up behind it would wait for it for ever."""
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        async def bounded(*args: Any, **kwargs: Any) -> Any:
            async with asyncio.timeout(LONGEST):
                return await test(*args, **kwargs)

        pyfuncitem.obj = bounded
    return (yield)


def pytest_sessionfinish() -> None:
    """What the tests of a process share ends with it."""
    remove_shared_cluster()
    remove_shared_chromium()


@pytest.fixture(scope="session", autouse=True)
def tables() -> Iterator[None]:
    """A new database on SQLite has our tables, which are made once."""
    with copied_tables():
        yield


@pytest.fixture(scope="session", autouse=True)
def authorities() -> Iterator[None]:
    """Whom HTTP clients trust is read once in a process, and not by each of hundreds of clients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", functools.cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


OpenApp = Callable[..., Awaitable[App]]


@pytest.fixture
async def open_app(tmp_path: Path, anyio_backend: str) -> AsyncIterator[OpenApp]:
    """Opens apps on one real SQLite file; whatever is open at the end is closed."""
    async with AsyncExitStack() as stack:

        async def open_(*agents: type[Think], **options: Any) -> App:
            options.setdefault("store", f"sqlite:///{tmp_path}/everthink.db")
            options.setdefault("grace", 0.0)
            options.setdefault("idle_after", None)  # no timer that a test did not ask for
            return await stack.enter_async_context(App(*agents, **options))

        yield open_
