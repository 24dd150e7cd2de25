"""What stands before an extension in Python: its source follows, then a call of `run_extension`.

    sandboxed.py --this, the source, one call--> Monty

Not imported by us: it is read as a text. Nothing in here protects the host, which checks every call.
"""

import json as _json
from typing import Any

import bridge as _sandbox  # pyright: ignore[reportMissingImports] - it is there in the sandbox

_bridge: Any = _sandbox


class _Storage:
    async def get(self, key: str) -> Any:
        return await _bridge.call("get_value", key)

    async def set(self, key: str, value: Any) -> Any:
        return await _bridge.call("set_value", key, value)

    async def delete(self, key: str) -> Any:
        return await _bridge.call("delete_value", key)

    async def list(self) -> Any:
        return await _bridge.call("list_values")


class _Host:
    def __init__(self) -> None:
        self.storage = _Storage()

    async def read_file(self, path: str) -> Any:
        return await _bridge.call("read_file", path)

    async def list_files(self, folder: str = "/") -> Any:
        return await _bridge.call("list_files", folder)

    async def write_file(self, path: str, content: str) -> Any:
        return await _bridge.call("write_file", path, content)

    async def delete_file(self, path: str) -> Any:
        return await _bridge.call("delete_file", path)

    async def get_context(self, label: str) -> Any:
        return await _bridge.call("get_context", label)

    async def set_context(self, label: str, content: str) -> Any:
        return await _bridge.call("set_context", label, content)

    async def get_messages(self, limit: Any = None) -> Any:
        return await _bridge.call("get_messages", limit)

    async def send_message(self, content: str) -> Any:
        return await _bridge.call("send_message", content)

    async def get_session_info(self) -> Any:
        return await _bridge.call("get_session_info")

    async def fetch(self, url: str, options: Any = None) -> Any:
        return await _bridge.call("fetch", url, options)


async def _called(handler: Any, given: Any, host: Any) -> Any:
    value: Any = handler(given, host)
    if type(value).__name__ == "coroutine":
        return await value
    return value


async def run_extension(written: str) -> Any:
    """Do what the host asks for."""
    job: Any = _json.loads(written)
    what, name, given = job["what"], job["name"], job["given"]
    if what == "describe":
        return {
            "tools": [
                {
                    "name": one,
                    "description": tool.get("description"),
                    "parameters": tool.get("parameters"),
                    "required": tool.get("required"),
                    "runs": "execute" in tool,
                }
                for one, tool in tools.items()
            ],
            "hooks": list(hooks),
        }
    host: Any = _Host() if job["hasHost"] else None
    failed: Any = None
    try:
        if what == "tool":
            return {"value": await _called(tools[name]["execute"], given, host)}
        if what == "hook":
            return {"value": await _called(hooks[name], given, host)}
        for one in given:
            try:
                await _called(hooks[name], one, host)
            except Exception as error:  # noqa: BLE001 - told to the host
                failed = failed or error
    except Exception as error:  # noqa: BLE001 - told to the host
        failed = error
    if failed is None:
        return {"value": None}
    return {"failed": {"name": type(failed).__name__, "message": str(failed)}}


tools: Any = {}
hooks: Any = {}
