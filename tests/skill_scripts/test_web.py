"""What scripts open of the web: through the guard, by the hosts that were named, and never by a socket."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.errors import BlockedAddress, ToolError
from everthink.guard.rules import Rules
from everthink.skill_scripts.rights import rules_of
from everthink.skill_scripts.web import fetch
from tests.guard.site import Site, served
from tests.skill_scripts.scripts import ran, refusal

pytestmark = pytest.mark.anyio


async def test_a_place_that_was_named_is_opened() -> None:
    async with served(Site()) as site:
        rules = rules_of([f"127.0.0.1:{site.port}"])
        assert rules is not None
        found = await fetch(rules, f"http://127.0.0.1:{site.port}/a?b=c", {"method": "post", "body": "ä"})
    assert (found["status"], found["ok"], found["body"]) == (200, True, "hello")
    assert site.asked == [(f"127.0.0.1:{site.port}", "/a?b=c")]
    assert site.bodies == ["ä".encode()]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://0x7f000001:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "http://other.example.com/",
        "http://api.example.com:8080/",
        "http://api.example.com@127.0.0.1:{port}/",
        "file:///etc/passwd",
        "ftp://api.example.com/",
        "//api.example.com/",
        "",
    ],
)
async def test_what_was_not_named_is_not_opened(url: str) -> None:
    async with served(Site()) as site:
        with pytest.raises((BlockedAddress, ToolError)):
            await fetch(Rules(hosts=["api.example.com"]), url.format(port=site.port), {})
    assert site.connections == 0


async def test_a_redirect_is_checked_as_any_address_and_carries_no_credentials_elsewhere() -> None:
    async with served(Site()) as near, served(Site()) as site:
        site.redirects = {
            "/own": "/b",
            "/near": f"http://127.0.0.1:{near.port}/",
            "/on": "/on",
        }
        rules = rules_of([f"127.0.0.1:{site.port}"])
        assert rules is not None
        base = f"http://127.0.0.1:{site.port}"
        assert (await fetch(rules, f"{base}/own", {}))["url"] == f"{base}/b"
        with pytest.raises(BlockedAddress):
            await fetch(rules, f"{base}/near", {})
        with pytest.raises(ToolError, match="more than 5 redirects"):
            await fetch(rules, f"{base}/on", {})
        assert near.connections == 0


@pytest.mark.parametrize(
    "options",
    [
        {"method": "CONNECT"},
        {"headers": {"Host": "other"}},
        {"headers": ["a"]},
        {"headers": {"a": "b\r\nc: d"}},
        {"body": {"a": 1}},
        "GET",
        ["GET"],
    ],
)
async def test_a_request_that_is_none_is_told_and_not_sent(options: Any) -> None:
    async with served(Site()) as site:
        rules = rules_of([f"127.0.0.1:{site.port}"])
        assert rules is not None
        with pytest.raises(ToolError):
            await fetch(rules, f"http://127.0.0.1:{site.port}/", options)
    assert site.asked == []


FETCHES = {
    "a.js": "export default async (url) => { const a = await fetch(url); return [a.ok, await a.text()] }",
    "a.py": "async def run(url):\n    found = await fetch(url)\n    return [found['ok'], found['body']]",
    "a.sh": 'fetch "$(jq -r . /input.json)"',
}


@pytest.mark.slow
@pytest.mark.parametrize("path", FETCHES)
async def test_every_language_fetches_what_was_granted(path: str) -> None:
    async with served(Site()) as site:
        place, url = f"127.0.0.1:{site.port}", f"http://127.0.0.1:{site.port}/"
        found = await ran(path, FETCHES[path], input=url, network=[place])
        assert (found["stdout"] if path == "a.sh" else found) == (
            "hello" if path == "a.sh" else [True, "hello"]
        )
        other = await _failing(path, url, network=["example.com"])
        assert "not" in other
        assert "fetch" in await _failing(path, url)
    assert site.connections == 1


async def _failing(path: str, url: str, **options: Any) -> str:
    if path == "a.sh":
        found = await ran(path, FETCHES[path], input=url, **options)
        assert found["exitCode"] in (1, 127)
        return found["stderr"]
    return await refusal(path, FETCHES[path], input=url, **options)
