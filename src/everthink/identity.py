"""Who somebody is and what they may do, as far as an application has said so.

    App(authenticate=…) --> Granted --> connection --> turn --> hooks, tools, events

An identity is whatever the application returned. It is kept with a turn as JSON, and compared by its
mark, never by itself: a mark is short, stable over restarts, and tells nothing about who it is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NoReturn, cast, get_args

import msgspec

from .errors import AgentError

__all__ = [
    "PERMISSIONS",
    "Approver",
    "Granted",
    "Permission",
    "kept",
    "mark_of",
    "moment_of",
    "name_of",
    "nobody_by",
    "permissions_of",
]

Permission = Literal["ask", "answer", "cancel", "clear", "state", "call"]
PERMISSIONS: frozenset[Permission] = frozenset(cast("tuple[Permission, ...]", get_args(Permission)))
"""All that a connection may do besides reading."""


READING = "read"
"""Among permissions: nothing but reading. It makes an empty collection something one has to mean."""
EARLIEST_SECONDS = 1_000_000_000
"""Seconds since 1970 have been more than this since 2001; a while of so many lasts for thirty years."""
LATEST_SECONDS = 100_000_000_000
"""Seconds since 1970 are fewer than this for 3,000 years; milliseconds have been more since 1973."""

_NAMES = ("id", "sub", "user_id", "username")
"""What names somebody; the first that there is."""
_ADDRESSES = ("email",)
"""What names somebody where there is no better name; people change it."""
_HOMES = ("iss", "tenant", "tenant_id", "org", "org_id")
"""Where that name counts: the same name elsewhere is another person."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What `authenticate` may return instead of a bare identity.

    `until`: when the connection ends by itself, as a `datetime` or in seconds since 1970. `permissions`:
    what it may do, `[]` for reading only; all when left out. An identity that is nobody (`None`, anything
    falsy) is a guest with the permissions that are given, and refused when none are said.
    """

    identity: Any
    until: datetime | float | None = None
    permissions: Collection[Permission] | None = None

    def __post_init__(self) -> None:
        moment_of(self.until)
        if self.permissions is not None:
            permissions_of(self.permissions, "Granted(permissions=…)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approver:
    """Who said yes to a call, on a page or in a messenger.

    From a page it is the `identity` alone, which the application's `authenticate` has vouched for. From a
    messenger it is the person as the platform names them, and no identity: nobody has signed in.
    """

    identity: Any = None
    """Who answered on a page, as `authenticate` said, as JSON."""
    messenger: str | None = None
    """The id of the messenger in which somebody answered; `None`: on a page."""
    provider: str | None = None
    """Its platform: `"telegram"`."""
    user_id: str | None = None
    """The platform's id of the person: the same for as long as the account lives."""
    user_name: str | None = None
    """Their handle, which people change."""
    full_name: str | None = None

    def as_json(self) -> Any:
        """As a row keeps it. No identity is a list, so nobody's can be taken for a person of a messenger."""
        return self.identity if self.messenger is None else [_PERSON, self.person]

    @property
    def person(self) -> dict[str, Any] | None:
        """Who it was in a messenger, as JSON."""
        if self.messenger is None:
            return None
        return {name: value for name in _PERSONAL if (value := getattr(self, name)) is not None}

    @classmethod
    def of(cls, kept: Any) -> Approver | None:
        """Who it was, by what a row keeps; `None` when nobody said who."""
        if kept is None:
            return None
        said = cast("list[Any]", kept) if isinstance(kept, list) else []
        if len(said) == 2 and said[0] == _PERSON and isinstance(said[1], dict):
            known = cast("dict[str, Any]", said[1])
            return cls(**{name: known.get(name) for name in _PERSONAL})
        return cls(identity=kept)


_PERSON = "messenger"
_PERSONAL = ("messenger", "provider", "user_id", "user_name", "full_name")


def kept(identity: Any) -> Any:
    """The identity as JSON, for the row of a turn.

    Of an object that JSON does not know, what names it: `id`, `sub`, `user_id`, `username`, with `iss`,
    `tenant`, `tenant_id`, `org`, `org_id`; else its text.
    """
    if identity is None:
        return None
    try:
        return msgspec.json.decode(msgspec.json.encode(identity))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        dump = getattr(identity, "model_dump", None)
        if callable(dump):
            return dump(mode="json")
        found = {key: getattr(identity, key, None) for key in (*_NAMES, *_HOMES)}
        named = {key: str(value) for key, value in found.items() if value is not None}
        return named if named.keys() & set(_NAMES) else _text(identity)


def _text(identity: Any) -> str:
    if type(identity).__str__ is object.__str__ and type(identity).__repr__ is object.__repr__:
        raise AgentError(
            f"authenticate returned a {type(identity).__name__}, and nothing says who that is.",
            kept="Nobody was let in.",
            next_step="Return text, a dict, or an object with an id.",
        )
    return str(identity)


