"""What a frozen model says about a text, computed once and memory-mapped.

A store holds the outputs of one model (by fingerprints of weights and tokenizer) of one kind. It is two files that only
grow: `values.bin`, rows of numbers, and `index.bin`, one record per text that says where its rows are. Values are on
the disk before the record that names them, and every record carries a check number; so a process that is killed, or a
machine that loses power, leaves a store that can be read, and the next writer cuts off what was left half-written.
Writers hold the store's lock while they compute, so that no text is computed twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crosslift.data.storage import write_json
from crosslift.data.words import ranges, row_starts
from crosslift.errors import BadInput, BrokenRun
from crosslift.tasks.encoded import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Floats = NDArray[np.floating]
Compute = Callable[[NDArray[np.int64]], Floats | Ragged]

LIMIT = 8 << 30
_RECORD = np.dtype([("key", "u1", 16), ("start", "<i8"), ("count", "<i8"), ("check", "<u8")])
_SALT = np.uint64(0x9E3779B97F4A7C15)
# Of a configuration: what does not change the outputs.
_NAMES_ONLY = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures")


def cache_folder() -> Path:
    """Return where frozen outputs are kept: `$CROSSLIFT_CACHE/frozen`, else `~/.cache/crosslift/frozen`."""
    home = os.environ.get("CROSSLIFT_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "crosslift"
    return Path(home).expanduser() / "frozen"


def weights_fingerprint(model: nn.Module) -> str:
    """Return a digest of a model's weights and, where it has one, its configuration."""
    digest = hashlib.blake2b(type(model).__name__.encode(), digest_size=16)
    config = getattr(model, "config", None)
    if config is not None:
        facts = {name: value for name, value in config.to_dict().items() if name not in _NAMES_ONLY}
        digest.update(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().to("cpu").contiguous().reshape(-1)
        digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a digest of a fast tokenizer: pieces, normaliser, special tokens."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    for setting in ("truncation", "padding"):  # set by whoever called it last
        content.pop(setting, None)
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def text_keys(texts: Sequence[str], *further: Sequence[object] | None) -> list[bytes]:
    """Return one key per text.

    Args:
        texts: What the model reads.
        further: What else the output depends on, one entry per text: second texts, word spans (arrays). `None` columns
            are left out.
    """
    columns = [column for column in further if column is not None]
    keys = []
    for row, text in enumerate(texts):
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16)
        for column in columns:
            value = column[row]
            content = value.tobytes() if isinstance(value, np.ndarray) else str(value).encode(errors="surrogatepass")
            digest.update(b"\x1f%d\x1f" % len(content) + content)
        keys.append(digest.digest())
    return keys


@dataclass(frozen=True)
class FrozenRows:
    """Stored outputs of some texts, read from the disk when they are asked for.

    Attributes:
        values: (rows, width) all rows of the store, memory-mapped.
        starts: (texts,) first row of each text.
        counts: (texts,) its number of rows: 1 for an output per text, or as many as it has words.
    """

    values: Floats
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, text: int) -> Floats:
        return self.values[self.starts[text] : self.starts[text] + self.counts[text]]

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return int(self.values.shape[1])

    def stack(self, texts: NDArray[np.integer]) -> Floats:
        """Return the single rows of some texts: (len(texts), width)."""
        if (self.counts[texts] != 1).any():
            raise ValueError("texts with several rows cannot be stacked; pad them")
        return np.asarray(self.values[self.starts[texts]])

    def flat(self, texts: NDArray[np.integer]) -> Floats:
        """Return all rows of some texts, one text after another: (sum of counts, width)."""
        return np.asarray(self.values[ranges(self.starts[texts], self.counts[texts])])

    def pad(self, texts: NDArray[np.integer], length: int | None = None, fill: float = 0.0) -> Floats:
        """Return the rows of some texts side by side: (len(texts), length, width), filled up with `fill`.

        Args:
            texts: Which texts.
            length: No text may have more rows; default: the most that one has.
            fill: What stands where a text has no row.
        """
        counts = self.counts[texts]
        length = int(counts.max(initial=0)) if length is None else length
        return Ragged(self.flat(texts), row_starts(counts)).pad(np.arange(len(counts)), length, fill)


