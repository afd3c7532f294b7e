"""Speed and size of the students beside their bridges: sentences a second on one CPU core, and megabytes.

All models are of their true shape, with random weights (the time does not depend on them), and read the same sentences
with the same tokenizer, one core, batches of like length, in one run; a second is a CPU second of that core, so that
other work on the machine hardly enters. `torch` is how every model here runs by default; `onnx` and `int8` are what
`crosslift.models.export` writes. Megabytes are of the weights alone: 4 bytes a parameter for torch, the file for onnx.
The bridges are timed with the students' vocabulary of 10,000, because a vocabulary costs memory, not time; their
megabytes are with their own (24,000 and 250,002 pieces).

    python benchmarks/students.py [--sentences 400] [--no-onnx]
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import crosslift as xl
from crosslift.data.batches import evaluation_batches
from crosslift.data.examples import Examples
from crosslift.models.export import export_onnx
from crosslift.models.forward import forward
from crosslift.models.load import load_model, load_tokenizer
from crosslift.models.new_encoder import Architecture, new_encoder
from crosslift.models.students import STUDENTS, new_student, save_student, student_tokenizer
from crosslift.tasks import Classification

BRIDGES = {
    "mini-x": (Architecture(layers=8, width=256, heads=4, feedforward=1024), 24_000),
    "xlm-r-base": (Architecture(layers=12, width=768, heads=12, feedforward=3072), 250_002),
}
TASK = Classification(labels=tuple(f"intent {i}" for i in range(60)), max_length=128)


def sentences(count: int) -> Examples:
    found: list[str] = []
    for language in ("en", "de", "es", "fr", "pt", "sw", "tr"):
        found += xl.load("demo-intent", language=language, split="train").texts
    return Examples("classification", "en", [str(i) for i in range(count)], (found * 9)[:count], name="demo")


def per_second(run: Callable[[dict], object], batches: list[dict], count: int) -> float:
    """Return sentences a CPU second, the best of three passes: a busy machine only ever makes it slower."""
    run(batches[0])
    seconds = []
    for _ in range(3):
        began = time.process_time()
        for batch in batches:
            run(batch)
        seconds.append(time.process_time() - began)
    return count / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--no-onnx", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/students.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    examples = sentences(arguments.sentences)
    corpus = [t for x in ("en", "de", "es", "fr", "pt", "sw", "tr", "ru", "el", "ar", "hi", "zh", "ja", "th")
              for t in xl.load("demo-intent", language=x, split="train").texts]  # fmt: skip
    pieces = student_tokenizer({"text": corpus}, 10_000)
    # The embedded corpus is short: filled up, so that every table has its full size.
    pieces.add_tokens([f"filler{i}" for i in range(10_000 - len(pieces))])
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in (*STUDENTS, *BRIDGES):
            home = Path(scratch) / name
            encoder = (
                new_encoder(BRIDGES[name][0], pieces, seed=0).base_model
                if name in BRIDGES
                else new_student(name, pieces, "classification")
            )
            save_student(encoder, pieces, home / "encoder")
            save_student(load_model(home / "encoder", TASK), pieces, home / "model")
            tokenizer, model = load_tokenizer(home / "model"), load_model(home / "model").eval()
            encoded = TASK.encode(examples, tokenizer)
            pad_id = int(tokenizer.pad_token_id)
            batches = [TASK.collate(encoded, rows, pad_id, 1) for rows in evaluation_batches(encoded.lengths(), 2048)]
            parameters = sum(p.numel() for p in model.parameters())
            # What a bridge's own, larger vocabulary adds.
            further = (BRIDGES[name][1] - len(pieces)) * encoder.config.hidden_size if name in BRIDGES else 0
            parameters += further

            def in_torch(batch: dict, model: torch.nn.Module = model) -> object:
                with torch.inference_mode():
                    return forward(model, batch)

            found = {
                "parameters_millions": round(parameters / 1e6, 2),
                "torch_per_second": round(per_second(in_torch, batches, len(examples)), 1),
                "torch_megabytes": round(parameters * 4 / 1e6, 1),
            }
            if not arguments.no_onnx and name != "xlm-r-base":
                facts = export_onnx(home / "model", home / "onnx")
                found["onnx_megabytes"] = round(facts["megabytes"] + 4 * further / 1e6, 2)
                found["int8_megabytes"] = round(facts["int8_megabytes"] + further / 1e6, 2)
                found["int8_same_label"] = facts["int8_agreement"]
                for kind, file in (("onnx", "model.onnx"), ("int8", "model.int8.onnx")):
                    run = onnx_runner(home / "onnx" / file)
                    found[f"{kind}_per_second"] = round(per_second(run, batches, len(examples)), 1)
            result[name] = found
            print(name, json.dumps(found))
    ratios = {}
    for name in STUDENTS:
        for kind in [k for k in ("torch", "onnx", "int8") if f"{k}_per_second" in result[name]]:
            speed = result[name][f"{kind}_per_second"]
            ratios[f"{name} in {kind}"] = {
                f"times_{bridge}_in_torch": round(speed / result[bridge]["torch_per_second"], 2) for bridge in BRIDGES
            }
            if f"{kind}_per_second" in result["mini-x"]:
                same = round(speed / result["mini-x"][f"{kind}_per_second"], 2)
                ratios[f"{name} in {kind}"][f"times_mini-x_in_{kind}"] = same
    tokens = float(np.mean(encoded.lengths()))
    report = {
        "sentences": len(examples),
        "mean_tokens": round(tokens, 1),
        "threads": 1,
        "models": result,
        "ratios": ratios,
    }
    print(json.dumps(ratios, indent=2))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")


def onnx_runner(file: Path) -> Callable[[dict], object]:
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, {n: batch[n].numpy() for n in ("input_ids", "attention_mask")})


if __name__ == "__main__":
    main()
