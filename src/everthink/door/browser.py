"""What the last chat window brought: its tools and its custom fields, and whose they are.

    a window's turn starts --bringing-->  Browser  --tools, body--> what continues that turn
    a tool's result --declare-->
    clear --forget-->

A continuation and a recovered turn have them too, so they are kept: the statements ride in the commit that
makes them count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..identity import mark_of
from ..journal.turn import Brings, Turn
from ..store.port import Statement
from ..tools.collect import client_tools_from
from ..tools.tool import Tool

__all__ = ["Browser"]

Schemas = list[dict[str, Any]]


class Browser:
    """Tools and fields of the last window. `tools_by` and `body_by` are the marks of persons."""

    __slots__ = ("_save_value", "body", "body_by", "tools", "tools_by")

    def __init__(self, save_value: Callable[[str, Any], Statement]) -> None:
        self._save_value = save_value
        self.tools: Schemas = []
        self.tools_by: str | None = None
        self.body: dict[str, Any] | None = None
        self.body_by: str | None = None

    def client_tools(self) -> dict[str, Tool]:
        """The window's tools, to be offered to a model."""
        return client_tools_from(self.tools)

    def bringing(self, turn: Turn, schemas: Schemas | None) -> Brings:
        """For a window's turn: what is written when it starts, and how to take that back."""
        before = self._values()

        def bring() -> list[Statement]:
            nonlocal before
            before = self._values()
            by = mark_of(turn.identity) if turn.body else None
            return self._become(schemas or [], turn.tools_by, turn.body or None, by)

        return Brings(bring, lambda: self._set(before))

    def declared(self, schemas: Schemas, by: str | None) -> list[Statement]:
        """What keeps the tools that a window sends along with a tool's result; `declare` makes them count."""
        return [self._save_value("openTools", schemas), self._save_value("openToolsBy", by)]

    def declare(self, schemas: Schemas, by: str | None) -> None:
        """A window has sent other tools with a tool's result, and they are stored."""
        self.tools, self.tools_by = schemas, by

    def forget(self) -> list[Statement]:
        """The conversation is cleared: nobody's tools and fields count any more."""
        return self._become([], None, None, None)

    # --- keeping them

    _KEYS = ("openTools", "openToolsBy", "lastBody", "lastBodyBy")

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take what an earlier process kept, by the names of their rows."""
        self._set(tuple(kept.get(key) for key in self._KEYS))

    def _values(self) -> tuple[Any, ...]:
        return self.tools or None, self.tools_by, self.body, self.body_by

    def _set(self, values: tuple[Any, ...]) -> None:
        tools, self.tools_by, self.body, self.body_by = values
        self.tools = tools or []

    def _become(
        self, tools: Schemas, tools_by: str | None, body: dict[str, Any] | None, body_by: str | None
    ) -> list[Statement]:
        before = self._values()
        self.tools, self.tools_by, self.body, self.body_by = tools, tools_by, body, body_by
        changes = zip(self._KEYS, before, self._values(), strict=True)
        return [self._save_value(key, now) for key, old, now in changes if now != old]