class FrozenCache:
    """Stores of frozen outputs in one folder.

    Args:
        folder: Default: `cache_folder()`.
        limit: Most bytes of all stores together; when they would grow beyond it, those that were used longest ago
            are removed. Default: `$CROSSLIFT_CACHE_LIMIT`, else 8 GiB.
    """

    def __init__(self, folder: str | Path | None = None, limit: int | None = None) -> None:
        self.folder = Path(folder) if folder is not None else cache_folder()
        self.limit = int(os.environ.get("CROSSLIFT_CACHE_LIMIT", LIMIT)) if limit is None else limit

    def rows(
        self,
        keys: Sequence[bytes],
        compute: Compute,
        *,
        kind: str,
        model: str,
        tokenizer: str = "",
        width: int,
        dtype: type[np.floating] = np.float32,
        chunk: int = 2048,
        progress: Callable[[int], None] | None = None,
    ) -> FrozenRows:
        """Return the outputs of some texts; those that are not stored yet are computed and stored.

        Args:
            keys: One per text, from `text_keys`; equal keys are computed once.
            compute: Gets places in `keys` and returns their outputs, in order: a (places, width) array for one row
                per text, or `Ragged` rows of (count, width).
            kind: What the outputs are ("anchors-8"); another kind, another store.
            model: Fingerprint of the model.
            tokenizer: Fingerprint of its tokenizer.
            width: Numbers in a row.
            dtype: How they are stored.
            chunk: Texts per call of `compute`; each chunk is stored at once.
            progress: Told how many of the texts that were missing are done.
        """
        identity = {"kind": kind, "model": model, "tokenizer": tokenizer, "width": width, "dtype": np.dtype(dtype).name}
        digest = hashlib.blake2b(json.dumps(identity).encode(), digest_size=8).hexdigest()
        store = _Store(self.folder, f"{re.sub(r'[^a-z0-9]+', '-', kind.lower())}-{digest}", width, np.dtype(dtype))
        with _locked(store.use, fcntl.LOCK_SH):
            store.begin(identity)
            seen, known = _bytes_of(store.index), store.known()
            first = {key: place for place, key in reversed(list(enumerate(keys)))}
            missing = np.array(sorted(place for key, place in first.items() if key not in known), dtype=np.int64)
            for begin in range(0, len(missing), chunk):
                part = missing[begin : begin + chunk]
                with _locked(store.lock, fcntl.LOCK_EX):
                    if _bytes_of(store.index) != seen:  # another process has been here meanwhile
                        known = store.known()
                    part = np.array([place for place in part.tolist() if keys[place] not in known], dtype=np.int64)
                    if len(part):
                        values, counts = _checked(compute(part), len(part), width, np.dtype(dtype))
                        self._make_room(store, values.nbytes + len(part) * _RECORD.itemsize)
                        store.append([keys[place] for place in part.tolist()], counts, values)
                    seen = _bytes_of(store.index)
                if progress:
                    progress(min(begin + chunk, len(missing)))
            return store.open(keys)

    def size(self) -> int:
        """Return the bytes of all stores together."""
        return sum(store.size() for store in self._stores())

    def _stores(self) -> list[_Store]:
        return [_Store(self.folder, about.parent.name) for about in self.folder.glob("*/about.json")]

    def _make_room(self, own: _Store, needed: int) -> None:
        """Remove other stores, used longest ago first, until `needed` more bytes fit."""
        excess = self.size() + needed - self.limit
        others = [store for store in self._stores() if store.name != own.name]
        for store in sorted(others, key=lambda store: store.last_used()):
            if excess <= 0:
                return
            excess -= store.remove()
        if excess > 0:
            raise BadInput(
                f"The outputs to be kept in {self.folder} exceed its limit of {self.limit / 2**30:.1f} GiB.",
                "Set CROSSLIFT_CACHE_LIMIT to more bytes, use less text, or empty that folder.",
            )


