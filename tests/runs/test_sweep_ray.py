"""A sweep on a Ray cluster of two nodes on this machine: a worker and a whole node are killed, nothing is lost."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from crosslift.errors import BadInput
from crosslift.runs.sweep import sweep
from tests.runs.sweep_data import ENV, GRID, make, weights_equal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RAY = str(Path(sys.executable).parent / "ray")
MANY = {**GRID, "shared": {**GRID["shared"], "seeds": "1-5", "steps": 48}}


def with_token(folder: Path) -> dict[str, str]:
    """A token made for one test, so that nothing depends on what the user's home holds."""
    (folder / "token").write_text(secrets.token_hex(32))
    return {**ENV, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}


def start(log: Path, env: dict[str, str], *words: str) -> subprocess.Popen:
    quiet = ["--block", "--num-cpus=1", "--disable-usage-stats"]
    with log.open("w") as out:
        return subprocess.Popen(
            [RAY, "start", *quiet, *words], stdout=out, stderr=out, env=env, cwd=log.parent, start_new_session=True
        )


def until(check, what: str, log: Path | None = None, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"{what}: {log.read_text() if log else ''}"
        time.sleep(0.05)


def raylets(group: int) -> list[int]:
    """The node processes that belong to one `ray start`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"/raylet") and os.getpgid(int(folder.name)) == group:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def cluster():
    """Two nodes of one core; yields the address, the environment of its users, and the second node's process."""
    pytest.importorskip("ray")
    # A short path: sockets live in it.
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    nodes, env = [], with_token(folder)
    try:
        port = f"--port={address.split(':')[1]}"
        head = ("--head", port, "--node-ip-address=127.0.0.1", "--include-dashboard=false", f"--temp-dir={folder}")
        nodes.append(start(folder / "one.log", env, *head))
        until(lambda: raylets(nodes[0].pid), "the head node did not start", folder / "one.log")
        nodes.append(start(folder / "two.log", env, f"--address={address}"))
        until(lambda: raylets(nodes[1].pid), "the second node did not start", folder / "two.log")
        yield address, env, nodes[1]
    finally:
        for node in nodes:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def progress(out: Path) -> dict[str, int]:
    """The processes of the runs that have begun, by run."""
    files = out.glob(".sweep/progress/*.progress")
    return {file.stem.replace(".seed-", "/seed-"): json.loads(file.read_text())["pid"] for file in files}


def test_a_killed_worker_and_a_lost_node_cost_nothing_and_the_results_are_those_of_the_local_engine(
    cluster, tmp_path, monkeypatch
):
    address, env, second = cluster
    here, out = make(tmp_path), tmp_path / "ray"
    (here / "grid.json").write_text(json.dumps(MANY))
    words = [sys.executable, "-m", "crosslift", "sweep", "grid.json", "-o", "ray", "--engine", "ray"]
    (tmp_path / "other").mkdir()
    stranger = subprocess.run(
        [*words, "--address", address], cwd=here, env=with_token(tmp_path / "other"), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert stranger.returncode == 2, stranger.stderr
    assert "does not let us in" in stranger.stderr
    assert not list(out.glob("*/seed-*"))  # and nothing ran elsewhere instead
    process = subprocess.Popen(
        [*words, "--address", address, "--json"], cwd=here, env=env, stdout=subprocess.PIPE, text=True
    )

    def ended() -> list[Path]:
        assert process.poll() is None, "the sweep ended too early"
        return list(out.glob("*/*/finished.json"))

    def begun() -> list[Path]:
        ended()
        return [path for path in out.glob("*/*/state/step-*") if not (path.parent.parent / "finished.json").exists()]

    until(begun, "no run began")
    name = begun()[0].parent.parent.relative_to(out).as_posix()
    os.kill(progress(out)[name], signal.SIGKILL)
    until(ended, "no run ended")
    (raylet,) = raylets(second.pid)
    os.kill(raylet, signal.SIGKILL)  # its workers die with it
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    found = json.loads(said)
    assert found["counts"] == {"done": 5}
    attempts = {run["run"]: run["attempts"] for run in found["runs"]}
    assert attempts[name] >= 2

    lines = [json.loads(line) for line in (out / ".sweep" / "events.jsonl").read_text().splitlines()]
    once = Counter((line["run"], line["event"]) for line in lines if line["event"] in ("trained", "scored"))
    assert once == {(run, event): 1 for run in attempts for event in ("trained", "scored")}

    monkeypatch.chdir(here)
    local = sweep(MANY, out="local", workers=2)
    ours = [(run.planned.name, run.record["evaluations"], run.record["dev"]) for run in local.runs]
    assert [(run["run"], run["evaluations"], run["dev"]) for run in found["runs"]] == ours
    for run in attempts:
        assert weights_equal(out / run, here / "local" / run)


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.chdir(make(tmp_path))
    with pytest.raises(BadInput, match=r"No Ray cluster answers at 127\.0\.0\.1:1"):
        sweep(GRID, out="out", engine="ray", address="127.0.0.1:1")
