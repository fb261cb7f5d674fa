"""What is raised when the installed LMDeploy is not the one that the patches know."""

from __future__ import annotations


class LMDeployChanged(RuntimeError):
    """A hook that we replace is not where it was, or not of the shape that it had.

    Attributes:
        hook: dotted name of it.
    """

    code = "lmdeploy_changed"

    def __init__(self, hook: str, what: str) -> None:
        self.hook = hook
        super().__init__(
            f"LMDeploy changed: the hook {hook} {what}. Pagemill is written for the version in requirements/engine.txt."
        )
