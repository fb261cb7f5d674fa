"""`python -m tests.engine.interconnect.peer KIND SEED OPTIONS`: an engine that answers JSON lines on its input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.engine.interconnect.harness import Engine


def main() -> None:
    kind, seed, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    if "path" in options:
        options["path"] = Path(options["path"])
    engine = Engine(kind, "peer", seed=seed, **options)
    freed: list[int] = []
    print(engine.transport.export_metadata().to_json(), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        answer: object = None
        match question["do"]:
            case "reserve":
                blocks, seconds = question["blocks"], question["seconds"]
                answer = engine.transport.reserve(blocks, seconds, on_free=freed.extend).to_dict()
            case "freed":
                answer = freed
            case "held":
                answer = engine.transport.leases.held_blocks()
            case "block":
                answer = engine.block(question["number"]).hex()
        print(json.dumps(answer), flush=True)
    engine.close()


if __name__ == "__main__":
    main()
