"""What a class body or an agent puts in the place of everthink's own names, and how that is told."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from typing import Any

import pytest
from typing_extensions import override

import everthink
from everthink import Agent, App, Retry, Think, exposed, tool
from everthink.errors import InvalidSettings
from everthink.settings import hooks_of
from everthink.testing import ScriptedModel, says
from everthink.testing.crashtest.sample import Traveller
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

# --- names that are taken


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("name", "Support", r"Support\.name takes the place of Agent\.name .*app\.agent\(cls, name\)"),
        ("state", {"n": 0}, r"takes the place of Agent\.state .*`initial_state = …`.*set_state"),
        ("id", 7, r"takes the place of Agent\.id .*Give it another name\."),
        ("messages", [], r"takes the place of Think\.messages .*add_messages"),
        ("schedule", lambda self, when: None, r"takes the place of Agent\.schedule \(Call a method later\)"),
        ("chat", lambda self, text: text, r"takes the place of Think\.chat .*@typing\.override"),
        ("broadcast", 5, r"takes the place of Agent\.broadcast"),
        ("session", property(lambda self: None), r"takes the place of Think\.session "),
        ("queue", None, r"takes the place of Agent\.queue"),
        (
            "retry",
            tool(lambda: 1, name="retry"),
            r"Agent\.retry .*@tool\(name='retry'\) keeps it for the model",
        ),
    ],
)
def test_a_name_that_everthink_needs_is_not_taken(name: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        type("Support", (Think,), {name: value})


def test_a_tool_with_the_name_of_a_method_is_told_and_can_keep_its_name_for_the_model() -> None:
    with pytest.raises(InvalidSettings, match=r"Diary\.schedule takes the place of Agent\.schedule"):

        class Diary(Think):
            @tool
            def schedule(self, day: str) -> str:  # type: ignore[override]
                """Put down an appointment."""
                return day

    class Appointments(Think):
        @tool(name="schedule")
        def put_down(self, day: str) -> str:
            """Put down an appointment."""
            return day

    assert Appointments.put_down.name == "schedule"


def test_what_a_mixin_takes_is_told_as_well() -> None:
    mixin = type("Chatty", (), {"messages": ["hello"]})
    with pytest.raises(InvalidSettings, match=r"Support\.messages takes the place of Think\.messages"):
        type("Support", (mixin, Think), {})


def test_whoever_marks_an_override_is_believed() -> None:
    class Careful(Think):
        @override
        async def set_state(self, state: Any) -> None:
            await super().set_state({**state, "checked": True})

        @property
        @override
        def messages(self) -> list[Any]:
            return super().messages[-10:]

    class Next(Careful):
        pass

    assert Next.set_state is Careful.set_state


def test_hooks_settings_and_names_of_one_s_own_are_free() -> None:
    async def hook(self: Any, *given: Any) -> None: ...

    def plain(self: Any, *given: Any) -> None: ...

    for name in hooks_of(Think):
        type("Support", (Think,), {name: plain})
    type(
        "Support",
        (Think,),
        {"on_start": hook, "model": "demo", "max_steps": 3, "greeting": "Hi", "ask": hook},
    )

    class Typed(Think):
        state: dict[str, int]  # for a type checker; nothing is replaced

    assert Typed.state is Think.state


def test_a_sample_agent_of_everthink_may_be_changed_as_any_other() -> None:
    class Here(Traveller):
        @tool
        async def weather(self, city: str) -> str:
            """The weather in a city."""
            return "sunny"

    assert Here.weather.name == "weather"


# --- hooks


@pytest.mark.parametrize(
    ("name", "hook", "words"),
    [
        ("before_turn", "x", r"before_turn is 'x', a str, .*`def before_turn\(self, turn\)`"),
        ("on_start", None, r"on_start is None, .*`def on_start\(self, props\)`, or leave it out"),
        ("get_model", "demo", r"get_model is 'demo', .*or set `model = …`"),
        ("get_tools", [], r"get_tools is \[\], a list, and everthink calls it"),
        ("get_tools", property(lambda self: []), "get_tools is a property"),
        ("get_system_prompt", functools.cached_property(lambda self: ""), "get_system_prompt is a property"),
        ("on_close", 5, "on_close is 5"),
        (
            "on_message",
            tool(lambda: 1, name="on_message"),
            r"is a tool, .*@tool\(name='on_message'\) keeps it",
        ),
    ],
)
def test_a_hook_that_is_a_value_is_told(name: str, hook: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        type("Support", (Think,), {name: hook})


@pytest.mark.parametrize(
    ("name", "hook", "words"),
    [
        ("before_turn", lambda self, turn, more: None, r"\(self, turn, more\) .* is given only turn\."),
        ("on_start", lambda self, props, app: None, "it is given only props"),
        (
            "get_tools",
            lambda self, turn: [],
            r"it is given nothing\. Write it as `def get_tools\(self\)`",
        ),
        ("on_close", lambda self, a, b, c, d: None, "is given only connection, code, reason"),
        ("on_chat_error", lambda self, error, *, ctx: None, "is given only error, ctx"),
        ("on_connect", staticmethod(lambda a, b, c: None), "is given only connection, request"),
        ("on_start", lambda: None, r"on_start has no `self`\."),
        ("on_message", lambda self, message: None, r"its 'message' would get the connection"),
        ("on_chat_error", lambda self, ctx: None, r"its 'ctx' would get the error, .*\(self, error, ctx\)"),
        ("on_close", lambda self, connection, reason: None, r"its 'reason' would get the code"),
    ],
)
def test_a_hook_that_needs_more_than_it_is_given_is_told(name: str, hook: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        type("Support", (Think,), {name: hook})


async def forgets_self(call: Any) -> None: ...


@pytest.mark.parametrize(
    ("name", "hook", "words"),
    [
        ("before_tool_call", forgets_self, r"before_tool_call\(call\) has no `self`: its 'call' would get"),
        ("before_turn", lambda turn: None, r"Write it as `def before_turn\(self, turn\)`"),
        ("before_turn", lambda t: None, r"its 't' would get the object itself"),
        ("before_turn", classmethod(lambda turn: None), "has no `self`"),
        ("on_chat_error", lambda error, ctx: None, r"Write it as `def on_chat_error\(self, error, ctx\)`"),
        ("after_tool_call", lambda outcome, *more: None, "has no `self`"),
        ("on_connect", lambda connection: None, "has no `self`"),
        ("on_start", lambda props: None, "has no `self`"),
    ],
)
def test_a_hook_whose_first_parameter_was_meant_for_what_it_is_given_is_told(
    name: str, hook: Any, words: str
) -> None:
    with pytest.raises(InvalidSettings, match=words):
        type("Support", (Think,), {name: hook})


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        ("before_turn", lambda self: None),
        ("before_turn", lambda _: None),
        ("before_turn", lambda agent: None),
        ("before_turn", lambda support: None),
        ("before_turn", lambda a, turn: None),
        ("get_model", lambda a: "demo"),
        ("before_turn", staticmethod(lambda turn: None)),
        ("before_turn", lambda self, turn, more=1: None),
        ("before_turn", lambda *given: None),
        ("before_turn", lambda self, *given, **more: None),
        ("on_start", staticmethod(lambda: None)),
        ("on_close", classmethod(lambda cls, connection: None)),
        ("on_error", functools.partial(print, "failed")),
        ("on_message", functools.partialmethod(lambda self, prefix, message: None, "x")),
        ("on_error", print),
    ],
)
def test_hooks_that_can_be_called_are_left_alone(name: str, hook: Any) -> None:
    type("Support", (Think,), {name: hook})


def test_a_hook_with_a_yield_is_told() -> None:
    async def told(self: Any, chunk: Any) -> Any:
        yield chunk

    def some(self: Any) -> Iterator[Any]:
        yield tool(lambda: 1, name="one")

    with pytest.raises(InvalidSettings, match=r"Support\.on_chunk has a `yield`"):
        type("Support", (Think,), {"on_chunk": told})
    with pytest.raises(InvalidSettings, match=r"Support\.on_start has a `yield`"):
        type("Support", (Think,), {"on_start": some})
    type("Support", (Think,), {"get_tools": some})  # anything one can iterate over


async def test_an_error_hook_of_the_background_may_take_nothing(open_app: OpenApp) -> None:
    told = asyncio.Event()

    class Worker(Think):
        model = ScriptedModel()
        retry_options = Retry(max_attempts=1)

        def fail(self) -> None:
            raise RuntimeError("no")

        def on_error(self) -> None:
            told.set()

    app = await open_app(Worker)
    await app.agent(Worker).queue("fail")
    async with asyncio.timeout(10):
        await told.wait()


# --- two of one name


def test_two_tools_of_one_name_in_a_class_body_are_told() -> None:
    with pytest.raises(
        InvalidSettings, match=r"Shop\.refund is defined twice \(.*test_surface\.py, lines \d+ and"
    ):

        class Shop(Think):
            @tool
            def refund(self, order: str) -> str:
                """Refund an order."""
                return order

            @tool(title="Refund")
            def refund(self, order: str, amount: float) -> str:  # type: ignore[no-redef]  # noqa: F811
                """Refund a part of an order."""
                return order


def test_two_callables_of_one_name_and_a_tool_beside_a_callable_are_told() -> None:
    with pytest.raises(InvalidSettings, match=r"Shop\.total is defined twice"):

        class Shop(Think):
            @everthink.exposed
            def total(self) -> int:
                return 1

            @everthink.exposed(reads=True)
            def total(self) -> int:  # type: ignore[no-redef]  # noqa: F811
                return 2

    with pytest.raises(InvalidSettings, match=r"Store\.total is defined twice"):

        class Store(Think):
            @everthink.exposed
            def total(self) -> int:
                return 1

            @staticmethod
            @tool
            def total() -> int:  # type: ignore[no-redef]  # noqa: F811
                """The total."""
                return 2


def test_a_plain_method_above_or_below_a_tool_of_its_name_is_told() -> None:
    with pytest.raises(InvalidSettings, match=r"Above\.refund is defined twice"):

        class Above(Think):
            def refund(self) -> str:
                return "plain"

            @tool
            def refund(self) -> str:  # type: ignore[no-redef]  # noqa: F811
                """Refund."""
                return "tool"

    with pytest.raises(InvalidSettings, match=r"Below\.refund is defined twice"):

        class Below(Think):
            @tool
            def refund(self) -> str:
                """Refund."""
                return "tool"

            def refund(self) -> str:  # type: ignore[no-redef]  # noqa: F811
                return "plain"


def test_one_definition_with_several_decorators_and_an_override_of_an_inherited_tool_are_fine() -> None:
    def logged(method: Any) -> Any:
        @functools.wraps(method)
        def wrapper(*args: Any) -> Any:
            return method(*args)

        return wrapper

    class Shop(Think):
        @everthink.exposed
        @tool
        def refund(self) -> str:
            """Refund."""
            return "base"

        @logged
        @everthink.exposed
        def total(self) -> int:
            return 1

        def price(self) -> int:
            return 3

        price = tool(price)  # type: ignore[assignment]

    class Cautious(Shop):
        @tool
        def refund(self) -> str:
            """Refund, after a while."""
            return "next"

        total = None  # type: ignore[assignment]

    assert Cautious.refund(Cautious.__new__(Cautious)) == "next"


# --- options


@pytest.mark.parametrize(
    ("decorate", "words"),
    [
        (
            lambda: tool(need_approval=True),
            r"tool\(\) has no option 'need_approval'\. Did you mean 'needs_approval'",
        ),
        (lambda: tool(needsApproval=True), "Did you mean 'needs_approval'"),
        (lambda: tool(colour="red"), "There are: name, description"),
        (lambda: everthink.exposed(read=True), r"exposed\(\) has no option 'read'\. Did you mean 'reads'"),
        (lambda: everthink.exposed(stream=True), "Did you mean 'streaming'"),
        (
            lambda: everthink.exposed("The total."),
            r"@exposed is given 'The total\.', a str, in the place of a",
        ),
        (lambda: tool("refund"), r"'refund' is not a function\. .*@tool\(name=…\)"),
    ],
)
def test_an_option_that_there_is_not_is_told_with_the_nearest(decorate: Any, words: str) -> None:
    with pytest.raises(everthink.AgentError, match=words):
        decorate()


# --- one agent


async def test_an_agent_says_what_was_meant_and_what_is_not_assigned(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi."))))
    agent: Any = await live(app.agent(cls, "room"))
    with pytest.raises(AttributeError, match=r"Assistant has no attribute 'stat'\. Did you mean 'state'\?"):
        _ = agent.stat
    agent.orders = []
    with pytest.raises(AttributeError, match="Did you mean 'orders'"):
        _ = agent.ordres
    with pytest.raises(
        AttributeError, match=r"Assistant\.state is not to be assigned .*await self\.set_state"
    ):
        agent.state = {"n": 1}
    with pytest.raises(AttributeError, match=r"Assistant\.schedule is not to be assigned .*another name"):
        agent.schedule = []
    with pytest.raises(AttributeError, match="where everthink keeps this agent"):
        agent._home = "Rome"
    agent.system_prompt, agent.before_turn = "Be brief.", lambda turn: None  # settings and hooks are free
    assert getattr(agent, "nothing", None) is None
    assert (await agent.save_messages("Hello")).text == "Hi."


async def test_a_property_that_raises_says_its_own_words(open_app: OpenApp) -> None:
    class Shop(Think):
        model = ScriptedModel()

        @property
        def first(self) -> Any:
            return self.ordres  # type: ignore[attr-defined]

        @property
        def second(self) -> Any:
            return "text".capitalise()  # type: ignore[attr-defined]

    app = await open_app(Shop)
    agent = await live(app.agent(Shop))
    with pytest.raises(AttributeError, match="'ordres'"):
        _ = agent.first
    with pytest.raises(AttributeError, match="'capitalise'"):
        _ = agent.second


def test_an_agent_that_was_made_by_hand_says_so() -> None:
    cls = assistant(ScriptedModel())
    with pytest.raises(AttributeError, match=r"made by hand: .*app\.agent\(cls, \"name\"\)"):
        cls().chat("Hi")
    with pytest.raises(AttributeError, match="made by hand"):
        _ = cls().state


# --- the functions of an app


@pytest.mark.parametrize(
    ("check", "function", "words"),
    [
        (
            "authenticate",
            "ada",
            r"authenticate is 'ada', a str\. Give a function: authenticate\(connection\)",
        ),
        ("authenticate", lambda connection, token: "ada", "it is given only connection"),
        ("authorize", lambda action, agent: True, "its 'action' would get the identity"),
        ("authorize", lambda agent: True, "its 'agent' would get the identity"),
        ("on_before_connect", lambda name: True, "its 'name' would get the connection"),
        (
            "on_before_request",
            lambda connection, cls, *, name: None,
            "it is given only connection, cls, name",
        ),
    ],
)
def test_a_check_that_would_be_given_something_else_is_refused(check: str, function: Any, words: str) -> None:
    options: dict[str, Any] = {check: function}
    with pytest.raises(InvalidSettings, match=words):
        App(assistant(ScriptedModel()), **options)
    App(assistant(ScriptedModel()), **{check: lambda *given: True})  # type: ignore[arg-type]
    App(assistant(ScriptedModel()), **{check: lambda: True})  # type: ignore[arg-type]


# --- what only an agent that chats has


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("model", "demo", "a setting of Think"),
        ("system_prompt", "Be kind.", "a setting of Think"),
        ("max_steps", 3, "a setting of Think"),
        ("chat_recovery", None, "a setting of Think"),
        ("maxSteps", 3, "the setting max_steps of Think"),
        ("before_turn", lambda self, turn: None, "a hook of Think"),
        ("on_chat_response", lambda self, response: None, "a hook of Think"),
        ("get_tools", lambda self: [], "a hook of Think"),
        ("configure_session", lambda self, session: session, "a hook of Think"),
        ("get_scheduled_tasks", lambda self: {}, "a hook of Think"),
        ("look", tool(lambda: 1, name="look"), "a tool"),
    ],
)
def test_what_belongs_to_a_chat_is_refused_in_an_agent_that_does_not(
    name: str, value: Any, what: str
) -> None:
    with pytest.raises(
        InvalidSettings,
        match=rf"Bike\.{name} is {what}, and Bike does not chat\. Write `class Bike\(Think\)`",
    ):
        type("Bike", (Agent,), {name: value})


def test_a_plain_agent_may_use_such_a_name_for_what_it_reads_itself() -> None:
    class Bike(Agent):
        model = "Brompton"

        @exposed
        def get_model(self) -> str:
            return self.model

    assert Bike.model == "Brompton"


@pytest.mark.anyio
async def test_a_method_of_chats_that_a_plain_agent_lacks_is_told_as_that() -> None:
    class Bike(Agent):
        def read(self) -> Any:
            return self.get_messages()  # pyright: ignore

        def end(self) -> Any:
            return self.demolish()  # pyright: ignore

    async with App(Bike, store=":memory:") as app, app.agent(Bike) as bike:
        with pytest.raises(AttributeError, match=r"Bike does not chat, so that it has no 'get_messages'"):
            bike.read()
        with pytest.raises(AttributeError, match=r"Bike has no attribute 'demolish'\.$"):
            bike.end()


def test_a_plain_agent_validates_its_state_at_once() -> None:
    with pytest.raises(InvalidSettings, match=r"Bike\.validate_state_change is `async`.*with `def`"):

        class Bike(Agent):
            async def validate_state_change(self, state: Any, source: Any) -> None: ...  # type: ignore


# --- methods for clients


async def _one(order): ...
async def _typed(order: str, note: str): ...


@pytest.mark.parametrize("method", [_one, _typed])
def test_an_exposed_method_without_self_is_refused(method: Any) -> None:
    with pytest.raises(InvalidSettings, match=r"@exposed Shop\.buy has no `self`: its 'order' would get the"):
        type("Shop", (Agent,), {"buy": exposed(method)})


@pytest.mark.parametrize("name", ["on_start", "validate_state_change", "_secret"])
def test_hooks_and_private_methods_are_not_exposed(name: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"@exposed Shop\.{name} is (a hook|private).*of your own"):
        type("Shop", (Agent,), {name: exposed(lambda self, *given: None)})


def test_a_handle_completes_the_methods_of_its_agent() -> None:
    class Bike(Agent):
        async def ride(self) -> None: ...

    assert {"ride", "schedule", "set_state", "name"} <= set(dir(App(Bike, store=":memory:").agent(Bike)))
