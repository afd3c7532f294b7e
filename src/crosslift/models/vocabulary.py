"""A model with fewer or more pieces in its vocabulary: the tokenizer's file is edited, the rows of the model follow.

Trimming drops pieces that some languages never use. What is left cuts text exactly as before, as long as it needs no
dropped piece: a unigram tokenizer finds the best path, and the best path is still there; WordPiece takes the longest
match, and no longer one has come; byte-pair merges that lead to a kept piece are kept with it.

Extending adds pieces made of neighbouring ones, the most frequent pair first (as byte-pair training would go on), for
text that the tokenizer cuts too fine. A new piece's row is the mean of the rows it replaces.
"""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from crosslift.data.storage import atomic
from crosslift.errors import BadInput
from crosslift.models.load import load_config, load_tokenizer, locate, quiet_transformers, save_tokenizer
from crosslift.models.new_pieces import NewPiece, choose_pieces

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

KINDS = ("Unigram", "WordPiece", "BPE")


@dataclass(frozen=True)
class Resized:
    """What became of a model.

    Attributes:
        folder: The new model, in Hugging Face format.
        pieces: Number of pieces before and after.
        parameters: Number of parameters before and after.
        tokens: Tokens of the given text before and after.
        unchanged: Share of the given lines that are cut as before.
    """

    folder: str
    pieces: tuple[int, int]
    parameters: tuple[int, int]
    tokens: tuple[int, int]
    unchanged: float

    def to_dict(self) -> dict[str, object]:
        """Return the figures by name."""
        return asdict(self)


def trim_vocabulary(
    model: str | Path, out: str | Path, texts: Mapping[str, Sequence[str]], *, least: int = 1
) -> Resized:
    """Cut a model's vocabulary down to what some languages need.

    Kept are special tokens, the pieces that the given text uses, and single characters and bytes in the scripts that
    occur in it, so that new words can still be spelt.

    Args:
        model: Any encoder or task model, by folder or name.
        out: Folder of the new one.
        texts: Language -> lines of text.
        least: Pieces that occur less often are dropped.
    """
    tokenizer = load_tokenizer(model)
    state = _state(tokenizer)
    lines = [line for each in texts.values() for line in each]
    if not any(lines):
        raise BadInput("There is no text to tell which pieces are needed.", "Say --text de=de.txt.")
    used = np.bincount(_ids(tokenizer, lines)[0], minlength=len(tokenizer))
    scripts = {_script(letter) for letter in set("".join(lines)) if letter.isalpha()}
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    keep = {i for i, name in enumerate(names) if used[i] >= least or _always(name, scripts)}
    keep |= {added["id"] for added in state["added_tokens"]} | set(tokenizer.all_special_ids)
    keep |= _needed(state, keep)
    kept = sorted(keep)
    if _pad_moves(load_config(model), kept):
        raise BadInput("This model counts positions from its padding id, which trimming would move.")
    return _rebuild(model, tokenizer, _without(state, kept), kept, [], Path(out), lines)


def extend_vocabulary(
    model: str | Path, out: str | Path, texts: Sequence[str], *, pieces: int, least: int = 5
) -> Resized:
    """Add pieces for a language that a model's tokenizer cuts too fine.

    Args:
        model: Any encoder, by folder or name.
        out: Folder of the new one.
        texts: Lines in that language.
        pieces: How many to add, at most.
        least: A new piece occurs at least so often.
    """
    tokenizer = load_tokenizer(model)
    state = _state(tokenizer)
    old = len(tokenizer)
    new = choose_pieces(tokenizer, texts, pieces, least)
    if not new:
        raise BadInput("No piece is worth adding: the tokenizer cuts this text well, or there is too little of it.")
    # Rows that no piece has (padding to a round number) would stand between old and new ones: they go.
    kept = list(range(old))
    return _rebuild(
        model, tokenizer, _with(state, new, tokenizer), kept, [piece.parts for piece in new], Path(out), texts
    )


