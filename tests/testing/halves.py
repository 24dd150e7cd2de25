"""An agent for nodes: says half of an answer, and the other half only where `HALVES_GO` is set."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Literal

from everthink import App, Think
from everthink.models import port as model


class Halves:
    """Says "The capital is ", then "Paris." or nothing for ever."""

    name = "halves"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        yield model.Opened()
        yield model.TextStart("t")
        yield model.TextDelta("t", "The capital is ")
        if not os.environ.get("HALVES_GO"):
            await asyncio.get_running_loop().create_future()
        yield model.TextDelta("t", "Paris.")
        yield model.TextEnd("t")
        yield model.Finish("stop")


class Guide(Think):
    model = Halves()


app = App(Guide, store="sqlite:///own.db", grace=0.0)
