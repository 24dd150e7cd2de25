"""The examples about lifecycle hooks, as literally as Python allows, each run by a scripted model."""

from __future__ import annotations

import inspect
import json
import logging
import re
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from everthink import Think, tool
from everthink.memory import create_compact_function, default_context_overflow_classifier
from everthink.models.port import Finish, ModelEvent, Request
from everthink.testing import ScriptedModel, calls, cites, fails, overflows, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import offered, results
from tests.support.overflow import talk
from tests.support.server import open_app as app_in
from tests.support.server import served

pytestmark = pytest.mark.anyio

console = logging.getLogger("console")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "console")
    return caplog


class Analytics:
    """A service that takes data points."""

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = []

    def write_data_point(self, point: dict[str, Any]) -> None:
        self.points.append(point)


async def ask(open_app: OpenApp, agent: type[Think], text: str = "Hi") -> Any:
    """One turn of a fresh app's agent."""
    app = await open_app(agent)
    return await app.agent(agent).save_messages(text)


# --- the whole turn


@pytest.mark.example("hooks", 1)
@pytest.mark.example("hooks-earlier", 1)
@pytest.mark.example("hooks-repository", 1)
async def test_the_hooks_of_a_turn_with_two_tool_calls_come_in_the_order_of_the_drawing(
    open_app: OpenApp,
) -> None:
    order: list[str] = []

    class MyAgent(Think):
        model = ScriptedModel(calls("look", at="sea"), calls("look", at="sky"), says("Blue."))

        @tool
        def look(self, at: str) -> str:
            """Look."""
            order.append("tool executes")
            return "blue"

        def configure_session(self, session):
            order.append("configure_session")
            return session

        def before_turn(self):
            order.append("before_turn")

        def before_step(self):
            order.append("before_step")

        def on_chunk(self, ctx):
            if ctx.chunk.type != "tool-result" and order[-1] != "on_chunk":
                order.append("on_chunk")

        def before_tool_call(self):
            order.append("before_tool_call")

        def after_tool_call(self):
            order.append("after_tool_call")

        def on_step_finish(self):
            order.append("on_step_finish")

        def on_chat_response(self):
            order.append("on_chat_response")

    await ask(open_app, MyAgent)
    call = ["before_tool_call", "tool executes", "after_tool_call"]
    assert order == [
        "configure_session",
        "before_turn",
        *["before_step", "on_chunk", *call, "on_step_finish"] * 2,
        *["before_step", "on_chunk", "on_step_finish"],
        "on_chat_response",
    ]


SIGNATURES = {
    "before_turn": ["ctx"],
    "configure_session": ["session"],
    "before_tool_call": ["ctx"],
    "after_tool_call": ["ctx"],
    "on_step_finish": ["ctx"],
    "on_chunk": ["ctx"],
    "on_chat_response": ["result"],
    "on_chat_error": ["error", "ctx"],
    "classify_chat_error": ["error", "ctx"],
}


@pytest.mark.example("hooks", 2)
@pytest.mark.example("hooks", 13)
@pytest.mark.example("hooks", 15)
@pytest.mark.example("hooks-earlier", 2)
@pytest.mark.example("hooks-earlier", 13)
@pytest.mark.example("hooks-repository", 2)
@pytest.mark.example("hooks-repository", 4)
@pytest.mark.example("hooks-repository", 9)
@pytest.mark.example("hooks-repository", 15)
@pytest.mark.example("hooks-repository", 17)
@pytest.mark.example("hooks-repository", 21)
@pytest.mark.example("hooks-repository", 23)
@pytest.mark.example("hooks-repository", 26)
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_every_hook_may_be_plain_or_async_and_is_given_what_its_signature_says(
    open_app: OpenApp, kind: str
) -> None:
    given: dict[str, tuple[Any, ...]] = {}

    def hook(name: str) -> Any:
        def plain(self: Any, *args: Any) -> Any:
            given[name] = args
            return args[0] if name in ("configure_session", "on_chat_error") else None

        async def later(self: Any, *args: Any) -> Any:
            return plain(self, *args)

        return plain if kind == "plain" else later

    model = ScriptedModel(calls("look"), says("Half ").then_fails("It broke."))
    look = tool(lambda: "blue", name="look", description="Look.")
    hooks = {name: hook(name) for name in SIGNATURES}
    agent = assistant(model, get_tools=lambda self: [look], context_overflow={"reactive": True}, **hooks)
    await ask(open_app, agent)

    assert {name: len(args) for name, args in given.items()} == {
        name: len(parameters) for name, parameters in SIGNATURES.items()
    }
    for name, parameters in SIGNATURES.items():
        assert len(inspect.signature(getattr(Think, name)).parameters) == 1 + len(parameters)


