"""Speed of the connector's training at XLM-R-base + RoBERTa-base shape, beside a straightforward version.

    python benchmarks/plug.py --text text-en.txt.xz --out benchmarks/results/plug-speed.json     # on a GPU
    python benchmarks/plug.py --dry                                                              # tiny, on a CPU
    python benchmarks/plug.py --variants bf16 bf16+last --out FILE        # changes to our step, one after the other

Every part is written to `--out` as it is known. Weights are random, drawn on the device; text is cut by the embedded
models' vocabularies, whose ids are rows of the larger embeddings: speed does not depend on either. Both versions get
the same batches and must give the same losses and the same gradients (checked first, without dropout; where they do
not, the result says so and the exit status is 1). Straightforward: plain library modules in float32 under autocast,
every position projected to the vocabulary, `--micro` rows at a time. Ours: frozen parts in bf16, masked positions
only, compiled layers. A third measurement feeds ours with fresh masks of text through the HMLM generator; a fourth is
the generator alone, on one CPU core, beside tokenising every span anew. `--variants` takes their place: each variant
(`experiments/plug/variants.py`) starts from the same weights on the same batch, is checked in the same way, and is
compiled anew; its first loss with dropout stands beside that of ours.

Model FLOPs count what the computation needs: 2 per weight and token forwards through all layers, 4 more through the
connector, 2 more through the end-task module, attention, and the head at masked positions.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import RobertaConfig, RobertaForMaskedLM, XLMRobertaConfig, XLMRobertaModel

sys.path.insert(0, str(Path(__file__).resolve().parent / "experiments" / "plug"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from variants import changed, compile_with

from crosslift.data.hmlm import Frame
from crosslift.data.row_plan import RowPlan
from crosslift.data.word_corpus import write_word_corpus
from crosslift.data.word_pieces import word_pieces
from crosslift.methods.plug import Adaptation, PlugPoints, Settings
from crosslift.models.load import load_tokenizer
from crosslift.runs.plug_work import PlugWork

PEAK = 790e12
"""Dense bf16 FLOP/s of an H200 that large matrix products reach; utilisation is a share of this."""
STARTED = time.monotonic()


def say(what: str) -> None:
    print(f"{time.monotonic() - STARTED:6.1f} s  {what}", flush=True)


def models(dry: bool, device: torch.device) -> tuple[XLMRobertaModel, RobertaForMaskedLM]:
    shape = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5}
    if dry:
        shape |= {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 128}
    torch.manual_seed(0)
    sizes = (len(load_tokenizer("mini-x")), len(load_tokenizer("mini-en"))) if dry else (250002, 50265)
    with device:  # 400 million weights are drawn in no time there
        multi = XLMRobertaModel(XLMRobertaConfig(vocab_size=sizes[0], **shape), add_pooling_layer=False)
        mono = RobertaForMaskedLM(RobertaConfig(vocab_size=sizes[1], **shape))
    with torch.no_grad():  # so that the loss says more than the size of the vocabulary
        mono.get_input_embeddings().weight.mul_(10)
    return multi, mono


class Straightforward(nn.Module):
    """The reassembled model as one would first write it."""

    def __init__(self, multi: XLMRobertaModel, mono: RobertaForMaskedLM, cut: int) -> None:
        super().__init__()
        self.multi, self.mono, self.cut = multi, mono, cut
        self.requires_grad_(False)
        self.multi.encoder.layer[cut:].requires_grad_(True)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy; labels (rows, length), −100 = not masked."""
        states = self.multi(input_ids=ids).last_hidden_state
        for layer in self.mono.roberta.encoder.layer[self.cut :]:
            out = layer(states)
            states = out[0] if isinstance(out, tuple) else out
        scores = self.mono.lm_head(states)
        return cross_entropy(scores.float().view(-1, scores.shape[-1]), labels.view(-1), ignore_index=-100)


