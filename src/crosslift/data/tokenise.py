"""Tokenise much text in several processes, straight into flat arrays."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from crosslift.data.switching import english_words

Item = TypeVar("Item")
Result = TypeVar("Result")

_CHUNK = 4_000


class Workers:
    """Processes that tokenise; used as a context, they end with it.

    Args:
        processes: Default: one per core; 1 does everything in this process.
    """

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or os.cpu_count() or 1
        self.pool: ProcessPoolExecutor | None = None
        self.folder = TemporaryDirectory(prefix="crosslift-")
        self.sent = 0

    def __enter__(self) -> Workers:
        if self.processes > 1:
            # A forked child of a process with running threads can hang; a spawned one starts clean.
            self.pool = ProcessPoolExecutor(self.processes, get_context("spawn"), initializer=_start)
            self.pool.submit(_nothing)  # the processes start now, while the caller still reads files
        return self

    def __exit__(self, *error: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
        self.folder.cleanup()

    def map(
        self,
        function: Callable[[int, Sequence[Item], str, object], Result],
        items: Sequence[Item],
        tokenizer: Tokenizer,
        extra: object = None,
    ) -> list[Result]:
        """Apply `function(number, chunk, tokenizer as JSON, extra)` to consecutive chunks; results are in order.

        Args:
            function: A module-level function.
            items: What is cut into chunks.
            tokenizer: Reaches each process once, as does `extra`.
            extra: Anything else the function needs.
        """
        chunks = [(number, items[i : i + _CHUNK]) for number, i in enumerate(range(0, len(items), _CHUNK))]
        if self.pool is None or len(chunks) < 2:
            text = tokenizer.to_str()
            return [function(number, chunk, text, extra) for number, chunk in chunks]
        self.sent += 1
        state = Path(self.folder.name) / f"{self.sent}.pickle"
        state.write_bytes(pickle.dumps((tokenizer.to_str(), extra)))
        jobs = [self.pool.submit(_run, function, number, chunk, state) for number, chunk in chunks]
        return [job.result() for job in jobs]


_state: tuple[Path | None, tuple[str, object]] = (None, ("", None))


def _start() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process per core is enough


def _nothing() -> None:
    """Make the pool start its processes."""


def _run(function: Callable[..., Result], number: int, chunk: Sequence[Item], state: Path) -> Result:
    global _state
    if _state[0] != state:
        _state = (state, pickle.loads(state.read_bytes()))
    return function(number, chunk, *_state[1])


def flat_ids(encoded: Sequence[Encoding]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return (tokens,) ids of all encodings, one after the other, and (encodings,) their lengths."""
    rows = [e.ids for e in encoded]
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32), np.array([len(r) for r in rows], dtype=np.int32)


def token_spans(
    encoded: Sequence[Encoding], rows: NDArray[np.int64], characters: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return (n, 2) first and stop token of character spans; stop ≤ first where no token covers a span.

    Args:
        encoded: Encodings with offsets; each begins and ends with a special token.
        rows: (n,) which encoding each span belongs to.
        characters: (n, 2) start and end of each span.
    """
    wide = 1 << 32  # one sorted key over all texts: text number, then character
    lengths = np.array([len(e.ids) for e in encoded])
    begins = np.cumsum(lengths) - lengths
    offsets = np.array(list(chain.from_iterable(e.offsets for e in encoded)), dtype=np.int64)
    text = np.repeat(np.arange(len(encoded)), lengths)
    # Closing marks have the offset (0, 0), which would break the order.
    offsets[begins + lengths - 1] = wide - 1
    starts, ends = (text * wide + offsets[:, i] for i in (0, 1))
    first = np.searchsorted(ends, rows * wide + characters[:, 0], side="right") - begins[rows]
    stop = np.searchsorted(starts, rows * wide + characters[:, 1], side="left") - begins[rows]
    return np.stack([first, np.minimum(stop, lengths[rows] - 1)], axis=1)


def segments(ids: NDArray[np.int32], begins: NDArray[np.integer], sizes: NDArray[np.integer]) -> NDArray[np.int32]:
    """Return the given stretches of a flat array, one after the other."""
    sizes = sizes.astype(np.int64)
    shift = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    return ids[shift + np.arange(len(shift))]


def tokenise_lines(
    text: Mapping[str, Sequence[str]], tokenizer: Tokenizer, workers: Workers
) -> dict[str, NDArray[np.int32]]:
    """Return each language's lines as one run of token ids, every line closed by `</s>` (or what ends a text)."""
    lines = [line for each in text.values() for line in each]
    parts = workers.map(_lines_chunk, lines, tokenizer)
    if not parts:
        return {language: np.empty(0, dtype=np.int32) for language in text}
    ids, lengths = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    runs, done = {}, 0
    for language, each in text.items():
        own = slice(done, done + len(each))
        runs[language] = segments(ids, starts[own] + 1, lengths[own] - 1)
        done += len(each)
    return runs


def _lines_chunk(
    number: int, lines: Sequence[str], tokenizer: str, extra: object
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return flat_ids(chunk_tokenizer(tokenizer).encode_batch_fast(list(lines)))


def tokenise_words(
    texts: Sequence[str], tokenizer: Tokenizer, workers: Workers
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Return ids of all texts, their lengths, and the number of the English word each token belongs to (-1 = none)."""
    parts = workers.map(_words_chunk, texts, tokenizer)
    ids, lengths, words = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return ids, lengths, words


def _words_chunk(
    number: int, texts: Sequence[str], tokenizer: str, extra: object
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    encoded = chunk_tokenizer(tokenizer).encode_batch(list(texts))
    ids, lengths = flat_ids(encoded)
    words = [english_words(text) for text in texts]
    rows = np.repeat(np.arange(len(texts)), [len(w) for w in words])
    word_of = np.full(len(ids), -1, dtype=np.int32)
    if len(rows):
        spans = token_spans(encoded, rows, np.array([span for w in words for span in w]))
        number_of = np.concatenate([np.arange(len(w)) for w in words])
        sizes = np.maximum(spans[:, 1] - spans[:, 0], 0)
        begins = (np.cumsum(lengths) - lengths)[rows] + spans[:, 0]
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        word_of[np.repeat(begins, sizes) + inside] = np.repeat(number_of, sizes)
    return ids, lengths, word_of


_parsed: tuple[str, Tokenizer] | None = None


def chunk_tokenizer(text: str) -> Tokenizer:
    """Return the tokenizer that `Workers.map` handed to a function; parsed once per process."""
    global _parsed
    if _parsed is None or _parsed[0] != text:
        _parsed = (text, Tokenizer.from_str(text))
    return _parsed[1]
