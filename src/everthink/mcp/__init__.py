"""MCP servers: where they are, and how their tools are used.

from everthink.mcp import HttpServer, StdioServer

files = StdioServer("npx", ("-y", "@modelcontextprotocol/server-filesystem", "."))
App(Assistant, mcp_servers={"files": files})
"""

from .places import HttpServer, LocalServer, McpServer, StdioServer

__all__ = ["HttpServer", "LocalServer", "McpServer", "StdioServer"]
