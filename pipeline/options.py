"""What a caller may ask of one parse."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.page_model import Quality, Route


@dataclass(frozen=True, slots=True)
class ParseOptions:
    """How to parse one document.

    Attributes:
        route: AUTO decides page by page; the others force one route on every page.
        pages: which pages, 1-based, as in "1-5,9,20-"; empty for all.
        password: for an encrypted PDF. Kept in memory only, never written.
        quality: HIGH reads scans with the larger of the two OCR models.
        force: parse again what is already done.

    Raises:
        ValueError: there is no such route or quality.
    """

    route: Route = Route.AUTO
    pages: str = ""
    password: str | None = None
    quality: Quality = Quality.STANDARD
    force: bool = False

    def __post_init__(self) -> None:
        # "auto" as plain text equals Route.AUTO but is not it: make it the member, or say that there is none.
        object.__setattr__(self, "route", Route(self.route))
        object.__setattr__(self, "quality", Quality(self.quality))

    def fingerprint(self) -> dict[str, str]:
        """The options that change the result, for deciding whether an earlier result still serves."""
        return {"route": str(self.route), "pages": self.pages, "quality": str(self.quality)}
