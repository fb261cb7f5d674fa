"""Every kind of artifact store, for the tests that hold for all of them.

The S3 store is tested against nanio, a small S3-compatible server (signatures checked, parts, ranges, bytes on
disk) that installs from PyPI; it runs as a process of its own on a free port of the loopback.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from workers.artifacts import ArtifactStore, artifact_store

ACCESS_KEY, SECRET_KEY = "pagemill-tests", "a-secret-of-the-tests"


@dataclass(frozen=True)
class S3Server:
    """A running server."""

    endpoint: str
    data: Path
    process: subprocess.Popen[bytes]

    def new_bucket(self) -> str:
        import boto3

        name = f"bucket-{uuid4().hex[:12]}"
        boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1").create_bucket(Bucket=name)
        return name


def start_s3_server(data: Path) -> S3Server:
    """Start nanio and wait until it answers. Terminate `.process` afterwards."""
    command = shutil.which("nanio", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if command is None:
        pytest.skip("nanio is not installed: pip install 'pagemill[dev]'")
    pytest.importorskip("boto3", reason="boto3 is not installed: pip install 'pagemill[s3]'")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [command, "serve", "--data-dir", str(data), "--host", "127.0.0.1", "--port", str(port), "--no-access-log"],
        env={**os.environ, "NANIO_ACCESS_KEY": ACCESS_KEY, "NANIO_SECRET_KEY": SECRET_KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return S3Server(f"http://127.0.0.1:{port}", data, process)
        assert process.poll() is None, "nanio ended at its start"
        assert time.monotonic() < deadline, "nanio does not answer"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = start_s3_server(tmp_path_factory.mktemp("s3"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield server
    server.process.terminate()
    server.process.wait()


@pytest.fixture
def s3_store(s3_server: S3Server, tmp_path: Path) -> ArtifactStore:
    """An empty store below a prefix of a bucket of its own."""
    url = f"s3://{s3_server.new_bucket()}/some/prefix?endpoint={s3_server.endpoint}"
    return artifact_store(url, cache=tmp_path / "cache")


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """An empty store of each kind."""
    if request.param == "folder":
        return artifact_store(tmp_path / "artifacts")
    found: ArtifactStore = request.getfixturevalue("s3_store")
    return found
