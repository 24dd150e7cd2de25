"""What an extension says of itself, what it may do, and what is told of one that is loaded.

    Manifest + source = Extension --load--> ExtensionInfo
    what was asked for, what is allowed --capped--> Permissions

Plain values. Nothing is allowed that is not named: every right is "none" until somebody grants it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

from ..address import kebab
from ..errors import ExtensionError, InvalidSettings
from ..guard.rules import Rules
from ..settings import as_settings, nearest, shown, snake
from ..words import said as on_one_line

if TYPE_CHECKING:
    from .trusted import TrustedExtension

__all__ = [
    "HOOKS",
    "Approval",
    "ContextBlockInfo",
    "ContextPermissions",
    "Extension",
    "ExtensionInfo",
    "ExtensionRequest",
    "HookName",
    "InstalledExtension",
    "Language",
    "Manifest",
    "Origin",
    "Permissions",
    "Refuse",
    "SessionPermissions",
    "StoredExtension",
    "Unloaded",
    "WorkspaceAccess",
    "as_extension",
    "as_installed",
    "as_manifest",
    "as_permissions",
    "beyond",
    "camel",
    "capped",
    "has_port",
    "kept_under",
    "listed",
    "name_of",
    "owned",
    "prefix_of",
]

Language = Literal["javascript", "typescript", "python"]
LANGUAGES: tuple[Language, ...] = ("javascript", "typescript", "python")
HookName = Literal["before_turn", "before_tool_call", "after_tool_call", "on_step_finish", "on_chunk"]
HOOKS: tuple[HookName, ...] = (
    "before_turn",
    "before_tool_call",
    "after_tool_call",
    "on_step_finish",
    "on_chunk",
)
"""The hooks that extensions hear, in the order of a turn. Manifests may write them as `beforeTurn`, too."""
Origin = Literal["declared", "code", "person", "model", "package"]
"""Where an extension comes from: `get_extensions()`, a call of `load`, the page, a model, or a package."""
WorkspaceAccess = Literal["none", "read", "read-write"]
_WORKSPACE: tuple[WorkspaceAccess, ...] = ("none", "read", "read-write")
BlockType = Literal["readonly", "writable", "skill", "searchable"]
_TYPES: tuple[BlockType, ...] = ("readonly", "writable", "skill", "searchable")

_FILE = re.compile(r"[\w./~-]+\.(?:js|mjs|ts|py)")
LONGEST_NAME, LONGEST_VERSION, LONGEST_DESCRIPTION = 40, 64, 1_000
MOST_BLOCKS, MOST_HOSTS, MOST_NAMES = 16, 50, 1_000
LONGEST_SOURCE = 500_000
"""Characters of a source."""


# --- rights


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPermissions:
    """Which context blocks may be read and written: `"all"`, `"own"`, or labels.

    `"own"` are the blocks that the extension brings along, by their full labels.
    """

    read: Literal["all", "own"] | tuple[str, ...] = ()
    write: Literal["own"] | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _set(self, "read", _labels(self.read, ("all", "own"), "context.read"))
        _set(self, "write", _labels(self.write, ("own",), "context.write"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPermissions:
    """What of the conversation may be used."""

    send_message: bool = False
    """Add messages of the user. They start no turn."""
    metadata: bool = False
    """How many messages there are."""

    def __post_init__(self) -> None:
        for one in fields(self):
            _check_flag(getattr(self, one.name), f"session.{one.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What an extension may do besides computing. `Permissions()` is nothing at all."""

    network: tuple[str, ...] = ()
    """Hosts that may be fetched: `"api.example.com"`, `"*.example.com"`. With its port, one near us, too."""
    workspace: WorkspaceAccess = "none"
    """The agent's files."""
    context: ContextPermissions = field(default_factory=ContextPermissions)
    messages: Literal["none", "read"] = "none"
    """What was said, as texts."""
    session: SessionPermissions = field(default_factory=SessionPermissions)
    storage: bool = False
    """A few values of its own, which outlive the process and which no other extension sees."""

    def __post_init__(self) -> None:
        _set(self, "network", _hosts(self.network))
        _check_word(self.workspace, _WORKSPACE, "workspace")
        _check_word(self.messages, ("none", "read"), "messages")
        _check_flag(self.storage, "storage")
        _set(self, "context", as_settings(ContextPermissions, self.context, "permissions.context"))
        _set(self, "session", as_settings(SessionPermissions, self.session, "permissions.session"))

    @property
    def is_empty(self) -> bool:
        """True when nothing is allowed: handlers are then given no host at all."""
        return self == Permissions()

    @property
    def is_harmless(self) -> bool:
        """True when nothing can be changed with it, here or elsewhere: what was cut off may run again."""
        changes = self.network or self.context.write or self.session.send_message or self.storage
        return self.workspace != "read-write" and not changes


