"""What a sweep does besides training: measurements as runs, halves, evaluations of single blocks, no workers."""

import json

import pytest

from crosslift.data import load
from crosslift.errors import BadInput, Unfinished
from crosslift.reproduce.entries import HOME
from crosslift.runs import sweep_work
from crosslift.runs.sweep import sweep
from crosslift.runs.sweep_assemblies import halved
from crosslift.runs.sweep_grid import plan
from crosslift.runs.sweep_measures import named_bitext
from tests.tiny_models import save_encoder

SYNONYMS = HOME / "smoke-synonyms.tsv"
FIT = {"method": "finetune", "data": "demo-nli", "steps": 1, "batch_size": 4, "limit": 12, "evaluations": 1}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return str(save_encoder(tmp_path_factory.mktemp("models") / "tiny"))


def test_a_block_may_be_scored_elsewhere_than_the_rest(encoder):
    grid = {
        "shared": {**FIT, "model": encoder},
        "fit": [{"batch_size": 4}, {"batch_size": 5, "evaluate": {"data": "demo-nli", "languages": ["de"]}}],
        "evaluate": {"languages": ["en"]},
    }
    first, second = plan(grid)
    assert first.evaluations[0]["languages"] == ["en"] and second.evaluations[0]["languages"] == ["de"]
    grid["fit"][1]["evaluate"] = {"langs": ["de"]}
    with pytest.raises(BadInput, match="langs"):
        plan(grid)


def test_runs_in_this_process_give_the_same_folder_and_are_not_done_twice(encoder, tmp_path):
    grid = {"fit": {**FIT, "model": encoder}, "evaluate": {"languages": ["de"], "limit": 8}}
    done = sweep(grid, out=tmp_path / "out", engine="here")
    assert [run.state for run in done.runs] == ["done"]
    assert [run.state for run in sweep(grid, out=tmp_path / "out", engine="here").runs] == ["kept"]
    with pytest.raises(BadInput, match="local, ray or here"):
        sweep(grid, out=tmp_path / "out", engine="hera")


def test_an_interruption_ends_a_sweep_in_this_process_and_is_not_tried_again(encoder, tmp_path, monkeypatch):
    tries = []

    def interrupted(*_, **__):
        tries.append(1)
        raise Unfinished("Interrupted at step 1 of 2; nothing is lost.")

    monkeypatch.setattr(sweep_work, "perform", interrupted)
    with pytest.raises(Unfinished):
        sweep({"fit": {**FIT, "model": encoder}}, out=tmp_path / "out", engine="here")
    assert tries == [1]


def test_a_measurement_is_a_run_with_results_by_language(encoder, tmp_path):
    block = {"method": "similarities", "model": encoder, "data": "demo-nli", "split": "test", "limit": 8}
    block["targets"] = [["de", "sw"]]
    done = sweep({"fit": block}, out=tmp_path / "out", engine="here")
    (run,) = done.runs
    assert run.state == "done"
    results = json.loads((done.path / run.planned.name / "results.json").read_text())
    assert set(results["similarities"]) == {"de", "sw"}
    assert set(results["similarities"]["de"]["scores"]) == {"l2", "dot", "cosine"}
    assert -1 <= results["similarities"]["de"]["scores"]["cosine"]["value"] <= 1
    (merged,) = json.loads((done.path / "results.json").read_text())["runs"]
    assert merged["measured"]["similarities"]["de"] == results["similarities"]["de"]["scores"]


def test_words_are_put_into_the_plane_where_a_picture_is_asked_for(encoder, tmp_path):
    shared = {"model": encoder, "picture": 12}
    blocks = [
        {**shared, "method": "words", "bitext": {"de": "demo-intent/dev"}, "samples": 50, "sentences": 10, "limit": 40},
        {**shared, "method": "synonyms", "data": "demo-nli", "synonyms": str(SYNONYMS), "count": 20},
    ]
    runs = sweep({"fit": blocks}, out=tmp_path / "out", engine="here").runs
    words, synonyms = (json.loads((tmp_path / "out" / run.planned.name / "results.json").read_text()) for run in runs)
    picture = words["words"]["de"]["picture"]
    assert set(picture["groups"]) == {"en", "de"} and picture["groups"].count("en") <= 12
    assert len(picture["words"]) == len(picture["links"]) == len(picture["x"]) == len(picture["y"])
    picture = synonyms["synonyms"]["en"]["picture"]
    half = len(picture["words"]) // 2
    pairs = list(zip(picture["words"][:half], picture["words"][half:], strict=True))
    assert ("lessons", "classes") in pairs and picture["groups"] == ["word"] * half + ["synonym"] * half
    assert picture["links"][:half] == picture["links"][half:]


