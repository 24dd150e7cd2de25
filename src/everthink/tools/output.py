"""What a tool returned, as JSON, and as the model is shown it.

    body --value--> jsonable --JSON--> the ledger, the message, the screen
                                  --> model_output --> the next prompt

`jsonable` either gives plain JSON that every later encoder takes, or an error for whoever wrote
the tool. It copies: a tool that goes on changing its list changes nothing here.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import inspect
import logging
import math
import os
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence, Set, ValuesView
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from ..calling import awaited
from ..errors import InvalidSettings, ToolOutputError
from ..models.port import FilePart, TextPart
from ..settings import shown

if TYPE_CHECKING:
    from .context import ToolContext
    from .tool import Tool

__all__ = ["ModelOutput", "awaited_output", "jsonable", "model_output"]

log = logging.getLogger("everthink.tools")

_DEEPEST = 100
_MEANT = (
    "text",
    "file",
    "image",
    "image_url",
    "image-data",
    "file-data",
    "media",
    "input_text",
    "input_image",
)
"""The types of parts here and elsewhere."""
_SMALLEST_INT, _LARGEST_INT = -(2**63), 2**64 - 1
_LONGEST_INT = 13_200
"""Bits of the longest whole number that is written: Python writes none of more than 4,300 digits."""


_KEPT = {
    None: "The call ran; its result was not stored.",
    "before_tool_call": "The tool was not run.",
    "to_model_output": "The result is stored, and the model sees it as it is.",
    "get_agent_tool_output": "What the child said is stored.",
}
"""What became of the call, by whose answer it was that cannot be used."""


class ModelOutput(NamedTuple):
    """The two fields of a `ToolResultPart` that say what a call gave."""

    output: Any
    """Text or a JSON value."""
    content: list[TextPart | FilePart] | None = None
    """Text and files, for models that take them as a tool's answer."""


def jsonable(value: Any, *, tool: Tool | str, by: str | None = None, is_exact: bool = False) -> Any:
    """`value` as plain JSON. Raises `ToolOutputError` when it has none.

    `by`: the hook or option that gave it, in the place of what the tool would have returned. `is_exact`:
    whole numbers of any size stay numbers, for code that computes with them; else large ones are text.
    """
    try:
        return _plain(value, 0, is_exact)
    except Exception as error:  # noqa: BLE001 - reading a foreign value runs foreign code
        problem = error if isinstance(error, _NotPlain) else _unreadable(error)
        name = tool if isinstance(tool, str) else tool.name
        raise ToolOutputError(
            f"{f'{by} of tool' if by else 'Tool'} {name!r} returned something that is not JSON: "
            f"{_text(f'result{_path(problem.path)} {problem.what}')}.",
            kept=_KEPT[by],
            next_step=problem.instead,
        ) from problem.__cause__


def model_output(tool: Tool | None, value: Any) -> ModelOutput:
    """What the model is shown of the stored result `value`: what `to_model_output` makes of it, or itself.
    One that is async or wants the context is asked by `awaited_output`."""
    if tool is None or tool.to_model_output is None or tool.view_waits:
        return ModelOutput(value)
    try:
        return _checked(tool, value, tool.to_model_output(value))
    except Exception as error:  # noqa: BLE001 - the result is stored; a bad view of it must not lose it
        return _failed(tool, value, error)


async def awaited_output(tool: Tool | None, value: Any, context: ToolContext) -> ModelOutput:
    """The same of every tool."""
    if tool is None or tool.to_model_output is None or not tool.view_waits:
        return model_output(tool, value)
    try:
        given = (value, context) if tool.view_takes_context else (value,)
        return _checked(tool, value, await awaited(tool.to_model_output(*given)))
    except Exception as error:  # noqa: BLE001 - see above
        return _failed(tool, value, error)


def _checked(tool: Tool, value: Any, view: Any) -> ModelOutput:
    if view is None and value is not None:
        raise InvalidSettings(
            "It returned None.", next_step='Return what the model is to see; "" for nothing.'
        )
    return _shown(view, tool)


def _failed(tool: Tool, value: Any, error: Exception) -> ModelOutput:
    log.warning("to_model_output of tool %r failed, the model sees the plain result: %r", tool.name, error)
    return ModelOutput(value)


# --- plain JSON ----------------------------------------------------------------------------


class _NotPlain(Exception):
    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what)
        self.what, self.instead = what, instead
        self.path: list[str] = []