def flops(config: RobertaConfig, cut: int, rows: int, length: int, hidden: int) -> float:
    """Model FLOPs of one step."""
    width, inner = config.hidden_size, config.intermediate_size
    tokens = rows * length
    layer = 2 * tokens * (4 * width * width + 2 * width * inner) + 4 * tokens * length * width
    depth = config.num_hidden_layers
    layers = cut + (depth - cut) * 3 + (depth - cut) * 2
    head = 2 * hidden * (width * width + width * config.vocab_size) * 2
    return float(layer * layers + head)


def timed(step: Callable[[int], None], steps: int, warmup: int, device: torch.device) -> float:
    """Seconds per step."""
    for number in range(warmup):
        step(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.monotonic()
    for number in range(steps):
        step(warmup + number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.monotonic() - began) / steps


def flat_gradient(module: nn.Module) -> Tensor:
    """Return the gradients of a module's weights, one after the other, in float32."""
    return torch.cat([weight.grad.flatten().float() for weight in module.parameters()])  # type: ignore[union-attr]


def measured_peak(device: torch.device) -> float | None:
    """FLOP/s of a large bf16 matrix product."""
    if device.type != "cuda":
        return None
    size = 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / timed(lambda _: (a @ b, None)[1], 50, 10, device)


def batch(rows: int, length: int, multi: int, mono: int, rate: float, device: torch.device) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(5, multi, (rows, length), generator=draw)
    per_row = int(rate * length)
    places = torch.rand(rows, length, generator=draw).topk(per_row).indices
    ids.scatter_(1, places, 4)
    labels = torch.randint(5, mono, (rows, per_row), generator=draw)
    flat = (places + torch.arange(rows)[:, None] * length).flatten()
    order = flat.argsort()
    made = {"ids": ids, "places": flat[order], "labels": labels.flatten()[order]}
    return {name: tensor.to(device) for name, tensor in made.items()}


def spread(data: dict[str, Tensor]) -> Tensor:
    """Labels of every position: (rows, length)."""
    wide = torch.full_like(data["ids"].flatten(), -100)
    wide[data["places"]] = data["labels"]
    return wide.view_as(data["ids"])


def speed(arguments: argparse.Namespace, device: torch.device, found: dict[str, object]) -> None:
    """Fill `found`, part by part."""
    rows, length = (4, 32) if arguments.dry else (arguments.rows, arguments.length)
    multi, mono = models(arguments.dry, device)
    say("models drawn")
    cut = multi.config.num_hidden_layers // 2
    data = batch(rows, length, multi.config.vocab_size, mono.config.vocab_size, 0.15, device)
    wide = spread(data)
    work = flops(mono.config, cut, rows, length, len(data["labels"]))
    half = torch.bfloat16 if device.type == "cuda" else torch.float32
    found |= {"rows": rows, "length": length, "masked": len(data["labels"]), "flops": work}
    torch.set_float32_matmul_precision("high")

    def measure(name: str, step: Callable[[int], None], loss: float, into: dict[str, object] = found) -> None:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = timed(step, arguments.steps, arguments.warmup, device)
        memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
        into[name] = {
            "seconds": seconds,
            "tokens_per_second": rows * length / seconds,
            "utilisation": work / seconds / PEAK,
            "memory_gib": memory,
            "loss_without_dropout": loss,
        }
        say(f"{name} {json.dumps(into[name])}")
        keep(arguments, found)

    # Ours first: it copies the layers that the other one then trains in place.
    settings = Settings(length=length, packing="corpus", dropout=0.1)
    lean = Adaptation(multi, mono, PlugPoints(cut, cut, cut), settings, torch.float32)
    plain_multi, plain_mono = models(arguments.dry, device)
    plain = Straightforward(plain_multi, plain_mono, cut).to(device)
    for model in (multi, mono):
        model.to(half)
    lean.dtype = half
    lean.move(device)
    lean.to(device)
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
    size = min(rows, arguments.micro)
    plain.eval()
    few = batch(size, length, multi.config.vocab_size, mono.config.vocab_size, 0.15, device)
    with autocast:
        loss = plain(few["ids"], spread(few))
    loss.backward()
    expected = loss.item()
    theirs = flat_gradient(plain.multi.encoder.layer[cut:])
    plain.zero_grad(set_to_none=True)

    def checked() -> dict[str, object]:
        """Compare our loss and gradient, without dropout, with the straightforward ones."""
        lean.eval()
        with autocast:
            loss = lean(few)["hmlm"]
        loss.backward()
        agreement = torch.cosine_similarity(theirs, flat_gradient(lean.connector), dim=0).item()
        lean.zero_grad(set_to_none=True)
        lean.train()
        return {
            "straightforward_loss": expected,
            "our_loss": loss.item(),
            "cosine_of_gradients": agreement,
            "agree": abs(expected - loss.item()) <= 0.005 * abs(expected) and agreement >= 0.98,
        }

    check = found["check"] = checked()
    given = float(check["our_loss"])  # type: ignore[arg-type]
    say(f"without dropout {json.dumps(check)}")
    keep(arguments, found)

    plain.train()
    for frozen in (plain.multi.encoder.layer[:cut], plain.multi.embeddings, plain.mono):
        frozen.eval()
    learnt = [p for p in plain.parameters() if p.requires_grad]
    plain_optimizer = torch.optim.AdamW(learnt, lr=1e-5, fused=device.type == "cuda")

    def plain_step(number: int) -> None:
        parts = range(0, rows, size)
        for i in parts:
            with autocast:
                loss = plain(data["ids"][i : i + size], wide[i : i + size])
            (loss / len(parts)).backward()
        torch.nn.utils.clip_grad_norm_(learnt, 2.0)
        plain_optimizer.step()
        plain_optimizer.zero_grad(set_to_none=True)

    measure("straightforward", plain_step, float(expected))
    plain.to("meta")  # gives the memory back
    plain_optimizer.state.clear()
    if device.type == "cuda":
        torch.cuda.empty_cache()

    compiled = not arguments.eager and not arguments.dry
    if compiled:
        lean.compile_parts()
    optimizer = torch.optim.AdamW(lean.parameters(), lr=1e-5, fused=device.type == "cuda")
    own = min(rows, arguments.own_micro)

    def lean_step_on(parts: list[tuple[dict[str, Tensor], float]]) -> None:
        for part, share in parts:
            with autocast:
                loss = lean(part)["hmlm"]
            (loss * share).backward()
        torch.nn.utils.clip_grad_norm_(lean.parameters(), 2.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    pieces = [batch(own, length, multi.config.vocab_size, mono.config.vocab_size, 0.15, device)] * (rows // own)
    start = {name: weight.clone() for name, weight in lean.connector.state_dict().items()}
    steady = [(part, own / rows) for part in pieces]

    def time_ours(name: str, loss: float, into: dict[str, object]) -> None:
        """Measure our step as it is now, the first one with its loss (and the compiling) apart."""
        lean.connector.load_state_dict(start)
        torch.manual_seed(0)
        began = time.monotonic()
        with autocast:
            first = lean(pieces[0])["hmlm"]
        first.backward()
        gradient = flat_gradient(lean.connector).norm().item()
        lean.zero_grad(set_to_none=True)
        begun = {"first_loss": first.item(), "first_gradient": gradient, "compiling": time.monotonic() - began}
        del first
        measure(name, lambda _: lean_step_on(steady), loss, into)
        into[name] |= begun  # type: ignore[operator]
        if arguments.profile:
            with torch.profiler.profile() as profile:
                lean_step_on(steady)
            rows_of_it = profile.key_averages()
            table = rows_of_it.table(sort_by="self_device_time_total", row_limit=40, max_name_column_width=90)
            arguments.profile.with_stem(f"{arguments.profile.stem}-{name.replace('+', '-')}").write_text(table)

    time_ours("ours", given, found)
    if arguments.variants:
        variants: dict[str, object] = {}
        found["variants"] = variants
        for variant in arguments.variants:
            if time.monotonic() - STARTED > arguments.until:
                say(f"{variant} is left out: no time")
                continue
            try:
                lean.connector.load_state_dict(start)
                with changed(lean, variant) as names:
                    with torch.compiler.set_stance("force_eager"):
                        same = checked()
                    say(f"{variant} without dropout {json.dumps(same)}")
                    if compiled:
                        compile_with(lean, names)
                    time_ours(variant, float(same["our_loss"]), variants)  # type: ignore[arg-type]
                seconds = variants[variant]["seconds"]  # type: ignore[index]
                ratio = found["straightforward"]["seconds"] / seconds  # type: ignore[index]
                variants[variant] |= {"check": same, "ratio": ratio}  # type: ignore[operator]
            except Exception as error:  # the others are still worth knowing
                lean.zero_grad(set_to_none=True)
                variants[variant] = {"failed": f"{type(error).__name__}: {error}"}
                say(f"{variant} failed: {error}")
            keep(arguments, found)
        return

    with tempfile.TemporaryDirectory() as scratch:
        feed = real_work(arguments, settings, Path(scratch), device, rows, own * length)
        say("text read")
        measure("ours_fed_by_the_generator", lambda n: lean_step_on(list(feed.batches(n, 0, 1))), given)
        found["generator"] = generator_alone(arguments, settings, Path(scratch), length)
        say(f"generator {json.dumps(found['generator'])}")
    ratio = found["straightforward"]["seconds"] / found["ours"]["seconds"]  # type: ignore[index]
    fed = found["straightforward"]["seconds"] / found["ours_fed_by_the_generator"]["seconds"]  # type: ignore[index]
    hours = 30_000 * found["ours_fed_by_the_generator"]["seconds"] / 3600  # type: ignore[index]
    found |= {"ratio": ratio, "ratio_fed": fed, "hours_for_30000_steps": hours}


def keep(arguments: argparse.Namespace, found: dict[str, object]) -> None:
    """Write what is known so far."""
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


def english(arguments: argparse.Namespace) -> list[str]:
    """Lines of the given text, or of random words that look like text."""
    if arguments.text:
        from crosslift.data.files import read_lines

        return [line for line in read_lines(arguments.text)[: arguments.lines] if line.strip()]
    draw = np.random.default_rng(0)
    syllables = [a + b for a in "bcdfglmnprst" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "or", "es")]
    words = ["".join(draw.choice(syllables, draw.integers(1, 4))) for _ in range(300 if arguments.dry else 8_000)]
    ranks = np.minimum(draw.zipf(1.3, 20_000 if arguments.dry else 1_000_000) - 1, len(words) - 1)
    return [" ".join(words[r] for r in ranks[i : i + 20]) + "." for i in range(0, len(ranks), 20)]


_text: dict[str, object] = {}


def text_tables(arguments: argparse.Namespace, scratch: Path) -> tuple[object, ...]:
    if not _text:
        lines = english(arguments)
        file = scratch / "english.txt"
        file.write_text("\n".join(lines), encoding="utf-8")
        corpus = write_word_corpus([file], scratch / "words")
        multi, mono = load_tokenizer("mini-x"), load_tokenizer("mini-en")
        _text["tokenizers"], _text["lines"] = (multi, mono), lines
        _text["all"] = corpus, word_pieces(corpus.words, multi, mono, separate=True), Frame.of(multi, mono)
    return _text["all"]  # type: ignore[return-value]


def real_work(
    arguments: argparse.Namespace, settings: Settings, scratch: Path, device: torch.device, rows: int, max_tokens: int
) -> PlugWork:
    corpus, pieces, frame = text_tables(arguments, scratch)
    lengths, _ = pieces.lengths()  # type: ignore[attr-defined]
    plan = RowPlan(corpus.numbers, lengths, settings.length - 2, "corpus", scratch / "running.i64")  # type: ignore[attr-defined]
    return PlugWork(
        corpus.numbers, pieces.to(device), frame, (plan, None), settings, steps=10**9, batch_size=rows,  # type: ignore[attr-defined, arg-type]
        max_tokens=max_tokens, mono_length=512, seed=1,
    )  # fmt: skip


def generator_alone(arguments: argparse.Namespace, settings: Settings, scratch: Path, length: int) -> dict[str, float]:
    """Tokens per second of the generator on one CPU core, beside tokenising every span anew."""
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    rows = 8 if arguments.dry else 64
    work = real_work(arguments, settings, scratch, cpu, rows, 10**9)
    steps = 2 if arguments.dry else 12
    work.draw(0)
    began = time.process_time()  # seconds of one core, whatever else the machine does
    for number in range(1, steps + 1):
        work.draw(number)
    seconds = (time.process_time() - began) / steps
    anew = spans_anew(arguments, 40 if arguments.dry else 2000)
    found = {"tokens_per_second_per_core": rows * length / seconds, "tokenising_anew": anew}
    return {**found, "ratio": found["tokens_per_second_per_core"] / anew, "rows": rows}


def spans_anew(arguments: argparse.Namespace, lines: int) -> float:
    """Tokens per second where each line is tokenised, masked, and its spans are tokenised again, in Python."""
    multi, mono = _text["tokenizers"]  # type: ignore[misc]
    draw = np.random.default_rng(0)
    sample = _text["lines"][:lines]  # type: ignore[index]
    tokens = 0
    began = time.process_time()
    for line in sample:
        encoded = mono(line, add_special_tokens=False, return_offsets_mapping=True)
        at, spans, count = 0, [], 0
        for (begin, end), chosen in zip(
            encoded["offset_mapping"], draw.random(len(encoded["input_ids"])) < 0.15, strict=True
        ):
            if chosen:
                spans.append(line[at:begin])
                at, count = end, count + 1
        spans.append(line[at:])
        tokens += count + sum(
            len(ids) for ids in multi([s for s in spans if s.strip()] or ["a"], add_special_tokens=False)["input_ids"]
        )
    return tokens / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--micro", type=int, default=64, help="rows at a time, straightforward version")
    parser.add_argument("--own-micro", type=int, default=256, help="rows at a time, ours")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--text", type=Path, help="English text for the generator; default: made-up words")
    parser.add_argument("--lines", type=int, default=40_000, help="lines of the text that are used")
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--profile", type=Path, help="where to write which kernels take how long (NAME-ours.txt, …)")
    parser.add_argument("--variants", nargs="+", default=[], help="changes to our step to time, joined by +")
    parser.add_argument("--until", type=float, default=float("inf"), help="begin no variant after so many seconds")
    parser.add_argument("--generator", action="store_true", help="only the HMLM generator, on one CPU core")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.dry:
        arguments.steps, arguments.warmup = 2, 1
    device = torch.device("cuda" if torch.cuda.is_available() and not arguments.dry else "cpu")
    result: dict[str, object] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "peak_nominal": PEAK,
        "peak_measured": measured_peak(device),
    }
    if arguments.generator:
        settings = Settings(length=arguments.length, packing="corpus")
        with tempfile.TemporaryDirectory() as scratch:
            result = {"generator": generator_alone(arguments, settings, Path(scratch), arguments.length)}
    else:
        speed(arguments, device, result)
    print(json.dumps(result, indent=1))
    keep(arguments, result)
    if not result.get("check", {"agree": True})["agree"]:  # type: ignore[index]
        raise SystemExit("The two versions do not compute the same.")


if __name__ == "__main__":
    main()
