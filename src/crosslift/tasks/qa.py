"""Extractive question answering: the answer is a span of the context.

A context that does not fit into `max_length` tokens beside its question gives several rows that overlap by
`stride` tokens. The best span of all rows of a question is its answer, cut out of the context by characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.data.words import TokenSpans, token_spans, word_maps
from crosslift.errors import BadInput
from crosslift.tasks import encoded as enc
from crosslift.tasks.encoded import IGNORED, Encoded, Kept, Prediction, Ragged, Rows
from crosslift.tasks.metrics import Metric, answer_f1, exact_match

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Answer, Examples

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class QuestionAnswering:
    """Extractive question answering.

    Attributes:
        max_length: Most tokens of a row: question, context and special tokens.
        stride: Tokens of context that neighbouring rows of one question share.
        max_answer_length: Most tokens of an answer.
        n_best: How many answers per question are reported.
        no_answer_threshold: The question is left unanswered if the score of "no answer" exceeds that of the
            best span by more than this; `None`: every question is answered.
        normaliser: How answers are compared: `squad`, `mlqa` or `unicode` (see `answers`).
    """

    max_length: int = 384
    stride: int = 128
    max_answer_length: int = 30
    n_best: int = 5
    no_answer_threshold: float | None = None
    normaliser: str = "squad"

    kind: ClassVar[str] = "qa"
    labels: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.max_length - self.stride < 16:
            raise BadInput(
                f"stride {self.stride} leaves too little of max_length {self.max_length}.",
                "Make max_length at least 16 tokens longer than stride.",
            )

    def encode(self, examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Encoded:
        """Tokenise a set.

        Targets: `start_positions` and `end_positions`, the first and last token of the first gold answer; 0
        (the row's first token) where the row does not hold it whole or there is none; -100 where unknown.
        Maps, one entry per token: `offsets` (characters of the context) and `answerable` (whether an answer
        may start or end there).
        """
        if examples.pairs is None:
            raise BadInput(f"{examples.name or 'examples'}: question answering needs contexts.")
        encoding = enc.tokenize(
            tokenizer,
            _shortened(examples.texts, tokenizer, (self.max_length - self.stride) // 2),
            examples.pairs,
            max_length=self.max_length,
            truncation="only_second",
            stride=self.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        tokens = token_spans(encoding, tokenizer)
        example_of = np.array(encoding["overflow_to_sample_mapping"], dtype=np.int32)
        offsets = np.stack([tokens.begin, tokens.end], axis=1)
        maps = {
            "offsets": Ragged(offsets, tokens.starts),
            "answerable": Ragged(tokens.has_text(1), tokens.starts),
        }
        targets = _targets(examples, tokens, example_of) if examples.labels is not None else {}
        return Encoded(enc.model_inputs(encoding), example_of, targets, maps)

    def collate(self, encoded: Encoded, rows: Rows, pad_id: int, pad_to: int = 8) -> dict[str, torch.Tensor]:
        """Make one batch of some rows; see `encoded.collate`."""
        return enc.collate(encoded, rows, pad_id, pad_to)

    def units(self, encoded: Encoded, rows: Rows) -> Ints:
        """Return the loss units of each row: 1, or 0 where the answer is unknown."""
        if "start_positions" not in encoded.targets:
            return np.ones(len(rows), dtype=np.int64)
        start = cast("Ints", encoded.targets["start_positions"])
        return np.not_equal(start[rows], IGNORED).astype(np.int64)

    def loss(self, logits: Mapping[str, torch.Tensor], batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the mean of the cross-entropies of start and end, averaged over the rows with known answers.

        `start_logits` and `end_logits` are (batch, length); padding is no candidate.
        """
        padding = batch["attention_mask"] == 0
        lowest = torch.finfo(torch.float32).min
        sides = [
            enc.mean_cross_entropy(
                logits[f"{side}_logits"].float().masked_fill(padding, lowest), batch[f"{side}_positions"]
            )
            for side in ("start", "end")
        ]
        return (sides[0] + sides[1]) / 2

    def keep(self, outputs: Mapping[str, torch.Tensor], encoded: Encoded, rows: Rows) -> list[Kept]:
        """Return the logits of each row's tokens, on the host: `start` and `end` (length,)."""
        both = torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=1).detach().float()
        lengths = encoded.lengths()[rows]
        return [
            {"start": start[:length], "end": end[:length]}
            for (start, end), length in zip(both.cpu().numpy(), lengths, strict=True)
        ]

    def decode(self, kept: Sequence[Kept], encoded: Encoded, examples: Examples) -> list[Prediction]:
        """Return the answer to each question, where it starts (characters), its score and the n best.

        A score is the sum of the start and the end logit. `start` is -1 where there is no answer.
        """
        contexts = cast("Sequence[str]", examples.pairs)
        no_answer = np.full(len(examples), np.inf)
        at_first = np.array([row["start"][0] + row["end"][0] for row in kept], dtype=np.float64)
        # A question has no answer only if none of its rows has one: the smallest score counts.
        np.minimum.at(no_answer, encoded.example_of, at_first)
        example, begin, end, score = self._best_spans(kept, encoded)
        bounds = np.searchsorted(example, np.arange(len(examples) + 1))
        predictions: list[Prediction] = []
        for i, id_ in enumerate(examples.ids):
            part = slice(bounds[i], bounds[i + 1])
            spans = zip(begin[part].tolist(), end[part].tolist(), score[part].tolist(), strict=True)
            best = _texts(contexts[i], spans)[: self.n_best]
            top = cast("float", best[0]["score"]) if best else -np.inf
            threshold = self.no_answer_threshold
            unanswered = not best or (threshold is not None and no_answer[i] - top > threshold)
            answer = {"text": "", "start": -1, "score": round(float(no_answer[i]), 4)} if unanswered else best[0]
            predictions.append(
                {
                    "id": id_,
                    "prediction": answer["text"],
                    "start": answer["start"],
                    "score": answer["score"],
                    "no_answer_score": round(float(no_answer[i]), 4),
                    "nbest": best,
                }
            )
        return predictions

    def _best_spans(
        self, kept: Sequence[Kept], encoded: Encoded
    ) -> tuple[Ints, NDArray[np.int32], NDArray[np.int32], Floats]:
        """Return example, character span and score of the best spans, best first within each example."""
        offsets, answerable = encoded.maps["offsets"], encoded.maps["answerable"]
        wanted = 2 * self.n_best
        found: list[tuple[Ints, Ints, Ints, Floats]] = []
        # Some rows at a time: start × length of the answer is a table of length × max_answer_length per row.
        for at in range(0, len(kept), 128):
            rows = np.arange(at, min(at + 128, len(kept)))
            length = int(encoded.lengths()[rows].max())
            allowed = answerable.pad(rows, length, False)
            start, end = (_padded([kept[row][side] for row in rows.tolist()], length) for side in ("start", "end"))
            start[~allowed] = end[~allowed] = -np.inf
            picked, first, last, score = best_pairs(start, end, self.max_answer_length, wanted)
            found.append((rows[picked], first, last, score))
        row, first, last, score = (np.concatenate(parts) for parts in zip(*found, strict=True))
        begin = offsets.values[offsets.starts[row] + first, 0]
        end_ = offsets.values[offsets.starts[row] + last, 1]
        example = encoded.example_of[row].astype(np.int64)
        order = np.lexsort((begin, -score, example))
        return example[order], begin[order], end_[order], score[order]

    def metrics(self, examples: Examples, predictions: Sequence[Prediction]) -> dict[str, Metric]:
        """Return answer F1 and exact match, compared by `normaliser` in the language of the contexts."""
        gold = cast("Sequence[Sequence[Answer] | None] | None", examples.labels)
        pred = [cast("str", prediction["prediction"]) for prediction in predictions]
        language = examples.pair_language or examples.language
        scores = [measure(gold, pred, self.normaliser, language) for measure in (answer_f1, exact_match)]
        return {score.name: score for score in scores}


