"""The schema as a list of migrations. Each concept owns its tables; here they are put in order.

Numbers only grow. A step that a release has shipped is never changed: add the next one.
"""

from __future__ import annotations

from ..children import queries as children
from ..cluster import queries as cluster
from ..codemode import queries as codemode
from ..context import queries as context
from ..deliveries import queries as deliveries
from ..extensions import queries as extensions
from ..fibers import queries as fibers
from ..journal import queries as turn
from ..mcp import queries as mcp
from ..recovery import queries as recovery
from ..recovery import suspects
from ..schedules import alarm_queries as alarms
from ..schedules import job_queries as jobs
from ..schedules import queries as schedules
from ..session import attachments, authors
from ..session import queries as session
from ..session import session_queries as sessions
from ..store.port import Migration
from ..workspace import queries as workspace
from . import queries as runtime

__all__ = ["MIGRATIONS"]

MIGRATIONS = (
    Migration(1, "the journal", (*runtime.TABLES, *session.TABLES, *turn.TABLES)),
    Migration(2, "recovery", (*turn.RECOVERY, *recovery.TABLES)),
    Migration(3, "fibers", fibers.TABLES),
    Migration(4, "timers and the queue", (*alarms.TABLES, *jobs.TABLES)),
    Migration(5, "declared tasks", schedules.TABLES),
    Migration(
        6,
        "memory",
        (*session.MEMORY, *context.TABLES, *sessions.TABLES, *attachments.TABLES),
    ),
    Migration(7, "authors", authors.TABLES),
    Migration(8, "what is set aside", (*turn.SETTING_ASIDE, *suspects.TABLES)),
    Migration(9, "erasing", runtime.SEEN),
    Migration(10, "what tools said", turn.SAID),
    Migration(11, "who approved", turn.APPROVED),
    Migration(12, "several processes", cluster.TABLES, only="postgres"),
    Migration(13, "what was stopped", turn.STOPPED),
    Migration(14, "how turns fail", turn.FAILING),
    Migration(15, "MCP servers", mcp.TABLES),
    Migration(16, "questions of tools", turn.QUESTIONS),
    Migration(17, "families", (*runtime.FAMILIES, *children.TABLES)),
    Migration(18, "files", workspace.TABLES),
    Migration(19, "the order of paths", workspace.BYTE_ORDER, only="postgres"),
    Migration(20, "code that calls tools", codemode.TABLES),
    Migration(21, "attachments are files", attachments.MOVED["sqlite"], only="sqlite"),
    Migration(22, "attachments are files", attachments.MOVED["postgres"], only="postgres"),
    Migration(23, "one place for files", attachments.DROPPED),
    Migration(24, "turns that begin anew", turn.STARTING_OVER),
    Migration(25, "extensions", extensions.TABLES),
    Migration(26, "messengers", (*deliveries.TABLES, *runtime.WAITING)),
)
