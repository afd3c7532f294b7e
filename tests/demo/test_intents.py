"""The embedded intent and slot corpus: sizes, parallelism, splits, words, tags, determinism."""

import time
import unicodedata
from dataclasses import replace

import numpy as np
import pytest

from crosslift.demo import LANGUAGES, SPLITS, load, load_parallel
from crosslift.demo.intents import FINGERPRINT, _corpus, capitalise, choose, fill, fingerprint
from crosslift.demo.values import (
    BASE,
    Language,
    Slot,
    check_language,
    parse_phrasing,
    phrasing_positions,
    read_language,
    slot_keys,
    value_positions,
)
from crosslift.errors import BadFile, BadInput

SIZES = {"train": (1600, 2500), "dev": (250, 350), "test": (450, 550)}
# Latin letters stand in Japanese or Thai text now and then; Han and kana are both Japanese.
SCRIPTS = {"JAPANESE": ("CJK", "HIRAGANA", "KATAKANA")}


def surfaces(language, slot, split):
    forms = read_language(language).values[slot]
    return {form[i].replace("[", "").replace("]", "") for form in forms.values() for i in value_positions(slot, split)}


def test_covers_fourteen_languages_and_six_scripts():
    assert {"en", "de", "es", "fr", "pt", "ru", "tr", "ar", "hi", "zh", "ja", "sw"} <= set(LANGUAGES)
    assert len({read_language(language).script for language in LANGUAGES}) >= 6


@pytest.mark.parametrize("language", LANGUAGES)
def test_has_sixteen_intents_with_at_least_eight_distinct_phrasings(language):
    phrasings = read_language(language).phrasings
    assert len(phrasings) == 16
    for intent, listed in phrasings.items():
        assert len(set(listed)) == len(listed) >= 8, intent
    everything = [phrasing for listed in phrasings.values() for phrasing in listed]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_has_its_size_and_every_intent(split):
    examples = load("demo-intent", "en", split)
    low, high = SIZES[split]
    assert low <= len(examples) <= high
    assert len(examples.label_names()) == 16
    assert len(set(examples.ids)) == len(examples) == len(set(examples.texts))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("split", SPLITS)
def test_rows_are_parallel_across_languages(language, split):
    english, other = load("demo-slots", "en", split), load("demo-slots", language, split)
    assert english.parallel_ids == other.parallel_ids
    for ours, theirs in zip(english.labels, other.labels, strict=True):
        kinds = [sorted(tag for tag in tags if tag.startswith("B-")) for tags in (ours, theirs)]
        assert kinds[0] == kinds[1]
    assert load("demo-intent", language, split).labels == load("demo-intent", "en", split).labels


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_text_has_one_intent(language):
    for split in SPLITS:
        examples = load("demo-intent", language, split)
        intents = {}
        for text, intent in zip(examples.texts, examples.labels, strict=True):
            assert intents.setdefault(text, intent) == intent


def test_splits_share_no_phrasing():
    groups = {split: set(load("demo-intent", "en", split).groups) for split in SPLITS}
    assert len(groups["train"]) == 96 and len(groups["dev"]) == len(groups["test"]) == 32
    for a, b in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not groups[a] & groups[b]
        assert not set(phrasing_positions(a)) & set(phrasing_positions(b))


@pytest.mark.parametrize("language", LANGUAGES)
def test_splits_share_no_slot_value_by_position_or_surface(language):
    for slot in read_language(language).values:
        for a, b in (("train", "dev"), ("train", "test"), ("dev", "test")):
            assert not set(value_positions(slot, a)) & set(value_positions(slot, b))
            assert not surfaces(language, slot, a) & surfaces(language, slot, b), slot


@pytest.mark.parametrize("language", LANGUAGES)
def test_values_of_a_slot_differ_within_every_form(language):
    for slot, forms in read_language(language).values.items():
        for form, listed in forms.items():
            assert len(set(listed)) == len(listed), (slot, form)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_listed_form_is_used(language):
    read = read_language(language)
    used = {(p.name, p.form) for listed in read.phrasings.values() for ph in listed for p in ph if isinstance(p, Slot)}
    assert used == {(slot, form) for slot, forms in read.values.items() for form in forms}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("split", SPLITS)
