"""Code that a model writes uses a page: the tool `browser_execute` of an agent, with a real browser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Block, Think
from everthink.browser import create_browser_tools
from everthink.codemode import create_execute_tool
from everthink.testing.scripted import ScriptedModel
from tests.codemode.support import Coder
from tests.conftest import OpenApp
from tests.support.turns import all_over

from .site import Web, web

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FINE = {"/": "<title>Fine</title><p id=n>0</p>", "/slow": "<title>Slow</title>"}
COUNT = "document.querySelector('#n').textContent = Number(document.querySelector('#n').textContent) + 1"


async def coder(open_app: OpenApp, site: Web, /, *, members: Any = None, **options: Any) -> Coder:
    """An agent whose model runs code on pages of a site."""
    model = ScriptedModel()

    def get_tools(self: Think) -> Any:
        place = [f"127.0.0.1:{site.port}"]
        return [*create_browser_tools(allow_addresses=place, **options).values(), create_execute_tool()]

    cls = type("Reader", (Think,), {"model": model, "get_tools": get_tools, **(members or {})})
    return Coder(open_app, await open_app(cls), cls, model, None)


def navigate(url: str) -> str:
    return f'await cdp.send("Page.navigate", {{"url": "{url}"}})'


def evaluate(expression: str) -> str:
    return (
        f'(await cdp.send("Runtime.evaluate", {{"expression": "{expression}", "returnByValue": True}}))'
        '["result"]["value"]'
    )


@pytest.mark.memory_case(508)
async def test_code_opens_a_page_and_asks_it(open_app: OpenApp) -> None:
    async with web(FINE) as site:
        agent = await coder(open_app, site)
        code = f"opened = {navigate(f'{site.url}/')}\nwhere = await cdp.attach_to_target()\n"
        output = await agent.run(
            f'{code}[opened["title"], where["url"], {evaluate("document.title")}]', tool="browser_execute"
        )
        assert (output["status"], output["result"]) == ("completed", ["Fine", f"{site.url}/", "Fine"]), output
        assert [(one["name"], one["state"]) for one in output["calls"]] == [
            ("cdp.send", "done"),
            ("cdp.attach_to_target", "done"),
            ("cdp.send", "done"),
        ]
        offered = {spec.name: spec.description for spec in agent.model.last_request.tools}
        assert "`cdp`: attach_to_target, send, spec" in offered["browser_execute"]
        past = await (await agent.executions()).list(tool="browser_execute")
        assert [one.state for one in past] == ["completed"]


async def test_code_in_javascript_does_the_same(open_app: OpenApp) -> None:
    async with web(FINE) as site:
        agent = await coder(open_app, site, language="javascript")
        code = (
            f'await cdp.send({{method: "Page.navigate", params: {{url: "{site.url}/"}}}});\n'
            "const where = await cdp.attachToTarget();\nwhere.title + Object.keys(await cdp.spec()).length"
        )
        output = await agent.run(code, tool="browser_execute")
        assert (output["status"], output["result"][:4]) == ("completed", "Fine"), output


async def test_code_gets_what_is_refused_as_an_error_and_sees_no_tools_and_no_files(
    open_app: OpenApp,
) -> None:
    async with web(FINE) as site:
        agent = await coder(open_app, site)
        refused = (
            "said = []\nfor method, params in [('Browser.close', {}), ('Page.navigate', {'url': 'file:///etc'}),"
            " ('Runtime.evaluate', {'expression': '1'})]:\n    try:\n        await cdp.send(method, params)\n"
            "    except RuntimeError as e:\n        said.append(str(e))\nsaid"
        )
        closed, file, nothing = (await agent.run(refused, tool="browser_execute"))["result"]
        assert "is not among the commands that can be sent" in closed
        assert "Blocked URL" in file
        assert "No page is open" in nothing
        for code in ("await tools.browser_open(url='x')", "await state.readdir(path='/')"):
            assert "Nothing was run." in (await agent.run(code, tool="browser_execute"))["error"]
        inside = await agent.run("await tools.browser_execute(code='1')")
        assert "no member `browser_execute`" in inside["error"]


async def test_what_a_command_gives_is_bounded(open_app: OpenApp) -> None:
    async with web(FINE) as site:
        agent = await coder(open_app, site, most_characters=1_000)
        ask = """await cdp.send("Runtime.evaluate", {"expression": "'x'.repeat(9999)"})"""
        code = f"{navigate(f'{site.url}/')}\n{ask}"
        output = await agent.run(code, tool="browser_execute")
        assert output["result"]["truncated"], output


async def test_a_hook_decides_about_each_command(open_app: OpenApp) -> None:
    async def before_tool_call(self: Any, call: Any) -> Any:
        if call.tool_name == "cdp_send" and call.input["method"].startswith("Input."):
            return Block("look, do not touch")
        return None

    async with web(FINE) as site:
        agent = await coder(open_app, site, members={"before_tool_call": before_tool_call})
        code = f'{navigate(f"{site.url}/")}\nawait cdp.send("Input.insertText", {{"text": "x"}})'
        output = await agent.run(code, tool="browser_execute")
        assert "look, do not touch" in output["error"]
        assert output["calls"][-1]["state"] == "denied"


async def cut_off(agent: Coder, site: Web) -> asyncio.Task[Any]:
    """Let code open a page, change it, and go on to one that does not come."""
    site.held["/slow"] = asyncio.Event()
    code = (
        f"{navigate(f'{site.url}/')}\n{evaluate(COUNT)}\ntry:\n    {navigate(f'{site.url}/slow')}\n"
        "    said = 'came'\nexcept RuntimeError as e:\n    said = str(e)\n"
        "try:\n    left = "
        + evaluate("document.title + document.querySelector('#n').textContent")
        + "\nexcept RuntimeError as e:\n    left = str(e)\n"
        "[said, left]"
    )
    asked = asyncio.create_task(agent.run(code, tool="browser_execute"))
    await asyncio.wait_for(site.arrived.wait(), 30)
    return asked


async def test_a_command_that_was_sent_is_not_sent_again_when_the_code_is_run_again(
    open_app: OpenApp,
) -> None:
    async with web(FINE) as site:
        agent = await coder(open_app, site)
        asked = await cut_off(agent, site)
        await agent.app.evict(agent.cls, "default")
        await asyncio.gather(asked, return_exceptions=True)
        await all_over(agent.app, agent.cls, "default")
        output = await agent.output()
        assert output["status"] == "completed", output
        assert [one["state"] for one in output["calls"]][:3] == ["done", "done", "unknown"]
        said, left = output["result"]
        assert "may or may not" in said
        assert left == "Fine1"  # the page is still there, and was changed once
        assert [path for path in site.asked if path in FINE] == ["/", "/slow"]


async def test_after_a_restart_code_is_told_that_its_page_is_gone(open_app: OpenApp) -> None:
    async with web(FINE) as site:
        agent = await coder(open_app, site)
        asked = await cut_off(agent, site)
        await agent.restart()
        await asyncio.gather(asked, return_exceptions=True)
        await all_over(agent.app, agent.cls, "default")
        output = await agent.output()
        assert output["status"] == "completed", output
        said, left = output["result"]
        assert "may or may not" in said
        assert "No page is open" in left
        assert [path for path in site.asked if path in FINE] == ["/", "/slow"]
