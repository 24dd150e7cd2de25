"""The examples of the package's README, as literally as Python allows."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everthink import App, Think, skills, tool
from everthink.hooks import has_tool_call
from everthink.memory import ObjectStoreProvider
from everthink.models.port import TextPart, UserMessage
from everthink.testing import ManualClock, ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.hooks import offered, results, script
from tests.support.server import open_app as app_in
from tests.support.server import served

from .test_lifecycle_hooks import Caching

pytestmark = pytest.mark.anyio

console = logging.getLogger("console")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "console")
    return caplog


@pytest.mark.example("readme", 1)
async def test_an_agent_is_a_model_and_a_prompt(tmp_path: Path) -> None:
    model = ScriptedModel(says("Hello, ", "I write code."))

    class MyAgent(Think):
        def get_model(self):
            return model

        def get_system_prompt(self):
            return "You are a helpful coding assistant."

    async with served(app_in(tmp_path, MyAgent)) as server:
        tab = await server.connect(MyAgent)
        await tab.until_done(await tab.say("Hi"))
        await tab.until_text("Hello, I write code.")
        stored = await server.http("/agents/my-agent/room/get-messages")
    assert [message["role"] for message in stored.json] == ["user", "assistant"]
    assert (model.last_request.system or "").startswith("You are a helpful coding assistant.")


@pytest.mark.example("readme", 2)
async def test_agents_are_found_in_a_directory(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "assistant.py").write_text(
        "from everthink import Think\n\n\nclass Assistant(Think):\n    model = 'demo'\n"
    )

    app = App.discover(agents, store=":memory:")

    async with served(app) as server:
        tab = await server.connect("/agents/assistant/room")
        await tab.until_done(await tab.say("Hello"))
        assert tab.messages[-1].role == "assistant"


# --- scheduled tasks

MONDAY = round(datetime(2026, 1, 5, 7, 30, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.example("readme", 15)
async def test_two_prompts_and_a_handler_run_at_their_times(open_app: OpenApp) -> None:
    created: list[dict[str, Any]] = []

    class Workflow:
        async def create(self, run: dict[str, Any]) -> None:
            created.append(run)
            if len(created) == 1:
                raise ConnectionResetError("The first attempt fails.")

    class Assistant(Think):
        model = ScriptedModel(says("Started."), says("Ten commits."))
        env = SimpleNamespace(DIGEST_WORKFLOW=Workflow())

        def get_default_timezone(self):
            return "Europe/London"

        def get_scheduled_tasks(self):
            async def handler(ctx):
                await self.env.DIGEST_WORKFLOW.create(
                    {
                        "id": ctx.idempotency_key,
                        "params": {
                            "scheduled_for": ctx.scheduled_for,
                            "schedule_kind": ctx.schedule_kind,
                            "timezone": ctx.timezone,
                        },
                    }
                )

            return {
                "weeklyCommitReport": {
                    "schedule": "every week on monday at 09:00",
                    "prompt": "Compile all my GitHub commits for the last week and write a concise summary.",
                },
                "workout": {
                    "schedule": "every day at 08:00 in Europe/London",
                    "prompt": "Start my workout.",
                },
                "customerDigest": {
                    "schedule": "every day at 09:00",
                    "timezone": "America/New_York",
                    "metadata": {"workflow_name": "customer-digest"},
                    "retry": {"max_attempts": 3},
                    "handler": handler,
                },
            }

    clock = ManualClock(MONDAY)
    app = await open_app(Assistant, clock=clock)
    agent = app.agent(Assistant)
    due = {one.payload["taskId"]: one.time for one in await agent.list_schedules()}
    assert {name: time.strftime("%d %H:%M") for name, time in due.items()} == {
        "workout": "05 08:00",
        "weeklyCommitReport": "05 09:00",
        "customerDigest": "05 14:00",
    }

    for hours in (0.5, 1):
        await clock.advance(hours * 3600)
        await (await app.open()).waker.idle()
        await agent.wait_until_stable()
    assert [message.text for message in await agent.get_messages()] == [
        "Start my workout.",
        "Started.",
        "Compile all my GitHub commits for the last week and write a concise summary.",
        "Ten commits.",
    ]

    await clock.advance(5 * 3600)
    while len(created) < 2:  # a moment between two attempts
        await clock.advance(0.05)
    await (await app.open()).waker.idle()
    first, second = created
    assert first == second
    assert first["params"] == {
        "scheduled_for": datetime(2026, 1, 5, 14, 0, tzinfo=UTC),
        "schedule_kind": "wall-clock",
        "timezone": "America/New_York",
    }


# --- hooks


@pytest.mark.example("readme", 16)
async def test_four_hooks_around_one_tool(open_app: OpenApp, logged: pytest.LogCaptureFixture) -> None:
    limits: list[int | None] = []
    model = Caching(calls("search", query="tides", limit=1000), says("Twice a day."))

    class MyAgent(Think):
        def get_model(self):
            return model

        @tool
        def search(self, query: str, limit: int | None = None) -> list[str]:
            """Search."""
            limits.append(limit)
            return [query]

        @tool
        def other(self) -> str:
            """Something else."""
            return ""

        def before_step(self, ctx):
            if ctx.step_number == 0:
                return {
                    "active_tools": ["search"],
                    "tool_choice": {"type": "tool", "toolName": "search"},
                }

        def before_tool_call(self, ctx):
            if ctx.tool_name == "search":
                return {
                    "action": "allow",
                    "input": {**ctx.input, "limit": min(ctx.input.get("limit") or 10, 50)},
                }

        def after_tool_call(self, ctx):
            if ctx.success:
                console.info(f"{ctx.tool_name} ok in {ctx.duration * 1000:.0f}ms {ctx.output}")
            else:
                console.error(f"{ctx.tool_name} failed: {ctx.error}")

        def on_step_finish(self, ctx):
            anthropic = (ctx.provider_metadata or {}).get("anthropic")
            console.info("cache read: %s", (anthropic or {}).get("cacheReadInputTokens", 0))

    app = await open_app(MyAgent)
    assert (await app.agent(MyAgent).save_messages("Tides?")).text == "Twice a day."
    assert limits == [50]
    assert (offered(model.requests[0]), model.requests[0].tool_choice) == (["search"], "tool:search")
    assert {"other", "search", "read", "write"} <= set(offered(model.requests[1]))
    assert model.requests[1].tool_choice == "auto"
    ok, *_ = [line for line in logged.messages if line.startswith("search ok in ")]
    assert ok.endswith("ms ['tides']")
    assert logged.messages.count("cache read: 7") == 2


@pytest.mark.example("readme", 19)
async def test_every_field_of_a_turn_config_may_be_written_in_a_dict(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("finalAnswer"), says("Never said."))

    @tool(name="finalAnswer")
    def final_answer() -> str:
        """Answer."""
        return "42"

    class MyAgent(Think):
        model = ScriptedModel()

        @tool
        def search(self, query: str) -> str:
            """Search."""
            return ""

        def before_turn(self, ctx):
            return {
                "model": model,
                "system": "Be brief.",
                "messages": [UserMessage([TextPart("What is it?")])],
                "tools": [final_answer],
                "active_tools": ["finalAnswer"],
                "tool_choice": {"type": "tool", "toolName": "finalAnswer"},
                "max_steps": 4,
                "stop_when": has_tool_call("finalAnswer"),
                "send_reasoning": False,
                "max_output_tokens": 100,
                "temperature": 0.5,
                "top_p": 0.9,
                "top_k": 40,
                "presence_penalty": 0.1,
                "frequency_penalty": 0.2,
                "stop_sequences": ["END"],
                "seed": 7,
                "max_retries": 0,
                "timeout": {"total": 60, "chunk": 20},
                "headers": {"x-tenant": "a"},
                "provider_options": {"anthropic": {"thinking": {"type": "adaptive"}}},
                "experimental_telemetry": {"is_enabled": False},
            }

    app = await open_app(MyAgent)
    result = await app.agent(MyAgent).save_messages("Hi")
    assert result.message.tool_parts[0]["output"] == "42"
    assert (model.asked, MyAgent.model.asked) == (1, 0)
    request = model.last_request
    assert (request.system, script(request)) == ("Be brief.", [("user", "What is it?")])
    assert (offered(request), request.tool_choice) == (["finalAnswer"], "tool:finalAnswer")
    settings = request.settings
    assert (settings.max_output_tokens, settings.temperature, settings.top_p, settings.top_k) == (
        100,
        0.5,
        0.9,
        40,
    )
    assert (settings.presence_penalty, settings.frequency_penalty) == (0.1, 0.2)
    assert (settings.stop_sequences, settings.seed) == (["END"], 7)
    assert settings.headers == {"x-tenant": "a"}
    assert settings.provider_options == {"anthropic": {"thinking": {"type": "adaptive"}}}


# --- the session


@pytest.mark.example("readme", 20)
async def test_a_memory_that_the_model_writes_is_in_the_prompt_after_a_restart(open_app: OpenApp) -> None:
    model = ScriptedModel(
        calls("set_context", label="memory", content="Ada likes tea."), says("Noted."), says("Tea.")
    )

    class MyAgent(Think):
        def get_model(self):
            return model

        def configure_session(self, session):
            return session.with_context(
                "memory", {"description": "Learned facts", "max_tokens": 2000}
            ).with_cached_prompt()

    app = await open_app(MyAgent)
    agent = await live(app.agent(MyAgent))
    await agent.save_messages("I am Ada and I like tea.")
    await agent.session.refresh_system_prompt()
    await app.evict(MyAgent, "default")
    await app.agent(MyAgent).save_messages("What do I like?")
    system = model.last_request.system or ""
    assert "Learned facts" in system
    assert "Ada likes tea." in system


@pytest.mark.example("readme", 21)
async def test_a_block_is_added_and_removed_while_the_agent_runs(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("One."), says("Two."))

        def configure_session(self, session):
            return session.with_context("soul", {"provider": "Be kind."})

    app = await open_app(MyAgent)
    agent = await live(app.agent(MyAgent))
    session = agent.session

    await session.add_context("notes", {"description": "User notes"})
    await session.refresh_system_prompt()
    await agent.save_messages("Hi")
    assert "User notes" in (MyAgent.model.last_request.system or "")

    session.remove_context("notes")
    await session.refresh_system_prompt()
    await agent.save_messages("Hi")
    assert "User notes" not in (MyAgent.model.last_request.system or "")


@pytest.mark.example("readme", 22)
async def test_documents_of_a_bucket_are_loaded_by_the_model(open_app: OpenApp) -> None:
    obstore = pytest.importorskip("obstore")
    from obstore.store import MemoryStore

    bucket = MemoryStore()
    obstore.put(bucket, "skills/pirate", b"Say arr.", attributes={"description": "Speak like a pirate"})

    class MyAgent(Think):
        model = ScriptedModel(calls("load_context", label="skills", key="pirate"), says("Arr."))
        env = SimpleNamespace(SKILLS_BUCKET=bucket)

        def configure_session(self, session):
            return session.with_context(
                "skills", {"provider": ObjectStoreProvider(self.env.SKILLS_BUCKET, prefix="skills/")}
            ).with_cached_prompt()

    app = await open_app(MyAgent)
    await app.agent(MyAgent).save_messages("Speak like a pirate.")
    assert "pirate: Speak like a pirate" in (MyAgent.model.requests[0].system or "")
    [loaded] = results(MyAgent.model.last_request)
    assert "Say arr." in str(loaded.output)


# --- skills; for their scripts see test_skill_scripts.py


def release_notes(folder: Path, *, files: bool = True) -> Path:
    """A folder of skills as the document has it."""
    skill = folder / "release-notes"
    (skill / "references").mkdir(parents=True)
    (skill / "scripts").mkdir()
    (skill / "SKILL.md").write_text(
        "---\nname: release-notes\ndescription: Write release notes.\n---\nBe brief.\n"
    )
    if files:
        (skill / "references" / "style-guide.md").write_text("Use the present tense.\n")
        (skill / "scripts" / "format-release-notes.ts").write_text("export default async function run() {}\n")
        (skill / "logo.png").write_bytes(bytes(range(256)))
    return folder


@pytest.mark.slow
@pytest.mark.example("readme", 7)
async def test_skills_come_from_several_sources_and_a_runner_adds_a_tool(
    open_app: OpenApp, tmp_path: Path
) -> None:
    obstore = pytest.importorskip("obstore")
    from obstore.store import MemoryStore

    bucket = MemoryStore()
    theirs = "---\nname: release-notes\ndescription: Not used: the first source has it.\n---\nNo."
    obstore.put(bucket, "skills/release-notes/SKILL.md", theirs.encode())
    obstore.put(bucket, "skills/pirate/SKILL.md", b"---\nname: pirate\ndescription: Say arr.\n---\nArr.")
    bundled_skills = skills.from_directory(release_notes(tmp_path / "skills"))
    script = tmp_path / "skills/release-notes/scripts/format-release-notes.ts"
    script.write_text("export default (input, ctx: any) => ctx.workspace.readFile('/draft.md')\n")

    class MyAgent(Think):
        model = ScriptedModel(
            calls("activate_skill", name="release-notes"),
            calls("run_skill_script", name="release-notes", path="scripts/format-release-notes.ts", input={}),
            says("Done."),
        )
        env = SimpleNamespace(SKILLS_BUCKET=bucket)

        def get_skills(self):
            return [bundled_skills, skills.object_store(self.env.SKILLS_BUCKET, prefix="skills/")]

        def get_skill_script_runner(self):
            return skills.runner(workspace_instance=self.workspace)

    app = await open_app(MyAgent)
    await (await live(app.agent(MyAgent))).workspace.write_file("/draft.md", "It is faster.")
    await app.agent(MyAgent).save_messages("Write the release notes.")

    first, second, last = MyAgent.model.requests
    system = first.system or ""
    assert "- release-notes: Write release notes.\n- pirate: Say arr." in system
    assert "Be brief." not in system
    assert {"activate_skill", "read_skill_resource", "run_skill_script"} <= {
        tool.name for tool in first.tools
    }
    [activated], [ran] = results(second), results(last)
    assert "Be brief." in str(activated.output)
    assert ran.output == "It is faster."


@pytest.mark.example("readme", 8)
async def test_the_skills_beside_a_file_are_a_source_and_so_is_a_manifest(
    open_app: OpenApp, tmp_path: Path
) -> None:
    release_notes(tmp_path / "src" / "skills")
    bundled_skills = skills.from_directory("skills", beside=str(tmp_path / "src" / "agent.py"))
    made = skills.from_manifest(
        id="made", skills=[{"name": "plain", "description": "Be plain.", "body": "Plainly."}]
    )

    registry = skills.SkillRegistry([bundled_skills, made])  # without an agent
    await registry.load()

    assert [one.name for one in registry.skills] == ["release-notes", "plain"]
    assert "Plainly." in await registry.activate("plain")


@pytest.mark.example("readme", 9)
async def test_each_folder_is_a_skill_with_files_that_another_skill_may_name(tmp_path: Path) -> None:
    registry = skills.SkillRegistry(skills.from_directory(release_notes(tmp_path / "skills")))
    await registry.load()

    [skill] = registry.skills
    loaded = await registry.load_skill(skill.name)
    guide = "references/style-guide.md"
    by_name = await registry.read_resource(guide, "release-notes")
    qualified = await registry.read_resource(f"release-notes/{guide}")
    logo = await registry.read_resource("release-notes/logo.png")

    assert loaded is not None
    assert [(one.path, one.encoding) for one in loaded.resources] == [
        ("logo.png", "base64"),
        (guide, "text"),
        ("scripts/format-release-notes.ts", "text"),
    ]
    assert "Use the present tense." in by_name
    assert by_name == qualified
    assert 'encoding="base64"' in logo


# --- streaming to a callback; the child agent comes with agents that have agents


@pytest.mark.example("readme", 24)
async def test_a_callback_is_told_the_start_each_event_and_the_end(open_app: OpenApp) -> None:
    told: list[Any] = []

    class Relay:
        def on_start(self, request_id):
            told.append(("start", bool(request_id)))

        async def on_event(self, json):
            told.append("event")

        def on_done(self):
            told.append("done")

        def on_error(self, error):
            told.append(("error", error))

        def on_interrupted(self):
            told.append("interrupted")

    class MyAgent(Think):
        model = ScriptedModel(says("It is ", "a library."), says("Half").then_fails("It broke."))

    relay = Relay()
    app = await open_app(MyAgent)
    agent = app.agent(MyAgent, "thread-1")
    await agent.chat("Summarize the project", relay)
    assert (told[0], set(told[1:-1]), told[-1]) == (("start", True), {"event"}, "done")
    told.clear()
    await agent.chat("And again", relay)
    assert told[-1] == ("error", "It broke.")


# --- configuration


@pytest.mark.example("readme", 25)
async def test_the_model_follows_a_stored_setting(open_app: OpenApp) -> None:
    MODELS = {
        "fast": ScriptedModel(says("Quickly."), name="fast"),
        "capable": ScriptedModel(says("Thoroughly."), name="capable"),
    }

    class MyAgent(Think):
        def get_model(self):
            tier = (self.get_config() or {}).get("model_tier", "fast")
            return MODELS[tier]

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    assert (await agent.save_messages("Hi")).text == "Quickly."
    await agent.configure({"model_tier": "capable", "system_prompt": "Think hard."})
    await app.evict(MyAgent, "default")
    assert (await agent.save_messages("Hi")).text == "Thoroughly."
    assert ((await live(agent)).get_config())["system_prompt"] == "Think hard."
