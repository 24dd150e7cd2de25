"""The list of conversations: who sees which, under what name, and what was said in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everthink import App, Message, Think
from everthink.address import Address
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.server import Served
from .conftest import Develop

pytestmark = pytest.mark.anyio

LIST = "/everthink/conversations/assistant"


def app_of(server: Served) -> App:
    """The app behind the page."""
    return server.app._loaded.app


async def spoken(develop: Develop, **options: Any) -> tuple[Served, type[Think]]:
    """Two people's conversations: one about bees, one about ships."""
    cls = assistant(ScriptedModel(says("They dance."), says("They float.")))
    server = await develop(cls, **options)
    await app_of(server).agent(cls, "ada").save_messages("How do bees talk?")
    await app_of(server).agent(cls, "bob").save_messages("Why do ships not sink?")
    return server, cls


async def listed(server: Served, query: str = "", **headers: str) -> Any:
    return (await server.http(f"{LIST}{query}", headers=headers)).json


async def post(server: Served, path: str, body: Any = None, **headers: str) -> Any:
    return await server.http(f"{LIST}/{path}", method="POST", headers=headers, body=json.dumps(body).encode())


async def test_what_was_said_first_names_a_conversation_and_the_one_used_last_is_first(
    develop: Develop,
) -> None:
    server, cls = await spoken(develop)
    await live(app_of(server).agent(cls, "quiet"))  # nothing was said there
    told = await listed(server)
    assert [(one["name"], one["title"]) for one in told["conversations"]] == [
        ("bob", "Why do ships not sink?"),
        ("ada", "How do bees talk?"),
    ]
    assert not told["more"]


async def test_files_that_went_along_name_no_conversation_that_has_words(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("A list."), says("A plan.")))
    server = await develop(cls)
    note = "[Attached: /attachments/costs.csv (text/csv, 12 B)]"
    for name, texts in {"ada": ["What is this?", note], "bob": [note]}.items():
        parts = [{"type": "text", "text": text} for text in texts]
        await app_of(server).agent(cls, name).save_messages([Message(f"m-{name}", "user", parts)])
    titles = [one["title"] for one in (await listed(server))["conversations"]]
    assert titles == [note, "What is this?"]


async def test_a_new_name_is_kept_for_every_browser_and_over_a_restart(develop: Develop) -> None:
    server, cls = await spoken(develop)
    assert (await post(server, "ada/rename", {"title": "  Bees \n and more "})).json[
        "title"
    ] == "Bees and more"
    for body in ({}, {"title": " "}, {"title": 1}, None):
        assert (await post(server, "ada/rename", body)).status == 400
    await server.stop()
    again = await develop(cls)
    titles = {one["name"]: one["title"] for one in (await listed(again))["conversations"]}
    assert titles == {"ada": "Bees and more", "bob": "Why do ships not sink?"}


async def test_deleting_one_erases_the_agent(develop: Develop) -> None:
    server, cls = await spoken(develop)
    assert (await post(server, "ada/erase")).json["rows"] > 0
    assert [one["name"] for one in (await listed(server))["conversations"]] == ["bob"]
    assert not await (await app_of(server).open()).exists(Address(cls.__name__, "ada"))
    assert (await post(server, "ada/erase")).status == 404
    assert (await post(server, "ada/rename", {"title": "x"})).status == 404
    assert not await (await app_of(server).open()).exists(Address(cls.__name__, "ada"))


async def test_all_conversations_are_searched(develop: Develop) -> None:
    server, _ = await spoken(develop)
    hits = (await listed(server, "?q=dance"))["hits"]
    assert [(hit["conversation"], hit["text"], hit["where"]) for hit in hits] == [
        ("ada", "They dance.", "shown")
    ]
    assert "**" in hits[0]["snippet"]
    assert {hit["conversation"] for hit in (await listed(server, "?q=do"))["hits"]} <= {"ada", "bob"}
    assert (await listed(server, "?q=elephants"))["hits"] == []


# --- who may not


def by_cookie(connection: Any) -> str | None:
    return connection.headers.get("cookie", "").partition("=")[2] or None


