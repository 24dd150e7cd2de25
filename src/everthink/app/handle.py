"""`Handle`: an agent from outside, as `app.agent(Assistant, "room-1")` gives it, typed as that `Assistant`.

    await handle.save_messages("hi")   --> Directory.reach --> the live agent, started if need be
    handle.state, handle.plain_def()   --> the live agent, if it is in memory here; else AgentNotInMemory
    async with handle as agent         --> the agent itself, held in memory until the block ends

It holds no agent: every call reaches it anew, so that a handle outlives an agent that leaves memory. What is
awaited or streamed may be answered by another process one day; whatever answers at once is asked here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ..address import Address, kebab
from ..errors import AgentError, AgentNotInMemory
from ..settings import is_ours
from ..surface import HANDLED, MissingAttribute, refuse_unknown_to
from ..think import Think

if TYPE_CHECKING:
    from ..agent import Agent
    from ..door.chat_stream import ChatStream, Prepared
    from ..hooks.values import TurnResult
    from ..runtime.actor import Actor
    from ..runtime.directory import Directory

__all__ = ["Handle", "address_in", "handle_of", "place_of"]

STOPS = ("cancel_chat", "abort_all_requests")
"""What stops turns at once where the agent is in memory, and once it is awaited anywhere."""
OWN = ("_below", "_cls", "_directory", "_held", "_name", "_open", "_props")


class Handle:
    """An agent from outside."""

    __slots__ = ("__weakref__", *OWN)

    def __init__(
        self,
        cls: type[Agent],
        name: str,
        props: Any,
        *,
        open: Callable[[], Awaitable[Directory]],
        directory: Callable[[], Directory | None],
        below: Address | None = None,
    ) -> None:
        self._cls, self._name, self._props, self._below = cls, name, props, below
        self._open, self._directory = open, directory
        # Whoever is inside of `async with`, and what keeps the agent in memory for them.
        self._held: list[tuple[asyncio.Task[Any] | None, Any]] = []

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._cls), *object.__dir__(self)})

    def __repr__(self) -> str:
        return f"<{self._cls.__name__} {self._name!r}>"

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._name

    @property
    def id(self) -> str:
        """The agent's address: its class and its name, below those of its parents."""
        return Address(self._cls.__name__, self._name, () if self._below is None else self._below.path).id

    async def __aenter__(self) -> Agent:
        actor = await self._reach()
        self._held.append((asyncio.current_task(), actor.hold()))
        return _agent(actor)

    async def __aexit__(self, *error: object) -> None:
        task = asyncio.current_task()
        mine = [place for place, (owner, _) in enumerate(self._held) if owner is task]
        _, hold = self._held.pop(mine[-1] if mine else -1)
        hold.release()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"A handle has no {name!r}.", name=name)
        written = inspect.getattr_static(self._cls, name, None)
        if isinstance(written, staticmethod | classmethod):
            return getattr(self._cls, name)
        if written is None and hasattr(Think, name) and not issubclass(self._cls, Think):
            raise self._missing(name)
        if name in STOPS and written is not None:
            return _named(self._stop_of(name), self, name)
        function = inspect.unwrap(cast("Any", written)) if callable(written) else None
        if inspect.isasyncgenfunction(function):
            return _named(self._pieces_of(name), self, name)
        if inspect.iscoroutinefunction(function):
            return _named(self._call_of(name), self, name)
        return getattr(self._here(name), name)

    # --- what reaches the agent wherever it is

    def _address(self, directory: Directory) -> Address:
        return directory.address(self._cls, self._name, below=self._below)

    async def _reach(self) -> Actor:
        directory = await self._open()
        return await directory.reach(self._address(directory), self._props)

    def _check(self, name: str, options: dict[str, Any]) -> None:
        if options:
            refuse_unknown_to(getattr(self._cls, name), options, f"{name}()")

    def _call_of(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            self._check(name, options)
            actor = await self._reach()
            with actor.hold():
                return await getattr(actor.agent, name)(*args, **options)

        return call

    def _pieces_of(self, name: str) -> Callable[..., Any]:
        async def pieces(*args: Any, **options: Any) -> AsyncIterator[Any]:
            self._check(name, options)
            actor = await self._reach()
            with actor.hold():
                async with aclosing(getattr(actor.agent, name)(*args, **options)) as own:
                    async for piece in own:
                        yield piece

        return pieces

    def _stop_of(self, name: str) -> Callable[..., Any]:
        def stop(*args: Any, **options: Any) -> Any:
            self._check(name, options)
            if (actor := self._live()) is not None:
                return getattr(actor.agent, name)(*args, **options)
            return _Stop(self._cls.__name__, name, self._call_of(name)(*args, **options))

        return stop

    # --- what is answered at once, here

    def _live(self) -> Actor | None:
        directory = self._directory()
        return None if directory is None else directory.live(self._address(directory))

    def _here(self, name: str) -> Agent:
        """The live agent, of which `name` is asked. Raises when it is not in memory, or has no such name."""
        cls, actor = self._cls, self._live()
        if actor is not None:
            return _agent(actor)
        annotated = (vars(base).get("__annotations__", {}) for base in cls.__mro__)
        if hasattr(cls, name) or any(name in one for one in annotated):
            is_method = callable(getattr(cls, name, None))
            raise AgentNotInMemory(self.id, name, is_method=is_method, is_own=not is_ours(_owner(cls, name)))
        raise self._missing(name)

    def _missing(self, name: str) -> AttributeError:
        cls = self._cls
        if name in ("instance", "agent"):
            return AttributeError(
                f"A handle has no {name!r}. The agent itself: `async with app.agent(…) as agent:`.", name=name
            )
        return MissingAttribute(cls, name, lambda: [*dir(cls)])

    if not TYPE_CHECKING:  # a type checker knows which names there are

        def __setattr__(self, name, value):
            if name not in OWN:
                rather = (
                    "await handle.set_state(…)"
                    if name == "state"
                    else f"async with handle as agent: agent.{name} = …"
                )
                raise AttributeError(
                    f"A handle has no {name!r} to assign: nothing would reach the agent. Write {rather}",
                    name=name,
                )
            object.__setattr__(self, name, value)


class ChatHandle(Handle):
    """One that chats, from outside."""

    __slots__ = ()

    # Methods, so that what is said of a stream which nobody reads names the one that was called.

    def chat(self, input: Any, callback: Any = None, **options: Any) -> ChatStream:
        """Answer a message, streaming."""
        return self._stream("chat", callback, input, callback, **options)

    def regenerate(self, *args: Any, **options: Any) -> ChatStream:
        """Answer again."""
        return self._stream("regenerate", None, *args, **options)

    def continue_last_turn(self, *args: Any, **options: Any) -> ChatStream:
        """Let the model go on."""
        return self._stream("continue_last_turn", None, *args, **options)

    def _stream(self, name: str, callback: Any, /, *args: Any, **options: Any) -> ChatStream:
        from ..door.chat_stream import ChatStream

        self._check(name, options)

        async def prepare() -> Prepared | TurnResult:
            own: ChatStream = getattr((await self._reach()).agent, name)(*args, **options)
            return await own.prepare()

        return ChatStream(prepare, callback, raises=name != "chat")


class _Stop:
    """A stop of an agent that is not in memory here: it happens when it is awaited."""

    __slots__ = ("_call", "_what")

    def __init__(self, cls: str, method: str, call: Awaitable[bool]) -> None:
        self._what, self._call = (cls, method), call
        if inspect.iscoroutine(call):  # what Python says of one that is never awaited should name it
            call.__name__, call.__qualname__ = method, f"{cls}.{method}"

    def __await__(self) -> Generator[Any, None, bool]:
        return self._call.__await__()

    def __bool__(self) -> bool:
        raise AgentError(
            f"{'.'.join(self._what)}() has not happened yet: the agent is not in memory here.",
            kept="Nothing was stopped.",
            next_step=f"Write await handle.{self._what[1]}(…).",
        )


def handle_of(
    cls: type[Agent],
    name: str,
    props: Any,
    *,
    open: Callable[[], Awaitable[Directory]],
    directory: Callable[[], Directory | None],
    below: Address | None = None,
) -> Handle:
    """An agent of this class from outside. One that does not chat may have a `chat` of its own."""
    kind = ChatHandle if issubclass(cls, Think) else Handle
    return kind(cls, name, props, open=open, directory=directory, below=below)


def address_in(handle: Handle, directory: Directory) -> Address:
    """The address of an agent, checked."""
    return handle._address(directory)  # pyright: ignore[reportPrivateUsage]


def place_of(handle: Handle) -> tuple[type[Agent], list[tuple[str, str]]]:
    """The class of an agent; class and name of those above it and its own, as addresses have them."""
    cls, name, above = handle._cls, handle._name, handle._below  # pyright: ignore[reportPrivateUsage]
    path = Address(cls.__name__, name, () if above is None else above.path).path
    return cls, [(kebab(cls_name), one) for cls_name, one in path]


def _owner(cls: type, name: str) -> type:
    return next((base for base in cls.__mro__ if name in vars(base)), cls)


def _agent(actor: Actor) -> Agent:
    return cast("Agent", actor.agent)


def _named(call: Callable[..., Any], handle: Handle, name: str) -> Callable[..., Any]:
    """A call under the name of its method: what Python says of one that is never awaited should name it, and
    it may be named as a callback."""
    call.__name__, call.__qualname__ = name, f"{handle._cls.__name__}.{name}"  # pyright: ignore[reportPrivateUsage]
    setattr(call, HANDLED, handle.id)
    return call
