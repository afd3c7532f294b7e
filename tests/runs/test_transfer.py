"""The main job: candidates by what there is, a choice without target labels, and nothing lost when it is killed."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from crosslift.cli import run
from crosslift.cli.transfer import seconds
from crosslift.demo import LANGUAGES
from crosslift.errors import BadInput, CrossliftError
from crosslift.report.transferred import transfer as transfer_with_page
from crosslift.runs.demo import demo
from crosslift.runs.fit import fit
from crosslift.runs.transfer import NEEDS, candidates, transfer
from tests.tiny_bitext import bitext
from tests.tiny_data import classification
from tests.tiny_models import save_encoder

QUICK = {"steps": 4, "batch_size": 8, "evaluations": 2}
TEST = {"en": classification(20, 2), "de": classification(20, 3, language="de")}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="module")
def done(encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("transfer") / "out"
    return transfer_with_page(
        out=out, model=encoder, data=classification(60), dev=classification(20, 1), bitext={"de": bitext()}, test=TEST,
        methods=["robust", "adjust", "with-adjustment"], **QUICK,
    )  # fmt: skip


def test_candidates_are_those_that_the_inputs_allow():
    assert candidates({"labels"})[0] == ["finetune", "ear", "robust"]
    assert candidates({"labels", "bitext"})[0] == ["finetune", "ear", "robust", "adjust", "with-adjustment"]
    assert candidates({"task-model", "text"}) == (
        ["distill"],
        {name: f"needs {' and '.join(needs)}" for name, needs in NEEDS.items() if name != "distill"},
    )


def test_the_plain_baseline_runs_even_when_other_methods_are_named():
    assert candidates({"labels"}, ["ear"])[0] == ["finetune", "ear"]


@pytest.mark.parametrize(
    ("have", "methods", "message"),
    [
        ({"labels"}, ["robst"], 'There is no candidate "robst". Did you mean "robust"?'),
        ({"labels"}, ["adjust"], "adjust needs bitext."),
        ({"text"}, None, "There is nothing to transfer from."),
    ],
)
def test_what_cannot_run_is_refused_before_anything_does(have, methods, message):
    with pytest.raises(BadInput) as error:
        candidates(have, methods)
    assert error.value.seen == message


def test_a_duration_is_read_in_seconds():
    assert [seconds(x) for x in ("90s", "30m", "1.5h", "2")] == [90, 1800, 5400, 120]
    with pytest.raises(BadInput, match="--budget takes a time"):
        seconds("soon")


def test_every_candidate_is_run_and_scored_in_every_language(done):
    assert list(done.runs) == ["finetune", "robust", "adjust", "with-adjustment"]
    assert {name: list(scores.rows) for name, scores in done.scores.items()} == {
        name: ["en", "de"] for name in done.runs
    }
    assert done.failed == {}
    assert len(done.table().splitlines()) == 5


def test_the_choice_goes_by_source_dev_scores_alone(done):
    record = json.loads((done.path / "transfer.json").read_text())
    assert record["target_labels_read"] is False
    for name, path in done.runs.items():
        facts = json.loads((path / "finished.json").read_text())
        assert record["signals"][name] == facts["dev"][facts["selected"]]["accuracy"]
    best = max(record["signals"].values())
    assert record["chosen"] == next(name for name, value in record["signals"].items() if value == best)
    assert "en dev data; no target label was read" in record["rule"]


def test_what_the_choice_cost_is_said_in_hindsight(done):
    test = json.loads((done.path / "transfer.json").read_text())["test"]
    means = {name: scores.mean("targets").mean for name, scores in done.scores.items()}
    assert test["points_below_it"] == round(max(means.values()) - means[done.chosen], 2)


def test_the_model_is_the_chosen_one_and_opens_with_transformers(done):
    assert weights(done.model) == weights(done.runs[done.chosen] / "model")
    assert AutoModelForSequenceClassification.from_pretrained(done.model).config.num_labels == 3
    assert (done.model / "README.md").read_text() == (done.runs[done.chosen] / "model" / "README.md").read_text()


def test_the_report_names_the_choice(done):
    assert f"Transfer: {done.chosen} was chosen" in (done.path / "report.html").read_text()


def test_another_request_in_the_same_folder_is_refused(done, encoder):
    with pytest.raises(BadInput, match="holds another transfer"):
        transfer(out=done.path, model=encoder, data=classification(50), **QUICK)


def test_target_labels_are_refused_unless_they_are_allowed_and_then_it_is_said(encoder, tmp_path):
    given = {"out": tmp_path / "out", "model": encoder, "data": classification(60), "methods": ["finetune"]}
    with pytest.raises(BadInput, match="Gold labels of target languages"):
        transfer(**given, target_dev=TEST, **QUICK)
    done = transfer(**given, target_dev=TEST, allow_target_dev=True, **QUICK)
    assert done.rule.startswith("GOLD TARGET DEV DATA")
    assert json.loads((tmp_path / "out" / "transfer.json").read_text())["target_labels_read"] is True


def test_a_failed_candidate_is_reported_and_does_not_sink_the_rest(encoder, tmp_path):
    broken = tmp_path / "de.tsv"
    broken.write_text("no tabulator here\n")
    done = transfer(
        out=tmp_path / "out", model=encoder, data=classification(60), bitext={"de": broken}, methods=["adjust"], **QUICK
    )
    assert list(done.runs) == ["finetune"] and list(done.failed) == ["adjust"]
    assert "de.tsv, line 1" in done.failed["adjust"]


def test_when_nothing_succeeds_the_reasons_are_given(encoder, tmp_path):
    with pytest.raises(CrossliftError, match=r"No candidate succeeded \(finetune: "):
        transfer(out=tmp_path / "out", model=encoder, data=tmp_path / "nothing.tsv", methods=["finetune"], **QUICK)


def test_what_does_not_fit_the_budget_is_left_out_and_named(encoder, tmp_path):
    given = {"out": tmp_path / "out", "model": encoder, "data": classification(60), "methods": ["robust"]}
    done = transfer(**given, budget=0.001, **QUICK)
    assert list(done.runs) == ["finetune"]
    assert "of the budget left" in done.skipped["robust"]


def test_a_task_model_and_text_are_enough(encoder, tmp_path):
    teacher = fit("finetune", model=encoder, data=classification(60), out=tmp_path / "teacher", steps=30, batch_size=8,
                  learning_rate=5e-3, evaluations=1)  # fmt: skip
    done = transfer(
        out=tmp_path / "out", model=encoder, task_model=teacher.model, text={"en": classification(80, 5)}, test=TEST,
        **{**QUICK, "steps": 30, "learning_rate": 5e-3},
    )  # fmt: skip
    assert done.chosen == "distill"
    assert list(done.scores) == ["task-model", "distill"]
    assert done.rule == "agreement with the task model; no label was read"


def test_the_command_line_tells_the_same_as_python(encoder, tmp_path, capsys):
    rows = classification(60)
    lines = [f"{text}\t{label}" for text, label in zip(rows.texts, rows.labels, strict=True)]
    for file in ("train.tsv", "test-en.tsv", "test-de.tsv"):
        (tmp_path / file).write_text("\n".join(["text\tlabel", *lines]) + "\n")
    words = ["transfer", "--model", str(encoder), "--data", str(tmp_path / "train.tsv"), "--methods", "finetune"]
    words += ["--test", str(tmp_path / "test-{lang}.tsv"), "--languages", "de,en", "--steps", "2", "--quiet"]
    words += ["--evaluations", "1", "--out", str(tmp_path / "out"), "--budget", "10m"]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert "chosen    finetune (highest score on en dev data; no target label was read)" in said
    assert "hindsight" not in said  # nothing else was tried
    assert f"report    {tmp_path / 'out' / 'report.html'}" in said
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "out" / "transfer.json").read_text())


@pytest.mark.slow
def test_the_demo_scores_its_candidates_in_every_language_of_the_corpus(encoder, tmp_path):
    done = demo(tmp_path / "demo", model=str(encoder), steps=2, evaluations=1)
    assert list(done.scores) == ["finetune", "robust"]
    for scores in done.scores.values():
        assert next(iter(scores.rows)) == "en" and set(scores.rows) == set(LANGUAGES)


KILLED = """
import os, signal, sys
from pathlib import Path
from crosslift.runs.progress import Silent
from crosslift.runs.transfer import transfer
from tests.runs.test_transfer import TEST, QUICK
from tests.tiny_bitext import bitext
from tests.tiny_data import classification

