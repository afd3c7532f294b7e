import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    PreTrainedTokenizerFast,
)

from crosslift.errors import BadInput
from crosslift.models import vocabulary
from crosslift.models.load import load_tokenizer
from crosslift.models.new_pieces import choose_pieces
from crosslift.models.vocabulary import _on_the_way, extend_vocabulary, trim_vocabulary
from tests.tiny import TEXTS, unigram_tokenizer
from tests.tiny_models import SHAPE, config_for, save_encoder, tokenizer_for

FAMILIES = ("bert", "roberta", "xlm-roberta")
SOME = list(TEXTS[:3])
WORDS = ["the", "quick", "wolverine", "jumps", "over", "wolverine", "dens", "and", "wolverines", "sleep"]
FRESH = [" ".join(np.random.default_rng(i).choice(WORDS, 6)) for i in range(40)]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def masked(tmp_path_factory, family):
    """A random masked-LM model of each tokenizer kind."""
    folder = tmp_path_factory.mktemp(family)
    tokenizer = tokenizer_for(family)
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(config_for(family, tokenizer))
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(value)  # so that a bias in the wrong place shows
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trimmed(masked, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "trimmed"
    return out, trim_vocabulary(masked, out, {"en": SOME})


def logits(folder, texts):
    tokenizer, model = load_tokenizer(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**tokenizer(texts, return_tensors="pt", padding=True)).logits, tokenizer


def test_a_trimmed_model_is_smaller_and_says_the_same(masked, trimmed):
    out, found = trimmed
    assert found.pieces[1] < found.pieces[0]
    assert found.parameters[1] == found.parameters[0] - 33 * (found.pieces[0] - found.pieces[1])  # width 32 and a bias
    assert found.unchanged == 1.0
    assert found.tokens[0] == found.tokens[1]
    old, tokenizer = logits(masked, SOME)
    new, smaller = logits(out, SOME)
    kept = [tokenizer.convert_tokens_to_ids(piece) for piece in smaller.convert_ids_to_tokens(range(len(smaller)))]
    assert len(kept) == found.pieces[1] and kept == sorted(kept)
    assert torch.equal(old[:, :, kept], new)


def test_special_tokens_stay_what_they_are(masked, trimmed):
    old, new = load_tokenizer(masked), load_tokenizer(trimmed[0])
    assert new.special_tokens_map == old.special_tokens_map
    config = AutoModel.from_pretrained(trimmed[0]).config
    assert config.pad_token_id == new.pad_token_id
    assert config.vocab_size == len(new)
    first, second = (t.convert_ids_to_tokens(t(SOME[0], SOME[1])["input_ids"]) for t in (old, new))
    assert first == second


@given(st.lists(st.sampled_from(" ".join(TEXTS).split()), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_text_that_needs_no_dropped_piece_is_cut_as_before(masked, trimmed, words):
    old, new = load_tokenizer(masked), load_tokenizer(trimmed[0])
    text = " ".join(words)
    pieces = old.tokenize(text)
    if set(pieces) <= set(new.get_vocab()):
        assert new.tokenize(text) == pieces


def test_rare_pieces_can_be_dropped_too(masked, tmp_path):
    few = trim_vocabulary(masked, tmp_path / "few", {"en": SOME}, least=3)
    assert few.pieces[1] < trim_vocabulary(masked, tmp_path / "more", {"en": SOME}).pieces[1]
    assert load_tokenizer(tmp_path / "few").tokenize(SOME[0])


def test_a_task_model_keeps_its_head(tmp_path):
    tokenizer = tokenizer_for("xlm-roberta")
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_config(config_for("xlm-roberta", tokenizer)).eval()
    model.save_pretrained(tmp_path / "task")
    tokenizer.save_pretrained(tmp_path / "task")
    trim_vocabulary(tmp_path / "task", tmp_path / "small", {"en": SOME})
    small = AutoModelForSequenceClassification.from_pretrained(tmp_path / "small").eval()
    with torch.no_grad():
        expected = model(**tokenizer(SOME, return_tensors="pt", padding=True)).logits
        found = small(**load_tokenizer(tmp_path / "small")(SOME, return_tensors="pt", padding=True)).logits
    assert torch.equal(expected, found)


def test_new_pieces_are_used_and_start_from_the_mean_of_what_they_replace(masked, tmp_path):
    found = extend_vocabulary(masked, tmp_path / "more", FRESH, pieces=12, least=3)
    old, new = load_tokenizer(masked), load_tokenizer(tmp_path / "more")
    assert found.tokens[1] < found.tokens[0]
    assert len(new) == found.pieces[1] > len(old)
    before = AutoModelForMaskedLM.from_pretrained(masked)
    after = AutoModelForMaskedLM.from_pretrained(tmp_path / "more")
    rows = [m.get_input_embeddings().weight.detach() for m in (before, after)]
    assert torch.equal(rows[0][: len(old)], rows[1][: len(old)])
    wanted = choose_pieces(old, FRESH, 12, 3)
    for number, piece in enumerate(wanted):
        assert new.convert_ids_to_tokens(len(old) + number) == piece.name
        assert "".join(old.convert_ids_to_tokens(piece.parts)).replace("##", "") == piece.name.replace("##", "")
        assert rows[1][len(old) + number] == pytest.approx(rows[0][piece.parts].mean(dim=0), abs=1e-6)
    used = {piece for line in FRESH for piece in new.tokenize(line)}
    assert len(used & {piece.name for piece in wanted}) >= len(wanted) / 3  # merges need the pieces in between
    text = new("wolverine dens")["input_ids"]
    assert new.decode(text, skip_special_tokens=True).strip() == "wolverine dens"


def test_new_pieces_start_from_means_where_a_model_has_as_many_rows_to_spare(tmp_path):
    tokenizer = tokenizer_for("bert")
    wanted = choose_pieces(tokenizer, FRESH, 12, 3)
    config = config_for("bert", tokenizer)
    config.vocab_size = len(tokenizer) + len(wanted)  # rows are often filled up to a round number
    model = AutoModelForMaskedLM.from_config(config)
    model.save_pretrained(tmp_path / "padded")
    tokenizer.save_pretrained(tmp_path / "padded")
    found = extend_vocabulary(tmp_path / "padded", tmp_path / "more", FRESH, pieces=12, least=3)
    assert found.pieces == (config.vocab_size, config.vocab_size)
    after = AutoModelForMaskedLM.from_pretrained(tmp_path / "more")
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        before, rows = model.state_dict()[name], after.state_dict()[name]
        expected = [before[: len(tokenizer)], *(before[piece.parts].mean(dim=0, keepdim=True) for piece in wanted)]
        torch.testing.assert_close(rows, torch.cat(expected))


def test_the_most_frequent_pairs_are_joined_first():
    tokenizer = tokenizer_for("bert")
    words = ["gutni gutni gutni gutni hopib hopib"]
    assert "[UNK]" not in tokenizer.tokenize(words[0])
    found = choose_pieces(tokenizer, words, 10, least=3)
    assert [piece.name for piece in found] == ["gutni"]  # its parts are used no more, and "hopib" is too rare
    assert found[0].count == 4


def test_what_cannot_be_done_is_refused(masked, tmp_path):
    with pytest.raises(BadInput, match="There is no text"):
        trim_vocabulary(masked, tmp_path / "a", {"en": []})
    with pytest.raises(BadInput, match="No piece is worth adding"):
        extend_vocabulary(masked, tmp_path / "b", ["a"], pieces=5)
    (tmp_path / "c").mkdir()
    with pytest.raises(BadInput, match="is there already"):
        trim_vocabulary(masked, tmp_path / "c", {"en": SOME})


@pytest.mark.parametrize("other", ["distilbert", "electra", "mpnet", "modernbert", "gemma3"])
def test_other_families_trim_as_well(tmp_path, other):
    folder = save_encoder(tmp_path / "whole", other)
    trim_vocabulary(folder, tmp_path / "small", {"en": SOME})
    outputs = []
    for name in (folder, tmp_path / "small"):
        model, tokenizer = AutoModel.from_pretrained(name).eval(), load_tokenizer(name)
        with torch.no_grad():
            batch = tokenizer(SOME, return_tensors="pt", padding=True, return_token_type_ids=False)
            outputs.append(model(**batch).last_hidden_state)
    assert torch.equal(*outputs)


def test_merges_on_the_way_to_a_piece_are_those_that_happen():
    ranks = {("b", "c"): 0, ("a", "b"): 1, ("ab", "c"): 2, ("a", "bc"): 3}
    assert _on_the_way("abc", ranks) == ["bc", "abc"]  # ("ab", "c") comes first in the list, but "ab" never arises
    assert _on_the_way("xy", ranks) == []


def test_a_model_whose_tokenizer_is_not_what_was_written_is_not_left_behind(masked, tmp_path, monkeypatch):
    def refused(tokenizer, state, out):
        raise BadInput(f"{out.name}: not as it was written.")

    monkeypatch.setattr(vocabulary, "_check", refused)
    with pytest.raises(BadInput, match="small: not as it was written"):
        trim_vocabulary(masked, tmp_path / "small", {"en": SOME})
    assert not list(tmp_path.iterdir())


SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def merging_tokenizer(**marks: str) -> PreTrainedTokenizerFast:
    """Byte pairs over characters, with marks at the end of words or within them."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **marks))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, show_progress=False, **marks)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return wrapped(tokenizer)


def gemma_tokenizer() -> PreTrainedTokenizerFast:
    """Like Gemma's: byte pairs over text that is not split into words; unknown characters become bytes."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    every = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trained.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=800, special_tokens=every, show_progress=False))
    state = json.loads(trained.to_str())
    state["model"] |= {"byte_fallback": True, "fuse_unk": True}
    state["added_tokens"] = [added for added in state["added_tokens"] if added["content"] in SPECIAL]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return wrapped(tokenizer)


def wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", cls_token="<s>", sep_token="</s>",
        mask_token="<mask>", model_max_length=128,
    )  # fmt: skip


def save_masked(folder, tokenizer):
    """Write a random masked-LM model for a tokenizer."""
    config = BertConfig(**SHAPE, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "tokenizer", [merging_tokenizer(end_of_word_suffix="</w>"), gemma_tokenizer()], ids=["suffix", "gemma"]
)
def test_other_ways_of_merging_trim_and_extend_as_well(tokenizer, tmp_path):
    folder = save_masked(tmp_path / "whole", tokenizer)
    found = trim_vocabulary(folder, tmp_path / "small", {"en": SOME})
    assert found.pieces[1] < found.pieces[0] and found.unchanged == 1.0
    (old, _), (new, smaller) = logits(folder, SOME), logits(tmp_path / "small", SOME)
    kept = [tokenizer.convert_tokens_to_ids(piece) for piece in smaller.convert_ids_to_tokens(range(len(smaller)))]
    assert torch.equal(old[:, :, kept], new)
    more = extend_vocabulary(folder, tmp_path / "more", FRESH, pieces=12, least=3)
    assert more.tokens[1] < more.tokens[0]


def test_special_tokens_at_the_end_of_the_vocabulary_are_followed(tmp_path):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[MASK]"])
    marks = [(mark, tokenizer.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=128,
    )  # fmt: skip
    trim_vocabulary(save_masked(tmp_path / "whole", whole), tmp_path / "small", {"en": SOME})
    (old, before), (new, after) = (logits(tmp_path / name, SOME) for name in ("whole", "small"))
    assert after.cls_token_id < before.cls_token_id
    kept = [before.convert_tokens_to_ids(piece) for piece in after.convert_ids_to_tokens(range(len(after)))]
    assert torch.equal(old[:, :, kept], new)


def test_the_price_of_an_unknown_character_stays(tmp_path):
    folder = save_encoder(tmp_path / "whole")
    state = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    rare = next(entry for entry in state["model"]["vocab"] if entry[0] in tuple("абвгдежзиклмн"))
    rare[1] = -99.0  # no text in English needs it, yet the score of an unknown character is 10 below the lowest
    (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    trim_vocabulary(folder, tmp_path / "small", {"en": SOME})
    kept = json.loads(load_tokenizer(tmp_path / "small").backend_tokenizer.to_str())["model"]["vocab"]
    assert [name for name, score in kept if score == -99.0] == [rare[0]]


def test_merges_with_a_mark_within_words_are_refused(tmp_path):
    folder = save_masked(tmp_path / "whole", merging_tokenizer(continuing_subword_prefix="##"))
    with pytest.raises(BadInput, match="marks the pieces within a word"):
        trim_vocabulary(folder, tmp_path / "small", {"en": SOME})
    with pytest.raises(BadInput, match="marks the pieces within a word"):
        extend_vocabulary(folder, tmp_path / "more", FRESH, pieces=12, least=3)


def test_new_pieces_stay_within_words_where_the_tokenizer_does_not_split_text():
    names = [piece.name for piece in choose_pieces(gemma_tokenizer(), FRESH, 30, least=3)]
    assert "▁wolverines" in names
    assert not [name for name in names if "▁" in name.lstrip("▁")]


@pytest.mark.parametrize("make", [unigram_tokenizer, gemma_tokenizer])
def test_bytes_of_unknown_characters_are_not_joined(make):
    lines = ["ጤና ይስጥልኝ wolverine"] * 20
    tokenizer = make()
    assert "<0xE1>" in tokenizer.tokenize(lines[0])
    names = [piece.name for piece in choose_pieces(tokenizer, lines, 30, least=3)]
    assert any("wolverine" in name for name in names)
    assert not [name for name in names if "<0x" in name]
