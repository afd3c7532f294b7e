"""Fine-tuning on a CPU in fp32 and in bf16: seconds of training, by turns in one run, and what both learn.

    python benchmarks/precision.py [--model mini-x] [--rounds 3] [--out FILE]

Each round trains the same few steps twice, once in either precision, so that a noisy machine slows both. Then some
seeds of each are trained to the end and scored: rounding changes the weights, and should not change the scores by more
than a seed does. The embedded intents, English to all their languages. A CPU without bf16 says so and stops.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean, median


def main() -> int:
    import torch

    import crosslift as xl
    from crosslift.runs.machine import cpu_bf16_gain

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini-x")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="of a timed run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12, help="of a scored run; 0: none")
    parser.add_argument("--seeds", default="1,2,3", help="of the scored runs")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    gain = cpu_bf16_gain()
    if gain is None:
        print("bf16 matrix products crash on this CPU: nothing to compare.")
        return 0
    seconds: dict[str, list[float]] = {"fp32": [], "bf16": []}
    scored: list[object] = []
    targets: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:

        def fit(precision: str, name: str, **settings: object) -> object:
            return xl.fit(
                "finetune", model=arguments.model, data="demo-intent", out=Path(scratch) / f"{precision}-{name}",
                precision=precision, learning_rate=3e-4, evaluations=1, select="last", **settings,
            )  # fmt: skip

        for number in range(arguments.rounds + 1):
            for precision, found in seconds.items():
                run = fit(precision, f"timed-{number}", steps=arguments.steps, seeds=[1])
                if number:  # the first round warms up
                    found.append(float(run.summary()[0]["seconds"]))  # type: ignore[attr-defined]
        for precision in seconds if arguments.epochs else ():
            wanted = [int(seed) for seed in arguments.seeds.split(",")]
            run = fit(precision, "scored", epochs=arguments.epochs, seeds=wanted)
            scored.append(run)
            rows = xl.evaluate(run, "demo-intent").rows  # type: ignore[arg-type]
            away = [cell for language, seeds in rows.items() if language != "en" for cell in seeds.values()]
            targets[precision] = round(fmean(next(iter(cell.values())).value for cell in away), 2)
        pooled = xl.compare(*reversed(scored)).pooled.to_dict() if scored else None  # type: ignore[arg-type]
    ratios = [plain / rounded for plain, rounded in zip(*seconds.values(), strict=True)]
    result = {
        "model": arguments.model, "threads": arguments.threads, "steps": arguments.steps, "product": gain,
        "seconds": {name: round(fmean(found), 2) for name, found in seconds.items()},
        "ratios": [round(ratio, 2) for ratio in ratios], "ratio": round(median(ratios), 2),
        "targets": targets, "difference": pooled,
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
