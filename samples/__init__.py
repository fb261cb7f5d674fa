"""The product's own sample documents, drawn by code so that no file of anyone else is shipped.

`generate` writes a born-digital report, a scan of it that has no text layer, and a letter as a picture.
The same bytes come out every time for one set of library versions. Needs reportlab and Pillow only, and
imports nothing of the product.
"""

from __future__ import annotations

from pathlib import Path


def generate(folder: Path) -> list[Path]:
    """Write all samples into `folder`, which is made if missing, and return their paths.

    Files of the same names are replaced.

    Raises:
        OSError: the folder cannot be written.
    """
    from samples.report import write_report
    from samples.scan import write_letter, write_scan

    folder.mkdir(parents=True, exist_ok=True)
    written = {
        folder / "report.pdf": write_report,
        folder / "scan.pdf": write_scan,
        folder / "letter.png": write_letter,
    }
    for path, write in written.items():
        write(path)
    return list(written)