def best_pairs(start: Floats, end: Floats, longest: int, count: int) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the best pairs of start and end of each row, over all pairs that are allowed.

    Args:
        start: (rows, length) start scores; -inf where no span may start.
        end: (rows, length) end scores; -inf where no span may end.
        longest: Most tokens of a span, both ends included.
        count: How many pairs per row.

    Returns:
        Row, start, end and summed score of each pair: (pairs,) each. Pairs of -inf are left out.
    """
    rows, length = start.shape
    longest = min(longest, length)
    ends = np.pad(end, ((0, 0), (0, longest - 1)), constant_values=-np.inf)
    shifted = np.lib.stride_tricks.sliding_window_view(ends, longest, axis=1)
    scores = (start[:, :, None] + shifted).reshape(rows, length * longest)
    count = min(count, scores.shape[1])
    top = np.argpartition(-scores, count - 1, axis=1)[:, :count].ravel()
    row = np.repeat(np.arange(rows), count)
    score = scores[row, top]
    allowed = score > -np.inf
    row, top = row[allowed], top[allowed]
    return row, top // longest, top // longest + top % longest, score[allowed]


def _padded(rows: Sequence[Floats], length: int) -> Floats:
    ragged = Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
    return ragged.pad(np.arange(len(rows)), length, -np.inf)


def _texts(context: str, spans: Iterable[tuple[int, int, float]]) -> list[dict[str, object]]:
    """Cut spans out of a context, without white space around them, each once."""
    seen: dict[tuple[int, int], dict[str, object]] = {}
    for begin, end, score in spans:
        text = context[begin:end].strip()
        begin += len(context[begin:end]) - len(context[begin:end].lstrip())
        if text and (begin, len(text)) not in seen:
            seen[begin, len(text)] = {"text": text, "start": begin, "score": round(score, 4)}
    return list(seen.values())


def _shortened(questions: Sequence[str], tokenizer: PreTrainedTokenizerBase, most: int) -> list[str]:
    """Cut questions of more than `most` tokens, so that every row has room for context."""
    questions = list(questions)
    # A token stands for a byte or more, but for the mark before the text.
    long = [i for i, question in enumerate(questions) if len(question.encode(errors="replace")) >= most]
    if long:
        encoding = enc.tokenize(
            tokenizer,
            [questions[i] for i in long],
            max_length=most,
            truncation=True,
            add_special_tokens=False,
            return_offsets_mapping=True,
        )
        for i, ids, offsets in zip(long, encoding["input_ids"], encoding["offset_mapping"], strict=True):
            if len(ids) == most:
                questions[i] = questions[i][: offsets[-1][1]]
    return questions


def _targets(examples: Examples, tokens: TokenSpans, example_of: NDArray[np.int32]) -> dict[str, Ints]:
    """Return the first and last token of the first gold answer in each row."""
    contexts, labels = cast("Sequence[str]", examples.pairs), examples.labels or ()
    answers = [cast("Sequence[Answer] | None", label) for label in labels]
    spans = np.zeros((len(examples), 1, 2), dtype=np.int32)
    for i, gold in enumerate(answers):
        if gold:
            spans[i, 0] = gold[0].start, gold[0].start + len(gold[0].text)
            if not 0 <= gold[0].start < spans[i, 0, 1] <= len(contexts[i]):
                raise BadInput(
                    f'Question "{examples.ids[i]}": the answer "{gold[0].text}" at character {gold[0].start} '
                    "is not inside its context.",
                    "Give answer_start in characters, counted from 0.",
                )
    maps = word_maps(tokens, list(spans), sequence=1, example_of=example_of)
    # A row of context is cut off on the side where a neighbouring row goes on.
    context = np.flatnonzero(tokens.sequence == 1)
    begins = np.searchsorted(context, tokens.starts[:-1])
    ends = np.searchsorted(context, tokens.starts[1:])
    filled = begins < ends
    left, right = np.zeros(len(example_of)), np.full(len(example_of), np.inf)
    left[filled] = tokens.begin[context[begins[filled]]]
    right[filled] = tokens.end[context[ends[filled] - 1]]
    left[np.append(True, example_of[1:] != example_of[:-1])] = 0
    right[np.append(example_of[1:] != example_of[:-1], True)] = np.inf
    gold_span = spans[example_of, 0]
    whole = (maps.first >= 0) & (gold_span[:, 0] >= left) & (gold_span[:, 1] <= right)
    unknown = np.array([gold is None for gold in answers])[example_of]
    return {
        "start_positions": np.where(unknown, IGNORED, np.where(whole, maps.first, 0)).astype(np.int64),
        "end_positions": np.where(unknown, IGNORED, np.where(whole, maps.stop - 1, 0)).astype(np.int64),
    }
