"""Agents are found by where their files are, and every mistake is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from everthink import AgentError, App
from everthink.app.discovery import discover, find_agents
from everthink.errors import DiscoveryFailed
from everthink.testing import ScriptedModel, says

from ..support.server import served
from .conftest import Write


def agent(name: str, extra: str = "") -> str:
    return f"from everthink import Think\n{extra}\nclass {name}(Think):\n    model = 'demo'\n"


def problems(folder: Path) -> dict[str, str]:
    with pytest.raises(DiscoveryFailed) as failed:
        discover(folder)
    return {problem.code: str(problem) for problem in failed.value.problems}


def test_a_file_or_a_folder_is_an_agent_and_helpers_are_not(write: Write) -> None:
    folder = write(
        support=agent("Support", "from ._texts import HELLO"),
        assistant__agent=agent("Assistant", "from .tools import ring"),
        assistant__tools="def ring(): ...",
        _texts="HELLO = 'hello'",
        __init__="",
    )
    assert [cls.__name__ for cls in discover(folder)] == ["Assistant", "Support"]
    assert [found.id for found in find_agents(folder)] == ["assistant", "support"]


@pytest.mark.agent_case(532)
def test_a_nested_folder_holds_children(write: Write) -> None:
    folder = write(
        assistant__agent=agent("Assistant"),
        assistant__agents__researcher=agent("Researcher"),
        assistant__agents__code9reviewer__agent=agent("CodeReviewer"),
    )
    [found] = find_agents(folder)
    assert [(child.id, child.cls.__name__) for child in found.children] == [
        ("assistant/code-reviewer", "CodeReviewer"),
        ("assistant/researcher", "Researcher"),
    ]
    assert [cls.__name__ for cls in discover(folder)] == ["Assistant"]


@pytest.mark.agent_case(532)
def test_an_agent_in_a_file_may_have_children_in_a_folder_of_its_name(write: Write) -> None:
    folder = write(desk=agent("Desk"), desk__agents__clerk=agent("Clerk"))
    [found] = find_agents(folder)
    assert [child.id for child in found.children] == ["desk/clerk"]


def test_the_class_called_agent_wins(write: Write) -> None:
    folder = write(desk=agent("Base") + "\nclass Desk(Base): ...\n\nagent = Desk\n")
    assert [cls.__name__ for cls in discover(folder)] == ["Desk"]


def test_an_imported_base_class_is_not_an_agent_of_the_file(write: Write) -> None:
    folder = write(_base=agent("Base"), desk="from ._base import Base\n\nclass Desk(Base): ...\n")
    assert [cls.__name__ for cls in discover(folder)] == ["Desk"]


@pytest.mark.anyio
async def test_a_discovered_app_answers(write: Write, tmp_path: Path) -> None:
    write(support=agent("Support"))
    app = App.discover("agents", store=f"sqlite:///{tmp_path}/app.db")
    [support] = app.classes
    support.model = ScriptedModel(says("Hello."))
    async with app:
        await app.agent(support, "x").save_messages("Hi")
        assert (await app.agent(support, "x").get_messages())[-1].text == "Hello."


@pytest.mark.agent_case(538)
def test_discovering_twice_gives_the_same_classes(write: Write) -> None:
    folder = write(support=agent("Support"))
    assert discover(folder) == discover(folder)


def test_a_package_of_the_same_name_is_no_hindrance(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    monkeypatch.setitem(sys.modules, "agents", ModuleType("agents"))
    assert [cls.__name__ for cls in discover(write(support=agent("Support")))] == ["Support"]


@pytest.mark.agent_case(545)
def test_every_mistake_is_told_at_once(write: Write) -> None:
    folder = write(
        one=agent("Twin"),
        two=agent("Twin"),
        broken="\nimport nothing_of_that_name\n",
        crooked="def f(:\n",
        empty="x = 1\n",
        many=agent("A") + agent("B"),
        same=agent("Same"),
        same__agent=agent("Other"),
        lost__agents__child=agent("Child"),
        same__agents__kid__agent=agent("Kid"),
        same__agents__kid__agents__baby=agent("Baby"),
    )
    with pytest.raises(DiscoveryFailed) as failed:
        discover(folder)
    text = str(failed.value)
    assert "8 problems" in text
    told = {(problem.code, problem.path.name) for problem in failed.value.problems}
    assert (
        told
        == {
            ("duplicate-agent-name", "two.py"),
            ("import-error", "broken.py"),
            ("import-error", "crooked.py"),
            ("no-agent-in-file", "empty.py"),
            ("several-agents-in-file", "many.py"),
            ("duplicate-agent-id", "agent.py"),
            ("orphan-subagent", "agents"),
            ("unsupported-nested-subagent", "agents"),
        }
        or len(told) == 8
    )
    assert "agents/one.py" in text
    assert "agents/two.py" in text
    assert "agents/broken.py:2: ModuleNotFoundError: No module named 'nothing_of_that_name'" in text
    assert "agents/crooked.py:1: SyntaxError" in text
    assert "agent = B" in text


def test_an_import_error_names_the_line_of_the_helper_it_is_in(write: Write) -> None:
    folder = write(_helper="x = 1\nboom = {}['key']\n", support="from . import _helper\n" + agent("Support"))
    assert "agents/_helper.py:2: KeyError: 'key'" in problems(folder)["import-error"]


def test_leaving_the_program_while_importing_is_a_mistake_like_others(write: Write) -> None:
    assert "SystemExit" in problems(write(script="raise SystemExit(3)"))["import-error"]


def test_an_empty_folder_a_file_and_nothing_are_told(write: Write, tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "file").write_text("")
    assert "everthink new" in problems(tmp_path / "agents")["no-agents"]
    assert "not a folder" in problems(tmp_path / "file")["not-a-folder"]
    assert "no such folder" in problems(tmp_path / "nowhere")["not-a-folder"]


def test_the_failure_is_a_letter(tmp_path: Path) -> None:
    with pytest.raises(AgentError):
        App.discover(tmp_path / "nowhere")


@pytest.mark.anyio
async def test_an_agent_answers_to_its_file_and_to_its_class(write: Write, tmp_path: Path) -> None:
    folder = write(
        support=agent("SupportDesk"),
        sales__agent=agent("Sales"),
        sales__agents__clerk=agent("Clerk"),
        night_shift=agent("NightShift"),
    )
    async with served(App.discover(folder, store=f"sqlite:///{tmp_path}/app.db")) as server:
        by_file = await server.connect("/agents/support/room")
        by_class = await server.connect("/agents/support-desk/room")
        await by_class.until_frame("mcp_servers")
        request = await by_file.say("Hello")
        await by_file.until_done(request)
        # Both are the same agent, which knows itself by its class
        await by_class.until_done(request)
        assert by_file.identity == by_class.identity
        assert by_file.identity is not None
        assert by_file.identity["agent"] == "support-desk"
        for name in ("sales", "night-shift"):
            assert (await server.http(f"/agents/{name}/room/get-messages")).status == 200
        # A child is reached through its parent only
        for name in ("clerk", "night_shift", "SupportDesk", "support.py"):
            assert (await server.http(f"/agents/{name}/room/get-messages")).status == 400


def test_a_file_called_like_the_class_of_another_is_ambiguous(write: Write) -> None:
    found = problems(write(support=agent("Helpdesk"), helpdesk=agent("Support")))
    assert list(found) == ["ambiguous-agent-address"]
    assert "agents/support.py" in found["ambiguous-agent-address"]
    assert "class Support in agents/helpdesk.py" in found["ambiguous-agent-address"]


def test_a_file_may_be_called_like_its_own_class(write: Write) -> None:
    folder = write(support=agent("Support"), night_shift=agent("NightShift"))
    assert [found.id for found in find_agents(folder)] == ["night-shift", "support"]


@pytest.mark.agent_case(532, 538)
def test_children_are_declared_for_the_parent_whose_folder_they_are_in(write: Write) -> None:
    folder = write(
        desk__agent=agent("Desk"),
        desk__agents__clerk=agent("Clerk"),
        shop=agent("Shop"),
    )
    desk, shop = discover(folder)
    assert [cls.__name__ for cls in desk.sub_agents] == ["Clerk"]
    assert shop.sub_agents == ()
    assert discover(folder)[0].sub_agents == desk.sub_agents


@pytest.mark.agent_case(538, 553, 555)
@pytest.mark.anyio
async def test_children_are_served_below_their_parent(write: Write, tmp_path: Path) -> None:
    folder = write(
        sales__agent=agent("Sales"),
        sales__agents__clerk=agent("SalesClerk"),
        bank__agent=agent("Bank"),
        bank__agents__clerk=agent("BankClerk"),
    )
    async with served(App.discover(folder, store=f"sqlite:///{tmp_path}/app.db")) as server:
        for place, found in {
            "sales/room/sub/clerk/ada": "sales-clerk",  # by its file, which another parent has, too
            "bank/room/sub/clerk/ada": "bank-clerk",
            "sales/room/sub/sales-clerk/ada": "sales-clerk",
        }.items():
            tab = await server.connect(f"/agents/{place}")
            identity = await tab.until_frame("cf_agent_identity")
            assert (identity["agent"], identity["name"]) == (found, "ada")
        # That of another parent is no child of this one
        answer = await server.http("/agents/sales/room/sub/bank-clerk/ada/get-messages")
        assert answer.status == 404


GATED = """
from everthink import Think
from starlette.responses import PlainTextResponse

