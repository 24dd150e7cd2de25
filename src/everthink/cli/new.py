"""`everthink new`: a project to start from."""

from __future__ import annotations

import re
import shlex
import unicodedata
from pathlib import Path

import click

__all__ = ["command"]

HARMLESS = {".git", ".DS_Store"}
RULE = "names of packages have the letters a to z, digits, and hyphens between them."


@click.command(
    "new",
    short_help="Start a project: an agent with a tool, and a test.",
    help="""Start a project: an agent with a tool, and a test that runs without a model.

    NAME is the folder to make; the project is called like it, in letters that packages may have. A folder
    with something in it is left alone.

    \b
    Example:
      everthink new shop-assistant
      cd shop-assistant && everthink dev""",
)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the files that were made, for scripts.")
def command(name: str, as_json: bool) -> None:
    """Make a project."""
    from ..errors import AgentError
    from ..serving.output import print_json, say

    folder = Path(name)
    package = _package(folder)
    _check_name(name, package)
    if folder.exists() and (not folder.is_dir() or {entry.name for entry in folder.iterdir()} - HARMLESS):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise AgentError(
            f"{folder} {what}.", kept="Nothing was changed.", next_step="Choose a name that is free."
        )
    files = {path: text.replace("{name}", package) for path, text in FILES.items()}
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"folder": str(folder), "name": package, "files": list(files)})
        return
    say(f"Made {folder}:")
    for path in files:
        say(f"  {path}", "dim")
    if package != folder.resolve().name:
        say(f"\nThe project is called {package} (in pyproject.toml and README.md): {RULE}", "yellow")
    say("\nNext:")
    if folder.resolve() != Path.cwd():
        say(f"  cd {shlex.quote(str(folder))}")
    say("  everthink dev               then open the address it prints")
    say("  pip install -e '.[dev]'     what it needs, and pytest")
    say("  python -m pytest            the agent's test; it needs no key")


def _package(folder: Path) -> str:
    """A name that packaging tools accept, from that of the folder: *My Ägent* is my-agent. Empty if none."""
    name = unicodedata.normalize("NFKD", folder.resolve().name.replace("ß", "ss")).lower()
    plain = "".join(letter for letter in name if not unicodedata.combining(letter))
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def _check_name(name: str, package: str) -> None:
    from ..serving.output import WrittenWrongly

    what = ""
    if not name.strip() or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        what = f"{name!r} is no name for a folder."
    elif not package:
        what = f"No name for a project can be made of {name!r}: {RULE}"
    elif package == "everthink":
        what = "A project that is called everthink could not depend on everthink."
    if what:
        raise WrittenWrongly(
            what, kept="Nothing was made.", next_step="Choose another: everthink new shop-assistant"
        )


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
