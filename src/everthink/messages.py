"""Messages: what a conversation is made of. Plain values: no rows, no clock, no I/O.

    client, save_messages, fold --Message--> session/, turn/assemble

A part is a plain JSON object, exactly as the browser's `UIMessage` has it, so that nothing a
newer client sends is lost on the way through storage. Parts are never changed in place once
a message is stored: whoever changes one makes a new message.
"""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Literal, cast

import msgspec

from .clock import moment_of
from .errors import InvalidMessage, InvalidTurn, TooDeep
from .kinds import nearest

__all__ = [
    "DEEPEST",
    "DEEPEST_GIVEN",
    "ROLES",
    "SETTLED_STATES",
    "UNSET",
    "Message",
    "MessageInput",
    "Part",
    "Role",
    "Unset",
    "as_messages",
    "bounded_json",
    "check_parts",
    "copy_json",
    "decode_json",
    "depth_of",
    "encode_json",
    "is_settled",
    "is_tool_part",
    "json_object",
    "normalize_input",
    "parse_message",
    "parse_stored",
    "read_stored",
    "steps",
    "stored_content",
    "text_of",
    "tool_name",
    "user_message",
]


class Unset(enum.Enum):
    """The type of `UNSET`: an argument that was not given (`None` means something else)."""

    UNSET = "unset"


UNSET = Unset.UNSET
"""An argument that was not given, where `None` means something of its own."""

Role = Literal["system", "user", "assistant"]
Part = dict[str, Any]

SETTLED_STATES = frozenset({"output-available", "output-error", "output-denied"})
ROLES = frozenset({"system", "user", "assistant"})
MAX_PARTS = 10_000
DEEPEST = 160
"""So many levels of lists and objects a value may have. Interpreters give up somewhere above it, each
elsewhere: what one process stored, another must be able to read, copy and send."""
DEEPEST_GIVEN = DEEPEST - 16
"""So many a value may have that is given to us: it is stored inside of others."""


_STORED = "_stored"


class Message(msgspec.Struct, omit_defaults=True, dict=True):
    """One message of a conversation, in the browser's own shape. When it was stored is no part of that."""

    id: str
    role: Role
    parts: list[Part]
    """Text, reasoning, files, sources, tool calls, data: JSON objects, told apart by `type`."""
    metadata: dict[str, Any] | None = None
    created_text: str | None = msgspec.field(default=None, name="createdAt")
    """What whoever made the message says about when that was, as they wrote it. See `created_at`."""

    @property
    def created_at(self) -> datetime | None:
        """When it was made, as it says itself, else when it was stored. `None`: it is not stored yet."""
        with contextlib.suppress(ValueError, TypeError):
            if self.created_text is not None:
                made = datetime.fromisoformat(self.created_text)
                return made if made.tzinfo is not None else made.replace(tzinfo=UTC)
        stored: int | None = getattr(self, _STORED, None)
        return None if stored is None else moment_of(stored)

    def stored(self, at: int | Message) -> Message:
        """The message, with when it was stored: in ms since 1970, or when another one was. Never twice."""
        known: int | None = getattr(at, _STORED, None) if isinstance(at, Message) else at
        if known is not None and not hasattr(self, _STORED):
            setattr(self, _STORED, known)
        return self

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.parts)

    @property
    def tool_parts(self) -> list[Part]:
        """The parts that are tool calls, in order."""
        return [part for part in self.parts if is_tool_part(part)]

    def copy(self) -> Message:
        """A copy that shares nothing with this message."""
        return self._but(copy_json(self.parts), copy_json(self.metadata))

    def with_parts(self, parts: list[Part]) -> Message:
        """The same message with other parts. This one is left as it was."""
        return self._but(parts, self.metadata)

    def with_metadata(self, metadata: dict[str, Any] | None) -> Message:
        """The same message with other metadata. This one is left as it was."""
        return self._but(self.parts, metadata)

    def _but(self, parts: list[Part], metadata: dict[str, Any] | None) -> Message:
        return Message(self.id, self.role, parts, metadata, self.created_text).stored(self)

    def to_json(self) -> dict[str, Any]:
        """The message as plain JSON data."""
        return msgspec.to_builtins(self)


