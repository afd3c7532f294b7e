"""How well a masked LM predicts hidden pieces of text it was not trained on, and whether it learnt at all.

Here every chosen piece is replaced by the mask token. In training a tenth of them stays visible, and a model that
copies those and knows nothing else would already look a tenth better than piece frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from crosslift.data.streams import framed, unigram_loss
from crosslift.methods.pretrain import Pretrainer, at_places
from crosslift.runs.pretrain_data import Prepared
from crosslift.runs.progress import Watch
from crosslift.runs.timed_work import TimedWork

if TYPE_CHECKING:
    from numpy.typing import NDArray

STUCK = (
    "The masked LM predicts no better than piece frequencies: the encoder has not begun to learn from context.\n"
    "  Train for more steps, lower --learning-rate, raise --warmup, start from a trained encoder (--body, --from),\n"
    "  or give a teacher (--teacher): its sentence loss pulls the encoder off this plateau."
)
_STUCK_RATIO = 0.93  # of the loss of piece frequencies


class HeldOut:
    """Held-out loss of the masked LM, by language, beside that of piece frequencies.

    Args:
        work: The run's batches: gives special ids, device, and the step it is at.
        data: Training and held-out windows.
        warmup: Share of the steps in which the rate rises; early on, no run is called stuck.
        watch: Who is told.
    """

    def __init__(self, work: TimedWork, data: Prepared, warmup: float, watch: Watch) -> None:
        self.work, self.watch, self.held_out = work, watch, data.held_out
        special = work.special
        self.frequencies = {
            name: unigram_loss(data.training[name], windows, work.vocabulary, special)
            for name, windows in data.held_out.items()
        }
        self.commonest = {name: _commonest(data.training[name], data.held_out[name], special) for name in data.held_out}
        self.warned = False
        self.early = int(max(0.15, 2 * warmup) * work.steps)

    def __call__(self, module: nn.Module) -> dict[str, float]:
        """Return mean accuracy first (higher is better), then mean loss and the losses by language."""
        by_language = self.by_language(module)
        mean = {k: float(np.mean([v[k] for v in by_language.values()])) for k in ("accuracy", "loss", "unigram_loss")}
        self.watch.say(
            f"held out  loss {mean['loss']:.3f} (piece frequencies {mean['unigram_loss']:.3f}), "
            f"{mean['accuracy']:.1f}% of hidden pieces right"
        )
        if self.work.at > self.early and is_stuck(by_language):
            self.warn()
        losses = {f"loss_{language}": scores["loss"] for language, scores in by_language.items()}
        return {"accuracy": mean["accuracy"], "loss": mean["loss"], **losses}

    @torch.no_grad()
    def by_language(self, module: nn.Module) -> dict[str, dict[str, float]]:
        """Return language -> loss (nats) and accuracy (%) of hidden pieces, and those of piece frequencies."""
        assert isinstance(module, Pretrainer)
        module.eval()
        found = {}
        for name, windows in self.held_out.items():
            loss, right = self._score(module, windows)
            found[name] = {
                "loss": loss,
                "accuracy": 100 * right,
                "unigram_loss": self.frequencies[name],
                "unigram_accuracy": 100 * self.commonest[name],
            }
        return found

    def _score(self, module: Pretrainer, windows: NDArray[np.integer]) -> tuple[float, float]:
        work = self.work
        generator = torch.Generator(work.device).manual_seed(0)  # the same pieces are hidden every time
        ids = framed(torch.from_numpy(windows.astype(np.int64)).to(work.device), work.first, work.last)
        hidden = work.mask(ids, generator)
        shown = all_hidden(ids, hidden.places, hidden.targets, work.mask_id)
        with torch.compiler.set_stance("force_eager"):  # these shapes occur only here
            states = module.states(shown, None, None)
        logits = module.lm_head(at_places(states, hidden.places)).float()
        targets = hidden.targets.flatten()
        loss = cross_entropy(logits, targets, ignore_index=-100)
        real = targets != -100
        return float(loss), float((logits.argmax(-1) == targets)[real].float().mean())

    def warn(self) -> None:
        """Say once that the run is stuck."""
        if not self.warned:
            self.watch.say(STUCK)
        self.warned = True


def is_stuck(by_language: Mapping[str, Mapping[str, float]]) -> bool:
    """Return whether the loss is at the level of piece frequencies."""
    if not by_language:
        return False
    ratios = [scores["loss"] / max(scores["unigram_loss"], 1e-9) for scores in by_language.values()]
    return bool(np.mean(ratios) > _STUCK_RATIO)


def all_hidden(ids: Tensor, places: Tensor, targets: Tensor, mask_id: int) -> Tensor:
    """Return (rows, length) ids with the mask token at each of (rows, hidden) places whose target is not -100."""
    shown = torch.where(targets == -100, ids.gather(1, places), mask_id)
    return ids.scatter(1, places, shown)


def _commonest(train: NDArray[np.integer], held: NDArray[np.integer], special: Sequence[int]) -> float:
    """Return how often the commonest piece of the training text is right."""
    counts = np.bincount(train.ravel())
    counts[[i for i in special if i < len(counts)]] = 0
    tokens = held[~np.isin(held, list(special))]
    return float((tokens == counts.argmax()).mean())
