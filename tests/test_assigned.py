"""Names that an agent or its class is given after the class was written, and names that sound like hooks."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Any

import pytest

from everthink import Agent, Think, exposed, tool
from everthink.errors import InvalidSettings
from everthink.testing import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

# --- assigned


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("max_step", 2, "max_steps"),
        ("system_promt", "Be brief.", "system_prompt"),
        ("maxSteps", 2, "max_steps"),
        ("modle", "demo", "model"),
        ("before_tool_calls", print, "before_tool_call"),
    ],
)
async def test_an_attribute_that_was_meant_to_be_a_setting_is_told_where_it_is_assigned(
    open_app: OpenApp, name: str, value: Any, meant: str
) -> None:
    class Bot(Think):
        model = ScriptedModel(says("Hi."))

        async def on_start(self, props: Any = None) -> None:
            setattr(self, name, value)

    app = await open_app(Bot)
    with pytest.raises(InvalidSettings, match=rf"Bot\.{name} is no hook or setting .*'{meant}'"):
        await app.agent(Bot).chat("Hello")


@pytest.mark.anyio
async def test_what_only_assigns_a_slip_does_not_make_it_ones_own(open_app: OpenApp) -> None:
    class Bot(Think):
        model = ScriptedModel(says("Hi."))

        async def on_start(self, props: Any = None) -> None:
            self.max_step = 2

    app = await open_app(Bot)
    with pytest.raises(InvalidSettings, match=r"Bot\.max_step .*'max_steps'"):
        await app.agent(Bot).chat("Hello")


@pytest.mark.anyio
async def test_attributes_of_ones_own_are_never_refused(open_app: OpenApp) -> None:
    class Bot(Think):
        model = ScriptedModel(says("Hi."))
        max_steps_: int

        async def on_start(self, props: Any = None) -> None:
            self.tools, self.timeout, self.llm, self.prompt = [1], 3, None, "x"
            self.steps, self.cache, self._max_step = 1, [2], 2
            self.max_steps_ = 3
            self.max_step = 4

        def doubled(self) -> int:
            return self.max_step * 2

    app = await open_app(Bot)
    assert (await app.agent(Bot).chat("Hello")).status == "completed"
    assert app.agent(Bot).doubled() == 8


@pytest.mark.anyio
async def test_a_slip_that_is_added_to_a_class_is_told_when_its_next_agent_starts(open_app: OpenApp) -> None:
    class Base(Think):
        model = ScriptedModel(says("Hi."))

    class Bot(Base):
        pass

    app = await open_app(Bot)
    Base.system_promt = "Be brief."  # type: ignore[attr-defined]
    with pytest.raises(InvalidSettings, match=r"Base\.system_promt .*'system_prompt'"):
        await app.agent(Bot, "one").chat("Hello")

    del Base.system_promt  # type: ignore[attr-defined]
    Bot.system_prompt = "Be brief."
    assert (await app.agent(Bot, "one").chat("Hello")).status == "completed"


# --- methods that nobody calls


def nothing(self: Any) -> None: ...


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("on_tool_start", "before_tool_call"),
        ("on_tool_error", "after_tool_call"),
        ("on_approval", "before_tool_call"),
        ("on_open", "on_connect"),
        ("on_user_message", "before_turn"),
    ],
)
def test_a_method_that_sounds_like_a_hook_and_is_none_is_told(
    name: str, near: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "everthink.agent"):
        assistant(ScriptedModel(), **{name: nothing})
    (said,) = caplog.messages
    assert f".{name} is no hook of Think. Nobody calls it. The nearest hook is {near}()." in said


@pytest.mark.parametrize("name", ["on_stop", "on_shutdown", "before_lunch", "after_party"])
def test_it_is_told_also_when_no_hook_is_like_it(name: str, caplog: pytest.LogCaptureFixture) -> None:
    type("Bot", (Agent,), {name: nothing})
    assert f"Bot.{name} is no hook of Agent. Nobody calls it." in caplog.text


def test_a_method_that_somebody_calls_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Bot(Think):
        async def on_start(self, props: Any = None) -> None:
            await self.schedule(60, "on_timer")
            await self.schedule(60, self.on_other_timer)

        def on_timer(self) -> None: ...
        def on_other_timer(self) -> None: ...
        def once(self) -> None: ...

        @exposed
        def on_click(self) -> None: ...

        @tool
        def on_demand(self) -> str:
            """Look it up."""
            return ""

        @abstractmethod
        def on_ticket(self) -> None: ...

    class Next(Bot):
        def on_timer(self) -> None: ...
        def on_ticket(self) -> None: ...

    assert Next.on_timer is not Bot.on_timer
    assert caplog.messages == []
