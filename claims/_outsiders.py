"""Outsiders without a key: so many connections to a server as asked for, opened again when they are cut.

Run as a program: ``python -m claims._outsiders HOST PORT CONNECTIONS SECONDS``. Every second it writes a line: how many
are open from its side, how many were opened so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import time

PATHS = ("/v1/fleet/push-object", "/v1/control/start-run", "/health")
BLOCK = b"x" * 65536


context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
count = {"open": 0, "opened": 0}


async def outsider(host: str, port: int, number: int, end: float) -> None:
    """Come in one of four ways, until the time is up: silent, slow to begin, slow to speak, or with a large body."""
    address = (f"127.0.0.{2 + number % 50}", 0)
    while time.monotonic() < end:
        with contextlib.suppress(OSError, asyncio.TimeoutError, ssl.SSLError):
            secure = None if number % 4 == 0 else context
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(host, port, ssl=secure, local_addr=address), 20
            )
            count["open"] += 1
            count["opened"] += 1
            try:
                await _annoy(number, reader, writer, end)
            finally:
                count["open"] -= 1
                writer.transport.abort()
        await asyncio.sleep(0.5)


async def _annoy(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: float) -> None:
    path = PATHS[number % len(PATHS)]
    if number % 4 == 0:  # a TCP connection that says nothing
        await asyncio.wait_for(reader.read(1), max(0.1, end - time.monotonic()))
        return
    if number % 4 == 1:  # a head that comes letter by letter
        for letter in f"POST {path} HTTP/1.1\r\nhost: x\r\nx: {'y' * 4000}".encode():
            writer.write(bytes([letter]))
            await writer.drain()
            await asyncio.sleep(1.0)
            if time.monotonic() > end or reader.at_eof():
                return
        return
    size = 30 << 20
    writer.write(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode())
    for _ in range(size // len(BLOCK)):
        writer.write(BLOCK)
        await asyncio.wait_for(writer.drain(), max(0.1, end - time.monotonic()))
        await asyncio.sleep(2.0 if number % 4 == 2 else 0.0)
        if time.monotonic() > end or reader.at_eof():
            return


async def main(host: str, port: int, connections: int, seconds: float) -> None:
    """Let all of them come."""
    end = time.monotonic() + seconds
    said = asyncio.create_task(_say())
    await asyncio.gather(*(outsider(host, port, number, end) for number in range(connections)))
    said.cancel()


async def _say() -> None:
    while True:
        print(json.dumps(count), flush=True)
        await asyncio.sleep(1.0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
