"""An agent that waits for its cue: `python -m tests.journeys.hooks.stage PORT STORE [PAGE [MCP_HOST]]`.

/agents/stage/ROOM --> Stage        POST /begin/ROOM --> a turn that Python starts        else --> the page

The last user message is the script of an answer: `5 hold 5` says five words, waits until somebody posts
to `…/release`, and says five more. So it is the journey that decides what has been said when a line
breaks, and never the speed of a machine.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles

from everthink import Message, ToolContext, exposed, tool
from everthink.errors import ModelError
from everthink.hooks import ChatResponse
from everthink.memory import Compaction, ContextOverflow, Session
from everthink.models import port as model
from everthink.server import Limits, StreamingResponse
from everthink.server.batched_websocket import options
from everthink.tools.question import Form, Question
from tests.support.agents import live
from tests.wire.peer import PeerApp, ThinkPeer, words_of

CALLS: dict[str, dict[str, dict[str, Any]]] = {
    "echo": {"echo": {"value": "hi"}},
    "explode": {"explode": {"value": "boom"}},
    "danger": {"danger": {"target": "x"}},
    "getLocation": {"getLocation": {}},
    "pair": {"danger": {"target": "x"}, "slow": {}},
    "wonder": {"wonder": {}},
    "wonders": {"wonder": {"times": 2}},
}
"""The calls of one step. `pair` is one that asks for a yes beside one that waits for `…/answer`."""


SUMMARY = "In short. "
WHO = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Cue:
    """A sign to go on. It is given to somebody who waits, and waits for them."""

    def __init__(self) -> None:
        self._held, self._go = asyncio.Event(), asyncio.Event()

    async def hold(self) -> None:
        """Wait for the sign."""
        self._go.clear()
        self._held.set()
        try:
            await self._go.wait()
        finally:
            self._held.clear()

    async def until_held(self) -> None:
        """Return once somebody waits."""
        await self._held.wait()

    async def release(self) -> None:
        """Give the sign."""
        await self._held.wait()
        self._held.clear()
        self._go.set()


class Player:
    """Plays the script. A call ends an act; the next one is played once the call has its result."""

    name = "player"
    continues: Literal["prefill", "prompt"] = "prompt"

    def __init__(self) -> None:
        self.cue, self.takes = Cue(), 0

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        self.takes += 1
        script, number = _script(request.messages)
        acts: list[list[str]] = [[]]
        for word in script:
            acts[-1].append(word)
            for _ in CALLS.get(word, ()):
                acts.append([])  # one for each result
        said = sum(int(word) for act in acts[:number] for word in act if word.isdigit())
        yield model.Opened()
        yield model.TextStart("t")
        for word in acts[number]:
            match word:
                case "hold":
                    await self.cue.hold()
                case "take":
                    yield model.TextDelta("t", f"take{self.takes} ")
                case "fail":
                    yield model.Failed(ModelError("the lights went out", kind="fatal"))
                    return
                case "full":
                    if SUMMARY not in str(request.messages):
                        yield model.Failed(ModelError("prompt is too long", kind="context_overflow"))
                        return
                case _ if word in CALLS:
                    yield model.TextEnd("t")
                    for place, (name, values) in enumerate(CALLS[word].items()):
                        call = f"call-{self.takes}{'-' * place}"
                        given = msgspec.json.encode(values).decode()
                        yield model.ToolInputStart(call, name)
                        yield model.ToolInputDelta(call, given)
                        yield model.ToolCallReady(call, name, given)
                    yield model.Finish("tool-calls", model.Usage(10, 5, 15))
                    return
                case _:
                    for _ in range(int(word)):
                        yield model.TextDelta("t", f"w{said} ")
                        said += 1
        yield model.TextEnd("t")
        yield model.Finish("stop", model.Usage(10, 5, 15))


def _script(messages: list[model.ModelMessage]) -> tuple[list[str], int]:
    """What the last user message says, and which act of it comes next."""
    last = [message for message in messages if isinstance(message, model.UserMessage)][-1]
    since = messages[messages.index(last) :]
    parts = [part for message in since if isinstance(message, model.ToolMessage) for part in message.content]
    return words_of(last), sum(isinstance(part, model.ToolResultPart) for part in parts)


def _summed(messages: list[Message], context: Any) -> Compaction:
    return Compaction(messages[0].id, messages[-2].id, SUMMARY)


class Stage(ThinkPeer):
    """The peer of the recordings, with a model that waits for its cue."""

    async def on_start(self, props: Any = None) -> None:
        self.player, self.called, self.ended = Player(), Cue(), asyncio.Event()
        self.did: list[str] = []

    @tool(needs_approval=True)
    async def danger(self, target: str) -> dict[str, str]:
        """Do something that needs a yes, and that one can see was done."""
        self.did.append(target)
        return {"did": target}

    @tool
    async def wonder(self, ctx: ToolContext, times: int = 1) -> dict[str, Any]:
        """Ask who somebody is, as often as that, and say what was answered."""
        heard = [] if ctx.answer is None else [*ctx.answer.state, ctx.answer.forms["who"]]
        if len(heard) < times:
            raise Question({"who": Form(f"Who is number {len(heard) + 1}?", WHO)}, state=heard)
        self.did += [str(msgspec.to_builtins(one).get("content")) for one in heard]
        return {"heard": heard}

    @tool
    async def slow(self) -> str:
        """Answer when somebody posts to `…/answer`."""
        await self.called.hold()
        return "at last"

    context_overflow = ContextOverflow(reactive=True)

    def configure_session(self, session: Session) -> Session:
        """Only the room of one journey has a conversation that can be shortened."""
        return session.on_compaction(_summed) if self.name.startswith("too-long") else session

    def get_model(self) -> Any:
        return self.player

    async def on_request(self, request: Any) -> Any:
        match request.url.path.rpartition("/")[2]:
            case "release":
                await self.player.cue.release()
            case "held":
                await self.player.cue.until_held()
            case "answer":
                await self.called.release()
            case "called":
                await self.called.until_held()
            case "ended":
                await self.ended.wait()
            case "seen":
                pass
            case _:
                return None
        return {"takes": self.player.takes, "did": self.did}

    async def on_chat_response(self, response: ChatResponse) -> None:
        self.ended.set()

    @exposed(reads=True)
    def read(self) -> Any:
        """The state, as the server has it."""
        return self.state

    @exposed
    async def wait(self) -> str:
        """Answer when somebody posts to `…/answer`."""
        await self.called.hold()
        return "waited"

    @exposed(streaming=True)
    async def tell(self, stream: StreamingResponse) -> None:
        """Two pieces, the second after somebody posted to `…/answer`."""
        stream.send({"piece": 1})
        await self.called.hold()
        stream.send({"piece": 2})
        stream.end()


class Theatre(PeerApp):
    """Serves the stage, and starts turns of its own."""

    def __init__(self, store: str, page: Path | None, *mcp_hosts: str) -> None:
        limits = Limits(text_bytes=10_000, frame_bytes=200_000, frame_nodes=5_000)
        super().__init__(Stage, store=store, limits=limits, allow_addresses=mcp_hosts)
        self._page = StaticFiles(directory=page, html=True) if page else None

    async def on_other_request(self, request: Any) -> Any:
        match request.method, request.url.path.strip("/").split("/"):
            case "POST", ["begin", room]:
                given = await request.json()
                agent = self.agent(Stage, room)
                if given["how"] == "submit":
                    submission = await agent.submit_messages(given["text"])
                    return JSONResponse({"status": submission.status})
                return JSONResponse({"status": (await agent.save_messages(given["text"])).status})
            case "POST", ["answers", room]:
                agent = await live(self.agent(Stage, room))
                found = await agent.session.get_branches((await request.json())["to"])
                return JSONResponse([message.text for message in found])
            case "POST", ["servers", room]:
                given, agent = await request.json(), self.agent(Stage, room)
                if "url" in given:
                    return JSONResponse({"id": (await agent.add_mcp_server("library", given["url"])).id})
                return JSONResponse({"is_gone": await agent.remove_mcp_server(given["id"])})
            case "POST", ["state", room]:
                await self.agent(Stage, room).set_state(await request.json())
                return JSONResponse({})
            case "GET", _ if self._page is not None:
                return await self._page.get_response(request.url.path.strip("/") or ".", request.scope)
            case _:
                return await super().on_other_request(request)


if __name__ == "__main__":
    import uvicorn

    where = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    # A journey that failed may have left somebody waiting for a cue that never comes.
    patience: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 1}
    theatre = Theatre(sys.argv[2], where, *sys.argv[4:])
    uvicorn.run(theatre, host="127.0.0.1", port=int(sys.argv[1]), **patience, **options(theatre.limits))
