"""Everything that reaches below LMDeploy's public interface, in one place.

Each patch is one small function that first checks that the hook which it replaces still has the shape that it knows,
and raises `LMDeployChanged` with the name of the hook if not. Only engine processes import what is here (but for this
file, which is light), and they call `install` once, before they build an engine.
"""

from __future__ import annotations

from engine.lmdeploy_patches.errors import LMDeployChanged

__all__ = ["LMDeployChanged", "install"]


def install(device: str = "cpu", *, kv_bytes: int = 2 << 30) -> None:
    """Make this process able to run LMDeploy's engine on `device`. Calling it again does nothing.

    Args:
        device: "cpu" is patched in; the vendors that LMDeploy knows itself (cuda, ascend, camb, maca) need nothing.
        kv_bytes: what LMDeploy may take for the KV cache where the number of blocks is not given; cpu only.

    Raises:
        LMDeployChanged: the installed LMDeploy has moved a hook; the message names it.
    """
    if device == "cpu":
        from engine.lmdeploy_patches.cpu import install_cpu

        install_cpu(kv_bytes)
