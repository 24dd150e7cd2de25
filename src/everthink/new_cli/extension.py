"""The files of a new package that extends everthink: a class with a tool and a hook, and its tests.

    everthink new --extension word-count --> everthink-word-count, with the module everthink_word_count
                                             and the extension "word-count"

A package is called so, whatever its name, so that its module takes no other module's place.
"""

from __future__ import annotations

import re

__all__ = ["files", "name_of", "package_of"]

_BEFORE = "everthink-"


def package_of(name: str) -> str:
    """What the package is called."""
    return name if name.startswith(_BEFORE) else f"{_BEFORE}{name}"


def name_of(package: str) -> str:
    """By which name agents load it."""
    return package.removeprefix(_BEFORE)


def files(package: str) -> dict[str, str]:
    """Their texts, by their paths."""
    name, module = name_of(package), package.replace("-", "_")
    words = "".join(word.capitalize() for word in name.split("-"))
    filled = {
        "{package}": package,
        "{name}": name,
        "{module}": module,
        "{prefix}": name.replace("-", "_"),
        "{Class}": words if words[0].isalpha() else f"Extension{words}",
    }

    def written(text: str) -> str:
        return re.sub("|".join(map(re.escape, filled)), lambda found: filled[found[0]], text)

    return {written(path): written(text) for path, text in FILES.items()}


FILES = {
    "src/{module}/__init__.py": '''\
"""What {name} adds to agents of everthink."""

from __future__ import annotations

from typing import Any

from everthink import tool
from everthink.extensions import TrustedExtension

__all__ = ["{Class}"]


class {Class}(TrustedExtension):
    """Counts words."""

    def __init__(self, *, most: int = 100_000) -> None:
        self.most = most

    @tool
    async def count(self, text: str) -> int:
        """Count the words of a text."""
        return min(len(text.split()), self.most)

    async def after_tool_call(self, call: dict[str, Any]) -> None:
        """Say what every call took. What is said here is in the log, and on the page."""
        self.log(f"{call['tool_name']} took {call['duration_ms']} ms")
''',
    "src/{module}/py.typed": "",
    "tests/test_{module}.py": '''\
"""The extension in an agent, with a model that follows a script: no key, no network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from everthink import App, Think
from everthink.extensions import installed
from everthink.testing import ScriptedModel, calls, says

from {module} import {Class}


async def asked(extension: Any, tmp_path: Path) -> Any:
    """What the tool gives an agent that has the extension."""

    class Assistant(Think):
        model = ScriptedModel(calls("{prefix}_count", text="one two three"), says("Three."))
        extensions = [extension]

    async with App(Assistant, store=f"sqlite:///{tmp_path}/test.db") as app:
        async with app.agent(Assistant, "test") as agent:
            assert agent.get_on_start_degradations() == []
            await agent.save_messages("How many words are in it?")
            answer = (await agent.get_messages())[-1]
            return answer.tool_parts[0]["output"]


def test_an_agent_counts_words(tmp_path: Path) -> None:
    assert asyncio.run(asked({Class}, tmp_path)) == 3


def test_it_is_found_by_its_name_and_takes_options(tmp_path: Path) -> None:
    assert asyncio.run(asked(installed("{name}", most=2), tmp_path)) == 2
''',
    "README.md": """\
# {package}

Counts words, for agents of everthink.

```sh
pip install {package}
```

```python
from everthink import Think
from everthink.extensions import installed


class Assistant(Think):
    extensions = [installed("{name}")]
```

The model has the tool `{prefix}_count` then. It runs in the process of the agents, with all its rights.

## Work on it

```sh
pip install -e '.[dev]'
python -m pytest        # they need no key
```
""",
    "pyproject.toml": """\
[project]
name = "{package}"
version = "0.1.0"
description = "Counts words, for agents of everthink."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["everthink"]

[project.optional-dependencies]
dev = ["pytest"]

[project.entry-points."everthink.extensions"]
"{name}" = "{module}:{Class}"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
""",
    ".gitignore": """\
.venv/
__pycache__/
dist/
""",
}
