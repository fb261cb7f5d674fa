"""`pagemill bench scans`: one scanned sentence, each way up, read without a text layer.

The character error rate is the Levenshtein distance between what was read and the sentence, over the length
of the sentence; both with white space made single. Text beyond the sentence counts as error.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench import product
from bench.extras import require
from bench.figures import Report, at_most
from bench.plain_text import normalised, plain_text

ERROR_REACH = 0.02
PATTERN = "ocr_test*.pdf"
SENTENCE = "Docling bundles PDF document conversion to JSON and Markdown in an easy self contained package"
"""What the scans of the corpus say."""


def measure(
    folder: Path, *, sentence: str = SENTENCE, arguments: tuple[str, ...] = (), keep: Path | None = None
) -> Report:
    """Read every scan of `folder` whose name fits PATTERN.

    Args:
        sentence: what each of them says.
        arguments: further options for `pagemill parse`.
        keep: where to leave what was parsed; a temporary folder otherwise.

    Raises:
        ModuleNotFoundError: the extra is not installed.
        FileNotFoundError: there is none.
    """
    require("rapidfuzz", "markdown_it", "bs4")
    files = sorted(folder.glob(PATTERN))
    if not files:
        raise FileNotFoundError(f"no {PATTERN} in {folder}")
    with tempfile.TemporaryDirectory() as scratch:
        parsed, _ = product.parse_files(files, keep or Path(scratch), *arguments)
    details: dict[str, Any] = {}
    for document in parsed:
        details[document.input.name] = {
            "character_error": round(character_error(document.markdown, sentence), 4),
            "text": normalised(plain_text(document.markdown)),
            "status": document.status,
            "error": document.error,
        }
    errors = {document.input.name: character_error(document.markdown, sentence) for document in parsed}
    return Report(
        "scans",
        (at_most("worst_character_error", max(errors.values()), "ratio", ERROR_REACH),),
        {"files": details},
        tuple(
            f"{name}: character error {error:.3f}, read {details[name]['text']!r}"
            for name, error in errors.items()
            if error > ERROR_REACH
        ),
    )


def character_error(markdown: str, sentence: str) -> float:
    """Character error rate of `markdown` against `sentence`, 0 for equality; can exceed 1."""
    from rapidfuzz.distance import Levenshtein

    truth = normalised(sentence)
    return Levenshtein.distance(normalised(plain_text(markdown)), truth) / len(truth)
