"""What the code of an extension may ask of its agent: every right is asked for here, by each call.

    the sandbox --verb, given--> Bridge --Permissions?--> workspace, blocks, messages, storage, guard/
                                             no: `Extension error: …`, which the code may catch

One for each loaded extension. It goes by the rights that were granted, whatever the code calls, and however:
names of functions, of other extensions and of agents that a guest sends decide nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ContextRefused, ExtensionError, WorkspaceError
from ..messages import decode_json, encode_json, text_of
from ..sandbox.port import HostRefused
from ..skill_scripts.bridge import Bridge as Files
from ..skill_scripts.rights import Rights, rules_of
from ..words import said
from .queries import StoredValues
from .values import Manifest, Origin, owned

if TYPE_CHECKING:
    from .wiring import AgentExtensions

__all__ = ["Bridge"]

LARGEST_ANSWER = 1_000_000
"""Bytes of what is told at once."""
LONGEST_MESSAGE = 100_000
LONGEST_CONTENT = 200_000


class Bridge:
    """The host of one extension."""

    def __init__(self, manifest: Manifest, home: AgentExtensions, origin: Origin) -> None:
        """`origin`: whose its values are."""
        self._name, self._labels, self._may = manifest.name, manifest.labels, manifest.permissions
        self._home = home
        self._origin: Origin = origin
        self._network = rules_of(self._may.network) if self._may.network else None
        self._verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "read_file": self._read_file,
            "list_files": self._list_files,
            "write_file": self._write_file,
            "delete_file": self._delete_file,
            "get_context": self._get_context,
            "set_context": self._set_context,
            "get_messages": self._get_messages,
            "send_message": self._send_message,
            "get_session_info": self._get_session_info,
            "get_value": self._get_value,
            "set_value": self._set_value,
            "delete_value": self._delete_value,
            "list_values": self._list_values,
            "fetch": self._fetch,
        }

    async def call(self, verb: str, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Do what it asks for, if it may. Raises in words for it."""
        found = self._verbs.get(verb)
        if found is None:
            raise ExtensionError(f"Extension error: there is no host function {said(verb, 80)!r}.")
        try:
            return await found(*given, **named)
        except HostRefused as refused:
            raise ExtensionError(f"Extension error: {refused}") from refused
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise ExtensionError(f"Extension error: {verb} is not asked like this.") from None
            raise

    def _need(self, may: bool, right: str, instead: str = "") -> None:
        if not may:
            raise ExtensionError(
                f"Extension error: {self._name!r} has no permission for {right}.",
                next_step=instead or "Its manifest has to ask for it, and somebody has to grant it.",
            )

    # --- the workspace

    async def _read_file(self, path: Any) -> str | None:
        self._need(self._may.workspace != "none", "workspace read")
        return await self._files().read_file(path)

    async def _list_files(self, folder: Any = "/") -> list[dict[str, Any]]:
        self._need(self._may.workspace != "none", "workspace read")
        return await self._files().list_files(folder)

    async def _write_file(self, path: Any, content: Any) -> bool:
        self._need(self._may.workspace == "read-write", "workspace write")
        await self._files().write_file(path, content)
        return True

    async def _delete_file(self, path: Any) -> bool:
        self._need(self._may.workspace == "read-write", "workspace write")
        try:
            return await self._home.workspace.delete_file(_text("path", path))
        except WorkspaceError:
            return False  # a folder that is not empty, or no path at all

    def _files(self) -> Files:
        rights = Rights(workspace=self._may.workspace, files=self._home.workspace, network=self._network)
        return Files(rights, {}, None)

    # --- context blocks

    async def _get_context(self, label: Any) -> str | None:
        self._need(
            self._sees(self._may.context.read, label),
            f"context read of {said(label, 100)!r}",
            self._own(label),
        )
        context = self._home.session.context
        await context.load()
        block = context.get_block(label)
        return None if block is None else block.content

    async def _set_context(self, label: Any, content: Any) -> bool:
        self._need(
            self._sees(self._may.context.write, label),
            f"context write of {said(label, 100)!r}",
            self._own(label),
        )
        text = _text("content", content, LONGEST_CONTENT)
        try:
            await self._home.write_block(label, text, is_owner=self._owns(label))
        except ContextRefused as refused:
            raise ExtensionError(f"Extension error: {refused}") from refused
        return True

    def _own(self, label: Any) -> str:
        """What to do about the label of a block of its own without the prefix of the extension."""
        full = [one for one in self._labels if isinstance(label, str) and one.endswith(f"_{label}")]
        return f"Its own block is called {full[0]!r}." if full else ""

    def _sees(self, labels: str | tuple[str, ...], label: Any) -> bool:
        if not isinstance(label, str):
            return False
        match labels:
            case "all":
                return True
            case "own":
                return self._owns(label)
            case _:
                return label in labels

    def _owns(self, label: str) -> bool:
        return label in self._labels and self._home.owns(label)

    # --- the conversation

    async def _get_messages(self, limit: Any = None) -> list[dict[str, Any]]:
        self._need(self._may.messages == "read", "messages read")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
            raise ExtensionError("Extension error: limit is a number, or left out for all messages.")
        session = self._home.session
        await session.refresh()
        path = list(session.path)
        if limit is not None:
            path = path[-int(limit) :] if limit >= 1 else []
        told = [{"id": one.id, "role": one.role, "content": text_of(one.parts)} for one in path]
        return self._bounded(told, "Ask for fewer messages: getMessages(20).")

    async def _send_message(self, content: Any) -> bool:
        self._need(self._may.session.send_message, "session sendMessage")
        text = _text("content", content, LONGEST_MESSAGE)
        if not text.strip():
            raise ExtensionError("Extension error: a message has something in it.")
        await self._home.add_message(text)
        return True

    async def _get_session_info(self) -> dict[str, Any]:
        self._need(self._may.session.metadata, "session metadata")
        session = self._home.session
        await session.refresh()
        return {"messageCount": len(session.path)}

    # --- values of its own

    def _values(self) -> StoredValues:
        self._need(self._may.storage, "storage")
        return StoredValues(self._home.store, owned(self._name, self._origin))

    async def _get_value(self, key: Any) -> Any:
        found = await self._values().get(_key(key))
        return None if found is None else decode_json(found)

    async def _set_value(self, key: Any, value: Any = None) -> bool:
        values, name = self._values(), _key(key)
        written = encode_json(value).decode()
        if len(written) > values.LARGEST:
            raise ExtensionError(
                f"Extension error: a value has {len(written):,} characters, and may have {values.LARGEST:,}."
            )
        sizes = await values.sizes() | {name: len(written)}
        if len(sizes) > values.MOST or sum(sizes.values()) > values.LARGEST_ALL:
            raise ExtensionError(
                f"Extension error: it would keep more than {values.MOST:,} values or {values.LARGEST_ALL:,}"
                " characters.",
                kept="Nothing was written.",
                next_step="Delete some first.",
            )
        await values.set(name, written)
        return True

    async def _delete_value(self, key: Any) -> bool:
        return await self._values().delete(_key(key))

    async def _list_values(self) -> list[str]:
        return sorted(await self._values().sizes())

    # --- the web

    async def _fetch(self, url: Any, options: Any = None) -> dict[str, Any]:
        self._need(self._network is not None, f"network access to {said(url, 200)!r}")
        return await self._files().fetch(url, options)

    def _bounded(self, value: Any, next_step: str) -> Any:
        if (size := len(encode_json(value))) > LARGEST_ANSWER:
            raise ExtensionError(
                f"Extension error: this would be {size:,} bytes, and {LARGEST_ANSWER:,} are told at once.",
                next_step=next_step,
            )
        return value


def _text(name: str, value: Any, longest: int = LARGEST_ANSWER) -> str:
    if not isinstance(value, str):
        raise ExtensionError(f"Extension error: {name} is a text, and not {type(value).__name__}.")
    if len(value) > longest:
        raise ExtensionError(
            f"Extension error: {name} has {len(value):,} characters, and may have {longest:,}."
        )
    return value


def _key(key: Any) -> str:
    text = _text("key", key, StoredValues.LONGEST_KEY)
    if not text or "\0" in text:
        raise ExtensionError("Extension error: a key has something in it, and no U+0000.")
    return text
