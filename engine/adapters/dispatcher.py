"""Chooses an implementation for every operator once, at the start, and says why. Light until something is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.adapters.catalogue import OPERATORS, Mode, Operator
from engine.adapters.vendor import Availability, Capability, Vendor
from engine.adapters.vendors import VENDORS


class UnknownVendor(ValueError):
    """There is no adapter of that name."""

    code = "unknown_vendor"


class VendorUnavailable(RuntimeError):
    """The vendor's packages or devices are not here; the message says what is missing."""

    code = "vendor_unavailable"


@dataclass(frozen=True, slots=True)
class Choice:
    """What an operator does in a mode.

    Attributes:
        operator: its name.
        source: "vendor", or "reference" where the vendor has none.
        reason: one sentence fragment, for people.
        target: "module:function", or None where LMDeploy's own backend for the vendor holds it.
    """

    operator: str
    source: str
    reason: str
    target: str | None

    def load(self) -> Callable[..., Any]:
        """The function; imports torch.

        Raises:
            LookupError: it is inside LMDeploy's backend and not ours to call.
        """
        if self.target is None:
            raise LookupError(f"{self.operator} is inside LMDeploy's own backend")
        module, _, name = self.target.partition(":")
        loaded: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return loaded


@dataclass(frozen=True, slots=True)
class Table:
    """All choices of one vendor in one mode.

    Attributes:
        mode: the one that will run; eager where graphs were asked for and cannot be had.
        mode_reason: why.
    """

    vendor: str
    mode: Mode
    mode_reason: str
    choices: Mapping[str, Choice]

    def __getitem__(self, operator: str) -> Choice:
        return self.choices[operator]

    def load(self, operator: str) -> Callable[..., Any]:
        return self.choices[operator].load()

    def all_references(self) -> Table:
        """The same with the reference for every operator, also where the vendor has one."""
        why = "in place of a neighbour that is missing"
        choices = {each.name: Choice(each.name, "reference", why, each.reference) for each in OPERATORS}
        return Table(self.vendor, self.mode, self.mode_reason, choices)

    def describe(self) -> dict[str, str]:
        """{"eager.rms_norm": "vendor: ...", ..., "mode": "eager: ..."}: for InstanceStatus.operators and doctor."""
        lines = {f"{self.mode}.{name}": f"{choice.source}: {choice.reason}" for name, choice in self.choices.items()}
        return {"mode": f"{self.mode}: {self.mode_reason}"} | lines


def resolve(vendor_name: str, mode: str | Mode = Mode.EAGER) -> Table:
    """Choose for a vendor that is available.

    Raises:
        UnknownVendor: no adapter has that name.
        VendorUnavailable: it cannot be used here.
    """
    vendor = find_vendor(vendor_name)
    available = vendor.availability()
    if not available.ok:
        raise VendorUnavailable(f"{vendor_name} is unavailable: {available.reason}")
    return choose(vendor, Mode(mode))


def find_vendor(name: str) -> Vendor:
    """The adapter of that name.

    Raises:
        UnknownVendor: there is none.
    """
    if name not in VENDORS:
        raise UnknownVendor(f"no adapter for {name!r}; there are {', '.join(VENDORS)}")
    return VENDORS[name]


def choose(vendor: Vendor, wanted: Mode) -> Table:
    """Choose without asking whether the vendor is available."""
    mode, reason = wanted, "as asked for"
    if wanted is Mode.GRAPH:
        graphs: Availability = vendor.graph_mode()
        mode, reason = (Mode.GRAPH, graphs.reason) if graphs.ok else (Mode.EAGER, f"no graphs: {graphs.reason}")
    has = vendor.capabilities(mode)
    return Table(vendor.name, mode, reason, {each.name: _choice(each, has, vendor.name, mode) for each in OPERATORS})


def _choice(operator: Operator, has: Mapping[str, Capability], vendor: str, mode: Mode) -> Choice:
    capability = has.get(operator.name)
    if capability is None:
        return Choice(operator.name, "reference", f"{vendor} has none in {mode} mode", operator.reference)
    return Choice(operator.name, "vendor", capability.how, capability.target)
