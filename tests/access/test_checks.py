"""What an application says about who may come in, and how the checks hear of it."""

from __future__ import annotations

from typing import Any

from starlette.requests import HTTPConnection

from everthink import App, Think
from everthink.access.access import Access, Checks
from everthink.access.origins import Hosts, Origins
from everthink.clock import SystemClock
from everthink.observe.bus import EventBus


class Desk(Think):
    model = "demo"


def asked_for(host: str) -> HTTPConnection:
    scope: dict[str, Any] = {"type": "http", "path": "/", "headers": [(b"host", host.encode())]}
    return HTTPConnection(scope)


def test_the_checks_need_no_app() -> None:
    clock = SystemClock()
    checks = Checks(Hosts(["my.page"]), Origins())

    access = Access(checks, EventBus(now_ms=clock.now_ms), clock)

    assert access.is_named(asked_for("my.page"))
    assert not access.is_named(asked_for("evil.example"))


def test_names_that_an_app_is_given_later_count_from_then_on() -> None:
    app = App(Desk, allow_hosts=["my.page"])
    assert not app.access.is_named(asked_for("localhost"))

    app.hosts = app.hosts.and_local()

    assert app.access.is_named(asked_for("localhost"))
    assert not app.access.is_named(asked_for("evil.example"))