class Sales(Think):
    model = "demo"
    asked = []

    async def on_before_sub_agent(self, request, cls, name):
        self.asked.append((cls.__name__, name))
        if not await self.has_sub_agent(cls, name):
            return PlainTextResponse("There is no such clerk.", 404)
"""
VALUES = "from everthink.framework import agent\nagent = agent(model='demo')\n"


@pytest.mark.agent_case(555, 558, 559)
@pytest.mark.anyio
@pytest.mark.parametrize("clerk", [agent("SalesClerk"), VALUES], ids=["class", "values"])
async def test_a_child_of_a_folder_is_the_same_to_its_parent_and_after_a_restart(
    write: Write, tmp_path: Path, clerk: str
) -> None:
    folder = write(sales__agent=GATED, sales__agents__clerk=clerk)
    for times in range(2):  # each is a process
        app = App.discover(folder, store=f"sqlite:///{tmp_path}/app.db")
        [sales] = app.classes
        [child] = sales.sub_agents
        assert child.__name__ == "SalesClerk"
        child.model = ScriptedModel(says("Hello."))
        async with app, served(app, lifespan="off") as server:
            # When it is reached by the name of its file, its parent is asked about its class
            for place in ("clerk", "sales-clerk"):
                tab = await server.connect(f"/agents/sales/room/sub/{place}/nobody")
                assert await tab.until_closed() == (4404, "Sub-agent connection rejected (404)")
            assert sales.asked[-2:] == [("SalesClerk", "nobody")] * 2  # pyright: ignore[reportAttributeAccessIssue]
            room = app.agent(sales, "room")
            assert await room.has_sub_agent("sales-clerk", "ada") == bool(times)
            await room.sub_agent(child, "ada")
            tab = await server.connect("/agents/sales/room/sub/clerk/ada")
            await tab.until_done(await tab.say("Hi"))
            assert len(tab.messages) == 2 + 2 * times


@pytest.mark.agent_case(545)
def test_two_classes_of_one_name_are_told_wherever_they_are(write: Write) -> None:
    found = problems(write(a__agent=agent("A"), a__agents__kid=agent("B"), b=agent("B")))
    assert list(found) == ["duplicate-agent-name"]
    assert "agents/a/agents/kid.py: its class B is called as the one in agents/b.py" in str(found)


@pytest.mark.agent_case(545)
def test_a_folder_of_children_without_any_is_told(write: Write) -> None:
    found = problems(write(desk__agent=agent("Desk"), desk__agents__clerk__main=agent("Clerk")))
    assert list(found) == ["no-agent-in-folder"]
    assert "agents/desk/agents/clerk/agent.py" in found["no-agent-in-folder"]


@pytest.mark.agent_case(545)
def test_a_second_layer_of_children_is_named_in_code(write: Write) -> None:
    found = problems(
        write(a__agent=agent("A"), a__agents__b__agent=agent("B"), a__agents__b__agents__c=agent("C"))
    )
    assert "sub_agents = (…,)" in found["unsupported-nested-subagent"]


@pytest.mark.agent_case(259)
def test_a_child_called_sub_is_told(write: Write) -> None:
    found = problems(write(desk__agent=agent("Desk"), desk__agents__clerk=agent("Sub")))
    assert "/sub/ parts them" in found["reserved-agent-name"]
