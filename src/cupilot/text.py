"""Text of others (a compiler's, a candidate's, a file's name) made fit for a message or a terminal."""

from __future__ import annotations

import re
import unicodedata

LONGEST_LINE = 2000
STEERING = ("Cc", "Cf", "Cs")
"""Unicode categories: control characters, formats such as the direction of writing, halves of characters."""
_PLAIN = re.compile(r"[\n\t -~]*")


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """On one line whatever line breaks it had, cut to a length that can be read, and harmless."""
    line = " ".join(text[: 4 * longest].split())
    return harmless(line if len(line) <= longest else line[: longest - 3] + "...")


def first_lines(text: str, count: int, longest: int = 400) -> str:
    """The beginning of a log; what is left out shows as three dots."""
    lines = text.strip().splitlines()
    cut = [line if len(line) <= longest else line[:longest] + "..." for line in lines[:count]]
    return harmless("\n".join(cut + ["..."] * (len(lines) > count)))


def harmless(text: str) -> str:
    """Characters that could steer a terminal are shown as escapes; line breaks and tabs stay."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_escape(character) if _steers(character) else character for character in text)


def _steers(character: str) -> bool:
    return unicodedata.category(character) in STEERING and character not in "\n\t"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
