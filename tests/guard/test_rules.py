"""What of the web may be opened: hosts, ports, places that an application knows."""

from __future__ import annotations

import pytest

from everthink.errors import BlockedAddress, InvalidSettings
from everthink.guard.rules import Rules


@pytest.mark.parametrize(
    "url", ["https://example.com/", "http://example.com:80/a?b", "http://93.184.216.34/"]
)
def test_the_public_web_may_be_opened(url: str) -> None:
    Rules().check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "chrome://settings", "view-source:https://example.com/", "data:text/html,x"),
        *("javascript:alert(1)", "about:blank", "ws://example.com/", "blob:https://example.com/1", ""),
        *("http://127.0.0.1/", "http://0x7f000001/", "http://2130706433/", "http://127.1/", "http://[::1]/"),
        *("http://localhost/", "http://169.254.169.254/", "http://metadata.google.internal/"),
        *("http://10.0.0.7/", "http://[::ffff:10.0.0.7]/", "http://[64:ff9b::7f00:1]/", "http://①②⑦.0.0.1/"),
        *("https://user:secret@example.com/", "https://example.com:8443/", "http://example.com:22/"),
    ],
)
def test_nothing_else_may(url: str) -> None:
    with pytest.raises(BlockedAddress, match=r"^Blocked URL: "):
        Rules().check_url(url)


def test_with_hosts_only_those_may() -> None:
    rules = Rules(hosts=["example.com", "*.example.org", "93.184.216.34"])
    for good in ("example.com", "www.example.org", "a.b.example.org", "EXAMPLE.com.", "93.184.216.34"):
        rules.check(good, 443)
    for bad in ("www.example.com", "example.org", "badexample.org", "example.net", "93.184.216.35"):
        with pytest.raises(BlockedAddress, match="not among the hosts"):
            rules.check(bad, 443)


def test_a_host_that_is_never_opened_is_not_opened_by_any_other_spelling() -> None:
    rules = Rules(never=["ads.example.com", "*.tracker.example", "93.184.216.34"])
    for bad in ("ads.example.com", "ADS.example.com.", "x.tracker.example", "0x5db8d822"):
        with pytest.raises(BlockedAddress, match="does not let"):
            rules.check(bad, 80)
    rules.check("example.com", 80)


def test_a_place_that_is_allowed_may_be_near_and_have_a_port_of_its_own() -> None:
    rules = Rules(allow=["wiki.lan:8080"], hosts=["example.com"])
    rules.check_url("http://wiki.lan:8080/page")
    for bad in ("http://wiki.lan/", "http://wiki.lan:8081/", "http://other.lan:8080/"):
        with pytest.raises(BlockedAddress):
            rules.check_url(bad)


def test_rules_of_nothing_let_nothing_pass() -> None:
    for host in ("example.com", "93.184.216.34", "localhost"):
        with pytest.raises(BlockedAddress):
            Rules.nothing().check(host, 443)


@pytest.mark.parametrize(
    "entry", ["https://example.com", "example.com:80", "*", "*.", "a b", "", "ex*mple.com"]
)
def test_what_is_no_host_is_told_when_the_rules_are_made(entry: str) -> None:
    with pytest.raises(InvalidSettings, match="is not a host"):
        Rules(hosts=[entry])


def test_one_text_is_no_list_of_hosts() -> None:
    with pytest.raises(InvalidSettings, match="list of letters"):
        Rules(never="example.com")
