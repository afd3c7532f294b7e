"""Word alignment: error rates beside eflomal, seconds and memory, the embedding aligner against one pair at a time.

python benchmarks/align.py --shared ../shared                     error rates, 30k pairs (about 15 minutes on a CPU)
python benchmarks/align.py --shared ../shared --parts embedding --model xlm-roberta-base --rows 4000     on a GPU
python benchmarks/align.py --shared ../shared --parts without      without each measure for rare words
python benchmarks/align.py --shared ../shared --dry               everything, small
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from crosslift.align import align_words, expectation, score_alignment, symmetrise
from crosslift.align.aligned import cut_words
from crosslift.align.eflomal import align_eflomal
from crosslift.align.links import Alignment
from crosslift.align.statistical import Settings, train
from crosslift.data.bitext import read_bitext
from crosslift.data.examples import Examples
from crosslift.data.wordalign import GoldAlignment, read_gold

WAYS = ("intersection", "grow-diag-final-and")
WITHOUT = {
    "all": Settings(),
    "leaving out the own cell": Settings(),
    "agreement": Settings(free_rounds=Settings().diagonal_rounds + Settings().rounds),
    "equal words": Settings(same=0),
}
"""The statistical aligner as it is, and without each of the things it does about rare words."""


def gold_sets(shared: Path) -> dict[str, dict[str, list[GoldAlignment]]]:
    """Language pair -> split -> gold pairs; sets with content words alone are left out."""
    found: dict[str, dict[str, list[GoldAlignment]]] = {}
    for file in sorted((shared / "data" / "wordalign").glob("*.tsv")):
        pair, split = file.name.split(".")[:2]
        if split in ("dev", "test"):
            found.setdefault(pair, {})[split] = read_gold(file)
    return found


def further_pairs(shared: Path, pair: str, count: int) -> tuple[list[list[str]], list[list[str]]]:
    """Words of sentence pairs that an aligner can learn from, in the direction of the gold set."""
    other = next(code for code in pair.split("-") if code != "en")
    file = shared / "data" / "bitext" / f"en-{other}.tsv.xz"
    rows: list[tuple[str, str]] = []
    if file.exists():
        bitext = read_bitext(file, language="en", pair_language=other)
        rows = list(zip(bitext.texts, bitext.pairs or (), strict=True))
    seen = set(rows)
    for part in sorted((shared / "pretraining").glob("pairs-0*.txt.xz")):
        if len(rows) >= count:
            break
        with lzma.open(part, "rt", encoding="utf-8") as lines:
            cells = (line.rstrip("\n").split("\t") for line in lines if line.startswith(f"{other}\t"))
            rows += [(c[1], c[2]) for c in cells if (c[1], c[2]) not in seen]
    rows = rows[:count]
    if not rows:
        return [], []
    english, foreign = ([row[side] for row in rows] for side in (0, 1))
    made = cut_words(
        Examples("bitext", "en", [str(i) for i in range(len(rows))], english, pairs=foreign, pair_language=other)
    )
    sides = (made.words("source"), made.words("target"))
    return sides if pair.startswith("en-") else (sides[1], sides[0])


def texts(
    shared: Path, count: int, only: list[str] | None
) -> Iterator[tuple[str, list[list[str]], list[list[str]], list[int], list[GoldAlignment]]]:
    """Yield each language pair, the words of both sides to learn from, and the rows of the test set, which is last."""
    for pair, splits in gold_sets(shared).items():
        if only and pair not in only:
            continue
        gold = [g for split in splits.values() for g in split]
        source, target = further_pairs(shared, pair, count)
        source = [list(g.source) for g in gold] + source
        target = [list(g.target) for g in gold] + target
        rows = range(len(gold) - len(splits["test"]), len(gold)) if "dev" in splits else range(len(gold))
        yield pair, source, target, list(rows), splits["test"]


def error_rates(shared: Path, count: int, only: list[str] | None) -> list[dict[str, object]]:
    table = []
    for pair, source, target, rows, gold in texts(shared, count, only):
        began, cpu = time.perf_counter(), time.process_time()
        _, own, other = train(source, target)
        directions = (other.links("target"), own.links("source"))
        ours = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime + time.process_time()
        began = time.perf_counter()
        theirs_directions = align_eflomal(source, target)
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime + time.process_time()
        theirs = {"seconds": time.perf_counter() - began, "cpu_seconds": after - before}
        row: dict[str, object] = {"pair": pair, "training_pairs": len(source)}
        for name, both, cost in (("crosslift", directions, ours), ("eflomal", theirs_directions, theirs)):
            row[name] = {key: round(value, 1) for key, value in cost.items()} | {
                way: rounded(symmetrise(*both, way).select(rows), gold) for way in WAYS
            }
        table.append(row)
        print(json.dumps(row), flush=True)
    return table


def without(shared: Path, count: int, only: list[str] | None) -> list[dict[str, object]]:
    """Return error rates of the statistical aligner as it is, and without each of its measures for rare words."""
    table = []
    for pair, source, target, rows, gold in texts(shared, count, only):
        row: dict[str, object] = {"pair": pair, "training_pairs": len(source)}
        for name, settings in WITHOUT.items():
            with _cells_vouching() if name == "leaving out the own cell" else nullcontext():
                _, own, other = train(source, target, settings)
            both = other.links("target"), own.links("source")
            row[name] = {way: rounded(symmetrise(*both, way).select(rows), gold)["aer"] for way in WAYS}
        table.append(row)
        print(json.dumps(row), flush=True)
    return table


@contextmanager
def _cells_vouching() -> Iterator[None]:
    """Let a cell's own expected count stay in what it is judged by."""
    kept = {name: getattr(expectation, name) for name in ("_emission", "_nothing")}

    def whole(name):  # noqa: ANN001, ANN202
        return lambda chunk, counts, prior, own, direction: kept[name](chunk, counts, prior, None, direction)

    with mock.patch.multiple(expectation, **{name: whole(name) for name in kept}):
        yield


