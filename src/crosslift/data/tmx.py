"""Translation memories (TMX): translation units, each with one sentence per language."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, iterparse
from xml.parsers import expat

from crosslift.data.files import read_bytes
from crosslift.errors import BadFile, nearest

_LANGUAGE = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")
# Inline codes of the program that made the memory; their content is no text of the sentence.
_CODES = {"bpt", "ept", "ph", "it", "ut"}


def read_tmx(
    path: Path, language: str | None, pair_language: str | None
) -> tuple[str, str, list[tuple[str, str] | None], list[int]]:
    """Read the sentence pairs of a translation memory.

    Args:
        path: The file, plain or compressed.
        language: Language of the first side; region and script do not count (`en` finds `en-GB`).
        pair_language: Language of the second side; may be left out, as may `language`, where the file has just two.

    Returns:
        Both languages, the pair of each unit (`None` = the unit lacks one of the languages), and the line of the file
        on which each begins.
    """
    units: list[dict[str, str]] = []
    content = read_bytes(path)
    try:
        for _, node in iterparse(io.BytesIO(content)):
            if _name(node) == "tu":
                units.append(_unit(node))
                node.clear()
    except ParseError as error:
        raise BadFile(path, error.position[0], f"is not well-formed XML ({error}).") from None
    counts = Counter(code for unit in units for code in unit)
    if len(counts) < 2:
        raise BadFile(
            path, None, f"holds sentences in {len(counts)} language{'' if len(counts) == 1 else 's'}, not two."
        )
    chosen = [_base(code) if code else None for code in (language, pair_language)]
    for code in chosen:
        if code is not None and code not in counts:
            listed = ", ".join(sorted(counts))
            raise BadFile(path, None, f'has no sentences in "{code}".{nearest(code, counts)}', f"It has {listed}.")
    if None in chosen:
        rest = [code for code in counts if code not in chosen]
        if len(rest) != chosen.count(None):
            listed = ", ".join(sorted(counts))
            raise BadFile(path, None, f"has several languages: {listed}.", "Say which two, as in --languages en-de.")
        chosen = [code or rest.pop(0) for code in chosen]
    first, second = str(chosen[0]), str(chosen[1])
    pairs = [(u[first], u[second]) if first in u and second in u else None for u in units]
    return first, second, pairs, _lines(content)


def _lines(content: bytes) -> list[int]:
    """Return the line on which each unit begins; the parser above does not tell."""
    found: list[int] = []
    parser = expat.ParserCreate()

    def begin(name: str, _: object) -> None:
        if name.rpartition(":")[2] == "tu":
            found.append(parser.CurrentLineNumber)

    parser.StartElementHandler = begin
    parser.Parse(content, True)
    return found


def _unit(node: Element) -> dict[str, str]:
    """Return the sentence of each language of a unit; of several in one language, the first."""
    found: dict[str, str] = {}
    for variant in node:
        if _name(variant) != "tuv":
            continue
        code = next((variant.attrib[name] for name in _LANGUAGE if name in variant.attrib), "")
        text = " ".join("".join(_text(seg)) for seg in variant if _name(seg) == "seg")
        found.setdefault(_base(code), " ".join(text.split()))
    return found


def _text(node: Element) -> list[str]:
    """Return the text of a segment without inline codes."""
    parts = [node.text or ""]
    for child in node:
        parts += ([] if _name(child) in _CODES else _text(child)) + [child.tail or ""]
    return parts


def _name(node: Element) -> str:
    return node.tag.rpartition("}")[2]


def _base(code: str) -> str:
    return code.replace("_", "-").split("-")[0].lower()
