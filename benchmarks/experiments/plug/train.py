"""Train connectors, one process per arm, side by side on one machine.

    python train.py --multi mini-x --mono mini-en --text text-en.txt.xz english.txt --out runs/plug [--arms mixed,hmlm]

The text is read and tabulated once. Arms: see `ARMS`; with a seed (`mixed-2`), or without one, for each of `--seeds`.
Processes are kept for further arms; an arm that is done is not run again. `--prepare` only reads and tabulates, so that
a GPU need not wait for it. `--dry` is a trial of seconds on a CPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import sys
import time
from pathlib import Path

ARMS: dict[str, dict[str, object]] = {
    # the paper's objective, ours, and both
    "hmlm": {"hmlm": 1.0, "align": 0.0},
    "align": {"hmlm": 0.0, "align": 1.0},
    "mixed": {"hmlm": 1.0, "align": 1.0},
    # rows as in the paper: no single lines
    "packed": {"hmlm": 1.0, "align": 1.0, "lines": 0.0},
    # the paper's ablations (Table 3), with its objective
    "bottom": {"hmlm": 1.0, "align": 0.0, "plug_layer": 0},
    "shallow": {"hmlm": 1.0, "align": 0.0, "connector_layers": 1},
    "no-encoder": {"hmlm": 1.0, "align": 0.0, "encoder_layers": 0},
    # the same three with both objectives
    "bottom-mixed": {"hmlm": 1.0, "align": 1.0, "plug_layer": 0},
    "shallow-mixed": {"hmlm": 1.0, "align": 1.0, "connector_layers": 1},
    "no-encoder-mixed": {"hmlm": 1.0, "align": 1.0, "encoder_layers": 0},
    # Fig. 4: other batch sizes
    "batch-128": {"hmlm": 1.0, "align": 0.0, "batch_size": 128},
    "batch-32": {"hmlm": 1.0, "align": 0.0, "batch_size": 32},
    "batch-16": {"hmlm": 1.0, "align": 0.0, "batch_size": 16},
    "batch-8": {"hmlm": 1.0, "align": 0.0, "batch_size": 8},
}


def train(arm: str, seed: int, arguments: argparse.Namespace) -> str:
    import torch

    from crosslift.runs.plug import fit_connector
    from crosslift.runs.progress import Lines

    out = Path(arguments.out) / f"{arm}-{seed}"
    settings = {"steps": arguments.steps, **ARMS[arm]}
    for name in ("batch_size", "max_tokens"):
        if getattr(arguments, name):
            settings.setdefault(name, getattr(arguments, name))
    if arguments.plain:
        settings["cuda_graphs"] = False
    if arguments.dry:
        settings |= {"steps": 3, "batch_size": 4}
    with (Path(arguments.out) / f"{arm}-{seed}.log").open("a", encoding="utf-8") as log:
        done = fit_connector(
            multi=arguments.multi,
            mono=arguments.mono,
            text=arguments.text,
            out=out,
            preset="small",
            exclude=arguments.exclude,
            seed=seed,
            max_minutes=arguments.max_minutes,
            evaluations=arguments.evaluations,
            keep_steps=True,
            cache=Path(arguments.out) / "text",
            processes=1,
            precision=arguments.precision,
            watch=Lines(log, every=5.0),
            **settings,
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the other processes need it
    held = "  ".join(f"{name} {value:.2f}" for name, value in done.held_out.items())
    return (
        f"{arm:18} seed {seed}  {held}  {done.summary['steps']} steps  {done.summary['tokens_per_second']:,} tokens/s"
    )


def prepare(arguments: argparse.Namespace) -> None:
    """Read the text and make the tables once, before the arms start."""
    from crosslift.data.files import read_lines
    from crosslift.data.word_corpus import write_word_corpus
    from crosslift.data.word_pieces import kept_word_pieces
    from crosslift.models.load import load_tokenizer

    cache = Path(arguments.out) / "text"
    left_out = {line for file in arguments.exclude for line in read_lines(Path(file))}
    corpus = write_word_corpus([Path(file) for file in arguments.text], cache / "words", None, left_out)
    tokenizers = load_tokenizer(arguments.multi), load_tokenizer(arguments.mono)
    pieces = kept_word_pieces(cache / "separated.safetensors", corpus.words, *tokenizers, separate=True)
    print(f"{len(corpus.numbers):,} words, {len(corpus.words):,} different, {len(pieces.multi_starts):,} stretches")


def jobs(arms: list[str], seeds: list[str]) -> list[tuple[str, int]]:
    """Return (arm, seed) of every run, the first seed first."""
    found = [(arm, int(seed)) for seed in seeds for arm in arms if arm in ARMS]
    return found + [(arm.rpartition("-")[0], int(arm.rpartition("-")[2])) for arm in arms if arm not in ARMS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi", required=True)
    parser.add_argument("--mono", required=True)
    parser.add_argument("--text", nargs="+", required=True, help="English text, one sentence a line")
    parser.add_argument("--exclude", nargs="*", default=[], help="files of lines that are never trained on")
    parser.add_argument("--out", required=True)
    parser.add_argument("--arms", default="mixed,hmlm,align")
    parser.add_argument("--seeds", default="1", help="for instance 1,2,3")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--evaluations", type=int, default=6)
    parser.add_argument("--batch-size", type=int, help="rows per step of the arms that do not say it themselves")
    parser.add_argument("--max-tokens", type=int, help="tokens of a micro-batch; bounds the memory of an arm")
    parser.add_argument("--precision", default="auto", help="bf16 saves time on a CPU that has it, too")
    parser.add_argument("--max-minutes", type=float, help="of training, per arm")
    parser.add_argument("--workers", type=int, default=3, help="arms at a time")
    parser.add_argument("--prepare", action="store_true", help="read and tabulate the text, train nothing")
    parser.add_argument("--plain", action="store_true", help="do not record steps on a GPU")
    parser.add_argument("--dry", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    prepare(arguments)
    print(f"prepared in {time.monotonic() - began:.0f} s", flush=True)
    if arguments.prepare:
        return 0
    queue = [(arm, seed, arguments) for arm, seed in jobs(arguments.arms.split(","), arguments.seeds.split(","))]
    (Path(arguments.out) / "arms.json").write_text(json.dumps(ARMS, indent=1))
    failed = 0
    with mp.get_context("spawn").Pool(min(arguments.workers, len(queue))) as pool:
        for job in [pool.apply_async(train, item) for item in queue]:
            try:
                print(job.get(), flush=True)
            except Exception as error:  # one arm must not take the others down
                failed += 1
                print(f"failed: {error}", flush=True)
    print(f"all done in {time.monotonic() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
