"""The distillation table: source model, bridge and student per language, variants and baselines, on public sets.

    CROSSLIFT_DATA=… python benchmarks/experiments/distill/prepare.py --work DIR --out prepared.tar.xz
    python benchmarks/experiments/distill/run.py --prepared prepared.tar.xz --out distill.json \
        --scratch /dev/shm/distill --workers 12 --minutes 8
    python benchmarks/experiments/distill/table.py distill.json > distill.md

The English training set is cut into halves by parallel id: the source model learns from the labels of one, and only the
text of the other, in every language, is seen by bridges and students. So no translation of a labelled sentence is ever
distilled on. A job is one model (see `jobs.py`); it starts as soon as the one it learns from is there. Results are
written as jobs end, the first seed of everything first; started again, the script goes on, and teaches source models
and bridges again whose folders are gone. Beside the JSON lies a folder of the same name with the statistics of every
example (`.npz`), which paired tests need.

Rates are fixed by architecture, and every job has a number of steps, not of epochs. `--range-test` lets every student
find its rate on its training loss, 100 steps more: once, with few jobs, to find what `--rates` is then given.
`--scale 2` doubles all steps, `--steps 2` is a dry run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import tarfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from jobs import BRIDGES, SETS, Job, jobs
from work import BATCH, RATES, Place, attempt


def queue(wanted: list[Job], done: set[Job], place: Place) -> list[Job]:
    """Return what is to be done, in order: jobs without a row, and before each one what it needs and is not there."""
    found: dict[Job, None] = {}

    def add(job: Job) -> None:
        if job.needs and not place.model(job.needs).exists():
            add(job.needs)
        found[job] = None

    for job in wanted:
        if job not in done:
            add(job)
    return list(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepared", type=Path, required=True, help="archive of prepare.py")
    parser.add_argument("--out", type=Path, required=True, help="JSON file of results")
    parser.add_argument("--scratch", type=Path, default=Path("runs/distill"), help="models, and what teachers said")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--bridges", default="mini-x,mini-x-all", help=f"the main one first; of {', '.join(BRIDGES)}")
    parser.add_argument("--encoders", help="folder with encoders that crosslift does not have")
    parser.add_argument("--roles", help="some roles, and what they need, such as bridge,student")
    parser.add_argument("--languages", help="some target languages")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-grid", action="store_true", help="source models of one architecture only")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="start no further job after so many minutes")
    parser.add_argument("--steps", type=int, help="stop each training after so many steps: a dry run")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the steps")
    parser.add_argument("--rates", type=json.loads, default={}, help='other rates, as {"transformer": 3e-4}')
    parser.add_argument("--range-test", action="store_true", help="every student finds its own rate")
    parser.add_argument("--count", action="store_true", help="only say how many jobs and steps there are")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    results: dict[str, Any] = {
        "rates": {**RATES, **arguments.rates},
        "scale": arguments.scale,
        "batch": BATCH,
        "jobs": [],
    }
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text(encoding="utf-8"))
    rows = {row_key(row): row for row in results["jobs"]}
    seeds = list(range(1, arguments.seeds + 1))
    wanted = jobs(arguments.sets.split(","), arguments.bridges.split(","), seeds, not arguments.no_grid)
    if arguments.roles:
        wanted = [job for job in wanted if job.role in arguments.roles.split(",")]
    if arguments.languages:
        wanted = [job for job in wanted if not job.language or job.language in arguments.languages.split(",")]
    waiting = queue(wanted, set(rows), Place(arguments))
    steps = round(arguments.scale * sum(job.steps for job in waiting))
    print(f"{len(waiting)} jobs to do, some {steps:,} steps; {len(rows)} done", flush=True)
    if arguments.count:
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The tokenizers of many workers would fight for the cores.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    place = Place(arguments)
    if not place.prepared.exists():
        with tarfile.open(arguments.prepared) as archive:
            archive.extractall(place.prepared, filter="data")
    running: dict[Future[dict[str, Any]], Job] = {}
    failed: set[Job] = set()
    # Processes of their own, begun fresh: a fork would share the state of a GPU.
    with ProcessPoolExecutor(arguments.workers, mp_context=mp.get_context("spawn")) as pool:
        while waiting or running:
            for job in list(waiting) if time.monotonic() < end else ():
                if len(running) >= arguments.workers:
                    break
                if job.needs in failed:
                    waiting.remove(job)
                    failed.add(job)
                elif job.needs is None or (job.needs not in running.values() and place.model(job.needs).exists()):
                    waiting.remove(job)
                    running[pool.submit(attempt, job, arguments)] = job
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, row = running.pop(future), future.result()
                if "error" in row:
                    failed.add(job)
                else:
                    rows[job] = row
                    results["jobs"] = list(rows.values())
                    draft = arguments.out.with_suffix(".tmp")
                    draft.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
                    draft.replace(arguments.out)
                print(f"{job.name:60} {row.get('error') or told(row)}", flush=True)
    print(f"{len(rows)} done, {len(failed)} failed or without what they need, {len(waiting)} left", flush=True)


def row_key(row: dict[str, Any]) -> Job:
    """Return the job of a row."""
    return Job(**{name: row[name] for name in Job.__dataclass_fields__})


def told(row: dict[str, Any]) -> str:
    """Return a row in words."""
    scores = " ".join(f"{language} {score:.1f}" for language, score in list(row["scores"].items())[:6])
    rate = f"rate {row['learning_rate']:.1e}  " if "learning_rate" in row else ""
    return f"{scores}  {rate}{row['seconds']} s ({row.get('training_seconds', 0)} s training)"


if __name__ == "__main__":
    main()
