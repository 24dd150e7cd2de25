"""Watching submissions."""

from __future__ import annotations

import asyncio
from typing import Any

from everthink import Submission, Think

__all__ = ["Statuses"]


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

    async def until(self, submission_id: str, status: str, times: int = 1) -> Submission:
        """Return once the submission had that status (`times` times)."""

        def found() -> list[Submission]:
            return [s for s in self.all if s.submission_id == submission_id and s.status == status]

        async with self._arrived:
            await self._arrived.wait_for(lambda: len(found()) >= times)
        return found()[-1]