def capped(asked: Permissions, allowed: Permissions) -> Permissions:
    """What was asked for, as far as it is allowed: never more than either."""
    rules = Rules(hosts=[host for host in allowed.network if not has_port(host)])
    workspace = _WORKSPACE[min(map(_WORKSPACE.index, (asked.workspace, allowed.workspace)))]
    return Permissions(
        network=tuple(host for host in asked.network if _covers(allowed.network, rules, host)),
        workspace=workspace,
        context=ContextPermissions(
            read=_common(asked.context.read, allowed.context.read),
            write=_common(asked.context.write, allowed.context.write),
        ),
        messages="read" if asked.messages == allowed.messages == "read" else "none",
        session=SessionPermissions(
            send_message=asked.session.send_message and allowed.session.send_message,
            metadata=asked.session.metadata and allowed.session.metadata,
        ),
        storage=asked.storage and allowed.storage,
    )


def beyond(asked: Permissions, allowed: Permissions) -> bool:
    """True when more was asked for than is allowed."""
    return capped(asked, allowed) != asked


def _covers(allowed: tuple[str, ...], rules: Rules, host: str) -> bool:
    """Whether a host, or all below `*.host`, is among those that are allowed."""
    if host in allowed or has_port(host):
        return host in allowed
    below = host.removeprefix("*.")
    if below == host:
        from ..errors import BlockedAddress

        try:
            rules.check(host, 443)
        except BlockedAddress:
            return False
        return True
    words = below.split(".")
    return any(f"*.{'.'.join(words[at:])}" in allowed for at in range(len(words)))


def _common(asked: str | tuple[str, ...], allowed: str | tuple[str, ...]) -> Any:
    """Labels that are in both. All there are is more than one's own, which are more than none."""
    if allowed == "all" or asked == allowed:
        return asked
    if asked == "all":
        return allowed
    if isinstance(asked, str) or isinstance(allowed, str):
        return ()  # its own blocks and named ones are different things
    return tuple(label for label in asked if label in allowed)