class _Store:
    """One store on disk; its lock files lie outside, so that they outlive it."""

    def __init__(self, folder: Path, name: str, width: int = 1, dtype: np.dtype[np.floating] | None = None) -> None:
        self.name, self.width = name, width
        self.dtype = dtype or np.dtype(np.float32)
        self.path = folder / name
        self.values, self.index = self.path / "values.bin", self.path / "index.bin"
        self.lock, self.use = (folder / "locks" / f"{name}.{what}" for what in ("write", "use"))

    def begin(self, identity: dict[str, object]) -> None:
        """Make the store if it is not there, and note that it is used."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / "about.json").exists():
            write_json(self.path / "about.json", identity)
        os.utime(self.path / "about.json")

    def last_used(self) -> float:
        try:
            return (self.path / "about.json").stat().st_mtime
        except OSError:
            return 0.0

    def size(self) -> int:
        return sum(_bytes_of(file) for file in (self.values, self.index))

    def records(self) -> NDArray[np.void]:
        """Return the whole records of the index."""
        content = self.index.read_bytes() if self.index.exists() else b""
        records = np.frombuffer(content[: len(content) // _RECORD.itemsize * _RECORD.itemsize], dtype=_RECORD)
        whole = records[records["check"] == _checks(records)]
        there = _bytes_of(self.values) // (self.width * self.dtype.itemsize)
        present: NDArray[np.void] = whole[whole["start"] + whole["count"] <= there]
        return present

    def known(self) -> dict[bytes, int]:
        """Return key -> number of its record."""
        return _numbers(self.records())

    def append(self, keys: Sequence[bytes], counts: NDArray[np.int64], values: Floats) -> None:
        """Add texts with their rows; the caller holds the lock."""
        old = self.records()
        end = int((old["start"] + old["count"]).max(initial=0))
        new = np.zeros(len(keys), dtype=_RECORD)
        new["key"] = np.frombuffer(b"".join(keys), dtype="u1").reshape(-1, 16)
        new["start"] = end + row_starts(counts)[:-1]
        new["count"] = counts
        new["check"] = _checks(new)
        try:
            _write_at(self.values, end * self.width * self.dtype.itemsize, values.tobytes())
            _write_at(self.index, _bytes_of(self.index) // _RECORD.itemsize * _RECORD.itemsize, new.tobytes())
        except OSError as error:
            raise BrokenRun(
                f"{self.path} could not be written: {error.strerror or error}.",
                "What was there before is untouched. Free some space and start the same command again.",
            ) from error

    def open(self, keys: Sequence[bytes]) -> FrozenRows:
        """Map the values; all keys are there."""
        records = self.records()
        known = _numbers(records)
        found = records[np.fromiter((known[key] for key in keys), dtype=np.int64, count=len(keys))]
        total = int((found["start"] + found["count"]).max(initial=0))
        shape = (total, self.width)
        values = np.memmap(self.values, self.dtype, "r", shape=shape) if total else np.zeros(shape, self.dtype)
        return FrozenRows(values, found["start"].copy(), found["count"].copy())

    def remove(self) -> int:
        """Delete the store unless a process is at it; return the bytes freed."""
        with _locked(self.use, fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
            if not alone:
                return 0
            freed = self.size()
            shutil.rmtree(self.path, ignore_errors=True)
            return freed


@contextmanager
def _locked(file: Path, how: int) -> Iterator[bool]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, how)
        except OSError:
            yield False
        else:
            yield True


def _write_at(file: Path, place: int, content: bytes) -> None:
    """Write at a place and cut off whatever a killed writer left behind it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+b") as handle:
        handle.truncate(place)
        handle.seek(place)
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def _numbers(records: NDArray[np.void]) -> dict[bytes, int]:
    raw = records["key"].tobytes()
    return {raw[i : i + 16]: i // 16 for i in range(0, len(raw), 16)}


def _bytes_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _checks(records: NDArray[np.void]) -> NDArray[np.uint64]:
    """Return (records,) check numbers; a record of zeros fails its own."""
    halves = np.ascontiguousarray(records["key"]).view("<u8").reshape(len(records), 2)
    place, count = (records[name].astype(np.uint64) for name in ("start", "count"))
    mixed: NDArray[np.uint64] = (halves[:, 0] ^ (halves[:, 1] * _SALT) ^ (place * _SALT) ^ ~count) + _SALT
    return mixed


def _checked(
    output: Floats | Ragged, texts: int, width: int, dtype: np.dtype[np.floating]
) -> tuple[Floats, NDArray[np.int64]]:
    """Return rows and counts of what `compute` gave, in the type of the store."""
    values = output.values if isinstance(output, Ragged) else np.asarray(output)
    counts = output.lengths() if isinstance(output, Ragged) else np.ones(len(values), dtype=np.int64)
    if values.shape != (int(counts.sum()), width) or len(counts) != texts:
        raise ValueError(
            f"outputs of {texts} texts have shape {values.shape}, not (…, {width}), for {len(counts)} texts"
        )
    return np.ascontiguousarray(values, dtype=dtype), counts.astype(np.int64)
