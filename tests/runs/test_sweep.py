"""Sweeps on the local engine: real workers, real kills; every run is done once, whatever happens to them."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file
from torch import equal

from crosslift.errors import BadInput
from crosslift.runs.fit import fit
from crosslift.runs.sweep import sweep
from crosslift.runs.sweep_local import Local
from crosslift.runs.sweep_ray import Ray, places
from tests.runs.sweep_data import ENV, GRID, RUN, make, weights_equal
from tests.tiny_data import classification


def events(out: Path) -> list[tuple[str, str]]:
    lines = (out / ".sweep" / "events.jsonl").read_text().splitlines()
    return [(row["run"], row["event"]) for row in map(json.loads, lines)]


class Killer:
    """Kills the worker of the first run that has written a checkpoint, once."""

    def __init__(self, out: Path) -> None:
        self.out, self.killed = out, ""

    def __call__(self, runs) -> None:
        for run in runs:
            name = run.planned.name
            if not self.killed and run.state == "running" and list((self.out / name / "state").glob("step-*")):
                file = self.out / ".sweep" / "progress" / f"{name.replace('/', '.')}.progress"
                os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)
                self.killed = name


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def swept(here):
    """Two seeds that can be trained and two that cannot (a dev label that training data lacks), one worker killed."""
    killer = Killer(here / "out")
    # Long enough that a checkpoint is seen while its run is still at work.
    grid = {**GRID, "shared": {**GRID["shared"], "dev": ["dev.tsv", "bad.tsv"], "steps": 96}}
    before = Path.cwd()
    os.chdir(here)
    try:
        done = sweep(grid, out="out", workers=1, show=killer)
    finally:
        os.chdir(before)
    return done, killer.killed, grid


def test_a_killed_worker_is_replaced_and_its_run_goes_on_to_the_same_weights(here, swept, tmp_path, monkeypatch):
    done, killed, _ = swept
    assert killed
    run = next(run for run in done.runs if run.planned.name == killed)
    assert (run.state, run.attempts) == ("done", 2)
    found = events(here / "out")
    assert [event for name, event in found if name == killed] == ["begun", "begun", "trained", "scored"]
    monkeypatch.chdir(here)
    straight = fit(**run.planned.fit, seeds=[run.planned.seed], out=tmp_path / "straight")
    assert weights_equal(here / "out" / killed, straight.path)


def test_every_other_run_was_begun_trained_and_scored_once(here, swept):
    done, killed, _ = swept
    others = [run.planned.name for run in done.runs if run.state == "done" and run.planned.name != killed]
    assert others
    found = events(here / "out")
    for name in others:
        assert [event for one, event in found if one == name] == ["begun", "trained", "scored"]


def test_a_run_that_cannot_work_is_reported_once_and_does_not_sink_the_rest(here, swept):
    done, _, _ = swept
    assert [(run.planned.fit["dev"], run.state) for run in done.runs] == [
        ("dev.tsv", "done"), ("dev.tsv", "done"), ("bad.tsv", "failed"), ("bad.tsv", "failed"),
    ]  # fmt: skip
    assert [run.attempts for run in done.failed] == [1, 1]
    assert all("purple" in str(run.error) for run in done.failed)


def test_results_are_merged_into_one_file_in_the_order_of_the_grid(here, swept):
    done, _, _ = swept
    merged, name = json.loads((here / "out" / "results.json").read_text()), f"{here.name}/test"
    assert merged == json.loads(json.dumps(done.to_dict()))
    assert merged["counts"] == {"done": 2, "failed": 2}
    for run in merged["runs"][:2]:
        own = json.loads((here / "out" / run["run"] / "results.json").read_text())
        assert {x: own[name][x]["scores"] for x in ("de", "sw")} == run["evaluations"][name]
    table = done.table().splitlines()
    assert table[0] == f"{name}, accuracy"
    assert table[1].split() == ["de", "sw", "targets"]
    mean = sum(run["evaluations"][name]["de"]["accuracy"]["value"] for run in merged["runs"][:2]) / 2
    assert table[2].split()[1] == f"{mean:.1f}"


def test_what_is_done_is_not_run_again(here, swept, monkeypatch):
    done, _, grid = swept
    monkeypatch.chdir(here)
    before = events(here / "out")
    again = sweep({**grid, "shared": {**grid["shared"], "dev": "dev.tsv"}}, out="out")  # no worker is started
    assert [run.state for run in again.runs] == ["kept", "kept"]
    assert [run.record for run in again.runs] == [run.record for run in done.runs[:2]]
    assert events(here / "out") == before


def test_when_time_is_up_no_further_run_begins_and_the_same_call_goes_on(here, swept, tmp_path, monkeypatch):
    _, _, grid = swept
    monkeypatch.chdir(here)
    quick = {**grid, "shared": {**grid["shared"], "dev": "dev.tsv", "steps": 2, "seeds": [1, 2, 3]}}
    begun = sweep(quick, out=tmp_path, engine="here", minutes=0)
    assert [run.state for run in begun.left] == ["waiting"] * 3
    assert json.loads((tmp_path / "results.json").read_text())["counts"] == {"waiting": 3}
    done = sweep(quick, out=tmp_path, engine="here")
    assert not done.left
    assert [run.state for run in done.runs] == ["done"] * 3
    with pytest.raises(BadInput, match="--minutes is 0 or more"):
        sweep(quick, out=tmp_path, engine="here", minutes=-1)


def test_a_second_sweep_in_the_same_folder_is_refused_while_the_first_is_at_work(here, swept, monkeypatch):
    _, _, grid = swept
    monkeypatch.chdir(here)
    with (here / "out" / ".sweep" / "sweep.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="Another sweep is at work"):
            sweep(grid, out="out")


def test_workers_are_spread_over_cores_and_shares_of_gpus(tmp_path, monkeypatch):
    cores = sorted(os.sched_getaffinity(0))
    assert [place for place, _ in Local(tmp_path).places] == [[core] for core in cores]
    assert Local(tmp_path, workers=1, cores=len(cores)).places == [(cores, None)]
    monkeypatch.setattr("crosslift.runs.sweep_local._gpus", lambda: 2)
    assert [gpu for _, gpu in Local(tmp_path).places] == [0, 1]
    assert [gpu for _, gpu in Local(tmp_path, gpus=0.5).places] == [0, 0, 1, 1]
    assert [gpu for _, gpu in Local(tmp_path, gpus=0).places] == [None] * len(cores)
    for bad in ({"gpus": 2}, {"gpus": -1}, {"gpus": 0.5, "workers": 5}, {"cores": len(cores) + 1}):
        with pytest.raises(BadInput):
            Local(tmp_path, **bad)


def test_a_cluster_is_given_what_fits_and_the_rest_has_not_begun():
    ray = object.__new__(Ray)
    nodes = [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": 2.0}}, {"Alive": False, "Resources": {}}]
    ray.ray, ray.running = SimpleNamespace(nodes=lambda: nodes), {"one": None}
    for cores, gpus, workers, free in ((1, 0.0, None, 3), (2, 0.0, None, 1), (1, 0.5, None, 3), (1, 1.0, None, 1),
                                       (1, 0.0, 9, 8)):  # fmt: skip
        ray.cores, ray.gpus, ray.most = cores, gpus, workers
        assert ray.free == free
    nodes.append({"Alive": True, "Resources": {"CPU": 4.0}})  # a machine has joined
    ray.cores, ray.gpus, ray.most = 1, 0.0, None
    assert ray.free == 7
    nodes.clear()  # all are lost for a moment; new ones may come
    assert ray.free == 0


@pytest.mark.parametrize(
    ("machines", "cores", "gpus", "fit"),
    [
        ([{"CPU": 3}, {"CPU": 3}], 2, 0.0, 2),  # six cores, and yet not three pairs of them
        ([{"CPU": 2}, {"CPU": 2}], 4, 0.0, 0),
        ([{"CPU": 16, "GPU": 2}], 1, 0.4, 4),  # a share lies on one GPU: two of 0.4 on each
        ([{"CPU": 16, "GPU": 1}], 1, 0.1, 10),
        ([{"CPU": 16, "GPU": 3}], 1, 2.0, 1),
        ([{"CPU": 16}, {"CPU": 1, "GPU": 4}], 1, 1.0, 1),
    ],
)
def test_a_run_needs_its_cores_and_gpus_on_one_machine(machines, cores, gpus, fit):
    assert places(machines, cores, gpus) == fit


def test_a_cluster_on_which_no_run_fits_is_refused_before_one_waits_for_ever(tmp_path, monkeypatch):
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0}}] * 2
    ray = SimpleNamespace(is_initialized=lambda: True, nodes=lambda: nodes, cluster_resources=lambda: {"CPU": 4.0})
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(BadInput, match=r"4 cores and 0 GPUs of one machine; the cluster's have 2 and 0"):
        Ray(tmp_path, cores=4)


@pytest.mark.parametrize(("option", "said"), [("minutes", "--minutes is 0 or more"), ("gpus", "--gpus is a share")])
def test_what_is_no_number_is_refused(option, said, tmp_path):
    with pytest.raises(BadInput, match=said):
        sweep(GRID, out=tmp_path, **{option: float("nan")})


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["ctrl-c", "kill", "kill -9"])
def test_a_sweep_that_is_ended_leaves_no_worker_behind_and_goes_on(here, tmp_path, ending):
    # Long enough that a busy machine does not finish it before the signal arrives.
    longer = {**RUN, "steps": 200}
    (tmp_path / "grid.json").write_text(json.dumps({**GRID, "shared": {**GRID["shared"], **longer}}))
    words = [sys.executable, "-m", "crosslift", "sweep", str(tmp_path / "grid.json"), "-o", str(tmp_path / "out")]
    process = subprocess.Popen(
        [*words, "--workers", "2"], cwd=here, env=ENV, stderr=subprocess.PIPE, text=True,
        # A job in the background of a script ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not list((tmp_path / "out").glob("*/*/state/step-*")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    workers = {json.loads(file.read_text())["pid"] for file in (tmp_path / "out").glob(".sweep/progress/*.progress")}
    assert workers
    process.send_signal(ending)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (-9 if ending == signal.SIGKILL else 130), said
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its sweep"
        time.sleep(0.01)
    again = subprocess.run([*words, "--json"], cwd=here, env=ENV, capture_output=True, text=True, check=True)
    runs = json.loads(again.stdout)["runs"]
    assert {run["state"] for run in runs} <= {"done", "kept"}
    trained = [name for name, event in events(tmp_path / "out") if event == "trained"]
    assert sorted(trained) == sorted(run["run"] for run in runs)
    straight = fit(**{k: str(here / v) if k in ("model", "data", "dev") else v for k, v in longer.items()},
                   seeds=[1], out=tmp_path / "straight")  # fmt: skip
    assert weights_equal(tmp_path / "out" / runs[0]["run"], straight.path)


@pytest.mark.slow
def test_a_grid_that_grows_keeps_the_runs_that_are_there_under_their_names(here, tmp_path, monkeypatch):
    monkeypatch.chdir(here)
    first = sweep(GRID, out=tmp_path / "out", workers=1)
    wider = {**GRID, "shared": {**GRID["shared"], "learning_rate": [1e-3, 5e-3]}}
    second = sweep(wider, out=tmp_path / "out", workers=1)
    states = {run.planned.name: run.state for run in second.runs}
    assert [states[run.planned.name] for run in first.runs] == ["kept", "kept"]
    assert sorted(states.values()) == ["done", "done", "kept", "kept"]
    assert len({run.planned.group for run in second.runs}) == 2


@pytest.mark.slow
def test_methods_without_labels_are_swept_too_and_scored_where_there_is_something_to_score(
    here, swept, tmp_path, monkeypatch
):
    monkeypatch.chdir(here)
    done, _, _ = swept
    examples = classification(30, 9)
    (tmp_path / "en.txt").write_text("\n".join(examples.texts) + "\n")
    pairs = [f"{text}\t{text.replace('the', 'das')}" for text in examples.texts]
    (tmp_path / "de.tsv").write_text("\n".join(pairs) + "\n")
    teacher = str(here / "out" / done.runs[0].planned.name / "model")
    quick = {"steps": 2, "batch_size": 4}
    grid = {
        "fit": [
            {"method": "distill", "teacher": teacher, "text": {"en": str(tmp_path / "en.txt")}, "student": "encoder",
             "cache": str(tmp_path / "cache"), **quick},
            {"method": "adjust", "model": "encoder", "bitext": {"de": str(tmp_path / "de.tsv")}, **quick},
        ],
        "evaluate": {"data": "test.{lang}.tsv"},
    }  # fmt: skip
    found = sweep(grid, out=tmp_path / "out", workers=1)
    assert [(run.planned.fit["method"], run.state, run.error) for run in found.runs] == [
        ("distill", "done", None), ("adjust", "done", None),
    ]  # fmt: skip
    ((_, scored),) = found.runs[0].record["evaluations"].items()
    assert set(scored) == {"de", "sw"}
    assert found.runs[1].record["evaluations"] == {}


def test_weights_equal_tells_weights_apart(here, swept):
    """The tests above lean on it."""
    done, _, _ = swept
    first, second = (here / "out" / run.planned.name for run in done.runs[:2])
    assert not weights_equal(first, second)
    one = load_file(first / "model" / "model.safetensors")
    assert all(equal(one[name], tensor) for name, tensor in one.items())
