"""Context blocks as values, how they read in the system prompt, and what stands behind them.

    provider --get--> ContextBlock --render--> the system prompt

A provider is any object with the right methods; which ones it has decides what the model may do with
its block (`Abilities`). Rendering is pure and plain text, so the same blocks always give the same prompt,
and a provider's cache of it stays warm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, cast

from ..errors import InvalidContext
from ..models.tokens import estimate_tokens
from ..settings import as_settings
from ..store.port import AgentStore
from ..surface import refuse_unknown

__all__ = [
    "Abilities",
    "BlockOptions",
    "ContextBlock",
    "ContextProvider",
    "Place",
    "abilities_of",
    "as_provider",
    "block_options",
    "catalogue_line",
    "check_description",
    "check_label",
    "check_limit",
    "check_provider",
    "read_block",
    "render",
    "usage",
]

RULE = "═" * 46
MAX_LABEL = 100


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """A named piece of the system prompt, as it was last read from its provider."""

    label: str
    description: str | None = None
    content: str = ""
    """What the prompt shows: the text, or for documents and searchable entries what there is of them."""
    tokens: int = 0
    """About how many tokens the content takes."""
    max_tokens: int | None = None
    writable: bool = False
    """The model may write it with `set_context`."""
    is_skill: bool = False
    """Its documents are read with `load_context`."""
    is_searchable: bool = False
    """Its entries are found with `search_context`."""

    @property
    def is_keyed(self) -> bool:
        """True when it is written entry by entry, each under a key."""
        return self.is_skill or self.is_searchable


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block lives: what a provider that keeps its content in the agent's own database needs."""

    store: AgentStore
    session: str
    label: str
    now: Callable[[], int]


