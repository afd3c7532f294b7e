"""Train one of the encoders of this folder.

    python train.py mini-x.json --root FOLDER [--set steps=3000 --set max_minutes=9]

The expanded config is left beside the run, so that a run can be repeated with `crosslift.runs.pretrain --config`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from recipe import read_config


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--root", type=Path, required=True, help="folder laid out as pack.py does")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    from crosslift.runs.pretrain import main as pretrain  # the processes that tokenise do not need it

    runs = options.root / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    expanded = runs / options.config.name
    expanded.write_text(json.dumps(read_config(options.config, options.root), indent=1), encoding="utf-8")
    return pretrain(["--config", str(expanded), *(f"--set={item}" for item in options.set)])


if __name__ == "__main__":
    sys.exit(main())
