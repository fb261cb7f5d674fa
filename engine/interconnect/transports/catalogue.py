"""All transports by name, and whether each can work here."""

from __future__ import annotations

from engine.interconnect.transport import Availability, Transport
from engine.interconnect.transports.dlslime import DLSlime
from engine.interconnect.transports.in_process import InProcess
from engine.interconnect.transports.mooncake import Mooncake
from engine.interconnect.transports.nixl import Nixl
from engine.interconnect.transports.shared_memory import SharedMemory
from engine.interconnect.transports.tcp import Tcp

TRANSPORTS: dict[str, type[Transport]] = {
    transport.name: transport for transport in (InProcess, SharedMemory, Tcp, DLSlime, Mooncake, Nixl)
}


def availabilities() -> dict[str, Availability]:
    """For each transport, whether it can work on this machine, and why not."""
    return {name: transport.available() for name, transport in TRANSPORTS.items()}
