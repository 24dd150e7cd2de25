"""An extension as a class of Python, in this process: what a package brings along, and an app trusts.

    class Words(TrustedExtension)  --of(agent)-->  TrustedLoaded --attach--> ExtensionManager

The same names, order, hooks and time limits as of code in a sandbox, without the sandbox: it may do whatever
the process may. So nothing is loaded that nobody has named (`packages.py`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, cast

from ..calling import awaited
from ..errors import ExtensionError, InvalidSettings, ToolError
from ..hooks.values import TurnConfig
from ..settings import nearest, snake
from ..tools.collect import tools_of
from ..tools.tool import Tool
from ..words import said
from .sandboxed import LOGGED, TOOLS
from .values import HOOKS, ContextBlockInfo, HookName, Manifest, Origin

__all__ = ["TrustedExtension", "TrustedLoaded", "check_options", "manifest_of"]

log = logging.getLogger("everthink.extensions")

BEGINNING, ENDING = 30.0, 5.0
"""Seconds that `on_load` and `on_unload` may take."""
_OWN = ("on_load", "on_unload")
_LOOKS_LIKE_A_HOOK = re.compile(r"(before|after|on)(_|[A-Z])")


class TrustedExtension:
    """Tools and hooks for agents that name it, in this process and with all its rights.

        class Words(TrustedExtension):
            '''Counts words.'''

            @tool
            async def count(self, text: str) -> int:
                '''Count the words of a text.'''
                return len(text.split())

            async def after_tool_call(self, call):
                self.log(f"{call['tool_name']} took {call['duration_ms']} ms")

    One is made for each agent, with the options that it is named with: `installed("words", limit=3)` calls
    `Words(limit=3)`. The hooks are `before_turn`, `before_tool_call`, `after_tool_call`, `on_step_finish` and
    `on_chunk`; each gets what extensions in a sandbox get. Only what `before_turn` returns counts.
    """

    version: ClassVar[str | None] = None
    """By default that of its package."""
    context: ClassVar[Sequence[ContextBlockInfo | Mapping[str, Any]]] = ()
    """Context blocks that it brings along."""
    agent: Any = None
    """The agent that has it, from `on_load` on."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            if not inspect.isfunction(value) or name in HOOKS or name in _OWN:
                continue
            near = nearest(snake(name), (*HOOKS, *_OWN))
            if _LOOKS_LIKE_A_HOOK.match(name) or (near and name[:2] == near[:2]):
                raise InvalidSettings(
                    f"{cls.__name__}.{name} is no hook of extensions.",
                    next_step=f"Did you mean {near!r}?" if near else f"They hear: {', '.join(HOOKS)}.",
                )

    def on_load(self) -> Awaitable[None] | None:
        """Begin. Raising: the agent serves without it."""

    def on_unload(self) -> Awaitable[None] | None:
        """End: it was unloaded, or its agent leaves memory."""

    def log(self, *words: object) -> None:
        """Say something to whoever looks after the app: in the log, and on the page."""
        line = said(" ".join(map(str, words)))
        self.printed.append(line)
        log.info("%s: %s", type(self).__name__, line)

    @property
    def printed(self) -> deque[str]:
        """The last lines that it has said."""
        found = self.__dict__.get("_printed")
        if found is None:
            found = self.__dict__["_printed"] = deque[str](maxlen=LOGGED)
        return found


def manifest_of(cls: type[TrustedExtension], name: str, version: str | None) -> Manifest:
    """What an extension says of itself. `version`: that of its package."""
    described = inspect.cleandoc(vars(cls).get("__doc__") or "").partition("\n")[0]
    return Manifest(
        name=name,
        version=cls.version or version or "0",
        description=said(described),
        tools=tuple(tools_of(cls)),
        hooks=_hooks(cls),
        context=cast("Any", tuple(cls.context)),
    )


def _hooks(cls: type[TrustedExtension]) -> tuple[HookName, ...]:
    return tuple(name for name in HOOKS if callable(getattr(cls, name, None)))


def _idle(cls: type[TrustedExtension], manifest: Manifest) -> tuple[str, ...]:
    """A note on an extension that adds nothing, with the method that was meant to be a tool."""
    does_something = cls.on_load is not TrustedExtension.on_load
    if manifest.tools or manifest.hooks or manifest.context or does_something:
        return ()
    own = [
        name for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("_")
    ]
    meant = f". Is {own[0]}() a tool? Then write @tool above it" if own else ""
    return (f"it has neither a tool, a hook nor a context block{meant}",)