MessageInput = str | Message | Mapping[str, Any]
"""What the turn APIs take for one message: text, a `Message`, or the same as a dict."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode


def encode_json(value: Any) -> bytes:
    """Compact JSON. Text that is not valid Unicode is mended rather than refused.

    Raises `TooDeep` for what is nested too deep to be written at all.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_mend(msgspec.to_builtins(value), 0))
    except RecursionError:
        raise TooDeep(DEEPEST) from None


def bounded_json(value: Any, levels: int = DEEPEST) -> bytes:
    """Compact JSON that can be read back by whoever finds it. Raises `TooDeep` above so many levels."""
    text = encode_json(value)
    if depth_of(text) > levels:
        raise TooDeep(levels)
    return text


def decode_json(text: str | bytes, type: Any = Any) -> Any:
    """The value in a JSON text. Raises `msgspec.DecodeError` when it is none, or nested too deep."""
    try:
        if depth_of(text) > DEEPEST:
            raise msgspec.DecodeError(f"it is nested more than {DEEPEST} levels deep")
        return msgspec.json.decode(text, type=type)
    except UnicodeEncodeError as error:
        raise msgspec.DecodeError("it holds half a character") from error


_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_STRINGS = re.compile(_STRING, re.DOTALL), re.compile(_STRING.encode(), re.DOTALL)
_BRACKETS = re.compile(r"[^\[\]{}]+"), re.compile(rb"[^\[\]{}]+")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1, 0x5B: 1, 0x7B: 1, 0x5D: -1, 0x7D: -1}


_FLAT = 64
"""A text with so few brackets is flat to everybody who asks: the least of their bounds is above it."""


def depth_of(text: str | bytes) -> int:
    """How deep the lists and objects of a JSON text are nested; of one that is certainly flat, not exactly.

    A text with few brackets cannot be deep: nearly all are answered by counting those.
    """
    most = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if most <= _FLAT:
        return most
    if isinstance(text, str):
        bare: str | bytes = _BRACKETS[0].sub("", _STRINGS[0].sub("", text))
    else:
        bare = _BRACKETS[1].sub(b"", _STRINGS[1].sub(b"", text))
    return max(accumulate(_STEP[one] for one in bare), default=0)


def _mend(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        # A provider may cut an emoji between two deltas; half a surrogate cannot be stored.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if depth > DEEPEST:
        raise TooDeep(DEEPEST)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_mend(k, depth + 1): _mend(v, depth + 1) for k, v in items}
    if isinstance(value, list):
        return [_mend(v, depth + 1) for v in cast("list[Any]", value)]
    return value


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _mend(text, 0)
    return text


def copy_json(value: Any) -> Any:
    """A deep copy of plain JSON data. Raises `TooDeep` for what is nested too deep."""
    return _copied(value, 0)


_HOLDERS = (dict, list)


def _copied(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise TooDeep(DEEPEST)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {k: _copied(v, depth + 1) if isinstance(v, _HOLDERS) else v for k, v in items}
    if isinstance(value, list):
        values = cast("list[Any]", value)
        return [_copied(v, depth + 1) if isinstance(v, _HOLDERS) else v for v in values]
    return value


def json_object(value: Any, what: str) -> dict[str, Any] | None:
    """`value` (`None` stays) as a plain JSON object of our own. Raises `InvalidTurn` when it is none."""
    if value is None:
        return None
    try:
        plain = decode_json(bounded_json(value, DEEPEST_GIVEN))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError, TooDeep) as error:
        raise InvalidTurn(f"{what} is not JSON ({error}).", kept="Nothing was stored.") from error
    if not isinstance(plain, dict):
        raise InvalidTurn(f"{what} is {_kind(value)}, not an object.", kept="Nothing was stored.")
    return cast("dict[str, Any]", plain)


def text_of(parts: Iterable[Part]) -> str:
    """The text parts, joined."""
    return "".join(part.get("text", "") for part in parts if part.get("type") == "text")


def is_tool_part(part: Part) -> bool:
    """True for a tool call, named in its type (`tool-weather`) or dynamic."""
    kind = part.get("type")
    return isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool")


def tool_name(part: Part) -> str:
    """The name of the tool a part calls."""
    kind: str = part["type"]
    return str(part.get("toolName", "")) if kind == "dynamic-tool" else kind[5:]


def is_settled(part: Part) -> bool:
    """True when a tool part has its final outcome."""
    return part.get("state") in SETTLED_STATES and not part.get("preliminary")


