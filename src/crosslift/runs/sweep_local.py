"""The local engine of a sweep: worker processes on this machine, each on its own cores and share of a GPU."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from crosslift.data.storage import Json
from crosslift.errors import BadInput
from crosslift.runs.sweep_grid import Planned
from crosslift.runs.sweep_work import SCRATCH


class Worker:
    """One process that performs runs, one after another."""

    def __init__(self, out: Path, number: int, cores: list[int], gpu: int | None) -> None:
        log = out / SCRATCH / f"worker-{number}.log"
        # The worker finds the same crosslift, however this process found it.
        home = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **os.environ,
            "PYTHONPATH": home,
            "OMP_NUM_THREADS": str(len(cores)),
            "CUDA_VISIBLE_DEVICES": "" if gpu is None else _visible(gpu),
        }
        words = [sys.executable, "-m", "crosslift.runs.sweep_work", str(out), ",".join(map(str, cores))]
        with log.open("a", encoding="utf-8") as errors:
            # A session of its own: Ctrl-C reaches the sweep alone, which then lets its workers save.
            self.process = subprocess.Popen(
                words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, encoding="utf-8", start_new_session=True,
            )  # fmt: skip
        self.number, self.cores, self.gpu = number, cores, gpu
        self.log = log
        self.at: Planned | None = None

    def give(self, planned: Planned) -> None:
        """Hand over a run; a worker that has died is noticed when its reply is awaited."""
        self.at = planned
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(planned.to_dict()) + "\n")
            self.process.stdin.flush()

    def reply(self) -> Json:
        """Return how its run went; a dead worker's run is worth another try."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if line.endswith("\n"):
            return dict(json.loads(line))
        code = self.process.wait()
        why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return {"error": f"its worker died ({why}); see {self.log}", "again": True}

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def interrupt(self) -> None:
        """Ask for the run's state to be saved."""
        if self.at is not None and self.alive:
            self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End the process; one that was interrupted has half a minute to save."""
        if self.at is not None and self.alive:
            self._await_reply(30)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _await_reply(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
            selector.select(seconds)


class Local:
    """Runs on this machine.

    Args:
        out: Folder of the sweep.
        workers: How many at once; default: as many as the cores or the GPUs allow.
        cores: Cores for each.
        gpus: Share of a GPU for each; default: one where there are any, else none.
    """

    def __init__(self, out: Path, workers: int | None = None, cores: int = 1, gpus: float | None = None) -> None:
        here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
        if not 1 <= cores <= len(here):
            raise BadInput(f"--cores {cores}: this machine has {len(here)}.")
        devices = _gpus()
        gpus = (1.0 if devices else 0.0) if gpus is None else gpus
        if not 0 <= gpus <= min(1, devices):
            raise BadInput(f"--gpus {gpus:g}: it is a share of one GPU, and this machine has {devices}.")
        per_gpu = int(1 / gpus + 1e-9) if gpus else 0
        most = devices * per_gpu if gpus else len(here) // cores
        count = most if workers is None else workers
        if count < 1 or (gpus and count > most):
            raise BadInput(f"--workers {count}: {most} fit here.")
        self.out = out
        self.places = [
            (
                [here[(number * cores + core) % len(here)] for core in range(cores)],
                number // per_gpu if gpus else None,
            )
            for number in range(count)
        ]
        self.workers: list[Worker] = []

    @property
    def free(self) -> int:
        """How many more runs can be taken now."""
        return len(self.places) - sum(worker.at is not None for worker in self.workers)

    def submit(self, planned: Planned) -> None:
        """Begin a run; workers are started when they are first needed."""
        self.workers = [worker for worker in self.workers if worker.at is not None or worker.alive]
        idle = next((worker for worker in self.workers if worker.at is None), None)
        if idle is None:
            taken = {worker.number for worker in self.workers}
            number = next(number for number in range(len(self.places)) if number not in taken)
            idle = Worker(self.out, number, *self.places[number])
            self.workers.append(idle)
        idle.give(planned)

    def wait(self, seconds: float) -> list[tuple[Planned, Json]]:
        """Wait so long at most; return the runs that ended and how they went."""
        ended = []
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                if worker.at is not None and worker.process.stdout:
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            for key, _ in selector.select(seconds):
                worker = key.data
                assert worker.at is not None
                ended.append((worker.at, worker.reply()))
                worker.at = None
        gone = [worker for worker in self.workers if worker.at is None and not worker.alive]
        for worker in gone:
            worker.close()
        self.workers = [worker for worker in self.workers if worker not in gone]
        return ended

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.interrupt()
        for worker in self.workers:
            worker.close()
        self.workers = []


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _visible(gpu: int) -> str:
    """Return the name of a GPU among those that this process was given."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[gpu] if given else str(gpu)
