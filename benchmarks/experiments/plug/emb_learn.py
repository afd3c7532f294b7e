"""Train the baseline EmbLearn: multilingual word embeddings under the frozen English body, on target-language text.

python emb_learn.py --multi mini-x --mono mini-en --text pretraining/text-*.txt.xz --out runs/emb-learn
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi", default="mini-x")
    parser.add_argument("--mono", default="mini-en")
    parser.add_argument("--text", nargs="+", type=Path, required=True, help="files named text-LANGUAGE.txt…")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--processes", type=int, help="for tokenising; default: one per core")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from crosslift.runs.plug_baselines import emb_learn
    from crosslift.runs.progress import Lines

    files = {path.name.split(".")[0].removeprefix("text-"): [path] for path in arguments.text}
    sizes = {"steps": arguments.steps, "batch_size": arguments.batch_size, "processes": arguments.processes}
    file = emb_learn(arguments.mono, arguments.multi, files, arguments.out, watch=Lines(every=10.0), **sizes)
    print(file)


if __name__ == "__main__":
    main()
