"""How the demo model picks a tool and fills in its input.

    what was said, tools --> calls_for --> calls
    a JSON schema, what was said --> instance --> a value that follows it

Plain rules on words: a tool is picked when its name is in the message or enough of its
description is; numbers, quoted text, names after "in" or "to" become the input. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from .port import ToolSpec

__all__ = ["Call", "calls_for", "instance"]

_COMMON = frozenset(
    re.findall(
        r"[\w']+",
        """a an and are as at be by can could do does for from get give has have hey how i in into is it its
        let make me my need of on or our out please so tell that the their them then there these they this
        to tool use up us want was we what when where which who will with would you your it's what's""",
    )
)
# A verb that many messages contain by chance: it needs a second reason.
_VERBS = frozenset(
    re.findall(
        r"\w+",
        "add bash call create delete edit execute fetch find grep list load move open read remove run save "
        "search send set show start stop think update write",
    )
)
_AFTER = re.compile(
    r"\b(?:in|at|to|for|from|of|about|near|called|named|on|with|is)\s+"
    r"((?:(?!(?:in|at|to|for|from|of|about|near|and|on|with|please|now|today|tomorrow)\b)[\w'-]+\s?){1,3})",
    re.IGNORECASE,
)
_NAMES = re.compile(r"\b[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*")
_QUOTED = re.compile(r"[\"“«]([^\"”»]+)[\"”»]|(?<!\w)'([^']+)'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w])")
_SUM = re.compile(r"[\d(][\d\s.+\-*/^()%]*[\d)]")
_FORMATS = {
    "email": (re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+"), "ada@example.com"),
    "uri": (re.compile(r"https?://\S+"), "https://example.com"),
    "date": (re.compile(r"\d{4}-\d\d-\d\d"), "2030-01-01"),
    "date-time": (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z?"), "2030-01-01T12:00:00Z"),
    "time": (re.compile(r"\d\d:\d\d(?::\d\d)?"), "12:00:00"),
    "uuid": (
        re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
        "00000000-0000-4000-8000-000000000000",
    ),
}
_WHOLE_TEXT = frozenset(
    re.findall(
        r"\w+",
        "body content description input instruction message note prompt q query question search task text "
        "thing title topic",
    )
)
_REST = re.compile(r"\b(?:for|about|saying|that says|regarding|:)\s+(.+?)[?.!]*$", re.IGNORECASE)
_PATH = re.compile(r"[\w./-]*\w\.\w{1,5}\b|/[\w./-]+")
# A schema may ask for a million of something: a browser wrote it.
_MOST_ITEMS, _LONGEST = 20, 2000


@dataclass(frozen=True)
class Call:
    """A tool to call and what to give it."""

    name: str
    input: dict[str, Any]


def calls_for(text: str, tools: Sequence[ToolSpec], choice: str = "auto") -> list[Call]:
    """The calls a message asks for: none, one, or several at once."""
    if choice.startswith("tool:"):
        return [Call(t.name, _input(t, text)) for t in tools if t.name == choice.removeprefix("tool:")]
    scored = sorted(((_score(tool, text), tool) for tool in tools), key=lambda pair: -pair[0])
    if choice == "auto":
        # The tools of memory speak about everything: they have rules of their own (demo_memory.py).
        scored = [pair for pair in scored if not pair[1].name.endswith("_context") or pair[1].name in text]
    if choice == "required" and scored:
        return [Call(scored[0][1].name, _input(scored[0][1], text))]
    if not scored or scored[0][0] < 2:
        return []
    best = [tool for score, tool in scored if score >= max(3, scored[0][0] / 2)][:3] or [scored[0][1]]
    if len(best) > 1:
        return [Call(tool.name, _input(tool, text)) for tool in best]
    return _one_each(best[0], text)


def instance(schema: dict[str, Any], text: str = "") -> Any:
    """A value that follows `schema`, with what the text has to offer."""
    return _Filler(schema, text).value(schema, "", complete=True)


def _one_each(tool: ToolSpec, text: str) -> list[Call]:
    """ "Weather in Paris and Rome" is two calls when one input is all the tool needs."""
    required = cast("list[str]", tool.input_schema.get("required") or [])
    names = [name for name in _NAMES.findall(text) if not text.startswith(name)]
    if len(required) == 1 and len(names) > 1 and re.search(r"\band\b|,", text):
        kind = cast("dict[str, Any]", tool.input_schema["properties"])[required[0]].get("type")
        if kind == "string" and required[0] not in _WHOLE_TEXT:
            return [Call(tool.name, {**_input(tool, text), required[0]: name}) for name in names[:3]]
    return [Call(tool.name, _input(tool, text))]


def _score(tool: ToolSpec, text: str) -> float:
    said = _words(text)
    name = _words(re.sub(r"(?<=[a-z])(?=[A-Z])|[_-]", " ", tool.name))
    properties = cast("dict[str, dict[str, Any]]", tool.input_schema.get("properties") or {})
    choices = {str(v).lower() for p in properties.values() for v in cast("list[Any]", p.get("enum") or [])}
    named = sum(1.5 if word in _VERBS else 3 for word in said & name)
    described = len(said & (_words(tool.description) - name)) + len(said & set(properties))
    has_value = any(
        (p.get("type") in ("integer", "number") and _NUMBER.search(text))
        or (key in ("path", "file", "filename") and _PATH.search(text))
        for key, p in properties.items()
    )
    return named + described + 2 * len(said & choices) + (1 if named and has_value else 0)


def _words(text: str) -> set[str]:
    found = (word.lower().rstrip("'") for word in re.findall(r"[A-Za-z][A-Za-z']+", text))
    return {_stem(word) for word in found if word not in _COMMON}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _input(tool: ToolSpec, text: str) -> dict[str, Any]:
    value = _Filler(tool.input_schema, text).value(tool.input_schema, "")
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class _Filler:
    """Fills schemas from a text, using each number and each phrase once."""

    def __init__(self, root: dict[str, Any], text: str) -> None:
        self._root = root
        self._text = text
        self._numbers = [float(n) if "." in n else int(n) for n in _NUMBER.findall(text)]
        self._quoted = [first or second for first, second in _QUOTED.findall(text)]
        self._phrases = [*self._quoted, *_phrases(text)]

    def value(self, schema: dict[str, Any], name: str, *, complete: bool = False) -> Any:
        schema = self._plain(schema)
        if "const" in schema:
            return schema["const"]
        if options := cast("list[Any]", schema.get("enum") or []):
            said = self._text.lower()
            fallback = schema.get("default", options[0])
            return next((o for o in options if str(o).lower() in said), fallback)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((k for k in cast("list[str]", kind) if k != "null"), "null")
        match kind:
            case "object" | None if kind or "properties" in schema:
                return self._object(schema, complete)
            case "array":
                return self._array(schema, name, complete)
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return not re.search(r"\b(?:no|not|don't|without|off|false)\b", self._text.lower())
            case "null":
                return None
            case _:
                return self._string(schema, name)

    def _plain(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema without references and alternatives."""
        for _ in range(20):
            if reference := schema.get("$ref"):
                target: Any = self._root
                for step in str(reference).removeprefix("#/").split("/"):
                    target = target[step]
                schema = target
            elif options := cast("list[dict[str, Any]]", schema.get("anyOf") or schema.get("oneOf") or []):
                schema = next((o for o in options if o.get("type") != "null"), options[0])
            elif "allOf" in schema and "properties" not in schema:
                schema = schema["allOf"][0]
            else:
                break
        return schema

    def _object(self, schema: dict[str, Any], complete: bool) -> dict[str, Any]:
        properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
        required = set(cast("list[str]", schema.get("required") or []))
        filled: dict[str, Any] = {}
        for position, (name, inner) in enumerate(properties.items()):
            offered = position == 0 and not required and bool(self._phrases)
            if name in required or complete or offered or self._mentions(name, inner):
                filled[name] = self.value(inner, name, complete=complete)
        return filled

    def _mentions(self, name: str, schema: dict[str, Any]) -> bool:
        """Whether the message speaks about an optional input."""
        options = cast("list[Any]", self._plain(schema).get("enum") or [name.replace("_", " ")])
        return any(str(option).lower() in self._text.lower() for option in options)

    def _array(self, schema: dict[str, Any], name: str, complete: bool) -> list[Any]:
        items = cast("dict[str, Any]", schema.get("items") or {"type": "string"})
        kind = self._plain(items).get("type")
        if kind in ("integer", "number") and self._numbers:
            values: list[Any] = [int(n) if kind == "integer" else n for n in self._numbers]
            self._numbers = []
            return values[: schema.get("maxItems", len(values))]
        count = min(max(1, int(schema.get("minItems", 1))), _MOST_ITEMS)
        return [self.value(items, name, complete=complete) for _ in range(count)]

    def _number(self, schema: dict[str, Any], *, whole: bool) -> int | float:
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        found: int | float = self._numbers.pop(0) if self._numbers else schema.get("default", low or 1)
        if "exclusiveMinimum" in schema and found <= schema["exclusiveMinimum"]:
            found = schema["exclusiveMinimum"] + 1
        if "minimum" in schema:
            found = max(found, schema["minimum"])
        if "maximum" in schema:
            found = min(found, schema["maximum"])
        if "exclusiveMaximum" in schema and found >= schema["exclusiveMaximum"]:
            found = schema["exclusiveMaximum"] - 1
        return int(found) if whole else found

    def _string(self, schema: dict[str, Any], name: str) -> str:
        if known := _FORMATS.get(str(schema.get("format"))):
            found = known[0].search(self._text)
            return found.group() if found else known[1]
        if name in ("expression", "formula", "sum") and (found := _SUM.search(self._text)):
            return found.group().strip()
        text = self._find(name) or str(schema.get("default", "")) or self._text or name or "something"
        text = text.ljust(min(int(schema.get("minLength", 0)), _LONGEST), ".")
        return text[: int(schema.get("maxLength", len(text)))]

    def _find(self, name: str) -> str | None:
        """What the message offers for an input of this name."""
        if name in ("path", "file", "filename") and (found := _PATH.search(self._text)):
            return found.group()
        if name in _WHOLE_TEXT:
            if self._quoted:
                return self._quoted.pop(0)
            return found[1] if (found := _REST.search(self._text)) else None
        if not self._phrases:
            return None
        phrase = self._phrases.pop(0)
        self._quoted = [quoted for quoted in self._quoted if quoted != phrase]
        return phrase


def _phrases(text: str) -> list[str]:
    """Pieces that look like a value, best first: a name after a small word, a name, whatever follows one."""
    text = _FORMATS["email"][0].sub(" ", text)
    after = [phrase.strip() for phrase in _AFTER.findall(text) if not phrase.strip().isdigit()]
    named = [name for name in _NAMES.findall(text) if not text.startswith(name) or " " in name]
    known = [phrase for phrase in after if phrase in named]
    candidates = dict.fromkeys([*known, *named, *after])
    return [phrase for phrase in candidates if phrase and phrase.lower() not in _COMMON]