out, encoder, kills = Path(sys.argv[1]), sys.argv[2], [int(x) for x in sys.argv[3].split(",") if x]

class Dies(Silent):
    def __init__(self, at):
        self.left = at

    def tick(self, *_, **__):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

    start = advance = finish = say = tick

def job(watch, out=out / "killed"):
    transfer(out=out, model=encoder, data=classification(60), dev=classification(20, 1), bitext={"de": bitext()},
             test=TEST, methods=["robust", "adjust"], checkpoint_every=1, watch=watch, **QUICK)

died = 0
for at in kills:
    child = os.fork()
    if not child:
        job(Dies(at))
        os._exit(0)
    died += os.WIFSIGNALED(os.waitpid(child, 0)[1])
job(Silent())
job(Silent(), out / "whole")
print(died)
"""


def killed(out: Path, encoder: Path, kills: list[int]) -> int:
    """Run a transfer that is killed outright at its n-th sign of life, again and again, then let it end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{Path('src').resolve()}:{Path().resolve()}"}
    words = [sys.executable, "-c", KILLED, str(out), str(encoder), ",".join(map(str, kills))]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def result(out: Path) -> tuple[object, str]:
    record = json.loads((out / "transfer.json").read_text().replace(str(out), "OUT"))
    return record, weights(out / "model")


def weights(model: Path) -> str:
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()


def test_killed_and_started_again_it_ends_in_the_same_result(encoder, tmp_path):
    assert killed(tmp_path, encoder, [3, 12, 25]) == 3
    assert result(tmp_path / "killed") == result(tmp_path / "whole")


@pytest.mark.slow
def test_ten_kills_end_in_the_same_result(encoder, tmp_path):
    assert killed(tmp_path, encoder, [1, 2, 5, 7, 9, 12, 15, 16, 17, 19]) == 10
    assert result(tmp_path / "killed") == result(tmp_path / "whole")
