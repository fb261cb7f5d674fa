"""Artifacts in a bucket of S3 or of a service that speaks its protocol."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import parse_qsl, urlsplit

from pipeline.files import typed_write_errors
from workers.artifacts.base import ArtifactInfo, ArtifactWriter, HashingLimit, check_key, check_prefix
from workers.artifacts.errors import ArtifactError, ArtifactNotFound, ArtifactStoreUnavailable

if TYPE_CHECKING:
    from botocore.client import BaseClient

_OPTIONS = {"endpoint", "region", "addressing"}
_COPY_BYTES = 1 << 20
_UPLOADS_AT_ONCE = 4
_MISSING = {"404", "NoSuchKey", "NotFound"}
_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 5, 60, 4


class S3Store:
    """An `ArtifactStore` in a bucket, below a prefix. Credentials come as for every AWS tool.

    Args:
        bucket: its name; it must exist.
        prefix: put before every key, empty or ending in `/`.
        endpoint: URL of a service other than AWS; None for AWS.
        region: of the bucket; None for the environment's.
        addressing: `path`, `virtual` or `auto`; None for `path` where there is an endpoint.
        cache: folder for local copies and uploads in progress.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        addressing: str | None = None,
        cache: Path,
    ) -> None:
        self.bucket, self.prefix, self.cache = bucket, prefix, cache
        self._endpoint, self._region = endpoint, region
        self._addressing = addressing or ("path" if endpoint else "auto")
        self._made: BaseClient | None = None
        self._making = threading.Lock()

    @classmethod
    def from_url(cls, url: str, *, cache: Path | None = None) -> S3Store:
        """A store by `s3://bucket/prefix?endpoint=URL&region=NAME&addressing=path|virtual|auto`.

        Raises:
            ArtifactError: the URL does not say a bucket, or says what is not known.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        prefix = parts.path.strip("/")
        if not parts.netloc or "@" in parts.netloc or options.keys() - _OPTIONS:
            # No URL in the message: people do put secrets into them.
            raise ArtifactError(
                "An S3 artifact store is given as s3://bucket/prefix?endpoint=URL&region=NAME&addressing=path; "
                "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        check_prefix(prefix)
        name = hashlib.sha256(url.encode()).hexdigest()[:12]
        cache = cache or Path(tempfile.gettempdir()) / f"pagemill-artifacts-{os.getuid()}-{name}"
        return cls(
            parts.netloc,
            f"{prefix}/" if prefix else "",
            endpoint=options.get("endpoint"),
            region=options.get("region"),
            addressing=options.get("addressing"),
            cache=cache,
        )

    def put(self, key: str, source: bytes | Path | BinaryIO) -> None:
        name = self._name(key)
        if isinstance(source, bytes):
            with _typed_errors(key):
                self._client.put_object(Bucket=self.bucket, Key=name, Body=source)
        elif isinstance(source, Path):
            self._upload(key, source)
        else:
            with self.writer() as writer:
                while chunk := source.read(_COPY_BYTES):
                    writer.write(chunk)
                writer.commit(key)

    def take_all(self, files: Sequence[tuple[str, Path]]) -> None:
        if not files:
            return
        *first, last = files
        with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as threads:
            for done in [threads.submit(self.put, key, source) for key, source in first]:
                done.result()
        self.put(*last)

    def writer(self, *, max_bytes: int | None = None) -> ArtifactWriter:
        return _S3Writer(self, max_bytes)

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        name = self._name(key)
        wanted = {}
        if start or end is not None:
            # Asked for first: services differ in what they answer to a range that goes beyond the end.
            size = self.info(key).size
            end = size if end is None else min(end, size)
            if start >= end:
                return io.BytesIO()
            wanted = {"Range": f"bytes={start}-{end - 1}"}
        with _typed_errors(key):
            answer = self._client.get_object(Bucket=self.bucket, Key=name, **wanted)
        return cast(BinaryIO, io.BufferedReader(_Body(key, answer["Body"])))

    def fetch(self, key: str) -> Path:
        self._name(key)
        copy = self._copy_of(key, self.info(key).tag)
        try:
            os.utime(copy)  # in use: a sweep leaves it
            return copy
        except FileNotFoundError:
            return self._download(key)

    def info(self, key: str) -> ArtifactInfo:
        with _typed_errors(key):
            head = self._client.head_object(Bucket=self.bucket, Key=self._name(key))
        return ArtifactInfo(key, head["ContentLength"], head["LastModified"], head["ETag"].strip('"'))

    def exists(self, key: str) -> bool:
        try:
            self.info(key)
        except ArtifactNotFound:
            return False
        return True

    def size(self, key: str) -> int:
        return self.info(key).size

    def list(self, prefix: str = "") -> Iterator[ArtifactInfo]:
        pages = self._client.get_paginator("list_objects_v2")
        with _typed_errors(prefix):
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix + check_prefix(prefix)):
                for item in page.get("Contents", ()):
                    key = item["Key"].removeprefix(self.prefix)
                    yield ArtifactInfo(key, item["Size"], item["LastModified"], item["ETag"].strip('"'))

    def delete(self, key: str) -> None:
        with _typed_errors(key):
            self._client.delete_object(Bucket=self.bucket, Key=self._name(key))

    def delete_if_unchanged(self, artifact: ArtifactInfo) -> bool:
        """As the protocol says, but not in one step: S3 has no such request that all services know."""
        try:
            now = self.info(artifact.key)
        except ArtifactNotFound:
            return False
        # Services give times by the second in one answer and finer in another.
        if now.tag != artifact.tag or abs((now.modified - artifact.modified).total_seconds()) >= 1:
            return False
        self.delete(artifact.key)
        return True

    def delete_prefix(self, prefix: str) -> int:
        count = 0
        for info in self.list(prefix):
            self.delete(info.key)
            count += 1
        return count

    def sweep(self, older_than: datetime) -> int:
        """Abort uploads in parts that nobody finished; remove local copies that were not used since."""
        count = 0
        with _typed_errors(""):
            answer = self._client.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix)
            for upload in answer.get("Uploads", ()):
                # Not every service heeds the prefix, and what lies beside it is not ours.
                if upload["Key"].startswith(self.prefix) and upload["Initiated"] < older_than:
                    self._client.abort_multipart_upload(
                        Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
                    count += 1
        with contextlib.suppress(FileNotFoundError), os.scandir(self.cache) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime < older_than.timestamp():
                        os.unlink(entry.path)
                        count += 1
        return count

    def check(self) -> None:
        with _typed_errors(""):
            self._client.head_bucket(Bucket=self.bucket)

    def _name(self, key: str) -> str:
        return self.prefix + check_key(key)

    @property
    def _client(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = self._connect()
            return self._made

    def _connect(self) -> BaseClient:
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise ArtifactError("For s3:// install the extra: pip install 'pagemill[s3]'.") from None
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            s3={"addressing_style": self._addressing},  # type: ignore[arg-type]
            max_pool_connections=32,
            # Newer checksums than a service knows make it refuse; over TLS they add little.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with _typed_errors(""):
            session = boto3.session.Session()
            region = self._region or session.region_name or "us-east-1"
            client: BaseClient = session.client("s3", endpoint_url=self._endpoint, region_name=region, config=config)
        return client

    def _upload(self, key: str, path: Path) -> None:
        from boto3.s3.transfer import TransferConfig

        with _typed_errors(key):
            self._client.upload_file(str(path), self.bucket, self._name(key), Config=TransferConfig(max_concurrency=4))

    def _copy_of(self, key: str, tag: str) -> Path:
        return self.cache / hashlib.sha256(f"{key}\n{tag}".encode()).hexdigest()

    def _download(self, key: str) -> Path:
        with _typed_errors(key):
            answer = self._client.get_object(Bucket=self.bucket, Key=self._name(key))
        copy = self._copy_of(key, answer["ETag"].strip('"'))
        temporary = self._temporary()
        try:
            with (
                typed_write_errors(self.cache),
                temporary.open("wb") as file,
                io.BufferedReader(_Body(key, answer["Body"])) as body,
            ):
                while chunk := body.read(_COPY_BYTES):
                    file.write(chunk)
            os.replace(temporary, copy)
        finally:
            temporary.unlink(missing_ok=True)
        return copy

    def _temporary(self) -> Path:
        """An empty file of our own in the cache."""
        with typed_write_errors(self.cache):
            self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.cache.stat().st_uid != os.getuid():
                raise ArtifactError(f"The folder {self.cache} belongs to someone else. Remove it.")
            handle, name = tempfile.mkstemp(dir=self.cache, suffix=".part")
            os.close(handle)
        return Path(name)


class _S3Writer:
    """Gathers the bytes in a local file and uploads it at the end: only then is the key known."""

    def __init__(self, store: S3Store, max_bytes: int | None) -> None:
        self._store = store
        self._counted = HashingLimit(max_bytes)
        self._path = store._temporary()
        self._file = self._path.open("wb")

    @property
    def size(self) -> int:
        return self._counted.size

    @property
    def sha256(self) -> str:
        return self._counted.sha256

    def write(self, chunk: bytes) -> None:
        self._counted.add(chunk)
        with typed_write_errors(self._path):
            self._file.write(chunk)

    def commit(self, key: str | Callable[[str], str]) -> ArtifactInfo:
        key = check_key(key if isinstance(key, str) else key(self.sha256))
        with typed_write_errors(self._path):
            self._file.close()
        self._store._upload(key, self._path)
        return self._store.info(key)

    def __enter__(self) -> _S3Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)


class _Body(io.RawIOBase):
    """The body of an answer as a file, with errors of this package."""

    def __init__(self, key: str, body: Any) -> None:
        self._key, self._body = key, body

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with _typed_errors(self._key):
            data = self._body.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()


@contextlib.contextmanager
def _typed_errors(key: str) -> Iterator[None]:
    """Turn what boto3 raises into the errors of this package."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = _code(error)
        if code == "NoSuchBucket" or (code in _MISSING and not key):
            raise ArtifactError("The bucket of the artifact store does not exist. Create it first.") from error
        if code in _MISSING:
            raise ArtifactNotFound(f"There is no artifact {key}.") from None
        raise ArtifactStoreUnavailable(f"The artifact store refused a request ({code}).") from error
    except (BotoCoreError, Boto3Error) as error:
        raise ArtifactStoreUnavailable(f"The artifact store does not answer: {error}") from error


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
