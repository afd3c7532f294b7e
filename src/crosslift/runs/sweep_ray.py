"""The Ray engine of a sweep: every run is a plain remote task of a cluster whose machines share the sweep's folder.

Ray places the tasks and tells us when a worker or a whole machine is lost; that a run is done once and only once is
decided by its folder and its lock, not by Ray's own retries.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosslift.data.storage import Json
from crosslift.errors import BadInput, MissingExtra
from crosslift.runs.sweep_grid import Planned


def remote_attempt(plan: Json, out: str, cores: int, folder: str) -> Json:
    """Perform a run in a worker of the cluster."""
    from crosslift.runs.sweep_work import attempt

    if Path(folder).is_dir():
        os.chdir(folder)  # paths in the grid mean what they mean where the sweep was started
    return attempt(Planned.from_dict(plan), Path(out), cores)


class Ray:
    """Runs on a Ray cluster.

    Args:
        out: Folder of the sweep, seen by all machines.
        workers: How many runs at once; default: as many as fit.
        cores: Cores for each.
        gpus: Share of a GPU for each; default: one where the cluster has any, else none.
        address: `HOST:PORT` of a cluster; default: the one that runs here, else a new one on this machine.
    """

    def __init__(
        self,
        out: Path,
        workers: int | None = None,
        cores: int = 1,
        gpus: float | None = None,
        address: str | None = None,
    ) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtra("Ray", "ray") from None
        self.ray: Any = ray
        self.out = out
        self._connect(address)
        machines = self._machines()
        gpus = (1.0 if any(one.get("GPU") for one in machines) else 0.0) if gpus is None else gpus
        if not places(machines, cores, gpus):
            self.close()
            has = ", ".join(sorted({f"{one.get('CPU', 0):g} and {one.get('GPU', 0):g}" for one in machines}))
            raise BadInput(
                f"No run fits: it wants {cores} cores and {gpus:g} GPUs of one machine; the cluster's have {has}.",
                "Lower --cores or --gpus.",
            )
        self.cores, self.gpus, self.most = cores, gpus, workers
        # A worker starts with the environment of its machine; what says where data and models are comes from here.
        kept = {k: v for k, v in os.environ.items() if k.startswith(("CROSSLIFT_", "HF_")) or k == "PYTHONPATH"}
        self.task = ray.remote(remote_attempt).options(
            num_cpus=cores,
            num_gpus=gpus,
            max_retries=0,
            runtime_env={"env_vars": {**kept, "OMP_NUM_THREADS": str(cores)}},
        )
        self.running: dict[Any, Planned] = {}

    def _connect(self, address: str | None) -> None:
        if self.ray.is_initialized():
            self.owned = False
            return
        self.owned = True
        quiet = {"log_to_driver": False, "logging_level": "error"}
        if address:
            _reach(address)
        # Newer versions of Ray have clusters with tokens, and an error of its own or a failed connection for them.
        refused = (ConnectionError, getattr(self.ray.exceptions, "AuthenticationError", ConnectionError))
        try:
            self.ray.init(address=address or "auto", **quiet)
        except refused as error:
            if address:
                raise BadInput(
                    f"The Ray cluster at {address} does not let us in: {str(error).splitlines()[0]}",
                    "If it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH as on its head node.",
                ) from error
            self.ray.init(include_dashboard=False, **quiet)  # no cluster here: this machine becomes one

    @property
    def free(self) -> int:
        """How many more runs can be handed over: as many as fit, on machines that joined later too.

        What would only queue stays here: it has not begun, and need not when the time is up.
        """
        if self.most is not None:
            return self.most - len(self.running)
        return max(1, places(self._machines(), self.cores, self.gpus)) - len(self.running)

    def _machines(self) -> list[Mapping[str, float]]:
        """Return what each machine of the cluster has."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def submit(self, planned: Planned) -> None:
        """Hand a run to the cluster."""
        reference = self.task.remote(planned.to_dict(), str(self.out), self.cores, str(Path.cwd()))
        self.running[reference] = planned

    def wait(self, seconds: float) -> list[tuple[Planned, Json]]:
        """Wait so long at most; return the runs that ended and how they went."""
        done, _ = self.ray.wait(list(self.running), num_returns=1, timeout=seconds)
        ended = []
        for reference in done:
            planned = self.running.pop(reference)
            try:
                reply = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:  # its worker or its machine is gone
                reply = {"error": f"{type(error).__name__}: its worker was lost", "again": True}
            ended.append((planned, reply))
        return ended

    def close(self) -> None:
        """Drop what still runs, and leave the cluster."""
        for reference in getattr(self, "running", {}):
            self.ray.cancel(reference, force=True)
        if self.owned:
            self.ray.shutdown()


def places(machines: Sequence[Mapping[str, float]], cores: int, gpus: float) -> int:
    """Return how many runs fit at once; a run lies on one machine, and a share on one GPU."""
    found = 0
    for machine in machines:
        fit = machine.get("CPU", 0) // cores
        if gpus:
            cards = machine.get("GPU", 0)
            fit = min(fit, cards // gpus if gpus >= 1 else cards * int(1 / gpus + 1e-9))
        found += int(fit)
    return found


def _reach(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would go on asking for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError):
        raise BadInput(f"No Ray cluster answers at {address}.", "Start one:  ray start --head") from None
