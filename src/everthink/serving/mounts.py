"""Find the `App`s inside another application: FastAPI, Starlette, and what wraps them.

    site.mount("/chat", App(Assistant)) --mounts_in--> [("/chat", App)]

Looked up from what routes and middlewares show of themselves; an application that hides what it holds is
served all the same, and then nothing is known of its agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from ..app.app import App
from ..errors import AgentError

__all__ = ["WithLifespan", "mounts_in"]

INSIDE = ("app", "_app", "application", "asgi_app")
"""Where a middleware keeps what it wraps."""
DEEPEST = 20


def mounts_in(value: Any) -> list[tuple[str, App]]:
    """Every `App` in an application with the path it is mounted at, each once."""
    found: dict[int, tuple[str, App]] = {}
    for path, app in _walk(value, "", set(), 0):
        found.setdefault(id(app), (path, app))
    return list(found.values())


def _walk(value: Any, path: str, seen: set[int], depth: int) -> Iterator[tuple[str, App]]:
    if isinstance(value, App):
        yield path, value
        return
    if id(value) in seen or depth > DEEPEST:
        return
    seen.add(id(value))
    routes = getattr(value, "routes", None)
    if isinstance(routes, Sequence):
        for route in cast("Sequence[Any]", routes):
            yield from _in_route(route, path, seen, depth)
    for name in INSIDE:
        inner = getattr(value, name, None)
        if callable(inner) and not isinstance(inner, type):
            yield from _walk(inner, path, seen, depth + 1)


def _in_route(route: Any, path: str, seen: set[int], depth: int) -> Iterator[tuple[str, App]]:
    below = path + str(getattr(route, "path", "")).rstrip("/")
    for inner in (getattr(route, "app", None), getattr(route, "endpoint", None)):
        if inner is not None:
            yield from _walk(inner, below, seen, depth + 1)


class WithLifespan:
    """An application that opens and closes the `App`s mounted in it: a mount gets no lifespan of its own.

    Without it turns that an earlier process left would wait for somebody to come, and turns that run when it
    stops would not get their grace. What the application does itself it has done by then.
    """

    def __init__(self, asgi: Any, apps: Sequence[App]) -> None:
        self._asgi, self._apps = asgi, apps

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve, and take care of beginning and end."""
        if scope["type"] != "lifespan":
            await self._asgi(scope, receive, send)
            return
        failed: dict[str, Any] = {}
        has_started = False

        async def sending(message: Any) -> None:
            nonlocal has_started
            if message["type"] == "lifespan.startup.complete":
                await self._open()  # what it raises ends the application's own lifespan first
                has_started = True
            elif message["type"] == "lifespan.startup.failed":
                failed.update(message)  # said below, in the words of what was raised
                return
            elif message["type"] == "lifespan.shutdown.complete":
                await self._close(self._apps)
            await send(message)

        try:
            await self._asgi(scope, receive, sending)
        except Exception as error:
            ours = None if has_started else _own_error(error)
            if ours is None and failed:
                await send(failed)
            if ours is None:
                raise
            await send({"type": "lifespan.startup.failed", "message": str(ours)})
        else:
            if failed:
                await send(failed)

    async def _open(self) -> None:
        opened: list[App] = []
        try:
            for app in self._apps:
                await app.open()
                opened.append(app)
        except BaseException:
            await self._close(opened)
            raise

    async def _close(self, apps: Sequence[App]) -> None:
        for app in apps:
            await app.close()


def _own_error(error: BaseException) -> AgentError | None:
    """The error of ours in what was raised: itself, or the only one of a group."""
    while isinstance(error, BaseExceptionGroup):
        inside = cast("BaseExceptionGroup[BaseException]", error).exceptions
        if len(inside) != 1:
            return None
        error = inside[0]
    return error if isinstance(error, AgentError) else None
