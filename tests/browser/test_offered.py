"""What is offered, with which options, and what is pure: bounds, snapshots, the list of commands."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from everthink.browser import Browsers, create_browser_tools
from everthink.browser.allowed import METHODS, check_command
from everthink.browser.bounds import bounded
from everthink.browser.browsers import Where
from everthink.browser.connector import cdp_tools
from everthink.browser.pages import Pages
from everthink.browser.snapshot import told
from everthink.errors import AgentError, BlockedAddress, InvalidSettings, MissingExtra, ToolError
from everthink.guard.finding import look_up
from everthink.guard.rules import Rules
from everthink.tools.context import ToolContext

from .site import Agent

PAGE = ["browser_open", "browser_snapshot", "browser_click", "browser_type", "browser_screenshot"]
CODE = "browser_execute"
QUICK = ["browser_markdown", "browser_links", "browser_scrape", "browser_extract"]


def test_tools_for_the_open_page_and_for_any_page_are_offered() -> None:
    tools = create_browser_tools()
    assert list(tools) == [*PAGE, *QUICK, CODE]
    assert all(tool.description and tool.origin.name == "web browser" for tool in tools.values())


@pytest.mark.memory_case(509)
def test_those_for_any_page_can_be_left_out_and_are_with_a_browser_elsewhere() -> None:
    assert list(create_browser_tools(quick_actions=False)) == [*PAGE, CODE]
    assert list(create_browser_tools(cdp_url="ws://browser.example.com/x")) == [*PAGE, CODE]
    assert list(create_browser_tools(cdp_url="http://browser.example.com", quick_actions=True)) == [
        *PAGE,
        *QUICK,
        CODE,
    ]
    assert list(create_browser_tools(content=True)) == [*PAGE, *QUICK, "browser_content", CODE]


@pytest.mark.parametrize(
    ("language", "example"), [("python", "await cdp.send("), ("javascript", "cdp.send({")]
)
def test_the_tool_for_code_names_what_it_is_connected_to(language: Any, example: str) -> None:
    made = create_browser_tools(language=language)[CODE]
    assert "There are only: `cdp`: " in made.description
    assert example in made.description
    assert "`tools`" not in made.description
    assert "`state`" not in made.description


def test_the_tool_for_code_is_there_when_something_runs_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CODE not in create_browser_tools(execute=False)
    assert CODE in create_browser_tools(execute=True)

    def found(name: str) -> object:
        return None if name == "pydantic_monty" else object()

    monkeypatch.setattr(importlib.util, "find_spec", found)
    assert CODE not in create_browser_tools()
    assert CODE in create_browser_tools(language="javascript")
    with pytest.raises(MissingExtra, match=r'pip install "everthink\[browser,sandbox\]"'):
        create_browser_tools(execute=True)


def test_what_reads_runs_again_after_a_crash_and_what_acts_is_reported() -> None:
    policies = {name: tool.on_interrupt for name, tool in create_browser_tools(content=True).items()}
    acting = {name for name, policy in policies.items() if policy == "report"}
    assert acting == {"browser_click", "browser_type"}


@pytest.mark.memory_case(510)
def test_options_are_taken() -> None:
    create_browser_tools(timeout=3, session="turn", most_characters=0, hosts=["example.com"], never=["x.com"])


@pytest.mark.memory_case(510)
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"executable": "/no/such/chromium"}, "is no program"),
        ({"executable": "sh", "cdp_url": "ws://x"}, "two browsers"),
        ({"cdp_url": "browser:9222"}, "no address of a browser"),
        ({"cdp_url": "file:///x"}, "no address of a browser"),
        ({"language": "pyton"}, "language is 'pyton'.*Did you mean 'python'"),
        ({"session": "turns"}, "session is 'turns'.*Did you mean 'turn'"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": True}, "timeout is True"),
        ({"timeout": "3"}, "timeout is '3'"),
        ({"most_characters": -1}, "most_characters is -1"),
        ({"most_characters": "many"}, "most_characters is 'many'"),
        ({"quick_actions": "no"}, "quick_actions is 'no'.*True or False"),
        ({"content": "no"}, "content is 'no'.*True or False"),
        ({"execute": "no"}, "execute is 'no'.*True or False"),
        ({"browsers": Browsers}, r"browsers is <class.*Browsers\(\)"),
        ({"resolve": "8.8.8.8"}, "resolve is '8.8.8.8'"),
        ({"hosts": "example.com"}, "list of letters"),
        ({"hosts": 3}, "hosts is 3.*Write a list"),
        ({"never": [3]}, "never: 3 is not a host"),
        ({"allow_addresses": ["http://x"]}, "allow_addresses: 'http://x' is not a host"),
        ({"allow_addresses": "wiki.lan:80"}, "Write a list: allow_addresses="),
        ({"allow_addresses": [8080]}, "allow_addresses: 8080 is not a host"),
    ],
)
def test_options_that_make_no_sense_are_told_when_the_tools_are_made(options: Any, why: str) -> None:
    with pytest.raises(InvalidSettings, match=why):
        create_browser_tools(**options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"most_pages": 0}, "most_pages is 0.*at least 1"),
        ({"most_memory": "1GB"}, "most_memory is '1GB'"),
        ({"idle_after": -1}, "idle_after is -1"),
    ],
)
def test_a_browser_for_nobody_is_told_where_it_is_written(options: Any, why: str) -> None:
    with pytest.raises(InvalidSettings, match=f"Browsers: {why}"):
        Browsers(**options)


def test_a_missing_package_is_told_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'pip install "everthink\[browser\]"'):
        create_browser_tools()


@pytest.mark.anyio
async def test_without_a_chromium_the_model_is_told_and_the_tools_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("everthink.browser.chromium.find_chromium", lambda: None)
    browsers = Browsers()
    tools = create_browser_tools(browsers=browsers)
    for name in ("open", "markdown"):
        with pytest.raises(ToolError, match=r"No Chromium is installed.*apt install chromium.*do without"):
            await tools[f"browser_{name}"].call({"url": "https://example.com/"}, ToolContext(agent=Agent()))
    assert (browsers.running, browsers.pages) == (0, 0)


@pytest.mark.anyio
async def test_outside_of_an_agent_a_browser_has_to_be_given() -> None:
    with pytest.raises(ToolError, match=r"browsers=Browsers\(\)"):
        await create_browser_tools()["browser_open"].call({"url": "https://example.com/"}, ToolContext())


@pytest.mark.anyio
async def test_browsers_that_are_closed_start_nothing_more() -> None:
    browsers = Browsers()
    await browsers.close()
    with pytest.raises(ToolError, match="the server stops"):
        await create_browser_tools(browsers=browsers)["browser_open"].call(
            {"url": "https://example.com/"}, ToolContext(agent=Agent())
        )


# --- bounds


def test_a_result_within_its_bound_is_the_same_object() -> None:
    value = {"a": [1, 2]}
    assert bounded(value, 100) is value
    assert bounded("x" * 60_000, 0) == "x" * 60_000


def test_a_text_is_cut_a_list_loses_its_end_and_an_object_becomes_a_preview() -> None:
    assert bounded("abcdef", 4) == "abcd\n[cut: 2 more characters]"
    assert bounded([{"n": n} for n in range(100)], 50) == [{"n": n} for n in range(4)]
    assert bounded(["x" * 100, "y"], 20) == ["x" * 20 + "\n[cut: 80 more characters]"]
    found = bounded({"text": "x" * 10_000}, 3_000)
    assert (found["truncated"], len(found["preview"])) == (True, 2_000)
    assert "3,000" in found["note"]


# --- what a snapshot says


def node(
    id: str, role: str, name: str = "", *, children: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    properties = [{"name": key, "value": {"value": value}} for key, value in more.pop("has", {}).items()]
    return {
        "nodeId": id,
        "role": {"value": role},
        "name": {"value": name},
        "childIds": children or [],
        "properties": properties,
        **more,
    }


def test_a_snapshot_names_what_can_be_used_and_leaves_out_what_says_nothing() -> None:
    tree = [
        node("1", "RootWebArea", "Shop", children=["2", "4"]),
        node("2", "generic", children=["3"], parentId="1"),
        node("3", "heading", "Shoes", parentId="2", has={"level": 1}, children=["9"]),
        node("9", "StaticText", "Shoes", parentId="3"),
        node(
            "4",
            "link",
            "More",
            parentId="1",
            backendDOMNodeId=14,
            has={"url": "https://x/", "focusable": True},
        ),
        node(
            "5",
            "checkbox",
            "Gift",
            parentId="1",
            backendDOMNodeId=15,
            has={"checked": "true", "disabled": True},
        ),
    ]
    tree[0]["childIds"].append("5")
    found = told(tree, most=1_000)
    assert found.text.splitlines() == [
        '- heading "Shoes" [level=1]',
        '- link "More" [ref=e14] -> https://x/',
        '- checkbox "Gift" [ref=e15] [checked] [disabled]',
    ]
    assert (found.refs, found.is_cut) == (frozenset({14, 15}), False)


def test_a_tree_that_goes_in_circles_or_down_for_ever_is_told_once_and_within_bounds() -> None:
    circle = [
        node("1", "list", "a", children=["2"], parentId="0"),
        node("2", "list", "b", children=["1"], parentId="1"),
    ]
    assert told(circle, most=100).text == '- list "a"\n  - list "b"'
    deep = [node(str(n), "list", "x", children=[str(n + 1)], parentId=str(n - 1)) for n in range(5_000)]
    found = told(deep, most=2_000)
    assert found.is_cut
    assert len(found.text) <= 2_000


def test_a_name_of_many_lines_is_one_line_and_nothing_in_it_steers_a_terminal() -> None:
    found = told([node("1", "button", "a\n- link \x1b[31m" + "x" * 500, backendDOMNodeId=1)], most=1_000)
    assert "\n" not in found.text
    assert "\x1b" not in found.text
    assert len(found.text) < 400


# --- raw commands


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("Page.navigate", {"url": "https://example.com/"}),
        ("Page.captureScreenshot", {}),
        ("Runtime.evaluate", {"expression": "1"}),
        ("DOM.getDocument", {}),
        ("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 1, "y": 1}),
        ("Accessibility.getFullAXTree", {}),
    ],
)
def test_commands_that_look_at_a_page_and_use_it_pass(method: str, params: dict[str, Any]) -> None:
    check_command(method, params, Rules())


@pytest.mark.parametrize(
    ("method", "params"),
    [
        *((f"Browser.{name}", {}) for name in ("close", "crash", "setDownloadBehavior", "grantPermissions")),
        *(
            (f"Target.{name}", {})
            for name in ("createTarget", "createBrowserContext", "exposeDevToolsProtocol")
        ),
        ("Target.attachToTarget", {"targetId": "x"}),
        ("DOM.setFileInputFiles", {"files": ["/etc/passwd"]}),
        ("DOM.getFileInfo", {}),
        ("Page.setDownloadBehavior", {"behavior": "allow"}),
        ("Page.setDocumentContent", {}),
        ("Page.setInterceptFileChooserDialog", {"enabled": False}),
        *((f"Fetch.{name}", {}) for name in ("enable", "continueRequest")),
        *((f"Network.{name}", {}) for name in ("loadNetworkResource", "setCookie", "getAllCookies")),
        *(("IO.read", {}), ("Tracing.start", {}), ("Storage.getCookies", {}), ("SystemInfo.getInfo", {})),
        *(("Security.setIgnoreCertificateErrors", {}), ("Extensions.loadUnpacked", {}), ("FileSystem.x", {})),
        *(("page.navigate", {"url": "https://example.com/"}), ("", {}), ("Page.navigate ", {})),
        ("Page.navigate", {"url": "file:///etc/passwd"}),
        ("Page.navigate", {"url": "chrome://settings"}),
        ("Page.navigate", {"url": "data:text/html,x"}),
        ("Page.navigate", {"url": ["https://example.com/"]}),
        ("Page.navigate", {}),
        ("Page.navigate", {"url": "http://127.0.0.1:9222/json"}),
        ("Emulation.setDeviceMetricsOverride", {"width": 1_000_000, "height": 1_000_000}),
    ],
)
def test_every_other_command_is_refused(method: str, params: dict[str, Any]) -> None:
    with pytest.raises((ToolError, BlockedAddress)) as caught:
        check_command(method, params, Rules())
    assert isinstance(caught.value, AgentError)


def test_the_list_of_commands_has_none_that_touches_files_the_browser_or_other_pages() -> None:
    domains = {method.partition(".")[0] for method in METHODS}
    assert not domains & {
        "Browser",
        "Target",
        "IO",
        "Fetch",
        "Storage",
        "Tracing",
        "SystemInfo",
        "Extensions",
    }
    assert not [
        method for method in METHODS if "File" in method or "Download" in method or "Cookie" in method
    ]


# --- the connector


def pages() -> Pages:
    return Pages(
        where=Where(),
        rules=Rules(),
        browsers=Browsers(),
        session="agent",
        timeout=1,
        most=100,
        resolve=look_up,
    )


@pytest.mark.memory_case(510)
@pytest.mark.anyio
async def test_what_code_gets_to_use_has_a_known_shape() -> None:
    tools = cdp_tools(pages())
    assert list(tools) == ["attach_to_target", "send", "spec"]
    assert [tool.name for tool in tools.values()] == ["cdp_attach_to_target", "cdp_send", "cdp_spec"]
    assert list(tools["send"].input_schema["properties"]) == ["method", "params"]
    assert [tool.on_interrupt for tool in tools.values()] == ["rerun", "report", "rerun"]
    spec = await tools["spec"].call({}, ToolContext())
    assert {f"{domain}.{name}" for domain, names in spec.items() for name in names} == METHODS
    with pytest.raises(ToolError, match=r"'Browser\.close' is not among the commands.*cdp\.spec"):
        await tools["send"].call({"method": "Browser.close"}, ToolContext(agent=Agent()))
    with pytest.raises(ToolError, match="Blocked URL"):
        await tools["send"].call(
            {"method": "Page.navigate", "params": {"url": "file:///etc/passwd"}}, ToolContext(agent=Agent())
        )
