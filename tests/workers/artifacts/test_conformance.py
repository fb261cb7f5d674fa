"""What a user of any artifact store can rely on: the same for a folder and for a service."""

from __future__ import annotations

import asyncio
import hashlib
import io
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.errors import TooLarge
from workers.artifacts import ArtifactNotFound, ArtifactStore, BadArtifactKey, receive, receive_file

KEY = "jobs/0123abcd/result/document.md"


@pytest.mark.parametrize("kind", ["bytes", "path", "file"])
def test_what_was_put_is_read_back(store: ArtifactStore, tmp_path: Path, kind: str) -> None:
    data = bytes(range(256)) * 9000  # more than one chunk
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:
        store.put(KEY, {"bytes": data, "path": tmp_path / "file", "file": file}[kind])
    with store.open(KEY) as stored:
        assert stored.read() == data
    assert store.fetch(KEY).read_bytes() == data
    assert store.exists(KEY)
    assert store.size(KEY) == len(data)


def test_an_empty_artifact_is_one(store: ArtifactStore) -> None:
    store.put(KEY, b"")
    assert store.exists(KEY)
    assert store.size(KEY) == 0
    with store.open(KEY) as stored:
        assert stored.read() == b""


def test_a_second_put_replaces_the_first_and_changes_the_tag(store: ArtifactStore) -> None:
    store.put(KEY, b"first")
    before = store.info(KEY)
    assert store.fetch(KEY).read_bytes() == b"first"
    store.put(KEY, b"second")
    after = store.info(KEY)
    assert store.fetch(KEY).read_bytes() == b"second"
    assert before.tag != after.tag
    assert after.size == 6


def test_times_are_those_of_now_in_utc(store: ArtifactStore) -> None:
    store.put(KEY, b"x")
    assert abs(store.info(KEY).modified - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, b"0123456789"), (3, None, b"3456789"), (0, 4, b"0123"), (2, 5, b"234"), (8, 99, b"89"), (9, 10, b"9")],
)
def test_a_range_is_read_alone(store: ArtifactStore, start: int, end: int | None, expected: bytes) -> None:
    store.put(KEY, b"0123456789")
    with store.open(KEY, start, end) as part:
        assert part.read(3) == expected[:3]
        assert part.read() == expected[3:]


def test_a_range_beyond_the_end_is_empty(store: ArtifactStore) -> None:
    store.put(KEY, b"0123456789")
    with store.open(KEY, 10, 12) as part:
        assert part.read() == b""


def test_what_is_not_there_says_so(store: ArtifactStore) -> None:
    store.put("jobs/a/page", b"x")
    assert not store.exists(KEY)
    assert not store.exists("jobs/a")
    for read in (store.open, store.fetch, store.info, store.size):
        with pytest.raises(ArtifactNotFound):
            read(KEY)
        with pytest.raises(ArtifactNotFound):
            read("jobs/a")
        with pytest.raises(ArtifactNotFound):
            read("jobs/a/page/below")
    store.delete(KEY)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "..",
        "../outside",
        "jobs/../../outside",
        "jobs//a",
        "jobs/a/",
        ".hidden",
        "jobs/.working/x",
        "a\0b",
        "a\\b",
        "a b",
        "ü",
        "a\n",
        "x" * 201,
        "/".join(["ab"] * 400),
    ],
)
def test_a_key_cannot_leave_the_store(store: ArtifactStore, key: str) -> None:
    for use in (store.open, store.fetch, store.exists, store.info, store.delete):
        with pytest.raises(BadArtifactKey):
            use(key)
    with pytest.raises(BadArtifactKey):
        store.put(key, b"x")
    with pytest.raises(BadArtifactKey), store.writer() as writer:
        writer.commit(key)
    assert list(store.list()) == []


def test_listing_is_by_prefix_in_order_of_keys(store: ArtifactStore) -> None:
    keys = ["jobs/a/pages/00002.json", "jobs/a/pages/00001.json", "jobs/a-b/x", "jobs/a.b", "jobs/ab/x", "inputs/ff"]
    for key in keys:
        store.put(key, key.encode())
    assert [info.key for info in store.list()] == sorted(keys)
    assert [info.key for info in store.list("jobs/a/")] == sorted(k for k in keys if k.startswith("jobs/a/"))
    assert [info.key for info in store.list("jobs/a")] == sorted(k for k in keys if k.startswith("jobs/a"))
    assert [info.size for info in store.list("inputs/")] == [len("inputs/ff")]
    assert list(store.list("nothing/")) == []


def test_deleting_takes_one_artifact_or_all_of_a_prefix(store: ArtifactStore) -> None:
    for key in ("jobs/a/1", "jobs/a/2", "jobs/ab/1", "inputs/1"):
        store.put(key, b"x")
    store.delete("jobs/a/1")
    assert not store.exists("jobs/a/1")
    store.put("jobs/a/1", b"again")
    assert store.delete_prefix("jobs/a/") == 2
    assert [info.key for info in store.list()] == ["inputs/1", "jobs/ab/1"]