def _state(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    kind = state["model"].get("type")
    if kind not in KINDS:
        raise BadInput(f"A {kind} tokenizer cannot be changed.", f"Kinds: {', '.join(KINDS)}.")
    if kind == "BPE" and state["model"].get("continuing_subword_prefix"):
        raise BadInput("A BPE tokenizer that marks the pieces within a word cannot be changed.")
    return state


def _always(name: str, scripts: set[str]) -> bool:
    """Whether a piece is a byte or a single character of one of these scripts, or no letter at all."""
    if name.startswith("<0x") and name.endswith(">"):
        return True
    bare = name.removeprefix("##").removeprefix("▁").removeprefix("Ġ")
    return len(bare) <= 1 and (not bare or not bare.isalpha() or _script(bare) in scripts)


def _script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split()[0]


def _needed(state: Mapping[str, Any], keep: set[int]) -> set[int]:
    """Return further ids without which the kept pieces could not come about."""
    model = state["model"]
    if model["type"] == "Unigram":
        # The price of an unknown character is set by the least likely piece.
        scores = [score for _, score in model["vocab"]]
        return {int(np.argmin(scores)), *([model["unk_id"]] if model["unk_id"] is not None else [])}
    vocab: dict[str, int] = model["vocab"]
    if model["type"] == "WordPiece":
        return {vocab[model["unk_token"]]}
    ranks = {merge: rank for rank, merge in enumerate(_merges(model))}
    end: str = model.get("end_of_word_suffix") or ""
    found = {i for name, i in vocab.items() if len(_letters(name, end)) == 1}
    for name in (name for name, i in vocab.items() if i in keep):
        found.update(vocab[part] for part in _on_the_way(_letters(name, end), ranks))
    return found


def _letters(name: str, end: str) -> list[str]:
    """Return what merging starts from: the characters of a piece, the last one with the mark of a word's end."""
    if not end or not name.endswith(end) or name == end:
        return list(name)
    bare = name.removesuffix(end)
    return [*bare[:-1], bare[-1] + end]


def _on_the_way(letters: Sequence[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the pieces that byte-pair merging makes on its way from single characters to a piece."""
    word, found = list(letters), []
    while len(word) > 1:
        rank, place = min((ranks.get(pair, len(ranks)), place) for place, pair in enumerate(pairwise(word)))
        if rank == len(ranks):
            break
        word[place : place + 2] = ["".join(word[place : place + 2])]
        found.append(word[place])
    return found


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [tuple(m.split(" ", 1)) if isinstance(m, str) else (m[0], m[1]) for m in model["merges"]]  # type: ignore[misc]


def _without(state: dict[str, Any], kept: Sequence[int]) -> dict[str, Any]:
    """Return a tokenizer's state with these pieces alone, numbered anew in the old order."""
    number = {old: new for new, old in enumerate(kept)}
    model = state["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [model["vocab"][old] for old in kept if old < len(model["vocab"])]
        model["unk_id"] = None if model["unk_id"] is None else number[model["unk_id"]]
    else:
        model["vocab"] = {name: number[old] for name, old in model["vocab"].items() if old in number}
        if model["type"] == "BPE":
            vocab = model["vocab"]
            whole = [(a, b) for a, b in _merges(model) if a in vocab and b in vocab and a + b in vocab]
            model["merges"] = [list(merge) for merge in whole]
    for added in state["added_tokens"]:
        added["id"] = number[added["id"]]
    _renumber(state.get("post_processor"), number)
    return state


def _renumber(processor: Any, number: Mapping[int, int]) -> None:  # noqa: ANN401  JSON
    """Give the special tokens of a post-processor their new ids."""
    if isinstance(processor, dict):
        for key in ("cls", "sep"):
            if isinstance(processor.get(key), list):
                processor[key][1] = number[processor[key][1]]
        for entry in (processor.get("special_tokens") or {}).values():
            entry["ids"] = [number[i] for i in entry["ids"]]
        for inner in processor.get("processors", []):
            _renumber(inner, number)


def _with(state: dict[str, Any], new: Sequence[NewPiece], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return a tokenizer's state with new pieces at the end."""
    model = state["model"]
    first = len(tokenizer)
    if model["type"] == "Unigram":
        own = len(model["vocab"])
        if first > own:  # added tokens have the ids after the pieces, where the new ones must go
            ids = {added["id"]: added["content"] for added in state["added_tokens"]}
            model["vocab"] += [[ids[i], 0.0] for i in range(own, first)]
        scores = dict(map(tuple, model["vocab"]))
        total = sum(piece.count for piece in new)
        names = tokenizer.convert_ids_to_tokens(range(first))
        for piece in new:
            # As likely as its share among the new ones, and better than what it replaces.
            apart = sum(scores.get(names[i], 0.0) for i in piece.parts)
            model["vocab"].append([piece.name, max(float(np.log(piece.count / total)) - 2, apart + 0.5)])
        return state
    model["vocab"] |= {piece.name: first + number for number, piece in enumerate(new)}
    if model["type"] == "BPE":
        model["merges"] = [list(merge) for merge in _merges(model)] + [list(piece.pair) for piece in new]
    return state


def _rebuild(
    model: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    state: dict[str, Any],
    kept: Sequence[int],
    parts: Sequence[Sequence[int]],
    out: Path,
    lines: Sequence[str],
) -> Resized:
    """Write the model with the rows `kept`, and one more for each of `parts`, beside the edited tokenizer."""
    if out.exists():
        raise BadInput(f"{out} is there already.", "Name another folder.")
    weights = _load(model)
    before = sum(p.numel() for p in weights.parameters())
    old_rows = int(weights.get_input_embeddings().weight.shape[0])
    _resize(weights, kept, parts)
    with atomic(out) as draft:
        draft.mkdir()
        save_tokenizer(tokenizer, draft)
        for stale in ("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model"):
            (draft / stale).unlink(missing_ok=True)
        (draft / "tokenizer.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
        _renumber_config(weights.config, tokenizer, state)
        with quiet_transformers():
            weights.save_pretrained(draft)
        notice = Path(locate(model)) / "NOTICE"
        if notice.exists():
            shutil.copy(notice, draft / "NOTICE")
        # Before the folder is in place: it must not stay where this is refused or interrupted.
        changed = load_tokenizer(draft)
        _check(changed, state, out)
        was, now = _ids(tokenizer, lines), _ids(changed, lines)
    number = np.full(max(len(tokenizer), max(kept) + 1), -1, dtype=np.int64)
    number[list(kept)] = np.arange(len(kept))
    same = [np.array_equal(number[a], b) for a, b in zip(_rows(was), _rows(now), strict=True)]
    return Resized(
        folder=str(out),
        pieces=(old_rows, len(kept) + len(parts)),
        parameters=(before, sum(p.numel() for p in weights.parameters())),
        tokens=(len(was[0]), len(now[0])),
        unchanged=float(np.mean(same)) if same else 1.0,
    )


def _load(model: str | Path) -> PreTrainedModel:
    """Load a model with the head it was saved with."""
    where = locate(model)
    names = load_config(model).architectures or []
    cls = getattr(transformers, names[0], None) if names else None
    with quiet_transformers():
        loaded: PreTrainedModel = (cls or transformers.AutoModel).from_pretrained(
            where, dtype="auto", use_safetensors=True, local_files_only=Path(where).is_dir()
        )
    return loaded.eval()


def _resize(model: PreTrainedModel, kept: Sequence[int], parts: Sequence[Sequence[int]]) -> None:
    """Give a model the rows `kept`, and after them the mean of each of `parts` (old ids)."""
    size = int(model.get_input_embeddings().weight.shape[0])
    if max(kept) >= size:
        raise BadInput(f"The tokenizer has ids up to {max(kept)}, but the model has only {size} rows.")
    old = {name: value.clone() for name, value in model.state_dict().items()}
    with quiet_transformers():
        # What grows with the vocabulary shows at one row more; the new size may be the old one (rows of padding).
        model.resize_token_embeddings(size + 1, mean_resizing=False)
        grown = model.state_dict()
        by_piece = {name for name, value in old.items() if grown[name].shape != value.shape}
        model.resize_token_embeddings(len(kept) + len(parts), mean_resizing=False)
    rows = torch.tensor(list(kept))
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name not in by_piece:
                continue
            before = old[name]
            means = [before[list(part)].float().mean(dim=0).to(before.dtype) for part in parts]
            value.copy_(torch.cat([before[rows], torch.stack(means)]) if means else before[rows])
    model.tie_weights()


def _renumber_config(config: Any, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Let the configuration name special tokens by their new ids."""
    ids = {added["content"]: added["id"] for added in state["added_tokens"]}
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    for key in ("pad", "bos", "eos", "cls", "sep", "mask", "unk"):
        value = getattr(config, f"{key}_token_id", None)
        if isinstance(value, int) and value < len(names) and names[value] in ids:
            setattr(config, f"{key}_token_id", ids[names[value]])


def _pad_moves(config: Any, kept: Sequence[int]) -> bool:  # noqa: ANN401  a configuration
    pad = config.pad_token_id
    return config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet") and kept.index(pad) != pad


def _check(tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Any], out: Path) -> None:
    """Refuse a tokenizer that transformers has rebuilt in another way than we wrote it."""
    vocab = state["model"]["vocab"]
    wanted = {name: i for i, (name, _) in enumerate(vocab)} if isinstance(vocab, list) else dict(vocab)
    wanted |= {added["content"]: added["id"] for added in state["added_tokens"]}
    if tokenizer.get_vocab() != wanted:
        raise BadInput(f"{out}: transformers does not open the changed tokenizer as it was written.")


def _ids(tokenizer: PreTrainedTokenizerBase, lines: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids of all lines, one after another, and the length of each."""
    encoded = tokenizer(list(lines), add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False)
    rows = encoded["input_ids"] if lines else []
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64)
    return flat, np.array([len(row) for row in rows], dtype=np.int64)


def _rows(ids: tuple[NDArray[np.int64], NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    return np.split(ids[0], np.cumsum(ids[1])[:-1]) if len(ids[1]) else []
