"""What `chat()` and its kin give and take: the stream, its callback, signals that stop it, what overlaps.

from everthink.chat import AbortController, ChatStream, Debounce
"""

from .abort import AbortController, AbortSignal
from .door.chat_stream import ChatStream, StreamCallback
from .door.concurrency import Debounce
from .facades import help_from
from .hooks.values import PendingCall

__all__ = ["AbortController", "AbortSignal", "ChatStream", "Debounce", "PendingCall", "StreamCallback"]

help_from(__name__)
