"""Predict with an exported model: needs onnxruntime, tokenizers and numpy alone, nothing of crosslift or torch.

echo "wake me at seven" | python predict.py            # one JSON line per text
echo "wake me at seven" | python predict.py model.int8.onnx
"""

import json
import sys
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession
from tokenizers import Tokenizer


class Predictor:
    """The model of a folder.

    Args:
        folder: Where the files are.
        file: Which model.
        max_length: Most tokens of a text.
    """

    def __init__(self, folder: Path, file: str = "model.onnx", max_length: int = 128) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.labels = [config["id2label"][str(i)] for i in range(len(config["id2label"]))]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(max_length)
        self.tokenizer.enable_padding(pad_id=config["pad_token_id"])
        self.session = InferenceSession(str(folder / file), providers=["CPUExecutionProvider"])

    def __call__(self, texts: list[str]) -> list[dict[str, object]]:
        """Return the likeliest label of each text and all probabilities, or a label for every piece."""
        encoded = self.tokenizer.encode_batch(texts)
        ids = np.array([e.ids for e in encoded], dtype=np.int64)
        mask = np.array([e.attention_mask for e in encoded], dtype=np.int64)
        (logits, *_) = self.session.run(None, {"input_ids": ids, "attention_mask": mask})
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


if __name__ == "__main__":
    predictor = Predictor(Path(__file__).parent, sys.argv[1] if len(sys.argv) > 1 else "model.onnx")
    for answer in predictor([line.rstrip("\n") for line in sys.stdin]):
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
