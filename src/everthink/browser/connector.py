"""The DevTools protocol for code that a model writes: `cdp.attach_to_target`, `cdp.send`, `cdp.spec`.

    code in a sandbox --cdp.send(method, params)--> check_command --> the page of the agent

They are tools like any other, and each call of the code is in its log. A model is not offered them by
themselves.
"""

from __future__ import annotations

from typing import Any

from ..errors import ToolError
from ..tools.context import ToolContext
from ..tools.tool import Tool
from .allowed import check_command, listed
from .bounds import bounded
from .pages import Pages, as_tool_error

__all__ = ["cdp_tools"]


def cdp_tools(pages: Pages) -> dict[str, Tool]:
    """The functions of the connector, by their names in code, for the pages of one set of tools."""

    async def attach(given: dict[str, Any], ctx: ToolContext) -> Any:
        async with pages.kept(ctx) as tab:
            return {"sessionId": "page", **await tab.about()}

    async def send(given: dict[str, Any], ctx: ToolContext) -> Any:
        method, params = str(given["method"]), dict(given.get("params") or {})
        with as_tool_error():
            check_command(method, params, pages.rules)
        async with pages.kept(ctx) as tab:
            if method == "Page.navigate":
                await tab.open(params["url"])
                return await tab.about()
            if tab.is_blank and _is_of_page(method):
                raise ToolError(
                    "No page is open.",
                    kept="If one was open before, it has been closed since, with what was done on it: it was"
                    " not used for long, or the browser ended.",
                    next_step="Open one with Page.navigate.",
                )
            return bounded(await tab.send(method, params), pages.most)

    def spec(given: dict[str, Any]) -> Any:
        return listed()

    method = {"type": "string", "description": "Domain.command: Runtime.evaluate."}
    return {
        "attach_to_target": _function(
            "cdp_attach_to_target", "The page that is open: where it is.", attach, {}
        ),
        "send": _function(
            "cdp_send",
            "Send a command of the DevTools protocol to the open page; its result. Page.navigate waits until"
            " the page has loaded.",
            send,
            {"method": method, "params": {"type": "object"}},
            required=["method"],
        ),
        "spec": _function("cdp_spec", "The commands that can be sent, by domain.", spec, {}),
    }


def _is_of_page(method: str) -> bool:
    """True for what looks at a page or uses it, and does not only prepare for one."""
    return not method.startswith("Emulation.") and method.rpartition(".")[2] not in ("enable", "disable")


def _function(
    name: str,
    description: str,
    body: Any,
    properties: dict[str, Any],
    *,
    required: list[str] | None = None,
) -> Tool:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    policy = "report" if name == "cdp_send" else "rerun"
    return Tool.from_schema(name, description, schema, body, on_interrupt=policy)
