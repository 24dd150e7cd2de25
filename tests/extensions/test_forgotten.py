"""A forgotten `await`: what was asked for is done, or somebody is told. Nothing is lost without a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from everthink.engines.sandboxes import Sandboxes
from everthink.errors import ExtensionError, ToolError
from everthink.extensions import ExtensionManager

from .sources import call, managing

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DENIED = "Extension error: 'x' has no permission for workspace write."


class Host:
    """Keeps values, and lets nobody write files."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.order: list[str] = []

    async def call(self, verb: str, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self.order.append(verb)
        await asyncio.sleep(0)
        if verb == "write_file":
            raise ExtensionError(DENIED)
        if verb == "set_value":
            self.kept[given[0]] = given[1]
        return self.kept.get(given[0])


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
async def manager(engines: Sandboxes, host: Host) -> AsyncIterator[ExtensionManager]:
    async with managing(engines, create_host=lambda manifest: host) as made:
        yield made


async def python(manager: ExtensionManager, body: str, before: str = "") -> Any:
    """What a tool in Python gives, by its body."""
    source = f"{before}\nasync def run(args, host):\n    {body}\ntools = {{'run': {{'execute': run}}}}\n"
    await manager.load(_manifest(), source, language="python")
    return await call(manager, "x_run")


async def javascript(manager: ExtensionManager, body: str) -> Any:
    """The same in JavaScript."""
    await manager.load(
        _manifest(), f"({{ tools: {{ run: {{ execute: async (args, host) => {{ {body} }} }} }} }})"
    )
    return await call(manager, "x_run")


def _manifest() -> dict[str, Any]:
    return {"name": "x", "version": "1", "permissions": {"storage": True}}


# --- what is asked of the host is done


@pytest.mark.parametrize(
    "body",
    [
        "host.storage.set('a', 1); return 'ok'",
        "x = host.storage.set('a', 1); return 'ok'",
        "host.storage.set('a', 1); await host.storage.get('b'); return 'ok'",
    ],
)
async def test_in_python_a_write_that_nobody_awaits_is_made(
    manager: ExtensionManager, host: Host, body: str
) -> None:
    assert await python(manager, body) == "ok"
    assert host.kept == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [
        "host.storage.set('a', 1); return 'ok'",
        # Long after it has returned, and after several turns of what follows
        "(async () => { await host.storage.get('b'); for (let n = 9; n--;) await null;"
        " await host.storage.set('a', 1) })(); return 'ok'",
    ],
)
async def test_in_javascript_too_with_all_that_follows_from_it(
    manager: ExtensionManager, host: Host, body: str
) -> None:
    assert await javascript(manager, body) == "ok"
    assert host.kept == {"a": 1}


async def test_a_handler_without_async_writes_as_well(manager: ExtensionManager, host: Host) -> None:
    source = "def run(args, host):\n    host.storage.set('a', 1)\ntools = {'run': {'execute': run}}\n"
    await manager.load(_manifest(), source, language="python")

    assert await call(manager, "x_run") is None
    assert host.kept == {"a": 1}


async def test_what_a_handler_returns_without_awaiting_it_is_awaited(
    manager: ExtensionManager, host: Host
) -> None:
    host.kept["n"] = 41
    assert await python(manager, "return host.storage.get('n')") == 41


# --- a refusal that nobody hears is told


@pytest.mark.parametrize(
    "body",
    [
        "host.write_file('/a', 'x'); return 'ok'",
        "x = host.write_file('/a', 'x'); await host.storage.get('b'); return 'ok'",
    ],
)
async def test_in_python_a_refusal_that_nobody_hears_fails_the_call(
    manager: ExtensionManager, body: str
) -> None:
    with pytest.raises(ToolError, match=r"no permission for workspace write.*Nobody has awaited this"):
        await python(manager, body)


