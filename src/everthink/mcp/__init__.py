"""MCP servers: where they are, and how their tools are used.

from everthink.mcp import HttpServer, StdioServer

<<<<<<< HEAD
files = StdioServer("npx", ("-y", "@modelcontextprotocol/server-filesystem", "."))
App(Assistant, mcp_servers={"files": files})
=======
App(Assistant, mcp_servers={"docs": "https://example.com/mcp", "files": StdioServer("npx", ("-y", "…"))})
>>>>>>> mcp-core
"""

from .places import HttpServer, LocalServer, McpServer, StdioServer

__all__ = ["HttpServer", "LocalServer", "McpServer", "StdioServer"]