class ContextProvider(Protocol):
    """What stands behind a block. Only `get` is needed; every method may be `async`.

    `set(content)` makes the block writable. `load(key)` makes it a collection of documents and
    `search(query)` one of entries; then it is `set(key, content, description)`. `writable = False`
    says that `set` is not for the model. `init(label)` is called before the first `get`, and
    `bind(place)` before that: it returns the provider to use for that place.
    """

    def get(self) -> Any:
        """The text of the block, or `None` when there is none yet."""
        ...


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a provider can do, read off its methods."""

    can_set: bool = False
    can_load: bool = False
    can_search: bool = False


def abilities_of(provider: Any) -> Abilities:
    """What `provider` can do. Texts and plain functions can only be read."""
    if isinstance(provider, str) or not callable(getattr(provider, "get", None)):
        return Abilities()

    def has(method: str) -> bool:
        return callable(getattr(provider, method, None))

    return Abilities(
        can_set=has("set") and getattr(provider, "writable", True) is not False,
        can_load=has("load"),
        can_search=has("search"),
    )


def check_label(label: Any) -> None:
    """Raise unless `label` can name a block."""
    if not isinstance(label, str) or not label.strip() or len(label) > MAX_LABEL:
        problem = f"a label is 1 to {MAX_LABEL} characters of text"
    elif ":" in label or not label.isprintable():
        problem = "a label is one line without a colon"
    else:
        return
    raise InvalidContext(
        f"{label!r:.200} cannot be the label of a context block: {problem}.",
        kept="Nothing was changed.",
        next_step='Use a short name such as "memory".',
    )


def check_limit(label: str, max_tokens: Any) -> None:
    """Raise unless `max_tokens` is a limit or `None`."""
    if max_tokens is None or (type(max_tokens) is int and max_tokens > 0):
        return
    raise InvalidContext(
        f"The context block {label!r} has max_tokens={max_tokens!r}, which is no limit.",
        kept="Nothing was changed.",
        next_step="Give a whole number above 0, or leave it out for no limit.",
    )


def check_description(label: str, description: Any) -> None:
    """Raise unless `description` is text or `None`."""
    if description is not None and not isinstance(description, str):
        raise InvalidContext(
            f"The description of the context block {label!r} is a {type(description).__name__}, not text.",
            kept="Nothing was changed.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """How a block is declared."""

    description: str | None = None
    max_tokens: int | None = None
    provider: Any = None


def block_options(label: str, options: Mapping[str, Any] | None, **given: Any) -> dict[str, Any]:
    """The options of a block, written as keywords, as a dict, or as both: keywords win."""
    read = as_settings(BlockOptions, options or {}, f"The context block {label!r}")
    return {name: getattr(read, name) if value is None else value for name, value in given.items()}


def as_provider(provider: Any) -> Any:
    """A provider that is written as a dict of functions (`{"get": …, "set": …}`), as an object with them.

    Raises `InvalidSettings` for a key that nobody reads.
    """
    written: Mapping[str, Any] = cast("Any", provider) if isinstance(provider, Mapping) else {}
    if not callable(written.get("get")):
        return cast("Any", provider)
    refuse_unknown(map(str, written), _OF_A_PROVIDER, "A provider that is a dict")
    return SimpleNamespace(**written)


_OF_A_PROVIDER = ("get", "set", "load", "search", "writable", "init", "bind")


def check_provider(label: str, provider: Any) -> None:
    """Raise unless a block can be read from `provider`."""
    if isinstance(provider, type):
        problem, next_step = f"the class {provider.__name__}", f"Give one of it: {provider.__name__}(...)."
    elif isinstance(provider, Mapping):  # it has a get() of another meaning
        problem, next_step = (
            "a dict",
            'Give {"get": a function that returns the text}, or an object with get().',
        )
    elif isinstance(provider, str) or callable(getattr(provider, "get", None)) or callable(provider):
        return
    else:
        problem = f"a {type(provider).__name__} without a method get()"
        next_step = "Give text, a function that returns it, or an object with get()."
    raise InvalidContext(
        f"The context block {label!r} cannot be read from {problem}.",
        kept="Nothing was changed.",
        next_step=next_step,
    )


def read_block(
    label: str,
    content: str,
    abilities: Abilities,
    *,
    description: str | None = None,
    max_tokens: int | None = None,
) -> ContextBlock:
    """The block as it is now."""
    return ContextBlock(
        label=label,
        description=description,
        content=content,
        tokens=estimate_tokens(content),
        max_tokens=max_tokens,
        writable=abilities.can_set,
        is_skill=abilities.can_load,
        is_searchable=abilities.can_search,
    )


def render(blocks: Iterable[ContextBlock]) -> str:
    """The system prompt that `blocks` make, in their order."""
    return "\n\n".join(_rendered(block) for block in blocks if _is_shown(block))


def catalogue_line(key: str, description: str | None) -> str:
    """One document as the prompt lists it, on one line."""
    told = " ".join((description or "").split())
    return f"- {key}: {told}" if told else f"- {key}"


def usage(block: ContextBlock) -> str:
    """How full a block is, in words."""
    if block.max_tokens is None:
        return f"{block.tokens} tokens"
    return f"{_percent(block.tokens, block.max_tokens)}% ({block.tokens}/{block.max_tokens} tokens)"


def _is_shown(block: ContextBlock) -> bool:
    # An empty block that can be filled is an invitation; any other empty block is noise.
    return bool(block.content) or block.writable or block.is_keyed


def _rendered(block: ContextBlock) -> str:
    header = block.label.upper()
    if block.description:
        header += f" ({block.description})"
    if block.max_tokens is not None:
        percent = _percent(block.tokens, block.max_tokens)
        header += f" [{percent}% — {block.tokens}/{block.max_tokens} tokens]"
    return f"{RULE}\n{header} [{_tag(block)}]\n{RULE}\n{block.content}"


def _tag(block: ContextBlock) -> str:
    if block.is_searchable:
        return "searchable"
    if block.is_skill:
        return "loadable"
    return "writable" if block.writable else "readonly"


def _percent(used: int, most: int) -> int:
    """Rounded half up, in whole numbers."""
    return (200 * used + most) // (2 * most)
