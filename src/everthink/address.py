"""How agents are called: a class in an address, a name from everywhere.

    app.agent(Cls, "Jürgen") --canonical--> "Jürgen" <--from_address-- /agents/cls/J%C3%BCrgen
    connect(server, Cls, "Jürgen") --in_address--> /agents/cls/J%C3%BCrgen
    Address("Cls", "Jürgen").id --> "Cls/Jürgen": what rows of the agent begin with

One name is one agent, whether somebody's keyboard writes *ü* as one character or as two, and whether a
browser escapes it. `/`, `?` and `#` stay escaped: a name that is read somewhere leads back to its agent, and
no stranger can make a name that is a path. So an address cannot say a name that has them: only code can.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from .errors import AgentError

__all__ = [
    "MAX_NAME",
    "Address",
    "canonical",
    "check_name",
    "check_place",
    "child_in_address",
    "from_address",
    "in_address",
    "kebab",
]

_KEPT = re.compile("(%2[Ff]|%3[Ff]|%23)")
MAX_NAME = 512
_UNFIT = re.compile("[\x00\ud800-\udfff]")
"""What no database can keep: two such names would be one."""
MAX_DEPTH = 4
"""So many levels of children there may be below an agent."""
MAX_ID = 1024
"""So many bytes the id of a child may have: it stands in every index."""


@dataclass(frozen=True, slots=True)
class Address:
    """Which agent: the name of its class, its own, and whose child it is."""

    cls_name: str
    name: str
    parents: tuple[tuple[str, str], ...] = ()
    """Class and name of those above it, from the outermost to its own parent."""

    @property
    def id(self) -> str:
        """What the rows of the agent begin with: `Class/name`. Of a child, below the id of its parent."""
        if not self.parents:
            return f"{self.cls_name}/{self.name}"
        *above, parent = self.parents
        # Where a child's name ends must be seen: it may have slashes, as every name.
        name = self.name.replace("%", "%25").replace("/", "%2F")
        return f"{Address(*parent, tuple(above)).id}/sub/{self.cls_name}/{name}"

    @property
    def parent(self) -> Address | None:
        """Whose child it is; `None` for an agent that is nobody's."""
        return Address(*self.parents[-1], self.parents[:-1]) if self.parents else None

    @property
    def root(self) -> Address:
        """The outermost of those above it; itself when there is none."""
        return Address(*self.parents[0]) if self.parents else self

    @property
    def path(self) -> tuple[tuple[str, str], ...]:
        """Class and name of all, from the outermost to itself."""
        return (*self.parents, (self.cls_name, self.name))

    @property
    def family(self) -> tuple[Address, ...]:
        """The addresses of those above it, the outermost first, and its own."""
        path = self.path
        return tuple(Address(*path[at], path[:at]) for at in range(len(path)))

    def child(self, cls_name: str, name: str) -> Address:
        """The address of one of its children."""
        return Address(cls_name, name, self.path)

    @classmethod
    def parse(cls, written: str) -> Address:
        """The address of an agent without parents, as a person writes it: the first slash ends the class.

        Not for ids of rows: a name may look like the address of a child.
        """
        cls_name, _, name = written.partition("/")
        return cls(cls_name, name)

    def __str__(self) -> str:
        return self.id


def kebab(name: str) -> str:
    """`ThinkPeer` is `think-peer`, `MY_AGENT` is `my-agent`, `HTTPAgent` is `h-t-t-p-agent`."""
    if name == name.upper():
        return name.lower().replace("_", "-")
    dashed = re.sub(r"([A-Z])", lambda found: "-" + found[1].lower(), name)
    return dashed.removeprefix("-").replace("_", "-").removesuffix("-")


def canonical(name: Any) -> Any:
    """A name in the form in which it is kept (NFC). What is no text stays for whoever checks names."""
    return unicodedata.normalize("NFC", name) if isinstance(name, str) else name


def in_address(name: str) -> str:
    """The segment of a path that stands for a name. Raises for a name that none stands for."""
    segment = quote(name, safe="", errors="replace")
    if name and from_address(segment) == canonical(name):
        return segment
    raise AgentError(
        f"{name!r} is a name that no address can say: it is empty or has a /, ?, # or control character.",
        kept="Nothing was sent.",
        next_step="Call agents that clients reach otherwise, shop.berlin rather than shop/berlin."
        " From inside the app, app.agent(…) reaches agents of any name.",
    )


def child_in_address(name: str) -> str:
    """The segment of a path that stands for the name of a child, which may have slashes. Raises as above."""
    if name and not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return quote(name, safe="")
    raise AgentError(
        f"{name!r} is the name of a child that no address can say: it is empty or has a control character.",
        kept="Nothing was sent.",
        next_step="Call children that clients reach otherwise. From inside, sub_agent(…) reaches any.",
    )


def from_address(segment: str) -> str:
    """The name that a segment of a path stands for. One that makes no name stands for itself."""
    try:
        pieces = _KEPT.split(segment)
        name = "".join(
            piece.upper() if _KEPT.fullmatch(piece) else unquote(piece, errors="strict") for piece in pieces
        )
    except UnicodeDecodeError:
        return segment
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return segment
    return canonical(name)


# --- which there can be


def check_name(name: Any) -> None:
    """Refuse what can be no agent's name."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or _UNFIT.search(name):
        raise AgentError(
            f"An agent's name is text of 1 to {MAX_NAME} characters; this one is {str(name)[:40]!r}.",
            kept="Nothing was made.",
            next_step="Any will do, but NUL and halves of surrogate pairs are none.",
        )


def check_place(address: Address) -> None:
    """Refuse a child that lies too deep, or whose id no index could hold; and who would be taken for one."""
    if not address.parents:
        if "/sub/" in address.name:
            raise AgentError(
                f"{address.name!r:.80} cannot be the name of an agent: /sub/ is what parts children.",
                kept="Nothing was made.",
                next_step="Give it another name; a child is reached through its parent: sub_agent(…).",
            )
        return
    if kebab(address.cls_name) == "sub":
        raise AgentError(
            f"{address.cls_name} cannot be the class of a child: /sub/ is what parts children in an address.",
            next_step="Give the class another name.",
        )
    if len(address.parents) > MAX_DEPTH:
        chain = " > ".join(f"{cls} {name!r:.40}" for cls, name in address.path)
        raise AgentError(
            f"Children go {MAX_DEPTH} levels deep, and this one would be below that: {chain}.",
            kept="Nothing was made.",
            next_step="Does an agent call itself as a tool? Let an agent further up do the work.",
        )
    if (size := len(address.id.encode())) > MAX_ID:
        raise AgentError(
            f"The id of this {address.cls_name} would have {size} bytes, and {MAX_ID} is the most: its name"
            " and those of all above it count.",
            kept="Nothing was made.",
            next_step="Use shorter names.",
        )
