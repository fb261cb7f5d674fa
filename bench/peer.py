"""The peer: bare MinerU, its flash tier in text mode, through its public interface only.

`python -m bench.peer OUT FILE...` parses each FILE into OUT/<stem>/ and prints one JSON line for each; exit 1
if any failed.
It is a program of its own because it is measured from outside, and because MinerU starts processes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.process_tree import Run, run


def parse_files(files: Sequence[Path], output: Path, timeout: float = 3600.0) -> tuple[dict[Path, str], Run]:
    """The peer's Markdown of each file ("" where it failed), and how the run went."""
    finished = run(peer_command(files, output), timeout=timeout)
    found = {file: output / file.stem / "markdown.md" for file in files}
    return {file: path.read_text("utf-8") if path.is_file() else "" for file, path in found.items()}, finished


def peer_command(files: Sequence[Path], output: Path) -> list[str]:
    """The command line of the peer."""
    return [sys.executable, "-m", "bench.peer", str(output), *map(str, files)]


def main() -> None:
    from mineru.parser import MinerUParser
    from mineru.parser.writer import FileBasedDataWriter

    output, *files = map(Path, sys.argv[1:])
    failed = False
    parser = MinerUParser(tier="flash", parse_mode="txt")
    for file in files:
        started = time.perf_counter()
        folder = output / file.stem
        folder.mkdir(parents=True, exist_ok=True)
        error = None
        try:
            parser.parse(str(file)).save(FileBasedDataWriter(str(folder)))
        except Exception as caught:  # noqa: BLE001 - whatever stops the peer is a result, not our failure
            error = f"{type(caught).__name__}: {caught}"
            failed = True
        seconds = round(time.perf_counter() - started, 3)
        sys.stdout.write(json.dumps({"file": file.name, "seconds": seconds, "error": error}) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