class TrustedLoaded:
    """A trusted extension of one agent, as its manager uses it."""

    def __init__(self, extension: TrustedExtension, manifest: Manifest) -> None:
        self._of, self._manifest = extension, manifest
        self._is_closed = False
        self._tools = {name: self._tool(tool) for name, tool in tools_of(type(extension)).items()}
        self.notes = _idle(type(extension), manifest)
        """What it has and what is not used, in words."""
        for note in self.notes:
            log.warning("the extension %r: %s", manifest.name, note)

    @classmethod
    async def begun(
        cls,
        kind: type[TrustedExtension],
        options: Mapping[str, Any],
        agent: Any,
        *,
        name: str,
        version: str | None,
    ) -> TrustedLoaded:
        """Make one for an agent. Raises `ExtensionError` with what its code raised."""
        manifest = manifest_of(kind, name, version)
        made = _made(kind, options, name)
        made.agent = agent
        one = cls(made, manifest)
        try:
            async with asyncio.timeout(BEGINNING):
                await awaited(made.on_load())
        except TimeoutError as error:
            raise ExtensionError(
                f"The extension {name!r} could not begin: on_load took longer than {BEGINNING:g} s."
            ) from error
        except (Exception, SystemExit) as error:
            raise ExtensionError(
                f"The extension {name!r} could not begin: {said(f'{type(error).__name__}: {error}')}"
            ) from error
        return one

    @property
    def manifest(self) -> Manifest:
        """What it says of itself."""
        return self._manifest

    @property
    def origin(self) -> Origin:
        """A package."""
        return "package"

    @property
    def hooks(self) -> frozenset[HookName]:
        """The hooks that it hears."""
        return frozenset(_hooks(type(self._of)))

    @property
    def printed(self) -> deque[str]:
        """The last lines that it has said."""
        return self._of.printed

    def tools(self) -> Mapping[str, Tool]:
        """Its tools by their own names."""
        return self._tools

    async def hook(self, name: HookName, snapshot: Mapping[str, Any]) -> Any:
        """Let it see what happens."""
        answer = await awaited(getattr(self._of, name)(snapshot))
        return _config(answer) if name == "before_turn" else None

    async def chunks(self, snapshots: Sequence[Mapping[str, Any]]) -> None:
        """Let `on_chunk` see pieces of the answer."""
        for snapshot in snapshots:
            await self.hook("on_chunk", snapshot)

    async def close(self) -> None:
        """Whoever still has a tool of it is refused."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            async with asyncio.timeout(ENDING):
                await awaited(self._of.on_unload())
        except Exception:
            log.exception("on_unload of the extension %r failed", self._manifest.name)

    def _tool(self, tool: Tool) -> Tool:
        if not tool.has_body:
            raise ExtensionError(
                f"The tool {tool.name!r} of the extension {self._manifest.name!r} runs in the browser.",
                next_step="Give the agent itself such tools; those of extensions run on the server.",
            )
        found = tool.bind(self._of).guarded(self._check)
        found.origin = TOOLS
        return found

    def _check(self) -> None:
        if self._is_closed:
            raise ToolError(f"The extension {self._manifest.name!r} has been unloaded.")


def check_options(kind: type[TrustedExtension], options: Mapping[str, Any], name: str, where: str) -> None:
    """Raise `InvalidSettings` for options that an extension does not take. Nothing of it is run."""
    signature = inspect.signature(kind)
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(signature.parameters)
        wrong = [option for option in options if option not in signature.parameters]
        near = [one for option in wrong if (one := nearest(option, signature.parameters))]
        raise InvalidSettings(
            f"installed({name!r}){where}: {error}.",
            next_step=f"Did you mean {near[0]!r}?"
            if near
            else f"It takes: {takes}."
            if takes
            else "It takes no options.",
        ) from None


def _made(kind: type[TrustedExtension], options: Mapping[str, Any], name: str) -> TrustedExtension:
    check_options(kind, options, name, "")
    try:
        return kind(**options)
    except Exception as error:
        if isinstance(error, InvalidSettings):
            raise
        raise ExtensionError(
            f"The extension {name!r} could not be made: {said(f'{type(error).__name__}: {error}')}"
        ) from error


def _config(answer: Any) -> Any:
    """What `before_turn` says, as a mapping."""
    if isinstance(answer, TurnConfig) and is_dataclass(answer):
        found = {one.name: getattr(answer, one.name) for one in fields(answer)}
        return {name: value for name, value in found.items() if value is not None}
    return answer
