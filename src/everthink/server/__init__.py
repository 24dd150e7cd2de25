"""What an app that serves people names: who is connected, what they may do, how much is taken of them.

from everthink.server import Connection, Granted, Limits
"""

from ..facades import help_from
from ..identity import Granted
from ..limits import Limits
from ..mcp_endpoint import McpEndpoint
from ..runtime.rpc import StreamingResponse
from .connections import Connection

__all__ = ["Connection", "Granted", "Limits", "McpEndpoint", "StreamingResponse"]

help_from(__name__)
