"""What a turn has used, in its result."""

from __future__ import annotations

import pytest

from everthink import Think, tool
from everthink.models.port import Usage
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

pytestmark = pytest.mark.anyio


class Looking(Think):
    @tool
    def look(self) -> str:
        """Look."""
        return "seen"


async def test_the_usage_of_all_steps_is_in_the_result(open_app: OpenApp) -> None:
    model = ScriptedModel(
        calls("look").uses(10, 2), says("Done.").uses(30, 5, reasoning_tokens=3), says("No.")
    )
    cls = type("Assistant", (Looking,), {"model": model})
    app = await open_app(cls)
    result = await app.agent(cls).save_messages("Hi")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (40, 7)
    assert result.usage.reasoning_tokens == 3

    # What is not reported is unknown, and each turn has its own
    assert (await app.agent(cls).save_messages("Again")).usage == Usage()


async def test_it_is_in_the_result_of_a_stream_and_of_a_failure_too(open_app: OpenApp) -> None:
    model = ScriptedModel(
        says("Hello.").uses(3, 1), calls("look").uses(5, 1), says("Half").then_fails("Broke.", kind="fatal")
    )
    cls = type("Assistant", (Looking,), {"model": model})
    app = await open_app(cls)
    assert (await app.agent(cls).chat("Hi")).usage.input_tokens == 3
    failed = await app.agent(cls).save_messages("Look")
    assert (failed.status, failed.usage.input_tokens) == ("error", 5)


async def test_a_turn_that_never_ran_used_nothing(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    assert (await app.agent(cls).continue_last_turn()).usage == Usage()


def test_usages_add_up_and_unknown_stays_unknown() -> None:
    assert Usage(1, None, 3) + Usage(2, None, None, 4) == Usage(3, None, 3, 4)