# --- manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBlockInfo:
    """A context block that an extension brings along. Its full label begins with the extension's prefix."""

    label: str
    description: str | None = None
    type: BlockType = "writable"
    """`readonly`: the model sees it, and only the extension may write it."""
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        _check_word(self.type, _TYPES, "context.type")
        for name in ("label", "description"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (name == "description" and value is None):
                raise InvalidSettings(f"context.{name} is {shown(value)}.", next_step="It takes a text.")
        if self.description is not None:  # with lines of its own it would be other blocks in the prompt
            _set(self, "description", on_one_line(self.description, LONGEST_DESCRIPTION))
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 1):
            raise InvalidSettings(
                f"context.max_tokens is {shown(self.max_tokens)}.",
                next_step="It takes a whole number above 0.",
            )
        clean_name(self.label, "label of a context block")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an extension says of itself."""

    name: str
    """Unique among the extensions of an agent. Its tools begin with it: `word-count` has `word_count_…`."""
    version: str
    description: str = ""
    permissions: Permissions = field(default_factory=Permissions)
    tools: tuple[str, ...] | None = None
    """The tools that it means to have, by their own names. `None`: all that its source has."""
    hooks: tuple[HookName, ...] | None = None
    """The hooks that it means to hear. `None`: all that its source has."""
    context: tuple[ContextBlockInfo, ...] = ()

    def __post_init__(self) -> None:
        prefix_of(self.name)
        _check_text(self.version, LONGEST_VERSION, "version")
        _set(self, "description", self.description or "")
        if self.description:
            _check_text(self.description, LONGEST_DESCRIPTION, "description")
        _set(self, "permissions", as_permissions(self.permissions))
        _set(self, "tools", None if self.tools is None else _texts(self.tools, "tools"))
        _set(self, "hooks", None if self.hooks is None else _hook_names(self.hooks))
        _set(self, "context", _blocks(self.context))

    @property
    def prefix(self) -> str:
        """What stands before the names of its tools and blocks."""
        return prefix_of(self.name)

    @property
    def labels(self) -> tuple[str, ...]:
        """The full labels of its context blocks."""
        return tuple(f"{self.prefix}_{block.label}" for block in self.context)


def prefix_of(name: str) -> str:
    """What a name becomes in front of tools: letters, digits and single `_`. Raises for one without any."""
    return clean_name(name, "name of an extension")


def clean_name(name: Any, what: str) -> str:
    """`word-count.js` as `word_count_js`."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not name.isprintable():
        raise ExtensionError(f"{shown(name)} cannot be the {what}: it is a line of 1 to {LONGEST_NAME}.")
    clean = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", name))
    clean = clean.removeprefix("_").removesuffix("_")
    if not clean:
        raise ExtensionError(
            f"{name!r} cannot be the {what}: it has no letter and no digit.",
            next_step="Use lower-case letters, digits and `_`.",
        )
    return clean


@dataclass(frozen=True, slots=True, init=False)
class Extension:
    """An extension as it is written down: what it says of itself, and its source.

        Extension({"name": "words", "version": "1.0.0"}, "({ tools: { … } })")

    The source is run in a sandbox of its own, never in this process.
    """

    manifest: Manifest
    source: str = field(repr=False)
    language: Language = "javascript"

    def __init__(
        self, manifest: Manifest | Mapping[str, Any], source: str, language: Language = "javascript"
    ) -> None:
        """`manifest`: a `Manifest`, or a dict with its fields, also by the names that JavaScript uses."""
        _set(self, "manifest", as_manifest(manifest))
        _set(self, "language", language)
        _set(self, "source", source)
        _check_word(language, LANGUAGES, "language")
        name, given = self.manifest.name, cast("Any", source)
        if not isinstance(given, str) or not given.strip():
            raise ExtensionError(
                f"The extension {name!r} has no source.",
                next_step="Its source is an object: ({ tools: { … }, hooks: { … } }).",
            )
        if _FILE.fullmatch(given.strip()):
            raise ExtensionError(
                f"The source of {name!r} is {shown(given.strip())}: the name of a file, and no code.",
                next_step=f"Read it: Path({given.strip()!r}).read_text().",
            )
        if "\0" in given or not _is_whole(given):
            raise ExtensionError(
                f"The source of {name!r} has characters that are none: U+0000, or half of one.",
                next_step="Write them as escapes.",
            )
        if len(given) > LONGEST_SOURCE:
            raise ExtensionError(
                f"The source of {name!r} has {len(given):,} characters, and may have {LONGEST_SOURCE:,}."
            )


