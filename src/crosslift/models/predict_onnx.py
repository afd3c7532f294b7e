"""Predict with an exported model: needs onnxruntime, tokenizers and numpy alone, nothing of crosslift or torch.

echo "wake me at seven" | python predict.py            # one JSON line per text
echo "wake me at seven" | python predict.py model.int8.onnx

Two texts, such as a question and its context, are separated by a tab.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from tokenizers import Encoding, Tokenizer

LONGEST_ANSWER = 30  # tokens


class Predictor:
    """The model of a folder.

    Args:
        folder: Where the files are.
        file: Which model.
        max_length: Most tokens of a text; default: 128, for question answering 384; never more than the model can read.
    """

    def __init__(self, folder: Path, file: str = "model.onnx", max_length: int | None = None) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        names = config.get("id2label", {})  # question answering has none
        self.labels = [names[str(i)] for i in range(len(names))]
        self.session = InferenceSession(str(folder / file), providers=["CPUExecutionProvider"])
        self.answers = len(self.session.get_outputs()) == 2
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        longest = min(max_length or (384 if self.answers else 128), settings.get("model_max_length") or 512)
        self.tokenizer.enable_truncation(longest, strategy="only_second" if self.answers else "longest_first")
        self.tokenizer.enable_padding(pad_id=config["pad_token_id"])

    def __call__(self, texts: Sequence[str | tuple[str, str]]) -> list[dict[str, object]]:
        """Return for each text the likeliest label with all probabilities, a label for every piece, or the answer."""
        encoded = self.tokenizer.encode_batch(list(texts))
        columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        wanted = [given.name for given in self.session.get_inputs()]
        given = {name: np.array([getattr(e, columns[name]) for e in encoded], dtype=np.int64) for name in wanted}
        logits, *ends = self.session.run(None, given)
        if self.answers:
            return [_answer(*row) for row in zip(texts, encoded, logits, ends[0], strict=True)]
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        best = shares.argmax(-1)
        if logits.ndim == 2:
            return [
                {
                    "prediction": self.labels[i],
                    "probabilities": dict(zip(self.labels, row.round(5).tolist(), strict=True)),
                }
                for i, row in zip(best.tolist(), shares, strict=True)
            ]
        return [
            {"pieces": [(text[a:b], self.labels[i]) for (a, b), i in zip(e.offsets, row, strict=True) if b > a]}
            for text, e, row in zip(texts, encoded, best.tolist(), strict=True)
        ]


def _answer(
    pair: str | tuple[str, str], encoding: Encoding, start: NDArray[np.float32], end: NDArray[np.float32]
) -> dict[str, object]:
    """Return the likeliest stretch of the context."""
    if isinstance(pair, str):
        sys.exit(f"Give a question, a tab and its context, not: {pair}")
    # Pieces of the context; some stand for a space alone and have no text.
    places = zip(encoding.sequence_ids, encoding.offsets, strict=True)
    inside = np.array([sequence == 1 and b > a for sequence, (a, b) in places])
    if not inside.any():
        return {"prediction": ""}
    scores = np.where(inside, start, -np.inf)[:, None] + np.where(inside, end, -np.inf)
    in_order = np.triu(np.tril(np.ones_like(scores), LONGEST_ANSWER - 1)) > 0
    first, last = np.unravel_index(np.where(in_order, scores, -np.inf).argmax(), scores.shape)
    begin, stop = encoding.offsets[first][0], encoding.offsets[last][1]
    return {"prediction": pair[1][begin:stop].strip(), "start": begin}


if __name__ == "__main__":
    predictor = Predictor(Path(__file__).parent, sys.argv[1] if len(sys.argv) > 1 else "model.onnx")
    lines = [line.rstrip("\n") for line in sys.stdin]
    for answer in predictor([tuple(line.split("\t", 1)) if "\t" in line else line for line in lines]):
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
