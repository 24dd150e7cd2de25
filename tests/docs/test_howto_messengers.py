"""docs/howto-slack.md and docs/howto-discord.md, followed literally: their files, commands and addresses."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from everthink.messengers import MessengerDefinition
from everthink.testing import ScriptedModel, says
from everthink.testing.discord import DiscordServer
from everthink.testing.served import served
from everthink.testing.slack import SCOPES, SlackWorkspace

from ..support.commands import Command
from .pages import ROOT, files, written

pytestmark = pytest.mark.anyio

PAGES = ("howto-slack.md", "howto-discord.md")


def serve_of(page: str) -> list[str]:
    """The command of the page that serves, on a port that is free here."""
    (line,) = [
        line
        for line in (ROOT / "docs" / page).read_text("utf-8").splitlines()
        if line.startswith("everthink serve")
    ]
    return [*line.split()[1:-1], "0"]


async def port_of(server: Command) -> str:
    return (await asyncio.to_thread(server.until, r"http://\S+:(\d+)"))[1]


async def test_the_page_of_slack_leads_from_a_token_to_the_first_reply(tmp_path: Path) -> None:
    manifest = json.loads(files("howto-slack.md")["manifest.json"])
    path = "/messengers/slack/webhook"
    settings = manifest["settings"]
    assert settings["event_subscriptions"]["request_url"].endswith(path)
    assert settings["interactivity"]["request_url"].endswith(path)
    scopes = manifest["oauth_config"]["scopes"]["bot"]
    assert set(scopes) - {"app_mentions:read"} <= SCOPES

    written("howto-slack.md", tmp_path)
    events = settings["event_subscriptions"]["bot_events"]
    async with (
        SlackWorkspace(scopes=scopes, events=events) as slack,
        served(ScriptedModel(says("The report is due."), says("Nothing else."))) as model,
    ):
        environment = {
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_SIGNING_SECRET": slack.signing_secret,
            "SLACK_API_URL": slack.api_url,
            "MODEL": "openai:gpt-5",
            **model.environment,
        }
        with Command(tmp_path, *serve_of("howto-slack.md"), **environment) as server:
            await slack.set_request_url(f"http://127.0.0.1:{await port_of(server)}{path}")
            await slack.say("@helper What is due today?", by="ann", channel="general")
            await slack.until(lambda: slack.answers("general"))
            await slack.say("And else?", by="ann")
            await slack.until(lambda: slack.answers("@ann"))

    assert slack.answers("general")[0].text == "The report is due."
    assert slack.answers("general")[0].thread == slack.seen("general")[0].id
    assert slack.answers("@ann")[0].text == "Nothing else."


async def test_the_page_of_discord_leads_from_a_token_to_the_first_reply(tmp_path: Path) -> None:
    written("howto-discord.md", tmp_path)
    async with DiscordServer() as discord, served(ScriptedModel(says("The report is due."))) as model:
        environment = {
            "DISCORD_APPLICATION_ID": discord.application_id,
            "DISCORD_PUBLIC_KEY": discord.public_key,
            "DISCORD_BOT_TOKEN": discord.bot_token,
            "DISCORD_API_URL": discord.api_url,
            "MODEL": "openai:gpt-5",
            **model.environment,
        }
        registered = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "commands.py"],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert registered.returncode == 0, registered.stderr
        assert [command["name"] for command in discord.commands] == ["ask", "stop"]
        with Command(tmp_path, *serve_of("howto-discord.md"), **environment) as server:
            url = f"http://127.0.0.1:{await port_of(server)}/messengers/discord/webhook"
            await discord.set_endpoint(url)
            (option,) = discord.commands[0]["options"]
            await discord.command("ask", {option["name"]: "What is due today?"}, channel="general")
            await discord.until(lambda: discord.answers("general"))

    assert [shown.text for shown in discord.seen("general")] == ["The report is due."]


@pytest.mark.parametrize("page", PAGES)
def test_the_options_of_a_page_are_those_there_are(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    table = text.partition("## What you can say")[2].partition("\n## ")[0]
    named = {
        name.strip("` ")
        for line in table.splitlines()
        if line.startswith("| `")
        for name in line.split("|")[1].split(",")
    }
    known = {field.name for field in fields(MessengerDefinition)}

    assert named - {"token", "signing_secret", "application_id", "public_key"} <= known
    assert {"path", "respond_to", "conversation", "verify_webhook", "delivery"} <= named
