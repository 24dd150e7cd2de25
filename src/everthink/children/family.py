"""An agent's children: made when they are first reached, listed, stopped, deleted.

    self.sub_agent(Cls, name) --> Family --> the directory --> a handle of the child

A child is an agent like any other, in the same tables, below its parent. The list of children is what the
table of agents says.
"""

from __future__ import annotations

from typing import Any, cast

from ..address import Address, canonical, kebab
from ..clock import moment_of
from ..errors import AgentError
from ..settings import nearest, shown
from ..store.port import AgentStore
from .parts import Kin
from .values import SubAgent

__all__ = ["BELOW", "Family"]

_CHILDREN = (
    "SELECT class, name, created_at FROM agents WHERE parent = :agent ORDER BY created_at, class, name"
)
BELOW = (
    "WITH RECURSIVE below (agent) AS (SELECT CAST(? AS TEXT) UNION ALL"
    " SELECT a.agent FROM agents a JOIN below b ON a.parent = b.agent) SELECT agent FROM below"
)
"""An agent and all below it."""


class Family:
    """The children of one agent, and whose child it is."""

    __slots__ = ("_address", "_kin", "_store")

    def __init__(self, address: Address, store: AgentStore, kin: Kin) -> None:
        self._address, self._store, self._kin = address, store, kin

    async def child(self, cls: Any, name: Any) -> Any:
        """A child from outside, made and started if need be. Raises what its start raises."""
        address = self._below("sub_agent", cls, name)
        await self._kin.reach(address)
        return self._kin.handle(cls, address)

    async def has(self, cls: Any, name: Any) -> bool:
        """True when there is such a child."""
        return await self._kin.exists(await self._called("has_sub_agent", cls, name))

    async def list(self, cls: Any = None) -> list[SubAgent]:
        """The children, the oldest first; those of one class."""
        rows = await self._store.fetch(_CHILDREN)
        wanted = None if cls is None else await self._cls_name("list_sub_agents", cls)
        return [
            SubAgent(cls_name=found, name=name, created_at=moment_of(at))
            for found, name, at in rows
            if wanted in (None, found)
        ]

    async def abort(self, cls: Any, name: Any) -> None:
        """Drop a child from memory as if the process had died: it goes on when it is next reached."""
        await self._kin.evict(await self._called("abort_sub_agent", cls, name))

    async def delete(self, cls: Any, name: Any) -> None:
        """Delete a child with all below it. One that is not there is no error."""
        await self._kin.erase(await self._called("delete_sub_agent", cls, name))

    async def destroy(self) -> None:
        """Delete the agent itself, with all below it."""
        await self._kin.erase(self._address)

    def parent(self, cls: Any) -> Any:
        """The parent, from outside."""
        above = self._address.parent
        if above is None:
            raise AgentError(
                f"{self._address} has no parent: it is nobody's child.",
                next_step="parent_path is empty for such an agent.",
            )
        if not isinstance(cls, type) or cls.__name__ != above.cls_name:
            raise AgentError(
                f"The parent of {self._address} is a {above.cls_name}, not {shown(cls)}.",
                next_step=f"Write parent_agent({above.cls_name}).",
            )
        return self._kin.handle(cls, above)

    # ---

    def _below(self, method: str, cls: Any, name: Any) -> Address:
        if not isinstance(cls, type) or not hasattr(cast("Any", cls), "sub_agent"):
            raise AgentError(
                f"{method}() is given {shown(cls)}, in the place of an agent class.",
                next_step=f'Write {method}(Researcher, "name"): the class itself, then the name.',
            )
        if not isinstance(name, str):
            raise AgentError(
                f"{method}({cls.__name__}, …) is given {shown(name)}, in the place of a name.",
                next_step="A name is text.",
            )
        return self._kin.address(cls, canonical(name), self._address)

    async def _called(self, method: str, cls: Any, name: Any) -> Address:
        """The address of a child that may be named by its class or by the name of it."""
        if isinstance(cls, str):
            return self._kin.called(await self._cls_name(method, cls), canonical(name), self._address)
        return self._below(method, cls, name)

    async def _cls_name(self, method: str, cls: Any) -> str:
        if isinstance(cls, type):
            return cls.__name__
        if isinstance(cls, str):
            known = {called: name for name in self._kin.classes() for called in (name, kebab(name))}
            near = None if cls in known else nearest(cls, known)
            # It may be a class of which there is only what is stored.
            if near is not None and cls not in {row[0] for row in await self._store.fetch(_CHILDREN)}:
                raise AgentError(
                    f"{method}({cls!r}, …): there is no such class, and no child of one.",
                    kept="Nothing was done.",
                    next_step=f"Did you mean {near!r}?",
                )
            return known.get(cls, cls)
        raise AgentError(
            f"{method}() is given {shown(cls)}, in the place of an agent class.",
            next_step="Give the class, or its name.",
        )