def mark_of(identity: Any) -> str | None:
    """A short mark of a person, the same whenever they come. `None` for nobody in particular.

    Of an object with an `id`, `sub`, `user_id` or `username` the first of these counts, together with `iss`,
    `tenant`, `tenant_id`, `org` and `org_id`: the rest may change. The same name in another field, or as bare
    text, is another person.
    """
    if identity is None:
        return None
    plain = kept(identity)
    if isinstance(plain, dict):
        entries = cast("dict[str, Any]", plain)
        name = next((key for key in _NAMES if entries.get(key)), None)
        homes = {key: entries[key] for key in _HOMES if entries.get(key) is not None}
        # With the kind of name: whoever may choose a username must not become the one with that id.
        plain = entries if name is None else {name: entries[name], **homes}
    text = msgspec.json.encode(plain, order="deterministic")
    return hashlib.blake2b(text, digest_size=12, person=b"everthink").hexdigest()


def name_of(identity: Any) -> str | None:
    """What somebody is called: the text itself, or the first of `id`, `sub`, `user_id` and `username`."""
    plain = kept(identity)
    if isinstance(plain, dict):
        entries = cast("dict[str, Any]", plain)
        plain = next((entries[key] for key in _NAMES if entries.get(key)), None)
    return str(plain) if isinstance(plain, str | int) and not isinstance(plain, bool) else None


def nobody_by(identity: Any) -> str | None:
    """Why what was returned for a person is nobody, though it is not falsy; `None` when it may be somebody.

    `{"id": None}`, an anonymous user with an empty `username`, a pair of a user and an error, a class.
    """
    if isinstance(identity, type):
        return "which is a class"
    if isinstance(identity, list | set | frozenset) or (
        isinstance(identity, tuple) and not hasattr(cast("Any", identity), "_fields")
    ):
        return "which may hold anybody, or nobody"
    missing = object()
    found = {name: _field(identity, name, missing) for name in (*_NAMES, *_ADDRESSES)}
    named = {name: value for name, value in found.items() if value is not missing and not callable(value)}
    if named and all(value is None or value == "" for value in named.values()):
        return f"whose {next(iter(named))!r} says nothing"
    return None


def _field(identity: Any, name: str, missing: object) -> Any:
    if isinstance(identity, Mapping):
        return cast("Mapping[str, Any]", identity).get(name, missing)
    return getattr(identity, name, missing)


# --- reading a grant


def permissions_of(given: Collection[Any], what: str) -> frozenset[Permission]:
    """The permissions of these names. Raises for one that is none."""
    if isinstance(given, str):
        _unknown(what, given, f"Write a list: [{given!r}].")
    if isinstance(given, Mapping):
        _unknown(
            what,
            dict(cast("Any", given)),
            "Write a list of those that they have: a dict's values are read by nobody.",
        )
    for name in given:
        if name != READING and name not in PERMISSIONS:
            import difflib  # for the words of an error only

            near = difflib.get_close_matches(str(name), [*PERMISSIONS, READING], n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(PERMISSIONS))}."
            _unknown(what, name, hint)
    return frozenset(name for name in given if name != READING)


def _unknown(what: str, given: Any, hint: str) -> NoReturn:
    raise AgentError(f"{what}: {given!r} is no permission.", kept="Nobody was let in.", next_step=hint)


def moment_of(until: datetime | float | None) -> float | None:
    """A moment in seconds since 1970. Raises for what can be none."""
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise AgentError(
                f"Granted(until={until!r}) has no time zone.",
                kept="Nobody was let in.",
                next_step="Write datetime.now(UTC) + timedelta(hours=1), or give seconds since 1970.",
            )
        return until.timestamp()
    if until is None or until == math.inf:
        return None
    if isinstance(until, bool) or not isinstance(cast("Any", until), int | float) or math.isnan(until):
        raise AgentError(
            f"Granted(until={until!r}) is no moment.",
            kept="Nobody was let in.",
            next_step="Give an aware datetime, or seconds since 1970.",
        )
    if 0 < until < EARLIEST_SECONDS:
        raise AgentError(
            f"Granted(until={until!r}) looks like a while, and is read as seconds since 1970.",
            kept="Nobody was let in.",
            next_step=f"Give the moment it ends: time.time() + {until!r}, or an aware datetime.",
        )
    if until > LATEST_SECONDS:
        raise AgentError(
            f"Granted(until={until!r}) looks like milliseconds, and is read as seconds since 1970.",
            kept="Nobody was let in.",
            next_step="Divide it by 1000, or give an aware datetime.",
        )
    return float(until)