def steps(parts: Iterable[Part]) -> list[list[Part]]:
    """The parts of each step that has begun, also of one that is still empty. The first may have no start."""
    found: list[list[Part]] = []
    for part in parts:
        if part.get("type") == "step-start":
            found.append([])
        elif found:
            found[-1].append(part)
        else:
            found.append([part])
    return found


def normalize_input(value: Any) -> dict[str, Any]:
    """The input of a call as an object: kept, parsed from JSON text, or `{}`."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            parsed = decode_json(value)
        except msgspec.DecodeError:
            return {}
        if isinstance(parsed, dict):
            return cast("dict[str, Any]", parsed)
    return {}


def user_message(text: str, *, id: str, metadata: dict[str, Any] | None = None) -> Message:
    """A user message with one text part."""
    return Message(id, "user", [{"type": "text", "text": text}], metadata)


def parse_message(value: MessageInput, *, new_id: Callable[[], str], path: str = "message") -> Message:
    """Check `value` and return it as a message of its own. Raises `InvalidMessage` with the field's path."""
    if isinstance(value, str):
        return user_message(_whole(value), id=new_id())
    if isinstance(value, Message):
        value = {
            "id": value.id,
            "role": value.role,
            "parts": value.parts,
            "metadata": value.metadata,
            "createdAt": value.created_text,
        }
    elif not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not always typed
        raise InvalidMessage(path, f"is {_kind(value)}, not an object")
    message_id = value.get("id")
    if message_id is None or message_id == "":
        message_id = new_id()
    if not isinstance(message_id, str):
        raise InvalidMessage(f"{path}.id", f"is {_kind(message_id)}, not text")
    if "\0" in message_id:
        raise InvalidMessage(f"{path}.id", "holds a NUL character")
    role = value.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidMessage(f"{path}.role", f'is {role!r}, not "user", "assistant" or "system"')
    parts = value.get("parts")
    if not isinstance(parts, Sequence) or isinstance(parts, str | bytes):
        raise InvalidMessage(f"{path}.parts", f"is {_kind(parts)}, not a list")
    checked = cast("Sequence[Any]", parts)
    if len(checked) > MAX_PARTS:
        raise InvalidMessage(f"{path}.parts", f"has {len(checked)} entries, more than {MAX_PARTS}")
    for index, part in enumerate(checked):
        _check_part(part, f"{path}.parts[{index}]")
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidMessage(f"{path}.metadata", f"is {_kind(metadata)}, not an object")
    created = value.get("createdAt")
    message: dict[str, Any] = {"id": message_id, "role": role, "parts": list(checked)}
    if metadata is not None:
        message["metadata"] = dict(cast("Mapping[str, Any]", metadata))
    if created is not None:
        message["createdAt"] = created if isinstance(created, str) else str(created)
    try:
        # The trip through JSON is the check that storage will take it, and the copy.
        return _decode(bounded_json(message, DEEPEST_GIVEN))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError, TooDeep) as error:
        raise InvalidMessage(path, f"is not JSON ({error})") from error


def _check_part(part: Any, path: str) -> None:
    if not isinstance(part, Mapping):
        raise InvalidMessage(path, f"is {_kind(part)}, not an object")
    fields = cast("Mapping[str, Any]", part)
    kind = fields.get("type")
    if not isinstance(kind, str) or not kind:
        raise InvalidMessage(f"{path}.type", f"is {_kind(kind)}, not text")
    required: tuple[str, ...] = ()
    if kind in ("text", "reasoning"):
        required = ("text",)
    elif kind == "file":
        required = ("url", "mediaType")
    elif kind == "dynamic-tool":
        required = ("toolName", "toolCallId", "state")
    elif kind.startswith("tool-"):
        required = ("toolCallId", "state")
    for field in required:
        if not isinstance(fields.get(field), str):
            raise InvalidMessage(f"{path}.{field}", f"is {_kind(fields.get(field))}, not text")
    if kind.startswith("data-") and "data" not in fields:
        raise InvalidMessage(f"{path}.data", "is missing")


# --- what only code is asked for: a client may be newer than we are, and know more


