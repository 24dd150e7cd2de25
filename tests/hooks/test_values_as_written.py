"""Settings with values of another kind: they are told where they are written."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from everthink import Agent, Block, Retry, ScheduledTask, StepConfig, Think, TurnConfig, exposed, tool
from everthink.chat import Debounce
from everthink.errors import InvalidSettings
from everthink.fibers import FiberRecovery
from everthink.hooks import Timeouts, has_tool_call
from everthink.memory import ContextOverflow, MediaEviction, Proactive, Shortening
from everthink.models.port import TextPart, UserMessage
from everthink.recovery import ChatRecovery, RecoveryDecision
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live


class Answer(BaseModel):
    a: int


@dataclass
class Plain:
    a: int


# --- settings of a class

WRONG: list[tuple[str, Any, str]] = [
    ("max_steps", 0, "is 0, an int. It takes a whole number of at least 1."),
    ("max_steps", "three", "is 'three', a str. It takes a whole number of at least 1."),
    ("max_steps", True, "is True, a bool."),
    ("max_steps", 2.5, "is 2.5, a float."),
    ("max_steps", None, "is None, a NoneType."),
    ("send_reasoning", "no", "is 'no', a str. It takes True or False."),
    ("send_reasoning", 0, "is 0, an int. It takes True or False."),
    ("message_concurrency", "quue", "is 'quue', a str. It takes 'queue', .*Did you mean 'queue'?"),
    ("message_concurrency", {"strategy": "debounce"}, "is {.*or Debounce(seconds)."),
    ("chat_recovery", {"max_attempt": 3}, ": ChatRecovery has no field 'max_attempt'. Did you mean 'max_att"),
    ("chat_recovery", {"maxAttempts": "3"}, ": ChatRecovery.max_attempts is '3', a str. It takes a number"),
    ("chat_recovery", "yes", "is 'yes', a str. It takes True or False, or a ChatRecovery or a dict"),
    ("media_eviction", "yes", "is 'yes', a str. It takes True or False, or a MediaEviction"),
    ("media_eviction", {"minPartBytes": 0}, ": MediaEviction.min_part_bytes is 0, an int."),
    ("shorten_old_messages", 5, "is 5, an int. It takes True or False, or a Shortening"),
    ("shorten_old_messages", {"keep_recent": 5}, ": Shortening has no field 'keep_recent'."),
    (
        "context_overflow",
        True,
        "is True, a bool. It takes a ContextOverflow or a dict with its fields, or None.",
    ),
    ("context_overflow", {"reactive": "yes"}, ": ContextOverflow.reactive is 'yes', a str."),
    ("context_overflow", {"proactive": {"headroom": 90}}, ".proactive: Proactive needs its field 'max_input"),
    (
        "context_overflow",
        {"proactive": {"max_input_tokens": 9, "headroom": 90}},
        ".proactive: Proactive.headroom is 90",
    ),
    ("model", 5, 'is 5, an int. It takes the name of a model ("provider:name", "demo")'),
    ("model", ScriptedModel, "is <class .*ScriptedModel'>, a "),
    ("system_prompt", None, "is None, a NoneType. It takes text."),
    ("system_prompt", ["Be brief."], "is ['Be brief.'], a list. It takes text."),
    ("capability_prompt", 1, "is 1, an int."),
    ("model_timeout", "30", "is '30', a str. It takes a number of seconds, 0 or more, or None."),
    ("model_timeout", timedelta(seconds=3), "is .*a timedelta. It takes a number of seconds"),
    ("chat_stream_stall_timeout", -1, "is -1, an int. It takes a number of seconds, 0 or more."),
    ("hydration_byte_budget", "24MB", "is '24MB', a str. It takes a number."),
    ("trust_client_history", "no", "is 'no', a str. It takes True or False."),
    ("default_timezone", "Europe/Lonndon", "is 'Europe/Lonndon', a str. It takes the name of a time zone"),
    ("hung_schedule_timeout", "30s", "is '30s', a str."),
    ("max_alarm_memory_limit_strikes", 0, "is 0, an int. It takes a whole number of at least 1."),
    ("retry_options", 3, "is 3, an int. It takes a Retry or a dict with its fields, or None."),
    ("retry_options", {"max_attempt": 3}, ": Retry has no field 'max_attempt'. Did you mean 'max_attempts'?"),
    ("retry_options", {"max_attempts": 0}, ": retry.max_attempts must be >= 1"),
    ("retry_options", Retry(base_delay=5), ": retry.base_delay must be <= retry.max_delay"),
    ("fiber_recovery", True, "is True, a bool. It takes a FiberRecovery or a dict"),
    ("fiber_recovery", {"maxAge": "1h"}, ": FiberRecovery.max_age is '1h', a str."),
    ("initial_state", {"tags": {"a"}}, "['tags'] is {'a'}, a set, which JSON does not have."),
]


def shown(given: Any) -> str | None:
    """Texts in the name of a test, and no addresses."""
    return given if isinstance(given, str) else None


def told(words: str) -> str:
    """A pattern for a sentence, in which `.*` stands for what is left out."""
    return ".*".join(map(re.escape, words.split(".*")))


@pytest.mark.parametrize(("name", "value", "words"), WRONG, ids=shown)
def test_a_value_of_another_kind_is_refused_where_the_class_is_written(
    name: str, value: Any, words: str
) -> None:
    with pytest.raises(
        InvalidSettings, match=told(f"Helper.{name}{'' if words[0] in ':.[' else ' '}{words}")
    ):
        type("Helper", (Think,), {name: value})


def test_a_plain_agent_is_checked_too() -> None:
    with pytest.raises(InvalidSettings, match=r"Clock\.retry_options is 3, an int"):
        type("Clock", (Agent,), {"retry_options": 3})
    with pytest.raises(InvalidSettings, match=r"Clock\.on_conect is no hook.*Did you mean 'on_connect'"):
        type("Clock", (Agent,), {"on_conect": lambda self, connection: None})


def test_a_value_that_comes_from_beside_is_refused_with_the_class_that_has_it() -> None:
    beside = type("Beside", (), {"max_steps": "three"})
    with pytest.raises(InvalidSettings, match=r"^Beside\.max_steps is 'three'"):
        type("Helper", (beside, Think), {})
    with pytest.raises(InvalidSettings, match=r"Helper\.max_step is no hook or setting"):
        type("Helper", (type("Mixin", (), {}), Think), {"max_step": 3})


def test_a_method_in_the_place_of_a_value_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"Helper\.max_steps is a method.*@property"):
        type("Helper", (Think,), {"max_steps": lambda self: 3})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_steps", property(lambda self: 3)),
        ("max_steps", functools.cached_property(lambda self: 3)),
        ("send_reasoning", False),
        ("message_concurrency", "latest"),
        ("message_concurrency", Debounce(2)),
        ("chat_recovery", None),
        ("chat_recovery", False),
        ("chat_recovery", {"maxAttempts": 0, "should_keep_recovering": lambda ctx: True}),
        ("chat_recovery", ChatRecovery(max_attempts=2)),
        ("context_overflow", {"reactive": True, "proactive": {"maxInputTokens": 2e5}}),
        ("context_overflow", ContextOverflow(proactive=Proactive(1000))),
        ("media_eviction", {}),
        ("media_eviction", MediaEviction(keep_recent_messages=0)),
        ("shorten_old_messages", Shortening()),
        ("model", None),
        ("model", "anything:at-all"),
        ("model", ScriptedModel()),
        ("capability_prompt", None),
        ("capability_prompt", "You can cook."),
        ("model_timeout", None),
        ("model_timeout", math.inf),
        ("hydration_byte_budget", math.inf),
        ("hydration_byte_budget", -1),
        ("default_timezone", "europe/london"),
        ("default_timezone", None),
        ("retry_options", {"maxAttempts": 5}),
        ("retry_options", None),
        ("fiber_recovery", FiberRecovery(max_age=0)),
        ("fiber_recovery", {"max_age": 60}),
        ("initial_state", None),
        ("initial_state", {"at": (1, 2)}),
        ("initial_state", property(lambda self: {"a": 1})),
    ],
    ids=shown,
)
def test_a_value_that_makes_sense_is_taken(name: str, value: Any) -> None:
    type("Helper", (Think,), {name: value})


# --- settings that are worked out, or changed later


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_steps", "three"),
        ("send_reasoning", "no"),
        ("chat_stream_stall_timeout", "soon"),
        ("model_timeout", "1"),
    ],
)
@pytest.mark.parametrize("how", ["property", "changed"])
async def test_a_value_that_turns_out_to_be_of_another_kind_is_told_by_the_turn(
    open_app: OpenApp, name: str, value: Any, how: str
) -> None:
    model = ScriptedModel(says("Hi."))
    cls = assistant(model, **({name: property(lambda self: value)} if how == "property" else {}))
    if how == "changed":
        setattr(cls, name, value)
    app = await open_app(cls)
    try:
        error = (await app.agent(cls).save_messages("Hi")).error
    except InvalidSettings as raised:
        error = str(raised)
    assert f"Assistant.{name} is {value!r}, a str. It takes" in (error or "")


async def test_a_value_that_code_gives_one_agent_is_refused_where_it_is_assigned(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi."))))
    agent: Any = await live(app.agent(cls))
    with pytest.raises(InvalidSettings, match=r"Assistant\.max_steps is 'three', a str"):
        agent.max_steps = "three"
    with pytest.raises(
        InvalidSettings, match=r"Assistant\.chat_recovery: ChatRecovery has no field 'attempts'"
    ):
        agent.chat_recovery = {"attempts": 3}
    agent.max_steps, agent.chat_recovery, agent.own = 3, {"max_attempts": 3}, "three"
    assert (await app.agent(cls).save_messages("Hi")).text == "Hi."


# --- what hooks return


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("before_turn", {"max_steps": 0}, "TurnConfig.max_steps is 0, an int."),
        (
            "before_turn",
            {"maxSteps": "three"},
            "TurnConfig.max_steps is 'three', a str. It takes a whole number",
        ),
        (
            "before_turn",
            {"temperature": "hot"},
            "TurnConfig.temperature is 'hot', a str. It takes a number, or None.",
        ),
        (
            "before_turn",
            {"stop_when": "done"},
            "TurnConfig.stop_when is 'done', a str. It takes a function of the",
        ),
        ("before_turn", {"stopWhen": 3}, "TurnConfig.stop_when is 3, an int."),
        ("before_turn", {"sendReasoning": "no"}, "TurnConfig.send_reasoning is 'no', a str."),
        (
            "before_turn",
            {"messages": [{"role": "user"}]},
            "TurnConfig.messages is [{'role': 'user'}], a list.",
        ),
        ("before_turn", {"messages": "Hi"}, "TurnConfig.messages is 'Hi', a str."),
        ("before_turn", {"system": 5}, "TurnConfig.system is 5, an int. It takes text, or None."),
        ("before_turn", {"timeout": {"totl": 5}}, "Timeouts has no field 'totl'. Did you mean 'total'?"),
        ("before_turn", {"timeout": {"total": "5"}}, "Timeouts.total is '5', a str."),
        ("before_turn", {"timeout": "5"}, "TurnConfig.timeout is '5', a str."),
        (
            "before_turn",
            {"stop_sequences": "END"},
            "TurnConfig.stop_sequences is 'END', a str. It takes a list",
        ),
        (
            "before_turn",
            {"headers": {"x": 1}},
            "TurnConfig.headers is {'x': 1}, a dict. It takes a dict of texts",
        ),
        ("before_turn", {"output": "json"}, "TurnConfig.output is 'json', a str."),
        ("before_turn", {"repair_tool_call": True}, "TurnConfig.repair_tool_call is True, a bool."),
        ("before_turn", {"max_retries": -1}, "TurnConfig.max_retries is -1, an int."),
        ("before_turn", {"model": 7}, "TurnConfig.model is 7, an int."),
        ("before_step", {"activeTools": "look"}, "StepConfig.active_tools is 'look', a str."),
        ("before_step", {"system": ["x"]}, "StepConfig.system is ['x'], a list."),
        ("before_step", {"messages": [5]}, "StepConfig.messages is [5], a list."),
        ("before_step", {"provider_options": "x"}, "StepConfig.provider_options is 'x', a str."),
    ],
)
async def test_a_dict_with_a_value_of_another_kind_is_refused_with_the_hook(
    open_app: OpenApp, hook: str, answer: Any, words: str
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi.")), **{hook: lambda self, ctx: answer}))
    try:
        error = (await app.agent(cls).save_messages("Go")).error
    except InvalidSettings as raised:
        error = str(raised)
    assert words in (error or "")
    assert hook in (error or "")


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (TurnConfig, {"max_steps": 0}, "TurnConfig.max_steps is 0"),
        (TurnConfig, {"temperature": "hot"}, "TurnConfig.temperature is 'hot'"),
        (StepConfig, {"system": 5}, "StepConfig.system is 5"),
        (Timeouts, {"total": "5"}, "Timeouts.total is '5'"),
        (RecoveryDecision, {"persist": "no"}, "RecoveryDecision.persist is 'no'"),
        (ChatRecovery, {"on_exhausted": "tell"}, "ChatRecovery.on_exhausted is 'tell'"),
        (ChatRecovery, {"terminal_message": None}, "ChatRecovery.terminal_message is None"),
        (ContextOverflow, {"proactive": 1000}, "ContextOverflow.proactive is 1000"),
        (Proactive, {"max_input_tokens": "many"}, "Proactive.max_input_tokens is 'many'"),
        (MediaEviction, {"externalize_to_workspace": "no"}, "MediaEviction.externalize_to_workspace is 'no'"),
        (Shortening, {"max_text_chars": "long"}, "Shortening.max_text_chars is 'long'"),
        (FiberRecovery, {"scan_deadline": "10s"}, "FiberRecovery.scan_deadline is '10s'"),
        (ScheduledTask, {"schedule": 60}, "ScheduledTask.schedule is 60"),
        (ScheduledTask, {"schedule": "every hour", "handler": 5}, "ScheduledTask.handler is 5"),
        (ScheduledTask, {"schedule": "every hour", "prompt": ""}, "prompt is '', a str. It takes text with"),
        (TurnConfig, {"output": Answer(a=1)}, "TurnConfig.output is Answer(a=1), an Answer."),
        (TurnConfig, {"output": Plain(1)}, "TurnConfig.output is Plain(a=1), a Plain."),
        (Block, {"reason": 5}, "Block.reason is 5"),
        (Retry, {"max_attempts": "three"}, "retry.max_attempts must be >= 1 (it is 'three')"),
    ],
)
def test_a_constructor_refuses_a_value_of_another_kind(kind: Any, fields: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        kind(**fields)


async def test_what_hooks_return_in_other_forms_is_taken(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), says("Done."))

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    config = {
        "stop_when": (has_tool_call("never"),),
        "active_tools": {"look"},
        "messages": (UserMessage([TextPart("Go")]),),
        "timeout": {"total": 60},
        "temperature": 1,
        "headers": {"x": "y"},
        "output": None,
        "max_steps": None,
    }
    cls = assistant(model, get_tools=lambda self: [look], before_turn=lambda self: config)
    assert (await (await open_app(cls)).agent(cls).save_messages("Go")).text == "Done."


@pytest.mark.parametrize("answer", [{}, {"blocks": []}, "x", False, 5])
async def test_what_configure_session_returns_is_a_session_or_nothing(open_app: OpenApp, answer: Any) -> None:
    app = await open_app(cls := assistant(ScriptedModel(), configure_session=lambda self, session: answer))
    with pytest.raises(InvalidSettings, match=re.escape(f"configure_session returned {answer!r}, a")):
        await app.agent(cls).save_messages("Hi")


# --- names


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("models", ["demo"], "Did you mean 'model'?"),
        ("llm", "demo", "Did you mean 'model'?"),
        ("prompt", "Be brief.", "Did you mean 'system_prompt'?"),
        ("system", "Be brief.", "Did you mean 'system_prompt'?"),
        ("instruction", "Be brief.", "Did you mean 'system_prompt'?"),
        ("timeout", 30, "Did you mean 'model_timeout'?"),
        ("tools", [], "Did you mean 'get_tools'?"),
        ("max_step", 3, "Did you mean 'max_steps'?"),
        ("max_turns", 3, "Did you mean 'max_steps'?"),
        ("timezone", "Europe/London", "Did you mean 'default_timezone'?"),
        ("temperature", 0.2, "return TurnConfig(temperature=…) from before_turn()"),
        ("temperature", "hot", "return TurnConfig(temperature=…) from before_turn()"),
        ("maxOutputTokens", 100, "return TurnConfig(max_output_tokens=…) from before_turn()"),
        ("stop_when", "done", "return TurnConfig(stop_when=…) from before_turn()"),
        ("stop_when", has_tool_call("done"), "return TurnConfig(stop_when=…) from before_turn()"),
        ("tool_choice", "required", "return TurnConfig(tool_choice=…) from before_turn()"),
        ("SYSTEM_PROMPT", "Be brief.", "Did you mean 'system_prompt'?"),
        ("before_trun", lambda self: None, "Did you mean 'before_turn'?"),
        ("beforeturn", lambda self: None, "Did you mean 'before_turn'?"),
        ("after_turn", lambda self: None, "Did you mean 'on_chat_response'?"),
        ("on_tool_call", lambda self: None, "Did you mean 'before_tool_call'?"),
        ("on_startup", lambda self: None, "Did you mean 'on_start'?"),
        ("on_state_update", lambda self: None, "Did you mean 'on_state_changed'?"),
        ("get_prompt", lambda self: "x", "Did you mean 'get_system_prompt'?"),
        ("get_modle", lambda self: "x", "Did you mean 'get_model'?"),
        ("tools", lambda self: [], "Did you mean 'get_tools'?"),
        ("output", dict, "return TurnConfig(output=…) from before_turn()"),
        ("get_tool", lambda self: [], "Did you mean 'get_tools'?"),
        ("on_started", lambda self: None, "Did you mean 'on_start'?"),
        ("validate_state", lambda self, state: None, "Did you mean 'validate_state_change'?"),
        ("on_fiber_recovery", lambda self, ctx: None, "Did you mean 'on_fiber_recovered'?"),
        ("on_recovery", lambda self, ctx: None, "Did you mean 'on_chat_recovery'?"),
        ("on_submission", lambda self, one: None, "Did you mean 'on_submission_status'?"),
        ("on_turn_start", lambda self: None, "Did you mean 'before_turn'?"),
        ("on_turn_end", lambda self: None, "Did you mean 'on_chat_response'?"),
        ("on_finish", lambda self: None, "Did you mean 'on_chat_response'?"),
        ("before_tools", lambda self, call: None, "Did you mean 'before_tool_call'?"),
        ("before_model_call", lambda self, step: None, "Did you mean 'before_step'?"),
        ("authenticate", lambda self, request: "ada", "It is an option of the app: App(authenticate=…)."),
        ("authorize", lambda self, *given: True, "It is an option of the app: App(authorize=…)."),
        ("temprature", 0.2, "return TurnConfig(temperature=…) from before_turn()"),
        ("max_tokens", 100, "return TurnConfig(max_output_tokens=…) from before_turn()"),
        ("init_state", {}, "Did you mean 'initial_state'?"),
        ("recovery", True, "Did you mean 'chat_recovery'?"),
        ("concurrency", "latest", "Did you mean 'message_concurrency'?"),
        ("retries", 3, "Did you mean 'retry_options'?"),
    ],
)
def test_a_word_of_others_for_a_setting_is_told_where_the_class_is_written(
    name: str, value: Any, words: str
) -> None:
    with pytest.raises(InvalidSettings, match=rf"Helper\.{name} is no hook or setting of Think\.") as no:
        type("Helper", (Think,), {name: value})
    assert words in str(no.value)


def test_what_a_class_reads_itself_is_its_own() -> None:
    class Helper(Think):
        models = {"fast": "demo"}  # noqa: RUF012
        prompt = "You are {name}."
        timeout = 30
        tools: Any = ()
        temperature = 0.2
        timezone = "Europe/London"
        seed = 7
        retries = 3
        max_tokens = 100

        def authenticate(self) -> bool:
            return self.retries > self.max_tokens

        def on_finish(self) -> bool:
            return self.authenticate()

        def get_model(self) -> str:
            return self.models["fast"]

        @property
        def system_prompt(self) -> str:  # type: ignore[override]
            return self.prompt.format(name=self.name)

        def get_tools(self) -> Any:
            return list(self.tools)

        async def before_turn(self, turn: Any) -> TurnConfig:
            def settings() -> Any:
                return {"temperature": self.temperature}

            return TurnConfig(**settings())

        @tool
        async def look(self) -> str:
            """Look."""
            return str(self.timeout)

        @functools.cached_property
        def zone(self) -> str:
            return self.timezone

        @exposed
        def dice(self) -> int:
            return self.seed + self.on_finish()

    class Next(Helper):
        timeout = 60

    assert Next.timeout == 60


def test_methods_of_one_s_own_may_have_the_names_of_values() -> None:
    class Helper(Think):
        def output(self) -> str:
            return "x"

        def headers(self) -> Any:
            return {}

        def timeout(self) -> None: ...

        async def after_turn(self, payload: Any) -> None:
            self.on_response()

        def on_response(self) -> None: ...

        async def on_chat_response(self, response: Any) -> None:
            await self.schedule(60, "after_turn")

        @exposed
        def tools(self) -> Any:
            return []

        @tool
        def temperature(self, place: str) -> str:
            """How warm it is."""
            return place

    assert Helper
