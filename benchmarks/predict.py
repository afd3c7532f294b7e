"""Load mini-x and classify 1,000 short sentences on a CPU: seconds and memory, beside the naive loop.

The naive loop calls tokenizer and model once per sentence, as a first script does. Each way runs in its own process,
from the import of torch on, so that loading and memory count too. Same weights, same predictions.

    python benchmarks/predict.py [--model mini-x] [--sentences 1000] [--threads 2]
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("naive", "ours")


def sentences(count: int) -> list[str]:
    """Return short requests in 14 languages from the embedded corpus."""
    from crosslift.data import languages_of
    from crosslift.demo import load

    texts = [text for x in languages_of("demo-intent", "test") for text in load("demo-intent", x, "test").texts]
    return [texts[i % len(texts)] for i in range(0, 7 * count, 7)]


def write_model(name: str, folder: Path) -> None:
    """Write the encoder with a fresh head of 16 classes."""
    import crosslift as xl
    from crosslift.tasks import task_for

    model = xl.load_model(name, task_for(xl.load("demo-intent", language="en", split="train")))
    model.save_pretrained(folder)
    xl.load_tokenizer(name).save_pretrained(folder)


def naive(folder: Path, texts: list[str]) -> list[str]:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for text in texts:
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits
        found.append(model.config.id2label[int(logits.argmax())])
    return found


def ours(folder: Path, texts: list[str]) -> list[str]:
    import crosslift as xl

    return [str(one["prediction"]) for one in xl.predict(folder, texts)]


def run(way: str, folder: Path, file: Path, threads: int) -> dict[str, object]:
    began = time.perf_counter()
    import torch

    torch.set_num_threads(threads)
    imported = time.perf_counter() - began
    texts = json.loads(file.read_text(encoding="utf-8"))
    began = time.perf_counter()
    found = {"naive": naive, "ours": ours}[way](folder, texts)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": round(seconds, 2), "import_torch": round(imported, 2), "peak_mib": round(peak), "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini-x")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/predict.json"))
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(run(arguments.way, arguments.work, arguments.work / "texts.json", arguments.threads)))
        return
    results: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(arguments.model, folder)
        (folder / "texts.json").write_text(json.dumps(sentences(arguments.sentences)), encoding="utf-8")
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way, "--work", name, "--threads", str(arguments.threads)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            results[way] = json.loads(done.stdout.splitlines()[-1])
    found = [results[way].pop("found") for way in WAYS]
    same = sum(a == b for a, b in zip(*found, strict=True))
    summary = {"model": arguments.model, "sentences": arguments.sentences, "threads": arguments.threads, **results}
    summary |= {"ratio": round(results["naive"]["seconds"] / results["ours"]["seconds"], 2), "same_predictions": same}
    print(json.dumps(summary, indent=1))
    arguments.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
