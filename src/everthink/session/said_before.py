"""A message whose id is known already: the same one again, or another under its id?

    the input of a turn --refuse_other_words--> nothing, or InvalidMessage with the id

Somebody who sends a message again has it stored once, where it was. Another message under that id would be
lost, and its turn would answer something else: it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidMessage
from ..messages import Message
from .row_size import storable
from .session import Session

__all__ = ["refuse_other_words"]


def refuse_other_words(
    session: Session, messages: Sequence[Message], waiting: Sequence[Message] = ()
) -> None:
    """Raise `InvalidMessage` when one of `messages` has the id of another that is stored, among those that
    wait to be, or among themselves."""
    earlier = {message.id: message for message in waiting}
    for message in messages:
        known = session.find(message.id) or earlier.get(message.id)
        if known is not None and not _is_the_same(message, known):
            raise InvalidMessage(
                "message.id",
                f"is {message.id!r}, which another {known.role} message has already",
                next_step="Give each message an id of its own, or none. To change one that is stored, use"
                ' add_messages(…, mode="upsert").',
            )
        earlier[message.id] = message


def _is_the_same(said: Message, known: Message) -> bool:
    """Files may have left the stored one since, so the words decide where there are any."""
    if said.role != known.role:
        return False
    fitted = storable(said)
    return fitted.parts == known.parts or (bool(said.text) and fitted.text == known.text)