@dataclass(frozen=True, slots=True)
class InstalledExtension:
    """An extension of an installed package, by its name. Made by `installed()`."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kind: type[TrustedExtension] | None = None
    """The class itself, when an agent names that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionInfo:
    """A loaded extension."""

    name: str
    version: str
    description: str
    prefix: str
    tools: tuple[str, ...]
    """Their full names, as the model sees them."""
    hooks: tuple[HookName, ...]
    """The hooks that it hears."""
    context_labels: tuple[str, ...]
    permissions: Permissions
    origin: Origin
    language: Language | None
    """`None`: it runs in this process, as a package does."""
    notes: tuple[str, ...] = ()
    """What its source or manifest has and what nothing uses, in words for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class StoredExtension:
    """An extension as it is kept."""

    extension: Extension
    """What was loaded, with the rights that were granted."""
    origin: Origin
    found: Mapping[str, Any]
    """What its source was found to have, as JSON: so nothing has to run when it comes back."""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """An extension that was unloaded, and what became of what it had stored."""

    name: str
    origin: Origin
    values: int
    """How many values it had in its storage."""
    is_kept: bool
    """True when they stay, with what its blocks hold, for the next of this name from the same origin."""

    @property
    def comes_back(self) -> bool:
        """True when the agent has it again with its next start."""
        return self.origin in ("declared", "package")


def owned(name: str, origin: Origin) -> str:
    """Under which name its values are kept: what people and models have loaded reads nothing of what the
    app's own code has kept, whatever it is called."""
    return f"{name}\n{origin}" if origin in ("person", "model") else name


def kept_under(label: str, origin: Origin) -> str:
    """The same for the label of a block: under which label its content is kept."""
    return f"{label} ({origin})" if origin in ("person", "model") else label


# --- who decides what a model may load


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionRequest:
    """What a model wants to load, for `extension_policy`."""

    manifest: Manifest
    """`manifest.permissions` is what it asks for."""
    source: str = field(repr=False)
    language: Language
    identity: Any = None
    """Who asked for the turn in which the model does so."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A person is to be asked. When they agree it gets what it asks for, and never more than `most`."""

    most: Permissions | None = None
    """`None`: whatever was asked for, and shown to them."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It is not loaded; the model reads the reason."""

    reason: str


# --- as people write them


def as_permissions(value: Any) -> Permissions:
    """Permissions, also as a dict. Raises `InvalidSettings`."""
    return Permissions() if value is None else as_settings(Permissions, value, "permissions")


def as_manifest(value: Any) -> Manifest:
    """A manifest, also as a dict with the names that JavaScript uses. Raises what is wrong with it."""
    return as_settings(Manifest, value, "The manifest of an extension")


def as_extension(value: Any, where: str = "get_extensions()") -> Extension:
    """An extension, also as `{"manifest": {…}, "source": "…"}`."""
    if isinstance(value, Extension):
        return value
    if not isinstance(value, Mapping):
        raise InvalidSettings(
            f"{where} has {shown(value)}, which is no extension.",
            next_step=f"Of an installed package it is installed({value!r}), of everthink.extensions."
            if isinstance(value, str)
            else 'Give Extension({"name": …, "version": …}, source), or {"manifest": …, "source": …}.',
        )
    return as_settings(Extension, value, where)


def listed(value: Any) -> list[Any]:
    """What `get_extensions()` gave, one by one. Whether each of them is an extension is another question."""
    if value is None:
        return []
    is_one = isinstance(
        value, Extension | InstalledExtension | type | str | bytes | Mapping
    ) or not isinstance(value, Iterable)
    return [value] if is_one else list(cast("Iterable[Any]", value))


def name_of(value: Any) -> str:
    """The name of what may be an extension, for whoever has to say that it is none."""
    if isinstance(value, Extension):
        return value.manifest.name
    if (of_package := as_installed(value)) is not None:
        return of_package.name
    manifest: Any = cast("Any", value).get("manifest") if isinstance(value, Mapping) else None
    name: Any = cast("Any", manifest).get("name") if isinstance(manifest, Mapping) else None
    return name if isinstance(name, str) else shown(value)


