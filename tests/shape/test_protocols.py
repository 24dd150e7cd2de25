"""Protocols are for what others write. Between parts of our own, the part itself is the better type."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .source import modules

# What users, adapters or libraries of others fill in: the seams of the package.
SEAMS = {
    "clock.Clock": "users: a clock of their own",
    "clock.Timer": "users: what such a clock returns",
    "context.blocks.ContextProvider": "users: a kind of context block",
    "door.chat_stream.StreamCallback": "users: who is told of an answer",
    "messengers.port.Messenger": "adapters: a platform where people talk",
    "deliveries.polling.Polled": "adapters: one that can be asked for what is new",
    "deliveries.sending.Meeting": "adapters: one that learns what its bot is called",
    "serving.missing_messengers.Named": "adapters: one that can ask who the bot is",
    "models.port.Model": "adapters: a provider",
    "store.port.Store": "adapters: a database",
    **{
        f"file_tools.operations.{name}Operations": f"users: storage of their own, for {name.lower()}"
        for name in ("Read", "Write", "Edit", "List", "Find", "Grep", "Delete", "Bash")
    },
    "skills.tree.Tree": "adapters: files that skills are read from",
    "skills.port.ScriptRunner": "users: what runs scripts of skills",
    "skills.port.SkillSource": "users: where skills are",
    "extensions.port.ExtensionHost": "users: what an extension may ask, without an agent",
    "extensions.port.ExtensionStorage": "users: where extensions are kept, without an agent",
    "extensions.port.LoadedExtension": "packages: an extension that runs in this process",
    "workspace.port.Files": "adapters: a place for files",
    "workspace.port.History": "adapters: such a place that remembers",
    "cluster.membership.Shared": "adapters: a database that several processes use",
    "machines.port.Machine": "adapters: something that starts a process elsewhere",
    "machines.port.Pipe": "adapters: such a process",
    "sandbox.port.Host": "tools and users: whom a guest can ask",
    "sandbox.port.Sandbox": "adapters: an engine that runs code nobody trusts",
    "server.connections.Socket": "libraries: what Starlette's sockets can",
    "postgres.driver.Connection": "libraries: what asyncpg's connections can",
    "postgres.driver.Pool": "libraries: what asyncpg's pools can",
    "testing.scripted_plays._Waitable": "users: what a play may wait for",
}

# Protocols between parts of our own, today. The number only ever goes down.
OUR_OWN = 3


def protocols() -> Iterator[str]:
    """Every class that names `Protocol` as a base."""
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and any(_is_protocol(base) for base in node.bases):
                yield f"{module.short}.{node.name}"


def _is_protocol(base: ast.expr) -> bool:
    named = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
    return named.rpartition(".")[2] == "Protocol" and named != "asyncio.Protocol"  # an event loop's


def test_our_own_parts_have_ever_fewer_protocols_between_them() -> None:
    ours = sorted(set(protocols()) - set(SEAMS))
    print(f"{len(ours)} protocols between parts of our own, {OUR_OWN} at most:", *ours, sep="\n  ")
    assert len(ours) <= OUR_OWN, "import the part itself, or say in SEAMS who else fills it in"


def test_every_seam_is_there() -> None:
    assert set(SEAMS) - set(protocols()) == set()


@pytest.mark.parametrize(
    "source", ["class A(Protocol): ...", "class A(B, typing.Protocol): ...", "class A(Protocol[T]): ..."]
)
def test_a_protocol_is_found_however_it_is_written(source: str) -> None:
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    assert any(_is_protocol(base) for base in node.bases)
