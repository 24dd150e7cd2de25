"""Agents that talk in messengers: Telegram, Slack, Discord, or one of your own.

from everthink.messengers import DeliveryPolicy, define_messengers
"""

from ..facades import help_from
from .definition import DeliveryPolicy, MessengerDefinition, SubAgentConversation, define_messengers
from .port import DeliveryError, Messenger, Moved, RateLimited, Refused, Uncertain, Unreachable
from .values import (
    Action,
    Arrived,
    Attachment,
    Author,
    Button,
    Capabilities,
    Draft,
    Incoming,
    MessengerContext,
    MessengerEvent,
    MessengerLimits,
    Target,
    Thread,
    WebhookReply,
)

__all__ = [
    "Action",
    "Arrived",
    "Attachment",
    "Author",
    "Button",
    "Capabilities",
    "DeliveryError",
    "DeliveryPolicy",
    "Draft",
    "Incoming",
    "Messenger",
    "MessengerContext",
    "MessengerDefinition",
    "MessengerEvent",
    "MessengerLimits",
    "Moved",
    "RateLimited",
    "Refused",
    "SubAgentConversation",
    "Target",
    "Thread",
    "Uncertain",
    "Unreachable",
    "WebhookReply",
    "define_messengers",
]

help_from(__name__)
