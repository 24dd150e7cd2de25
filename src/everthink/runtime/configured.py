"""A session as its agent wants it: `configure_session`, and what of it does not go together.

    make_session --> configured --agent.configure_session--> Session

What is set up in halves does nothing, and nobody would see it: it is told once for each class.
"""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import InvalidSettings
from ..hooks.runner import HookRunner
from ..session.session import Session
from ..settings import shown
from ..turn.overflow import overflow_of

__all__ = ["configured"]

log = logging.getLogger("everthink.runtime")

_told: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


async def configured(hooks: HookRunner, session: Session) -> Session:
    """The session that the agent's `configure_session` has set up. Raises when it returns something else."""
    agent, answer = hooks.agent, await hooks.configure_session(session)
    if answer is not None and not isinstance(answer, Session):
        raise InvalidSettings(
            f"configure_session returned {shown(answer)}.",
            next_step="Return the session it is given, set up: session.with_context(…); or None.",
        )
    made = answer or session
    if not made.has_compaction and type(agent) not in _told:
        _tell_without_compaction(agent, made)
    return made


def _tell_without_compaction(agent: Any, session: Session) -> None:
    """What waits for a compaction, where nobody says how to shorten a conversation."""
    waiting = {
        "compact_after": session.token_threshold is not None,
        "context_overflow.proactive": _is_proactive(agent),
    }
    for name in (name for name, is_set in waiting.items() if is_set):
        _told[type(agent)] = True
        log.warning(
            "%s has %s and no compaction, so that nothing is ever shortened: give its session one in"
            " configure_session, on_compaction(create_compact_function(summarize=self.generate_text)).",
            type(agent).__name__,
            name,
        )


def _is_proactive(agent: Any) -> bool:
    try:
        return overflow_of(agent.context_overflow).proactive is not None
    except InvalidSettings:
        return False  # what a property gives: the turn that needs it says so
