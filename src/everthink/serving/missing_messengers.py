"""What the messengers of the agents miss before they can start: a token, a secret, a package, a path.

    doctor --what_is_missing--> each agent's get_messengers, then the platform: does it know the token?

An agent is not started for it: what its `get_messengers` returns is looked at as its start would. A platform
is asked one thing that changes nothing, and only when somebody wants that.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

from ..agent import Agent
from ..app.options import declares_messengers
from ..calling import call_hook
from ..errors import AgentError, is_for_people
from ..messengers.definition import MessengerDefinition, checked
from ..messengers.port import DeliveryError, Messenger, Refused
from ..think import Think

__all__ = ["Found", "Named", "ids_of", "what_is_missing", "who_answers"]

ANSWERING = 5.0
"""Seconds that all platforms together get to answer."""
PACKAGES = {"discord": ("discord", ("httpx2", "cryptography"))}
"""The extra and its packages that a platform needs; all others need those of `messengers`."""


@runtime_checkable
class Named(Protocol):
    """An adapter that can ask its platform who the bot is."""

    async def name(self) -> str:
        """The handle that the platform has of the bot. Raises `DeliveryError`s."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """What is to be said of the messengers of a class, or of one of them."""

    name: str
    state: Literal["ok", "note", "problem"]
    text: str
    mend: str = ""


async def what_is_missing(classes: Iterable[type[Agent]], *, asks: bool) -> list[Found]:
    """How the messengers of these classes stand. `asks`: platforms are asked whether they know the token."""
    found: list[Found] = []
    for cls in classes:
        if declares_messengers(cls):
            found += await _of_class(cast("type[Think]", cls), asks=asks)
    return found


async def _of_class(cls: type[Think], *, asks: bool) -> list[Found]:
    name = f"messengers {cls.__name__}"
    try:
        # Its own code, on an agent that never starts: it has no name, no state and no store.
        definitions = checked(await call_hook(object.__new__(cls).get_messengers))
    except KeyError as error:
        return [Found(name, "problem", _words(error), f"Set the variable {error.args[0]}, if it is one.")]
    except AgentError as error:
        return [Found(name, "problem", error.what, error.next_step)]
    except Exception as error:  # noqa: BLE001 - other people's code, told in their words
        text = f"get_messengers() cannot be asked before the agent starts: {_words(error)}"
        return [Found(name, "note", text, "Start it: everthink dev.")]
    rows = await asyncio.gather(*(_of_one(cls, id, one, asks=asks) for id, one in definitions.items()))
    return list(rows)


async def ids_of(cls: type[Agent]) -> set[str] | None:
    """The ids of the messengers of a class; `None` when only its agents know them."""
    if not declares_messengers(cls):
        return set()
    try:
        return set(checked(await call_hook(object.__new__(cast("type[Think]", cls)).get_messengers)))
    except Exception:  # noqa: BLE001 - what_is_missing tells why
        return None


def _words(error: Exception) -> str:
    return str(error) if is_for_people(error) else f"{type(error).__name__}: {error}"


async def _of_one(cls: type[Any], id: str, definition: MessengerDefinition, *, asks: bool) -> Found:
    name, adapter = f"messenger {id}", definition.messenger
    extra, packages = PACKAGES.get(adapter.provider, ("messengers", ("httpx2",)))
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        text = f"{cls.__name__}: {', '.join(missing)} not installed, which {adapter.provider} needs"
        return Found(name, "problem", text, f'pip install "everthink[{extra}]"')
    said = f"{cls.__name__}: {_place(id, definition)}"
    if not asks or not isinstance(adapter, Named):
        return _is_open(Found(name, "ok", said), definition)
    try:
        return _is_open(await _asked(Found(name, "ok", said), adapter, adapter), definition)
    finally:
        await adapter.close()


def _place(id: str, definition: MessengerDefinition) -> str:
    if getattr(definition.messenger, "polls", False):
        return f"asks {definition.messenger.provider} for what is new"
    return f"webhook at {definition.path_of(id)}"


async def _asked(found: Found, adapter: Messenger, named: Named) -> Found:
    """The same with what the platform says of the token."""
    platform = adapter.provider
    try:
        called = await asyncio.wait_for(named.name(), ANSWERING)
    except Refused as error:
        if error.why != "unauthorized":
            return _unknown(found, error.what)
        text = f"{found.text}; {platform} does not know the token: {error.what}"
        return Found(found.name, "problem", text, f"Copy it once more from {platform}.")
    except DeliveryError as error:
        return _unknown(found, error.what)
    except TimeoutError:
        return _unknown(found, f"It has not answered within {ANSWERING:g} seconds.")
    text = f"{found.text}; {platform} knows it as {called}"
    if adapter.user_name and called.lower() != adapter.user_name.lower():
        mend = f'Write user_name="{called}": people are answered who call it that.'
        return Found(found.name, "note", f"{text}, and user_name says {adapter.user_name}", mend)
    return Found(found.name, "ok", text)


async def who_answers(definition: MessengerDefinition, variable: str) -> tuple[str, bool]:
    """What is to be said of the bot whose token an environment variable has, and whether it answers."""
    adapter = definition.messenger
    assert isinstance(adapter, Named)
    platform = adapter.provider.title()
    try:
        return f"{platform}: @{await asyncio.wait_for(adapter.name(), ANSWERING)} answers, too.", True
    except Refused as error:
        if error.why == "unauthorized":
            words = f"{platform} does not know the token in {variable}, so no bot answers: {error.what}"
            return f"{words} Copy it once more from {platform}, and start again.", False
        why = error.what
    except DeliveryError as error:
        why = error.what
    except TimeoutError:
        why = f"It has not answered within {ANSWERING:g} seconds."
    finally:
        await adapter.close()
    return (
        f"{platform} was not reached, so the bot of {variable} does not answer yet: {why} It is tried on.",
        False,
    )


def _unknown(found: Found, why: str) -> Found:
    mend = "Whether the token is good is not known."
    return Found(found.name, "note", f"{found.text}; the platform was not reached: {why}", mend)


def _is_open(found: Found, definition: MessengerDefinition) -> Found:
    """The same for a webhook that anybody may call."""
    if definition.verify_webhook is not False or found.state != "ok":
        return found
    text = f"{found.text}; anybody may call the webhook: verify_webhook=False"
    return Found(
        found.name, "note", text, "Give it the secret of the platform, and leave verify_webhook out."
    )
