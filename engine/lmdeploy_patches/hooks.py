"""Looking at a hook before it is replaced."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from engine.lmdeploy_patches.errors import LMDeployChanged


def find(hook: str) -> Any:
    """What "package.module:Class.name" names.

    Raises:
        LMDeployChanged: nothing is there.
    """
    module_name, _, path = hook.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError:
        raise LMDeployChanged(hook, f"is gone: there is no module {module_name}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise LMDeployChanged(hook, "is gone")
        found = getattr(found, name)
    return found


def function(hook: str, parameters: Sequence[str]) -> Callable[..., Any]:
    """The function at a hook, if it takes these parameters, in this order."""
    found = find(hook)
    if not callable(found):
        raise LMDeployChanged(hook, "is not a function any more")
    names = list(inspect.signature(found).parameters)
    if names != list(parameters):
        raise LMDeployChanged(hook, f"takes ({', '.join(names)}), not ({', '.join(parameters)})")
    return found


def replace(hook: str, value: Any) -> None:
    """Put something in the place of a hook that has been looked at."""
    module_name, _, path = hook.partition(":")
    owner_path, _, name = path.rpartition(".")
    owner = find(f"{module_name}:{owner_path}") if owner_path else importlib.import_module(module_name)
    setattr(owner, name, value)


def with_constant(hook: str, old: str, new: str) -> None:
    """Rewrite a literal within a function: the same code, with `new` where `old` was written.

    LMDeploy names its device by a literal deep in functions that take no device. Its authors expect other devices to
    patch what torch understands by that name, for the whole process; this touches the functions alone.

    Raises:
        LMDeployChanged: it is no plain function, or the literal is not in it.
    """
    target = find(hook)
    target = inspect.unwrap(target) if callable(target) else target
    if not isinstance(target, FunctionType):
        raise LMDeployChanged(hook, "is not a plain function any more")
    constants = target.__code__.co_consts
    if new in constants and old not in constants:
        return
    if old not in constants:
        raise LMDeployChanged(hook, f"does not contain the literal {old!r} any more")
    target.__code__ = target.__code__.replace(co_consts=tuple(new if c == old else c for c in constants))


def with_default(hook: str, parameter: str, old: str, new: str) -> None:
    """Change the default of a function's last parameters.

    Raises:
        LMDeployChanged: there is no such parameter, or its default was another one.
    """
    target = find(hook)
    known = inspect.signature(target).parameters
    if parameter not in known or known[parameter].default not in (old, new):
        raise LMDeployChanged(hook, f"has no parameter {parameter}={old!r} any more")
    target.__defaults__ = tuple(new if value == old else value for value in target.__defaults__)
