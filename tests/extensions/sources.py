"""Extensions for tests, as a person or a model would write them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from everthink.engines.sandboxes import Sandboxes
from everthink.extensions import Extension, ExtensionManager
from everthink.tools.tool import ToolContext

WORDS = """({
  tools: {
    count: {
      description: 'Count words',
      parameters: { text: { type: 'string' } },
      required: ['text'],
      execute: async ({ text }) => ({ words: text.trim().split(/\\s+/).length }),
    },
    shout: { parameters: { text: { type: 'string' } }, execute: async ({ text }) => text.toUpperCase() },
  },
})"""

WORDS_IN_PYTHON = """
async def count(args, host):
    return {"words": len(args["text"].split())}


def shout(args, host):
    return args["text"].upper()


tools = {
    "count": {
        "description": "Count words",
        "parameters": {"text": {"type": "string"}},
        "required": ["text"],
        "execute": count,
    },
    "shout": {"parameters": {"text": {"type": "string"}}, "execute": shout},
}
"""

LOGGER = """({
  hooks: {
    beforeToolCall: async (snapshot, host) => host.storage.set('before', snapshot),
    afterToolCall: async (snapshot, host) => {
      await host?.writeFile(`logs/${snapshot.toolName}.json`, JSON.stringify(snapshot));
    },
    onStepFinish: async (snapshot, host) => {
      await host.storage.set(`step ${snapshot.stepNumber}`, snapshot);
    },
    onChunk: async (snapshot, host) => {
      const seen = (await host.storage.get('chunks')) ?? [];
      await host.storage.set('chunks', [...seen, snapshot]);
    },
  },
})"""


def words(name: str = "words", **manifest: Any) -> Extension:
    """An extension that counts words."""
    return Extension({"name": name, "version": "1.0.0", **manifest}, WORDS)


def one_tool(body: str, name: str = "one", *, parameters: str = "{}", **manifest: Any) -> Extension:
    """An extension with one tool, `run`, by its body."""
    source = f"({{ tools: {{ run: {{ parameters: {parameters}, execute: {body} }} }} }})"
    return Extension({"name": name, "version": "1", **manifest}, source)


def hooks(body: str, name: str = "hooks", **manifest: Any) -> Extension:
    """An extension with hooks."""
    return Extension({"name": name, "version": "1", **manifest}, f"({{ hooks: {{ {body} }} }})")


async def call(manager: ExtensionManager, tool: str, **given: Any) -> Any:
    """Call a tool as a turn would."""
    return await manager.get_tools()[tool].call(given, ToolContext())


@asynccontextmanager
async def managing(engines: Sandboxes, **options: Any) -> AsyncIterator[ExtensionManager]:
    """A manager of its own."""
    manager = ExtensionManager(engines=engines, **options)
    yield manager
    await manager.aclose()
