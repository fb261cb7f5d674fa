"""What holds for artifacts in a bucket beyond the conformance suite, against a real server."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.workers.artifacts.conftest import S3Server, start_s3_server
from workers.artifacts import ArtifactError, ArtifactStore, ArtifactStoreUnavailable, artifact_store, receive_file
from workers.artifacts.s3 import S3Store

LARGE = 9 * 2**20
"""More than boto3 sends in one part."""


def store_of(server: S3Server, bucket: str, cache: Path, prefix: str = "p") -> S3Store:
    store = artifact_store(f"s3://{bucket}/{prefix}?endpoint={server.endpoint}&region=us-east-1", cache=cache)
    assert isinstance(store, S3Store)
    return store


def test_a_large_file_goes_up_in_parts_and_comes_back_whole(s3_store: ArtifactStore) -> None:
    data = bytes(range(256)) * (LARGE // 256)
    received = receive_file(s3_store, io.BytesIO(data))
    assert s3_store.fetch(received.key).read_bytes() == data
    with s3_store.open(received.key, LARGE - 10) as end:
        assert end.read() == data[-10:]


def test_two_prefixes_of_one_bucket_do_not_see_each_other(s3_server: S3Server, tmp_path: Path) -> None:
    bucket = s3_server.new_bucket()
    one, two = (store_of(s3_server, bucket, tmp_path / name, name) for name in ("one", "two"))
    one.put("inputs/a", b"one")
    two.put("inputs/a", b"two")
    one.delete_prefix("")
    assert list(one.list()) == []
    assert [info.key for info in two.list()] == ["inputs/a"]


def test_a_fetched_copy_is_reused_until_the_artifact_changes(s3_server: S3Server, tmp_path: Path) -> None:
    store = store_of(s3_server, s3_server.new_bucket(), tmp_path / "cache")
    store.put("a", b"first")
    copy = store.fetch("a")
    written = copy.stat().st_ino
    assert store.fetch("a") == copy
    assert copy.stat().st_ino == written
    store.put("a", b"second")
    assert store.fetch("a").read_bytes() == b"second"


def test_a_sweep_aborts_uploads_in_parts_and_forgets_old_copies(s3_server: S3Server, tmp_path: Path) -> None:
    bucket = s3_server.new_bucket()
    store = store_of(s3_server, bucket, tmp_path / "cache")
    store.put("a", b"x")
    store.fetch("a")
    client = store._client
    client.create_multipart_upload(Bucket=bucket, Key="p/inputs/half")
    client.create_multipart_upload(Bucket=bucket, Key="another-program/half")
    assert store.sweep(datetime.now(UTC) - timedelta(hours=1)) == 0
    assert store.sweep(datetime.now(UTC) + timedelta(hours=1)) == 2
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [upload["Key"] for upload in left] == ["another-program/half"]
    assert list((tmp_path / "cache").iterdir()) == []
    assert store.fetch("a").read_bytes() == b"x"


def test_a_bucket_that_is_missing_and_credentials_that_are_wrong_say_so(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = store_of(s3_server, "no-such-bucket", tmp_path)
    for use in (missing.check, lambda: list(missing.list()), lambda: missing.put("a", b"x")):
        with pytest.raises(ArtifactError, match="does not exist"):
            use()
    bucket = s3_server.new_bucket()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ArtifactStoreUnavailable):
        store_of(s3_server, bucket, tmp_path).put("a", b"x")


@pytest.fixture
def doomed(tmp_path: Path, s3_server: S3Server) -> Iterator[S3Server]:
    """A server of its own, to be stopped in the test."""
    server = start_s3_server(tmp_path / "doomed")
    yield server
    server.process.kill()
    server.process.wait()


def test_a_server_that_went_away_is_a_typed_error(doomed: S3Server, tmp_path: Path) -> None:
    store = store_of(doomed, doomed.new_bucket(), tmp_path / "cache")
    store.put("a", b"x")
    doomed.process.kill()
    doomed.process.wait()
    for use in (store.check, lambda: store.put("a", b"x"), lambda: store.open("a"), lambda: store.fetch("a")):
        with pytest.raises(ArtifactStoreUnavailable):
            use()
    assert list((tmp_path / "cache").glob("*.part")) == []


@pytest.mark.parametrize(
    "url", ["s3://", "s3://user:secret@bucket", "s3://bucket?endpiont=http://typo", "s3://bucket/../up"]
)
def test_a_wrong_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ArtifactError) as refused:
        artifact_store(url)
    assert "secret" not in refused.value.message
