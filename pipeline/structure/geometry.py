"""Arithmetic on boxes, all in one unit (page points), origin top left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from pipeline.page_model import BBox, Region, RegionKind, TextLine


def union(boxes: Iterable[BBox]) -> BBox:
    """The smallest box around all `boxes` (at least one)."""
    all_boxes = list(boxes)
    return (
        min(b[0] for b in all_boxes),
        min(b[1] for b in all_boxes),
        max(b[2] for b in all_boxes),
        max(b[3] for b in all_boxes),
    )


def area(box: BBox) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def covered(inner: BBox, outer: BBox) -> float:
    """Which share (0..1) of `inner` lies within `outer`."""
    width = min(inner[2], outer[2]) - max(inner[0], outer[0])
    height = min(inner[3], outer[3]) - max(inner[1], outer[1])
    if width <= 0 or height <= 0:
        return 0.0
    return width * height / max(area(inner), 1e-9)


def same_row(a: BBox, b: BBox) -> bool:
    """Whether two boxes stand on one row: the smaller one overlaps the other by half its height."""
    overlap = min(a[3], b[3]) - max(a[1], b[1])
    return overlap >= 0.5 * min(a[3] - a[1], b[3] - b[1])


def gaps(intervals: Iterable[tuple[float, float]], minimum: float) -> list[tuple[float, float]]:
    """The free stretches of at least `minimum` between the intervals, not counting the outside."""
    found: list[tuple[float, float]] = []
    reach: float | None = None
    for start, end in sorted(intervals):
        if reach is not None and start - reach >= minimum:
            found.append((reach, start))
        reach = end if reach is None else max(reach, end)
    return found


def body_size(lines: Sequence[TextLine]) -> float:
    """The font size (points) that most characters of the page have; the median over characters."""
    sizes = sorted((line.font_size or (line.bbox[3] - line.bbox[1]), len(line.text)) for line in lines)
    total = sum(weight for _, weight in sizes)
    seen = 0
    for size, weight in sizes:
        seen += weight
        if seen * 2 >= total:
            return max(1.0, size)
    return 10.0


def line_height(lines: Sequence[TextLine]) -> float:
    """Median height of the lines' boxes, points."""
    return max(1.0, median(line.bbox[3] - line.bbox[1] for line in lines)) if lines else 10.0


def said(bbox: BBox, regions: Iterable[Region], kinds: tuple[RegionKind, ...]) -> bool:
    """Whether the layout model saw one of `kinds` at `bbox`, and not far around it too."""
    return any(r.kind in kinds and covered(bbox, r.bbox) > 0.6 and area(r.bbox) < 4 * area(bbox) for r in regions)