def test_spans_cut_whole_words_in_order_and_cover_the_text(language, split):
    examples = load("demo-slots", language, split)
    for row, text in enumerate(examples.texts):
        spans = examples.spans[row]
        assert spans.dtype == np.int32
        assert (spans[:, 0] < spans[:, 1]).all() and (spans[1:, 0] >= spans[:-1, 1]).all()
        assert len(examples.labels[row]) == len(spans)
        rest = list(text)
        for start, end in spans.tolist():
            rest[start:end] = [""] * (end - start)
        assert not "".join(rest).strip(" "), "a character outside words that is not a space"
        assert not any(" " in word for word in examples.words(row))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("split", SPLITS)
def test_tags_are_valid_bio_and_their_words_hold_the_value(language, split):
    read = read_language(language)
    for choice, sentence in zip(*_corpus(language, split, 0), strict=True):
        phrasing = read.phrasings[choice.intent][choice.phrasing]
        found, previous = [], "O"
        for (start, end), tag in zip(sentence.spans.tolist(), sentence.tags, strict=True):
            if tag.startswith("B-"):
                found.append((tag[2:], start, end))
            elif tag.startswith("I-"):
                assert previous[2:] == tag[2:]
                found[-1] = (tag[2:], found[-1][1], end)
            previous = tag
        expected = [piece for piece in phrasing if isinstance(piece, Slot)]
        assert [name for name, _, _ in found] == [slot.name for slot in expected]
        for (_, start, end), slot in zip(found, expected, strict=True):
            value = read.values[slot.name][slot.form][dict(choice.values)[slot.key]]
            core = value[value.find("[") + 1 : value.find("]") if "]" in value else None]
            bare = "".join(c for c in core if c not in "|_ ").casefold()
            assert bare.replace("i̇", "i") in sentence.text[start:end].replace(" ", "").casefold().replace("i̇", "i")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("split", SPLITS)
def test_texts_are_clean_and_in_the_right_script(language, split):
    script = read_language(language).script
    prefixes = SCRIPTS.get(script, (script,))
    texts = load("demo-intent", language, split).texts
    for text in texts:
        assert text == text.strip() and "  " not in text
        assert not set(text) & set("{}[]|_")
        assert unicodedata.is_normalized("NFC", text)
    letters = [c for text in texts for c in text if unicodedata.category(c) in {"Lu", "Ll", "Lo"}]
    right = sum(unicodedata.name(c).startswith(prefixes) for c in letters)
    assert right >= 0.98 * len(letters)


@pytest.mark.parametrize(
    "language", [code for code in LANGUAGES if read_language(code).script in {"LATIN", "CYRILLIC", "GREEK"}]
)
def test_sentences_begin_with_a_capital(language):
    for split in SPLITS:
        for text in load("demo-intent", language, split).texts:
            first = text.lstrip("“«„¿ ")[0]
            assert first.isupper() or first.isdigit(), text


def test_french_words_are_split_after_an_elision():
    examples = load("demo-slots", "fr", "train")
    words = {word for row in range(len(examples)) for word in examples.words(row) if "'" in word}
    assert {word for word in words if not word.endswith("'")} <= {"aujourd'hui"}


def test_fill_tags_the_core_of_a_form_and_drops_boundaries():
    language = Language("fr", "LATIN", False, {}, {"city": {BASE: ("d'|[Istanbul]", "du [Caire]")}})
    sentence = fill(language, parse_phrasing("Nouvelles {city}."), {"city": 0})
    assert sentence.text == "Nouvelles d'Istanbul."
    assert sentence.spans.tolist() == [[0, 9], [10, 12], [12, 20], [20, 21]]
    assert sentence.tags == ("O", "O", "B-city", "O")


def test_fill_joins_words_where_a_space_is_only_a_boundary():
    language = Language("th", "THAI", True, {}, {"duration": {BASE: ("_[5_นาที]",)}})
    sentence = fill(language, parse_phrasing("จับ เวลา {duration} ที"), {"duration": 0})
    assert sentence.text == "จับเวลา 5 นาทีที"
    assert [sentence.text[a:b] for a, b in sentence.spans.tolist()] == ["จับ", "เวลา", "5", "นาที", "ที"]
    assert sentence.tags == ("O", "O", "B-duration", "I-duration", "O")


