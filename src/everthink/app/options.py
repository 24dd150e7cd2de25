"""What may be given to `App`, as a table, and the words for what may not.

    App(grace="5") --check_options--> InvalidSettings: the option, what was given, what it takes

Pure. Everything is refused where it was written: an option of a wrong kind would be noticed at the first
request, at the end of the process, or never.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from ..access.origins import Hosts
from ..address import Address, canonical, check_name
from ..errors import InvalidSettings
from ..kinds import (
    DICT_OF_TEXTS,
    FUNCTION,
    NUMBER,
    SECONDS,
    YES_NO,
    Kind,
    above,
    at_least,
    check,
    optional,
    words,
)
from ..limits import Limits
from ..mcp.places import Network, Place, place_of
from ..oauth.sealing import Sealer
from ..settings import as_settings, nearest, settings_of, shown, snake
from ..surface import check_function, yields
from ..think import Think

if TYPE_CHECKING:
    from ..store.port import Store

__all__ = [
    "check_options",
    "declares_messengers",
    "hosts_of",
    "limits_of",
    "messengers_of",
    "refuse_unknown_option",
    "retention_of",
    "store_of",
    "store_options_of",
]


def _has(*methods: str) -> Callable[[Any], bool]:
    return lambda value: (
        not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)
    )


_SOME_SECONDS = Kind("a number of seconds above 0", above(0).fits)
_LEASE = Kind(
    "a number of seconds, 0.5 or more: within it, it is renewed twelve times",
    lambda value: above(0).fits(value) and value >= 0.5,
)

OPTIONS = {
    "clock": optional(Kind("a clock, with the methods of Clock", _has("now_ms", "monotonic", "call_later"))),
    "new_id": optional(Kind("a function that returns a new text each time", callable)),
    "grace": Kind(SECONDS.words, lambda value: SECONDS.fits(value) and math.isfinite(value)),
    "idle_after": optional(_SOME_SECONDS),
    "watchdog": optional(_SOME_SECONDS),
    "prefix": Kind(
        'text, a path without its host, such as "agents" or "api/agents"',
        lambda value: isinstance(value, str) and re.fullmatch(r"[\w.~/-]*", value) is not None,
    ),
    "cors": YES_NO | DICT_OF_TEXTS,
    "authenticate": optional(FUNCTION),
    "authorize": optional(FUNCTION),
    "on_before_connect": optional(FUNCTION),
    "on_before_request": optional(FUNCTION),
}
"""The options that are kept as they are given."""
READ = (
    "store",
    "store_options",
    "limits",
    "retention",
    "mcp_servers",
    "allow_addresses",
    "allow_origins",
    "allow_hosts",
    "mcp",
    "messengers",
)
"""Those that are read: the first six below, then two in origins.py, one in mcp_server/settings.py; the last
below."""

GIVEN = {
    "authenticate": ("connection",),
    "authorize": ("identity", "action", "agent"),
    "on_before_connect": ("connection", "cls", "name"),
    "on_before_request": ("connection", "cls", "name"),
}
"""What the functions are called with, in this order."""

STORE_OPTIONS = {
    "SQLite": {"synchronous": words("FULL", "NORMAL"), "busy_timeout": SECONDS},
    "PostgreSQL": {"readers": at_least(1), "patience": SECONDS, "lease": _LEASE},
}
"""What the stores that a URL opens can be told."""


def check_options(**options: Any) -> None:
    """Raise `InvalidSettings` about the first option of a wrong kind."""
    for name, value in options.items():
        if name in GIVEN and value is not None:
            _check_yields_nothing(name, value)
            check_function(name, value, GIVEN[name])
        else:
            check(OPTIONS[name], value, f"App({name}=…)")
        if name == "cors" and isinstance(value, Mapping):
            _check_headers(cast("Mapping[str, str]", value))


_OF_CORS = (
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Credentials",
    "Access-Control-Allow-Private-Network",
    "Access-Control-Expose-Headers",
    "Access-Control-Max-Age",
)


def _check_headers(headers: Mapping[str, str]) -> None:
    """Refuse a header that is nearly one that browsers read: they would not tell."""
    known = {name.lower(): name for name in _OF_CORS}
    for name in headers:
        asked = name.lower()
        like = 0.6 if asked.startswith("access-control-") else 0.9
        near = None if asked in known else nearest(asked, known, like=like)
        if near is not None:
            raise InvalidSettings(
                f"App(cors=…) has the header {name!r}, which no browser reads.",
                next_step=f"Did you mean {known[near]!r}?",
            )


def _check_yields_nothing(name: str, function: Any) -> None:
    if yields(function):
        raise InvalidSettings(
            f"App({name}=…) has a `yield`, so that calling it runs nothing of it.", next_step="Use `return`."
        )


# --- the store and its options


def store_of(given: Any) -> str | Store:
    """The store as it is used: a URL or a path as a text, or an object with the methods of `Store`."""
    if isinstance(given, os.PathLike):
        given = os.fspath(cast("os.PathLike[Any]", given))
    if isinstance(given, str):
        from ..store_urls import check_url

        check_url(given)
    elif not _has("apply", "fetch", "close")(given):
        raise InvalidSettings(
            f"App(store=…) is {shown(given)}.",
            next_step='It takes a text, such as "sqlite:///data/agents.db" or "postgresql://…", a path, or a'
            " store that is open.",
        )
    return cast("str | Store", given)


def _engine(store: Any) -> str | None:
    """Which engine a URL opens; `None` for a store that is open already."""
    if not isinstance(store, str):
        return None
    return "PostgreSQL" if store.startswith(("postgresql://", "postgres://")) else "SQLite"


def store_options_of(store: Any, given: Any) -> dict[str, Any]:
    """What the store is told when it is opened. Raises about what it does not know, or of a wrong kind."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidSettings(
            f"App(store_options=…) is {shown(given)}.",
            next_step='It takes a dict, such as {"synchronous": "NORMAL"}, or None.',
        )
    options = cast("Mapping[Any, Any]", given)
    for name, value in options.items():
        check(_store_option(name, _engine(store)), value, f"App(store_options={{{name!r}: …}})")
    return dict(options)