def rounded(links: Alignment, gold: list[GoldAlignment]) -> dict[str, float]:
    scores = score_alignment(links, gold)
    return {name: round(value, 2) for name, value in scores.to_dict().items() if name in ("aer", "precision", "recall")}


def thirty_thousand(shared: Path, count: int) -> dict[str, object]:
    """Train on so many pairs in a fresh process and read its time and memory."""
    command = [sys.executable, __file__, "--shared", str(shared), "--child", str(count)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def child(shared: Path, count: int) -> None:
    source, target = further_pairs(shared, "en-es", count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    began, cpu = time.perf_counter(), time.process_time()
    _, own, other = train(source, target)
    links = symmetrise(other.links("target"), own.links("source"))
    print(
        json.dumps(
            {
                "pairs": len(source),
                "words": [sum(map(len, source)), sum(map(len, target))],
                "links": len(links.source),
                "seconds": round(time.perf_counter() - began, 1),
                "cpu_seconds": round(time.process_time() - cpu, 1),
                "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 3),
                "gb_before": round(before, 3),
                "threads": torch.get_num_threads(),
            }
        )
    )


def one_pair_at_a_time(model, tokenizer, layer, pairs, device):  # noqa: ANN001, ANN201
    """Both sentences of a pair through the whole encoder, then loops over words."""
    found = []
    for texts, spans in pairs:
        encoded = tokenizer(list(texts), return_tensors="pt", padding=True, return_offsets_mapping=True)
        offsets = encoded.pop("offset_mapping").tolist()
        encoded.pop("token_type_ids", None)
        with torch.no_grad():
            states = model(**encoded.to(device), output_hidden_states=True).hidden_states[layer].cpu().numpy()
        sides = []
        for side in (0, 1):
            vectors = []
            for begin, end in spans[side].tolist():
                own = [k for k, (a, b) in enumerate(offsets[side]) if a < b and a < end and begin < b]
                own = [k for k in own if tokenizer.convert_ids_to_tokens(int(encoded["input_ids"][side][k])) != "▁"]
                vectors.append(states[side][own].mean(axis=0) if own else np.zeros(states.shape[-1]))
            sides.append(np.stack(vectors))
        unit = [side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in sides]
        like = unit[0] @ unit[1].T
        best, back = like.argmax(axis=1), like.argmax(axis=0)
        found.append([(i, int(j)) for i, j in enumerate(best) if back[j] == i])
    return found


def embedding(shared: Path, name: str, rows: int, slow_rows: int, device: str) -> dict[str, object]:
    from crosslift.models.load import load_encoder, load_tokenizer

    bitext = read_bitext(shared / "data/bitext/en-es.tsv.xz", language="en", pair_language="es", limit=rows)
    made = cut_words(bitext)
    model, tokenizer = load_encoder(name).eval().to(device), load_tokenizer(name)
    layer = round(int(model.config.num_hidden_layers) * 2 / 3)
    texts = list(zip(bitext.texts, bitext.pairs or (), strict=True))
    spans = list(zip(made.source, made.target, strict=True))
    some = np.random.default_rng(0).choice(rows, size=min(slow_rows, rows), replace=False).tolist()
    chosen = [(texts[row], spans[row]) for row in some]
    one_pair_at_a_time(model, tokenizer, layer, chosen[:5], device)
    align_words(bitext.select(range(64)), aligner=name, device=device)
    began = time.perf_counter()
    slow = one_pair_at_a_time(model, tokenizer, layer, chosen, device)
    slow_rate = len(chosen) / (time.perf_counter() - began)
    from crosslift.align.embedding import EmbeddingSettings, align_embeddings

    settings = EmbeddingSettings(layer=layer, device=device)
    began = time.perf_counter()
    made = cut_words(bitext)
    links, _, _ = align_embeddings(model, bitext, made.source, made.target, settings, tokenizer=tokenizer)
    fast_rate = rows / (time.perf_counter() - began)
    equal = sum(links.links(row) == found for row, found in zip(some, slow, strict=True))
    return {
        "model": Path(name).name,
        "device": torch.cuda.get_device_name() if device == "cuda" else f"cpu, {torch.get_num_threads()} thread(s)",
        "pairs": rows,
        "layer": layer,
        "pairs_per_second": round(fast_rate, 1),
        "one_at_a_time": round(slow_rate, 1),
        "ratio": round(fast_rate / slow_rate, 2),
        "pairs_with_equal_links": f"{equal} of {len(some)}",
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--parts", default="error,time,embedding")
    parser.add_argument("--pairs", type=int, default=10_000, help="further pairs to learn from, per language")
    parser.add_argument("--only", help="language pairs, by commas")
    parser.add_argument("--model", default="mini-x", help="encoder of the embedding aligner")
    parser.add_argument("--rows", type=int, default=1000, help="pairs for the embedding aligner")
    parser.add_argument("--slow-rows", type=int, default=200, help="of these, one at a time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dry", action="store_true", help="small, and nothing is written")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/align.json"))
    given = parser.parse_args()
    if given.child:
        child(given.shared, given.child)
        return
    result = json.loads(given.out.read_text()) if given.out.exists() else {}
    parts = given.parts.split(",")
    if "error" in parts:
        only = ["en-hi"] if given.dry else given.only.split(",") if given.only else None
        fresh = error_rates(given.shared, 1000 if given.dry else given.pairs, only)
        kept = [row for row in result.get("error_rates", []) if row["pair"] not in {r["pair"] for r in fresh}]
        result["error_rates"] = sorted(kept + fresh, key=lambda row: row["pair"])
    if "without" in parts:
        only = ["en-hi"] if given.dry else given.only.split(",") if given.only else None
        result["without"] = without(given.shared, 1000 if given.dry else given.pairs, only)
    if "time" in parts:
        result["time"] = thirty_thousand(given.shared, 2000 if given.dry else 30_000)
        print(json.dumps(result["time"]))
    if "embedding" in parts:
        rows = 100 if given.dry else given.rows
        found = embedding(given.shared, given.model, rows, 20 if given.dry else given.slow_rows, given.device)
        result[f"embedding_{'gpu' if given.device == 'cuda' else 'cpu'}"] = found
        print(json.dumps(found))
    if not given.dry:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
