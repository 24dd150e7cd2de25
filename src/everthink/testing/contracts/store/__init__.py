"""What every `Store` must do. An adapter passes by subclassing `StoreContract` in its tests:

    pytestmark = pytest.mark.anyio

    class TestMyStore(StoreContract):
        @pytest.fixture(autouse=True)
        def place(self, tmp_path):
            self.path = tmp_path / "agents.db"

        async def open(self, migrations):
            return await open_my_store(self.path, migrations)

Needs pytest with the anyio plugin.
"""

from __future__ import annotations

from .agents import AgentContract
from .case import SCHEMA
from .commits import CommitsContract
from .guards import GuardsContract
from .lifetime import LifetimeContract
from .scrubs import ScrubContract
from .searches import SearchContract
from .values import ValuesContract

__all__ = ["SCHEMA", "SearchContract", "StoreContract"]


class StoreContract(
    CommitsContract,
    GuardsContract,
    AgentContract,
    ValuesContract,
    LifetimeContract,
    SearchContract,
    ScrubContract,
):
    """All the tests. Override `open`; set `keeps_data` to False when nothing outlives `close`, and
    `folds_accents` to False when a search for "cafe" does not find "café"."""
