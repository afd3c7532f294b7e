"""The model card: `README.md` in each model folder, made from what the run wrote down.

It says what the model is, how it was chosen, what it scores in which language and how sure that is, where it comes
from, and what it is not good for. Its head is the metadata of Hugging Face cards, scores in `model-index` form.
It is written when a run is done and again after each evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from crosslift.data import catalog
from crosslift.data.storage import Json, write_text

if TYPE_CHECKING:
    from crosslift.runs.folder import RunFolder

CARD = "README.md"

PIPELINES = {
    "classification": "text-classification",
    "tagging": "token-classification",
    "qa": "question-answering",
}
# What the hub calls our scores; percent in both.
_METRICS = {"accuracy": "accuracy", "exact_match": "exact_match"}

_EAR = "Ding et al., A Simple and Effective Method to Improve Zero-Shot Cross-Lingual Transfer Learning, COLING 2022."
_ADJUST = (
    "Efimov et al., The Impact of Cross-Lingual Adjustment of Contextual Word Representations on Zero-Shot Transfer, "
    "ECIR 2023."
)
_DISTILL = (
    "Guo et al., FreeTransfer-X: Safe and Label-Free Cross-Lingual Transfer from Off-the-Shelf Models, Findings of "
    "NAACL 2022."
)
_PLUG = (
    "Chi et al., Can Cross-Lingual Transferability of Multilingual Transformers Be Activated Without End-Task Data?, "
    "Findings of ACL 2023."
)
METHODS = {
    "finetune": ("fine-tuned on source-language labels", ""),
    "robust": ("fine-tuned on disturbed inputs, so that small changes do not change its answers", ""),
    "ear": ("trained with embedding push and attention pull on synonyms (EAR)", _EAR),
    "adjust": ("an encoder whose vectors of translated words were pulled together", _ADJUST),
    "distill": ("distilled from another model's answers on unlabelled text", _DISTILL),
    "plug": ("a task model with a multilingual encoder plugged in", _PLUG),
    "pretrain": ("a multilingual encoder, pretrained", ""),
}
"""Method -> what was done, and the paper it comes from."""


def write_card(folder: RunFolder) -> None:
    """Write the card of a finished run into its model folder; a run that delivered no model has none."""
    if (folder.model / "config.json").exists():
        write_text(folder.model / CARD, model_card(folder))


def model_card(folder: RunFolder) -> str:
    """Return the card of a finished run, as Markdown with a YAML head."""
    import yaml  # type: ignore[import-untyped]  # comes with transformers

    config, summary = folder.config, folder.summary
    results = _evaluated(folder.results())
    head = yaml.safe_dump(_metadata(folder.path.name, config, results), sort_keys=False, allow_unicode=True, width=120)
    parts = [
        f"# {_plain(_title(folder.path, config))}",
        _about(config),
        _use(config, (folder.model / "config.json").read_text(encoding="utf-8")),
        *_scores(config, results),
        _selection(config, summary),
        _data(config),
        _limits(config, results),
        _citation(config),
    ]
    return f"---\n{head}---\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def choice_section(chosen: str, rule: str, signals: Mapping[str, Mapping[str, float]]) -> str:
    """Return what a card says of a model that was chosen among candidates: by what rule, and their signals."""
    kinds = list(dict.fromkeys(kind for found in signals.values() for kind in found))
    rows = [f"| candidate | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for name, found in signals.items():
        cells = [f"{found[kind]:.1f}" if kind in found else "–" for kind in kinds]
        rows.append(f"| {_plain(name)} | {' | '.join(cells)} |")
    table = "\n\n" + "\n".join(rows) if kinds else ""
    return f"## How it was chosen among candidates\n\nDelivered: {_plain(chosen)}. Rule: {_plain(rule)}.{table}\n"


def _evaluated(results: Json) -> dict[str, dict[str, Json]]:
    """Return the scores by data and language of the delivered weights.

    Those of a variant (`data/test@last`) belong to other weights; what pretraining measures has another form.
    """
    found = {}
    for data, rows in results.items():
        rows = rows if isinstance(rows, dict) and "@" not in data else {}
        scored = {
            language: entry for language, entry in rows.items() if isinstance(entry, dict) and entry.get("scores")
        }
        if scored:
            found[data] = scored
    return found


def _metadata(name: str, config: Json, results: Mapping[str, Mapping[str, Json]]) -> Json:
    kind = str(config.get("kind", ""))
    base = str(config.get("model", ""))
    index = list(_index(kind, results))
    hub = [hub_id for data in _data_names(config) if (hub_id := _hub_id(data))]
    found: Json = {
        "language": _languages(config, results),
        "library_name": "transformers",
        "pipeline_tag": PIPELINES.get(kind),
        "base_model": base if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", base) and not Path(base).exists() else None,
        "datasets": hub,
        "metrics": list(dict.fromkeys(entry["type"] for row in index for entry in cast("list[Json]", row["metrics"]))),
        "tags": ["crosslift", "cross-lingual-transfer", str(config["method"])],
        "model-index": [{"name": name, "results": index}] if index else None,
    }
    return {key: value for key, value in found.items() if value}


def _index(kind: str, results: Mapping[str, Mapping[str, Json]]) -> Iterator[Json]:
    """Yield one entry of the `model-index` per data set and language."""
    for data, languages in results.items():
        name, _, split = data.partition("/")
        for language, entry in languages.items():
            dataset = {"name": f"{name} ({language})", "type": _hub_id(name) or name, "config": language}
            yield {
                "task": {"type": PIPELINES.get(kind, kind)},
                "dataset": {**dataset, **({"split": split} if split else {})},
                "metrics": [
                    {
                        "type": _METRICS.get(metric, "f1"),
                        "name": metric.replace("_", " "),
                        "value": round(float(score["value"]), 2),
                    }
                    for metric, score in cast("dict[str, dict[str, float]]", entry["scores"]).items()
                ],
            }


def _languages(config: Json, results: Mapping[str, Mapping[str, Json]]) -> list[str]:
    trained = [str(config["source"])] if config.get("source") else []
    trained += [str(code) for code in cast("list[object]", config.get("languages") or [])]
    return list(dict.fromkeys([*trained, *(language for found in results.values() for language in found)]))


def _title(path: Path, config: Json) -> str:
    data = "+".join(_data_names(config)) or path.name
    return f"{data}: {config['method']}, seed {config.get('seed', 1)}"


def _about(config: Json) -> str:
    done, _ = METHODS.get(str(config["method"]), (str(config["method"]), ""))
    task = cast("Json", config.get("task") or {})
    labels = [str(label) for label in cast("list[object]", task.get("labels") or [])]
    what = {"classification": "classifies texts", "tagging": "labels words", "qa": "answers questions about a text"}
    lines = [f"This model {what.get(str(config.get('kind')), 'is an encoder')}. It was made with crosslift: {done}."]
    if config.get("teacher"):
        labels_read = "its weights were chosen with gold labels" if config.get("target_dev") else "no label was read"
        lines.append(f"Its teacher was {_plain(_last(config['teacher']))}; {labels_read}.")
    if config.get("task_model"):
        lines.append(f"The task model in it is {_plain(_last(config['task_model']))}.")
    lines.append(f"It started from {_plain(_last(config.get('model')))}.")
    if labels:
        shown = ", ".join(map(_plain, labels[:80])) + (", …" if len(labels) > 80 else "")
        return f"{' '.join(lines)}\n\nIts {len(labels)} labels: {shown}."
    return " ".join(lines)


def _use(config: Json, architecture: str) -> str:
    pipeline = PIPELINES.get(str(config.get("kind")))
    if pipeline is None:
        return ""
    ours = '## Use\n\n```\ncrosslift predict path/to/this/folder --language de "…"\n```'
    if '"crosslift-' in architecture:  # a small network of ours, which transformers does not know
        return f"{ours}\n\nIt opens with `crosslift.load_model`, not with transformers alone."
    call = '("…")' if pipeline != "question-answering" else '(question="…", context="…")'
    code = f'from transformers import pipeline\n\npipeline("{pipeline}", model="path/to/this/folder"){call}'
    return f"{ours}\n\nor, with transformers alone:\n\n```python\n{code}\n```"


def _scores(config: Json, results: Mapping[str, Mapping[str, Json]]) -> Iterator[str]:
    """Yield a table per data set: languages, main score, 95 % interval over examples, number of examples."""
    source = str(config.get("source", ""))
    if not results:
        yield "## Scores\n\nIt has not been evaluated in any language yet; `crosslift evaluate RUN` adds the scores."
    for data, languages in results.items():
        metrics = list(dict.fromkeys(name for entry in languages.values() for name in cast("Json", entry["scores"])))
        rows = [f"| language | {' | '.join(name.replace('_', ' ') for name in metrics)} | examples |"]
        rows.append("|---" * (len(metrics) + 2) + "|")
        for language, entry in languages.items():
            scores = cast("dict[str, dict[str, float]]", entry["scores"])
            cells = [
                f"{s['value']:.1f} ({s['low']:.1f}–{s['high']:.1f})" if (s := scores.get(name)) else "–"
                for name in metrics
            ]
            mark = " (source)" if language == source else ""
            rows.append(f"| {_plain(language)}{mark} | {' | '.join(cells)} | {entry['examples']:,} |")
        yield (
            f"## Scores on {_plain(data)}\n\nIn percent, with 95 % bootstrap intervals over examples.\n\n"
            + "\n".join(rows)
        )


def _selection(config: Json, summary: Json) -> str:
    chosen, where = summary.get("selected"), summary.get("selected_on")
    lines = ["## How it was selected\n"]
    if where:
        lines.append(f"Weights: `{chosen}`, by {_plain(str(where))}.")
    if summary.get("steps"):
        lines.append(f"Trained for {summary['steps']:,} steps, seed {config.get('seed', 1)}.")
    lines.append("Test labels are read by the scorer alone.")
    return "\n".join(lines)


def _data(config: Json) -> str:
    lines = []
    for name in _data_names(config):
        base = name.split("/")[0]
        known = catalog.find(base) if catalog.is_known(base) else None
        facts = f": {known.source}; licence: {known.licence}" if known else ""
        lines.append(f"- {_plain(name)} ({_plain(str(config.get('source', '')))}){_plain(facts)}")
    if config.get("limit"):
        lines.append(f"- at most {config['limit']:,} examples of it")
    return "## Data\n\n" + "\n".join(lines) if lines else ""


def _limits(config: Json, results: Mapping[str, Mapping[str, Json]]) -> str:
    source = str(config.get("source", ""))
    lines = ["- Languages that are not in the tables were not measured; nothing is known about them."]
    for data, languages in results.items():
        main = {
            language: next(iter(cast("dict[str, dict[str, float]]", entry["scores"]).values()))["value"]
            for language, entry in languages.items()
        }
        targets = {language: value for language, value in main.items() if language != source}
        if targets and source in main:
            worst = min(targets, key=targets.__getitem__)
            lines.append(
                f"- On {_plain(data)} it loses {main[source] - targets[worst]:.1f} points from {_plain(source)} to "
                f"{_plain(worst)}, the language it does worst in."
            )
    lines.append("- These are scores of one seed; another seed of the same settings may score differently.")
    return "## Limits\n\n" + "\n".join(lines)


def _citation(config: Json) -> str:
    _, paper = METHODS.get(str(config["method"]), ("", ""))
    extra = _ADJUST if config.get("with_adjustment") else ""
    papers = [f"- {text}" for text in (paper, extra) if text]
    return "## Citation\n\n" + "\n".join(papers) if papers else ""


def _data_names(config: Json) -> list[str]:
    return [str(config["data"])] if config.get("data") else []


def _hub_id(data: str) -> str | None:
    base = data.split("/")[0]
    known = catalog.find(base) if catalog.is_known(base) else None
    return known.hub.id if known and known.hub else None


def _last(name: object) -> str:
    """Return the last part of a path: a card tells nobody how folders are called on the machine it was made on."""
    return Path(str(name)).name if Path(str(name)).is_absolute() else str(name)


def _plain(text: str) -> str:
    """Return text that Markdown and HTML leave alone: names of data and labels are anybody's."""
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([|`*\[\]\\])", r"\\\1", flat)