def _plain(value: Any, depth: int, is_exact: bool) -> Any:
    kind = cast("Any", type(value))
    if value is None or kind is bool:
        return value
    if kind is str:
        return _text(value)
    if kind is int:
        return _number(value, is_exact)
    if kind is float:
        return _finite(value)
    if depth > _DEEPEST:
        raise _NotPlain(
            f"is nested more than {_DEEPEST} levels deep, or contains itself",
            "Return a flatter value without cycles.",
        )
    if kind is list or kind is tuple:
        return _items(value, depth, is_exact)
    if kind is dict:
        return _members(value, depth, is_exact)
    return _converted(value, depth, is_exact)


def _path(steps: list[str]) -> str:
    path = steps[::-1]
    return "".join(path if len(path) <= 12 else [*path[:8], "…", path[-1]])


def _converted(value: Any, depth: int, is_exact: bool) -> Any:
    """Values that are not JSON but have an obvious JSON form."""
    if isinstance(value, enum.Enum):
        return _plain(value.value, depth + 1, is_exact)
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int):
        return _number(int.__int__(value), is_exact)
    if isinstance(value, float):
        return _finite(float.__float__(value))
    if isinstance(value, (datetime.date, datetime.time)):
        written = value.isoformat()
        return f"{written[:-6]}Z" if written.endswith("+00:00") else written
    if isinstance(value, datetime.timedelta):
        return msgspec.to_builtins(datetime.timedelta(value.days, value.seconds, value.microseconds))
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return _plain(float(value), depth, is_exact) if not value.is_finite() else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise _NotPlain(
            f"is {type(cast('Any', value)).__name__}",
            "Return text (`.decode()`), or a `data:` URL with base64 for binary content.",
        )
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(cast("os.PathLike[Any]", value)), depth + 1, is_exact)
    if not isinstance(value, type):
        kind = cast("Any", type(value))
        if hasattr(kind, "model_dump"):  # pydantic, not imported for this
            return _plain(_foreign(lambda: value.model_dump(mode="json")), depth + 1, is_exact)
        if isinstance(value, msgspec.Struct):
            return _plain(_foreign(lambda: _struct(value, depth, is_exact)), depth + 1, is_exact)
        if dataclasses.is_dataclass(value):
            return _members(
                {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, depth, is_exact, "."
            )
    if isinstance(value, tuple) and hasattr(cast("Any", value), "_fields"):
        return _members(cast("Any", value)._asdict(), depth, is_exact, ".")
    if isinstance(value, Mapping):
        return _members(cast("Mapping[Any, Any]", value), depth, is_exact)
    if isinstance(value, Set):
        return _items(_sorted(cast("Set[Any]", value)), depth, is_exact)
    if isinstance(value, (Sequence, ValuesView)):
        return _items(list(cast("Any", value)), depth, is_exact)
    if type(cast("Any", value)).__module__ == "numpy" and hasattr(value, "tolist"):
        return _plain(cast("Any", value).tolist(), depth + 1, is_exact)
    raise _unknown(value)


def _items(values: Sequence[Any], depth: int, is_exact: bool) -> list[Any]:
    made: list[Any] = []
    for item in values:
        try:
            made.append(_plain(item, depth + 1, is_exact))
        except _NotPlain as problem:
            problem.path.append(f"[{len(made)}]")
            raise
    return made


def _members(values: Mapping[Any, Any], depth: int, is_exact: bool, dot: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, item in values.items():
        try:
            name = _text(key) if type(key) is str else _key(key)
            if name in made:
                raise _NotPlain("has two keys that become the same text", "Return keys that differ as text.")
            made[name] = _plain(item, depth + 1, is_exact)
        except _NotPlain as problem:
            problem.path.append(f".{key}" if dot else f"[{key!r}]")
            raise
    return made


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        return _key(key.value)
    if isinstance(key, str):
        return _text(str.__str__(key))
    if isinstance(key, int) and not isinstance(key, bool):
        return str(int(key))
    raise _NotPlain(
        f"has a key of type {type(key).__name__}",
        "Return objects whose keys are text, for example `str(key)`.",
    )


def _text(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair: no encoder takes it. Pairs are joined, halves replaced.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _number(number: int, is_exact: bool) -> int | str:
    if number.bit_length() > _LONGEST_INT:
        raise _NotPlain("is a whole number of more than 4,000 digits", "Return it in parts, or less exactly.")
    # Whoever reads a message may stop at 64 bits; as text nothing is lost.
    return number if is_exact or _SMALLEST_INT <= number <= _LARGEST_INT else str(number)


def _finite(number: Any) -> Any:
    if not math.isfinite(number):
        raise _NotPlain(f"is {number}, and JSON has no such number", "Return None or text instead.")
    return number


def _sorted(values: Set[Any]) -> list[Any]:
    # A set has no order; a stable one keeps prompts the same from run to run.
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


def _struct(value: msgspec.Struct, depth: int, is_exact: bool) -> Any:
    return msgspec.to_builtins(
        value, builtin_types=(bytes, bytearray), enc_hook=lambda inner: _plain(inner, depth + 1, is_exact)
    )


def _foreign(dump: Any) -> Any:
    """Let a library write its own value, and tell its complaint as ours."""
    try:
        return dump()
    except _NotPlain:
        raise
    except Exception as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> _NotPlain:
    problem = _NotPlain(f"cannot be read: {error!r:.200}", "Return values that have a JSON form.")
    problem.__cause__ = error
    return problem


def _unknown(value: Any) -> _NotPlain:
    kind = cast("Any", type(value))
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    instead = "Return text, numbers, lists, dicts, dataclasses or pydantic models."
    if isinstance(value, AsyncIterator):
        instead = "Return a list: `[item async for item in ...]`."
    elif isinstance(value, Iterator):
        instead = "Return `list(...)` of it."
    elif inspect.isawaitable(value):
        instead = "Await it before returning."
    elif isinstance(value, BaseException):
        instead = "Raise it, or return `str(error)`."
    elif hasattr(kind, "tolist"):
        instead = "Return its `.tolist()`."
    elif hasattr(kind, "to_dict"):
        instead = "Return its `.to_dict()`, with plain values inside."
    return _NotPlain(f"is of type {name}", instead)


# --- the model's view ----------------------------------------------------------------------


def _shown(view: Any, tool: Tool) -> ModelOutput:
    if isinstance(view, (TextPart, FilePart)):
        view = [view]
    if isinstance(view, list) and view:
        parts = [_part(one) for one in cast("list[Any]", view)]
        content = [part for part in parts if part is not None]
        if len(content) == len(parts):
            return ModelOutput("\n".join(_in_words(part) for part in content), content)
        _check_meant(cast("list[Any]", view), parts)
    return ModelOutput(jsonable(view, tool=tool, by="to_model_output"))


def _check_meant(view: list[Any], parts: list[TextPart | FilePart | None]) -> None:
    """Raise when a list was meant as text and files and something in it is neither. Other lists are data."""
    kinds = [cast("Any", one).get("type") if isinstance(one, dict) else None for one in view]
    if any(parts) or all(kind in _MEANT for kind in kinds):
        raise InvalidSettings(
            f"It returned {shown(view[parts.index(None)])}, which is no part that a model takes.",
            next_step='There are {"type": "text", "text": …} and {"type": "file", "url": …, "mediaType": …}.',
        )


def _part(one: Any) -> TextPart | FilePart | None:
    if isinstance(one, TextPart):
        return TextPart(_text(one.text), one.provider_metadata)
    if isinstance(one, FilePart):
        return one
    if not isinstance(one, dict):
        return None
    found = cast("dict[str, Any]", one)
    match found:
        case {"type": "text", "text": str(text)}:
            return TextPart(_text(text))
        case {"type": "file"}:
            return _file(found)
        case _:
            return None


def _file(found: dict[str, Any]) -> FilePart | None:
    media_type = found.get("media_type") or found.get("mediaType")
    url, data, filename = found.get("url"), found.get("data"), found.get("filename")
    if not isinstance(media_type, str):
        return None
    if isinstance(data, bytes):
        data = base64.b64encode(data).decode()
    if not isinstance(url, str) and isinstance(data, str):
        url = data if data.startswith(("data:", "https:", "http:")) else f"data:{media_type};base64,{data}"
    if not isinstance(url, str):
        return None
    return FilePart(url=url, media_type=media_type, filename=filename if isinstance(filename, str) else None)


def _in_words(part: TextPart | FilePart) -> str:
    """For models that take only text as a tool's answer."""
    return part.text if isinstance(part, TextPart) else f"[file: {part.filename or part.media_type}]"
