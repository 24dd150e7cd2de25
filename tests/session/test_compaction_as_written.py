"""Compaction that cannot work is told where it is written: the call, the session, the function's answer."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think
from everthink.errors import InvalidSettings
from everthink.memory import ContextOverflow, Proactive, create_compact_function
from everthink.session.compaction import CompactionFailed
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.memory import Summarizer, between, fill

from .conftest import OpenSession

pytestmark = pytest.mark.anyio

PROACTIVE = ContextOverflow(proactive=Proactive(max_input_tokens=1000))


@pytest.mark.parametrize("threshold", [0, -1, "100k", None, True, 1.5])
async def test_a_threshold_is_a_whole_number_of_tokens(open_session: OpenSession, threshold: Any) -> None:
    session = await open_session()
    with pytest.raises(InvalidSettings, match=r"compact_after: threshold is .*whole number of at least 1"):
        session.compact_after(threshold)
    with pytest.raises(InvalidSettings, match="compact_after: token_counter is 'words'"):
        session.compact_after(1, token_counter="words")  # type: ignore[arg-type]


class Writer(Think):
    """An agent whose methods are given to its session."""

    model = "demo"


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        ("in short", "on_compaction is given 'in short', a str"),
        (Writer().generate_text, "on_compaction is given Think.generate_text, which cannot be called"),
        (lambda messages: None, "on_compaction is given .*<lambda>, which cannot be called"),
        (lambda a, b, c: None, "cannot be called with the messages and the context: missing"),
    ],
)
async def test_what_cannot_compact_is_refused_and_the_way_out_is_named(
    open_session: OpenSession, fn: Any, told: str
) -> None:
    session = await open_session()
    with pytest.raises(InvalidSettings, match=told) as refused:
        session.on_compaction(fn)
    assert "create_compact_function(summarize=…)" in str(refused.value)


@pytest.mark.parametrize("fn", [Summarizer(), lambda *given: None, lambda messages, context, more=1: None])
async def test_whatever_takes_the_messages_and_the_context_can_compact(
    open_session: OpenSession, fn: Any
) -> None:
    assert (await open_session()).on_compaction(fn).has_compaction


def test_a_summarizer_is_a_function() -> None:
    with pytest.raises(InvalidSettings, match="create_compact_function: summarize is 'demo'"):
        create_compact_function(summarize="demo")  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", ["in short", {"text": "in short"}, 5])
async def test_a_function_that_returns_something_else_is_named_with_what_it_must_return(
    open_session: OpenSession, answer: Any
) -> None:
    def briefly(messages: Any, context: Any) -> Any:
        return answer

    session = (await open_session()).on_compaction(briefly)
    told: list[Any] = []
    session.listener = told.append
    await fill(session, *"abc")
    assert await session.compact() is None
    [failed] = [news for news in told if isinstance(news, CompactionFailed)]
    kind = type(answer).__name__
    assert f"briefly returned {'an' if kind == 'int' else 'a'} {kind}." in failed.error
    assert "Return Compaction(from_message_id, to_message_id, summary)" in failed.error


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"configure_session": lambda self, session: session.compact_after(100)}, "compact_after"),
        ({"context_overflow": PROACTIVE}, "context_overflow.proactive"),
    ],
    ids=["compact_after", "proactive"],
)
async def test_what_waits_for_a_compaction_that_is_not_there_is_told_once(
    open_app: OpenApp, members: Any, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi."), says("Hi.")), **members))
    for name in ("a", "b"):
        await app.agent(cls, name).save_messages("Hi")
    told = [text for text in caplog.messages if "no compaction" in text]
    assert len(told) == 1
    assert told[0].startswith(f"Assistant has {named} and no compaction")


async def test_a_session_with_a_compaction_is_not_worth_a_word(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    def configure_session(self: Any, session: Any) -> Any:
        return session.on_compaction(between("a", "b", "in short")).compact_after(10_000)

    cls = assistant(
        ScriptedModel(says("Hi.")), configure_session=configure_session, context_overflow=PROACTIVE
    )
    await (await open_app(cls)).agent(cls).save_messages("Hi")
    assert [text for text in caplog.messages if "no compaction" in text] == []
