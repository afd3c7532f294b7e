"""How a sweep scales with workers: the same grid with 1, 2, 4 … workers, on both engines, with equal results.

Each run is one seed of fine-tuning on the embedded intents, scored in a few languages; each worker has one core. The
time counts everything from the command to the merged results, so also the start of the workers, which a grid of real
runs does not notice. Every sweep starts from an empty folder.

    python benchmarks/sweep.py [--model mini-x] [--runs 8] [--workers 1,2] [--engines local,ray] [--dry]

`--dry` takes a random encoder of two narrow layers and a few steps.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch

from crosslift.runs.sweep import sweep


def tiny_encoder(folder: Path) -> Path:
    """Write a random encoder with a tokenizer trained on the embedded corpus."""
    import crosslift as xl
    from crosslift.data.storage import write_text
    from crosslift.runs.pretrain import pretrain

    text = folder / "en.txt"
    write_text(text, "\n".join(xl.load("demo-intent", language="en", split="train").texts) + "\n")
    shape = {"layers": 2, "width": 64, "heads": 2, "feedforward": 128, "pieces": 600}
    return pretrain(out=folder / "run", text={"en": [text]}, steps=1, processes=1, **shape).model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=os.environ.get("MODEL", "mini-x"))
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--engines", default="local")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/sweep.json"))
    arguments = parser.parse_args()

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    rows, first = [], None
    with tempfile.TemporaryDirectory(prefix="crosslift-sweep-") as folder:
        model = tiny_encoder(Path(folder) / "encoder") if arguments.dry else arguments.model
        grid = {
            "fit": {
                "method": "finetune", "model": str(model), "data": "demo-intent",
                "seeds": list(range(1, arguments.runs + 1)), "steps": 30 if arguments.dry else arguments.steps,
                "learning_rate": 3e-4, "evaluations": 2,
            },
            "evaluate": {"languages": ["en", "de", "sw"], "limit": 100},
        }  # fmt: skip
        for engine in arguments.engines.split(","):
            for workers in map(int, arguments.workers.split(",")):
                began = time.perf_counter()
                done = sweep(grid, out=Path(folder) / f"{engine}-{workers}", engine=engine, workers=workers)
                seconds = time.perf_counter() - began
                assert not done.failed, done.failed[0].error
                found = [(run.record["evaluations"], run.record["dev"]) for run in done.runs]
                first = first or found
                assert found == first, "every sweep must give the same results"
                training = sum(float(run.record["seconds"]) for run in done.runs)
                rows.append({"engine": engine, "workers": workers, "seconds": round(seconds, 1),
                             "training_seconds_of_all_runs": round(training, 1)})  # fmt: skip
                rows[-1]["speed_up"] = round(rows[0]["seconds"] / seconds, 2)
                print(json.dumps(rows[-1]), flush=True)
    print(f"\n{'engine':<8}{'workers':>8}{'seconds':>10}{'speed-up':>10}")
    for row in rows:
        print(f"{row['engine']:<8}{row['workers']:>8}{row['seconds']:>10.1f}{row['speed_up']:>9.2f}×")
    result = {
        "model": "random, 2 × 64" if arguments.dry else Path(arguments.model).name,
        "runs": arguments.runs,
        "cores": len(os.sched_getaffinity(0)),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "torch": torch.__version__,
        "equal_results": True,
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
