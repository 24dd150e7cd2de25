"""The fields of a form, from the JSON schema of a tool's question, for who is asked one after the other.

    Form.schema --fields_of--> Field --read(a line)--> what the tool gets

Pure. As on the page (`ui/src/fields.ts`): a schema is a stranger's, what is not understood is asked for as
JSON, and no pattern of it is run.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ..tools.json_input import misfits

__all__ = ["Field", "Kind", "fields_of", "read"]

Kind = Literal["text", "number", "boolean", "choice", "choices", "json"]
Json = Mapping[str, Any]

_DEEPEST = 8
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+")
_YES, _NO = ("y", "yes", "true", "1"), ("n", "no", "false", "0")
_LONGEST_NUMBER = 40


@dataclass(frozen=True, slots=True)
class Field:
    """One field."""

    name: str
    label: str
    help: str
    kind: Kind
    is_required: bool
    options: Sequence[tuple[Any, str]]
    """What can be chosen: values and their names."""
    schema: Json
    default: Any = None
    """What is meant when nothing is said; `None`: nothing."""
    is_nullable: bool = False
    """True when the tool gets a null for nothing; False: then the field is left out."""

    @property
    def bounds(self) -> str:
        """What a number, or how many of them, has to be between."""
        least, most = _bounds(self)
        if least is not None and most is not None:
            return f"{least} to {most}"
        return f"at least {least}" if least is not None else f"at most {most}" if most is not None else ""

    def named(self, value: Any) -> str:
        """A value as people call it."""
        if isinstance(value, list) and self.kind == "choices":
            return ", ".join(self.named(one) for one in cast("list[Any]", value))
        if isinstance(value, bool):
            return "yes" if value else "no"
        names = [name for option, name in self.options if option == value]
        return names[0] if names else value if isinstance(value, str) else json.dumps(value)


# --- from the schema


def fields_of(schema: Json) -> list[Field]:
    """The fields of a form, in their order."""
    required = _list(schema.get("required"))
    properties = _object(schema.get("properties"))
    return [_field(name, given, schema, name in required) for name, given in properties.items()]


def _field(name: str, given: Any, root: Json, required: bool) -> Field:
    rules, is_nullable = _plain(given, root)
    kind = _kind(rules, root)
    options = _options(_plain(rules.get("items"), root)[0] if kind == "choices" else rules)
    said = _object(given)
    default = said.get("default", rules.get("default"))
    return Field(
        name,
        _text(said.get("title")) or _text(rules.get("title")) or name,
        _text(said.get("description")) or _text(rules.get("description")),
        kind,
        required and not is_nullable,
        options if kind in ("choice", "choices") else [],
        rules,
        None if list(misfits(default, rules)) else default,
        required and is_nullable,
    )


def _plain(given: Any, root: Json, depth: int = 0) -> tuple[Json, bool]:
    """A schema behind its reference and without the choice of nothing, and whether it had that."""
    rules = _object(given)
    if depth > _DEEPEST:
        return {}, False
    if isinstance(rules.get("$ref"), str):
        return _plain(_behind(rules["$ref"], root), root, depth + 1)
    types = _list(rules.get("type"))
    if "null" in types:
        rest = [one for one in types if one != "null"]
        return {**rules, "type": rest[0] if len(rest) == 1 else rest}, True
    choices = [_object(one) for one in _list(rules.get("anyOf") or rules.get("oneOf"))]
    some = [one for one in choices if one.get("type") != "null"]
    if len(some) != 1 or len(some) == len(choices):
        return rules, False
    return _plain(some[0], root, depth + 1)[0], True


def _behind(reference: str, root: Json) -> Any:
    found: Any = root if reference.startswith("#/") else {}
    for key in reference.removeprefix("#/").split("/"):
        found = _object(found).get(key)
    return found


def _kind(rules: Json, root: Json) -> Kind:
    if _options(rules):
        return "choice"
    match rules.get("type"):
        case "array" if _options(_plain(rules.get("items"), root)[0]):
            return "choices"
        case "string":
            return "text"
        case "number" | "integer":
            return "number"
        case "boolean":
            return "boolean"
        case _:
            return "json"


def _options(rules: Json) -> list[tuple[Any, str]]:
    values, names = _list(rules.get("enum")), _list(rules.get("enumNames"))
    if values:
        names += [None] * (len(values) - len(names))
        return [(value, _text(name) or _shown(value)) for value, name in zip(values, names, strict=False)]
    choices = [_object(one) for one in _list(rules.get("oneOf") or rules.get("anyOf"))]
    if not choices or not all("const" in one for one in choices):
        return []
    return [(one["const"], _text(one.get("title")) or _shown(one["const"])) for one in choices]


# --- what somebody wrote


def read(field: Field, line: str) -> Any:
    """What a line says as the tool gets it. Raises `ValueError` with words for who wrote it."""
    line = line.strip()
    match field.kind:
        case "boolean":
            return _read_boolean(line)
        case "choice":
            return _read_choice(field, line)
        case "choices":
            return _read_choices(field, line)
        case "number":
            return _read_number(field, line)
        case "text":
            return _read_text(field, line)
        case "json":
            return _read_json(field, line)


def _read_boolean(line: str) -> bool:
    if line.lower() in _YES:
        return True
    if line.lower() in _NO:
        return False
    raise ValueError("Say y or n.")


def _read_choice(field: Field, line: str) -> Any:
    for value, name in field.options:
        if line.casefold() in (name.casefold(), _shown(value).casefold()):
            return value
    if line.isdecimal() and len(line) < _LONGEST_NUMBER and 0 < int(line) <= len(field.options):
        return field.options[int(line) - 1][0]
    raise ValueError(f"Choose one: 1 to {len(field.options)}.")


def _read_choices(field: Field, line: str) -> list[Any]:
    chosen = [_read_choice(field, one.strip()) for one in line.split(",") if one.strip()]
    least, most = _bounds(field)
    if least is not None and len(chosen) < least:
        raise ValueError(f"Choose at least {least}.")
    if most is not None and len(chosen) > most:
        raise ValueError(f"Choose at most {most}.")
    return [value for value, _ in field.options if value in chosen]


def _read_number(field: Field, line: str) -> int | float:
    is_whole = field.schema.get("type") == "integer"
    if _NUMBER.fullmatch(line) is None or len(line) > _LONGEST_NUMBER:
        raise ValueError("This is not a number.")
    value = float(line)
    if value in (float("inf"), float("-inf")):
        raise ValueError("This is not a number.")
    if is_whole and not value.is_integer():
        raise ValueError("This is not a whole number.")
    number = int(line) if line.lstrip("+-").isdecimal() else int(value) if is_whole else value
    least, most = _bounds(field)
    if least is not None and number < least:
        raise ValueError(f"It is at least {least}.")
    if most is not None and number > most:
        raise ValueError(f"It is at most {most}.")
    return number


def _read_text(field: Field, line: str) -> str:
    least, most = _bounds(field)
    if least is not None and len(line) < least:
        raise ValueError(f"It has at least {least} characters; this has {len(line)}.")
    if most is not None and len(line) > most:
        raise ValueError(f"It has at most {most} characters; this has {len(line)}.")
    match field.schema.get("format"):
        case "email" if _EMAIL.fullmatch(line) is None:
            raise ValueError("This is no e-mail address.")
        case "uri" if not _is_address(line):
            raise ValueError("This is no web address: it begins with https://, for example.")
        case "date":
            _read_time(line, datetime.date, "This is no day: write 2026-12-24.")
        case "date-time":
            _read_time(line, datetime.datetime, "This is no time: write 2026-12-24T18:30:00+01:00.")
        case _:
            pass
    return line


def _is_address(line: str) -> bool:
    try:
        return bool(urlsplit(line).scheme and (urlsplit(line).netloc or urlsplit(line).path))
    except ValueError:
        return False


def _read_time(line: str, kind: type[datetime.date], words: str) -> None:
    try:
        kind.fromisoformat(line)
    except ValueError:
        raise ValueError(words) from None


def _read_json(field: Field, line: str) -> Any:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("This is no JSON.") from None
    problems = list(misfits(value, field.schema))
    if problems:
        raise ValueError(f"It does not fit: {problems[0]}.")
    return value


# --- pieces


def _bounds(field: Field) -> tuple[Any, Any]:
    names = {"text": ("minLength", "maxLength"), "number": ("minimum", "maximum")}
    least, most = names.get(field.kind, ("minItems", "maxItems"))
    return _number(field.schema.get(least)), _number(field.schema.get(most))


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(cast("list[Any]", value)) if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
