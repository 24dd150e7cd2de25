"""Turns that are set aside: what people and operators are told, and what is written.

    a turn that takes the process down, or cannot be read --put_aside--> its row, the suspects --> release

All of it is kept. Nothing of it is read.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ..errors import AgentError
from ..journal import queries as turns
from ..observe.events import ChatTurnSetAside
from ..store.port import Statement
from ..turn.host import TurnHost
from .suspects import Suspect
from .trials import Trials

__all__ = ["SET_ASIDE_TEXT", "UNREADABLE_TEXT", "put_aside", "tell_aside"]

log = logging.getLogger("everthink.recovery")

SET_ASIDE_TEXT = (
    "This answer was interrupted several times in a way that stopped the server, and is set aside."
    " What was said is kept. You can go on with the conversation; an operator can have it tried again."
)
"""What people read of a turn that took the process down too often."""
UNREADABLE_TEXT = (
    "This answer was interrupted, and what is stored of it cannot be read, so it is set aside."
    " Nothing was deleted. You can go on with the conversation."
)


def put_aside(
    host: TurnHost, trials: Trials, turn_id: str, suspect: Suspect, text: str, error: Exception | None
) -> list[Statement]:
    """The statements that set a turn aside. Follow their commit with `tell_aside`."""
    aside = suspect if error is None else replace(suspect, what=_why(suspect, error))
    return [
        turns.set_aside(turn_id, error=text, now=host.clock.now_ms()),
        trials.aside(aside),
    ]


def tell_aside(
    host: TurnHost, turn_id: str, request_id: str, suspect: Suspect, error: Exception | None
) -> None:
    """Tell observers and operators that a turn was set aside."""
    why = _why(suspect, error)
    log.error(
        "turn %s of %s is set aside: %s. All of it is kept; `everthink release %s --turn %s` tries again.",
        turn_id,
        host.id,
        why,
        host.id,
        turn_id,
        exc_info=None if isinstance(error, AgentError) else error,
    )
    host.emit(
        ChatTurnSetAside(
            request_id=request_id,
            turn_id=turn_id,
            reason="strikes" if error is None else "unreadable",
            strikes=suspect.strikes,
            error=why,
        )
    )


def _why(suspect: Suspect, error: Exception | None) -> str:
    if error is None:
        return f"the process died, or was killed, in {suspect.strikes} attempts"
    return error.what.rstrip(".") if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
