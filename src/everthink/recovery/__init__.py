"""What users say about work that was cut off: turns, their tool calls, and what was set aside.

from everthink.recovery import RERUN, ChatRecovery, RecoveryDecision
"""

from ..facades import help_from
from ..tools.ask import REPORT, RERUN
from .context import ChatRecoveryContext, RecoveryDecision
from .incident import ChatRecovery, Exhausted, KeepRecovering
from .suspects import Suspect

__all__ = [
    "REPORT",
    "RERUN",
    "ChatRecovery",
    "ChatRecoveryContext",
    "Exhausted",
    "KeepRecovering",
    "RecoveryDecision",
    "Suspect",
]

help_from(__name__)
