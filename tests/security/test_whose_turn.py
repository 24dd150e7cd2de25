"""A turn runs in the name of the one who asked, and hears nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, ToolContext, tool
from everthink.server import Limits
from everthink.testing import ScriptedModel, calls, says
from tests.support.agents import live

from ..support.turns import all_over, home_of, prompt
from .conftest import Serve, ServeOn
from .strangers import by_token, opened, people, said, shop

pytestmark = pytest.mark.anyio


class Till(Think):
    """Pays, and remembers who asked for it."""

    paid: list[tuple[int, Any]]

    @tool(needs_approval=True)
    async def refund(self, amount: int, ctx: ToolContext) -> str:
        """Pay money back."""
        self.paid.append((amount, ctx.identity))
        return "paid"


def till(*plays: Any) -> type[Till]:
    return type("Till", (Till,), {"model": ScriptedModel(*plays), "paid": []})


async def test_a_turn_that_waits_is_not_told_what_others_say_meanwhile(serve: Serve) -> None:
    # Given an answer that streams, and two people whose messages wait behind it
    go = asyncio.Event()
    cls = till(says("One ").waits(go).says("done."), says("Two."), says("Three."))
    server = await serve(cls, authenticate=by_token)
    admin, eve = await people(server, cls, "admin", "eve")
    await admin.say("First", message_id="u1")
    await eve.until_text("One ")
    second = await admin.say("Second", message_id="u2")
    third = await eve.say("Pay eve", message_id="u3")
    await eve.settled()
    go.set()
    await admin.until_done(second)
    await eve.until_done(third)

    # Then each turn has heard what was asked in it, last, and nothing that came later
    model = cls.model
    heard = [[text for _, text in prompt(request)] for request in model.requests]
    assert heard == [
        ["First"],
        ["First", "One done.", "Second"],
        ["First", "One done.", "Second", "Two.", "Pay eve"],
    ]


async def test_also_when_the_window_does_not_list_the_answer_that_streams(serve: Serve) -> None:
    go = asyncio.Event()
    cls = till(says("One ").waits(go).says("done."), says("Rain."))
    server = await serve(cls)
    one, two = await people(server, cls, "a", "b")
    await one.say("Count", message_id="u1")
    await two.until_text("One ")
    request = await two.request([said("u2", "What is the weather?")])
    await two.settled()
    go.set()
    await two.until_done(request)
    assert [text for _, text in prompt(cls.model.last_request)] == [
        "Count",
        "One done.",
        "What is the weather?",
    ]


async def test_also_after_a_restart(tmp_path: Path) -> None:
    first = till(says("One ").then_hangs())
    async with opened(tmp_path, first, authenticate=by_token) as server:
        admin, eve = await people(server, first, "admin", "eve")
        await admin.say("First", message_id="u1")
        await eve.until_text("One ")
        await admin.say("Second", message_id="u2")
        await admin.settled()
        await eve.say("Pay eve", message_id="u3")
        await eve.settled()
    cls = till(says("done."), says("Two."), says("Three."))
    async with opened(tmp_path, cls, authenticate=by_token) as server:
        await people(server, cls, "admin")
        await all_over(server.app, cls, "room")
    heard = [[text for _, text in prompt(request)] for request in cls.model.requests]
    assert heard[1:] == [
        ["First", "One done.", "Second"],
        ["First", "One done.", "Second", "Two.", "Pay eve"],
    ]


@pytest.mark.parametrize("evicted", [False, True])
async def test_an_approved_call_runs_in_the_name_of_whoever_approved_it(
    serve_on: ServeOn, evicted: bool
) -> None:
    # Given a call that ada asked for and bob approved, without going on
    cls = till(calls("refund", id="c1", amount=10), says("Morning."))
    server = await serve_on(cls, authenticate=by_token)
    ada, bob = await people(server, cls, "ada", "bob")
    await ada.until_done(await ada.say("Refund"))
    await bob.approve("c1", auto_continue=False)
    await ada.until_frame("message_updated")
    if evicted:
        await server.app.evict(cls, "room")
    # When somebody else says something
    (admin,) = await people(server, cls, "admin")
    await admin.until_done(await admin.say("Good morning"))
    # Then it has run for bob, not for them
    assert cls.paid == [(10, "bob")]


async def test_an_approval_in_mid_stream_is_kept_with_who_gave_it(serve: Serve) -> None:
    go = asyncio.Event()
    cls = till(calls("refund", id="c1", amount=10).says("and ").waits(go), says("Morning."))
    server = await serve(cls, authenticate=by_token)
    ada, bob = await people(server, cls, "ada", "bob")
    request = await ada.say("Refund")
    await bob.until_text("and ")
    await bob.approve("c1", auto_continue=False)
    await ada.until_frame("message_updated")
    go.set()
    await ada.until_done(request)
    await ada.until_done(await ada.say("Well?"))
    assert cls.paid == [(10, "bob")]


async def test_who_may_not_clear_hides_nothing_that_is_written_at_the_same_moment(serve_on: ServeOn) -> None:
    # Given two frames that arrive together, in many rooms: ada writes, and bob goes back
    cls = shop(ScriptedModel.forever(lambda _: says("Fine.")))
    server = await serve_on(
        cls,
        authenticate=by_token,
        authorize=lambda who, action, agent: ["ask"] if action == "connect" and who == "bob" else True,
    )
    for number in range(8):
        room = f"room-{number}"
        ada, bob = await people(server, cls, "ada", "bob", room=room)
        await bob.until_done(await bob.say("First", message_id="u1"))
        asked = await asyncio.gather(
            ada.request([*bob.messages, said("u2", "Second")]),
            bob.request(bob.messages[:1], trigger="regenerate-message"),
        )
        await ada.until_done(asked[0])
        await bob.until_done(asked[1])
        await all_over(server.app, cls, room)
        # Then what she wrote is there, whoever came first
        texts = [m.text for m in await server.app.agent(cls, room).get_messages()]
        assert "Second" in texts, number


async def test_an_id_that_two_requests_bring_at_once_is_taken_once(serve: Serve) -> None:
    go = asyncio.Event()
    cls = shop(ScriptedModel.forever(lambda _: says("Once ").waits(go).says("only.")))
    server = await serve(cls)
    one, two = await people(server, cls, "a", "b")
    await asyncio.gather(
        one.request([said("u1", "First")], id="r"), two.request([said("u2", "Second")], id="r")
    )
    await one.until_text("Once ")
    await two.settled()
    await one.settled()
    assert len((await home_of(server.app, cls, "room")).chat.host.turns) == 1
    refused = [f for tab in (one, two) for f in tab.responses("r") if f.get("error")]
    assert ["runs or waits already" in f["body"] for f in refused] == [True]
    go.set()
    await all_over(server.app, cls, "room")


async def test_who_may_not_clear_takes_nothing_that_others_said_out_of_sight(serve: Serve) -> None:
    cls = till(says("One."), says("Two."), says("Three."), says("One again."))
    server = await serve(
        cls,
        authenticate=by_token,
        authorize=lambda who, action, agent: ["ask"] if action == "connect" and who == "bob" else True,
    )
    ada, bob = await people(server, cls, "ada", "bob")
    await bob.until_done(await bob.say("First", message_id="u1"))
    await ada.until_done(await ada.say("Second", message_id="u2"))
    await bob.until_text("Two.")
    for body in ({"trigger": "regenerate-message"}, {}):
        again = bob.messages[:1] if body else [said("u1", "Changed")]
        done = await bob.until_done(await bob.request(again, **body))
        assert "Others have written since" in done["body"]
    # The last answer, below which nobody has written, may be asked for again
    done = await bob.until_done(await bob.request(bob.messages[:3], trigger="regenerate-message"))
    assert done.get("error") is None
    assert [m.text for m in await server.app.agent(cls, "room").get_messages()] == [
        "First",
        "One.",
        "Second",
        "Three.",
    ]


async def test_what_is_said_behind_a_waiting_regeneration_stays_in_sight_and_is_heard(
    serve_on: ServeOn,
) -> None:
    # Given an answer that streams, bob who waits to have an earlier one again, and then ada's message
    go = asyncio.Event()
    cls = till(says("One."), says("Two ").waits(go).says("done."), says("One again."), says("Noted."))
    server = await serve_on(
        cls,
        authenticate=by_token,
        authorize=lambda who, action, agent: ["ask"] if action == "connect" and who == "bob" else True,
    )
    ada, bob = await people(server, cls, "ada", "bob")
    await bob.until_done(await bob.say("First", message_id="u1"))
    await bob.request([said("u1", "First"), said("u2", "Second")])
    await ada.until_text("Two ")
    again = await bob.request([said("u1", "First")], trigger="regenerate-message", messageId="u1")
    await bob.settled()
    hers = await ada.say("I never agreed", message_id="a1")
    await ada.settled()
    go.set()
    await bob.until_done(again)
    await ada.until_done(hers)

    # Then hers follows what was answered again, and the old branch is what it was
    assert [text for _, text in prompt(cls.model.last_request)] == ["First", "One again.", "I never agreed"]
    agent = await live(server.app.agent(cls, "room"))
    shown = ["First", "One again.", "I never agreed", "Noted."]
    assert [message.text for message in agent.messages] == shown
    await agent.session.load()
    assert [message.text for message in agent.messages] == shown
    (old, _) = await agent.session.get_branches("u1")
    (second,) = await agent.session.get_branches(old.id)
    (two,) = await agent.session.get_branches(second.id)
    assert [old.text, second.text, two.text] == ["One.", "Second", "Two done."]
    assert await agent.session.get_branches(two.id) == []


@pytest.mark.parametrize("lists_it", [True, False])
async def test_what_is_said_while_an_answer_is_made_again_follows_it(serve: Serve, lists_it: bool) -> None:
    go = asyncio.Event()
    cls = till(says("One."), says("One ").waits(go).says("again."), says("Two."), says("Three."))
    server = await serve(cls)
    (bob,) = await people(server, cls, "bob")
    await bob.until_done(await bob.say("First", message_id="u1"))
    await bob.request([said("u1", "First")], trigger="regenerate-message", messageId="u1")
    await bob.until_text("One ")
    second = (
        await bob.say("Second", message_id="u2") if lists_it else await bob.request([said("u2", "Second")])
    )
    await bob.settled()
    third = await bob.request([said("u3", "Third")])
    await bob.settled()
    go.set()
    await bob.until_done(second)
    await bob.until_done(third)
    assert [text for _, text in prompt(cls.model.requests[-2])] == ["First", "One again.", "Second"]
    assert [text for _, text in prompt(cls.model.last_request)] == [
        *("First", "One again.", "Second", "Two.", "Third")
    ]


async def test_also_when_the_process_ends_meanwhile(tmp_path: Path) -> None:
    first = till(says("One."), says("One ").then_hangs())
    async with opened(tmp_path, first) as server:
        (bob,) = await people(server, first, "bob")
        await bob.until_done(await bob.say("First", message_id="u1"))
        await bob.request([said("u1", "First")], trigger="regenerate-message", messageId="u1")
        await bob.until_text("One ")
        await bob.request([said("u2", "Second")])
        await bob.settled()
    cls = till(says("again."), says("Two."))
    async with opened(tmp_path, cls) as server:
        await people(server, cls, "bob")
        await all_over(server.app, cls, "room")
        agent = await live(server.app.agent(cls, "room"))
        assert [message.text for message in agent.messages] == ["First", "One again.", "Second", "Two."]
    assert [text for _, text in prompt(cls.model.last_request)] == ["First", "One again.", "Second"]


@pytest.mark.parametrize("where", ["out of memory", "behind a summary"])
@pytest.mark.parametrize("how", ["changes", "regenerates"])
async def test_nor_what_is_no_longer_in_memory(serve_on: ServeOn, where: str, how: str) -> None:
    # Given something that ada said, and so much of bob's own after it that memory does not hold it any more
    cls = till(*[says("ok")] * 20)
    cls.hydration_byte_budget = 1500 if where == "out of memory" else cls.hydration_byte_budget
    server = await serve_on(
        cls,
        authenticate=by_token,
        authorize=lambda who, action, agent: ["ask"] if action == "connect" and who == "bob" else True,
    )
    ada, bob = await people(server, cls, "ada", "bob")
    await bob.until_done(await bob.request([said("b0", "First")]))
    await ada.until_done(await ada.request([said("a1", "I never agreed")]))
    for number in range(5):
        await bob.until_done(await bob.request([said(f"f{number}", "filler " * 60)]))
    agent = await live(server.app.agent(cls, "room"))
    if where == "behind a summary":
        await agent.session.add_compaction("All agreed.", "b0", "f2")
    assert agent.session.find("a1") is None
    # When he goes back to what he said first
    if how == "changes":
        request = await bob.request([said("b0", "Nothing happened")])
    else:
        request = await bob.request([said("b0", "First")], trigger="regenerate-message", messageId="b0")
    done = await bob.until_done(request)
    # Then it is refused, and what ada said is where it was
    assert "Others have written since" in done["body"]
    assert "I never agreed" in [m.text for m in await agent.session.get_stored_path()]
    # and what is only his he may take back
    done = await bob.until_done(await bob.request([said("f4", "Never mind")]))
    assert done.get("error") is None


async def test_one_person_holds_half_of_the_places_at_most(serve: Serve) -> None:
    go = asyncio.Event()
    cls = till(says("One ").waits(go), *[says("ok")] * 4)
    server = await serve(cls, authenticate=by_token, limits=Limits(waiting_turns=4))
    eve, ada = await people(server, cls, "eve", "ada")
    await eve.say("Slow")
    await ada.until_text("One ")
    for _ in range(2):
        await eve.say("More")
    done = await eve.until_done(await eve.say("And more"))
    assert "2 requests wait here already, and 2 may" in done["body"]
    request = await ada.say("My turn")
    await ada.settled()
    go.set()
    assert (await ada.until_done(request)).get("error") is None