def test_igap_of_one_seed_as_a_run(encoder, tmp_path):
    block = {"method": "igap", "model": encoder, "data": "demo-nli", "split": "test", "held_out": "test", "limit": 12}
    block |= {"epochs": 1, "every": 1, "epsilon": 1.0, "candidates": 2, "targets": [["en", "de"]]}
    (run,) = sweep({"fit": block}, out=tmp_path / "out", engine="here").runs
    cells = json.loads((tmp_path / "out" / run.planned.name / "results.json").read_text())["igap"]
    scores = {name: one["value"] for name, one in cells["de"]["scores"].items()}
    # The paper's decomposition: error = interlingual gap + intralingual gap + training error.
    training = cells["en"]["scores"]["training"]["value"]
    assert 100 - scores["score"] == pytest.approx(scores["interlingual"] + scores["intralingual"] + training)


def test_bands_of_a_grid_are_numbers_however_they_are_written(encoder, tmp_path):
    block = {"method": "igap", "model": encoder, "data": "demo-nli", "split": "test", "limit": 12, "epochs": 1}
    block |= {"every": 1, "candidates": 1, "targets": [["en", "de"]]}
    # YAML takes 1e-1, which has no dot, for text.
    (run,) = sweep({"fit": {**block, "errors": [[["0", "1e-1"], [1e-1, "9e-1"]]]}}, out=tmp_path, engine="here").runs
    assert (run.state, list(run.record["measured"])) == ("done", ["igap@0", "igap", "igap@0.1"])
    for bad in ({"errors": "x"}, {"errors": [[[0, 0.1, 0.2]]]}, {"epsilon": "wide"}):
        (run,) = sweep({"fit": {**block, **bad}}, out=tmp_path, engine="here").runs
        assert (run.state, run.attempts) == ("failed", 1)
        assert "errors and epsilon in the grid are numbers" in run.error


def test_igap_that_ended_halfway_goes_on_with_another_use_of_the_machine(encoder, tmp_path, monkeypatch):
    block = {"method": "igap", "model": encoder, "data": "demo-nli", "split": "test", "limit": 12}
    block |= {"epochs": 1, "every": 1, "epsilon": 1.0, "candidates": 1, "targets": [["en", "de"]]}
    with monkeypatch.context() as broken:
        broken.setattr("crosslift.runs.igap.igap", lambda *_, **__: 1 / 0)
        (run,) = sweep({"fit": block}, out=tmp_path, engine="here", retries=0).runs
        assert run.state == "failed"
    (again,) = sweep({"fit": {**block, "max_tokens": 512}}, out=tmp_path, engine="here", retries=0).runs
    assert (again.planned.name, again.state) == (run.planned.name, "done")


def test_halves_are_cut_alike_in_every_language():
    parts = {}
    for language in ("en", "de"):
        found = load("demo-intent", language=language, split="train")
        kept, rest = halved(found, "annotated"), halved(found, "unannotated")
        assert kept.labels is not None and rest.labels is None
        parts[language] = {*(kept.parallel_ids or kept.ids)}, {*(rest.parallel_ids or rest.ids)}
        assert not parts[language][0] & parts[language][1]
    assert not parts["en"][0] & parts["de"][1], "no translation of a labelled sentence is plain text"
    with pytest.raises(BadInput, match="annotated or unannotated"):
        halved(found, "annotatd")


def test_sentence_pairs_go_by_name():
    pairs = named_bitext("demo-intent/dev", "hi")
    assert pairs.kind == "bitext" and pairs.pair_language == "hi"
    assert named_bitext("some/file.tsv", "hi") == "some/file.tsv"


def test_a_grid_may_train_on_one_half(encoder, tmp_path):
    block = {**FIT, "model": encoder, "data": "demo-intent", "half": "annotated", "limit": None}
    (run,) = sweep({"fit": block}, out=tmp_path / "out", engine="here").runs
    assert run.state == "done", run.error
    with pytest.raises(BadInput, match="adjust"):
        plan({"fit": {"method": "adjust", "model": encoder, "bitext": {"de": "demo-intent"}, "half": "annotated"}})
