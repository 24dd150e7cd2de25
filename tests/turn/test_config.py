"""`configure` and `get_config`: a private JSON value of one agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.memory import Session
from everthink.testing.scripted import ScriptedModel
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database

pytestmark = pytest.mark.anyio


@pytest.mark.case(25)
async def test_before_configure_there_is_none(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    assert (await live(app.agent(cls))).get_config() is None


@pytest.mark.case(26)
@pytest.mark.parametrize("how", ["in memory", "evicted", "reopened"])
@pytest.mark.parametrize(
    "config", [{"tone": "dry", "tags": ["a", {"b": [1, 2.5, None]}]}, [], {}, "text", "", 0, False, True]
)
async def test_it_comes_back_as_it_was_given(open_app: OpenApp, how: str, config: Any) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls).configure(config)
    if how == "evicted":
        await app.evict(cls, "default")
    elif how == "reopened":
        await app.close()
        app = await open_app(cls)
    kept = (await live(app.agent(cls))).get_config()
    assert kept == config
    assert type(kept) is type(config)


@pytest.mark.case(26)
async def test_a_second_one_replaces_it_and_none_forgets_it(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = app.agent(cls)
    await agent.configure({"tone": "dry", "size": 3})
    await agent.configure({"tone": "warm"})
    assert (await live(agent)).get_config() == {"tone": "warm"}
    await agent.configure(None)
    assert (await live(agent)).get_config() is None
    assert Database(tmp_path).rows("SELECT * FROM kv") == []


@pytest.mark.case(26)
async def test_what_is_handed_out_is_a_copy(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    given = {"tags": ["a"]}
    await app.agent(cls).configure(given)
    given["tags"].append("b")
    ((await live(app.agent(cls))).get_config())["tags"].append("c")
    assert (await live(app.agent(cls))).get_config() == {"tags": ["a"]}


@pytest.mark.case(26)
async def test_a_dataclass_is_the_same_json_before_and_after_a_restart(open_app: OpenApp) -> None:
    @dataclass
    class Settings:
        tone: str
        sizes: tuple[int, int]

    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls).configure(Settings("dry", (1, 2)))
    before = (await live(app.agent(cls))).get_config()
    await app.evict(cls, "default")
    assert before == (await live(app.agent(cls))).get_config() == {"tone": "dry", "sizes": [1, 2]}


@pytest.mark.case(26)
async def test_a_value_that_is_not_json_is_refused_and_the_old_one_stays(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls).configure({"tone": "dry"})
    for config, words in (
        ({"call": print}, r"configure: config\['call'\] is <built-in function print>"),
        (object(), r"configure: config is <object object at .*an object, which JSON does not have"),
        ({"tags": {"a"}}, r"config\['tags'\] is \{'a'\}, a set"),
        ({"mean": float("nan")}, r"config\['mean'\] is nan"),
        ({7: "x"}, r"a key of config is 7, an int"),
    ):
        with pytest.raises(TypeError, match=words):
            await app.agent(cls).configure(config)
    assert (await live(app.agent(cls))).get_config() == {"tone": "dry"}


@pytest.mark.case(26)
async def test_each_agent_has_its_own(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls, "a").configure("mine")
    assert (await live(app.agent(cls, "b"))).get_config() is None


@pytest.mark.memory_case(198)
@pytest.mark.case(27)
@pytest.mark.parametrize("is_async", [True, False])
async def test_configure_session_can_read_it_on_the_first_and_later_starts(
    open_app: OpenApp, is_async: bool
) -> None:
    seen: list[Any] = []

    def configure_session(self: Think, session: Session) -> Session:
        seen.append(self.get_config() or {"tone": "default"})
        return session

    async def configure_session_later(self: Think, session: Session) -> Session:
        return configure_session(self, session)

    cls = assistant(
        ScriptedModel(), configure_session=configure_session_later if is_async else configure_session
    )
    app = await open_app(cls)
    await app.agent(cls).configure({"tone": "dry"})
    await app.evict(cls, "default")
    (await live(app.agent(cls))).get_config()
    assert seen == [{"tone": "default"}, {"tone": "dry"}]
