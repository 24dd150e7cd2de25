"""Which commands of the DevTools protocol a model may send: a list, and everything else is refused.

Raw commands read files of the machine (`Page.navigate` to file:), hand files to pages, change where downloads
go, and reach other agents' pages. What is listed here looks at one page and uses it. Addresses in parameters
keep the rules; nothing else of what a page does is decided here: its requests go through the proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import BlockedAddress, ToolError
from ..guard.rules import Rules

__all__ = ["METHODS", "check_command", "listed"]

_BY_DOMAIN: Mapping[str, str] = {
    "Accessibility": "disable enable getFullAXTree getPartialAXTree getRootAXNode queryAXTree",
    "CSS": "disable enable getComputedStyleForNode getMatchedStylesForNode",
    "DOM": "describeNode disable enable focus getAttributes getBoxModel getContentQuads getDocument"
    " getFlattenedDocument getNodeForLocation getOuterHTML performSearch getSearchResults"
    " discardSearchResults querySelector querySelectorAll requestChildNodes requestNode resolveNode"
    " scrollIntoViewIfNeeded setAttributeValue setNodeValue",
    "Emulation": "clearDeviceMetricsOverride setDeviceMetricsOverride setEmulatedMedia setLocaleOverride"
    " setScriptExecutionDisabled setTimezoneOverride setTouchEmulationEnabled",
    "Input": "dispatchKeyEvent dispatchMouseEvent dispatchTouchEvent insertText",
    "Page": "captureScreenshot disable enable getFrameTree getLayoutMetrics getNavigationHistory navigate"
    " navigateToHistoryEntry reload stopLoading",
    "Performance": "disable enable getMetrics",
    "Runtime": "awaitPromise callFunctionOn evaluate getProperties releaseObject releaseObjectGroup",
}
METHODS = frozenset(f"{domain}.{name}" for domain, names in _BY_DOMAIN.items() for name in names.split())
"""The commands that pass."""

_MOST_PIXELS = 4_096


def listed() -> dict[str, list[str]]:
    """The commands by domain."""
    return {domain: names.split() for domain, names in _BY_DOMAIN.items()}


def check_command(method: str, params: Mapping[str, Any], rules: Rules) -> None:
    """Raise `ToolError` or `BlockedAddress` for a command that a model may not send."""
    if method not in METHODS:
        domains = ", ".join(_BY_DOMAIN)
        raise ToolError(
            f"{method[:100]!r} is not among the commands that can be sent.",
            kept="Nothing was sent.",
            next_step=f"There are commands of {domains}; cdp.spec() lists them.",
        )
    if method == "Page.navigate":
        url = params.get("url")
        if not isinstance(url, str):
            raise BlockedAddress("it is not an address that can be read")
        rules.check_url(url)
    if method == "Emulation.setDeviceMetricsOverride" and not all(
        _is_within(params.get(side, 0)) for side in ("width", "height")
    ):
        raise ToolError(f"A page is at most {_MOST_PIXELS} pixels wide and high.", kept="Nothing was sent.")


def _is_within(side: Any) -> bool:
    return isinstance(side, int | float) and 0 <= side <= _MOST_PIXELS
