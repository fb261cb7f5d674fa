"""`python -m samples DIR`: write the sample documents into DIR."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from samples import generate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m samples", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; made if missing")
    for path in generate(parser.parse_args().folder):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
