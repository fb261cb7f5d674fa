"""How many tokens an answer may have: what fits on its piece of the page, set as small as print gets.

MinerU's client sets no limit, so that a model that cannot stop fills its whole context. The bounds leave room for
the picture (at most about 2,000 tokens) in a context of 8,192: some servers refuse what cannot fit.
"""

from __future__ import annotations

from pipeline.page_model import BBox
from pipeline.structure.geometry import area

LAYOUT_TOKENS = 4096
"""About 22 tokens name a block, so that this is a page of 180."""

LEAST, MOST = 128, 6000

_AREA_PER_TOKEN = 36.0
"""Square points of a page that one token of text takes at least: two to three letters of 6 points, or an ideograph."""

_WORDINESS = {"table": 2.0, "equation": 4.0, "algorithm": 2.0, "code": 1.5}
"""How much longer than its text an answer is: marks of cells, the words of LaTeX."""


def block_tokens(kind: str, bbox: BBox) -> int:
    """The most tokens for a block.

    Args:
        kind: type of the layout block.
        bbox: page points.
    """
    return int(min(MOST, max(LEAST, _WORDINESS.get(kind, 1.0) * area(bbox) / _AREA_PER_TOKEN)))
