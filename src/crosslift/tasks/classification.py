"""One class per text, or per pair of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.tasks import encoded as enc
from crosslift.tasks.encoded import IGNORED, Encoded, Kept, Prediction, Rows
from crosslift.tasks.metrics import Metric, accuracy, macro_f1

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

    from crosslift.data.examples import Examples


@dataclass(frozen=True)
class Classification:
    """One class per text, or per pair of texts.

    Attributes:
        labels: Class names, in the order of the model's outputs.
        max_length: Most tokens of a row; of a pair the longer text is shortened first.
    """

    labels: tuple[str, ...]
    max_length: int = 128

    kind: ClassVar[str] = "classification"

    def encode(self, examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Encoded:
        """Tokenise a set; labels become their numbers, unknown ones -100."""
        encoding = enc.tokenize(
            tokenizer, examples.texts, examples.pairs, max_length=self.max_length, truncation="longest_first"
        )
        return self.encoded(encoding, examples)

    def encoded(self, encoding: BatchEncoding, examples: Examples) -> Encoded:
        """Return a set that is tokenised already."""
        targets = {}
        if examples.labels is not None:
            labels = np.full(len(examples), IGNORED, dtype=np.int64)
            known = [i for i, label in enumerate(examples.labels) if label is not None]
            names = [cast("str", examples.labels[i]) for i in known]
            labels[known] = enc.label_index(names, self.labels, examples)
            targets["labels"] = labels
        rows = np.arange(len(examples), dtype=np.int32)
        return Encoded(enc.model_inputs(encoding), rows, targets)

    def collate(self, encoded: Encoded, rows: Rows, pad_id: int, pad_to: int = 8) -> dict[str, torch.Tensor]:
        """Make one batch of some rows; see `encoded.collate`."""
        return enc.collate(encoded, rows, pad_id, pad_to)

    def units(self, encoded: Encoded, rows: Rows) -> NDArray[np.int64]:
        """Return the loss units of each row: 1, or 0 where the label is unknown."""
        if "labels" not in encoded.targets:
            return np.ones(len(rows), dtype=np.int64)
        labels = cast("NDArray[np.int64]", encoded.targets["labels"])
        return np.not_equal(labels[rows], IGNORED).astype(np.int64)

    def loss(self, logits: Mapping[str, torch.Tensor], batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the cross-entropy, averaged over the labelled rows; `logits` are (batch, classes)."""
        return enc.mean_cross_entropy(logits["logits"], batch["labels"])

    def keep(self, outputs: Mapping[str, torch.Tensor], encoded: Encoded, rows: Rows) -> list[Kept]:
        """Return the logits of each row, on the host: `logits` (classes,)."""
        logits = outputs["logits"].detach().float().cpu().numpy()
        return [{"logits": row} for row in logits]

    def decode(self, kept: Sequence[Kept], encoded: Encoded, examples: Examples) -> list[Prediction]:
        """Return the likeliest class of each example and the probability of every class."""
        logits = np.stack([row["logits"] for row in kept]).astype(np.float64)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        best = logits.argmax(axis=1)
        return [
            {
                "id": id_,
                "prediction": self.labels[winner],
                "probabilities": dict(zip(self.labels, row, strict=True)),
            }
            for id_, winner, row in zip(examples.ids, best, shares.round(5).tolist(), strict=True)
        ]

    def metrics(self, examples: Examples, predictions: Sequence[Prediction]) -> dict[str, Metric]:
        """Return accuracy and macro F1; a gold class the model does not know is always missed."""
        gold = cast("Sequence[str | None] | None", examples.labels)
        pred = [cast("str", prediction["prediction"]) for prediction in predictions]
        main = accuracy(gold, pred)
        classes = tuple(dict.fromkeys((*self.labels, *examples.label_names(), *pred)))
        scores = [main, macro_f1(gold, pred, classes)]
        return {score.name: score for score in scores}