def _store_option(name: Any, engine: str | None) -> Kind:
    known = STORE_OPTIONS[engine] if engine else {}
    if name in known:
        return known[name]
    where, has = f"App(store_options={{{name!r}: …}})", ", ".join(map(repr, known))
    other = next((other for other, options in STORE_OPTIONS.items() if name in options), None)
    if engine is None:
        raise InvalidSettings(
            f"{where} is for a store that App opens, and this one is open already.",
            next_step="Give it where you open the store.",
        )
    if other is not None:
        raise InvalidSettings(
            f"{where} is an option of {other}, and the store is {engine}.",
            next_step=f"Leave it out. {engine} has: {has}.",
        )
    near = nearest(str(name), known)
    raise InvalidSettings(
        f"{engine} has no option {name!r}: {where}.",
        next_step=f"Did you mean {near!r}?" if near else f"There are: {has}.",
    )


def refuse_unknown_option(names: Iterable[str]) -> None:
    """Raise about an option that App does not have: a misspelt check checks nothing."""
    for name in names:
        known, engines = sorted([*OPTIONS, *READ]), [one for of in STORE_OPTIONS.values() for one in of]
        near = nearest(snake(name), [*known, *engines])
        if near in engines:
            hint = f"The database has one: store_options={{{near!r}: …}}."
        elif name in settings_of(Think):
            hint = f"It is a setting of agents: write `{name} = …` in the class."
        else:
            hint = f"Did you mean {near}=?" if near else f"There are: {', '.join(known)}."
        raise InvalidSettings(f"App has no option {name!r}.", next_step=hint)


# --- what is read


def hosts_of(given: Sequence[str] | None) -> Hosts:
    """The names the app answers to. None at all would answer nobody, as if it were broken."""
    if given in ([], ()):
        raise InvalidSettings(
            f"App(allow_hosts={given!r}) allows no name: every request would be refused.",
            next_step='Name some, allow_hosts=["my.page"], or leave it out to answer to any.',
        )
    return Hosts(given)


def limits_of(given: Any) -> Limits:
    """The limits: a `Limits`, a dict with its fields, or the default."""
    if isinstance(given, Limits):
        return given
    return Limits() if given is None else as_settings(Limits, given, "App(limits=…)")


