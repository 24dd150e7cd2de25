"""The files of a new project: an agent with a tool, and a test."""

from __future__ import annotations

__all__ = ["files"]


def files(package: str) -> dict[str, str]:
    """Their texts, by their paths, for a project of this name."""
    return {path: text.replace("{name}", package) for path, text in FILES.items()}


FILES = {
    "agents/assistant.py": '''\
"""The assistant. Every file in this folder is one agent."""

from everthink import Think, tool


class Assistant(Think):
    """A friendly assistant that knows the weather."""

    # Without the provider's key, `everthink dev` answers with its demo model.
    model = "anthropic:claude-sonnet-5"
    system_prompt = "You are a friendly assistant. Answer in a few short sentences."

    @tool
    async def weather(self, city: str) -> str:
        """The weather in a city."""
        return f"It is sunny in {city}, 21 degrees."
''',
    "tests/test_assistant.py": '''\
"""The assistant, with a model that follows a script: no key, no network."""

import asyncio
from pathlib import Path

from everthink import App
from everthink.testing import ScriptedModel, calls, says

from agents.assistant import Assistant


def test_the_assistant_looks_up_the_weather(tmp_path: Path) -> None:
    class Scripted(Assistant):
        model = ScriptedModel(calls("weather", city="Paris"), says("It is sunny in Paris."))

    async def conversation() -> None:
        async with App(Scripted, store=f"sqlite:///{tmp_path}/test.db") as app:
            agent = app.agent(Scripted, "test")
            await agent.save_messages("What is the weather in Paris?")
            answer = (await agent.get_messages())[-1]
            assert answer.text == "It is sunny in Paris."
            assert answer.tool_parts[0]["output"] == "It is sunny in Paris, 21 degrees."

    asyncio.run(conversation())
''',
    "README.md": """\
# {name}

```sh
pip install -e '.[dev]'
everthink dev                      # a page, reload on change
echo ANTHROPIC_API_KEY=… >> .env   # a real model instead of the demo model
python -m pytest                   # the tests; they need no key
everthink serve agents             # production
```

- `agents/assistant.py` is an agent. Add `agents/other.py` for another one.
- Conversations are kept in `.everthink/everthink.db`; `everthink inspect` shows what is in it.
- `everthink doctor` says what is missing.
""",
    "pyproject.toml": """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["everthink[anthropic]"]

[project.optional-dependencies]
dev = ["pytest"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["agents"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
""",
    ".gitignore": """\
.everthink/
.venv/
__pycache__/
.env
""",
}
