"""Which addresses and URLs lead near us, at the very edges of each range and in every spelling."""

from __future__ import annotations

import ipaddress
import random

import pytest

from everthink.errors import BlockedAddress, InvalidSettings
from everthink.guard.addresses import check_url, is_forbidden, named_places

# The last address before a range, its first, its last, and the next one. Where ranges touch: no neighbour.
RANGES = [
    ("", "0.0.0.0", "0.255.255.255", "1.0.0.0"),
    ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
    ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"),
    ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"),
    ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"),
    ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"),
    ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"),
    ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"),
    ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"),
    ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"),
    ("198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0"),
    ("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0"),
    ("223.255.255.255", "224.0.0.0", "239.255.255.255", ""),
    ("", "240.0.0.0", "255.255.255.255", ""),
    ("", "::", "::1", ""),
    ("", "::2", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2000::"),
    (
        "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001::",
        "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:200::",
    ),
    (
        "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:db8::",
        "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:db9::",
    ),
    (
        "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3fff::",
        "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3fff:1000::",
    ),
    ("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
    ("", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
    ("", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
    ("", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
    ("", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
]

# How an IPv6 address carries an IPv4 one.
CARRIERS = {
    "mapped": "::ffff:{0}",
    "compatible": "::{0}",
    "translated": "::ffff:0:{0}",
    "NAT64": "64:ff9b::{0}",
    "ISATAP": "2606:2800:220:1:0:5efe:{0}",
    "ISATAP of one's own": "2606:2800:220:1:200:5efe:{0}",
}
METADATA = [
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
]
PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "2606:2800:220:1::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]


@pytest.mark.parametrize(("before", "first", "last", "after"), RANGES)
def test_a_range_is_forbidden_from_its_first_address_to_its_last(
    before: str, first: str, last: str, after: str
) -> None:
    assert is_forbidden(first, loopback=False)
    assert is_forbidden(last, loopback=False)
    assert not any(is_forbidden(beside, loopback=False) for beside in (before, after) if beside)


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize(("before", "first", "last", "after"), [one for one in RANGES if ":" not in one[1]])
def test_a_range_inside_ipv6_has_the_same_edges(
    carrier: str, before: str, first: str, last: str, after: str
) -> None:
    written = CARRIERS[carrier].format
    assert is_forbidden(written(first), loopback=False)
    assert is_forbidden(written(last), loopback=False)
    assert not any(is_forbidden(written(beside), loopback=False) for beside in (before, after) if beside)


@pytest.mark.parametrize("address", [*METADATA, "64:ff9b:1::808:808", "2001:0:4136:e378:8000:63bf:3fff:fdd2"])
@pytest.mark.parametrize("loopback", [True, False])
def test_what_clouds_and_translators_answer_at_is_forbidden_always(address: str, loopback: bool) -> None:
    assert is_forbidden(address, loopback=loopback)


@pytest.mark.parametrize("address", ["", "localhost", "example.com", "1.2.3.4.5", "::1::", "fe80::1%eth0"])
def test_what_is_no_address_or_belongs_to_one_cable_is_forbidden(address: str) -> None:
    assert is_forbidden(address, loopback=True)


def test_whatever_python_calls_private_is_forbidden() -> None:
    dice = random.Random(245)
    for _ in range(5_000):
        four = ipaddress.IPv4Address(dice.getrandbits(32))
        six = ipaddress.IPv6Address(0x2000 << 112 | dice.getrandbits(125))
        assert is_forbidden(four, loopback=False) or (four.is_global and not four.is_multicast)
        assert is_forbidden(six, loopback=False) or six.is_global


@pytest.mark.agent_case(245)
def test_loopback_is_allowed_on_request_and_nothing_else_near_us_is() -> None:
    loopback = [
        "127.0.0.0",
        "127.0.0.1",
        "127.255.255.255",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:127.255.255.255",
    ]
    assert [one for one in loopback if is_forbidden(one, loopback=True)] == []
    assert [one for one in loopback if not is_forbidden(one, loopback=False)] == []
    for before, first, last, after in RANGES:
        if (first, last) not in {("127.0.0.0", "127.255.255.255"), ("::", "::1")}:
            assert is_forbidden(first, loopback=True)
            assert is_forbidden(last, loopback=True)
        assert not any(is_forbidden(beside, loopback=True) for beside in (before, after) if beside)
    assert is_forbidden("::", loopback=True)
    assert [one for one in PUBLIC if is_forbidden(one, loopback=True)] == []
    assert [one for one in PUBLIC if is_forbidden(one, loopback=False)] == []


@pytest.mark.parametrize(
    "address", ["64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "::ffff:0:127.0.0.1", "::2"]
)
def test_a_detour_to_this_machine_is_no_loopback(address: str) -> None:
    assert is_forbidden(address, loopback=True)


# --- URLs

THIS_MACHINE = [
    "http://localhost/",
    "http://LOCALHOST:8787/x",
    "http://localhost./",
    "http://app.localhost:3000/",
    "http://ｌｏｃａｌｈｏｓｔ/",
    "http://127.0.0.1/",
    "http://127.1/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://①②⑦.0.0.1/",
    "http://127。0。0。1/",
    "http://[::1]:8080/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
]
NEAR = [
    "http://0/",
    "http://0.0.0.0:8080/",
    "http://10.0.0.7/",
    "http://167772167/",
    "http://012.0.0.7/",
    "http://0xa.7/",
    "http://192.168.1.1:443/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[::]/",
    "http://[::ffff:10.0.0.7]/",
    "http://[fe80::1%25eth0]/",
    "http://metadata/computeMetadata/v1/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata.google.internal./computeMetadata/v1/",
    "http://METADATA.goog/computeMetadata/v1/",
    "http://metadata.tencentyun.com/latest/",
    "http://db:5432/",
    "http://printer.local/",
    "http://vault.service.consul/",
    "http://kubernetes.default.svc/",
    "http://localhost.localdomain/",
    "http://127%2e0.0.1/",
    "http://1.2.3.4.5/",
    "http://example..com/",
    f"http://{'a' * 64}.com/",
    f"http://{'a.' * 127}com/",
]
NOT_OPENED = {
    "file:///etc/passwd": "only http: and https:",
    "ftp://example.com/": "only http: and https:",
    "data:,hello": "only http: and https:",
    "unix:/run/docker.sock": "only http: and https:",
    "//example.com/": "only http: and https:",
    "example.com": "only http: and https:",
    "": "only http: and https:",
    "http://": "can be read",
    "http:///x": "can be read",
    "http:example.com": "can be read",
    "http://[::1": "can be read",
    "http://[v1.example]/": "can be read",
    "http://example.com:port/": "can be read",
    "http://example.com:99999/": "can be read",
    "http://exa mple.com/": "can be read",
    " http://example.com/": "can be read",
    "http://example.com/\n": "can be read",
    "http://example.com\\@10.0.0.7/": "can be read",
    "http://example.com\t/": "can be read",
    "http://user@example.com/": "user name or a password",
    "https://user:secret@example.com/": "user name or a password",
    "https://:secret@example.com/": "user name or a password",
    "https://@example.com/": "user name or a password",
    "https://example.com@10.0.0.7/": "user name or a password",
}
OPENED = [
    "https://example.com",
    "HTTPS://Example.com:8443/a?b=c@d#e",
    "http://93.184.216.34/",
    "http://1566099490/",
    "https://[2606:2800:220:1::1]:8443/mcp",
    "https://bücher.example.com/",
    "https://xn--bcher-kva.example/",
    "https://例え.テスト/",
    "https://mcp.example.com./",
    "https://localhost.example.com/",
    "https://10.0.0.7.nip.io/",
]


@pytest.mark.parametrize("url", THIS_MACHINE)
def test_this_machine_is_opened_on_request_only_however_it_is_written(url: str) -> None:
    check_url(url, loopback=True)
    with pytest.raises(BlockedAddress):
        check_url(url, loopback=False)


@pytest.mark.parametrize("loopback", [True, False])
@pytest.mark.parametrize("url", NEAR)
def test_what_leads_near_us_is_not_opened(url: str, loopback: bool) -> None:
    with pytest.raises(
        BlockedAddress, match=r"^Blocked URL: '.*' does not lead to the public web\. Nothing was sent"
    ):
        check_url(url, loopback=loopback)


@pytest.mark.parametrize("url", NOT_OPENED)
def test_what_is_no_plain_web_address_is_not_opened(url: str) -> None:
    with pytest.raises(BlockedAddress, match=rf"^Blocked URL: .*{NOT_OPENED[url]}") as caught:
        check_url(url, loopback=True, allow=["10.0.0.7"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", OPENED)
def test_a_public_address_is_opened(url: str) -> None:
    check_url(url, loopback=False)


def test_the_words_of_a_refusal_are_bounded_and_on_one_line() -> None:
    with pytest.raises(BlockedAddress) as caught:
        check_url(f"http://{'a' * 10_000}/", loopback=False)
    assert len(str(caught.value)) < 500


# --- what an application allows


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("mcp.lan:8080", "http://mcp.lan:8080/mcp"),
        ("MCP.lan.:8080", "http://mcp.LAN:8080/mcp"),
        ("mcp.lan", "http://mcp.lan/mcp"),
        ("mcp.lan", "https://mcp.lan/mcp"),
        ("bücher.lan", "http://xn--bcher-kva.lan/"),
        ("10.0.0.7:8080", "http://10.0.0.7:8080/"),
        ("10.0.0.7", "http://167772167/"),
        ("[fd00::7]:8080", "http://[fd00:0:0::7]:8080/"),
        ("[fd00::7]", "https://[fd00::7]/"),
        ("db", "http://db/"),
    ],
)
def test_a_host_that_is_named_is_opened(allow: str, url: str) -> None:
    check_url(url, loopback=False, allow=[allow])


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("mcp.lan:8080", "http://mcp.lan:8081/"),
        ("mcp.lan:8080", "http://mcp.lan/"),
        ("mcp.lan", "http://mcp.lan:8080/"),
        ("mcp.lan", "http://other.mcp.lan/"),
        ("mcp.lan", "http://xmcp.lan/"),
        ("10.0.0.7", "http://10.0.0.8/"),
        ("[fd00::7]", "http://[fd00::8]/"),
        ("mcp.lan", "ftp://mcp.lan/"),
        ("mcp.lan", "http://user@mcp.lan/"),
    ],
)
def test_its_neighbours_are_not(allow: str, url: str) -> None:
    with pytest.raises(BlockedAddress):
        check_url(url, loopback=False, allow=[allow])


def test_a_refusal_says_what_to_allow_and_that_helps() -> None:
    url = "http://[fd00:0::7]:8080/mcp"
    with pytest.raises(BlockedAddress) as caught:
        check_url(url, loopback=False)
    check_url(url, loopback=False, allow=[caught.value.next_step.split("'")[1]])


WRONG = [
    *("", "*", "*.lan", "http://mcp.lan", "mcp.lan/mcp", "mcp.lan:", "mcp.lan:0", "mcp.lan:65536"),
    *("user@mcp.lan", "fd00::7", "[mcp]", "[:::]", "mcp lan", "a" * 70 + "ü.lan"),
]


@pytest.mark.parametrize("entry", WRONG)
def test_an_entry_that_is_no_host_is_told_where_it_is_written(entry: str) -> None:
    with pytest.raises(InvalidSettings, match="is not a host"):
        named_places([entry])


def test_one_text_in_place_of_a_list_is_told() -> None:
    with pytest.raises(InvalidSettings, match=r"Write a list: allow=\['mcp.lan'\]"):
        named_places("mcp.lan")
