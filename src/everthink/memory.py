"""What an agent remembers: its conversations, the blocks of its prompt, and how a long history is shortened.

from everthink.memory import ContextBlock, Session, create_compact_function
"""

from .context.blocks import ContextBlock, ContextProvider
from .context.object_store import ObjectStoreProvider
from .context.providers import DirectoryProvider, SearchableEntries, StoredBlock, StoredEntries
from .facades import help_from
from .models.classify import default_context_overflow_classifier
from .models.tokens import TokenCount
from .prompt.convert import prune_tool_calls
from .session.media import MediaEviction
from .session.overlay import Overlay
from .session.row_size import Shortening
from .session.session import SearchHit, Session
from .session.session_queries import SessionInfo
from .session.sessions import Sessions
from .session.summary import CompactContext, Compaction, create_compact_function, model_summarizer
from .session.tree import RecentHistory
from .turn.overflow import ContextOverflow, Proactive

__all__ = [
    "CompactContext",
    "Compaction",
    "ContextBlock",
    "ContextOverflow",
    "ContextProvider",
    "DirectoryProvider",
    "MediaEviction",
    "ObjectStoreProvider",
    "Overlay",
    "Proactive",
    "RecentHistory",
    "SearchHit",
    "SearchableEntries",
    "Session",
    "SessionInfo",
    "Sessions",
    "Shortening",
    "StoredBlock",
    "StoredEntries",
    "TokenCount",
    "create_compact_function",
    "default_context_overflow_classifier",
    "model_summarizer",
    "prune_tool_calls",
]

help_from(__name__)
