"""Find the `App`s inside another application: FastAPI, Starlette, and what wraps them.

    site.mount("/chat", App(Assistant)) --mounts_in--> [("/chat", App)]

Looked up from what routes and middlewares show of themselves; an application that hides what it holds is
served all the same, and then nothing is known of its agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from ..server.app import App

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

        async def sending(message: Any) -> None:
            if message["type"] == "lifespan.startup.complete":
                try:
                    for app in self._apps:
                        await app.open()
                except Exception as error:  # noqa: BLE001 - the server prints it and stops
                    message = {"type": "lifespan.startup.failed", "message": str(error)}
            elif message["type"] == "lifespan.shutdown.complete":
                for app in self._apps:
                    await app.close()
            await send(message)

        await self._asgi(scope, receive, sending)
