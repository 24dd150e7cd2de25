"""Messengers in the terminal: what was shown on platforms, and what keeps a bot from starting."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everthink import Think
from everthink.cli.main import cli
from everthink.messengers import MessengerDefinition
from everthink.messengers.discord import discord_messenger
from everthink.messengers.slack import slack_messenger
from everthink.messengers.telegram import telegram_messenger
from everthink.serving.missing_messengers import Found, what_is_missing
from everthink.testing import ScriptedModel, says
from everthink.testing.telegram import TelegramServer
from tests.support.messengers import bot_class, talking
from tests.support.platforms import STAGES, Stage


@pytest.fixture
def store(database: str) -> str:
    """A database with a message that Ann has got, and one that Bob will not get."""
    asyncio.run(fill(database))
    return database


async def fill(url: str) -> None:
    async with TelegramServer() as telegram:
        ann, bob = telegram.private("Ann"), telegram.private("Bob")
        bob.is_blocked = True
        cls = bot_class(telegram, ScriptedModel(says("Paris."), says("Rome.")))
        async with talking(telegram, cls, url) as (app, _):
            ended = asyncio.Event()
            app.events.subscribe(lambda event: ended.set(), type="messenger:delivered")
            await ann.say("Capital of France?")
            await asyncio.wait_for(ended.wait(), 20)
            failed = asyncio.Event()
            app.events.subscribe(lambda event: failed.set(), type="messenger:delivery:failed")
            await bob.say("Capital of Italy?")
            await asyncio.wait_for(failed.wait(), 20)


def test_inspect_shows_what_was_shown_on_platforms(run: CliRunner, store: str) -> None:
    said = run.invoke(cli, ["inspect", "--store", store, "--json"])
    assert said.exit_code == 0, said.output
    bob, ann = json.loads(said.output)["deliveries"]
    assert (ann["name"], ann["kind"], ann["state"], ann["shown"]) == (
        "messenger:telegram:telegram:500",
        "answer",
        "done",
        6,
    )
    assert ann["parents"] == [["Bot", "default"]]
    assert (bob["state"], bob["ref"]) == ("failed", None)
    assert "blocked" in bob["error"]

    table = run.invoke(cli, ["inspect", "--store", store]).output
    assert "Latest messages to platforms" in table
    assert "telegram 500" in table
    assert ann["ref"] in table

    only = run.invoke(cli, ["inspect", "--store", store, "--agent", "nobody/x"])
    assert only.exit_code != 0
    below = run.invoke(cli, ["inspect", "--store", store, "--agent", "bot/default", "--limit", "1", "--json"])
    assert [row["state"] for row in json.loads(below.output)["deliveries"]] == ["failed"]


# --- doctor


def bot(messengers: Mapping[str, MessengerDefinition]) -> type[Think]:
    return type("Bot", (Think,), {"messengers": dict(messengers)})


def late(get_messengers: Any) -> type[Think]:
    """A class whose messengers are made when an agent starts."""
    return type("Bot", (Think,), {"get_messengers": get_messengers})


async def found(cls: type[Think], *, asks: bool = False) -> list[Found]:
    return await what_is_missing([Think, cls], asks=asks)


@pytest.fixture(params=["telegram", "slack", "discord"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return STAGES[request.param]()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("make", "variable"),
    [
        (lambda self: {"t": telegram_messenger(user_name="b", secret_token="s")}, "TELEGRAM_BOT_TOKEN"),
        (lambda self: {"t": telegram_messenger(user_name="b", token="1:a")}, "setWebhook"),
        (lambda self: {"s": slack_messenger(user_name="b", signing_secret="s")}, "SLACK_BOT_TOKEN"),
        (lambda self: {"s": slack_messenger(user_name="b", token="xoxb-1")}, "SLACK_SIGNING_SECRET"),
        (
            lambda self: {"d": discord_messenger(user_name="b", application_id="1", token="t")},
            "DISCORD_PUBLIC_KEY",
        ),
        (
            lambda self: {"d": discord_messenger(user_name="b", token="t", verify_webhook=False)},
            "DISCORD_APPLICATION_ID",
        ),
        (
            lambda self: {"d": discord_messenger(user_name="b", application_id="1", verify_webhook=False)},
            "DISCORD_BOT_TOKEN",
        ),
        (lambda self: {"m": os.environ["MY_BOT_TOKEN"]}, "MY_BOT_TOKEN"),
    ],
)
async def test_a_missing_token_or_secret_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, make: Any, variable: str, anyio_backend: str
) -> None:
    for name in list(os.environ):
        if name.startswith(("TELEGRAM_", "SLACK_", "DISCORD_")):
            monkeypatch.delenv(name)
    [row] = await found(late(make))
    assert (row.name, row.state) == ("messengers Bot", "problem")
    assert variable in row.mend


@pytest.mark.anyio
async def test_messengers_that_do_not_go_together_are_a_problem(stage: Stage, anyio_backend: str) -> None:
    async with stage.platform:
        shared = [stage.definition(path="/bot", adapter_name=name) for name in ("one", "two")]
        [row] = await found(bot(dict(zip(("one", "two"), shared, strict=True))))
        assert (row.state, row.text) == ("problem", "Duplicate messenger path: /bot.")
        assert "one and two have it" in row.mend

        definition = stage.definition()
        unverified = MessengerDefinition(messenger=definition.messenger)
        [row] = await found(bot({"bot": unverified}))
        assert row.state == "problem"
        assert "requires verify_webhook" in row.text

        [row] = await found(bot({"bot": stage.definition(verify_webhook=False)}))
        assert (row.state, row.name) == ("note", "messenger bot")
        assert "anybody may call the webhook" in row.text


@pytest.mark.anyio
async def test_a_missing_extra_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    find = importlib.util.find_spec
    async with stage.platform:
        cls = bot({"bot": stage.definition()})
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, *more: None if name == "httpx2" else find(name, *more)
        )
        [row] = await found(cls, asks=True)
    extra = "discord" if stage.name == "discord" else "messengers"
    assert (row.state, row.mend) == ("problem", f'pip install "everthink[{extra}]"')
    assert "httpx2 not installed" in row.text


@pytest.mark.anyio
async def test_code_that_needs_a_running_agent_is_no_problem(anyio_backend: str) -> None:
    [row] = await found(late(lambda self: {"bot": self.state["bot"]}))
    assert row.state == "note"
    assert "cannot be asked before the agent starts" in row.text


@pytest.mark.anyio
async def test_a_platform_says_whether_it_knows_the_token(stage: Stage, anyio_backend: str) -> None:
    async with stage.platform as platform:
        good = bot({"bot": stage.definition()})
        [row] = await found(good)
        assert not platform.log, "nobody wanted it to be asked"
        assert (row.state, row.text) == ("ok", "Bot: webhook at /messengers/bot/webhook")

        [row] = await found(good, asks=True)
        assert f"{stage.name} knows it as {platform.bot_name}" in row.text  # type: ignore[attr-defined]
        other = platform.bot_name != getattr(stage.definition().messenger, "user_name")  # type: ignore[attr-defined]  # noqa: B009
        assert row.state == ("note" if other else "ok")

        stage.forget_token()
        [row] = await found(good, asks=True)
        assert (row.state, row.mend) == ("problem", f"Copy it once more from {stage.name}.")
        assert "does not know the token" in row.text


@pytest.mark.anyio
async def test_a_platform_that_is_not_reached_says_nothing_of_the_token(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    async with stage.platform as platform:
        cls = bot({"bot": stage.definition()})
        platform.fault("*", "500")
        [row] = await found(cls, asks=True)
        assert (row.state, row.mend) == ("note", "Whether the token is good is not known.")
        assert "the platform was not reached" in row.text

        monkeypatch.setattr("everthink.serving.missing_messengers.ANSWERING", 0.05)
        platform.fault("*", "hang")
        [row] = await found(cls, asks=True)
        assert row.state == "note"
        assert "has not answered within 0.05 seconds" in row.text
    [row] = await found(cls, asks=True)
    assert row.state == "note"
    assert "cannot be reached" in row.text


APP = """
from everthink import App, Think
from everthink.messengers.telegram import telegram_messenger

