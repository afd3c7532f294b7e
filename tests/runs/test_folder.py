"""The folder of a run: begun, gone on with, refused, found."""

import json

import pytest

from crosslift.errors import BadInput, BrokenRun
from crosslift.runs.folder import RunFolder, find_runs


def test_a_new_folder_keeps_its_settings_and_takes_the_same_ones_again(tmp_path):
    config = {"method": "finetune", "seed": 1, "task": {"labels": ("a", "b")}}
    RunFolder.start(tmp_path / "run", config)
    again = RunFolder.start(tmp_path / "run", config)
    assert again.config == {"method": "finetune", "seed": 1, "task": {"labels": ["a", "b"]}}
    assert not again.done


def test_other_settings_are_refused_with_what_differs_and_nothing_is_lost(tmp_path):
    RunFolder.start(tmp_path / "run", {"method": "finetune", "seed": 1})
    with pytest.raises(BadInput, match="seed: 1 there, 2 now") as caught:
        RunFolder.start(tmp_path / "run", {"method": "finetune", "seed": 2})
    assert "--overwrite" in caught.value.remedy
    assert RunFolder(tmp_path / "run").config["seed"] == 1
    replaced = RunFolder.start(tmp_path / "run", {"method": "finetune", "seed": 2}, overwrite=True)
    assert replaced.config["seed"] == 2


def test_somebody_elses_folder_is_never_written_into_nor_removed(tmp_path):
    (tmp_path / "thesis.txt").write_text("three years")
    for overwrite in (False, True):
        with pytest.raises(BadInput, match="no run folder"):
            RunFolder.start(tmp_path, {"method": "finetune"}, overwrite=overwrite)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_model_folder_is_not_overwritten_as_if_it_were_a_run(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_text("weights")
    with pytest.raises(BadInput):
        RunFolder.start(tmp_path, {"method": "finetune"}, overwrite=True)
    assert (tmp_path / "model.safetensors").exists()


def test_finishing_removes_the_checkpoints_and_keeps_the_summary(tmp_path):
    run = RunFolder.start(tmp_path / "run", {"method": "finetune"})
    (run.state / "step-00000001").mkdir(parents=True)
    run.finish({"selected": "best", "seconds": 12.5})
    assert run.done
    assert not run.state.exists()
    assert RunFolder(tmp_path / "run").summary == {"selected": "best", "seconds": 12.5}


def test_a_run_that_does_not_time_itself_notes_how_long_its_folder_was_open(tmp_path, monkeypatch):
    clock = iter([100.0, 107.25])
    monkeypatch.setattr("crosslift.runs.folder.time.monotonic", lambda: next(clock))
    run = RunFolder.start(tmp_path / "run", {"method": "words"})
    run.finish({})
    monkeypatch.undo()
    assert run.summary == {"seconds": 7.2}


def test_a_torn_config_is_named(tmp_path):
    RunFolder.start(tmp_path / "run", {"method": "finetune"})
    (tmp_path / "run" / "config.json").write_text('{"method": "fine')
    with pytest.raises(BrokenRun, match=r"config\.json cannot be read"):
        RunFolder(tmp_path / "run").config  # noqa: B018


def test_a_folder_without_a_run_says_so(tmp_path):
    with pytest.raises(BadInput, match="is not a run folder"):
        RunFolder(tmp_path).config  # noqa: B018
    assert RunFolder(tmp_path).results() == {}


def test_runs_are_found_by_seed_in_the_order_of_numbers(tmp_path):
    for seed in (10, 9, 2):
        RunFolder.start(tmp_path / f"seed-{seed}", {"method": "finetune", "seed": seed})
    assert [run.config["seed"] for run in find_runs(tmp_path)] == [2, 9, 10]
    assert [run.path for run in find_runs(tmp_path / "seed-9")] == [tmp_path / "seed-9"]


def test_a_hugging_face_folder_and_a_missing_one_are_no_runs(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert find_runs(tmp_path) == []
    assert find_runs(tmp_path / "missing") == []


def test_notes_are_kept_in_order_with_their_time(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.note("first")
    run.note("zweitens ü")
    lines = run.log.read_text(encoding="utf-8").splitlines()
    assert [line[20:] for line in lines] == ["first", "zweitens ü"]
    assert lines[0][:2] == "20"


def test_a_run_that_was_killed_while_it_wrote_its_settings_begins_anew(tmp_path):
    draft = tmp_path / "run" / ".config.json-x1y2"
    draft.mkdir(parents=True)
    (draft / "config.json").write_text('{"seed"')
    run = RunFolder.start(tmp_path / "run", {"seed": 1})
    assert run.config == {"seed": 1}
    run.finish({"steps": 1})
    assert not draft.exists()
    (tmp_path / "other" / ".config.json-x1y2").mkdir(parents=True)
    (tmp_path / "other" / "thesis.tex").write_text("…")
    with pytest.raises(BadInput, match="is not empty and is no run folder"):
        RunFolder.start(tmp_path / "other", {"seed": 1})


def test_a_run_that_is_refused_before_it_made_anything_leaves_no_folder(tmp_path):
    for made in (False, True):
        run = RunFolder.start(tmp_path / "run", {"seed": 1})
        run.note("plan")
        with pytest.raises(BadInput, match="bad file"), run.locked():
            if made:
                run.metrics.write_text("{}\n")
            raise BadInput("bad file")
        assert run.path.exists() == made
