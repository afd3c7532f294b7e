"""Seq2seq models: the same words as transformers writes one text at a time, in every family's own dialect."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from crosslift.errors import BadInput
from crosslift.translate import open_translator, seq2seq, translate_all
from tests.tiny_translators import save_m2m, save_marian, save_nllb

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Berlin",
    "Where was Marie Curie born? She was born in Warsaw, not in Paris.",
    "Paris is the capital of France;",
]


@pytest.fixture(autouse=True, scope="module")
def short():
    """Random models never end a sentence; forty tokens of it are enough."""
    before = seq2seq.MAX_NEW_TOKENS
    seq2seq.MAX_NEW_TOKENS = 40
    yield
    seq2seq.MAX_NEW_TOKENS = before


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    return save_nllb(tmp_path_factory.mktemp("models") / "nllb")


@pytest.fixture(scope="module")
def m2m(tmp_path_factory):
    pytest.importorskip("sentencepiece")
    return save_m2m(tmp_path_factory.mktemp("models") / "m2m")


def one_by_one(folder, texts, source=None, first=None, **options):
    """Translate as the model's own page says: one text, one call."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    if source:
        tokenizer.src_lang = source
    start = tokenizer.convert_tokens_to_ids(first) if first else None
    found = []
    with torch.inference_mode():
        for text in texts:
            read = tokenizer(text, return_tensors="pt")
            written = model.generate(**read, forced_bos_token_id=start, max_new_tokens=40, do_sample=False, **options)
            found.append(tokenizer.decode(written[0], skip_special_tokens=True).strip())
    return found


def test_m2m_is_told_its_languages_and_batches_change_nothing(m2m):
    spanish = translate_all(open_translator(m2m, "en", "es"), TEXTS)
    assert spanish == one_by_one(m2m, TEXTS, "en", "__es__")
    assert all(spanish)
    assert spanish != translate_all(open_translator(m2m, "en", "de"), TEXTS)
    assert "__" not in "".join(spanish)


def test_nllb_knows_two_letter_codes_by_its_own_names(nllb):
    expected = one_by_one(nllb, TEXTS, "eng_Latn", "zho_Hans", num_beams=2)
    assert translate_all(open_translator(nllb, "en", "zh", beams=2), TEXTS) == expected
    assert translate_all(open_translator(nllb, "eng_Latn", "zho_Hans", beams=2), TEXTS) == expected
    assert translate_all(open_translator(nllb, "en-US", "zh-CN", beams=2), TEXTS) == expected


def test_a_language_that_a_model_does_not_know_is_named(nllb):
    with pytest.raises(BadInput, match=r"does not know the language sw\.\n  Tried sw, swh_Latn, swh"):
        open_translator(nllb, "en", "sw").translate(["Hello"])
    with pytest.raises(BadInput, match="does not know the language xx"):
        open_translator(nllb, "xx", "es").translate(["Hello"])


def test_marian_translates_its_one_pair(tmp_path):
    pytest.importorskip("sentencepiece")
    folder = save_marian(tmp_path / "opus-mt-en-es")
    assert open_translator(folder, "en", "es").translate(TEXTS) == one_by_one(folder, TEXTS)


def test_multilingual_marian_gets_the_target_before_the_text(tmp_path):
    pytest.importorskip("sentencepiece")
    folder = save_marian(tmp_path / "opus-mt-en-roa", (">>spa<<", ">>fra<<"))
    expected = one_by_one(folder, [f">>spa<< {text}" for text in TEXTS])
    assert open_translator(folder, "en", "es").translate(TEXTS) == expected
    tokenizer = AutoTokenizer.from_pretrained(folder)
    way = seq2seq.direction(str(folder), tokenizer, "en", "fr")
    (ids,) = seq2seq.encode(str(folder), tokenizer, way, ["fox"], longest=512)
    assert tokenizer.convert_ids_to_tokens(ids)[0] == ">>fra<<"


