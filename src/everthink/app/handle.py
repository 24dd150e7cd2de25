"""`Handle`: an agent from outside, as `app.agent(Assistant, "room-1")` gives it.

    handle.save_messages("hi") --> Directory.reach --> the live agent, started if need be

It holds no agent: every call reaches it anew, so that a handle outlives an agent that leaves memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..surface import MissingAttribute, refuse_unknown_to
from ..think import Think

if TYPE_CHECKING:
    from ..door.chat_stream import ChatStream, Prepared
    from ..hooks.values import TurnResult
    from ..messages import Message
    from ..runtime.directory import Directory

__all__ = ["Handle"]

T = TypeVar("T", bound=Think)


class Handle(Generic[T]):
    """An agent from outside. Every method of the agent is here and is awaited:
    `await handle.save_messages("hi")`, also the ones you add yourself."""

    __slots__ = ("__weakref__", "_cls", "_name", "_open", "_props")

    def __init__(self, open: Callable[[], Awaitable[Directory]], cls: type[T], name: str, props: Any) -> None:
        self._open, self._cls, self._name, self._props = open, cls, name, props

    def __repr__(self) -> str:
        return f"<{self._cls.__name__} {self._name!r}>"

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._name

    async def instance(self) -> T:
        """The live agent itself, for tests and tools of your own. It may leave memory later."""
        actor = await (await self._open()).reach(self._cls, self._name, self._props)
        return actor.agent  # type: ignore[return-value] - the directory keeps classes and instances together

    def chat(self, input: Any, callback: Any = None, **options: Any) -> ChatStream:
        """Answer a message, streaming. See `Think.chat`."""
        return self._stream("chat", callback, input, callback, **options)

    def regenerate(self, message_id: str | None = None, **options: Any) -> ChatStream:
        """Answer again. See `Think.regenerate`."""
        return self._stream("regenerate", None, message_id, **options)

    def continue_last_turn(self, body: dict[str, Any] | None = None, **options: Any) -> ChatStream:
        """Let the model go on. See `Think.continue_last_turn`."""
        return self._stream("continue_last_turn", None, body, **options)

    def _stream(self, method: str, callback: Any, /, *args: Any, **options: Any) -> ChatStream:
        from ..door.chat_stream import ChatStream

        if options:
            refuse_unknown_to(getattr(self._cls, method), options, f"{method}()")

        async def prepare() -> Prepared | TurnResult:
            stream: ChatStream = getattr(await self.instance(), method)(*args, **options)
            return await stream.prepare()

        return ChatStream(prepare, callback, raises=method != "chat")

    async def messages(self) -> list[Message]:
        """The conversation, as copies."""
        return await (await self.instance()).get_messages()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or not callable(getattr(self._cls, name, None)):
            raise self._no_method(name)

        method = getattr(self._cls, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                refuse_unknown_to(method, kwargs, f"{name}()")
            agent = await self.instance()
            with agent.keep_alive():
                result = getattr(agent, name)(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result

        # What Python says of one that is never awaited should name it.
        call.__name__, call.__qualname__ = name, f"{self._cls.__name__}.{name}"
        return call

    def _no_method(self, name: str) -> AttributeError:
        cls = self._cls
        if hasattr(cls, name) and not name.startswith("_"):
            return AttributeError(
                f"{cls.__name__}.{name} is no method, and a handle has methods only."
                f" Read it from the agent itself: (await handle.instance()).{name}"
            )
        return MissingAttribute(
            f"{cls.__name__} has no method to call through a handle:",
            name,
            lambda: [*dir(Handle), *(one for one in dir(cls) if callable(getattr(cls, one, None)))],
        )

    if not TYPE_CHECKING:  # a type checker knows which names there are

        def __setattr__(self, name, value):
            if name not in self.__slots__:
                rather = (
                    "await handle.set_state(…)"
                    if name == "state"
                    else f"(await handle.instance()).{name} = …"
                )
                raise AttributeError(
                    f"A handle has no {name!r} to assign: nothing would reach the agent. Write {rather}",
                    name=name,
                )
            object.__setattr__(self, name, value)