def test_a_conditional_delete_spares_what_was_written_again(store: ArtifactStore) -> None:
    store.put(KEY, b"old")
    seen = store.info(KEY)
    store.put(KEY, b"newer")
    assert not store.delete_if_unchanged(seen)
    assert store.fetch(KEY).read_bytes() == b"newer"
    assert store.delete_if_unchanged(store.info(KEY))
    assert not store.exists(KEY)
    assert not store.delete_if_unchanged(seen)


def test_a_stream_is_kept_under_its_hash(store: ArtifactStore) -> None:
    data = b"%PDF-" + b"a page " * 100_000
    received = receive_file(store, io.BytesIO(data))
    assert received.sha256 == hashlib.sha256(data).hexdigest()
    assert received.key == f"inputs/{received.sha256}"
    assert received.size == len(data) == store.size(received.key)
    assert store.fetch(received.key).read_bytes() == data


async def _chunks(*chunks: bytes | BaseException) -> AsyncIterator[bytes]:
    for chunk in chunks:
        if isinstance(chunk, BaseException):
            raise chunk
        yield chunk


def test_chunks_of_the_network_are_kept_under_their_hash(store: ArtifactStore) -> None:
    chunks = [bytes([n]) * 50_000 for n in range(20)]
    received = asyncio.run(receive(store, _chunks(*chunks), max_bytes=1_000_000))
    assert received.sha256 == hashlib.sha256(b"".join(chunks)).hexdigest()
    assert store.fetch(received.key).read_bytes() == b"".join(chunks)


def test_many_are_written_together_and_replace_what_is_there(store: ArtifactStore, tmp_path: Path) -> None:
    store.put("jobs/a/100.md", b"old")
    files = []
    for number in range(150):  # more than are open at once
        path = tmp_path / f"{number}.md"
        path.write_bytes(b"%d" % number)
        files.append((f"jobs/{'ab'[number % 2]}/{number}.md", path))
    store.take_all(files)
    for number, (key, _) in enumerate(files):
        with store.open(key) as file:
            assert file.read() == b"%d" % number
    store.take_all([])


def test_of_many_the_last_is_not_there_if_another_could_not_be_written(store: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "sound").write_bytes(b"sound")
    with pytest.raises(FileNotFoundError):
        store.take_all(
            [("jobs/a/1", tmp_path / "sound"), ("jobs/a/2", tmp_path / "gone"), ("jobs/a/3", tmp_path / "sound")]
        )
    assert not store.exists("jobs/a/3")
    assert store.sweep(datetime.now(UTC) + timedelta(hours=1)) == 0


def test_an_upload_over_the_limit_is_stopped_before_its_end_and_leaves_nothing(store: ArtifactStore) -> None:
    taken: list[int] = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 100_000

    with pytest.raises(TooLarge):
        asyncio.run(receive(store, endless(), max_bytes=1_000_000))
    assert len(taken) < 20
    with pytest.raises(TooLarge):
        receive_file(store, io.BytesIO(b"x" * 1001), max_bytes=1000)
    assert list(store.list()) == []
    assert store.sweep(datetime.now(UTC) + timedelta(hours=1)) == 0


def test_an_upload_that_breaks_off_leaves_nothing(store: ArtifactStore) -> None:
    with pytest.raises(ConnectionResetError):
        asyncio.run(receive(store, _chunks(b"x" * 600_000, ConnectionResetError())))

    async def cancelled_in_the_middle() -> None:
        begun = asyncio.Event()

        async def stalled() -> AsyncIterator[bytes]:
            yield b"x" * 600_000
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(receive(store, stalled()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled_in_the_middle())
    assert list(store.list()) == []
    assert store.sweep(datetime.now(UTC) + timedelta(hours=1)) == 0


def test_equal_uploads_share_one_artifact(store: ArtifactStore) -> None:
    assert receive_file(store, io.BytesIO(b"same")) == receive_file(store, io.BytesIO(b"same"))
    assert len(list(store.list())) == 1


def test_a_write_that_is_not_committed_is_not_there(store: ArtifactStore) -> None:
    with store.writer() as writer:
        writer.write(b"half")
        assert list(store.list()) == []
    assert list(store.list()) == []


def test_readers_see_the_old_bytes_or_the_new_ones(store: ArtifactStore) -> None:
    versions = [bytes([n]) * 300_000 for n in range(8)]
    store.put(KEY, versions[0])
    ended = threading.Event()
    torn: list[bytes] = []

    def read() -> None:
        while not ended.is_set():
            with store.open(KEY) as file:
                data = file.read()
            if data not in versions:
                torn.append(data[:10])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in versions:
        store.put(KEY, version)
    ended.set()
    for reader in readers:
        reader.join()
    assert torn == []


def test_writing_and_deleting_beside_each_other_loses_no_write(store: ArtifactStore) -> None:
    failed: list[BaseException] = []

    def write_and_delete(name: str) -> None:
        try:
            for number in range(15):
                store.put(f"jobs/x/{name}", str(number).encode())
                with store.open(f"jobs/x/{name}") as file:
                    assert file.read() == str(number).encode()
                store.delete(f"jobs/x/{name}")
        except BaseException as error:  # noqa: BLE001 - told to the main thread
            failed.append(error)

    threads = [threading.Thread(target=write_and_delete, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_the_check_passes_and_leaves_nothing(store: ArtifactStore) -> None:
    store.check()
    assert list(store.list()) == []
