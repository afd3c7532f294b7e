"""Sets tokenised once per process: the seeds of a run, the runs of a sweep and evaluations share them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from crosslift.models.frozen import tokenizer_fingerprint
from crosslift.tasks.encoded import Encoded, Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Examples
    from crosslift.tasks import Task

LIMIT = 128 << 20
"""Bytes that are kept; the sets that were not asked for longest go first."""

_kept: OrderedDict[bytes, Encoded] = OrderedDict()
_fingerprints: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[int, str]] = WeakKeyDictionary()


def encode_once(task: Task, examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Encoded:
    """Return `task.encode(examples, tokenizer)`, made anew only if this process has not made it before.

    The arrays are shared by all who ask, so they cannot be written to.
    """
    key = _key(task, examples, tokenizer)
    encoded = _kept.get(key)
    if encoded is None:
        encoded = task.encode(examples, tokenizer)
        for array in _arrays(encoded):
            array.setflags(write=False)
        _kept[key] = encoded
        while sum(map(size, _kept.values())) > LIMIT:
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(key)
    return encoded


def size(encoded: Encoded) -> int:
    """Return the bytes of a tokenised set."""
    return sum(array.nbytes for array in _arrays(encoded))


def _key(task: Task, examples: Examples, tokenizer: PreTrainedTokenizerBase) -> bytes:
    """Return a digest of all that tokenising depends on; names and ids do not count."""
    pieces, known = _fingerprints.get(tokenizer, (-1, ""))
    if pieces != len(tokenizer):  # new, or pieces were added since
        pieces, known = _fingerprints[tokenizer] = len(tokenizer), tokenizer_fingerprint(tokenizer)
    digest = hashlib.blake2b(digest_size=16)
    where = (examples.kind, examples.language, examples.pair_language)
    for part in (known, tokenizer.truncation_side, repr(task), repr(where), repr(examples.labels)):
        digest.update(f"{len(part)} {part}".encode(errors="surrogatepass"))
    for texts in (examples.texts, examples.pairs or ()):
        digest.update(repr(len(texts)).encode())
        for text in texts:
            digest.update(f"{len(text)} {text}".encode(errors="surrogatepass"))
    for spans in examples.spans or ():
        digest.update(repr(spans.shape).encode() + np.ascontiguousarray(spans, dtype=np.int64).tobytes())
    return digest.digest()


def _arrays(encoded: Encoded) -> Iterator[NDArray[np.generic]]:
    yield encoded.example_of
    columns: tuple[Mapping[str, NDArray[np.int64] | Ragged], ...] = (encoded.inputs, encoded.targets, encoded.maps)
    for column in (column for named in columns for column in named.values()):
        yield from (column.values, column.starts) if isinstance(column, Ragged) else (column,)
