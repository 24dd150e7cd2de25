"""What is answered, by whom, and what the model is told: decisions without a platform."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from everthink import chunks as ui
from everthink.deliveries.rules import (
    as_message,
    context_of,
    conversation_name,
    is_answered,
    key_of,
    resolved,
    stable,
    with_id,
)
from everthink.deliveries.spoken import Words, pieces, split_text, visible_part
from everthink.errors import InvalidSettings
from everthink.messengers import (
    Action,
    Attachment,
    Author,
    DeliveryPolicy,
    Incoming,
    MessengerContext,
    MessengerDefinition,
    MessengerEvent,
    Target,
    Thread,
    define_messengers,
)
from everthink.messengers.definition import checked
from everthink.messengers.mentions import with_handle
from everthink.messengers.telegram import Telegram, telegram_messenger

TOKEN = "1:abc"
ANN = Author(user_id="7", full_name="Ann")


def telegram(**options: Any) -> MessengerDefinition:
    return telegram_messenger(**({"token": TOKEN, "user_name": "my_bot", "secret_token": "s"} | options))


def message(
    text: str = "Hello", *, direct: bool = True, author: Author | None = None, **more: Any
) -> MessengerEvent:
    return MessengerEvent(
        kind="direct-message" if direct else "mention",
        thread=Thread(id="telegram:1", is_direct_message=direct),
        target=Target(chat="1", is_direct=direct),
        message=Incoming(id="1:5", text=text, author=author or Author(user_id="7", full_name="Ann"), **more),
    )


def action(*, direct: bool = True) -> MessengerEvent:
    return MessengerEvent(
        kind="action",
        thread=Thread(id="telegram:1", is_direct_message=direct),
        target=Target(chat="1"),
        action=Action(
            action_id="pick", value="red", message_id="1:4", user=Author(user_id="7", full_name="Ann")
        ),
    )


def text_of(event: MessengerEvent, definition: MessengerDefinition | None = None) -> str:
    return as_message("tg", event, definition or telegram()).parts[0]["text"]


@pytest.mark.agent_case(383)
def test_a_definition_has_its_defaults() -> None:
    found = checked(define_messengers({"telegram": telegram()}))["telegram"]
    assert found.path_of("telegram") == "/messengers/telegram/webhook"
    assert tuple(found.respond_to) == ("direct-message", "mention")
    assert (found.subscribe_on_mention, found.conversation, found.name) == (True, "thread", "telegram")
    assert found.delivery.on_uncertain == "repeat"


@pytest.mark.agent_case(384)
@pytest.mark.parametrize(
    ("path", "said"), [("hook", 'path must start with "/"'), ("/hook?x=1", "must not include query or hash")]
)
def test_a_path_that_is_none_is_refused(path: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        checked({"a": telegram(path=path)})


@pytest.mark.agent_case(384)
def test_two_messengers_with_one_path_are_refused() -> None:
    two = {"a": telegram(path="/hook"), "b": telegram(path="/hook", adapter_name="other")}
    with pytest.raises(InvalidSettings, match="Duplicate messenger path: /hook"):
        checked(two)


@pytest.mark.agent_case(385, 414)
def test_two_bots_of_one_platform_need_names_of_their_own() -> None:
    with pytest.raises(InvalidSettings, match="Duplicate messenger adapter name: telegram"):
        checked({"a": telegram(), "b": telegram()})
    assert len(checked({"a": telegram(), "b": telegram(adapter_name="second")})) == 2


@pytest.mark.agent_case(386)
def test_verification_is_stated_or_refused() -> None:
    adapter = Telegram(token=TOKEN, user_name="my_bot", secret_token="s")
    with pytest.raises(InvalidSettings, match="requires verify_webhook, or verify_webhook=False"):
        checked({"a": MessengerDefinition(messenger=adapter)})
    assert checked({"a": MessengerDefinition(messenger=adapter, verify_webhook=False)})


@pytest.mark.agent_case(413)
def test_a_telegram_webhook_without_a_secret_says_so_on_purpose() -> None:
    with pytest.raises(InvalidSettings, match="requires secret_token for webhook verification"):
        telegram(secret_token=None)
    with pytest.raises(InvalidSettings, match="requires secret_token"):
        telegram(secret_token=None, verify_webhook=True)  # it would refuse everybody
    assert telegram(secret_token=None, verify_webhook=False).verify_webhook is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"respond_to": ["direct_message"]}, "respond_to"),
        ({"conversation": "threads"}, "Did you mean 'thread'"),
        ({"commands": ["halt"]}, "commands"),
        ({"delivery": {}}, "DeliveryPolicy"),
        ({"token": "abc"}, "BotFather"),
        ({"mode": "poll"}, "'webhook' or 'polling'"),
        ({"approvers": []}, "one at least"),
        ({"approvers": ["@boss"]}, "no @"),
        ({"burst": 600}, "60 at most"),
    ],
)
def test_what_is_written_wrongly_is_refused_where_it_is_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        telegram(**options)


def test_a_policy_is_checked_where_it_is_made() -> None:
    with pytest.raises(InvalidSettings, match="'repeat', 'skip'"):
        DeliveryPolicy(on_uncertain="twice")  # pyright: ignore[reportArgumentType]


@pytest.mark.agent_case(390)
def test_names_and_keys_are_the_same_each_time_and_nobody_elses() -> None:
    assert conversation_name("tg", "telegram:-100:7") == "messenger:tg:telegram:-100:7"
    assert stable("a b") != stable("a_b")
    long = "x" * 100
    assert (len(stable(long)), stable(long)) == (65, stable(long))
    assert stable(long) != stable(long + "x")
    assert key_of("tg", message()) == "messenger:tg:message:telegram:1:1:5"
    assert key_of("tg", action()) == "messenger:tg:message:telegram:1:action:1:4:pick:7:red"


@pytest.mark.agent_case(391)
def test_a_message_tells_the_model_its_words_and_its_files() -> None:
    files = (Attachment(name="a.txt", media_type="text/plain", size=5), Attachment(id="x"), Attachment())
    event = message(" Hello ", attachments=files)
    assert text_of(event) == "Hello\n\nAttachments:\n- a.txt (text/plain, 5 bytes)\n- x\n- attachment 3"
    made = as_message("tg", event, telegram())
    assert (made.id, made.role) == ("tg:1:5", "user")


@pytest.mark.agent_case(392)
@pytest.mark.parametrize(
    ("author", "label"),
    [
        (Author(user_id="7", user_name="ann", full_name="Ann A."), "Ann A."),
        (Author(user_id="7", user_name="ann"), "ann"),
        (Author(user_id="7"), "7"),
    ],
)
def test_in_a_group_words_are_somebodys(author: Author, label: str) -> None:
    assert text_of(message(direct=False, author=author)) == f"{label}: Hello"


@pytest.mark.agent_case(393)
def test_speaker_label_is_the_developers() -> None:
    assert text_of(message(direct=False), telegram(speaker_label=lambda a: f"<{a.user_id}>")) == "<7>: Hello"
    assert text_of(message(direct=False), telegram(speaker_label=lambda author: None)) == "Hello"


@pytest.mark.agent_case(394, 396)
def test_an_action_says_what_was_pressed() -> None:
    assert text_of(message()) == "Hello"
    assert text_of(action()) == "Action selected: pick\nValue: red\nSource message: 1:4"


@pytest.mark.agent_case(395)
def test_an_action_in_a_group_is_somebodys() -> None:
    assert text_of(action(direct=False)).startswith("Ann: Action selected: pick")


@pytest.mark.agent_case(397, 398)
def test_the_bots_id_in_a_text_is_its_handle_and_others_stay() -> None:
    said = "<@U1> and <@!U1> and @U1, not <@U2> or @U12"
    assert with_handle(said, bot_id="U1", user_name="bot") == "@bot and @bot and @bot, not <@U2> or @U12"
    assert with_handle(said, bot_id=None, user_name="bot") == said


@pytest.mark.agent_case(399)
def test_what_is_kept_of_an_event_is_json() -> None:
    context = context_of("tg", message(), telegram())
    kept = msgspec.json.encode(context)
    assert msgspec.json.decode(kept, type=MessengerContext) == context
    assert b"raw" not in kept


@pytest.mark.agent_case(400)
def test_a_file_has_the_id_that_loading_it_needs() -> None:
    assert with_id(Attachment(fetch_metadata={"fileId": "f"})).id == "f"
    assert with_id(Attachment(id="own", fetch_metadata={"fileId": "f"})).id == "own"
    assert with_id(Attachment(fetch_metadata={"other": "f"})).id is None


@pytest.mark.agent_case(404)
def test_texts_around_calls_are_kept_apart() -> None:
    words = Words()
    words.take([ui.TextStart("1"), ui.TextDelta("1", "One."), ui.TextEnd("1"), ui.FinishStep()])
    words.take([ui.StartStep(), ui.TextStart("2"), ui.TextDelta("2", "Two.")])
    assert words.text == "One. Two."


@pytest.mark.agent_case(405, 417)
def test_a_long_text_is_split_where_it_may_and_nothing_is_lost() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "word " * 60 for n in range(40))
    visible = visible_part(text, 3400)
    rest = split_text(text[len(visible) :], 3500)
    assert text.startswith(visible)
    assert visible + "".join(rest) == text
    assert all(len(one) <= 3500 for one in rest)
    assert split_text("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert split_text(" \n ", 10) == []
    assert pieces("short", visible=10, follow_up=10) == ["short"]


def test_a_bots_own_words_and_other_bots_are_not_answered() -> None:
    definition = telegram()
    assert is_answered(message(), definition)
    assert not is_answered(message(author=Author(user_id="1", is_me=True)), definition)
    assert not is_answered(message(author=Author(user_id="9", is_bot=True)), definition)
    assert is_answered(message(author=Author(user_id="9", is_bot=True)), telegram(answer_bots=True))
    assert not is_answered(action(), definition)
    assert is_answered(action(), telegram(respond_to=["action"]))


def test_a_resolver_may_answer_in_any_of_its_forms() -> None:
    assert resolved("self").name == ""
    assert resolved({"target": "self"}).name == ""
    assert resolved({"target": "subagent", "name": "team"}).name == "team"
    with pytest.raises(InvalidSettings, match="It returns 'self'"):
        resolved(7)
    for word in (
        "thread",
        "agent",
    ):  # a word for `conversation` itself: as a name it would be one for everybody
        with pytest.raises(InvalidSettings, match=f"conversation='{word}' instead of the function"):
            resolved(word)


@pytest.mark.agent_case(415)
def test_the_secret_header_of_telegram_is_compared() -> None:
    adapter = telegram().messenger
    header = "x-telegram-bot-api-secret-token"
    assert adapter.verify({header: "s"}, b"", now=0)
    assert not any(adapter.verify({header: given}, b"", now=0) for given in ("", "S", "ss", "ß"))
    assert not adapter.verify({}, b"", now=0)
    assert not Telegram(token=TOKEN, mode="polling").verify({header: ""}, b"", now=0)
