"""A message cannot make a provider, a local model server or us open what only we can reach."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import messages as ai
from pydantic_ai.models.test import TestModel

from everthink.models.file_urls import LEFT_OUT, may_be_opened
from everthink.models.port import FilePart, Request, TextPart, ToolMessage, ToolResultPart, UserMessage
from everthink.models.provider_request import History, parameters

INSIDE = [
    "file:///etc/passwd",
    "/etc/passwd",
    "etc/passwd",
    "ftp://example.com/x.png",
    "gopher://example.com/x",
    "javascript:alert(1)",
    "s3://bucket/key",
    "gs://bucket/key",
    "//example.com/x.png",
    "http:///x.png",
    "http://",
    "http://localhost/x.png",
    "http://LOCALHOST:8787/x.png",
    "http://localhost./x.png",
    "http://db:5432/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://printer.local/x.png",
    "http://127.0.0.1/x.png",
    "http://127.1/x.png",
    "http://0x7f000001/x.png",
    "http://2130706433/x.png",
    "http://0177.0.0.1/x.png",
    "http://0.0.0.0/x.png",
    "http://10.0.0.7/x.png",
    "http://192.168.1.1/x.png",
    "http://172.16.0.1/x.png",
    "http://100.64.0.1/x.png",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/x.png",
    "http://[::ffff:127.0.0.1]/x.png",
    "http://[fe80::1%25eth0]/x.png",
    "http://[fd00::1]/x.png",
    "http://[2002:7f00:1::]/x.png",
    "http://[64:ff9b::7f00:1]/x.png",
    "http://[64:ff9b::10.0.0.7]/x.png",
    "http://[64:ff9b:1::808:808]/x.png",
    "http://[::7f00:1]/x.png",
    "http://[2606:2800:220:1:0:5efe:7f00:1]/x.png",
    "http://①②⑦.0.0.1/x.png",
    "http://１２７.0.0.1/x.png",
    "http://127。0。0。1/x.png",
    "http://127｡0｡0｡1/x.png",
    "http://x.ｌｏｃａｌ/x.png",
    "http://x.loc\ufe0fal/x.png",
    "http://ｌｏｃａｌｈｏｓｔ/x.png",
    "http://localhost。/x.png",
    "http://127%2e0.0.1/x.png",
    "http://printer%2elocal/x.png",
    "http://192.0.0.192/x.png",
    "http://192.0.0.170/x.png",
    "http://[::ffff:0:127.0.0.1]/x.png",
    "http://[::ffff:0:0:10.0.0.7]/x.png",
    "http://[fec0::1]/x.png",
    "http://kubernetes.default.svc/x.png",
    "http://kubernetes.default/x.png",
    "http://vault.kube-system/x.png",
    "http://node.consul/x.png",
    "http://example.com%2elocal/x.png",
    "http://1.2.3.4.5/x.png",
    "http://user@10.0.0.7/x.png",
    "http://example.com:port/x.png",
    "http://exa mple.com/x.png",
    "http://example.com\\@127.0.0.1/",
    "http://example.com/\n127.0.0.1",
    "http://[::1",
]
PUBLIC = [
    "https://example.com/x.png",
    "HTTPS://Example.com:8443/a/b.png?x=1#top",
    "http://93.184.216.34/x.png",
    "https://[2606:2800:220:1::1]/x.png",
    "https://[64:ff9b::808:808]/x.png",
    "https://bücher.example.com/x.png",
    "https://例え.テスト/x.png",
    "https://uploads.my-app.io/f/0123",
    "data:image/png;base64,iVBORw0KGgo=",
    "data:,hello",
]


@pytest.mark.parametrize("url", INSIDE)
def test_an_address_that_leads_inside_is_left_out_and_said_so(url: str) -> None:
    assert not may_be_opened(url)
    shown: Any = mapped(UserMessage([TextPart("Look:"), FilePart(url, "image/png")]))
    assert shown.content == ["Look:", LEFT_OUT]
    # a tool's result as well
    result = ToolResultPart("c", "look", "", content=[TextPart("Here:"), FilePart(url, "image/png")])
    assert url not in repr(mapped(ToolMessage([result])))


@pytest.mark.parametrize("url", PUBLIC)
def test_a_public_address_and_data_go_through(url: str) -> None:
    assert may_be_opened(url)
    shown: Any = mapped(UserMessage([TextPart("Look:"), FilePart(url, "image/png")]))
    assert shown.content[1] != LEFT_OUT


def test_we_never_ask_the_library_to_fetch_a_file_itself() -> None:
    """Where it has to, it refuses private addresses unless it is told not to."""
    for kind in ("image", "audio", "video", "application"):
        shown: Any = mapped(UserMessage([FilePart("https://example.com/x", f"{kind}/x"), TextPart("?")]))
        assert isinstance(shown.content[0], ai.FileUrl)
        assert shown.content[0].force_download is False


def mapped(message: Any) -> Any:
    model = TestModel()
    request = Request(system="", messages=[message])
    [sent] = History(model).map([message], parameters(model, request))
    return sent.parts[0]
