"""One file for each vendor, or family of vendors: whether it is there, and what it has. Light: no torch at import."""

from __future__ import annotations

from engine.adapters.vendor import Vendor
from engine.adapters.vendors.cpu import Cpu
from engine.adapters.vendors.cuda import Cuda
from engine.adapters.vendors.dlinfer import Ascend, Camb, Maca

VENDORS: dict[str, Vendor] = {vendor.name: vendor for vendor in (Cpu(), Cuda(), Ascend(), Camb(), Maca())}