# --- configure_session


@pytest.mark.example("hooks-repository", 3)
async def test_the_session_is_configured_with_blocks_compaction_and_a_cached_prompt(
    open_app: OpenApp,
) -> None:
    async def soul() -> str:
        return "You are a helpful coding assistant."

    class MyAgent(Think):
        def get_model(self):
            return model

        def configure_session(self, session):
            return (
                session.with_context("soul", {"provider": {"get": soul}})
                .with_context("memory", {"description": "Learned facts about the user.", "max_tokens": 1100})
                .on_compaction(create_compact_function(summarize=lambda prompt: self.generate_text(prompt)))
                .compact_after(100_000)
                .with_cached_prompt()
            )

    model = ScriptedModel(calls("set_context", label="memory", content="Likes tea."), says("Noted."))
    app = await open_app(MyAgent)
    agent = await live(app.agent(MyAgent))
    await agent.save_messages("I like tea.")

    system = model.requests[0].system or ""
    assert "You are a helpful coding assistant." in system
    assert "Learned facts about the user." in system
    assert agent.session.get_context_block("memory").content == "Likes tea."
    assert agent.session.get_context_block("memory").max_tokens == 1100


# --- before_turn


@pytest.mark.example("hooks", 3)
@pytest.mark.example("hooks-earlier", 3)
@pytest.mark.example("hooks-repository", 5)
@pytest.mark.example("readme", 18)
async def test_a_continuation_is_answered_by_a_cheaper_model(open_app: OpenApp) -> None:
    class MyAgent(Think):
        cheap_model = ScriptedModel(says("And cheap."), name="cheap")

        def get_model(self):
            return ScriptedModel(says("Good."), name="good")

        def before_turn(self, ctx):
            if ctx.continuation:
                return {"model": self.cheap_model}

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    assert (await agent.save_messages("Hi")).text == "Good."
    assert (await agent.continue_last_turn()).text == "And cheap."
    assert MyAgent.cheap_model.asked == 1


@pytest.mark.example("hooks", 4)
@pytest.mark.example("hooks-earlier", 4)
@pytest.mark.example("hooks-repository", 6)
async def test_the_model_is_offered_only_the_tools_that_are_named(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("Done."))

        @tool
        def read(self, path: str) -> str:
            """Read a file."""
            return ""

        @tool
        def write(self, path: str) -> str:
            """Write a file."""
            return ""

        @tool
        def delete(self, path: str) -> str:
            """Delete a file."""
            return ""

        @tool
        def get_weather(self, city: str) -> str:
            """The weather."""
            return ""

        def before_turn(self, ctx):
            assert {"read", "write", "delete", "get_weather"} <= set(ctx.tools)
            return {"active_tools": ["read", "write", "get_weather"]}

    await ask(open_app, MyAgent)
    assert sorted(offered(MyAgent.model.last_request)) == ["get_weather", "read", "write"]


