"""One yes, one run: whichever branch, session or restart comes by, and whoever goes there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import tool
from everthink.messages import Message
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.client import Client
from tests.support.agents import live

from ..support.turns import Database, all_over
from .conftest import Serve, ServeOn
from .strangers import Shop, by_token, opened, people, said, shop

pytestmark = pytest.mark.anyio

PAID = [("A", 10)]


def changed(messages: list[Message], text: str) -> list[Message]:
    """The question as its author writes it anew."""
    return [said(messages[0].id, text)]


def talkative() -> ScriptedModel:
    """Asks for a refund, then says something whatever it is told."""
    plays = iter([calls("refund", id="c1", order="A", amount=10)])
    return ScriptedModel.forever(lambda _: next(plays, says("Fine.")))


async def again(client: Client, messages: list[Message]) -> None:
    """Have something answered again."""
    await client.until_done(await client.request(messages, trigger="regenerate-message"))


async def asked(server: Any, cls: type[Shop]) -> tuple[Client, list[Message]]:
    """Somebody who has asked for a refund, and what they see."""
    (one,) = await people(server, cls, "ada")
    await one.until_done(await one.request([said("u1", "Refund A")]))
    return one, list(one.messages)


async def test_a_call_that_was_approved_runs_once_on_all_branches(serve_on: ServeOn) -> None:
    # Given a yes that nothing continues, and an author who goes elsewhere
    cls = shop(talkative())
    server = await serve_on(cls)
    one, old = await asked(server, cls)
    await one.approve("c1", auto_continue=False)
    await one.settled()
    await one.until_done(await one.request(changed(old, "Never mind")))
    # When they come back to the question, again and again
    for number in range(3):
        await again(one, old)
        await one.until_done(await one.request(changed(old, f"Never mind {number}")))
        await again(one, old)
    # Then it has run once, and the conversation holds its result
    assert cls.paid == PAID
    agent = await live(server.app.agent(cls, "room"))
    holder = await agent.session.get_message(old[-1].id)
    assert [p["output"] for p in holder.parts if p.get("toolCallId") == "c1"] == ["paid 10"]


async def test_who_may_not_answer_gets_no_second_run_out_of_anothers_yes(serve_on: ServeOn) -> None:
    def authorize(identity: Any, action: str, agent: Any) -> Any:
        return True if identity == "ada" else ["ask", "cancel"]

    cls = shop(talkative())
    server = await serve_on(cls, authenticate=by_token, authorize=authorize)
    eve, ada = await people(server, cls, "eve", "ada")
    await eve.until_done(await eve.request([said("u1", "Refund A")]))
    old = list(eve.messages)
    await ada.until(lambda: any(p.get("toolCallId") for m in ada.messages for p in m.parts))
    await ada.approve("c1")
    requests = [await eve.request(changed(old, "Never mind"))]
    requests += [await eve.request(old, trigger="regenerate-message") for _ in range(3)]
    for request in requests:
        await eve.until_done(request)
    await all_over(server.app, cls, "room")
    await again(eve, old)
    assert len(cls.paid) <= 1


@pytest.mark.parametrize("clears", [False, True])
async def test_a_call_that_was_approved_does_not_run_again_in_a_fork(serve_on: ServeOn, clears: bool) -> None:
    cls = shop(talkative())
    server = await serve_on(cls)
    one, old = await asked(server, cls)
    await one.approve("c1", auto_continue=False)
    await one.settled()
    agent = await live(server.app.agent(cls, "room"))
    fork = await agent.sessions.fork("", old[-1].id)
    await one.until_done(await one.request([*one.messages, said("u2", "Go on")]))
    assert cls.paid == PAID
    if clears:
        await one.clear()
        await one.settled()
    await agent.sessions.open(fork.id)
    (two,) = await people(server, cls, "ada")
    await two.until_done(await two.request([*two.messages, said("u3", "Go on")]))
    assert cls.paid == PAID


async def test_a_run_that_was_cut_off_is_not_begun_again_on_another_branch(tmp_path: Path) -> None:
    # Given an approved call that was cut off in the middle
    begun: list[str] = []
    running = asyncio.Event()

    class Slow(Shop):
        model = talkative()
        paid: list[tuple[str, int]] = []  # noqa: RUF012
        looked: list[str] = []  # noqa: RUF012

        @tool(needs_approval=True)
        async def refund(self, order: str, amount: int) -> str:
            """Pay money back."""
            begun.append(order)
            running.set()
            await asyncio.Event().wait()
            return "never"

    async with opened(tmp_path, Slow, grace=0.0) as server:
        one, old = await asked(server, Slow)
        await one.approve("c1", auto_continue=False)
        await one.settled()
        await one.until_done(await one.request(changed(old, "Never mind")))
        await one.request(old, trigger="regenerate-message")
        await running.wait()
    # When somebody goes back to it after a restart
    async with opened(tmp_path, Slow) as server:
        (one,) = await people(server, Slow, "ada")
        await all_over(server.app, Slow, "room")
        for _ in range(2):
            await one.until_done(await one.request(changed(old, "Never mind")))
            await again(one, old)
    # Then it is reported, not run
    assert begun == ["A"]
    assert Database(tmp_path).calls()["c1"]["state"] == "unknown"


async def test_a_deleted_submission_takes_no_yes_back(serve: Serve) -> None:
    cls = shop(talkative())
    server = await serve(cls)
    agent = server.app.agent(cls, "room")
    submission = await agent.submit_messages("Refund A")
    await agent.wait_for_submission(submission.submission_id)
    (one,) = await people(server, cls, "ada")
    old = list(one.messages)
    fork = await (await live(agent)).sessions.fork("", old[-1].id)
    await one.approve("c1")
    await one.until_text("Fine.")
    await all_over(server.app, cls, "room")
    await agent.delete_submissions()
    await (await live(agent)).sessions.open(fork.id)
    (two,) = await people(server, cls, "ada")
    await two.approve("c1")
    await two.settled()
    await two.until_done(await two.request([*two.messages, said("u3", "Go on")]))
    assert cls.paid == PAID
