"""The parallel sets of the paper, from real files."""

import pytest

from crosslift.runs.igap_data import parallel_sets


@pytest.mark.shared
@pytest.mark.parametrize(("name", "split", "items"), [("pawsx", "dev", 1952), ("sib200", "train", 701)])
def test_items_are_those_that_every_language_has_with_one_label(name, split, items, shared, monkeypatch):
    monkeypatch.setenv("CROSSLIFT_DATA", str(shared / "data"))
    sets = parallel_sets(name, ["en", "ko", "zh"], split)
    assert {len(examples) for examples in sets.values()} == {items}
    assert sets["en"].labels == sets["ko"].labels == sets["zh"].labels


@pytest.mark.shared
def test_a_limit_keeps_the_same_sentences_in_every_language(shared, monkeypatch):
    monkeypatch.setenv("CROSSLIFT_DATA", str(shared / "data"))
    sets = parallel_sets("ntrex", ["en", "de"], "test", 50, labelled=False)
    assert sets["en"].parallel_ids == sets["de"].parallel_ids and len(sets["en"]) == 50
