"""Many uploads at once, from a process of its own: `python -m bench.upload_load HOST PORT COUNT BYTES`.

Plain sockets, so that the client takes little of the processor that it shares with the service. Prints the number
of uploads that were accepted.
"""

from __future__ import annotations

import asyncio
import os
import sys

_CHUNK = 1 << 16


async def upload_all(host: str, port: int, count: int, size: int) -> int:
    """Send `count` different files of `size` bytes at the same time; how many were accepted (202)."""
    filling = os.urandom(size)
    return sum(await asyncio.gather(*(_upload(host, port, number, filling) for number in range(count))))


async def _upload(host: str, port: int, number: int, filling: bytes) -> bool:
    content = b"%%PDF-1.4 %08d %d " % (number, os.getpid())
    head = f'--b\r\nContent-Disposition: form-data; name="files"; filename="{number}.pdf"\r\n\r\n'.encode() + content
    tail = b"\r\n--b--\r\n"
    length = len(head) + len(filling) + len(tail)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(
        f"POST /v1/documents HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\n".encode()
        + head
    )
    for start in range(0, len(filling), _CHUNK):
        writer.write(filling[start : start + _CHUNK])
        await writer.drain()
    writer.write(tail)
    status = await reader.readline()
    await reader.read()
    writer.close()
    return b" 202 " in status


if __name__ == "__main__":
    sys.stdout.write(str(asyncio.run(upload_all(sys.argv[1], *map(int, sys.argv[2:5])))))
