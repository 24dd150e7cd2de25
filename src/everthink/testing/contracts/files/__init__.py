"""What every `Files` must do. An adapter passes by subclassing `FilesContract` in its tests:

    pytestmark = pytest.mark.anyio

    class TestMyFiles(FilesContract):
        async def open(self):
            return MyFiles()

Needs pytest with the anyio plugin.
"""

from __future__ import annotations

from .case import FilesCase
from .edits import EditsContract
from .history import HistoryContract
from .links import LinksContract
from .looking import LookingContract
from .trees import TreesContract

__all__ = ["FilesCase", "FilesContract", "HistoryContract"]


class FilesContract(EditsContract, LookingContract, LinksContract, TreesContract):
    """All the tests. Override `open`; set `keeps_media_types` to False when only names tell them, and
    `knows_hashes` when entries have none. A backend that remembers passes `HistoryContract` besides."""
