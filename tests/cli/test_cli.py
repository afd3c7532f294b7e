"""The command line: light to start, clear when something is wrong, and the whole way from a file to scores."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import equal

from crosslift.cli import run
from tests.tiny_data import classification
from tests.tiny_models import save_encoder

SRC = str(Path(__file__).parents[2] / "src")
ENV = {**os.environ, "PYTHONPATH": SRC, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-m", "crosslift"]
QUICK = ["--steps", "12", "--batch-size", "8", "--learning-rate", "5e-3", "--evaluations", "2"]


def write_tsv(path: Path, count: int, seed: int, language: str = "en", **relabelled: str) -> Path:
    examples = classification(count, seed, language=language)
    rows = zip(examples.ids, examples.texts, examples.labels, strict=True)
    lines = [f"{id_}\t{text}\t{relabelled.get(id_, label)}" for id_, text, label in rows]
    path.write_text("\n".join(["id\ttext\tlabel", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """A folder with an encoder, data, and a run of two seeds fitted through the command line."""
    folder = tmp_path_factory.mktemp("here")
    save_encoder(folder / "encoder")
    for name, count, seed in (("train", 40, 1), ("dev", 8, 2), ("test.de", 16, 3), ("test.sw", 16, 4)):
        write_tsv(folder / f"{name}.tsv", count, seed)
    for name, seeds in (("group", "1-2"), ("other", "3,4")):
        assert run([*fit_command(folder, name), "--seeds", seeds, "--quiet"]) == 0
    return folder


def fit_command(folder: Path, name: str) -> list[str]:
    files = {"--model": "encoder", "--data": "train.tsv", "--dev": "dev.tsv", "--out": name}
    return ["fit", "finetune", *(word for flag, file in files.items() for word in (flag, str(folder / file))), *QUICK]


def test_help_answers_in_half_a_second_without_the_heavy_libraries():
    code = (
        "import sys\nfrom crosslift.cli import run\n"
        "for verb in ([], ['fit'], ['evaluate'], ['compare']): run([*verb, '--help'])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'scipy', 'sklearn', 'accelerate'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENV, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "From the language you have" in done.stdout
    spent = []
    for _ in range(3):  # processor time: other tests may keep the machine busy
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, "--help"], env=ENV, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.5


def test_from_a_file_to_scores_predictions_and_a_comparison(here, capsys):
    for name in ("group", "other"):
        assert run(["evaluate", str(here / name), "--data", str(here / "test.{lang}.tsv"), "-q"]) == 0
    table = capsys.readouterr().out
    assert f"finetune, {here.name}/test, from en: accuracy, seeds 3, 4" in table
    assert "±" in table
    assert table.splitlines()[-3].split() == ["de", "sw", "all", "targets"]

    assert run(["compare", str(here / "group"), str(here / "other"), "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["metric"] == "accuracy"
    assert set(compared["languages"]) == {"de", "sw"}
    assert run(["compare", str(here / "group"), str(here / "other"), "-l", "de"]) == 0
    assert capsys.readouterr().out.startswith("accuracy, a − b\nde ")

    assert run(["predict", str(here / "group"), "the tree is red today", "a bird", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(row) for row in rows] == [{"id", "prediction", "probabilities"}] * 2
    assert (
        run(
            [
                "predict",
                str(here / "group"),
                "--data",
                str(here / "test.de.tsv"),
                "--out",
                str(here / "said.jsonl"),
                "-q",
            ]
        )
        == 0
    )
    assert len((here / "said.jsonl").read_text().splitlines()) == 16

    assert run(["ls", "runs", "--folder", str(here), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [Path(row["run"]).relative_to(here).as_posix() for row in runs] == [
        "group/seed-1",
        "group/seed-2",
        "other/seed-3",
        "other/seed-4",
    ]
    assert {(row["state"], row["evaluated"]) for row in runs} == {("done", f"{here.name}/test")}


def test_json_is_all_that_is_printed_where_it_is_asked_for(here, capsys):
    assert run([*fit_command(here, "group"), "--seeds", "1-2", "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert [summary["selected"] for summary in fitted["seeds"]] == ["best", "best"]
    assert (
        run(["evaluate", str(here / "group"), "-d", str(here / "test.de.tsv"), "-l", "de", "--variants", "--json"]) == 0
    )
    tables = json.loads(capsys.readouterr().out)
    assert [table["system"] for table in tables] == ["finetune (best)", "finetune (last)", "finetune (average)"]
    assert set(tables[0]["rows"]["de"]) == {"1", "2"}
    for what in ("data", "models", "methods"):
        assert run(["ls", what, "--json"]) == 0
        assert isinstance(json.loads(capsys.readouterr().out), list)
    assert run(["env", "--json"]) == 0
    assert "torch" in json.loads(capsys.readouterr().out)["packages"]


def test_lists_for_people(here, capsys):
    assert run(["env"]) == 0
    assert "transformers" in capsys.readouterr().out
    assert run(["ls"]) == 0
    assert "demo-intent" in capsys.readouterr().out
    assert run(["ls", "methods"]) == 0
    assert "finetune  labels  plain fine-tuning" in capsys.readouterr().out
    assert run(["ls", "runs", "--folder", str(here / "encoder")]) == 0
    assert "No runs here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gain", "said"), [(None, "crashes on this CPU"), (0.8, "0.8 times as fast"), (2.7, "--precision bf16")]
)
def test_env_says_whether_bf16_is_worth_it_on_this_cpu(gain, said, capsys, monkeypatch):
    monkeypatch.setattr("crosslift.runs.machine.cpu_bf16_gain", lambda: gain)
    assert run(["env"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("bf16"))
    assert said in line
    assert ("--precision" in line) == (gain == 2.7)


def test_the_plan_is_said_before_the_run(here, capsys, tmp_path):
    assert run([*fit_command(here, "train.tsv")[:-8], *QUICK, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    plan = said.err
    assert "40 × classification (en) from train.tsv; dev 8 from dev.tsv" in plan
    assert "12 steps of 8" in plan
    assert "GiB" in plan
    assert "delivered: best" in said.out
    assert "opens with transformers alone" in said.out


def test_a_misspelt_label_gets_its_file_its_line_the_nearest_name_and_the_remedy(here, tmp_path, capsys, monkeypatch):
    write_tsv(tmp_path / "colours-de.tsv", 16, 3, c6="greeen")
    monkeypatch.chdir(tmp_path)
    assert run(["evaluate", str(here / "group"), "--data", "colours-de.tsv"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'colours-de.tsv, line 8: label "greeen" is not one of blue, green, red.',
        '  Did you mean "green"?  Map it with --labels greeen=green, or leave such rows out with --skip-unknown.',
    ]
    out = ["--out", str(tmp_path / "results"), "--json"]
    assert run(["evaluate", str(here / "group"), "--data", "colours-de.tsv", "--labels", "greeen=green", *out]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["und"]["1"]["accuracy"]["n"] == 16
    assert run(["evaluate", str(here / "group"), "--data", "colours-de.tsv", "--skip-unknown", *out]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["und"]["1"]["accuracy"]["n"] == 15
    assert run(["evaluate", str(here / "group"), "--data", "colours-de.tsv", "--keep-unknown", *out]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["und"]["1"]["accuracy"]["n"] == 16


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "finetune", "--learning-rat", "1"], "Unknown option --learning-rat. Did you mean --learning-rate?"),
        (["evaluate", "x", "--langages", "de"], "Unknown option --langages. Did you mean --languages?"),
        (["fit", "finetun"], "finetune"),
        (["evaluat"], "evaluate"),
        (["fit", "finetune"], "--model"),
        (["evaluate"], "model"),
        (["ls", "modles"], 'Did you mean "models"?'),
        (["predict", "./no-such-run", "text"], "no folder"),
        (["compare", "here", "there"], "not a run folder"),
        (["evaluate", "no-such-model", "--data", "xnli"], "hub is switched off"),
        (["fit", "finetune", "-m", "x", "-d", "x.tsv", "-o", "y", "--seeds", "one"], "--seeds takes whole numbers"),
        (["fit", "finetune", "-m", "x", "-d", "missing.tsv", "-o", "y"], "missing.tsv"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_with_what_to_do_and_code_2(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    told = capsys.readouterr()
    assert said.lower() in told.err.lower()
    assert "Traceback" not in told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch-size", "many"], "--batch-size takes a whole number, not 'many'"),
        (["--schedule", "liner"], 'Did you mean "linear"?'),
        (["--learning-rate", "-1"], "--learning-rate must be above 0"),
        (["--columns", "text"], "--columns takes name=value"),
        (["--stride", "12"], 'There is no setting "stride"'),
    ],
)
def test_a_bad_setting_is_refused_before_anything_is_written(words, said, here, capsys, tmp_path):
    assert run([*fit_command(here, "x")[:10], "--out", str(tmp_path / "run"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_broken_run_is_code_1(here, tmp_path, capsys):
    assert run([*fit_command(here, "x"), "--out", str(tmp_path / "run"), "--seeds", "1", "-q"]) == 0
    (tmp_path / "run" / "config.json").write_text("{")
    assert run(["evaluate", str(tmp_path / "run"), "-d", str(here / "test.de.tsv")]) == 1
    assert "config.json cannot be read" in capsys.readouterr().err


def test_ctrl_c_is_code_130_and_the_same_command_then_finishes(here, tmp_path):
    """A real process and a real signal; the weights end as if nothing had happened."""
    words = [*fit_command(here, "x"), "--out", str(tmp_path / "run"), "--steps", "120", "--log-every", "1"]
    process = subprocess.Popen(
        [*COMMAND, *words], env=ENV, stderr=subprocess.PIPE, text=True,
        # A job in the background of a script ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    log = tmp_path / "run" / "metrics.jsonl"
    while not (log.exists() and log.stat().st_size):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "nothing is lost" in said
    assert "Start the same command again to go on." in said
    assert run([*words, "--quiet"]) == 0
    whole = tmp_path / "whole"
    assert run([*words, "--out", str(whole), "--quiet"]) == 0
    resumed, straight = (load_file(path / "model" / "model.safetensors") for path in (tmp_path / "run", whole))
    assert all(equal(resumed[name], tensor) for name, tensor in straight.items())


def test_a_reader_that_has_gone_is_no_crash():
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen([*COMMAND, "ls", "data"], env=ENV, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0
