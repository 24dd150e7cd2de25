"""What tools for files cost: a turn that is offered all eight against one that is not."""

from __future__ import annotations

from pathlib import Path

from everthink import App, Think
from everthink.testing.scripted import ScriptedModel, says

from .by_turns import cpu_of_turns
from .measure import Row
from .work import SHORT


class WithFiles(Think):
    """Is offered the tools for its workspace."""

    model = ScriptedModel.forever(says(*SHORT.text))


class WithoutFiles(WithFiles):
    """Is offered none."""

    include_workspace_tools = False


async def offered(folder: Path, *, turns: int) -> list[Row]:
    """CPU of a turn, with and without them, by turns. The same request, but for the tools."""
    async with App(WithFiles, WithoutFiles, store=f"sqlite:///{folder / 'file_tools.db'}") as app:
        some, none = await cpu_of_turns(app, (WithFiles, WithoutFiles), turns=turns)
    row = Row("CPU of a turn with the tools for files against one without", "×", {"everthink": some / none})
    return [row.held_to("≤ 1.1 ×", some <= 1.1 * none)]
