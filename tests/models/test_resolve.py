"""From what a developer wrote to a model, or to an error that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everthink.errors import InvalidSettings, MissingExtra, MissingKey, UnknownModel
from everthink.models.demo import DemoModel
from everthink.models.providers import model_named, openai_compatible, resolve_model
from everthink.testing.contracts.model import asking, hear, text_of
from everthink.testing.scripted import ScriptedModel, says
from everthink.testing.served import served

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def test_our_own_models_are_taken_as_they_are() -> None:
    model = ScriptedModel()
    assert resolve_model(model) is model


def test_demo_is_the_demo_model() -> None:
    assert isinstance(resolve_model("demo"), DemoModel)


def test_a_name_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    assert resolve_model(" anthropic:claude-sonnet-5 ").name == "anthropic:claude-sonnet-5"


@pytest.mark.anyio
async def test_a_name_is_one_model_on_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert resolve_model("openai:gpt-5") is resolve_model("openai:gpt-5")


def test_a_model_of_pydantic_ai_is_wrapped() -> None:
    from pydantic_ai.models.test import TestModel

    assert resolve_model(TestModel()).name == "test:test"


@pytest.mark.anyio
@pytest.mark.parametrize("api_key", [None, "secret"])
async def test_any_address_that_speaks_like_openai(api_key: str | None) -> None:
    async with served(ScriptedModel(says("Hello."))) as endpoint:
        model = openai_compatible("llama", base_url=f"{endpoint.url}/v1", api_key=api_key)
        assert text_of(await hear(model, asking("Hi"))) == "Hello."
        await model.aclose()
        assert endpoint.headers[0]["authorization"] == f"Bearer {api_key or 'no-key'}"
    assert model.name == "openai-compatible:llama"


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["openai:gpt-5", "openai-chat:gpt-5", "anthropic:claude-sonnet-5"])
async def test_names_follow_the_environment_to_a_served_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(ScriptedModel(says("Hello."))) as endpoint:
        for variable, value in endpoint.environment.items():
            monkeypatch.setenv(variable, value)
        model = model_named(name)
        assert text_of(await hear(model, asking("Hi"))) == "Hello."
        await model.aclose()


def test_ollama_needs_no_setting() -> None:
    assert resolve_model("ollama:qwen3").name == "ollama:qwen3"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("antropic:claude-sonnet-5", "anthropic:claude-sonnet-5"),
        ("opnai:gpt-5", "openai:gpt-5"),
        ("claude-sonnet-5", "anthropic:claude-sonnet-5"),
        ("gpt-5", "openai:gpt-5"),
        ("dmeo", "demo"),
        ("anthropic:claude-sonet-5", "anthropic:claude-sonnet-5"),
        ("openai:gpt-5-minni", "openai:gpt-5-mini"),
    ],
)
def test_a_typing_error_is_answered_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve_model(name)
    assert f"Did you mean {nearest!r}?" in str(caught.value)


def test_a_name_that_looks_wrong_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownModel, match="model_named") as caught:
        resolve_model("anthropic:claude-sonet-5")
    assert "everthink.models.providers.model_named('anthropic:claude-sonet-5')" in str(caught.value)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    assert model_named("anthropic:claude-sonet-5").name == "anthropic:claude-sonet-5"


@pytest.mark.parametrize(
    "name", ["anthropic:claude-sonnet-9", "openai:gpt-7-mini", "anthropic:claude-aria-1"]
)
def test_a_model_newer_than_we_are_is_let_through(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert resolve_model(name).name == name


@pytest.mark.parametrize("value", ["", ":", "openai:", ":gpt-5", None, 42, ScriptedModel, object()])
def test_what_is_no_model_is_refused(value: object) -> None:
    with pytest.raises(UnknownModel):
        resolve_model(value)


@pytest.mark.parametrize("name", ["", "openai", ":x"])
def test_a_forced_name_must_still_be_a_name(name: str) -> None:
    with pytest.raises(UnknownModel, match="provider:model"):
        model_named(name)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("openai-chat:gpt-5", "OPENAI_API_KEY"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY"),
        ("openrouter:any/model", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_key_names_its_variable_and_the_demo(name: str, variable: str) -> None:
    with pytest.raises(MissingKey) as caught:
        resolve_model(name)
    assert f"there is no {variable}" in str(caught.value)
    assert f"export {variable}=" in str(caught.value)
    assert '"demo"' in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hidden", "install"),
    [
        ("anthropic:claude-sonnet-5", "anthropic", 'pip install "everthink[anthropic]"'),
        ("openai:gpt-5", "openai", 'pip install "everthink[openai]"'),
        ("ollama:qwen3", "openai", 'pip install "everthink[openai]"'),
        ("google:gemini-3-pro", "google.genai", 'pip install "everthink[google]"'),
        ("bedrock:any", "boto3", 'pip install "everthink[bedrock]"'),
        ("groq:any", "groq", 'pip install "pydantic-ai-slim[groq]"'),
        ("anthropic:claude-sonnet-5", "pydantic_ai", 'pip install "everthink[anthropic]"'),
    ],
)
def test_a_missing_package_comes_with_its_install_line(name: str, hidden: str, install: str) -> None:
    # A process of its own, in which the package does not exist
    script = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == {hidden!r} or name.startswith({hidden + "."!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Hidden())
from everthink.errors import MissingExtra
from everthink.models.providers import resolve_model
try:
    resolve_model({name!r})
except MissingExtra as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert install in ran.stdout


def test_a_missing_extra_is_an_error_of_ours() -> None:
    assert issubclass(MissingExtra, Exception)


@pytest.mark.slow
def test_resolving_ours_does_not_load_pydantic_ai() -> None:
    script = """