_FIELDS = ("id", "role", "parts", "metadata", "createdAt")
_REPEATED = frozenset({"content", "reasoning", "toolInvocations", "revisionId"})
"""What older chat libraries of browsers send beside the parts, which say the same."""
_PARTS = ("text", "reasoning", "file", "source-url", "source-document", "step-start", "dynamic-tool")
_PARTS_OF_MANY = ("tool-", "data-", "source-")
_ADDRESS = re.compile(r"data:|https?://[^/\s]", re.IGNORECASE)


def _check_written(value: MessageInput, path: str) -> None:
    """Refuse what no model and no page would ever be shown: a slip of the pen, not a message."""
    if isinstance(value, str):
        return
    if isinstance(value, Mapping):
        for name in value:
            if name not in _FIELDS and name not in _REPEATED:
                hint = _meant(name, _FIELDS, "A message has")
                raise InvalidMessage(f"{path}.{name}", "is no field of a message", next_step=hint)
    parts: Any = value.get("parts") if isinstance(value, Mapping) else value.parts
    for index, part in enumerate(parts):
        kind = part["type"]
        if kind not in _PARTS and not kind.startswith(_PARTS_OF_MANY):
            hint = _meant(kind, _PARTS, "Besides tool-… and data-… there are")
            raise InvalidMessage(
                f"{path}.parts[{index}].type", f"is {kind!r}, which is no kind of part", next_step=hint
            )
        if kind == "file" and not _ADDRESS.match(part["url"]):
            raise InvalidMessage(
                f"{path}.parts[{index}].url",
                f"is {part['url']!r:.60}, which no model can open",
                next_step="It takes http:, https: or data:, such as data:image/png;base64,….",
            )


def _meant(name: Any, known: Sequence[str], there_are: str) -> str:
    near = nearest(name, known) if isinstance(name, str) else None
    return f"Did you mean {near!r}?" if near else f"{there_are} {', '.join(known)}."


def _kind(value: Any) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"


class _Content(msgspec.Struct, omit_defaults=True):
    """A message without what its row says already."""

    parts: list[Part]
    metadata: dict[str, Any] | None = None
    created_text: str | None = msgspec.field(default=None, name="createdAt")


_decode_content = msgspec.json.Decoder(_Content).decode


def stored_content(message: Message) -> str:
    """What a row keeps of a message besides its id and role."""
    return bounded_json(_Content(message.parts, message.metadata, message.created_text)).decode()


def read_stored(id: str, role: str, content: str) -> Message:
    """A message as stored. Raises `InvalidMessage` when the row holds none that can be shown and sent."""
    try:
        if depth_of(content) > DEEPEST:
            raise TooDeep(DEEPEST)
        body = _decode_content(content)
    except (msgspec.DecodeError, RecursionError, UnicodeError, TypeError, TooDeep) as error:
        raise InvalidMessage("content", f"is not readable ({error})") from error
    if role not in ROLES:
        raise InvalidMessage("role", f'is {role!r:.40}, not "user", "assistant" or "system"')
    message = Message(id, cast("Role", role), body.parts, body.metadata, created_text=body.created_text)
    check_parts(message)
    return message


def check_parts(message: Message, path: str = "content") -> None:
    """Raise `InvalidMessage` unless each part has what its kind needs."""
    for index, part in enumerate(message.parts):
        # The usual ones at a glance; a long conversation has many.
        if part.get("type") in ("text", "reasoning") and type(part.get("text")) is str:
            continue
        _check_part(part, f"{path}.parts[{index}]")


def parse_stored(id: str, role: str, content: str) -> Message | None:
    """A message as stored, or `None` when the row does not hold one."""
    try:
        return read_stored(id, role, content)
    except InvalidMessage:
        return None


def as_messages(value: MessageInput | Sequence[MessageInput], *, new_id: Callable[[], str]) -> list[Message]:
    """The messages that code gave: text, one message or a list of them. A slip in one is refused."""
    if isinstance(value, str | Message | Mapping):
        return [_written(value, new_id, "message")]
    if isinstance(value, bytes | bytearray) or not isinstance(value, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not always typed
        raise InvalidMessage("message", f"is {_kind(value)}, not text, an object or a list of them")
    return [_written(item, new_id, f"messages[{i}]") for i, item in enumerate(value)]


def _written(value: MessageInput, new_id: Callable[[], str], path: str) -> Message:
    message = parse_message(value, new_id=new_id, path=path)
    _check_written(value, path)
    return message
