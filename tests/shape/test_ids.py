"""An agent's id is built and cut in one place, `Address`: a child's is more than class and name."""

from __future__ import annotations

import ast

from .source import Module, modules

ROOMS = ("access", "app", "cli", "devtools", "observe", "runtime", "server")


def built(module: Module) -> list[str]:
    """Where a module joins the name of a class and another name with a slash."""
    return [
        f"{module.place}:{node.lineno}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.JoinedStr) and "__name__}/{" in ast.unparse(node)
    ]


def cut(module: Module) -> list[str]:
    """Where a module cuts what it calls an agent, or an id, at a slash."""
    return [
        f"{module.place}:{node.lineno}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("partition", "split")
        and ast.unparse(node.value).rpartition(".")[2] in ("agent", "agent_id", "id")
    ]


def test_nobody_but_address_builds_or_cuts_the_id_of_an_agent() -> None:
    looked_at = [module for module in modules() if module.room in ROOMS]

    assert [place for module in looked_at for place in [*built(module), *cut(module)]] == []
