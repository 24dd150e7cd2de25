"""Where the platforms of messengers send to: who calls, what they bring, what they are answered.

    POST /messengers/{id}/webhook --verify--> parse --Inbox.take--> 200, once it is durable

Nothing of a body is parsed before it is known who has sent it. What cannot be accepted now is answered so
that the platform sends it again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from .address import Address
from .calling import call_hook
from .deliveries.inbox import Inbox
from .deliveries.sending import Bot
from .errors import AgentElsewhere, AgentSetAside, InvalidMessage, LeaseLost, StoreError
from .limits import Limits
from .messengers.values import Arrived
from .plain import cut
from .server.bodies import bounded
from .settings import shown
from .wire.bounds import check

if TYPE_CHECKING:
    from .runtime.directory import Directory

__all__ = ["Webhooks"]

log = logging.getLogger("everthink.server")

LATER = {"Retry-After": "1"}
TEXT_SHARE = 4
"""One text is this part of the longest body at most: it is kept twice, and indexed."""
LONGEST_WHY = 200
"""Characters of what an adapter says against a body."""


class Webhooks:
    """The webhooks of an app. `root` is the agent that `/messengers/…` goes to, if there is one; `homes` are
    the agents that are there for their messengers alone, it among them."""

    def __init__(
        self,
        open: Callable[[], Awaitable[Directory]],
        limits: Limits,
        root: Callable[[], Address | None],
        homes: Callable[[], list[Address]],
    ) -> None:
        self._open, self._limits, self._root, self._homes = open, limits, root, homes
        # The paths of the root's messengers, once it was in memory.
        self._paths: frozenset[str] | None = None

    async def answer(self, request: Request, path: str, agent: Address | None) -> Response | None:
        """The answer to a request to a path: below an agent, or to none. `None`: it is for no messenger.

        It comes from a platform, which the application has not authenticated; so it makes no agent, but those
        that are there for their messengers.
        """
        root = self._root()
        if agent is None:
            if root is None or (self._paths is not None and path not in self._paths):
                return None
            return await self._answered(request, root, path)
        if agent not in self._homes() and not await (await self._open()).exists(agent):
            return None
        return await self._answered(request, agent, path)

    async def _answered(self, request: Request, address: Address, path: str) -> Response | None:
        try:
            actor = await (await self._open()).reach(address)
        except Exception as error:  # noqa: BLE001 - told below
            return _failed(address, error)
        inbox: Inbox | None = None if actor.messaging is None else actor.messaging.inbox
        if address == self._root():
            self._paths = frozenset() if inbox is None else inbox.paths
        bot = None if inbox is None else inbox.at(path)
        if inbox is None or bot is None:
            return None
        with actor.hold():
            return await self._taken(request, address, inbox, bot)

    async def _taken(self, request: Request, address: Address, inbox: Inbox, bot: Bot) -> Response:
        if request.method != "POST":
            return PlainTextResponse("Method not allowed", 405, {"Allow": "POST"})
        most: int = getattr(bot.definition.messenger, "longest_body", self._limits.frame_bytes)
        limits = replace(self._limits, frame_bytes=min(most, self._limits.frame_bytes))
        with bounded(request, limits) as asked:
            try:
                body = await asked.body()
            except ClientDisconnect:
                return Response(status_code=400)
        try:
            if (refused := await self._refused(asked, body, inbox, bot)) is not None:
                return refused
            if body.lstrip()[:1] in (b"{", b"[") and (why := check(body, self._limits)) is not None:
                inbox.refuse(bot, f"its body {why}")
                return PlainTextResponse(f"The body {why}. Nothing was accepted.", 413)
            try:
                arrived = bot.definition.messenger.parse(dict(asked.headers), body)
            except ValueError as error:
                inbox.refuse(bot, f"its body is none of the platform's: {cut(str(error), LONGEST_WHY)}")
                return PlainTextResponse("Bad Request", 400)
            if await inbox.has_met(bot, arrived):
                arrived = bot.definition.messenger.parse(dict(asked.headers), body)
            if _longest(arrived) > (longest := min(limits.text_bytes, limits.frame_bytes // TEXT_SHARE)):
                why = f"its text is longer than {longest} bytes"
                inbox.refuse(bot, why)
                return PlainTextResponse(f"{why.capitalize()}. Nothing was accepted.", 413)
            try:
                await inbox.take(bot, arrived)
            except InvalidMessage as error:  # as it is now it can never be stored
                inbox.refuse(bot, f"what it says is no message: {cut(error.what, LONGEST_WHY)}")
                return PlainTextResponse("Bad Request", 400)
        except Exception as error:  # noqa: BLE001 - told below
            return _failed(address, error)
        reply = arrived.reply
        if reply is None:
            return PlainTextResponse("OK")
        if isinstance(reply.body, str):
            return PlainTextResponse(reply.body, reply.status)
        return JSONResponse(dict(reply.body), reply.status)

    async def _refused(self, request: Request, body: bytes, inbox: Inbox, bot: Bot) -> Response | None:
        """Why this is not taken; `None`: the platform has sent it, as far as the application asks."""
        how = bot.definition.verify_webhook
        if how is False:
            return None
        answer: Any = (
            inbox.verify(bot, dict(request.headers), body)
            if how is True or how is None
            else await call_hook(how, request)
        )
        if isinstance(answer, Response):
            return answer
        if answer is True:
            return None
        if answer is False:
            inbox.refuse(bot, "its signature does not fit: another secret, a clock that is off, a stranger")
        else:  # a function that forgets to return would let everybody in
            inbox.refuse(
                bot, f"verify_webhook returned {shown(answer)}: it returns True, False or a response"
            )
        return PlainTextResponse("Unauthorized", 401)


def _longest(arrived: Arrived) -> int:
    """Bytes of the longest text in it."""
    texts = (event.message.text for event in arrived.events if event.message is not None)
    return max((len(text.encode(errors="surrogatepass")) for text in texts), default=0)


def _failed(address: Address, error: Exception) -> Response:
    """What a platform is answered when nothing was accepted: it sends it again."""
    if isinstance(error, AgentElsewhere | LeaseLost | StoreError | AgentSetAside):
        log.info("a webhook of %s is to come again: %s", address, error)
        return PlainTextResponse("Please try again in a moment.", 503, LATER)
    log.error("a webhook of %s could not be accepted", address, exc_info=error)
    return PlainTextResponse("It could not be accepted.", 500)
