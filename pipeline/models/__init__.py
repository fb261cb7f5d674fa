"""The CPU models of one page process: each found inside an installed wheel, loaded on first use, kept.

One file per model. Each wraps one library, answers in the types of `pipeline.page_model`, and raises
`RouteUnavailable` with the command that installs it when its wheel is missing. Nothing is ever downloaded.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pipeline.page_model import Quality

if TYPE_CHECKING:
    from pipeline.models.layout import LayoutModel
    from pipeline.models.orientation import OrientationModel
    from pipeline.models.ppocr import TextModel
    from pipeline.models.table import TableModel


class Models:
    """The models of one process.

    Args:
        threads: ONNX Runtime threads that each model may use.
        quality: which of the two OCR models to use.
    """

    def __init__(self, threads: int = 1, quality: Quality = Quality.STANDARD) -> None:
        self.threads = threads
        self.quality = quality

    @cached_property
    def layout(self) -> LayoutModel:
        from pipeline.models.layout import LayoutModel

        return LayoutModel(self.threads)

    @cached_property
    def orientation(self) -> OrientationModel:
        from pipeline.models.orientation import OrientationModel

        return OrientationModel(self.threads)

    @cached_property
    def text(self) -> TextModel:
        from pipeline.models.ppocr import TextModel

        return TextModel(self.quality, self.threads)

    @cached_property
    def table(self) -> TableModel:
        from pipeline.models.table import TableModel

        return TableModel(self.threads)