def as_installed(value: Any) -> InstalledExtension | None:
    """An extension of a package, or a class that is one itself; `None` for anything else."""
    if isinstance(value, InstalledExtension):
        return value
    if not isinstance(value, type):
        return None
    from .trusted import TrustedExtension

    return (
        InstalledExtension(kebab(value.__name__), kind=value) if issubclass(value, TrustedExtension) else None
    )


_AFTER_LINE = re.compile(r"_([a-z])")


def camel(name: str) -> str:
    """`before_turn` is `beforeTurn`, as JavaScript writes it."""
    return _AFTER_LINE.sub(lambda found: found[1].upper(), name)


def _set(value: object, name: str, to: Any) -> None:
    object.__setattr__(value, name, to)


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hook_names(given: Any) -> tuple[HookName, ...]:
    found = dict.fromkeys(snake(name) for name in _texts(given, "hooks"))
    for name in found:
        if name not in HOOKS:
            near = nearest(name, HOOKS)
            raise InvalidSettings(
                f"Extensions have no hook {name!r}.",
                next_step=f"Did you mean {near!r}?" if near else f"There are: {', '.join(HOOKS)}.",
            )
    return cast("tuple[HookName, ...]", tuple(found))


def _blocks(given: Any) -> tuple[ContextBlockInfo, ...]:
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        raise InvalidSettings(f"context is {shown(given)}.", next_step='It takes [{"label": "notes"}].')
    found = tuple(as_settings(ContextBlockInfo, one, "context") for one in cast("Iterable[Any]", given))
    found = tuple(replace(one, label=clean_name(one.label, "label of a context block")) for one in found)
    if len(found) > MOST_BLOCKS or len({one.label for one in found}) < len(found):
        raise ExtensionError(f"Context blocks have labels of their own, and there are {MOST_BLOCKS} at most.")
    return found


def _hosts(given: Any) -> tuple[str, ...]:
    if given is None or given is False:
        return ()
    hosts = _texts(given, "network")
    if len(hosts) > MOST_HOSTS:
        raise InvalidSettings(f"network names {len(hosts)} hosts, more than {MOST_HOSTS}.")
    near = [host for host in hosts if has_port(host)]
    Rules(hosts=[host for host in hosts if host not in near], allow=near)  # raises for what is none
    return tuple(host.lower() for host in hosts)


def has_port(host: str) -> bool:
    """True for a place with its port, which may be one near us."""
    return host.rpartition(":")[2].isdigit()


def _labels(given: Any, words: tuple[str, ...], where: str) -> Any:
    if given is None:
        return ()
    if isinstance(given, str):
        _check_word(given, words, where)
        return given
    return _texts(given, where)


def _texts(given: Any, where: str) -> tuple[str, ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidSettings(f"{where} is {shown(given)}.", next_step="It takes a list of texts.")
    found = tuple(islice(cast("Iterable[Any]", given), MOST_NAMES + 1))
    if len(found) > MOST_NAMES:
        raise InvalidSettings(f"{where} has more than {MOST_NAMES:,} texts.")
    for one in found:
        if not isinstance(one, str):
            raise InvalidSettings(f"{where} has {shown(one)}.", next_step="It takes a list of texts.")
    return found


def _check_text(value: Any, most: int, where: str) -> None:
    if not isinstance(value, str) or not value.strip() or len(value) > most or not value.isprintable():
        raise InvalidSettings(f"{where} is {shown(value)}.", next_step=f"It takes a line of 1 to {most}.")


def _check_word(value: Any, words: tuple[str, ...], where: str) -> None:
    if value not in words:
        near = nearest(value, words) if isinstance(value, str) else None
        listed = ", ".join(repr(word) for word in words)
        raise InvalidSettings(
            f"{where} is {shown(value)}.",
            next_step=f"It takes {listed}.{f' Did you mean {near!r}?' if near else ''}",
        )


def _check_flag(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise InvalidSettings(f"{where} is {shown(value)}.", next_step="It takes True or False.")
