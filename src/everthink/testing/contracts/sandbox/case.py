"""How a test of the contract runs a script, and a host that remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ....sandbox.port import Host, Job, Limits, Outcome, Sandbox, Stream

__all__ = ["Asked", "SandboxCase", "bash"]

Answer = Callable[[Sequence[Any], Mapping[str, Any]], Awaitable[Any]]


def bash(source: str, **options: Any) -> Job:
    """A script."""
    return Job(language="bash", source=source, **options)


async def _nothing(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return None


class Asked:
    """A host that answers every call alike."""

    def __init__(self, answer: Answer = _nothing) -> None:
        self._answer = answer
        self.calls: list[tuple[str, list[Any], dict[str, Any]]] = []
        self.seen: list[tuple[Stream, str]] = []
        """What was written, as it came."""

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Remember, and answer."""
        self.calls.append((name, list(args), dict(kwargs)))
        return await self._answer(args, kwargs)

    def output(self, stream: Stream, text: str) -> None:
        """Remember."""
        self.seen.append((stream, text))

    def written(self, stream: Stream) -> str:
        """All that was seen of a stream so far."""
        return "".join(text for which, text in self.seen if which == stream)


class SandboxCase:
    """How a test reaches the sandbox it tests."""

    limits = Limits(wall=60, cpu=30)
    """Of scripts that are to come to their end, on a machine that has other things to do."""

    async def open(self) -> Sandbox:
        """Open the sandbox that is tested."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Sandbox]:
        """Open it, and close it at the end."""
        sandbox = await self.open()
        try:
            yield sandbox
        finally:
            await sandbox.aclose()

    async def run(self, source: str, host: Host | None = None, **options: Any) -> Outcome:
        """Run one script in a sandbox of its own."""
        options.setdefault("limits", self.limits)
        async with self.opened() as sandbox:
            return await sandbox.run(bash(source, **options), host or Asked())
