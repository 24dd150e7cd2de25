"""What the body of a subclass of `App` says has an effect, or is refused where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from everthink import App, Think
from everthink.errors import InvalidSettings

from ..support.named import by_repr
from ..support.server import served

pytestmark = pytest.mark.anyio


class Room(Think):
    model = "demo"


class Guarded(App):
    def authenticate(self, connection: Any) -> Any:
        return connection.headers.get("x-token")

    async def authorize(self, identity: Any) -> bool:
        return identity == "ada"


@pytest.mark.parametrize(("token", "status"), [("", 401), ("eve", 403), ("ada", None)])
async def test_checks_that_a_subclass_has_as_methods_are_asked(
    tmp_path: Path, token: str, status: int | None
) -> None:
    async with served(Guarded(Room, store=f"sqlite:///{tmp_path}/x.db")) as server:
        try:
            await server.connect(Room, headers={"X-Token": token})
            refused = None
        except InvalidStatus as error:
            refused = error.response.status_code
    assert refused == status


def test_a_function_that_is_given_counts_before_the_method() -> None:
    def given(connection: Any) -> str:
        return "ada"

    assert Guarded(Room, authenticate=given).authenticate is given


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"grace": 99}, r"Site\.grace has no effect.*Site\(…, grace=…\)"),
        ({"allow_origins": ["*"]}, r"Site\.allow_origins has no effect"),
        ({"busy_timeout": 5}, r"Site\.busy_timeout has no effect"),
        ({"on_other_requests": lambda self, request: None}, "Did you mean 'on_other_request'"),
        ({"on_request": lambda self, request: None}, "Did you mean 'on_other_request'"),
        ({"onBeforeConnect": lambda self, connection: None}, "Did you mean 'on_before_connect'"),
        ({"authentificate": lambda self, connection: None}, "Did you mean 'authenticate'"),
        ({"allow_origin": ["*"]}, "Did you mean 'allow_origins'"),
        ({"authenticate": lambda connection: "ada"}, "has no `self`"),
        ({"authenticate": "ada"}, r"Site\.authenticate is 'ada'"),
        ({"authorize": lambda self, a, b, c, d: True}, "is given only identity, action, agent"),
    ],
    ids=by_repr,
)
def test_what_would_have_no_effect_is_refused_where_it_is_written(body: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        type("Site", (App,), body)


def test_what_a_subclass_reads_itself_is_its_own() -> None:
    class Site(App):
        grace = 99

        def __init__(self) -> None:
            super().__init__(Room, grace=self.grace)

        def health(self) -> str:
            return "ok"

    assert Site()._grace == 99  # pyright: ignore[reportPrivateUsage]
