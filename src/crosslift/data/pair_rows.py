"""Sentence pairs on the device, drawn by language and length.

All pairs of one step come from one group (a language) and one length class: so nothing is gained by telling
languages apart, and little is padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crosslift.data.streams import Rows
from crosslift.errors import BadInput


@dataclass(frozen=True)
class PairRows:
    """Tokenised pairs on the device, and which of them belong together.

    Attributes:
        left: Rows of the anchor's side.
        right: Rows of the other side.
        anchors: (pairs,) number of the text whose teacher vector both sides learn.
        spans: (pairs, LINKS, 4) first and stop token of linked words, left then right.
        words: (pairs, LINKS) row of the linked word in the teacher's word vectors; -1 = no link.
        pools: Group and length class -> (members,) pair numbers; `length` is the padded length of the class.
        weights: Probability of each pool.
    """

    left: Rows
    right: Rows
    anchors: Tensor
    spans: Tensor
    words: Tensor
    pools: tuple[tuple[str, int, Tensor], ...]
    weights: NDArray[np.float64]

    def draw(self, seed: int, step: int, tokens: int, generator: torch.Generator) -> tuple[int, Tensor]:
        """Draw the pairs of a step, all from one pool.

        Args:
            seed: Draws the pool, together with the step: the same one in every process.
            step: The step.
            tokens: Padded tokens per side; gives the number of pairs.
            generator: Draws the pairs.

        Returns:
            The padded length, and (pairs,) pair numbers.
        """
        choice = int(np.random.default_rng([seed, step]).choice(len(self.pools), p=self.weights))
        _, length, members = self.pools[choice]
        count = max(2, tokens // length)
        count -= count % 8 if count > 64 else 0  # even sizes run faster
        drawn = torch.randint(len(members), (count,), generator=generator, device=members.device)
        return length, members[drawn]


def pools_of(
    groups: Mapping[str, NDArray[np.int64]],
    lengths: NDArray[np.int64],
    classes: Sequence[int],
    shares: Mapping[str, float],
    exponent: float,
) -> tuple[list[tuple[str, int, NDArray[np.int64]]], NDArray[np.float64]]:
    """Sort pairs into pools by group and length class, with the probability of each.

    Args:
        groups: `kind/language` -> pair numbers.
        lengths: (pairs,) tokens of the longer side.
        classes: Padded lengths, ascending; longer pairs are cut to the last.
        shares: Kind -> its share of the steps; inside a kind, languages go by size ** `exponent`.
        exponent: See `shares`; inside a language, length classes go by their number of tokens.
    """
    pools, weights = [], []
    kinds = {name.split("/")[0] for name in groups}
    per_kind = {k: sum(len(m) ** exponent for name, m in groups.items() if name.split("/")[0] == k) for k in kinds}
    total = sum(shares.get(kind, 0.0) for kind in kinds)
    if total <= 0:
        raise BadInput("No kind of pair has a share above 0.")
    for name, members in groups.items():
        kind = name.split("/")[0]
        of_group = shares.get(kind, 0.0) / total * len(members) ** exponent / per_kind[kind]
        class_of = np.minimum(np.searchsorted(classes, lengths[members]), len(classes) - 1)
        sizes = np.array([classes[c] * (class_of == c).sum() for c in range(len(classes))], dtype=float)
        for number, length in enumerate(classes):
            inside = members[class_of == number]
            if len(inside) and of_group > 0:
                pools.append((name, length, inside))
                weights.append(of_group * sizes[number] / sizes.sum())
    return pools, np.array(weights) / np.sum(weights)