@pytest.mark.example("hooks", 5)
@pytest.mark.example("hooks-earlier", 5)
@pytest.mark.example("hooks-repository", 7)
async def test_what_the_page_sends_beside_the_message_is_added_to_the_prompt(tmp_path: Path) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("A test."), says("Nothing."))

        def before_turn(self, ctx):
            if (ctx.body or {}).get("selectedFile"):
                return {"system": ctx.system + f"\n\nUser is editing: {ctx.body['selectedFile']}"}

    async with served(app_in(tmp_path, MyAgent)) as server:
        tab = await server.connect(MyAgent)
        await tab.until_done(await tab.say("What is this?", selectedFile="test_sea.py"))
        await tab.until_done(await tab.say("And now?"))
    first, second = MyAgent.model.requests
    assert (first.system or "").endswith("\n\nUser is editing: test_sea.py")
    assert "User is editing" not in (second.system or "")


@pytest.mark.example("hooks", 6)
@pytest.mark.example("hooks-earlier", 6)
async def test_the_reasoning_of_a_continuation_is_hidden(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(thinks("First.").says("One."), thinks("Second.").says("Two."))

        def before_turn(self, ctx):
            if ctx.continuation:
                return {"send_reasoning": False}

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    shown = [chunk.type async for chunk in agent.chat("Hi")]
    hidden = [chunk.type async for chunk in agent.continue_last_turn()]
    assert "reasoning-delta" in shown
    assert "reasoning-delta" not in hidden
    assert "text-delta" in hidden


@pytest.mark.example("hooks", 7)
@pytest.mark.example("hooks-earlier", 7)
async def test_the_page_may_ask_for_a_structured_answer(tmp_path: Path) -> None:
    outputs: list[Any] = []

    class ResultSchema(BaseModel):
        severity: Literal["low", "high"]

    class MyAgent(Think):
        model = ScriptedModel(says('{"severity": "high"}'))

        @tool
        def search(self, query: str) -> str:
            """Search."""
            return ""

        def before_turn(self, ctx):
            if (ctx.body or {}).get("mode") == "structured-answer":
                return {"output": ResultSchema, "active_tools": []}

        def on_chat_response(self, result):
            outputs.append(result.output)

    async with served(app_in(tmp_path, MyAgent)) as server:
        tab = await server.connect(MyAgent)
        await tab.until_done(await tab.say("The site is down!", mode="structured-answer"))
        await tab.settled()
    assert outputs == [ResultSchema(severity="high")]
    assert offered(MyAgent.model.last_request) == []
    assert MyAgent.model.last_request.output is not None


@pytest.mark.example("hooks-repository", 8)
@pytest.mark.parametrize(("before", "steps"), [(100, 3), (2, 5)])
async def test_a_long_conversation_gets_fewer_steps(open_app: OpenApp, before: int, steps: int) -> None:
    class MyAgent(Think):
        model = ScriptedModel(*[calls("look")] * 4, says("Enough."))

        @tool
        def look(self) -> str:
            """Look."""
            return "blue"

        def before_turn(self, ctx):
            if len(ctx.messages) > 100:
                return {"max_steps": 3}

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    await agent.add_messages(talk(*["Hm."] * before))
    await agent.save_messages("Look again and again.")
    assert MyAgent.model.asked == steps


# --- before_step


@pytest.mark.example("hooks", 8)
@pytest.mark.example("hooks-earlier", 8)
async def test_tools_are_offered_in_the_first_step_alone(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(calls("look"), says("Blue."))

        @tool
        def look(self) -> str:
            """Look."""
            return "blue"

        def before_step(self, ctx):
            if ctx.step_number > 0:
                return {"active_tools": []}

    await ask(open_app, MyAgent)
    [first, second] = [offered(request) for request in MyAgent.model.requests]
    assert "look" in first
    assert second == []


# --- before_tool_call


class Tools(Think):
    """The tools that the examples speak of; each remembers what it did."""

    ran: list[Any]

    @tool
    def delete(self, path: str) -> str:
        """Delete a file."""
        self.ran.append(("delete", path))
        return "deleted"

    @tool
    def weather(self, city: str) -> str:
        """The weather."""
        self.ran.append(("weather", city))
        return "rain"

    @tool
    def search(self, query: str, limit: int | None = None) -> list[str]:
        """Search."""
        self.ran.append(("search", query, limit))
        return [query] * 2


@pytest.mark.example("hooks", 9)
@pytest.mark.example("hooks-earlier", 9)
@pytest.mark.example("hooks-repository", 12)
async def test_a_tool_is_blocked_and_another_answered_from_a_cache(open_app: OpenApp) -> None:
    class MyAgent(Tools):
        model = ScriptedModel(
            calls("delete", path="a.txt").calls("weather", city="Oslo").calls("weather", city="Rome"),
            says("So."),
        )
        is_read_only_mode = True
        weather_cache = {json.dumps({"city": "Oslo"}): "sun, as an hour ago"}
        ran = []

        def before_tool_call(self, ctx):
            if ctx.tool_name == "delete" and self.is_read_only_mode:
                return {"action": "block", "reason": "delete is disabled in read-only mode"}

            if ctx.tool_name == "weather":
                cached = self.weather_cache.get(json.dumps(ctx.input))
                if cached:
                    return {"action": "substitute", "output": cached}

    await ask(open_app, MyAgent)
    assert MyAgent.ran == [("weather", "Rome")]
    assert [result.output for result in results(MyAgent.model.last_request)] == [
        "delete is disabled in read-only mode",
        "sun, as an hour ago",
        "rain",
    ]


@pytest.mark.example("hooks-repository", 10)
async def test_a_hook_reads_the_input_of_the_tool_it_knows(open_app: OpenApp) -> None:
    queries: list[str] = []

    class MyAgent(Tools):
        model = ScriptedModel(calls("search", query="tides"), says("So."))
        ran = []

        def before_tool_call(self, ctx):
            if ctx.tool_name == "search":
                queries.append(ctx.input["query"])

    await ask(open_app, MyAgent)
    assert queries == ["tides"]


@pytest.mark.example("hooks-repository", 11)
async def test_every_call_is_logged(open_app: OpenApp, logged: pytest.LogCaptureFixture) -> None:
    class MyAgent(Tools):
        model = ScriptedModel(calls("weather", city="Oslo"), says("So."))
        ran = []

        def before_tool_call(self, ctx):
            console.info("Tool called: %s %s", ctx.tool_name, ctx.input)

    await ask(open_app, MyAgent)
    assert "Tool called: weather {'city': 'Oslo'}" in logged.messages
    assert MyAgent.ran == [("weather", "Oslo")]


@pytest.mark.example("hooks-repository", 13)
async def test_a_cache_that_must_be_awaited_answers_for_the_tool(open_app: OpenApp) -> None:
    class Cache:
        async def get(self, key: str) -> str | None:
            return {'weather:{"city": "Oslo"}': "sun"}.get(key)

    class MyAgent(Tools):
        model = ScriptedModel(calls("weather", city="Oslo").calls("weather", city="Rome"), says("So."))
        cache = Cache()
        ran = []

        async def before_tool_call(self, ctx):
            if ctx.tool_name == "weather":
                cached = await self.cache.get(f"weather:{json.dumps(ctx.input)}")
                if cached:
                    return {"action": "substitute", "output": cached}

    await ask(open_app, MyAgent)
    assert MyAgent.ran == [("weather", "Rome")]
    assert [result.output for result in results(MyAgent.model.last_request)] == ["sun", "rain"]


@pytest.mark.example("hooks-repository", 14)
async def test_a_limit_is_clamped_before_the_tool_runs(open_app: OpenApp) -> None:
    class MyAgent(Tools):
        model = ScriptedModel(
            calls("search", query="tides", limit=1000), calls("search", query="sea"), says("So.")
        )
        ran = []

        def before_tool_call(self, ctx):
            if ctx.tool_name == "search":
                return {
                    "action": "allow",
                    "input": {**ctx.input, "limit": min(ctx.input.get("limit") or 10, 50)},
                }

    await ask(open_app, MyAgent)
    assert MyAgent.ran == [("search", "tides", 50), ("search", "sea", 10)]


# --- after_tool_call


@pytest.mark.example("hooks", 10)
@pytest.mark.example("hooks-earlier", 10)
async def test_what_tools_gave_is_counted_and_failures_are_not(open_app: OpenApp) -> None:
    class MyAgent(Tools):
        model = ScriptedModel(calls("weather", city="Oslo").calls("search", query="x"), says("So."))
        env = SimpleNamespace(ANALYTICS=Analytics())
        ran = []

        @tool
        def search(self, query: str) -> str:
            """Search."""
            raise RuntimeError("The index is gone.")

        def after_tool_call(self, ctx):
            if not ctx.success:
                return

            self.env.ANALYTICS.write_data_point(
                {"blobs": [ctx.tool_name], "doubles": [len(json.dumps(ctx.output))]}
            )

    await ask(open_app, MyAgent)
    assert MyAgent.env.ANALYTICS.points == [{"blobs": ["weather"], "doubles": [6]}]


@pytest.mark.example("hooks-repository", 16)
async def test_successes_and_failures_are_counted_with_how_long_they_took(open_app: OpenApp) -> None:
    class MyAgent(Tools):
        model = ScriptedModel(calls("weather", city="Oslo"), calls("search", query="x"), says("So."))
        env = SimpleNamespace(ANALYTICS=Analytics())
        ran = []

        @tool
        def search(self, query: str) -> str:
            """Search."""
            raise RuntimeError("The index is gone.")

        def after_tool_call(self, ctx):
            if ctx.success:
                self.env.ANALYTICS.write_data_point(
                    {
                        "blobs": [ctx.tool_name, "ok"],
                        "doubles": [ctx.duration * 1000, len(json.dumps(ctx.output))],
                    }
                )
            else:
                self.env.ANALYTICS.write_data_point(
                    {"blobs": [ctx.tool_name, "error", str(ctx.error)], "doubles": [ctx.duration * 1000]}
                )

    await ask(open_app, MyAgent)
    first, second = MyAgent.env.ANALYTICS.points
    assert (first["blobs"], first["doubles"][1]) == (["weather", "ok"], 6)
    assert second["blobs"] == ["search", "error", "The index is gone."]
    assert first["doubles"][0] >= 0
    assert second["doubles"][0] >= 0


# --- on_step_finish


@pytest.mark.example("hooks", 11)
@pytest.mark.example("hooks-earlier", 11)
async def test_a_step_is_logged_with_its_tokens(open_app: OpenApp, logged: pytest.LogCaptureFixture) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("Hello.").uses(12, 3))

        def on_step_finish(self, ctx):
            console.info(
                f"Step {ctx.step_number} ({ctx.finish_reason}): "
                f"{ctx.usage.input_tokens}in/{ctx.usage.output_tokens}out"
            )

    await ask(open_app, MyAgent)
    assert "Step 0 (stop): 12in/3out" in logged.messages


@pytest.mark.example("hooks-repository", 18)
async def test_a_step_is_logged_with_its_cached_tokens(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("Hello.").uses(12, 3, cached_input_tokens=8), says("Bye.").uses(20, 2))

        def on_step_finish(self, ctx):
            console.info(
                f"Step {ctx.step_number} ({ctx.finish_reason}): "
                f"{ctx.usage.input_tokens}in/{ctx.usage.output_tokens}out, "
                f"{ctx.usage.cached_input_tokens or 0} cached"
            )

    app = await open_app(MyAgent)
    await app.agent(MyAgent).save_messages("Hi")
    await app.agent(MyAgent).save_messages("Bye")
    assert [line for line in logged.messages if line.startswith("Step")] == [
        "Step 0 (stop): 12in/3out, 8 cached",
        "Step 0 (stop): 20in/2out, 0 cached",
    ]


@pytest.mark.example("hooks-repository", 19)
async def test_reasoning_and_sources_are_kept(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(
            thinks("Tides ", "first.")
            .says("Twice a day.")
            .cites("https://tides.example")
            .then(cites(title="An almanac", media_type="application/pdf"))
        )
        env = SimpleNamespace(LOGS=Analytics())

        def on_step_finish(self, ctx):
            if ctx.reasoning_text:
                self.env.LOGS.write_data_point({"blobs": ["reasoning", ctx.reasoning_text]})
            for source in ctx.sources:
                self.env.LOGS.write_data_point({"blobs": ["source", source.url or ""]})

    await ask(open_app, MyAgent)
    assert [point["blobs"] for point in MyAgent.env.LOGS.points] == [
        ["reasoning", "Tides first."],
        ["source", "https://tides.example"],
        ["source", ""],
    ]


class Caching(ScriptedModel):
    """A provider that tells about its cache."""

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        async for event in super().stream(request):
            if isinstance(event, Finish):
                event.provider_metadata = {
                    "anthropic": {"cacheCreationInputTokens": 30, "cacheReadInputTokens": 7}
                }
            yield event


@pytest.mark.example("hooks-repository", 20)
async def test_the_cache_numbers_of_a_provider_are_read(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    class MyAgent(Think):
        def get_model(self):
            return Caching(says("Hello."))

        def on_step_finish(self, ctx):
            anthropic = (ctx.provider_metadata or {}).get("anthropic")
            if anthropic:
                console.info(
                    f"cache: {anthropic.get('cacheCreationInputTokens', 0)} created, "
                    f"{anthropic.get('cacheReadInputTokens', 0)} read"
                )

    await ask(open_app, MyAgent)
    assert "cache: 30 created, 7 read" in logged.messages


# --- on_chunk


@pytest.mark.example("hooks-repository", 22)
async def test_text_is_counted_and_reasoning_and_calls_are_logged_as_they_stream(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    class MyAgent(Tools):
        model = ScriptedModel(thinks("Hm.").calls("weather", city="Oslo"), says("It rains", " in Oslo."))
        tokens_streamed = 0
        ran = []

        def on_chunk(self, ctx):
            match ctx.chunk.type:
                case "text-delta":
                    self.tokens_streamed += len(ctx.chunk.text)
                case "reasoning-delta":
                    console.info("[reasoning] %s", ctx.chunk.text)
                case "tool-call":
                    console.info("[tool] %s %s", ctx.chunk.tool_name, ctx.chunk.input)

    app = await open_app(MyAgent)
    agent = await live(app.agent(MyAgent))
    await agent.save_messages("Oslo?")
    assert agent.tokens_streamed == len("It rains in Oslo.")
    assert logged.messages[:2] == ["[reasoning] Hm.", "[tool] weather {'city': 'Oslo'}"]


# --- on_chat_response


@pytest.mark.example("hooks", 12)
@pytest.mark.example("hooks-earlier", 12)
@pytest.mark.example("hooks-repository", 24)
async def test_a_completed_turn_is_logged(open_app: OpenApp, logged: pytest.LogCaptureFixture) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("Hello."), says("Half").then_fails("It broke."))

        def on_chat_response(self, result):
            if result.status == "completed":
                console.info(f"Turn {result.request_id}: {len(result.message.parts)} parts")

    app = await open_app(MyAgent)
    done = await app.agent(MyAgent).save_messages("Hi")
    await app.agent(MyAgent).save_messages("Again")
    told = [line for line in logged.messages if line.startswith("Turn ")]
    assert told == [f"Turn {done.request_id}: 2 parts"]


@pytest.mark.example("hooks-repository", 25)
async def test_a_follow_up_turn_is_started_from_the_hook(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("I found three things."), says("In short: three."))

        def should_follow_up(self, message):
            return "found" in message.text

        async def on_chat_response(self, result):
            if result.status == "completed" and self.should_follow_up(result.message):
                await self.save_messages(
                    [
                        {
                            "id": str(uuid.uuid4()),
                            "role": "user",
                            "parts": [{"type": "text", "text": "Now summarize what you found."}],
                        }
                    ]
                )

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    await agent.save_messages("Look around.")
    assert [message.text for message in await agent.get_messages()] == [
        "Look around.",
        "I found three things.",
        "Now summarize what you found.",
        "In short: three.",
    ]


# --- errors


@pytest.mark.example("hooks", 14)
async def test_people_read_other_words_and_others_again_when_the_conversation_is_too_long(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("Half").then_fails("upstream 10.0.0.7"), overflows())

        def on_chat_error(self, error, ctx=None):
            console.error("Chat turn failed: %s %s", ctx.stage if ctx else None, error)
            if ctx and ctx.classification == "context_overflow":
                return Exception("This conversation is too long to continue. Please start a new one.")
            return Exception("Something went wrong. Please try again.")

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    failed = await agent.save_messages("Hi")
    assert (failed.status, failed.text) == ("error", "Half")
    assert failed.error == "Something went wrong. Please try again."
    assert "Chat turn failed: stream upstream 10.0.0.7" in logged.text
    too_long = await agent.save_messages("Again")
    assert too_long.error == "This conversation is too long to continue. Please start a new one."


@pytest.mark.example("hooks-earlier", 14)
async def test_where_it_failed_is_logged_and_people_read_other_words(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    class MyAgent(Think):
        model = ScriptedModel(fails("No such account", kind="fatal"))

        def on_chat_error(self, error, ctx):
            console.error("Chat turn failed: %s %s", ctx.stage, error)
            return Exception("Something went wrong. Please try again.")

    failed = await ask(open_app, MyAgent)
    assert failed.error == "Something went wrong. Please try again."
    assert "Chat turn failed: stream No such account" in logged.text


@pytest.mark.example("hooks-repository", 27)
async def test_an_error_hook_may_take_the_error_alone(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("Half").then_fails("It broke."))

        def on_chat_error(self, error):
            console.error("Chat turn failed: %s", error)
            return Exception("Something went wrong. Please try again.")

    failed = await ask(open_app, MyAgent)
    assert failed.error == "Something went wrong. Please try again."
    assert "Chat turn failed: It broke." in logged.text


async def classified(open_app: OpenApp, agent: type[Think]) -> list[str | None]:
    """What `on_chat_error` was told about each failed turn of the agent's script."""
    told: list[str | None] = []
    agent.on_chat_error = lambda self, error, ctx: told.append(ctx.classification)  # type: ignore[assignment]
    app = await open_app(agent)
    for _ in range(agent.model.remaining):  # type: ignore[union-attr]
        await app.agent(agent).save_messages("Hi")
    return told


@pytest.mark.example("hooks", 16)
async def test_the_bundled_classifier_is_assigned_as_it_is(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(
            says("Half").then_fails("prompt is too long", kind="unknown"), says("Half").then_fails("Gone.")
        )
        classify_chat_error = default_context_overflow_classifier

    assert await classified(open_app, MyAgent) == ["context_overflow", None]


@pytest.mark.example("hooks", 17)
async def test_a_classifier_of_ones_own_asks_the_bundled_one_for_the_rest(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(
            says("Half").then_fails("Rate limit: slow down"),
            says("Half").then_fails("prompt is too long", kind="unknown"),
            says("Half").then_fails("Gone."),
        )

        def classify_chat_error(self, error):
            if isinstance(error, Exception) and re.search(r"rate.?limit", str(error), re.I):
                return "rate_limit"
            return default_context_overflow_classifier(error)

    assert await classified(open_app, MyAgent) == ["rate_limit", "context_overflow", None]
