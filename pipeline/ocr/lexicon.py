"""Settles what a recogniser is unsure of by the words that exist.

Only what the recogniser itself holds possible is considered: a word is parted where a space may have been, or
replaced by one that differs in one or two characters, each of them among its alternatives. English, because
that is the dictionary which ships in a wheel; words of other languages are left as they were read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

from pipeline.errors import RouteUnavailable
from pipeline.models.ctc import Reading
from pipeline.models.wheel_files import wheel_file

INSTALL = "pip install --no-deps symspellpy==6.10.1"

_WORD = re.compile(r"[^\W_]+")
_CASES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

_LOOK_ALIKES = {"0": "od", "1": "il", "2": "z", "4": "a", "5": "s", "6": "gb", "8": "b", "9": "gq"}

MIN_LENGTH = 4
"""Characters; shorter words have neighbours everywhere."""

PAIR_LENGTH = 6
PAIR_PROBABILITY = 0.02
"""Two characters are replaced only in words this long, and by alternatives this likely."""

PARTED_LENGTH = 6
PARTED_PROBABILITY = 0.01
FREQUENT = 100_000_000
"""A word this long is parted where a space is this likely; parts shorter than four letters must be this common
(occurrences in the dictionary's trillion words)."""

LOOK_ALIKE_LENGTH = 7
LOOK_ALIKE_PROBABILITY = 1e-4
"""In words this long a lone digit may be a letter of like shape however sure the recogniser is."""

Alternatives = Sequence[Sequence[tuple[str, float]]]


def settle(reading: Reading) -> Reading:
    """The reading with unknown words replaced by known ones that it holds possible.

    Args:
        reading: one without alternatives is only parted into words. Without the dictionary any reading is
            given back as it is.
    """
    known = _words()
    if not known:
        return reading
    text = list(reading.text)
    order = {place: n for n, place in enumerate(i for i, c in enumerate(text) if not c.isspace())}
    for match in _WORD.finditer(reading.text):
        places = range(match.start(), match.end())
        word = match[0]
        if reading.alternatives:
            word = _known_word(word, [reading.alternatives[order[i]] for i in places], known)
            text[match.start() : match.end()] = word
        if reading.spaces:
            cut = _parting(word, [reading.spaces[order[i]] for i in places], known)
            if cut:
                # Still one element per place, so that later matches stay where they are.
                text[match.start() + cut] = " " + text[match.start() + cut]
    return replace(reading, text="".join(text))


def is_suspicious(text: str) -> bool:
    """Whether a word has a digit among its letters where a letter would make it a word that exists."""
    known = _words()
    for word in _WORD.findall(text):
        digits = [i for i, c in enumerate(word) if c.isdigit()]
        if len(digits) == 1 and len(word) >= MIN_LENGTH and word[digits[0]] in _LOOK_ALIKES:
            for letter in _LOOK_ALIKES[word[digits[0]]]:
                if (word[: digits[0]] + letter + word[digits[0] + 1 :]).lower() in known:
                    return True
    return False


@lru_cache(maxsize=1)
def _words() -> dict[str, int]:
    """Lower-case English words with their frequency; empty if the wheel with the dictionary is not installed."""
    try:
        path = wheel_file("symspellpy", "frequency_dictionary_en_82_765.txt", INSTALL)
    except RouteUnavailable:
        return {}
    with path.open(encoding="utf-8-sig") as file:
        return {word: int(count) for word, _, count in (line.rstrip().partition(" ") for line in file)}


def _parting(word: str, spaces: Sequence[float], known: Mapping[str, int]) -> int:
    """Before which character an unknown word falls into two known ones; 0 if it does not."""
    if len(word) < PARTED_LENGTH or not word.isascii() or not word.isalpha() or _is_known(word, known):
        return 0
    likely = [i for i in range(2, len(word) - 1) if spaces[i] >= PARTED_PROBABILITY]
    for i in sorted(likely, key=lambda i: -spaces[i]):
        parts = word[:i].lower(), word[i:].lower()
        if all(known.get(part, 0) >= (FREQUENT if len(part) < 4 else 1) for part in parts):
            return i
    return 0


def _known_word(word: str, alternatives: Alternatives, known: Mapping[str, int]) -> str:
    letters = sum(c.isalpha() for c in word)
    if len(word) < MIN_LENGTH or 2 * letters < len(word) or not word.isascii() or _is_known(word, known):
        return word
    best, best_loss = word, math.inf
    for candidate, loss in _candidates(word, alternatives):
        if loss < best_loss and candidate.lower() in known:
            best, best_loss = candidate, loss
    return best


def _is_known(word: str, known: Mapping[str, int]) -> bool:
    if word.lower() in known:
        return True
    parts = _CASES.findall(word)
    return len(parts) > 1 and "".join(parts) == word and all(p.lower() in known for p in parts)


def _candidates(word: str, alternatives: Alternatives) -> Iterator[tuple[str, float]]:
    """Words with one or two characters replaced, and how much less likely they are (nats)."""
    changes: list[tuple[int, str, float, float]] = []
    digits = sum(c.isdigit() for c in word)
    for i, options in enumerate(alternatives):
        itself = dict(options).get(word[i], 1.0)
        if digits == 1 and len(word) >= LOOK_ALIKE_LENGTH:
            letters = _LOOK_ALIKES.get(word[i], "")
            cased = letters.upper() if sum(c.isupper() for c in word) > len(word) // 2 else letters
            options = [*options, *((letter, LOOK_ALIKE_PROBABILITY) for letter in cased)]
        for character, probability in options:
            if character.isascii() and character.isalpha() and character.lower() != word[i].lower():
                changes.append((i, character, probability, math.log(itself / probability)))
    for i, character, _, loss in changes:
        yield word[:i] + character + word[i + 1 :], loss
    if len(word) < PAIR_LENGTH:
        return
    likely = [change for change in changes if change[2] >= PAIR_PROBABILITY]
    for a, b in combinations(likely, 2):
        if a[0] != b[0]:
            spelled = list(word)
            spelled[a[0]], spelled[b[0]] = a[1], b[1]
            yield "".join(spelled), a[3] + b[3]
