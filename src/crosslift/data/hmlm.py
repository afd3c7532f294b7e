"""Heterogeneous masked LM (PlugIn-X, Chi et al. 2023): text in one vocabulary, hidden pieces in another.

A text is cut by the monolingual vocabulary; 15% of its pieces are hidden, each behind one mask; what lies between
the masks is cut again by the multilingual vocabulary. Inside a word the multilingual pieces carry no word mark.

Both vocabularies cut word by word, so a word and a stretch of its monolingual pieces always give the same
multilingual pieces. `WordPieces` holds them all (a word of n pieces has n (n + 1) / 2 stretches). Fresh masks then
cost no tokenising: a step looks stretches up, with a fixed number of array operations, on the CPU or on the GPU.

Departures, where the paper is silent: all chosen pieces are masked (none kept, none replaced: one mask, one label);
a piece that is part of a character is never chosen; every word is taken with a space before it, also the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from crosslift.data.word_pieces import WordPieces
from crosslift.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Rows:
    """Rows of a step, as a model reads them.

    Attributes:
        ids: (rows, length) multilingual ids, framed by the first and the closing token.
        mask: (rows, length) 1 = a real token; `None` where every row is full.
        places: (hidden,) where the masks with a label are, in the flattened rows.
        labels: (hidden,) monolingual id behind each of them.
        mono_ids: (rows, length') the same text, masked alike, in monolingual ids.
        mono_mask: (rows, length') 1 = a real token.
        words: (rows, length) number of the word that each token belongs to, from 1; 0 = none or not in both.
        mono_words: (rows, length') likewise.
        count: How many words there are.
    """

    ids: Tensor
    mask: Tensor | None
    places: Tensor
    labels: Tensor
    mono_ids: Tensor | None = None
    mono_mask: Tensor | None = None
    words: Tensor | None = None
    mono_words: Tensor | None = None
    count: int = 0


@dataclass(frozen=True)
class Frame:
    """Special ids of both vocabularies: first, closing, padding and mask."""

    first: int
    last: int
    pad: int
    mask: int
    mono_first: int
    mono_last: int
    mono_pad: int
    mono_mask: int

    @staticmethod
    def of(multi: PreTrainedTokenizerBase, mono: PreTrainedTokenizerBase) -> Frame:
        """Read them off two tokenizers."""
        ids = []
        for tokenizer in (multi, mono):
            named = {
                "cls_token": tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id,
                "sep_token": tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id,
                "pad_token": tokenizer.pad_token_id,
                "mask_token": tokenizer.mask_token_id,
            }
            missing = [name for name, found in named.items() if found is None]
            if missing:
                raise BadInput(f"The tokenizer of {tokenizer.name_or_path} has no {missing[0]}.")
            ids += [int(found) for found in named.values() if found is not None]
        return Frame(*ids)


def hmlm_rows(
    pieces: WordPieces,
    numbers: Tensor,
    counts: Tensor,
    places: Tensor,
    frame: Frame,
    *,
    length: int,
    rate: float,
    seed: int,
    full: bool,
    mono_length: int = 0,
) -> Rows:
    """Mask words of a text and lay them out in rows.

    Args:
        pieces: Tables of both vocabularies.
        numbers: (words,) the words of all rows, one after the other.
        counts: (rows,) words of each row.
        places: (words,) where each word stands in the whole text: with `seed`, it decides what is masked.
        frame: Special ids.
        length: Tokens per row, specials included; what does not fit is left out, with its masks and labels.
        rate: Share of the monolingual pieces that are masked.
        seed: Another seed, other masks.
        full: Whether rows must have no padding: a row that ends early is filled with closing tokens.
        mono_length: Longest monolingual row; 0 = no monolingual rows are made.
    """
    rows = len(counts)
    device = numbers.device
    row_of_word = torch.repeat_interleave(torch.arange(rows, device=device), counts, output_size=len(numbers))
    units_of = pieces.unit_starts[numbers + 1] - pieces.unit_starts[numbers]
    word = torch.repeat_interleave(units_of)  # of each unit; words without units have none
    inside = _inside(units_of)
    unit = pieces.unit_starts[numbers][word] + inside
    hidden = (pieces.labels[unit] >= 0) & (_uniform(places[word] * 32 + inside, seed) < rate)

    # An item is one mask, or a stretch of a word between masks.
    begins = (inside == 0) | hidden
    begins[1:] |= hidden[:-1]
    item = begins.nonzero().squeeze(1)
    in_item = torch.diff(item, append=item.new_tensor([len(unit)]))
    masked = hidden[item]
    i, n = inside[item], units_of[word[item]]
    stretch = pieces.stretch_starts[numbers[word[item]]] + i * n - i * (i - 1) // 2 + in_item - 1
    stretch = torch.where(masked, 0, stretch)
    start = pieces.multi_starts[stretch]
    size = torch.where(masked, 1, pieces.multi_starts[stretch + 1] - start)

    of_item = torch.repeat_interleave(size)
    token_ids = pieces.multi_ids[start[of_item] * ~masked[of_item] + _inside(size) * ~masked[of_item]].long()
    token_ids = torch.where(masked[of_item], frame.mask, token_ids)
    token_word = word[item][of_item]
    token_row = row_of_word[token_word]
    place = _place_in_row(token_row, rows)
    fits = place < length - 1
    used = torch.zeros(rows, dtype=torch.long, device=device).index_add_(0, token_row, fits.long())
    width = length if full else min(length, 8 * -(-(int(used.max()) + 2) // 8))
    ids = torch.full((rows, width), frame.last if full else frame.pad, device=device)
    ids[:, 0] = frame.first
    ids[token_row[fits], place[fits]] = token_ids[fits]
    ids.scatter_(1, (used + 1).unsqueeze(1), frame.last)
    mask = None if full else (torch.arange(width, device=device) < (used + 2).unsqueeze(1)).long()

    labelled = masked[of_item] & fits
    labels = pieces.labels[unit[item[of_item[labelled]]]].long()
    hidden_places = token_row[labelled] * width + place[labelled]
    if not mono_length:
        return Rows(ids, mask, hidden_places, labels)

    # The same words, masked alike, in monolingual ids; words that either side leaves out are no pair.
    sizes = pieces.mono_starts[unit + 1] - pieces.mono_starts[unit]
    of_unit = torch.repeat_interleave(sizes)
    mono = pieces.mono_ids[pieces.mono_starts[unit][of_unit] + _inside(sizes)].long()
    mono = torch.where(hidden[of_unit], frame.mono_mask, mono)
    mono_word = word[of_unit]
    mono_row = row_of_word[mono_word]
    mono_place = _place_in_row(mono_row, rows)
    # A row ends before the first word that does not fit, for words without a multilingual piece too.
    ends = torch.full((rows,), len(numbers), device=device)
    ends.scatter_reduce_(0, token_row[~fits], token_word[~fits], "amin")
    within = torch.arange(len(numbers), device=device) < ends[row_of_word]
    mono_fits = (mono_place < mono_length - 1) & within[mono_word]
    seen = [torch.bincount(of, minlength=len(numbers)) > 0 for of in (token_word, mono_word)]
    both = within & seen[0] & seen[1]
    both[mono_word[~mono_fits]] = False
    mono_used = torch.zeros(rows, dtype=torch.long, device=device).index_add_(0, mono_row, mono_fits.long())
    mono_width = min(mono_length, 8 * -(-(int(mono_used.max()) + 2) // 8))
    mono_rows = torch.full((rows, mono_width), frame.mono_pad, device=device)
    mono_rows[:, 0] = frame.mono_first
    mono_rows[mono_row[mono_fits], mono_place[mono_fits]] = mono[mono_fits]
    mono_rows.scatter_(1, (mono_used + 1).unsqueeze(1), frame.mono_last)
    # Pairs: words, and the first token of each row, from which classifiers read.
    number = torch.where(both, torch.cumsum(both, 0) + rows, 0)
    first = torch.arange(1, rows + 1, device=device)
    words = torch.zeros_like(ids)
    words[:, 0] = first
    words[token_row[fits], place[fits]] = number[token_word[fits]]
    mono_words = torch.zeros_like(mono_rows)
    mono_words[:, 0] = first
    mono_words[mono_row[mono_fits], mono_place[mono_fits]] = number[mono_word[mono_fits]]
    mono_mask = (torch.arange(mono_width, device=device) < (mono_used + 2).unsqueeze(1)).long()
    return Rows(ids, mask, hidden_places, labels, mono_rows, mono_mask, words, mono_words, rows + int(both.sum()))


def _inside(sizes: Tensor) -> Tensor:
    """Return 0 … sizes[k] − 1 for every k, one after the other."""
    ends = torch.cumsum(sizes, 0)
    total = int(ends[-1]) if len(ends) else 0
    firsts = torch.repeat_interleave(ends - sizes, sizes, output_size=total)
    return torch.arange(total, device=sizes.device) - firsts


def _place_in_row(row: Tensor, rows: int) -> Tensor:
    """Return each token's place in its row, from 1 (0 is the first token's); rows are in order."""
    sizes = torch.bincount(row, minlength=rows)
    return torch.arange(len(row), device=row.device) - (torch.cumsum(sizes, 0) - sizes)[row] + 1


def _uniform(place: Tensor, seed: int) -> Tensor:
    """Return numbers in [0, 1) that depend on place and seed alone (the finaliser of splitmix64)."""
    first = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) - 2**63
    mixed = place + first
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        mixed = (mixed ^ (mixed >> shift & (1 << 64 - shift) - 1)) * factor
    mixed = mixed ^ (mixed >> 31 & (1 << 33) - 1)
    return (mixed >> 32 & 0xFFFFFF).float() / (1 << 24)
