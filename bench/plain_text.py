"""Markdown to the text that a reader sees, and the normalisation under which two texts are compared."""

from __future__ import annotations

import re
import unicodedata

INLINE_TAGS = re.compile(r"</?(?:a|b|strong|i|em|u|s|del|mark|small|sub|sup|span|code|kbd)\b[^>]*>", re.IGNORECASE)
BREAKING_TAGS = ("td", "th", "tr", "br", "p", "div", "li", "caption", "figcaption", "h1", "h2", "h3", "h4")
LINE_END_HYPHEN = re.compile(r"(?<=\w)[-\u2010\u00ad]\s*\n\s*(?=[a-z])")
LEADING_BULLET = re.compile(r"^\s*[\u2022\u25cf\u25aa\u25e6\u2023\u00b7*+-]\s+", re.MULTILINE)


def plain_text(markdown: str) -> str:
    """`markdown` without its marks: no emphasis, heading or list signs, no pictures, no HTML.

    Blocks stay on lines of their own. Table cells, in pipe tables and in HTML alike, are separated by
    spaces, rows by line ends. Code stays as it is; so do formulas, which are text to a reader of Markdown.
    """
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    lines: list[str] = []

    def inline(tokens: list[Token]) -> str:
        parts = []
        for token in tokens:
            if token.type in ("text", "code_inline"):
                parts.append(token.content)
            elif token.type in ("softbreak", "hardbreak"):
                parts.append("\n")
            elif token.type == "html_inline":
                parts.append(_html_inline(token.content))
        return "".join(parts)

    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type == "inline":
            lines.append(inline(token.children or []))
        elif token.type in ("fence", "code_block"):
            lines.append(token.content)
        elif token.type == "html_block":
            lines.append(_html_text(token.content))
    return "\n".join(lines)


def normalised(text: str) -> str:
    """`text` in the form in which it is compared.

    Unicode NFKC (ligatures and full-width forms become plain letters), soft hyphens and zero-width marks
    dropped, a word divided at the end of a line joined, bullets at the start of lines dropped, every run
    of white space one blank. Case, punctuation and digits are kept.
    """
    text = LINE_END_HYPHEN.sub("", text)
    text = unicodedata.normalize("NFKC", text)
    text = re.sub(r"[\u00ad\u200b-\u200d\u2060\ufeff]", "", text)
    text = LEADING_BULLET.sub("", text)
    return " ".join(text.split())


def _html_inline(content: str) -> str:
    """Known formatting tags vanish, a break is a line end, anything else was text that looked like a tag."""
    if INLINE_TAGS.fullmatch(content) or content.startswith("<!--"):
        return ""
    if re.fullmatch(r"<br\s*/?>", content, re.IGNORECASE):
        return "\n"
    return content


def _html_text(content: str) -> str:
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(content, "html.parser")
    for tag in soup.find_all(BREAKING_TAGS):
        tag.insert_after("\n" if tag.name == "tr" else " ")
    return soup.get_text()
