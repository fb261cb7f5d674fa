"""Where bytes live: inputs by their SHA-256, finished pages, results. A folder, or an S3-compatible service.

May import: `pipeline`. Must not know: job store, Celery, HTTP. Keys are relative paths of plain names:

    inputs/<sha256>
    jobs/<job key>/pages/00001.json    jobs/<job key>/images/...
    jobs/<job key>/result/document.md  content_list.json  middle.json  manifest.json  images/...

Start with `artifact_store(url)`.
"""

from workers.artifacts.base import ArtifactInfo, ArtifactStore, ArtifactWriter, artifact_store
from workers.artifacts.errors import ArtifactError, ArtifactNotFound, ArtifactStoreUnavailable, BadArtifactKey
from workers.artifacts.receive import receive, receive_file

__all__ = [
    "ArtifactError",
    "ArtifactInfo",
    "ArtifactNotFound",
    "ArtifactStore",
    "ArtifactStoreUnavailable",
    "ArtifactWriter",
    "BadArtifactKey",
    "artifact_store",
    "receive",
    "receive_file",
]
