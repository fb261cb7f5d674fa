"""`pagemill bench text`: how much of a born-digital document's text arrives, whole and in order.

The measure: `rapidfuzz.distance.Indel.normalized_similarity` over characters, that is 2 L / (a + b), where
L is the length of the longest common subsequence of the two texts and a and b are their lengths. A missing,
extra or wrong character costs, and so does text in another order, since only one of two swapped passages can
be part of a common subsequence. 1.0 is identity.

What is compared: the Markdown alone, as a reader gets it, against the text beside the PDF. Those texts hold
running headers, footers and page numbers, which Markdown leaves out on purpose (they stand in the content
list); that costs up to half a percent and is accepted, rather than put back for the sake of the figure.
Markdown's marks are removed (`plain_text`), and both sides are normalised in the same way (`normalised`).

The same similarity over words, which is stricter, stands in the details.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import peer, product
from bench.extras import require
from bench.figures import Report, at_least
from bench.plain_text import normalised, plain_text

MEAN_REACH = 0.97
MINIMUM_REACH = 0.95


def measure(folder: Path, *, with_peer: bool = False, keep: Path | None = None) -> Report:
    """Compare every PDF of `folder` that has a `.txt` of its name beside it.

    Args:
        with_peer: also measure bare MinerU on the same files, for the details.
        keep: where to leave what was parsed; a temporary folder otherwise.

    Raises:
        ModuleNotFoundError: the extra is not installed.
        FileNotFoundError: there is no such pair in `folder`.
    """
    require("rapidfuzz", "markdown_it", "bs4")
    files = sorted(path for path in folder.glob("*.pdf") if path.with_suffix(".txt").is_file())
    if not files:
        raise FileNotFoundError(f"no PDF with a .txt beside it in {folder}")
    truths = {file: file.with_suffix(".txt").read_text("utf-8", "replace") for file in files}
    details: dict[str, Any] = {"files": {}}
    with tempfile.TemporaryDirectory() as scratch:
        parsed, _ = product.parse_files(files, keep or Path(scratch) / "ours")
        scores = {}
        for document in parsed:
            scores[document.input] = similarity(document.markdown, truths[document.input])
            details["files"][document.input.name] = {
                "similarity": round(scores[document.input], 4),
                "words": round(word_similarity(document.markdown, truths[document.input]), 4),
                "status": document.status,
                "error": document.error,
            }
        if with_peer:
            markdown, _ = peer.parse_files(files, Path(scratch) / "peer")
            theirs = {file.name: round(similarity(markdown[file], truths[file]), 4) for file in files}
            details["peer"] = {"name": "MinerU flash", "mean": round(fmean(theirs.values()), 4), "files": theirs}
    worst = min(scores, key=lambda file: scores[file])
    return Report(
        "text",
        (
            at_least("mean_similarity", fmean(scores.values()), "ratio", MEAN_REACH),
            at_least("minimum_similarity", scores[worst], "ratio", MINIMUM_REACH),
        ),
        details,
        tuple(f"{file.name}: similarity {score:.4f}" for file, score in scores.items() if score < MINIMUM_REACH),
    )


def similarity(markdown: str, truth: str) -> float:
    """Similarity over characters, 0..1, under the normalisation of this bench."""
    from rapidfuzz.distance import Indel

    return Indel.normalized_similarity(normalised(plain_text(markdown)), normalised(truth))


def word_similarity(markdown: str, truth: str) -> float:
    """The same over words."""
    from rapidfuzz.distance import Indel

    ours, theirs = normalised(plain_text(markdown)).split(), normalised(truth).split()
    return Indel.normalized_similarity(ours, theirs)