class Vocabulary:
    """A tokenizer of which only the vocabulary matters."""

    def __init__(self, *tokens, told=True):
        self.tokens = tokens
        if told:
            self.src_lang = ""

    def get_vocab(self):
        return dict.fromkeys(self.tokens, 0)


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        (Vocabulary("__en__", "__de__", "de_DE"), ("en", "__de__", "")),
        (Vocabulary("eng_Latn", "deu_Latn"), ("eng_Latn", "deu_Latn", "")),
        (Vocabulary("en_XX", "de_DE", "fr_XX"), ("en_XX", "de_DE", "")),
        (Vocabulary(">>deu<<", "eng_Latn", "deu_Latn", told=False), (None, None, ">>deu<< ")),
        (Vocabulary("<2de>", told=False), (None, None, "<2de> ")),
        (Vocabulary("de_DE", "deu", told=False), (None, None, "")),
    ],
)
def test_every_family_is_told_its_languages_in_its_own_way(vocabulary, expected):
    assert seq2seq.direction("model", vocabulary, "en", "de") == expected


def test_draws_differ_by_number_and_repeat_exactly(nllb):
    def draw(number):
        return open_translator(nllb, "en", "es", sample=number).translate(TEXTS)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    before = torch.get_rng_state()
    draw(3)
    assert torch.equal(before, torch.get_rng_state())


def test_the_fingerprint_follows_the_weights_the_languages_and_the_draw(nllb, tmp_path):
    print_ = open_translator(nllb, "en", "es").fingerprint
    assert print_ == open_translator(nllb, "en", "es").fingerprint
    others = [
        open_translator(nllb, "en", "zh").fingerprint,
        open_translator(nllb, "en", "es", sample=1).fingerprint,
        open_translator(nllb, "en", "es", beams=4).fingerprint,
        open_translator(save_changed(nllb, tmp_path / "changed"), "en", "es").fingerprint,
    ]
    assert len({print_, *others}) == 5


def save_changed(folder, to):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_input_embeddings().weight[10, 3] += 1e-3
    model.save_pretrained(to)
    AutoTokenizer.from_pretrained(folder).save_pretrained(to)
    return to


def test_a_text_too_long_for_the_model_is_refused_not_cut(nllb):
    with pytest.raises(BadInput, match=r"longer than the 512 that .* can read: 'fox fox"):
        open_translator(nllb, "en", "es").translate(["fox " * 600])


def test_through_a_pivot_is_one_translator_after_the_other(nllb):
    there = open_translator(nllb, "es", "en").translate(TEXTS)
    second = open_translator(nllb, "en", "es")
    back = [second.translate([text])[0] if text else "" for text in there]
    assert any(back)
    around = open_translator(nllb, "es", "es", via="en")
    assert around.translate(TEXTS) == back
    assert (around.source, around.target) == ("es", "es")


def test_ctranslate2_says_what_the_converted_model_says(m2m, tmp_path):
    converters = pytest.importorskip("ctranslate2.converters")
    converters.TransformersConverter(str(m2m)).convert(str(tmp_path / "ct2"))
    fast = open_translator(f"ctranslate2:{tmp_path / 'ct2'}", "en", "es", beams=1, tokenizer=str(m2m))
    slow = one_by_one(m2m, TEXTS, "en", "__es__", num_beams=1)
    # CTranslate2 counts the language among the tokens of a translation, so it may go on for a few more.
    assert [made[: len(text)] for made, text in zip(translate_all(fast, TEXTS), slow, strict=True)] == slow
    drawn = open_translator(f"ctranslate2:{tmp_path / 'ct2'}", "en", "es", sample=1, tokenizer=str(m2m))
    assert drawn.fingerprint != fast.fingerprint
    assert drawn.translate(TEXTS) != fast.translate(TEXTS)
    with pytest.raises(BadInput, match=r"holds no CTranslate2 model \(no model.bin\)"):
        open_translator(f"ctranslate2:{m2m}", "en", "es")