def test_adjacent_slots_of_one_kind_are_tagged_apart():
    language = Language("en", "LATIN", False, {}, {"item": {BASE: ("olive oil", "milk")}})
    sentence = fill(language, parse_phrasing("{Item} {item2}"), {"item": 0, "item2": 1})
    assert sentence.text == "Olive oil milk"
    assert sentence.tags == ("B-item", "I-item", "B-item")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Um 6:30 Uhr, am 3. März.", ["Um", "6:30", "Uhr", ",", "am", "3.", "März", "."]),
        ("«¿Qué?», 22.5", ["«", "¿", "Qué", "?", "»", ",", "22.5"]),
        ("Sana'a", ["Sana'a"]),
    ],
)
def test_punctuation_is_split_off_but_numbers_stay_whole(text, words):
    sentence = fill(Language("xx", "LATIN", False, {}, {}), (text,), {})
    assert [sentence.text[a:b] for a, b in sentence.spans.tolist()] == words


def test_capitals_follow_the_language():
    assert capitalise("[ilacı]", "tr") == "[İlacı]"
    assert capitalise("[ilacı]", "de") == "[Ilacı]"
    assert capitalise("¿dónde?", "es") == "¿Dónde?"
    assert capitalise("20 grados", "es") == "20 grados"


def test_slots_of_a_phrasing_are_named_by_key_not_by_order():
    phrasing = parse_phrasing("{Item2.acc} and {item} at {time}")
    assert slot_keys(phrasing) == ("item", "item2", "time")
    assert phrasing[0] == Slot("item", "2", "acc", capital=True)


def test_another_seed_draws_other_values_into_the_same_phrasings():
    one, two = choose("train", 0), choose("train", 1)
    assert {c.template for c in one} == {c.template for c in two}
    assert len(one) == len(two) and {c.id for c in one} != {c.id for c in two}
    assert [c.id for c in choose("train", 0)] == [c.id for c in one]


def test_the_first_rows_are_a_mixed_sample():
    assert len(set(load("demo-intent", "en", "train").labels[:100])) == 16


def test_fingerprint_of_the_whole_corpus_is_the_stored_one():
    assert fingerprint(LANGUAGES) == FINGERPRINT


def test_generating_a_split_takes_less_than_a_second():
    start = time.process_time()
    load("demo-slots", "th", "train", seed=99)
    assert time.process_time() - start < 1


def test_unlabelled_view_keeps_text_and_drops_labels():
    examples = load("demo-intent", "de", "train").unlabelled()
    assert examples.labels is None and len(examples) == len(load("demo-intent", "en", "train"))


def test_parallel_view_pairs_translations_row_by_row():
    pairs = load_parallel("en", "sw", "dev")
    assert (pairs.kind, pairs.language, pairs.pair_language) == ("bitext", "en", "sw")
    assert pairs.texts == load("demo-intent", "en", "dev").texts
    assert pairs.pairs == load("demo-intent", "sw", "dev").texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("demo-intents", "en", "train"), 'Did you mean "demo-intent"'),
        (("demo-intent", "xx", "train"), "no language"),
        (("demo-intent", "en", "trian"), 'Did you mean "train"'),
    ],
)
def test_unknown_names_are_answered_with_what_exists(arguments, message):
    with pytest.raises(BadInput, match=message):
        load(*arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phrasings": {"set_alarm": ()}}, "intents are"),
        ({"values": {"city": {BASE: ()}}}, "slots differ"),
    ],
)
def test_a_language_file_that_does_not_match_english_is_refused(change, message):
    english = read_language("en")
    with pytest.raises(BadFile, match=message):
        check_language(replace(english, **change), english, "corpus/xx.toml")


def test_a_phrasing_with_another_slot_is_refused_by_its_name():
    english = read_language("en")
    wrong = (parse_phrasing("Wake me in {city}."), *english.phrasings["set_alarm"][1:])
    changed = replace(english, phrasings={**english.phrasings, "set_alarm": wrong})
    with pytest.raises(BadFile, match=r"set_alarm\.1 has slots \('city',\), expected \('time',\)"):
        check_language(changed, english, "corpus/xx.toml")


def test_a_list_of_values_that_is_too_short_is_refused():
    english = read_language("en")
    changed = replace(english, values={**english.values, "city": {BASE: ("London",)}})
    with pytest.raises(BadFile, match=r"city\.base has 1 values, expected 14"):
        check_language(changed, english, "corpus/xx.toml")
