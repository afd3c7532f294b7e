"""The same items in several languages, and the labels they share."""

from dataclasses import replace

import numpy as np
import pytest

from crosslift.data.examples import Examples
from crosslift.data.parallel import LEFT_OUT, align, corrupt_labels, random_labels, require_shared_labels
from crosslift.errors import BadInput, BadLabels


def make(language, keys, labels=None):
    texts = [f"{key} in {language}" for key in keys]
    ids = [f"{language}-{k}" for k in range(len(keys))]
    kind = "text" if labels is None else "classification"
    return Examples(kind, language, ids, texts, labels=labels, parallel_ids=list(keys))


def test_rows_are_paired_by_parallel_id_and_not_by_place():
    sets = align({"en": make("en", "abcd"), "de": make("de", "dxba")})
    assert sets["en"].texts == ["a in en", "b in en", "d in en"]
    assert sets["de"].texts == ["a in de", "b in de", "d in de"]
    assert sets["en"].skipped == {LEFT_OUT: 1} and sets["de"].skipped == {LEFT_OUT: 1}


def test_of_rows_with_one_id_the_first_counts_and_unknown_labels_do_not():
    english = make("en", "aab", ["x", "y", None])
    sets = align({"en": english, "de": make("de", "ab", ["x", "z"])})
    assert sets["en"].texts == ["a in en"] and sets["en"].labels == ["x"]


def test_sets_without_a_common_item_and_single_sets_are_refused():
    with pytest.raises(BadInput, match="No item occurs in all of en, de"):
        align({"en": make("en", "ab"), "de": make("de", "cd")})
    with pytest.raises(BadInput, match="two languages"):
        align({"en": make("en", "ab")})


def test_a_translation_with_another_label_is_refused():
    with pytest.raises(BadLabels, match='Item "b" is "y" in en and "x" in de'):
        require_shared_labels({"en": make("en", "ab", ["x", "y"]), "de": make("de", "ab", ["x", "x"])})


def test_random_labels_are_fair_shared_and_fixed_by_the_seed():
    sets = align({language: make(language, [str(k) for k in range(2000)]) for language in ("en", "de")})
    first, again, other = (random_labels(sets, seed) for seed in (1, 1, 2))
    assert first["en"].labels == first["de"].labels == again["en"].labels != other["en"].labels
    assert first["en"].kind == "classification"
    assert np.mean([label == "1" for label in first["en"].labels]) == pytest.approx(0.5, abs=0.04)


def test_noise_replaces_a_share_of_labels_alike_in_all_languages():
    keys = [str(k) for k in range(3000)]
    sets = {language: make(language, keys, ["x"] * 3000) for language in ("en", "de")}
    changed = {}
    for ratio in (0.0, 0.3, 0.5, 1.0):
        noisy = corrupt_labels(sets, ratio, ("x", "y", "z"), seed=1)
        assert noisy["en"].labels == noisy["de"].labels
        changed[ratio] = {k for k, label in enumerate(noisy["en"].labels) if label != "x"}
    # A drawn label is the old one in a third of the cases.
    assert len(changed[0.0]) == 0
    assert len(changed[0.3]) / 3000 == pytest.approx(0.2, abs=0.03)
    assert len(changed[1.0]) / 3000 == pytest.approx(2 / 3, abs=0.03)
    assert changed[0.3] < changed[0.5] < changed[1.0]


def test_noise_of_tags_or_beyond_one_is_refused():
    sets = {"en": make("en", "ab", ["x", "y"])}
    with pytest.raises(BadInput, match="between 0 and 1"):
        corrupt_labels(sets, 1.5, ("x", "y"), 0)
    with pytest.raises(BadInput, match="classification"):
        corrupt_labels({"en": replace(sets["en"], kind="text")}, 0.5, ("x", "y"), 0)