def servers_of(given: Any) -> dict[str, Place]:
    """The MCP servers of an app, by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidSettings(
            f"App(mcp_servers=…) is {shown(given)}.",
            next_step='It takes a dict of names and servers: {"docs": "https://…/mcp"}.',
        )
    servers: dict[str, Place] = {}
    for name, server in cast("Mapping[Any, Any]", given).items():
        if not isinstance(name, str) or not name.strip():
            raise InvalidSettings(
                f"App(mcp_servers=…) has the name {shown(name)}.", next_step="Names are text."
            )
        servers[name] = place_of(server, f"App(mcp_servers={{{name!r}: …}})")
    if servers:
        from ..mcp_server.settings import check_installed

        check_installed("App(mcp_servers=…)")
    return servers


def network_of(allow: Any, prefix: str) -> Network:
    """How agents reach MCP servers, and how what is secret about them is kept."""
    if isinstance(allow, str):
        raise InvalidSettings(
            f"App(allow_addresses={allow!r}) is a text, in the place of a list.",
            next_step=f"Write allow_addresses=[{allow!r}].",
        )
    if allow:
        from ..guard.addresses import named_places

        named_places(allow, "allow_addresses")  # raises about what is no host
    return Network(Sealer.from_environment(), allow=tuple(allow), prefix=prefix)


_SPAN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(second|minute|hour|day|week)s?\s*", re.IGNORECASE)
_EXAMPLES = 'Say how long: retention=timedelta(days=30), or retention="30 days".'


def retention_of(given: Any) -> float | None:
    """The seconds of a `timedelta` or of a text such as `"30 days"`. A number would be read as days by
    one person and as seconds by the next, and what it decides about is erased."""
    if given is None:
        return None
    if NUMBER.fits(given):
        raise InvalidSettings(f"App(retention={given!r}) does not say of what.", next_step=_EXAMPLES)
    found = _SPAN.fullmatch(given) if isinstance(given, str) else None
    try:
        span = timedelta(**{f"{found[2].lower()}s": float(found[1])}) if found else given
    except OverflowError:
        span = None  # longer than anybody can wait
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise InvalidSettings(
            f"App(retention=…) is {shown(given)}.",
            next_step=f"It takes a time above 0. {_EXAMPLES} Leave it out to keep every agent.",
        )
    return span.total_seconds()


def texts_of(new_id: Callable[[], Any]) -> Callable[[], str]:
    """`new_id` as it was given, which raises when what it returned is no text: ids are kept as that."""

    def checked() -> str:
        id = new_id()
        if not isinstance(id, str) or not id:
            raise InvalidSettings(
                f"App(new_id=…) returned {shown(id)}.", next_step="It returns a new text each time."
            )
        return id

    return checked


def declares_messengers(cls: type[Any]) -> bool:
    """True for a class whose agents may have messengers."""
    return issubclass(cls, Think) and (
        cls.get_messengers is not Think.get_messengers or cls.messengers is not Think.messengers
    )


def messengers_of(value: Any, classes: Mapping[str, type[Any]]) -> Address | None:
    """The agent whose messengers are at `/messengers/…`; `None`: nobody's."""
    where, takes = "App(messengers=…)", 'It takes a class of the app, or (Support, "main").'
    declaring = [cls for cls in classes.values() if declares_messengers(cls)]
    if value is None:
        if len(declaring) > 1:
            names = ", ".join(cls.__name__ for cls in declaring)
            raise InvalidSettings(
                f"Several classes of the app have messengers: {names}.",
                next_step=f"Say whose are at /messengers/…: App(…, messengers={declaring[0].__name__})."
                " Those of the others are below the addresses of their agents.",
            )
        return Address(declaring[0].__name__, "default") if declaring else None
    given = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value, "default")
    if len(given) != 2 or not isinstance(given[1], str) or given[0] not in classes.values():
        raise InvalidSettings(f"{where} is {shown(value)}.", next_step=takes)
    cls, name = given
    if cls not in declaring:
        raise InvalidSettings(
            f"{where} names {cls.__name__}, which has no messengers.",
            next_step=f"Write get_messengers() in {cls.__name__}, or set its `messengers`.",
        )
    check_name(name)
    return Address(cls.__name__, canonical(name))
