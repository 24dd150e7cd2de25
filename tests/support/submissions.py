"""Watching submissions, and reading their rows."""

from __future__ import annotations

import asyncio
from typing import Any

from everthink import Submission, Think
from everthink.turn import queries

__all__ = ["Statuses", "turn_rows"]


class Statuses:
    """An `on_submission_status` hook that remembers: `assistant(model, on_submission_status=seen.hook)`."""

    def __init__(self) -> None:
        self.all: list[Submission] = []
        self._arrived = asyncio.Condition()

    @property
    def hook(self) -> Any:
        async def on_submission_status(agent: Think, submission: Submission) -> None:
            async with self._arrived:
                self.all.append(submission)
                self._arrived.notify_all()

        return on_submission_status

    def of(self, submission_id: str) -> list[str]:
        """The statuses of one submission, as they came."""
        return [seen.status for seen in self.all if seen.submission_id == submission_id]

    async def until(self, submission_id: str, status: str) -> Submission:
        """Return once the submission has that status."""

        def found() -> Submission | None:
            return next(
                (s for s in self.all if s.submission_id == submission_id and s.status == status), None
            )

        async with self._arrived:
            await self._arrived.wait_for(lambda: found() is not None)
        seen = found()
        assert seen is not None
        return seen


async def turn_rows(agent: Think) -> list[dict[str, Any]]:
    """The rows of the agent's turns, oldest first."""
    names = (
        "id request_id trigger status continuation input metadata idempotency_key message_id error "
        "created_at started_at ended_at seq"
    ).split()
    home = agent._home
    return [dict(zip(names, row, strict=True)) for row in await home.store.fetch(queries.TURNS, home.id)]
