"""Whose the agents are: one claim for each family, and a fence for each of its members that is in memory.

    Directory --Address--> Claims.take --root--> Membership.claim --Claim--> Fence of the member

An agent and its children, and theirs, belong to one process at a time: what one of them commits carries the
claim of the outermost. So they reach each other without asking anybody, and a family moves as one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ..address import Address
from ..cluster.fence import Claim, Fence, Loss
from ..cluster.membership import Membership
from ..errors import StoreError
from ..store.port import AgentStore, Store

__all__ = ["Claims"]

log = logging.getLogger("everthink.runtime")


@dataclass(slots=True, eq=False)
class _Family:
    """The members of a family that this process has in memory."""

    claiming: asyncio.Future[Claim]
    members: set[str] = field(default_factory=set[str])
    left: asyncio.Future[None] | None = None
    """There once the last one goes: whoever comes then waits for it, and claims anew."""


class Claims:
    """The families that are ours, and their members' ways to the store.

    `learn(agent)` reads what others have tried of an agent that is claimed. `lost` is told of a member that
    must leave memory.
    """

    def __init__(
        self,
        store: Store,
        membership: Membership | None,
        *,
        learn: Callable[[str], Awaitable[None]],
        lost: Callable[[Address, Fence, Loss, str], None],
    ) -> None:
        self._store, self._membership = store, membership
        self._learn, self._lost = learn, lost
        self._families: dict[str, _Family] = {}
        self._fences: dict[str, tuple[Address, Fence]] = {}

    def fence(self, agent: str) -> Fence | None:
        """A member's way to the store, while it is ours."""
        found = self._fences.get(agent)
        return None if found is None else found[1]

    def address(self, agent: str) -> Address | None:
        """The address of a member that is ours."""
        found = self._fences.get(agent)
        return None if found is None else found[0]

    def store_of(self, agent: str) -> AgentStore:
        """An agent's way to the database: through its fence while this process has it."""
        return self.fence(agent) or AgentStore(self._store, agent)

    async def take(self, address: Address) -> Fence:
        """The way to the store of an agent that is ours from now on. Raises `AgentElsewhere`."""
        id = address.id
        if self._membership is None:
            fence = Fence(self._store, id)
        else:
            claim = await self._claimed(self._membership, address.root.id, id)
            fence = Fence(self._store, id, claim, lambda why, what: self._lose(address, fence, why, what))
            try:
                await self._learn(id)  # others may have tried it, and not survived that
            except BaseException:
                self._leave(address.root.id, id)
                raise
        self._fences[id] = (address, fence)
        return fence

    async def _claimed(self, membership: Membership, root: str, member: str) -> Claim:
        while (family := self._families.get(root)) is not None and family.left is not None:
            await asyncio.shield(family.left)
        if family is None:
            family = self._families[root] = _Family(asyncio.ensure_future(membership.claim(root)))
        family.members.add(member)
        try:
            return await asyncio.shield(family.claiming)
        except BaseException:
            self._leave(root, member)
            raise

    def _leave(self, root: str, member: str) -> None:
        """A member is not in memory any more. Of an empty family nothing is told: it is ours until asked."""
        family = self._families.get(root)
        if family is not None:
            family.members.discard(member)
            if not family.members and family.left is None:
                del self._families[root]

    async def give_back(self, address: Address, fence: Fence) -> None:
        """A member is gone; others may have the family when it was the last one. Behind everything that was
        asked for to be written about it."""
        id, root = address.id, address.root.id
        fence.retire()
        if self.fence(id) is not fence:
            return
        family = self._families.get(root)
        if family is not None and family.members == {id} and fence.claim is not None:
            await self._release(family, root, fence.claim)
        self._forget(address)

    async def _release(self, family: _Family, root: str, claim: Claim) -> None:
        assert self._membership is not None
        family.left = asyncio.get_running_loop().create_future()
        try:
            await self._store.apply([self._membership.released(claim)])
        except StoreError as error:
            log.warning("%s could not be given back and stays with this process: %s", root, error)
        finally:
            family.left.set_result(None)
            if self._families.get(root) is family:
                del self._families[root]

    def forget(self, address: Address, fence: Fence) -> None:
        """A member had to leave memory, and nothing can be written about it."""
        if self.fence(address.id) is fence:
            self._forget(address)

    def _forget(self, address: Address) -> None:
        self._fences.pop(address.id, None)
        self._leave(address.root.id, address.id)

    # --- losing them

    def _lose(self, address: Address, fence: Fence, why: Loss, what: str) -> None:
        self._lost(address, fence, why, what)
        if why == "taken":  # and with it the others of its family
            for other, theirs in list(self._fences.values()):
                if theirs.claim is fence.claim and other.root == address.root:
                    theirs.lose(why, what)

    def lose_all(self, what: str) -> None:
        """Nobody knows any more that this process lives: others may have its agents."""
        for _, fence in list(self._fences.values()):
            fence.lose("taken", what)

    def retire_all(self) -> None:
        """Nobody writes anything any more."""
        for _, fence in self._fences.values():
            fence.retire()
