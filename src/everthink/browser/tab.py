"""One page in a context of its own: nothing of it is shared, and all it asks for goes through its own proxy.

    Tab.open(url) --rules--> navigate --> loaded, refused, a download        its requests --> FilterProxy
    Tab.ask(script)          in a world where the page has changed nothing
    Tab.click, type          as a person would: a place on the screen, keys

Dialogs are dismissed, downloads refused, windows that a page opens are closed: each is noted for the model.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from typing import Any, cast

from ..errors import AgentError, BlockedAddress, ToolError
from ..guard.addresses import place_of, plain_host, read_place
from ..guard.finding import Resolve
from ..guard.proxy import FilterProxy, Refused
from ..guard.rules import Rules
from ..plain import cut, plain
from . import scripts
from .cdp import BrowserGone, CommandFailed, Connection, NoAnswer, in_time
from .snapshot import Snapshot, told

__all__ = ["Tab"]

log = logging.getLogger("everthink.browser")

LOADING, SETTLING = 15.0, 0.4
"""Seconds that a page gets to load, and in which what follows from a click must begin."""
ASKING = 5.0
MOST_ELEMENTS = 20_000
MOST_HTML = 2_000_000
MOST_NOTES = 10
TALLEST = 8_000
_PORTS = {"http": 80, "https": 443}
_OURS = (403, 502)
"""What our proxy answers for a page that is not opened. A site may say so as well."""
_BLANK = "about:blank"
_OTHER = "Use another source, or tell the person that this one is closed to you."


class Tab:
    """A page of its own. Whoever uses it holds `lock`."""

    def __init__(self, connection: Connection, rules: Rules, *, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self.rules = rules
        self.proxy: FilterProxy | None = None
        self.lock = asyncio.Lock()
        self.context = self.target = self.session = ""
        self.has_begun = False
        """True once its page is there."""
        self.frames: set[str] = set()
        """The frames of the page, of which the first is the page itself."""
        self.url = _BLANK
        self.refs: set[int] = set()
        """The elements that the model was told of, since the page was loaded."""
        self._main, self._world = "", 0
        self._loaded, self._moved = asyncio.Event(), asyncio.Event()
        self._why_gone = ""
        self._asked: set[asyncio.Future[dict[str, Any]]] = set()
        self._has_failed = False
        """True while the browser shows a page of its own in the place of one that it did not get."""
        self._notes: dict[str, list[Any]] = {}
        self._refusals = 0
        self._told: frozenset[str] = frozenset()
        """What the last error has said was refused: the browser may tell of it, or try it, once more."""

    # --- its life

    async def begin(self, resolve: Resolve | None) -> None:
        """Make the context and its page. With a resolver its requests go through a proxy of ours."""
        given: dict[str, Any] = {"disposeOnDetach": True}
        if resolve is not None:
            self.proxy = await FilterProxy(self.rules, resolve=resolve).__aenter__()
            given |= {
                "proxyServer": f"http://127.0.0.1:{self.proxy.port}",
                "proxyBypassList": "<-loopback>",
            }
        self.context = (await self._browser("Target.createBrowserContext", given))["browserContextId"]
        where = {"browserContextId": self.context}
        await self._browser(
            "Browser.setDownloadBehavior", {"behavior": "deny", "eventsEnabled": True, **where}
        )
        self.target = (await self._browser("Target.createTarget", {"url": _BLANK, **where}))["targetId"]
        found = await self._browser("Target.attachToTarget", {"targetId": self.target, "flatten": True})
        self.session = found["sessionId"]
        self._connection.listen(self.session, self._heard)
        self._main = (await self.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        self.frames = {self._main}
        for enabled in ("Page.enable", "Inspector.enable"):
            await self.send(enabled)
        await self.send("Page.setInterceptFileChooserDialog", {"enabled": True})
        self.has_begun = True

    @property
    def is_gone(self) -> bool:
        """True when nothing can be done with it any more."""
        return bool(self._why_gone) or self._connection.gone.is_set()

    @property
    def is_blank(self) -> bool:
        """True while nothing was opened in it."""
        return self.url == _BLANK

    def lost(self, why: str) -> None:
        """Nothing can be done with it any more."""
        self._why_gone = self._why_gone or why
        for answer in list(self._asked):
            if not answer.done():
                answer.set_exception(CommandFailed(f"The page is gone: {why}."))
        self._loaded.set()
        self._moved.set()

    async def end(self) -> None:
        """Close it, with all that it had open and kept."""
        self.lost("it was closed")
        self._connection.listen(self.session, None)
        if self.context and not self._connection.gone.is_set():
            try:
                await self._browser("Target.disposeBrowserContext", {"browserContextId": self.context})
            except (CommandFailed, BrowserGone) as error:
                log.debug("a page was gone before it was closed: %s", error)
        if self.proxy is not None:
            await self.proxy.close()

    # --- commands

    async def _browser(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._connection.send(method, params, timeout=self._timeout)

    async def send(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send a command to the page. One that does not answer, or has crashed, is of no use any more."""
        if self._why_gone:
            raise self._lost()
        answer = self._connection.post(method, params, session=self.session)
        self._asked.add(answer)
        answer.add_done_callback(self._asked.discard)
        try:
            return await in_time(answer, method, timeout or self._timeout)
        except NoAnswer as error:
            if method == "Page.navigate":
                raise
            self.lost("it did not answer any more")
            raise NoAnswer(
                error.what,
                kept="The page may be busy. It was closed, and what was typed into it is lost.",
                next_step="Open it again with browser_open, or another one.",
            ) from None
        except CommandFailed:
            if self._why_gone:
                raise self._lost() from None
            raise

    def _lost(self) -> ToolError:
        return ToolError(
            f"The page is gone: {self._why_gone}.",
            kept="What was read from it before is kept; what was typed into it is lost.",
            next_step="Open it again with browser_open, or another one.",
        )

    async def ask(self, function: str, *arguments: Any) -> Any:
        """What one of our scripts says about the page."""
        try:
            answer = await self._evaluate(function, *arguments)
        except CommandFailed as error:
            if isinstance(error, NoAnswer):
                raise
            self._world = 0  # the page has changed meanwhile: ask the one that is there
            answer = await self._evaluate(function, *arguments)
        if "exceptionDetails" in answer:
            raise ToolError(
                "The page cannot be read: it does not do what pages do.",
                next_step="Try browser_snapshot or browser_screenshot.",
            )
        return answer["result"].get("value")

    async def _evaluate(self, function: str, *arguments: Any) -> dict[str, Any]:
        if not self._world:
            made = await self.send(
                "Page.createIsolatedWorld", {"frameId": self._main, "worldName": "everthink"}
            )
            self._world = made["executionContextId"]
        return await self.send(
            "Runtime.evaluate",
            {
                "expression": scripts.called(function, *arguments),
                "contextId": self._world,
                "returnByValue": True,
                "awaitPromise": True,
                "timeout": ASKING * 1000,
            },
        )

    async def _on(self, ref: str, function: str, *arguments: Any) -> Any:
        """What a script says of one element."""
        await self.ask(scripts.COUNT)  # the world is there
        try:
            found = await self.send(
                "DOM.resolveNode", {"backendNodeId": self._number(ref), "executionContextId": self._world}
            )
            answer = await self.send(
                "Runtime.callFunctionOn",
                {
                    "objectId": found["object"]["objectId"],
                    "functionDeclaration": function,
                    "arguments": [{"value": argument} for argument in arguments],
                    "returnByValue": True,
                },
            )
        except NoAnswer:
            raise
        except CommandFailed as error:
            raise _stale(ref) from error
        return answer["result"].get("value")

    # --- going somewhere

    async def open(self, url: str) -> None:
        """Open an address and wait until it has loaded."""
        self.rules.check_url(url)
        self._forget_notes()  # they are of the page before
        try:
            await self._go(url)
        except AgentError:
            self._forget_told(_shown(url))
            raise

    async def _go(self, url: str) -> None:
        refusals = self.proxy.refusals if self.proxy is not None else 0
        self._loaded.clear()
        try:
            answer = await self.send("Page.navigate", {"url": url}, timeout=LOADING)
        except asyncio.CancelledError:
            self._stop_loading()
            raise
        except NoAnswer:
            self._stop_loading()
            raise ToolError(
                f"{_shown(url)} did not answer within {LOADING:g} seconds.",
                kept=self._kept(),
                next_step="Try again later, or another address.",
            ) from None
        problem = str(answer.get("errorText") or "")
        if answer.get("isDownload"):
            raise ToolError(
                f"{_shown(url)} is a download, and nothing is downloaded here.",
                kept=self._kept(),
                next_step="Open a page about it instead, or tell the person the address.",
            )
        if problem:
            self._raise_refused(refusals, has_failed=True)
            raise ToolError(
                f"{_shown(url)} cannot be opened ({problem.removeprefix('net::')}).",
                next_step="Look at the spelling, try again later, or open another address.",
            )
        await self._wait(self._loaded, LOADING)
        if (await self._state()).get("status") in _OURS:
            self._raise_refused(refusals)

    def _stop_loading(self) -> None:
        """Stay on the page that is there: until then it answers nothing."""
        self._connection.post("Page.stopLoading", session=self.session)

    def _raise_refused(self, since: int, *, has_failed: bool = False) -> None:
        """Raise when the page itself, or where it was led on to, was not opened."""
        for refused in reversed(self.proxy.refused_since(since) if self.proxy is not None else []):
            if not has_failed and _place(refused) != self._place():
                continue
            if not refused.is_blocked:
                raise ToolError(
                    f"{_shown(self.url)} cannot be opened: {refused.why}",
                    next_step="Look at the spelling, try again later, or open another address.",
                )
            raise BlockedAddress(refused.why.removeprefix("Blocked URL: ").rstrip("."), next_step=_OTHER)

    def _is_refusal(self, status: Any) -> bool:
        """Whether the page is what our proxy says in the place of one."""
        if self.proxy is None or not (self._has_failed or status in _OURS):
            return False
        return any(_place(refused) == self._place() for refused in self.proxy.refused)

    async def _led(self, since: int) -> None:
        """Raise when what was done led to a page that is not opened."""
        status = (await self._state()).get("status")
        if not self._is_refusal(status):
            return
        try:
            self._raise_refused(since)
        except (BlockedAddress, ToolError) as error:
            self._forget_told()
            raise ToolError(
                f"It led to a page that is not opened. {error.what}",
                kept="It was done, and the page before it is not open any more.",
                next_step="Open that one again, or another: browser_open.",
            ) from error

    async def _state(self) -> dict[str, Any]:
        return cast("dict[str, Any]", await self.ask(scripts.STATE) or {})

    async def set_content(self, html: str) -> None:
        """Show a text as a page."""
        self._loaded.clear()
        await self.send("Page.setDocumentContent", {"frameId": self._main, "html": html})
        self._world = 0
        self._loaded.set()

    async def settle(self) -> None:
        """Wait for what a click or a key brought about: another page, or nothing."""
        await self._wait(self._moved, SETTLING)
        if self._moved.is_set():
            await self._wait(self._loaded, LOADING)

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        gone = asyncio.ensure_future(self._connection.gone.wait())
        come = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait([gone, come], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            come.cancel()
        if self._connection.gone.is_set():
            raise BrowserGone
        if self._why_gone:
            raise self._lost()

    # --- looking

    async def about(self) -> dict[str, Any]:
        """Where the page is, what it is called, and what happened meanwhile."""
        state = await self._state()
        shown: dict[str, Any] = {"url": _shown(self.url), "title": plain(str(state.get("title") or ""))}
        if state.get("status") and not self._is_refusal(state["status"]):
            shown["status"] = state["status"]
        if not self._loaded.is_set():
            shown["stillLoading"] = True
        shown |= self._notes
        if places := [place for place in self._not_opened() if place not in self._told]:
            shown["notOpened"] = places[:MOST_NOTES]
        self._forget_notes()
        return shown

    def _not_opened(self) -> list[str]:
        """The places that were refused and are news."""
        refused = [] if self.proxy is None else self.proxy.refused_since(self._refusals)
        return list(dict.fromkeys(f"{plain(one.host)[:100]}:{one.port}" for one in refused if one.is_blocked))

    def _forget_told(self, *urls: str) -> None:
        """An error has said what was refused until now."""
        self._told = frozenset((*urls, *self._notes.get("downloadsRefused", ()), *self._not_opened()))
        self._forget_notes()

    def _forget_notes(self) -> None:
        """What happened until now has been said, or is nobody's news any more."""
        self._notes = {}
        if self.proxy is not None:
            self._refusals = self.proxy.refusals

    async def snapshot(self, most: int) -> Snapshot:
        """What the page shows."""
        count = await self.ask(scripts.COUNT)
        if not isinstance(count, int | float) or count > MOST_ELEMENTS:
            raise ToolError(
                f"The page is too large for a snapshot: it has more than {MOST_ELEMENTS:,} elements.",
                kept="It is still open.",
                next_step="Read it with browser_markdown, browser_links or browser_scrape, or look at it with"
                " browser_screenshot.",
            )
        tree = await self.send("Accessibility.getFullAXTree")
        found = told(tree["nodes"], most=most)
        self.refs |= found.refs
        return found

    async def picture(self, *, is_whole: bool) -> tuple[bytes, int, int]:
        """The page as a JPEG, with its width and height: what fits the window, or all down to a bound."""
        metrics = await self.send("Page.getLayoutMetrics")
        box = metrics["cssContentSize" if is_whole else "cssVisualViewport"]
        width = min(int(box.get("width") or box.get("clientWidth") or 1), 4_096)
        height = min(int(box.get("height") or box.get("clientHeight") or 1), TALLEST)
        given: dict[str, Any] = {"format": "jpeg", "quality": 70}
        if is_whole:
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            given |= {"captureBeyondViewport": True, "clip": clip}
        taken = await self.send("Page.captureScreenshot", given)
        return base64.b64decode(taken["data"]), width, height

    # --- using

    async def click(self, ref: str) -> None:
        """Click on an element."""
        number = self._number(ref)
        try:
            await self.send("DOM.scrollIntoViewIfNeeded", {"backendNodeId": number})
            quads = (await self.send("DOM.getContentQuads", {"backendNodeId": number}))["quads"]
        except NoAnswer:
            raise
        except CommandFailed as error:
            raise _stale(ref) from error
        if not quads:
            raise ToolError(f"{ref} is not to be seen.", next_step="Take a new snapshot.")
        quad = cast("list[float]", quads[0])
        x, y = sum(quad[0::2]) / 4, sum(quad[1::2]) / 4
        covered = await self._on(ref, scripts.COVERED, x, y)
        if covered:
            raise ToolError(
                f"{ref} is covered by another element ({plain(str(covered))}).",
                kept="Nothing was clicked.",
                next_step="Close what covers it first: take a new snapshot, or a screenshot.",
            )
        self._moved.clear()
        since = self.proxy.refusals if self.proxy is not None else 0
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            point = {"x": x, "y": y, "button": "left" if kind != "mouseMoved" else "none", "buttons": buttons}
            await self.send("Input.dispatchMouseEvent", {"type": kind, "clickCount": 1, **point})
        await self.settle()
        await self._led(since)

    async def type(self, ref: str, text: str, *, is_sent: bool) -> None:
        """Put a text into an element in place of what is there; `is_sent` presses Enter after it."""
        said = str(await self._on(ref, scripts.FILL, text))
        kind, _, more = said.partition(": ")
        if kind == "no option":
            raise ToolError(f"{ref} has no option {text[:100]!r}.", next_step=f"There are: {more[:1000]}.")
        if kind not in ("ready", "chosen"):
            raise ToolError(
                f"{ref} takes no text ({said[:100]}).",
                kept="Nothing was typed.",
                next_step="Click it instead.",
            )
        self._moved.clear()
        since = self.proxy.refusals if self.proxy is not None else 0
        if kind == "ready":
            if text:
                await self.send("Input.insertText", {"text": text})
            else:
                await self._key("Delete", 46)
        if is_sent:
            await self._key("Enter", 13, text="\r")
        await self.settle()
        await self._led(since)

    async def _key(self, key: str, code: int, **more: str) -> None:
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.send("Input.dispatchKeyEvent", {"type": "keyDown", **pressed, **more})
        await self.send("Input.dispatchKeyEvent", {"type": "keyUp", **pressed})

    def _number(self, ref: str) -> int:
        number = ref.removeprefix("e")
        if not number.isdecimal() or int(number) not in self.refs:
            raise _stale(ref)
        return int(number)

    def _kept(self) -> str:
        return "" if self.is_blank else f"{_shown(self.url)} is still open."

    def _place(self) -> str | None:
        """The host and port of the page."""
        place = read_place(self.url)
        if place is None or place.scheme not in _PORTS:
            return None
        return place_of(place.host, place.port or _PORTS[place.scheme])

    # --- what happens in it

    def _heard(self, method: str, params: Mapping[str, Any]) -> None:
        match method:
            case "Page.javascriptDialogOpening":
                # To leave a page is what was asked for; anything else is answered with no.
                is_leaving = params.get("type") == "beforeunload"
                self._connection.post(
                    "Page.handleJavaScriptDialog", {"accept": is_leaving}, session=self.session
                )
                if not is_leaving:
                    self._note("dialogs", cut(plain(str(params.get("message"))), 200))
            case "Page.windowOpen":
                self._note("windows", _shown(str(params.get("url"))))
            case "Page.frameAttached":
                self.frames.add(str(params.get("frameId")))
            case "Page.frameDetached":
                self.frames.discard(str(params.get("frameId")))
            case "Page.frameNavigated":
                self._navigated(params["frame"])
            case "Page.navigatedWithinDocument" if params.get("frameId") == self._main:
                self.url = str(params.get("url"))
                self._moved.set()
            case "Page.frameStartedLoading" | "Page.frameRequestedNavigation" if (
                params.get("frameId") == self._main
            ):
                self._loaded.clear()
                self._moved.set()
            case "Page.frameStoppedLoading" if params.get("frameId") == self._main:
                self._loaded.set()
            case "Page.loadEventFired":
                self._loaded.set()
            case "Inspector.targetCrashed":
                self.lost("it crashed")
            case "Inspector.detached":
                self.lost("it was closed")
            case _:
                pass

    def _navigated(self, frame: Mapping[str, Any]) -> None:
        if frame.get("parentId"):
            return
        self.url = str(frame.get("unreachableUrl") or frame.get("url"))
        self._has_failed = bool(frame.get("unreachableUrl"))
        self._world = 0
        self.refs.clear()
        self._moved.set()
        if not self.url.startswith(("http:", "https:", _BLANK)):
            self.lost("it went where nothing may be opened")
            self._connection.post("Target.closeTarget", {"targetId": self.target})

    def downloads(self, url: str) -> None:
        """The page wanted to save something."""
        if _shown(url) not in self._told:
            self._note("downloadsRefused", _shown(url))

    def _note(self, kind: str, words: str) -> None:
        notes = self._notes.setdefault(kind, [])
        if len(notes) < MOST_NOTES:
            notes.append(words)


def _stale(ref: str) -> ToolError:
    return ToolError(
        f"There is no element {ref[:40]!r} on the page.",
        kept="Nothing was done.",
        next_step="Take a new snapshot with browser_snapshot, and use a ref that is in it.",
    )


def _place(refused: Refused) -> str:
    return place_of(plain_host(refused.host), refused.port)


def _shown(url: str) -> str:
    return cut(plain(url), 500)