def own(identity: str, action: str, agent: Any) -> Any:
    return agent.name == identity or (["read"] if identity == "reader" else False)


async def test_everybody_is_shown_their_own_and_learns_nothing_of_the_others(develop: Develop) -> None:
    server, cls = await spoken(develop, authenticate=by_cookie, authorize=own)
    assert (await server.http(LIST)).status == 401
    ada = {"cookie": "me=ada"}
    assert [one["name"] for one in (await listed(server, **ada))["conversations"]] == ["ada"]
    assert (await listed(server, "?q=float", **ada))["hits"] == []
    for deed in ("bob/rename", "bob/erase", "nobody/erase"):
        assert (await post(server, deed, {"title": "Mine"}, **ada)).status == 403
    assert await (await app_of(server).open()).exists(Address(cls.__name__, "bob"))


async def test_who_may_only_read_renames_and_deletes_nothing(develop: Develop) -> None:
    server, cls = await spoken(develop, authenticate=by_cookie, authorize=own)
    reader = {"cookie": "me=reader"}
    assert len((await listed(server, **reader))["conversations"]) == 2
    for deed in ("ada/rename", "ada/erase"):
        answer = await post(server, deed, {"title": "Mine"}, **reader)
        assert (answer.status, "Nothing was changed" in answer.json["error"]) == (403, True)
    assert await (await app_of(server).open()).exists(Address(cls.__name__, "ada"))


async def test_a_check_by_request_counts_and_one_that_raises_shows_nothing(develop: Develop) -> None:
    def before(request: Any, cls: Any, name: str) -> bool:
        if name == "bob":
            raise RuntimeError("a bug in the check")
        return True

    server, _ = await spoken(develop, on_before_request=before)
    assert [one["name"] for one in (await listed(server))["conversations"]] == ["ada"]


async def test_other_sites_and_unknown_classes_are_refused(develop: Develop) -> None:
    server, _ = await spoken(develop)
    evil = {"Origin": "http://evil.example"}
    assert (await server.http(LIST, headers=evil)).status == 403
    assert (await post(server, "ada/erase", **evil)).status == 403
    assert (await server.http("/everthink/conversations/nobody")).status == 404
    for path in ("/everthink/conversations", f"{LIST}/ada", f"{LIST}/ada/burn"):
        assert (await server.http(path)).status == 404
    assert (await post(server, "ada/burn")).status == 404


async def test_it_is_the_same_on_postgres(develop: Develop, postgres_url: str) -> None:
    server, _ = await spoken(develop, store=postgres_url)
    assert [one["name"] for one in (await listed(server))["conversations"]] == ["bob", "ada"]
    assert (await post(server, "ada/rename", {"title": "Bees"})).status == 200
    assert [hit["title"] for hit in (await listed(server, "?q=dance"))["hits"]] == ["Bees"]
    assert (await post(server, "ada/erase")).status == 200
    assert [one["name"] for one in (await listed(server))["conversations"]] == ["bob"]


async def test_who_may_not_enter_is_told_so_and_which_name_is_theirs(develop: Develop) -> None:
    server, _ = await spoken(develop, authenticate=by_cookie, authorize=own)
    ada = {"cookie": "me=ada"}
    told = await listed(server, "?open=chat-x7", **ada)
    assert told["entry"] == {"name": "chat-x7", "open": False, "yours": "ada"}
    assert (await listed(server, "?open=ada", **ada))["entry"] == {"name": "ada", "open": True}


async def test_nobody_is_led_to_a_name_that_they_may_not_enter_either(develop: Develop) -> None:
    server, cls = await spoken(develop, authenticate=by_cookie, authorize=lambda *given: False)
    told = await listed(server, "?open=chat-x7", cookie="me=ada")
    assert told["entry"] == {"name": "chat-x7", "open": False, "yours": None}
    # Asking makes no agent
    assert not await (await app_of(server).open()).exists(Address(cls.__name__, "chat-x7"))


async def test_without_checks_every_name_may_be_entered(develop: Develop) -> None:
    server, _ = await spoken(develop)
    assert (await listed(server, "?open=chat-x7"))["entry"] == {"name": "chat-x7", "open": True}
