"""What the model is told is the same in development and in production."""

from __future__ import annotations

from pathlib import Path

import pytest

from everthink import App
from everthink.serving.missing_models import use_demo_models
from everthink.serving.page import WithPage
from everthink.serving.target import Asked, load
from everthink.testing.client import Client
from everthink.testing.in_process_server import Listening

pytestmark = pytest.mark.anyio

AGENT = '''
from everthink import Think, tool
from everthink.testing import ScriptedModel, says

class {name}(Think):
    """A cook."""
    heard = []
    system_prompt = "You cook."

    def get_model(self):
        model = ScriptedModel(says("Hello."))
        self.heard.append(model)
        return model

    @tool
    def knife(self) -> str:
        """Cut."""
        return "cut"

    def configure_session(self, session):
        return session.with_context("memory", description="Facts")
'''


async def told(folder: Path, name: str, *, develops: bool) -> object:
    (folder / f"{name.lower()}.py").write_text(AGENT.format(name=name))
    loaded = load(f"{name.lower()}:{name}", ask=Asked(store=f"sqlite:///{folder}/{name}.db", grace=0.0))
    assert isinstance(loaded.app, App)
    if develops:
        use_demo_models(loaded)
    async with Listening(WithPage(loaded) if develops else loaded.asgi) as server:
        chat: Client = await server.connect(f"/agents/{name.lower()}/room")
        await chat.until_done(await chat.say("Hi"))
    request = loaded.app.classes[0].heard[0].last_request  # type: ignore[attr-defined] - the class of the file
    return request.system, [spec.name for spec in request.tools], request.tool_choice, request.settings


async def test_dev_and_serve_tell_the_model_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert await told(tmp_path, "Cook", develops=True) == await told(tmp_path, "Chef", develops=False)
