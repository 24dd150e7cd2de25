"""How an agent is reached on a platform: what `get_messengers()` returns, and what of it makes sense.

    get_messengers() --checked--> the definitions by id   Raises `InvalidSettings` otherwise

Pure. Factories of the platforms (`telegram_messenger`) end in `MessengerDefinition`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Never, TypedDict, TypeVar, cast, get_args

from ..errors import InvalidSettings
from ..kinds import check_fields, shown
from ..surface import knows_its_options
from .port import Messenger
from .values import Author, MessengerContext

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = [
    "COMMANDS",
    "EMPTY",
    "ERROR",
    "INTERRUPTED",
    "Command",
    "CommonOptions",
    "Conversation",
    "DeliveryPolicy",
    "MessengerDefinition",
    "RespondTo",
    "SelfConversation",
    "SubAgentConversation",
    "Verify",
    "checked",
    "define_messengers",
    "factory",
]

RespondTo = Literal["direct-message", "mention", "subscribed-thread", "action"]
Command = Literal["stop", "new"]
COMMANDS: tuple[Command, ...] = get_args(Command)

EMPTY = "I couldn't produce a text response. Please try again."
ERROR = "Sorry, I couldn't answer that right now. Please try again."
INTERRUPTED = "Sorry, my reply was interrupted. Please send your message again if you'd like me to retry."

Verify = Callable[["Request"], "bool | Response | Awaitable[bool | Response]"]


@dataclass(frozen=True, slots=True)
class SelfConversation:
    """The agent that has the messenger answers itself."""


@knows_its_options()
@dataclass(frozen=True, slots=True)
class SubAgentConversation:
    """A child of the agent that has the messenger answers; one for each name."""

    name: str
    agent_class: type[Any] | None = None
    """Default: the class of the agent that has the messenger."""


F = TypeVar("F", bound=Callable[..., Any])
Resolver = Callable[[MessengerContext], Any]
Conversation = Literal["thread", "self", "agent"] | Resolver


@knows_its_options()
@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """How answers are shown."""

    visible_soft_limit: int | None = None
    """Characters of the message that is streamed; what is longer follows. Default: the platform's."""
    split_text: Callable[[str], Sequence[str]] | None = None
    """How what follows is split. Default: at paragraphs, lines and spaces, to the platform's length. Pieces
    that the platform would not take are split further; one that raises, or returns nothing, is left out."""
    empty_response_text: str = EMPTY
    error_response_text: str = ERROR
    interrupted_response_text: str = INTERRUPTED
    on_uncertain: Literal["repeat", "skip"] = "repeat"
    """What becomes of a message of which nobody knows whether it was shown, where the platform cannot say:
    it is sent again (one too many beats none), or not."""
    give_up_after: float = 24 * 3600.0
    """Seconds for which a message is tried that the platform does not take, before it counts as failed."""
    max_attempts: int = 8
    """How often at most when nobody knows what came of it, so that people may see it each time; or when the
    adapter itself fails."""

    def __post_init__(self) -> None:
        check_fields(self, "DeliveryPolicy")


class CommonOptions(TypedDict, total=False):
    """What every factory takes besides what its platform needs."""

    path: str
    respond_to: Sequence[RespondTo]
    subscribe_on_mention: bool
    conversation: Conversation
    delivery: DeliveryPolicy
    speaker_label: Callable[[Author], str | None] | None
    commands: Sequence[Command]
    approvers: Sequence[str] | None
    fetch_media: Sequence[str]
    burst: float
    answer_bots: bool
    adapter_name: str | None


def factory(function: F) -> F:
    """A factory of a platform refuses an option that neither it nor `MessengerDefinition` has."""
    return knows_its_options(*CommonOptions.__annotations__)(function)


