"""Heterogeneous masked LM: what the masks hide and what lies between them is the text."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from crosslift.data import word_pieces as pieces_module
from crosslift.data.hmlm import Frame, hmlm_rows
from crosslift.data.word_pieces import WordPieces, encode_within, kept_word_pieces, word_pieces
from crosslift.errors import BadInput
from crosslift.models.load import load_tokenizer
from tests.tiny import TEXTS, bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer

MULTI, MONO = unigram_tokenizer(), bpe_tokenizer()
FRAME = Frame.of(MULTI, MONO)


def tables(texts, multi=MULTI, mono=MONO, separate=False):
    """Return the numbers of the words of each text, and the tables."""
    words = ["\n", "\n\n", *dict.fromkeys(word for text in texts for word in text.split())]
    number = {word: n for n, word in enumerate(words)}
    return [[number[word] for word in text.split()] for text in texts], word_pieces(
        words, multi, mono, separate=separate
    )


def rows(texts, rate=0.3, seed=0, length=400, full=False, mono_length=0, multi=MULTI, mono=MONO):
    numbers, pieces = tables(texts, multi, mono)
    flat = torch.tensor([n for row in numbers for n in row])
    counts = torch.tensor([len(row) for row in numbers])
    places = torch.arange(len(flat))
    return hmlm_rows(
        pieces, flat, counts, places, Frame.of(multi, mono),
        length=length, rate=rate, seed=seed, full=full, mono_length=mono_length,
    )  # fmt: skip


def labels_of(found):
    """Return (row, place) -> label."""
    width = found.ids.shape[1]
    return {divmod(p, width): n for p, n in zip(found.places.tolist(), found.labels.tolist(), strict=True)}


def unmasked(found, row, multi=MULTI, mono=MONO):
    """Put the hidden pieces back and join: the text of a row."""
    labels = labels_of(found)
    special = {multi.cls_token_id, multi.sep_token_id, multi.pad_token_id}
    parts, bytes_ = [], b""
    for place, number in enumerate(found.ids[row].tolist()):
        piece = multi.convert_ids_to_tokens(number)
        if piece.startswith("<0x"):
            bytes_ += bytes([int(piece[3:5], 16)])
            continue
        parts.append(bytes_.decode())
        bytes_ = b""
        if (row, place) in labels:
            assert number == multi.mask_token_id
            parts.append(mono.decode([labels[row, place]]))
        elif number not in special:
            parts.append(piece.replace("▁", " "))
    return "".join([*parts, bytes_.decode()]).strip()


SAMPLES = [text for text in TEXTS if MULTI.backend_tokenizer.normalizer.normalize_str(text) == text]


@pytest.mark.parametrize("rate", [0.0, 0.15, 0.5, 0.99])
def test_putting_the_hidden_pieces_back_gives_the_text(rate):
    found = rows(SAMPLES, rate=rate)
    for row, text in enumerate(SAMPLES):
        assert unmasked(found, row) == text


@given(
    st.lists(st.text(st.sampled_from("abcdefgTHEz,.'-é19ß"), min_size=1, max_size=14), min_size=1, max_size=12),
    st.floats(0, 1),
    st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_any_text_comes_back(words, rate, seed):
    text = " ".join(words)
    assert unmasked(rows([text], rate=rate, seed=seed), 0) == text


def spans_anew(text, chosen, multi, mono):
    """The procedure of the paper, word for word: tokenise, mask, tokenise each span again."""
    encoded = mono(" " + text, add_special_tokens=False, return_offsets_mapping=True)
    description = json.loads(multi.backend_tokenizer.to_str())
    description["pre_tokenizer"]["prepend_scheme"] = "never"
    never = Tokenizer.from_str(json.dumps(description))
    ids, at = [], 0
    spaced = " " + text
    for k, (begin, end) in enumerate(encoded["offset_mapping"]):
        if k in chosen:
            while begin > at and spaced[begin - 1] == " ":  # the space belongs to the piece
                begin -= 1
            ids += never.encode(spaced[at:begin], add_special_tokens=False).ids if begin > at else []
            ids.append(multi.mask_token_id)
            at = end
    return ids + (never.encode(spaced[at:], add_special_tokens=False).ids if at < len(spaced) else [])


def test_stretches_looked_up_equal_spans_tokenised_anew():
    text = SAMPLES[0]
    encoded = MONO(" " + text, add_special_tokens=False)["input_ids"]
    for seed in range(20):
        found = rows([text], rate=0.3, seed=seed, mono_length=400)
        hidden = [k for k, n in enumerate(found.mono_ids[0].tolist()[1:]) if n == MONO.mask_token_id]
        assert [encoded[k] for k in hidden] == found.labels.tolist()
        inside = found.ids[0][: int(found.mask[0].sum())].tolist()[1:-1]
        assert inside == spans_anew(text, hidden, MULTI, MONO)


def test_every_masked_piece_has_one_mask_and_its_label_is_monolingual():
    found = rows(SAMPLES, rate=0.3)
    masks = (found.ids.flatten() == MULTI.mask_token_id).nonzero().squeeze(1)
    assert masks.tolist() == found.places.tolist()
    assert found.labels.max() < len(MONO)
    assert not set(found.labels.tolist()) & set(MONO.all_special_ids)


@pytest.mark.parametrize(
    ("multi", "mono"),
    [(MULTI, MONO), (wordpiece_tokenizer(), MONO), (MONO, wordpiece_tokenizer())],
    ids=["unigram", "wordpiece", "byte level"],
)
def test_a_mask_that_stands_in_the_text_is_text(multi, mono):
    marks = " ".join(x for t in (multi, mono) for x in t.all_special_tokens)
    text = f"the quick{multi.mask_token}fox {mono.mask_token} the dog{multi.pad_token} {marks}"
    for seed in range(10):
        found = rows([text], rate=0.3, seed=seed, multi=multi, mono=mono, mono_length=400)
        masks = (found.ids.flatten() == multi.mask_token_id).nonzero().squeeze(1)
        assert masks.tolist() == found.places.tolist()
        assert (found.mono_ids == mono.mask_token_id).sum() == len(found.labels)
        ids, mono_ids = (
            side[mask.bool()].tolist() for side, mask in ((found.ids, found.mask), (found.mono_ids, found.mono_mask))
        )
        assert ids.count(multi.cls_token_id) == ids.count(multi.sep_token_id) == 1
        assert mono_ids.count(mono.cls_token_id) == mono_ids.count(mono.sep_token_id) == 1
        assert multi.pad_token_id not in ids and mono.pad_token_id not in mono_ids


def test_no_word_mark_appears_inside_a_word():
    for seed in range(30):
        found = rows(["transferability unbelievable"], rate=0.4, seed=seed)
        pieces = MULTI.convert_ids_to_tokens(found.ids[0].tolist())
        # A word mark stands only where a word begins, and a mask may have taken it along.
        assert sum(piece.startswith("▁") for piece in pieces) <= 2


def test_about_the_given_share_is_masked():
    found = rows([" ".join(SAMPLES) for _ in range(1)] * 1, rate=0.15, length=2000)
    numbers, pieces = tables([" ".join(SAMPLES)])
    units = pieces.unit_starts[torch.tensor(numbers[0]) + 1] - pieces.unit_starts[torch.tensor(numbers[0])]
    shares = [
        len(rows([" ".join(SAMPLES)], rate=0.15, seed=s, length=2000).labels) / int(units.sum()) for s in range(30)
    ]
    assert 0.1 < np.mean(shares) < 0.16  # pieces of a character are never chosen
    assert len(found.labels)


def test_pieces_of_a_character_are_never_chosen():
    # The tiny byte-level vocabulary has no piece for this character: it is several bytes, none of which is text.
    found = rows(["猫 猫 猫"], rate=0.99)
    assert len(found.labels) == 0
    assert unmasked(found, 0) == "猫 猫 猫"


def test_masks_depend_on_seed_and_place_alone():
    first, again, other = (rows(SAMPLES, rate=0.3, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.ids, again.ids)
    assert not torch.equal(first.ids, other.ids)
    # A row cut out of a step is masked as it is in the step.
    numbers, pieces = tables(SAMPLES)
    start = len(numbers[0])
    own = hmlm_rows(
        pieces, torch.tensor(numbers[1]), torch.tensor([len(numbers[1])]), torch.arange(start, start + len(numbers[1])),
        FRAME, length=400, rate=0.3, seed=1, full=False,
    )  # fmt: skip
    size = int(own.mask.sum())
    assert own.ids[0, :size].tolist() == first.ids[1, :size].tolist()


def test_what_does_not_fit_is_left_out_with_its_labels():
    found = rows([" ".join(SAMPLES)], rate=0.3, length=20)
    assert found.ids.shape == (1, 20)
    assert found.ids[0, 0] == MULTI.cls_token_id
    assert found.ids[0, -1] == MULTI.sep_token_id
    assert (found.places < 19).all()
    whole = rows([" ".join(SAMPLES)], rate=0.3)
    assert found.ids[0, :19].tolist() == whole.ids[0, :19].tolist()


def test_full_rows_have_no_padding():
    found = rows(["a dog", " ".join(SAMPLES)], length=30, full=True)
    assert found.mask is None
    assert not (found.ids == MULTI.pad_token_id).any()
    ended = found.ids[0].tolist().index(MULTI.sep_token_id)
    assert set(found.ids[0, ended:].tolist()) == {MULTI.sep_token_id}


def test_words_of_both_sides_are_the_same_words():
    text = SAMPLES[0]
    found = rows([text, "a lazy dog"], rate=0.3, mono_length=400)
    for row, said in enumerate([text, "a lazy dog"]):
        for n, word in enumerate(said.split()):
            number = 2 + sum(len(t.split()) for t in [text][:row]) + n + 1
            ours, theirs = (
                found.ids[row][found.words[row] == number],
                found.mono_ids[row][found.mono_words[row] == number],
            )
            if MULTI.mask_token_id in ours.tolist():
                assert (ours == MULTI.mask_token_id).sum() == (theirs == MONO.mask_token_id).sum()
            else:
                assert MULTI.decode(ours).strip() == word
                assert MONO.decode(theirs).strip() == word
    assert found.words[:, 0].tolist() == found.mono_words[:, 0].tolist() == [1, 2]
    assert found.count == int(found.words.max()) == int(found.mono_words.max())


def test_a_word_that_one_side_has_no_room_for_is_no_pair():
    found = rows([" ".join(SAMPLES)], rate=0.0, length=400, mono_length=30)
    assert found.mono_ids.shape[1] <= 30
    assert set(found.words.unique().tolist()) == set(found.mono_words.unique().tolist())
    short = rows([" ".join(SAMPLES)], rate=0.0, length=30, mono_length=400)
    assert set(short.words.unique().tolist()) == set(short.mono_words.unique().tolist())


def test_a_word_that_one_vocabulary_leaves_nothing_of_is_no_pair_even_behind_the_end_of_a_row():
    multi, mono = load_tokenizer("mini-x"), load_tokenizer("mini-en")
    gone = "\u200b"  # mini-x has no piece for it, mini-en has two
    assert multi.tokenize(gone) == [] and len(mono.tokenize(gone)) == 2
    found = rows([f"one {gone} two " + "three " * 40 + gone], 0.0, length=12, mono_length=400, multi=multi, mono=mono)
    pairs = set(found.words.unique().tolist())
    assert pairs == set(found.mono_words.unique().tolist()) and found.count == max(pairs)
    assert mono.decode(found.mono_ids[0], skip_special_tokens=True).startswith(f" one {gone} two three")
    assert found.mono_mask.sum() == found.mono_mask.shape[1] - (found.mono_ids == mono.pad_token_id).sum()


def test_wordpiece_goes_on_inside_a_word_with_continuations():
    tokenizer = wordpiece_tokenizer()
    backend = tokenizer.backend_tokenizer
    whole = backend.encode("unbelievable", add_special_tokens=False)
    for cut in range(1, len("unbelievable")):
        (ids,) = encode_within([("n", "unbelievable"[cut:])], backend)
        assert all(tokenizer.convert_ids_to_tokens(n).startswith("##") for n in ids)
    # After a hyphen a new word begins, in WordPiece's eyes.
    (ids,) = encode_within([("-", "dog")], backend)
    assert ids == backend.encode("dog", add_special_tokens=False).ids
    (ids,) = encode_within([("g", ", dog")], backend)
    assert ids == backend.encode(", dog", add_special_tokens=False).ids
    assert whole.ids


def test_ideographs_inside_a_word_are_words_for_wordpiece():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", "猫", "##猫"]
    backend = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    for before, text in [("a", "猫"), ("猫", "ab"), ("a", "b猫a"), ("猫", "猫猫a"), ("a", "bba")]:
        (ids,) = encode_within([(before, text)], backend)
        whole = backend.encode(before + text).ids
        assert ids == whole[len(backend.encode(before).ids) :]


def test_wordpiece_masks_and_joins_back():
    both = wordpiece_tokenizer()
    text = "the quick brown fox jumps over the lazy dog , and the dog does not mind ."
    found = rows([text], rate=0.3, multi=both, mono=both, mono_length=200)
    labels = labels_of(found)
    pieces = [
        both.convert_ids_to_tokens(labels.get((0, place), number)) for place, number in enumerate(found.ids[0].tolist())
    ]
    joined = " ".join(p for p in pieces if p not in ("[CLS]", "[SEP]", "[PAD]")).replace(" ##", "")
    assert joined == text


def test_line_ends_separate_rows_that_run_over_documents():
    _, pieces = tables(["a dog"], separate=True)
    numbers = torch.tensor([2, 0, 3, 0, 1])
    found = hmlm_rows(
        pieces, numbers, torch.tensor([5]), torch.arange(5), FRAME, length=60, rate=0.0, seed=0, full=False
    )
    assert (found.ids == MULTI.sep_token_id).sum() == 3  # after each line, and at the end


def test_lengths_are_those_of_the_tokenizers():
    numbers, pieces = tables(SAMPLES)
    multi, mono = pieces.lengths()
    assert multi[numbers[0]].sum() == len(MULTI(SAMPLES[0], add_special_tokens=False)["input_ids"])
    assert mono[numbers[0]].sum() == len(MONO(" " + SAMPLES[0], add_special_tokens=False)["input_ids"])


def test_tables_are_kept_and_remade_for_other_words(tmp_path):
    file = tmp_path / "tables.safetensors"
    words = ["\n", "\n\n", "dog"]
    made = kept_word_pieces(file, words, MULTI, MONO, separate=True)
    assert same(kept_word_pieces(file, words, MULTI, MONO, separate=True), made)
    other = kept_word_pieces(file, [*words, "cat"], MULTI, MONO, separate=True)
    assert len(other.unit_starts) == len(made.unit_starts) + 1


def test_words_cut_some_at_a_time_give_the_same_tables(monkeypatch):
    words = ["\n", "\n\n", *dict.fromkeys(word for text in TEXTS for word in text.split()), "\u200b", "a" * 60]
    whole = word_pieces(words, MULTI, MONO, separate=True)
    for size in (1, 7):
        monkeypatch.setattr(pieces_module, "_BLOCK", size)
        assert same(word_pieces(words, MULTI, MONO, separate=True), whole)


def same(a: WordPieces, b: WordPieces) -> bool:
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in vars(a))


def test_a_vocabulary_that_runs_over_words_is_refused():
    description = json.loads(MULTI.backend_tokenizer.to_str())
    description["pre_tokenizer"] = None
    description["normalizer"] = None
    description["model"]["vocab"] += [["quick brown", -1.0], ["e quick", -0.5], ["r the", -0.5], [" ", -1.0]]
    loose = type(MULTI)(tokenizer_object=Tokenizer.from_str(json.dumps(description)), **MULTI.special_tokens_map)
    words = ["\n", "\n\n", *(["the", "quick", "brown", "fox", "over", "the"])]
    with pytest.raises(BadInput, match="run over several words"):
        word_pieces(words, loose, MONO, separate=False)
