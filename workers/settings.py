"""Every limit and default of the service that an operator may change, in the `PAGEMILL_` namespace."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """Read from the environment, e.g. `PAGEMILL_REDIS_URL=redis://localhost/0`. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix="PAGEMILL_")

    data_dir: Path = Field(
        Path("~/.local/share/pagemill").expanduser(),
        description="Folder for what the next settings do not put elsewhere, and for working files.",
    )
    database_url: str | None = Field(
        None, description="Job store: postgresql://... or sqlite:////path. Default: store.db in the data folder."
    )
    redis_url: str | None = Field(
        None, description="Broker: redis://... . Default: none, everything in one program (embedded)."
    )
    artifacts_url: str | None = Field(
        None, description="Inputs and results: a folder or s3://... . Default: artifacts/ in the data folder."
    )
    queue_prefix: str = Field("pagemill.", description="Of the broker's queues, for services that share a Redis.")
    lease_seconds: float = Field(
        60, gt=1, description="Silence after which a worker is taken for dead and its work given to another."
    )
    heartbeat_seconds: float = Field(
        10, gt=0, description="Time between two signs of life of a worker; well below the lease."
    )
    cancel_poll_seconds: float = Field(
        0.5, gt=0, description="Time after which a worker notices that its work was cancelled."
    )
    max_attempts: int = Field(
        6, gt=0, description="Attempts at a piece of work that fails for a reason that may pass, such as a full disk."
    )
    crashes_forgiven: int = Field(
        3, ge=0, description="Times that a lone page whose process died (perhaps killed from outside) is tried again."
    )
    max_losses: int = Field(
        10, gt=0, description="Workers that a piece of work may lose in a row, without a finished page, until it fails."
    )
    drain_seconds: float = Field(
        20, ge=0, description="Time that a stopping worker gives the pages in work; then it hands them back."
    )
    memory_mb: int = Field(
        0, ge=0, description="Memory that page processes may fill, MiB; 0 takes what the machine or container has free."
    )
    max_queued_documents: int = Field(
        100_000, gt=0, description="Unfinished documents at which no more are accepted (429)."
    )
    recognise_processes: int = Field(
        0,
        ge=0,
        description="Page processes of a worker for documents of the route vlm, each with some pages under way at the "
        "engine; 0 takes as many as for other pages.",
    )
    poll_seconds: float = Field(
        0.25,
        gt=0,
        description="Time after which work is found that no message told of.",
    )

    def database(self) -> str:
        """URL of the job store."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute()}/store.db"

    def artifacts(self) -> str:
        """URL of the artifact store."""
        return self.artifacts_url or str(self.data_dir.absolute() / "artifacts")

    def scratch(self) -> Path:
        """Folder for working files of running workers."""
        return self.data_dir.absolute() / "scratch"
