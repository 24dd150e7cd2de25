"""Scripts and models of one's own that cannot be meant: they are told where they are written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from everthink.errors import AgentError, InvalidSettings, UnknownModel
from everthink.models.port import Finish, TextDelta, TextEnd, TextStart
from everthink.models.providers import resolve_model
from everthink.testing import ScriptedModel, fails, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: ScriptedModel("hello"), r"ScriptedModel: play is 'hello', a str\. It takes plays one after"),
        (lambda: ScriptedModel([says("x")]), r"ScriptedModel: play is \[Play"),
        (lambda: ScriptedModel().add(5), "ScriptedModel.add: play is 5"),
        (lambda: says(5), r"says: text is 5, an int\. It takes text\."),
        (
            lambda: says("x").finishes("done"),
            "finishes: reason is 'done', a str, which is none. There are: stop",
        ),
        (lambda: fails(kind="ratelimit"), "fails: kind is 'ratelimit'.*Did you mean 'rate_limit'"),
    ],
)
def test_a_script_that_is_none_is_refused_at_the_call(made: Callable[[], Any], told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        made()


class Mine:
    """A model of one's own."""

    name = "mine"
    continues = "prompt"

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        for event in (TextStart("t"), TextDelta("t", "Hi."), TextEnd("t"), Finish("stop")):
            yield event


async def test_a_model_of_one_s_own_answers(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(Mine()))
    assert (await app.agent(cls).save_messages("Hi")).status == "completed"


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("name", None, "Mine.name is None: .*Give it a text"),
        ("name", 5, "Mine.name is 5: .*Give it a text"),
        ("continues", "no", 'Mine.continues is \'no\': .*"prefill" or "prompt"'),
    ],
)
def test_a_model_of_one_s_own_that_lacks_something_is_named(field: str, value: Any, told: str) -> None:
    model = Mine()
    setattr(model, field, value)
    with pytest.raises(UnknownModel, match=told):
        resolve_model(model)


async def later(request: Any) -> str:
    return "Hi."


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        (lambda request: "Hi.", "Mine.stream returned 'Hi.', a str. Write `async def stream(self, request)`"),
        (later, "Mine.stream returned a coroutine: it is `async def` and has no `yield`."),
    ],
    ids=["text", "a coroutine"],
)
async def test_a_stream_that_is_none_is_told_with_the_class_of_the_model(
    open_app: OpenApp, stream: Any, told: str
) -> None:
    model: Any = Mine()
    model.stream = stream
    app = await open_app(cls := assistant(model))
    try:
        words = (await app.agent(cls).save_messages("Hi")).error or ""
    except AgentError as error:
        words = str(error)
    assert told in words


async def test_new_ids_that_are_no_text_are_told(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi."))), new_id=lambda: 5)
    with pytest.raises(InvalidSettings, match=r"App\(new_id=…\) returned 5, an int\. It returns a new text"):
        await app.agent(cls).save_messages("Hi")


@pytest.mark.parametrize("name", ["anthropic/claude-sonnet-5", "Anthropic/claude-sonnet-5"])
def test_a_slash_behind_the_provider_is_told_as_a_colon(name: str) -> None:
    with pytest.raises(UnknownModel, match="Write 'anthropic:claude-sonnet-5'"):
        resolve_model(name)
