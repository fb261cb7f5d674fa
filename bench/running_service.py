"""A `pagemill serve` of the bench's own, in a process tree of its own, and calls to its REST interface."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

_START_SECONDS = 120.0
_PAUSE = 0.05


class RunningService:
    """Use it in a `with`: leaving it stops the service.

    Args:
        data: folder of its stores.
        arguments: further ones of `pagemill serve`.
        environment: variables on top of this process's own.
    """

    def __init__(self, data: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self._command = [sys.executable, "-m", "api.cli.main", "serve", "--port", "0", *arguments]
        self._environment = {**os.environ, **(environment or {}), "PAGEMILL_DATA_DIR": str(data)}
        self._child: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def process(self) -> psutil.Process:
        """The API's process, which is also the root of its tree."""
        assert self._child is not None
        return psutil.Process(self._child.pid)

    def __enter__(self) -> RunningService:
        log = self.data.with_suffix(".log")
        with log.open("w") as errors:
            self._child = subprocess.Popen(
                self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
        deadline = time.monotonic() + _START_SECONDS
        while (match := re.search(r"listens on (\S+)", log.read_text("utf-8", "replace"))) is None:
            if self._child.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the service did not start: {log.read_text('utf-8', 'replace')[-500:]}")
            time.sleep(_PAUSE)
        self.url = match[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL the service and everything that it started, at once."""
        if self._child is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [*self.process.children(recursive=True), self.process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._child.wait()

    def get(self, path: str) -> Any:
        """The JSON of an answer. Raises urllib.error.HTTPError where it is a refusal."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def upload(self, files: Sequence[Path], **options: str) -> list[str]:
        """Submit documents; their ids, in the order of the files."""
        boundary = uuid.uuid4().hex
        body = b"".join(_parts(boundary, files, options))
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        request = urllib.request.Request(f"{self.url}/v1/documents", body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=600) as answer:
            return [document["id"] for document in json.load(answer)["documents"]]

    def post_json(self, path: str, content: Mapping[str, Any]) -> Any:
        body = json.dumps(content).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=1800) as answer:
            return json.load(answer)

    def state(self, document: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/v1/documents/{document}?pages=false")
        return found

    def wait(self, documents: Sequence[str], seconds: float) -> list[dict[str, Any]]:
        """The documents once all are finished. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        found = []
        for document in documents:
            while (current := self.state(document))["finished_at"] is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not finished within {seconds:.0f} s: {current['name']} is {current['state']}")
                time.sleep(_PAUSE)
            found.append(current)
        return found

    def wait_for_page(self, document: str, number: int, seconds: float) -> None:
        """Return as soon as a page can be read. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.get(f"/v1/documents/{document}/pages/{number}")
                return
            except urllib.error.HTTPError as refusal:
                refusal.close()
                if refusal.code != 409 or time.monotonic() > deadline:
                    raise TimeoutError(f"page {number} cannot be read: {refusal}") from None
            time.sleep(_PAUSE)


def _parts(boundary: str, files: Sequence[Path], options: Mapping[str, str]) -> Iterator[bytes]:
    for name, value in options.items():
        yield f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    for file in files:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{file.name}"\r\n\r\n'
        yield head.encode() + file.read_bytes() + b"\r\n"
    yield f"--{boundary}--\r\n".encode()
