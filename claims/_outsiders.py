"""Attackers: as many connections to a server as asked for, opened again when they are cut.

Run as a program: ``python -m claims._outsiders HOST PORT CONNECTIONS SECONDS [KEY TERMS]``, without or with the key of
a registered party and the fingerprint of the terms. Every second it writes a line: how many connections are open from
its side, how many came so far, and how many bytes were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import time
from pathlib import Path

from fedfactor.network.https.identity import present

PATHS = ("/fedfactor/1/exchange", "/fedfactor/1/alive", "/healthz")
BLOCK = b"x" * 65536


context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
count = {"open": 0, "came": 0, "sent": 0}
head = ""


async def outsider(host: str, port: int, number: int, end: float) -> None:
    """Come in one of four ways, until the time is up: silent, slow to begin, slow to speak, or with a large body."""
    address = (f"127.0.0.{2 + number % 50}", 0)
    while time.monotonic() < end:
        with contextlib.suppress(OSError, asyncio.TimeoutError, ssl.SSLError):
            secure = None if number % 4 == 0 else context
            count["came"] += 1
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(host, port, ssl=secure, local_addr=address), 20
            )
            count["open"] += 1
            try:
                await _annoy(number, reader, writer, end)
            finally:
                count["open"] -= 1
                writer.transport.abort()
        await asyncio.sleep(0.5)


async def _annoy(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: float) -> None:
    path = PATHS[number % len(PATHS)] if not head else PATHS[0]
    if number % 4 == 0:  # a TCP connection that says nothing
        await asyncio.wait_for(reader.read(1), max(0.1, end - time.monotonic()))
        return
    if number % 4 == 1:  # a head that comes letter by letter
        for letter in f"POST {path} HTTP/1.1\r\nhost: x\r\n{head}x: {'y' * 4000}".encode():
            writer.write(bytes([letter]))
            await writer.drain()
            await asyncio.sleep(1.0)
            if time.monotonic() > end or reader.at_eof():
                return
        return
    # With a key: also bodies of a length that is allowed, and compressed ones.
    size = 30 << 20 if number % 8 < 4 or not head else 60 << 10
    encoding = "content-encoding: gzip\r\n" if number % 16 == 7 else ""
    writer.write(f"POST {path} HTTP/1.1\r\nhost: x\r\n{head}{encoding}content-length: {size}\r\n\r\n".encode())
    for _ in range(max(1, size // len(BLOCK))):
        writer.write(BLOCK)
        count["sent"] += len(BLOCK)
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
    if len(sys.argv) > 5:
        present(context, Path(sys.argv[5]))
        head = f"fedfactor-terms: {sys.argv[6]}\r\nfedfactor-session: attack\r\n"
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
