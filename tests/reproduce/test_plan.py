"""Plans: shared runs once, names filled in, reasons for what cannot be had; waves and blocks of a sweep."""

from pathlib import Path

import pytest

from crosslift.errors import BadInput
from crosslift.reproduce.entries import entries
from crosslift.reproduce.perform import grid_blocks
from crosslift.reproduce.plan import Choice, make_plan


def plan(*names, scale="small", **more):
    return make_plan([entries()[name] for name in names], Choice(scale, **more))


def test_a_run_that_two_tables_share_is_planned_once():
    one, two = plan("ear.table1"), plan("ear.table3")
    both = plan("ear.table1", "ear.table3")
    shared = one.steps.keys() & two.steps.keys()
    assert len(both.steps) == len(one.steps) + len(two.steps) - len(shared)
    # EAR itself, three seeds.
    assert [both.steps[key].config["method"] for key in shared] == ["ear"] * 3
    assert all(both.steps[key].tables == ["ear.table1", "ear.table3"] for key in shared)


def test_papers_share_the_plain_baseline():
    both = plan("ear.table1", "adjustment.table2")
    plain = [step for step in both.steps.values() if step.config["method"] == "finetune" and not step.needs]
    assert len(plain) == 3 and all(len(step.tables) == 2 for step in plain)


def test_a_shared_run_is_scored_in_the_languages_that_either_asks_for():
    (step, *_) = [s for s in plan("ear.figure6", "ear.table6").steps.values() if s.config.get("scale") == 1.0]
    (evaluation,) = step.evaluations.values()
    assert sorted(evaluation["languages"]) == sorted(entries()["ear.table6"].columns[0].languages)


def test_an_encoder_is_adjusted_for_each_language_and_seed_by_itself():
    steps = plan("adjustment.table3").steps
    encoders = [step for step in steps.values() if step.config["method"] == "adjust"]
    assert len(encoders) == 4 * 3
    assert {str(step.config["bitext"]) for step in encoders} == {str({x: "bitext"}) for x in ("es", "ru", "vi", "hi")}
    for step in steps.values():
        for need in step.needs:
            assert list(steps).index(need) < list(steps).index(step.key), "what it builds on comes first"
            assert steps[need].seed == step.seed


def test_whoever_needs_more_says_what():
    absent = plan("plugin-x.table1", "ear.table1", "igap.table6").absent
    assert absent["plugin-x.table1", "PlugIn-X (XLM-R)", "fr"].startswith("needs plain text")
    assert absent["plugin-x.table1", "PlugIn-X (InfoXLM)", "fr"].endswith("--model infoxlm=FOLDER")
    assert absent["ear.table1", "XLM-R", "en"].endswith("--model xlm-r=FOLDER")
    assert absent["ear.table1", "+ Syntax", "en"].startswith("quoted")
    found = plan("ear.table1", models={"xlm-r": "some/folder"})
    assert {step.config["model"] for step in found.steps.values()} == {"mini-x", "some/folder"}
    assert not [key for key in found.absent if key[1] != "+ Syntax"]


def test_the_model_takes_the_place_of_the_papers():
    assert {s.config["model"] for s in plan("ear.table2", models={"main": "a/b"}).steps.values()} == {"a/b"}
    steps = plan("ear.table2", scale="paper").steps.values()
    assert {s.config["model"] for s in steps} == {"bert-base-multilingual-cased", "xlm-roberta-base"}
    ear = next(s for s in steps if s.config["method"] == "ear")
    assert (ear.config["alpha"], ear.config["beta"], ear.config["layer"]) == (1.0, 0.1, 6)
    assert (ear.config["learning_rate"], ear.config["batch_size"], ear.config["copies"]) == (2e-5, 32, 10)
    assert {s.seed for s in steps} == {1, 2, 3, 4, 5}


def test_a_language_that_the_data_lacks_stays_empty_and_a_mean_goes_without_it():
    found = make_plan(
        [entries()["ear.table1"], entries()["ear.table6"]], Choice("small"), lambda data, split: ["en", "de", "th"]
    )
    assert found.absent["ear.table1", "mBERT", "sw"] == "xnli has no sw"
    assert found.partly["ear.table6", "1.0", "XNLI"].startswith("without ar, bg")
    assert {source.language for source in found.cells["ear.table6", "1.0", "XNLI"]} == {"en", "de", "th"}


def test_an_unknown_scale_is_refused():
    with pytest.raises(BadInput, match='Did you mean "small"'):
        Choice("smal")


def test_seeds_of_one_setting_are_one_block_and_folders_stand_for_names():
    steps = plan("adjustment.table3", models={"main": "m"}).steps
    encoders = [step for step in steps.values() if step.config["method"] == "adjust"]
    blocks = grid_blocks(encoders, {})
    assert [block["seeds"] for block, _ in blocks] == [[1, 2, 3]] * 4
    tuned = [step for step in steps.values() if step.needs]
    folders = {step.key: Path("out") / step.key for step in encoders}
    for block, own in grid_blocks(tuned, folders):
        (step,) = own
        assert block["model"] == f"out/{step.needs[0]}" and block["seeds"] == [step.seed]
        assert block["evaluate"][0]["data"] == "panx"


def test_a_list_that_is_a_value_is_no_axis():
    (block, _), *_ = grid_blocks(list(plan("igap.table3").steps.values()), {})
    assert block["targets"] == [
        ["ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"]
    ]


def test_smoke_fills_three_columns_of_a_row():
    found = plan("ear.table1", scale="smoke")
    assert {column for _, row, column in found.cells if row == "mBERT"} == {"en", "ar", "bg"}
    assert {step.seed for step in found.steps.values()} == {1}


def test_nothing_is_trained_for_cells_that_stay_empty():
    assert not plan("plugin-x.figure4").steps, "without a connector no task model is needed"
    diagonal = plan("igap.figure6").absent
    assert diagonal["igap.figure6", "de", "de"] == "the paper has no such cell"