@pytest.mark.parametrize(
    "body",
    [
        "host.writeFile('/a', 'x'); return 'ok'",
        "host.writeFile('/a', 'x').then(() => 1); await host.storage.get('b'); return 'ok'",
        "host.writeFile('/a', 'x').finally(() => 1); return 'ok'",
        "Promise.all([host.writeFile('/a', 'x'), host.storage.get('b')]); return 'ok'",
    ],
)
async def test_in_javascript_too(manager: ExtensionManager, body: str) -> None:
    with pytest.raises(ToolError, match=r"(?s)no permission for workspace write.*Nobody has awaited this"):
        await javascript(manager, body)


async def test_a_refusal_that_is_heard_is_the_extensions_own_business(
    manager: ExtensionManager, host: Host
) -> None:
    caught = "try:\n        await x\n    except Exception as e:\n        return str(e)"
    assert await python(manager, f"x = host.write_file('/a', '')\n    {caught}") == DENIED
    await manager.unload("x")
    gathered = "try:\n        await asyncio.gather(host.write_file('/a', ''), host.write_file('/b', ''))\n    except Exception:\n        return 'both'"  # noqa: E501
    assert await python(manager, gathered, "import asyncio") == "both"
    await manager.unload("x")
    for body in (
        "host.writeFile('/a', '').catch(() => {}); return 1",
        "const x = host.writeFile('/a', ''); await host.storage.get('b'); try { await x } catch { return 1 }",
        "await Promise.all([host.writeFile('/a', '')]).catch(() => {}); return 1",
        "const [one] = await Promise.allSettled([host.writeFile('/a', '')]);"
        " return one.status === 'rejected' ? 1 : 0",
    ):
        assert await javascript(manager, body) == 1
        await manager.unload("x")


async def test_a_refusal_after_the_end_is_a_line_of_what_it_printed_when_it_may_have_been_heard(
    manager: ExtensionManager,
) -> None:
    assert (
        await javascript(manager, "(async () => { await host.writeFile('/a', 'x') })(); return 'ok'") == "ok"
    )

    one: Any = manager.get("x")
    assert list(one.printed) == [f"After it had returned: {DENIED}"]


# --- functions of its own, and what stands in the place of a value


async def test_a_function_of_its_own_that_nobody_awaits_is_told(
    manager: ExtensionManager, host: Host
) -> None:
    save = "async def save(host):\n    await host.storage.set('a', 1)"

    with pytest.raises(ExtensionError, match=r"line 4: .*is not awaited"):  # already when it is loaded
        await python(manager, "save(host)\n    return 1", save)
    with pytest.raises(ToolError, match=r"save\(\) was called and nobody has awaited it.*Write `await save"):
        await python(manager, "x = save(host)\n    return 1", save)
    assert host.kept == {}
    await manager.unload("x")
    both = "await asyncio.gather(*[save(host) for _ in 'ab'])\n    await save(host)\n    return 1"
    assert await python(manager, both, f"import asyncio\n{save}") == 1
    assert host.kept == {"a": 1}


async def test_a_call_in_the_place_of_a_value_is_no_value(manager: ExtensionManager, host: Host) -> None:
    for load, body in (
        (python, "return {'n': host.storage.get('a')}"),
        (python, "await host.storage.set('a', host.storage.get('b'))"),
        (javascript, "return { n: host.storage.get('a') }"),
        (javascript, "await host.storage.set('a', { n: host.storage.get('b') })"),
    ):
        with pytest.raises(ToolError, match="nobody has awaited"):
            await load(manager, body)
        await manager.unload("x")
    assert host.kept == {}


async def test_maps_and_sets_are_told_with_what_is_in_them(manager: ExtensionManager) -> None:
    body = "return { set: new Set([1, 2]), map: new Map([['a', new Set()]]), pairs: new Map([[1, 2]]) }"
    assert await javascript(manager, body) == {"set": [1, 2], "map": {"a": []}, "pairs": {"1": 2}}


async def test_a_hook_that_loses_something_is_an_error_like_one_that_raises(
    manager: ExtensionManager,
) -> None:
    source = (
        "def before_turn(turn, host):\n    host.write_file('/a', '')\nhooks = {'beforeTurn': before_turn}\n"
    )
    await manager.load(_manifest(), source, language="python")

    [one] = manager.get_hook_subscribers("before_turn")
    with pytest.raises(ToolError, match="Nobody has awaited this"):
        await one.hook("before_turn", {})
