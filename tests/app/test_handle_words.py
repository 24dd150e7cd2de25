"""A handle that is used as if it were the agent, and slips of the pen in what is asked of it."""

from __future__ import annotations

import abc
import gc
import warnings
from typing import Any

import pytest

from everthink import AgentError, App, Think
from everthink.errors import InvalidSettings, InvalidTurn
from everthink.testing import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("chatt", "Did you mean 'chat'?"),
        ("save_message", "Did you mean 'save_messages'?"),
        ("remnd", "Did you mean 'remind'?"),
    ],
)
async def test_a_misspelt_method_of_a_handle_is_told_with_the_nearest(name: str, words: str) -> None:
    cls = assistant(ScriptedModel(), remind=lambda self: None)
    handle = App(cls).agent(cls, "room")
    with pytest.raises(AttributeError) as told:
        getattr(handle, name)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("state", r"await handle\.set_state\(…\)"),
        ("model", r"async with handle as agent: agent\.model = …"),
        ("name", "A handle has no 'name' to assign"),
    ],
)
async def test_nothing_is_assigned_to_a_handle(name: str, words: str) -> None:
    cls = assistant(ScriptedModel())
    with pytest.raises(AttributeError, match=words):
        setattr(App(cls).agent(cls, "room"), name, {})


async def test_a_misspelt_option_of_a_stream_is_told_at_the_call() -> None:
    cls = assistant(ScriptedModel())
    handle = App(cls).agent(cls)
    with pytest.raises(InvalidSettings, match=r"chat\(\) has no option 'sginal'\. Did you mean 'signal'\?"):
        handle.chat("Hi", sginal=None)
    with pytest.raises(InvalidSettings, match=r"regenerate\(\) has no option 'channel'"):
        handle.regenerate(channel="x")


async def remind(self: Any, when: str, **more: Any) -> Any:
    return when, more


async def test_a_misspelt_option_of_a_method_is_told_with_the_nearest(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(), remind=remind))
    handle: Any = app.agent(cls)
    with pytest.raises(
        InvalidSettings, match=r"save_messages\(\) has no option 'metdata'\. Did you mean 'metadata'\?"
    ):
        await handle.save_messages("x", metdata={})
    assert await handle.get_messages() == []
    # one that takes whatever it is given is given it
    assert await handle.remind(when="now", metdata=1) == ("now", {"metdata": 1})


async def test_a_method_that_is_never_awaited_is_named() -> None:
    cls = assistant(ScriptedModel())
    handle = App(cls).agent(cls)
    with pytest.warns(RuntimeWarning, match=r"coroutine 'Assistant\.save_messages' was never awaited"):
        handle.save_messages("x")  # and nobody keeps it


# --- a stream that nobody asks


@pytest.mark.parametrize(
    ("ask", "method"),
    [
        (lambda agent: agent.chat("Hi"), "chat"),
        (lambda agent: agent.chat("Hi").text(), "chat"),
        (lambda agent: agent.regenerate(), "regenerate"),
        (lambda agent: agent.continue_last_turn(), "continue_last_turn"),
    ],
)
async def test_a_stream_that_is_never_iterated_is_told_where_it_was_made(
    open_app: OpenApp, ask: Any, method: str
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    handle = app.agent(cls, "room")
    for agent in handle, await live(handle):
        with pytest.warns(RuntimeWarning, match=rf"{method}\(\) was never iterated or awaited") as told:
            ask(agent)  # and nobody keeps it
        assert (told[0].filename, told[0].lineno) == (__file__, ask.__code__.co_firstlineno)


async def test_a_stream_that_is_asked_says_nothing(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("One."), says("Two."), says("Three."))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await app.agent(cls).chat("Hi")
        assert [text async for text in app.agent(cls).chat("Hi").text()] == ["Two."]
        async for _ in (await live(app.agent(cls))).chat("Hi"):
            break
        gc.collect()


@pytest.mark.parametrize(
    ("callback", "words"),
    [
        ("print", "The callback is 'print', a str. It takes a function of the chunk"),
        ({"on_event": print}, "The callback is {'on_event'"),
        (lambda one, two: None, "takes more than a chunk"),
        (type("Heard", (), {"onEvent": lambda self, json: None})(), "Did you mean 'on_event'?"),
        (type("Heard", (), {"on_evnet": print, "on_done": print})(), "Did you mean 'on_event'?"),
    ],
)
async def test_a_callback_that_would_never_be_told_anything_is_refused(callback: Any, words: str) -> None:
    cls = assistant(ScriptedModel())
    with pytest.raises(InvalidTurn) as told:
        App(cls).agent(cls).chat("Hi", callback)
    assert words in str(told.value)


# --- classes of which no agent can be made


def test_a_class_whose_init_wants_something_is_refused_by_the_app() -> None:
    def init(self: Any, db: str) -> None: ...

    with pytest.raises(AgentError, match=r"Assistant\.__init__\(self, db.*on_start\(self, props\)"):
        App(assistant(ScriptedModel(), __init__=init))
    App(assistant(ScriptedModel(), __init__=lambda self, db="x": None))


def test_an_abstract_class_is_refused_by_the_app() -> None:
    class Base(Think, abc.ABC):
        @abc.abstractmethod
        def look(self) -> str: ...

    with pytest.raises(AgentError, match=r"Base is abstract: it lacks look\."):
        App(Base)
