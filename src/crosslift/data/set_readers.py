"""How the files of particular public sets are read, where the general readers do not know enough."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from crosslift.data.bitext import read_bitext
from crosslift.data.columns import table_examples
from crosslift.data.conll import Sentence, conll_examples, read_sentences
from crosslift.data.draft import Reading
from crosslift.data.examples import Examples
from crosslift.data.files import COMPRESSED, find_file, read_lines
from crosslift.data.plain import read_plain
from crosslift.data.squad import read_squad
from crosslift.data.table import read_delimited, read_jsonl
from crosslift.errors import BadFile


def read_tsv(path: Path, reading: Reading) -> Examples:
    """Read a TSV with header whose quotation marks are text."""
    return table_examples(read_delimited(path, "\t", True, "none"), reading)


def read_mnli(path: Path, reading: Reading) -> Examples:
    """Read MultiNLI rows, numbered: its pair ids occur twice here and there."""
    table = read_delimited(path, "\t", True, "none")
    columns = {name: values for name, values in table.columns.items() if name != "id"}
    return table_examples(replace(table, columns=columns), reading)


def read_quoted_tsv(path: Path, reading: Reading) -> Examples:
    """Read a TSV with header that was written with CSV quoting, as SIB-200 is."""
    return table_examples(read_delimited(path, "\t", True, "csv"), reading)


def read_objects(path: Path, reading: Reading) -> Examples:
    """Read JSON lines."""
    return table_examples(read_jsonl(path), reading)


def read_parallel_squad(path: Path, reading: Reading) -> Examples:
    """Read SQuAD's layout where question ids are the same in all languages."""
    return read_squad(path, reading, parallel=True)


def read_english_pairs(path: Path, reading: Reading) -> Examples:
    """Read `english<TAB>other<TAB>source` lines; `reading.language` is that of the other side."""
    return read_bitext(path, language="en", pair_language=reading.language, strict=reading.strict, limit=reading.limit)


def read_ntrex(path: Path, reading: Reading) -> Examples:
    """Read NTREX: line n is the same sentence everywhere, and belongs to the nth document id."""
    documents = find_file(path.parent / "DOCUMENT_IDS.tsv")
    groups = read_lines(documents) if documents else None
    return read_plain(path, reading, groups, parallel=True)


def read_xsid(path: Path, reading: Reading) -> Examples:
    """Read xSID; the parallel id is the number of the English row.

    Rows are in English order, but for Bavarian (`de-ba`), which names its English sentence, and Norwegian
    (`no`), where `# id = n/k` is English row n by translator k.
    """
    sentences = read_sentences(path)
    rows = [str(row) for row in range(1, len(sentences) + 1)]
    if reading.language == "no":
        ids = [sentence.meta.get("id", "") for sentence in sentences]
        return conll_examples(path, sentences, reading, ids, [id_.split("/")[0] for id_ in ids])
    if reading.language == "de-ba":
        return conll_examples(path, sentences, reading, rows, _english_rows(path, sentences))
    return conll_examples(path, sentences, reading, rows, rows)


def _english_rows(path: Path, sentences: list[Sentence]) -> list[str]:
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    name = f"en.{plain.name.split('.', 1)[1]}"
    english = find_file(path.with_name(name))
    if english is None:
        raise BadFile(path, None, f"needs the English file beside it, {name}, to find its rows.")
    rows: dict[str, list[str]] = defaultdict(list)
    for row, sentence in enumerate(read_sentences(english), start=1):
        text = sentence.meta.get("text", "")
        rows[text].append(str(row))
        if (bare := _letters(text)) != text:
            rows[bare].append(str(row))
    # A sentence that English has twice is taken in order; one that it lacks is parallel to nothing.
    found = []
    for row, sentence in enumerate(sentences, start=1):
        text = sentence.meta.get("text-en", "")
        candidates = rows.get(text) or rows.get(_letters(text)) or [f"only-de-ba-{row}"]
        found.append(candidates.pop(0) if len(candidates) > 1 else candidates[0])
    return found


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def by_premise(examples: Examples) -> Examples:
    """Group XNLI by premise: three rows in a row have the same one, in every language."""
    numbers = [int(id_.rsplit("-", 1)[-1]) for id_ in examples.ids]
    groups = [f"premise-{(number - 1) // 3 + 1:04d}" for number in numbers]
    return replace(examples, parallel_ids=list(examples.ids), groups=groups)


def by_text(examples: Examples) -> Examples:
    """Group by the first text, so that rows with one premise stay together."""
    return replace(examples, groups=list(examples.texts))


def by_paragraph(examples: Examples) -> Examples:
    """Group questions by their context, numbered as they come."""
    if examples.groups is not None or examples.pairs is None:
        return examples
    number = {context: n for n, context in enumerate(dict.fromkeys(examples.pairs), start=1)}
    return replace(examples, groups=[f"paragraph-{number[context]:04d}" for context in examples.pairs])