import sys
from everthink.models.providers import resolve_model
from everthink.testing.scripted import ScriptedModel
import everthink.testing.served
resolve_model("demo"), resolve_model(ScriptedModel())
print("pydantic_ai" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


LOADING = """
import asyncio, sys, threading

seen = {{}}
class Watching:
    def find_spec(self, name, path=None, target=None):
        seen.setdefault(name, threading.current_thread() is threading.main_thread())
sys.meta_path.insert(0, Watching())
from everthink import App, Think, TurnConfig

class Helper(Think):
    {how}

async def main():
    async with App(Helper, store=":memory:") as app:
        {opened}
        result = await app.agent(Helper).chat("Hello")
        print(result.error)

asyncio.run(main())
for name in ("pydantic_ai", "pydantic_ai.providers.anthropic", "pydantic_ai.models.anthropic", "anthropic"):
    assert seen[name] is False, name
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        'model = "anthropic:claude-sonnet-5"',
        'get_model = lambda self: "anthropic:claude-sonnet-5"',
        'before_turn = lambda self, turn: TurnConfig(model=" anthropic:claude-sonnet-5")',
        'before_step = lambda self, step: {"model": "anthropic:claude-sonnet-5"}',
    ],
    ids=["model", "get_model", "before_turn", "before_step"],
)
def test_what_a_provider_needs_is_not_imported_on_the_event_loop(how: str) -> None:
    opened = 'assert "anthropic" in seen' if how.startswith("model") else 'assert "anthropic" not in seen'
    model = "" if how.startswith(("model", "get_model")) else 'model = "demo"; '
    script = LOADING.format(how=model + how, opened=opened)
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "there is no ANTHROPIC_API_KEY" in ran.stdout


@pytest.mark.slow
def test_dev_looks_for_a_model_that_code_chooses_without_holding_the_loop(tmp_path: Path) -> None:
    script = """
import asyncio, sys, threading
from everthink import Think
from everthink.serving.missing_models import use_demo_models
from everthink.serving.target import load
seen = {}
class Watching:
    def find_spec(self, name, path=None, target=None):
        seen.setdefault(name, threading.current_thread() is threading.main_thread())
sys.meta_path.insert(0, Watching())
loaded = load("agents")
use_demo_models(loaded)

async def main():
    async with loaded.app as app:
        for cls, _ in loaded.agents:
            print((await app.agent(cls).chat("Hello")).error, loaded.stand_ins.keys())

asyncio.run(main())
assert seen["anthropic"] is False
"""
    (tmp_path / "agents").mkdir()
    for name, kind in {"plain": "def", "late": "async def"}.items():
        (tmp_path / "agents" / f"{name}.py").write_text(
            f"from everthink import Think\n\nclass {name.title()}(Think):\n"
            f"    {kind} get_model(self):\n        return 'anthropic:claude-sonnet-5'\n"
        )
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, env=env, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "None dict_keys(['Late', 'Plain'])"


@pytest.mark.parametrize(
    "url", ["localhost:8000", "127.0.0.1:8000/v1", "//host/v1", "http://", "ws://host", ""]
)
def test_an_address_without_http_is_told_where_it_is_written(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"does not begin with http:// or https://") as told:
        openai_compatible("q", base_url=url)
    assert 'Write base_url="http://' in str(told.value)