@knows_its_options()
@dataclass(frozen=True, slots=True, kw_only=True)
class MessengerDefinition:
    """One bot of one platform, and how it behaves:

    MessengerDefinition(messenger=MyAdapter(), verify_webhook=True)
    """

    messenger: Messenger
    """What speaks with the platform."""
    verify_webhook: Verify | bool | None = None
    """Who may call the webhook. `True`: as the adapter verifies; a function of the request, which returns
    True, False (401) or a response; or `False`, on purpose: anybody."""
    adapter_name: str | None = None
    """Another for each of two bots of one platform. Default: the platform's name."""
    path: str | None = None
    """Where the platform sends to. Default: `/messengers/{id}/webhook`."""
    respond_to: Sequence[RespondTo] = ("direct-message", "mention")
    """What is answered."""
    subscribe_on_mention: bool = True
    """Whether a thread in which the bot was mentioned is listened to from then on."""
    conversation: Conversation = "thread"
    """Who answers: `"thread"`, a child for each thread; `"self"`, the agent itself; `"agent"`, a top-level
    agent for each thread; or a function of the context that returns `"self"`, or the name of a child."""
    delivery: DeliveryPolicy = field(default_factory=DeliveryPolicy)
    """How answers are shown."""
    speaker_label: Callable[[Author], str | None] | None = None
    """What stands before what somebody says in a group. Default: their name. `None` from it: nothing."""
    commands: Sequence[Command] = ()
    """Commands that are answered without a model: `"stop"` stops the answer, `"new"` begins anew."""
    approvers: Sequence[str] | None = None
    """Ids of the people who may answer approvals. Default: whoever asked."""
    fetch_media: Sequence[str] = ()
    """Kinds of files that the model is shown: `("image",)`."""
    burst: float = 0.6
    """Seconds of quiet after which messages that follow each other are answered, together. 0: one by one."""
    answer_bots: bool = False
    """Whether other bots are answered. Two bots that answer each other never end."""

    def __post_init__(self) -> None:
        check_fields(self, "MessengerDefinition")

    @property
    def name(self) -> str:
        """What the adapter is called among those of the agent."""
        return self.adapter_name or self.messenger.provider

    def path_of(self, id: str) -> str:
        """Where the platform sends to, for the messenger `id`."""
        return self.path if self.path is not None else f"/messengers/{id}/webhook"


def define_messengers(
    messengers: Mapping[str, MessengerDefinition] | None = None, **unknown: Never
) -> Mapping[str, MessengerDefinition]:
    """The messengers of an agent, as they are written: for readers and for types."""
    for id in unknown:
        raise InvalidSettings(
            f"define_messengers() has no option {id!r}.",
            next_step=f'It takes one dict: define_messengers({{"{id}": …}}).',
        )
    return messengers or {}


def checked(messengers: Any) -> dict[str, MessengerDefinition]:
    """What `get_messengers()` returned, if it makes sense. Raises `InvalidSettings`."""
    if not isinstance(messengers, Mapping):
        raise InvalidSettings(
            f"get_messengers returned {shown(messengers)}.",
            next_step='Return a dict: {"telegram": telegram_messenger(…)}.',
        )
    found: dict[str, MessengerDefinition] = {}
    names: dict[str, str] = {}
    paths: dict[str, str] = {}
    for id, given in cast("Mapping[Any, Any]", messengers).items():
        if not isinstance(id, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", id):
            raise InvalidSettings(
                f"Messenger {id!r} has no usable id.",
                next_step="Letters, digits, - and _ make one, 64 at most: it is part of an address.",
            )
        if not isinstance(given, MessengerDefinition):
            raise InvalidSettings(
                f"Messenger {id} is {shown(given)}.",
                next_step="Make it with a factory, such as telegram_messenger(…), or MessengerDefinition(…).",
            )
        path = given.path_of(id)
        if not path.startswith("/"):
            raise InvalidSettings(f'Messenger {id} path must start with "/".')
        if "?" in path or "#" in path:
            raise InvalidSettings(f"Messenger {id} path must not include query or hash.")
        if given.verify_webhook is None:
            raise InvalidSettings(
                f"Messenger {id} requires verify_webhook, or verify_webhook=False to opt out explicitly."
            )
        if given.name in names:
            raise InvalidSettings(
                f"Duplicate messenger adapter name: {given.name}.",
                next_step=f"{names[given.name]} and {id} have it: give one of them adapter_name=….",
            )
        if path in paths:
            raise InvalidSettings(
                f"Duplicate messenger path: {path}.",
                next_step=f"{paths[path]} and {id} have it: give one of them another path=….",
            )
        names[given.name], paths[path], found[id] = id, id, given
    return found
