"""Text with its styles: words to MinerU's inline spans, lines joined as a reader joins them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from pipeline.page_model import TextLine, Word

_CJK = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


@dataclass(frozen=True, slots=True)
class StyledWord(Word):
    """A word of a text layer.

    Attributes:
        style: MinerU's names: bold, italic, superscript, subscript.
        glued: no space stands between it and the word before.
        fixed: its font is one of fixed pitch.
        url: the address that it links to; "" for none.
    """

    style: tuple[str, ...] = ()
    glued: bool = False
    fixed: bool = False
    url: str = ""


def spans(lines: Sequence[TextLine], ignore: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Lines as MinerU's inline content.

    Args:
        lines: of one paragraph, from the top.
        ignore: styles that the block itself already says (bold in a heading).

    Returns:
        Spans of equal style, those of one link inside a hyperlink; their texts joined are `join_text` of the lines.
    """
    ignored = set(ignore)
    runs: list[_Run] = []
    for number, line in enumerate(lines):
        parts = _parts(line)
        if number and runs and parts:
            keep, space = seam("".join(run.text for run in runs[-3:]), parts[0].text)
            if not keep:
                runs[-1] = replace(runs[-1], text=runs[-1].text[:-1])
            same = runs[-1].style == parts[0].style
            runs.append(
                _Run(space, parts[0].style if same else (), runs[-1].url if runs[-1].url == parts[0].url else "")
            )
        runs.extend(parts)
    found: list[dict[str, Any]] = []
    for url, linked in groupby((run for run in runs if run.text), key=lambda run: run.url):
        inner = _merged(linked, ignored)
        text = text_of(inner)
        if not url or not text.strip() or _names(text, url):
            found.extend(inner)
        else:
            found.append({"type": "hyperlink", "url": url, "content": inner})
    return _joined(found)


@dataclass(frozen=True, slots=True)
class _Run:
    text: str
    style: tuple[str, ...]
    url: str = ""


def _merged(runs: Iterable[_Run], ignored: set[str]) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = []
    for run in runs:
        names = [name for name in run.style if name not in ignored]
        merged.append({"type": "text", "content": run.text, **({"styles": names} if names else {})})
    return _joined(merged)


def _joined(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of one style put together; white space takes the style before it."""
    joined: list[dict[str, Any]] = []
    for span in found:
        last = joined[-1] if joined else None
        plain_pair = last is not None and last["type"] == span["type"] == "text"
        if last and plain_pair and (last.get("styles") == span.get("styles") or not span["content"].strip()):
            last["content"] += span["content"]
            continue
        joined.append(span)
    return joined


def _names(text: str, url: str) -> bool:
    """Whether the text is the address itself, which every reader of Markdown makes a link of its own."""
    shown, target = (re.sub(r"^(?:https?://|mailto:)|/$", "", t.strip(), flags=re.IGNORECASE) for t in (text, url))
    return shown.strip("<>()[].,;").lower() == target.lower()


def plain(text: str) -> list[dict[str, Any]]:
    """Text without styles as MinerU's inline content."""
    return [{"type": "text", "content": text}]


def text_of(content: Sequence[dict[str, Any]]) -> str:
    """What inline content says, without its styles and links."""
    return "".join(c if isinstance(c := span["content"], str) else text_of(c) for span in content)


def join_text(lines: Sequence[str]) -> str:
    """Join lines as a reader does: hyphenated words whole, no spaces between CJK characters."""
    text = lines[0] if lines else ""
    for line in lines[1:]:
        keep, space = seam(text, line)
        text = (text if keep else text[:-1]) + space + line
    return text


def seam(above: str, below: str) -> tuple[bool, str]:
    """How two lines join: whether the hyphen that ends the first stays, and what stands between them."""
    if not above or not below:
        return True, ""
    if above.endswith("-") and len(above) > 2 and above[-2].isalpha() and below[0].islower():
        head = re.search(r"[^\s]*$", above[:-1])
        # A word that already has a hyphen ("non-govern-") is a compound: its last hyphen may be one too.
        return bool(head and "-" in head.group()), ""
    if above.endswith(("-", "/", "–", "—")) or (_CJK.match(above[-1]) and _CJK.match(below[0])):
        return True, ""
    return True, " "


def _parts(line: TextLine) -> list[_Run]:
    """The line's words in runs of one style and one link, spaces in place."""
    if not all(isinstance(word, StyledWord) for word in line.words):
        return [_Run(line.text, ())]
    words: list[StyledWord] = [word for word in line.words if isinstance(word, StyledWord)]
    parts = [_Run(words[0].text, words[0].style, words[0].url)]
    for last, word in pairwise(words):
        space = "" if word.glued else " "
        if word.style == last.style and word.url == last.url:
            parts[-1] = replace(parts[-1], text=parts[-1].text + space + word.text)
        else:
            # The space belongs to the plainer of the two, and to no link.
            if space and last.url:
                parts.append(_Run(space, ()))
                space = ""
            elif space and (word.url or len(word.style) > len(last.style)):
                parts[-1] = replace(parts[-1], text=parts[-1].text + space)
                space = ""
            parts.append(_Run(space + word.text, word.style, word.url))
    return parts
