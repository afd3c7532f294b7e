"""Text as a long run of word numbers on disk: read once, in blocks, by all cores, and drawn from at any place.

What both vocabularies make of a word is looked up by its number, so that training never tokenises. The run is
memory-mapped: only what a step draws is read, and a text larger than the memory is no different from a small one.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import lzma
import pickle
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosslift.data.storage import Json, atomic, read_json, write_json
from crosslift.data.tokenise import Workers
from crosslift.errors import BadFile, BadInput

LINE_END, DOCUMENT_END = 0, 1
"""Numbers that stand after each line and after each document (a blank line ends one, and so does a file)."""

_BLOCK = 4 << 20  # bytes


@dataclass(frozen=True)
class WordCorpus:
    """A text as word numbers.

    Attributes:
        words: The word behind each number, in order of first sight; the first two are the marks.
        numbers: (words of the text,) memory-mapped int32.
    """

    words: list[str]
    numbers: NDArray[np.int32]

    def text(self, first: int, stop: int) -> str:
        """Return a stretch of the text, words joined by spaces and lines by line feeds."""
        marks = {LINE_END: "\n", DOCUMENT_END: "\n"}
        parts = [marks.get(n, f" {self.words[n]}") for n in self.numbers[first:stop].tolist()]
        return "".join(parts).replace("\n ", "\n").strip()


def write_word_corpus(
    files: Sequence[Path], folder: Path, workers: Workers | None = None, exclude: Collection[str] = ()
) -> WordCorpus:
    """Read text files into `folder`, or open what was read there before from the same files.

    Args:
        files: UTF-8, plain, `.gz` or `.xz`, one sentence or paragraph a line, a blank line between documents.
        folder: Where the run of words is kept.
        workers: Processes that read; default: this one.
        exclude: Lines that are left out, spaces aside.
    """
    left_out = _plain(exclude)
    facts = _facts(files, left_out)
    if not folder.exists() or read_json(folder / "facts.json") != facts:
        with atomic(folder) as draft:
            draft.mkdir()
            _write(files, draft, workers, left_out)
            write_json(draft / "facts.json", facts)
    words = ["\n", "\n\n", *(folder / "words.txt").read_text(encoding="utf-8").split("\n")[:-1]]
    return WordCorpus(words, np.memmap(folder / "numbers.i32", dtype=np.int32, mode="r"))


def outdated(files: Sequence[Path], folder: Path, exclude: Collection[str] = ()) -> bool:
    """Whether something else was read into `folder` than what the files now hold; not, where nothing was."""
    return folder.exists() and read_json(folder / "facts.json") != _facts(files, _plain(exclude))


def _plain(lines: Collection[str]) -> frozenset[str]:
    return frozenset(" ".join(line.split()) for line in lines)


def _facts(files: Sequence[Path], left_out: frozenset[str]) -> Json:
    # The lines themselves, not their number: text read without other lines must not pass for this one.
    excluded = hashlib.sha256("\n".join(sorted(left_out)).encode()).hexdigest()
    return {"files": [[str(path), *_stamp(path)] for path in files], "excluded": excluded}


def _stamp(path: Path) -> tuple[int, int]:
    """Return size and time of a file: another text has another one of them."""
    if not path.is_file():
        raise BadFile(path, None, "there is no such file.")
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _write(files: Sequence[Path], folder: Path, workers: Workers | None, exclude: frozenset[str]) -> None:
    number: defaultdict[str, int] = defaultdict(count(2).__next__)
    total = 0
    with (folder / "numbers.i32").open("wb") as out:
        for words, local in _counted(files, workers, exclude):
            numbers = np.fromiter(map(number.__getitem__, words), dtype=np.int32, count=len(words))
            of_local = np.concatenate([np.array([LINE_END, DOCUMENT_END], dtype=np.int32), numbers])
            out.write(of_local[local].tobytes())
            total += len(local)
    if not number:
        raise BadInput("There is no text to train on.", "Give at least one text file with words in it.")
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in number), encoding="utf-8")


def _counted(
    files: Sequence[Path], workers: Workers | None, exclude: frozenset[str]
) -> Iterator[tuple[list[str], NDArray[np.int32]]]:
    """Yield each block's words, numbered by themselves; only a few blocks are in memory at a time."""
    blocks = ((block, last) for path in files for block, last in _blocks(path))
    if workers is None or workers.pool is None:
        for block, last in blocks:
            yield block_words(block, last, exclude)
        return
    waiting: deque[Future[bytes]] = deque()
    for block, last in blocks:
        waiting.append(workers.pool.submit(_packed_words, block, last, exclude))
        if len(waiting) > 2 * workers.processes:
            yield pickle.loads(waiting.popleft().result())
    while waiting:
        yield pickle.loads(waiting.popleft().result())


def _packed_words(block: bytes, last: bool, exclude: frozenset[str]) -> bytes:
    return pickle.dumps(block_words(block, last, exclude), protocol=5)


def block_words(block: bytes, last: bool, exclude: frozenset[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Return the words of a block in order of first sight, and the block as numbers (the words begin at 2).

    Args:
        block: Whole lines of UTF-8.
        last: Whether the file, and so its last document, ends here.
        exclude: Lines to leave out.
    """
    number: defaultdict[str, int] = defaultdict(count(2).__next__)
    parts: list[NDArray[np.int32]] = []
    open_ = False
    for line in block.decode("utf-8").split("\n"):
        words = line.split()
        if words and not (exclude and " ".join(words) in exclude):
            row = np.empty(len(words) + 1, dtype=np.int32)
            row[:-1] = list(map(number.__getitem__, words))
            row[-1] = LINE_END
            parts.append(row)
            open_ = True
        elif not words and open_:
            parts.append(np.array([DOCUMENT_END], dtype=np.int32))
            open_ = False
    if last and open_:
        parts.append(np.array([DOCUMENT_END], dtype=np.int32))
    return list(number), np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)


def _blocks(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield a file in blocks of whole lines, and whether a block is its last."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix.lower(), open)
    rest, line = b"", 1
    try:
        with opener(path, "rb") as file:
            if (start := file.read(len(codecs.BOM_UTF8))) != codecs.BOM_UTF8:
                rest = start
            while data := file.read(_BLOCK):
                cut = data.rfind(b"\n") + 1
                if not cut:
                    rest += data
                    continue
                block, rest = rest + data[:cut], data[cut:]
                _check(path, block, line)
                yield block, False
                line += block.count(b"\n")
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise BadFile(path, line, f"cannot be read to its end: {error}.") from None
    _check(path, rest, line)
    yield rest, True


def _check(path: Path, block: bytes, line: int) -> None:
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = line + block.count(b"\n", 0, error.start)
        raise BadFile(
            path, wrong, f"is not UTF-8 (byte 0x{block[error.start]:02x}).", "Convert it with iconv."
        ) from None
