"""What an artifact store may refuse, beside `DiskFull`, `OutputNotWritable` and `TooLarge` of the pipeline."""

from __future__ import annotations

from pipeline.errors import PipelineError


class ArtifactError(PipelineError):
    """Base of the errors of this package."""

    code = "artifact_error"


class ArtifactNotFound(ArtifactError):
    code = "artifact_not_found"


class BadArtifactKey(ArtifactError):
    """The key is no relative path of plain names. Keys are made by the program, so this is its own mistake."""

    code = "bad_artifact_key"


class ArtifactStoreUnavailable(ArtifactError):
    """The store does not answer, or refuses the credentials. Trying again later may help."""

    code = "artifact_store_unavailable"
