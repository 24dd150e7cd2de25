"""The schema as a list of migrations. Each concept owns its tables; here they are put in order.

Numbers only grow. A step that a release has shipped is never changed: add the next one.
"""

from __future__ import annotations

from ..session import queries as session
from ..store.port import Migration
from ..turn import queries as turn
from . import queries as runtime

__all__ = ["MIGRATIONS"]

MIGRATIONS = (Migration(1, "the journal", (*runtime.TABLES, *session.TABLES, *turn.TABLES)),)