class Bot(Think):
    model = "demo"

    def get_messengers(self):
        return {"telegram": telegram_messenger(user_name="test_bot", secret_token="s3cretword")}

app = App(Bot, store=":memory:")
"""


@pytest.mark.slow
@pytest.mark.anyio
async def test_doctor_asks_for_a_target_and_shows_no_token(tmp_path: Path, anyio_backend: str) -> None:
    (tmp_path / "shop.py").write_text(APP)

    async def doctor(token: str, origin: str, *more: str) -> tuple[int | None, dict[str, Any], str]:
        told = {"TELEGRAM_BOT_TOKEN": token, "TELEGRAM_API_BASE_URL": origin}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everthink.cli", "doctor", "shop:app", "--json", *more),
            cwd=tmp_path,
            env={**os.environ, **told},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        [row] = [one for one in json.loads(said)["checks"] if one["name"].startswith("messenger ")]
        return process.returncode, row, said.decode()

    async with TelegramServer() as telegram:
        code, row, said = await doctor(telegram.token, telegram.origin)
        assert (code, row["state"]) == (0, "ok")
        assert "telegram knows it as test_bot" in row["found"]
        assert telegram.token.partition(":")[2] not in said

        wrong = "4343:AA-a-token-of-nobody-at-all-but-long-enough"
        code, row, said = await doctor(wrong, telegram.origin)
        assert (code, row["state"]) == (1, "problem")
        assert wrong.partition(":")[2] not in said
        assert "s3cretword" not in said

        asked = len(telegram.log)
        code, row, said = await doctor(wrong, telegram.origin, "--offline")
        assert (code, row["state"]) == (0, "ok")
        assert len(telegram.log) == asked


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("token", "fault", "said"),
    [
        (None, None, "Telegram: @test_bot answers, too."),
        (
            "4343:AA-of-nobody",
            None,
            "Telegram does not know the token in TELEGRAM_BOT_TOKEN, so no bot answers",
        ),
        (None, "500", "Telegram was not reached, so the bot of TELEGRAM_BOT_TOKEN does not answer yet"),
    ],
)
async def test_dev_says_that_a_bot_answers_once_its_token_is_known_to_be_good(
    tmp_path: Path, anyio_backend: str, token: str | None, fault: Any, said: str
) -> None:
    async with TelegramServer() as telegram:
        if fault is not None:
            telegram.fault("getMe", fault, times=100)
        told = {"TELEGRAM_BOT_TOKEN": token or telegram.token, "TELEGRAM_API_BASE_URL": telegram.origin}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everthink.cli", "dev", "--port", "0"),
            cwd=tmp_path,
            env={**os.environ, **told, "COLUMNS": "300"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(60):
                while not any(said in line for line in lines):
                    line = (await process.stdout.readline()).decode()
                    assert line, lines
                    lines.append(line)
        finally:
            process.terminate()
            await process.communicate()
        assert sum("answers, too" in line for line in lines) == ("answers, too" in said)
        assert telegram.token.partition(":")[2] not in "".join(lines)
