"""A socket spoken by hand: frames that no library would send."""

from __future__ import annotations

import asyncio
from typing import Any, Self

TEXT, BINARY, CONTINUED, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10


def framed(opcode: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    """One masked frame (the mask is four zeroes, which leaves the payload as it is)."""
    size = len(payload)
    head = bytes([opcode | (0x80 if final else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += bytes([0x80 | 126]) + size.to_bytes(2)
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8)
    return head + b"\0\0\0\0" + payload


class Raw:
    """A connection to a server, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, server: Any, address: str = "127.0.0.1") -> Self:
        """By another `address` of this machine, another person."""
        here = (address, 0)
        return cls(*await asyncio.open_connection("127.0.0.1", server.port, limit=2**26, local_addr=here))

    @classmethod
    async def socket(
        cls, server: Any, path: str = "/agents/assistant/room", address: str = "127.0.0.1"
    ) -> Self:
        """A WebSocket, greeted."""
        raw = await cls.open(server, address)
        raw.write(
            f"GET {path} HTTP/1.1\r\nHost: {server.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        await raw.reader.readuntil(b"\r\n\r\n")
        await raw.frame()
        return raw

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> tuple[int, bytes]:
        """The next frame of the server: opcode and payload."""
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(size)

    async def closed(self) -> tuple[int, str] | None:
        """Read to the end. The code and reason of the close frame, or `None` when there was none."""
        try:
            while True:
                opcode, payload = await self.frame()
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2]), payload[2:].decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def rest(self) -> bytes:
        """Everything until the end."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def leave(self) -> None:
        self.writer.transport.abort()
