"""MCP servers: where they are, and how their tools are used.

from everthink.mcp import HttpServer, StdioServer

App(Assistant, mcp_servers={"docs": "https://example.com/mcp", "files": StdioServer("npx", ("-y", "…"))})
"""

from ..facades import help_from
from .places import HttpServer, LocalServer, McpServer, StdioServer

__all__ = ["HttpServer", "LocalServer", "McpServer", "StdioServer"]

help_from(__name__)
