"""Tokenise much text in several processes, straight into flat arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

Item = TypeVar("Item")
Result = TypeVar("Result")

_CHUNK = 8_000


def map_chunks(
    function: Callable[[int, Sequence[Item], str, object], Result],
    items: Sequence[Item],
    tokenizer: Tokenizer,
    extra: object = None,
    processes: int | None = None,
) -> list[Result]:
    """Apply `function(number, chunk, tokenizer as JSON, extra)` to consecutive chunks; results are in order.

    Args:
        function: A module-level function.
        items: What is cut into chunks.
        tokenizer: Sent to each process once.
        extra: Anything else the function needs, sent once too.
        processes: Default: one per core; 1 stays in this process.
    """
    chunks = [(number, items[i : i + _CHUNK]) for number, i in enumerate(range(0, len(items), _CHUNK))]
    processes = min(processes or os.cpu_count() or 1, len(chunks))
    text = tokenizer.to_str()
    if processes <= 1:
        return [function(number, chunk, text, extra) for number, chunk in chunks]
    # A forked child of a process with running threads can hang; a spawned one starts clean.
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_open, initargs=(text, extra)) as pool:
        return list(pool.map(_run, [function] * len(chunks), *zip(*chunks, strict=True)))


_shared: tuple[str, object] = ("", None)


def _open(tokenizer: str, extra: object) -> None:
    global _shared
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process per core is enough
    _shared = (tokenizer, extra)


def _run(function: Callable[..., Result], number: int, chunk: Sequence[Item]) -> Result:
    return function(number, chunk, *_shared)


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


def tokenise_lines(lines: Sequence[str], tokenizer: Tokenizer, processes: int | None = None) -> NDArray[np.int32]:
    """Return all lines as one run of token ids, each line closed by `</s>` (or what ends a text)."""
    parts = map_chunks(_lines_chunk, lines, tokenizer, None, processes)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)


def _lines_chunk(number: int, lines: Sequence[str], tokenizer: str, extra: object) -> NDArray[np.int32]:
    ids, lengths = flat_ids(_tokenizer(tokenizer).encode_batch_fast(list(lines)))
    starts = np.cumsum(lengths) - lengths
    return np.delete(ids, starts)


_open_tokenizers: dict[int, Tokenizer] = {}


def _tokenizer(text: str) -> Tokenizer:
    """Return the tokenizer of a JSON text; parsed once per process."""
    if hash(text) not in _open_tokenizers:
        _open_tokenizers.clear()
        _open_tokenizers[hash(text)] = Tokenizer.from_str(text)
    return _open_tokenizers[hash(text)]


def chunk_tokenizer(text: str) -> Tokenizer:
    """Return the tokenizer that `map_chunks` handed to a function."""
    return _tokenizer(text)
