"""An instance tells its router that it is there, for as long as it lives, also when the router comes later."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress

from engine.pools.messages import Health, InstanceStatus, PeerAddress
from engine.pools.registration import keep_registered
from engine.role import Role

STATUS = InstanceStatus(
    address=PeerAddress(engine_id="a", epoch=7, url="http://a", interconnect=()),
    model="m",
    vendor="cpu",
    device="cpu",
    mode="eager",
    role=Role.HYBRID,
    phase="ready",
    session_len=1,
    max_batch_size=1,
    block_size=1,
    kv_bytes_per_token=1,
    running=0,
    waiting=0,
    free_blocks=1,
    total_blocks=1,
    leases=0,
    remaining_tokens=0,
    health=Health(ok=True, reason="", age_s=0, seconds=0),
    uptime_s=1,
)


class Router:
    """Notes what is posted to it, and answers with a short lease."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, InstanceStatus]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                self.seen.append((head, InstanceStatus.model_validate_json(await reader.readexactly(length))))
                body = json.dumps({"lease_s": 0.6}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        writer.close()


async def status() -> InstanceStatus:
    return STATUS


def test_it_registers_with_its_token_and_renews_within_the_lease() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        # Nobody is there yet.
        registering = asyncio.create_task(keep_registered(f"http://127.0.0.1:{port}/", "secret", status))
        await asyncio.sleep(0)
        router = Router()
        async with asyncio.timeout(30), await asyncio.start_server(router.serve, "127.0.0.1", port):
            while len(router.seen) < 3:
                await asyncio.sleep(0.01)
            registering.cancel()
        head, found = router.seen[0]
        assert head.startswith("POST /v1/instances ")
        assert "bearer secret" in head.lower()
        assert found == STATUS

    asyncio.run(run())
