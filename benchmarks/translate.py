"""Translating batched, sorted by length and cached, against one sentence at a time; and how good plain translators are.

Speed: a random NLLB-shaped model (its tokenizer is trained on the text itself) translates the same sentences both ways,
in one process, with equal outputs. Random weights hardly ever end a sentence, so every translation is `--new-tokens`
long; each sentence is read in full. The cache is timed with a second run over the same text.

Projection: gold English slots of MASSIVE, carried over word links to the human translations, against the gold there.

Quality: Apertium and word-by-word dictionaries on NTREX, with chrF++ and BLEU of sacrebleu beside those of leaving the
text as it is.

    CROSSLIFT_DATA=… python benchmarks/translate.py [--lexicons DIR] [--rows 200] [--quality-rows 1000] [--slots 4000]
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    NllbTokenizer,
)

import crosslift as xl
from crosslift.translate import open_translator, seq2seq, translate_all
from crosslift.translate.project import entities, project
from crosslift.translate.text import link_words

SHAPE = {"encoder_layers": 4, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}


def make_model(folder: Path, texts: list[str], width: int) -> Path:
    """Write a random translation model that reads these texts in pieces of a usual size."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=8000, special_tokens=special, show_progress=False)
    )
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = NllbTokenizer(vocab=model["vocab"], merges=merges, extra_special_tokens=["eng_Latn", "spa_Latn"])
    tokenizer.save_pretrained(folder)
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    size = {"d_model": width, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width, "init_std": 0.1}
    torch.manual_seed(0)
    M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokenizer), **SHAPE, **size, **ids)).save_pretrained(
        folder
    )
    return folder


def one_at_a_time(folder: Path, texts: list[str], new_tokens: int) -> tuple[list[str], float]:
    """Translate as a model's page says: one text, one call."""
    tokenizer = AutoTokenizer.from_pretrained(folder, src_lang="eng_Latn")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    first = tokenizer.convert_tokens_to_ids("spa_Latn")
    found = []
    began = time.perf_counter()
    with torch.inference_mode():
        for text in texts:
            read = tokenizer(text, return_tensors="pt")
            written = model.generate(**read, forced_bos_token_id=first, max_new_tokens=new_tokens, do_sample=False)
            found.append(tokenizer.decode(written[0], skip_special_tokens=True).strip())
    return found, time.perf_counter() - began


def speed(texts: list[str], new_tokens: int, width: int) -> dict[str, object]:
    seq2seq.MAX_NEW_TOKENS = new_tokens
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_model(Path(scratch) / "model", texts, width)
        translator = open_translator(folder, "en", "es")
        translator.translate(texts[:4])  # loads the model
        one_at_a_time(folder, texts[:4], new_tokens)
        plain, plain_seconds = one_at_a_time(folder, texts, new_tokens)
        began = time.perf_counter()
        ours = translate_all(translator, texts, cache=Path(scratch) / "cache")
        our_seconds = time.perf_counter() - began
        began = time.perf_counter()
        again = translate_all(translator, texts, cache=Path(scratch) / "cache")
        cached_seconds = time.perf_counter() - began
        lengths = [len(ids) for ids in AutoTokenizer.from_pretrained(folder)(texts)["input_ids"]]
        parameters = sum(p.numel() for p in AutoModelForSeq2SeqLM.from_pretrained(folder).parameters())
    assert again == ours
    return {
        "sentences": len(texts),
        "mean_tokens": round(sum(lengths) / len(lengths), 1),
        "new_tokens": new_tokens,
        "parameters_millions": round(parameters / 1e6, 1),
        "threads": torch.get_num_threads(),
        "one_at_a_time_seconds": round(plain_seconds, 2),
        "our_seconds": round(our_seconds, 2),
        "ratio": round(plain_seconds / our_seconds, 2),
        "cached_seconds": round(cached_seconds, 3),
        "differing_translations": sum(a != b for a, b in zip(plain, ours, strict=True)),
    }


def quality(rows: int, lexicons: Path | None, languages: list[str]) -> list[dict[str, object]]:
    import sacrebleu

    english = list(xl.load("ntrex", language="en").texts)[:rows]
    found = []
    for language in languages:
        reference = list(xl.load("ntrex", language=language).texts)[:rows]
        tokenise = {"zh": "zh", "ja": "char", "th": "char"}.get(language, "13a")
        names = [f"dictionary:{lexicons}/lexicon-{{lang}}.tsv.xz"] if lexicons else []
        if language == "es" and shutil.which("apertium"):
            names.append("apertium")
        outputs = {"as it is": english}
        seconds = {"as it is": 0.0}
        for name in names:
            began = time.perf_counter()
            kind = name.split(":")[0]
            outputs[kind] = translate_all(open_translator(name, "en", language), english)
            seconds[kind] = time.perf_counter() - began
        for kind, texts in outputs.items():
            found.append(
                {
                    "language": language,
                    "translator": kind,
                    "sentences": len(texts),
                    "chrf++": round(sacrebleu.corpus_chrf(texts, [reference], word_order=2).score, 1),
                    "bleu": round(sacrebleu.corpus_bleu(texts, [reference], tokenize=tokenise).score, 1),
                    "seconds": round(seconds[kind], 2),
                }
            )
    return found


def projection(rows: int, languages: list[str]) -> list[dict[str, object]]:
    """Return entity F1 of projected slots, and how many slots found no place."""
    found = []
    for language in languages:
        english, other = (xl.load("massive-slots", language=x, split="train") for x in ("en", language))
        place = {key: row for row, key in enumerate(other.parallel_ids)}
        english = english.select([row for row, key in enumerate(english.parallel_ids) if key in place][:rows])
        other = other.select([place[key] for key in english.parallel_ids])
        began = time.perf_counter()
        links = link_words(english, other.texts, language, other.spans, "statistical")
        seconds = time.perf_counter() - began
        hits = made = gold = lost = 0
        for row in range(len(english)):
            tags, missing = project(english.labels[row], links[row], len(other.spans[row]))
            ours, theirs = set(entities(tags)), set(entities(other.labels[row]))
            hits, made, gold, lost = hits + len(ours & theirs), made + len(ours), gold + len(theirs), lost + missing
        slots = sum(len(entities(tags)) for tags in english.labels)
        found.append(
            {
                "language": language,
                "sentences": len(english),
                "f1": round(200 * hits / (made + gold), 1),
                "slots": slots,
                "lost": lost,
                "align_seconds": round(seconds, 1),
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200, help="sentences of the speed test; 0: leave it out")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--quality-rows", type=int, default=1000, help="sentences of the quality test; 0: leave it out")
    parser.add_argument("--slots", type=int, default=4000, help="sentences of the projection test; 0: leave it out")
    parser.add_argument("--lexicons", type=Path, help="folder of lexicon-LANGUAGE.tsv.xz")
    parser.add_argument("--languages", default="es,de,fr,ru,ar,hi,zh,th,sw")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/translate.json"))
    arguments = parser.parse_args()
    result: dict[str, object] = {}
    if arguments.rows:
        texts = list(dict.fromkeys(xl.load("ntrex", language="en").texts))[: arguments.rows]
        result["speed"] = speed(texts, arguments.new_tokens, arguments.width)
    if arguments.quality_rows:
        result["quality"] = quality(arguments.quality_rows, arguments.lexicons, arguments.languages.split(","))
    if arguments.slots:
        result["projection"] = projection(arguments.slots, ["es", "de", "fr", "ru", "zh", "ja"])
    print(json.dumps(result, indent=2))
    if arguments.rows:
        assert not result["speed"]["differing_translations"], "the two must translate alike"  # type: ignore[index]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
