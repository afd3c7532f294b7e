"""What a translator alone can do, to compare with: translate-test, and translate-train with pseudo-labels.

- translate-test: the test text is put into the source language, and the source model predicts there. Two passes for
  every text, and no target-language model at all.
- translate-train: source text is put into the target language, the source model's prediction on the original becomes
  its label, and a target-language model is trained on that.

Tags of words go along links between words, in both. No gold label is read by either; translate-test's scores aside.

(Guo et al., *FreeTransfer-X*, NAACL 2022, section 3.1; Conneau et al., *XNLI*, EMNLP 2018.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from crosslift.data.examples import Examples, Label, Spans
from crosslift.errors import BadInput
from crosslift.measure.scores import Scores
from crosslift.models.load import model_labels
from crosslift.runs.evaluate import evaluate, predict, predict_examples
from crosslift.runs.fit import Run, fit
from crosslift.runs.folder import find_runs
from crosslift.runs.progress import Silent, Watch
from crosslift.tasks import Prediction, Task
from crosslift.translate import Translator, open_translator, translate_examples
from crosslift.translate.project import project
from crosslift.translate.text import translate_linked

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedTokenizerBase

METHOD = "translate-test"


def translate_test(
    model: object,
    data: str | Path | Mapping[str, Examples] | None = None,
    languages: Sequence[str] | None = None,
    *,
    translator: str,
    source: str = "en",
    out: str | Path | None = None,
    aligner: str | Path = "statistical",
    cache: str | Path | None = None,
    watch: Watch | None = None,
    **options: Any,  # noqa: ANN401  those of `evaluate`
) -> Scores:
    """Score a source-language model on translations of the test data.

    The results lie beside the plain ones (`RUN/translate-test`), so that `compare` can hold the two together.

    Args:
        model: The source-language model: a run, its folder, or any task model by name.
        data: As for `evaluate`; the source language itself is scored without translation.
        languages: As for `evaluate`.
        translator: Name of the translator (see `open_translator`); `{lang}` stands for the test language.
        source: The model's language.
        out: Where results go; default: `translate-test` in the run folder.
        aligner: Tagging: who links words.
        cache: Folder to keep translations in.
        watch: Who is told about progress.
        options: Further arguments of `evaluate`.
    """
    watch = watch or Silent()
    runs = getattr(model, "folders", None) or find_runs(str(model))
    if out is None and runs:
        out = Path(getattr(model, "path", None) or str(model)) / METHOD

    def predictor(
        network: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        task: Task,
        examples: Examples,
        **how: Any,  # noqa: ANN401
    ) -> list[Prediction]:
        if examples.language == source:
            return predict_examples(network, tokenizer, task, examples, **how)
        there = open_translator(translator, examples.language, source)
        watch.say(f"{len(examples):,} texts through {there.name}")
        return _predict_there(network, tokenizer, task, examples.unlabelled(), there, aligner, cache, how)

    return evaluate(model, data, languages, out=out, predictor=predictor, method=METHOD, watch=watch, **options)


def _predict_there(
    network: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    examples: Examples,
    translator: Translator,
    aligner: str | Path,
    cache: str | Path | None,
    how: Mapping[str, Any],
) -> list[Prediction]:
    """Predict on translations; a row that the translator leaves empty is predicted as it is."""
    if task.kind != "tagging":
        made = translate_examples(examples, translator, cache=cache)
        place = {id_: row for row, id_ in enumerate(made.ids)}
        texts = [made.texts[place[i]] if i in place else examples.texts[row] for row, i in enumerate(examples.ids)]
        pairs = examples.pairs
        if made.pairs is not None and pairs is not None:
            pairs = [made.pairs[place[i]] if i in place else pairs[row] for row, i in enumerate(examples.ids)]
        there = replace(examples, language=translator.target, texts=texts, pairs=pairs)
        return predict_examples(network, tokenizer, task, there, **how)
    own = cast("Sequence[Spans]", examples.spans)
    texts, spans, links = translate_linked(examples, translator, aligner=aligner, cache=cache)
    there = replace(examples, language=translator.target, texts=texts, spans=spans)
    found = predict_examples(network, tokenizer, task, there, **how)
    for row, prediction in enumerate(found):
        back = [(j, i) for i, j in links[row]]
        tags = cast("Sequence[str]", prediction["prediction"])
        prediction["prediction"] = project(tags, back, len(own[row]))[0]
    return found


def pseudo_label(model: object, examples: Examples, watch: Watch | None = None) -> Examples:
    """Return examples with a model's predictions as their labels; labels they had are not read."""
    if examples.kind == "qa":
        raise BadInput(f"{examples.name or 'The data'}: answers are not pseudo-labelled here.")
    predictions = predict(model, examples.unlabelled(), watch=watch)
    return replace(examples, labels=[cast("Label", prediction["prediction"]) for prediction in predictions])


def translate_train(
    teacher: object,
    text: Examples,
    *,
    target: str,
    translator: str,
    model: str | Path,
    out: str | Path,
    method: str = "finetune",
    aligner: str | Path = "statistical",
    cache: str | Path | None = None,
    watch: Watch | None = None,
    **options: Any,  # noqa: ANN401  those of `fit`
) -> Run:
    """Train a target-language model on translated source text with the source model's predictions as labels.

    Args:
        teacher: The source-language model.
        text: Source-language examples; labels are not read.
        target: Language to train in.
        translator: Name of the translator (see `open_translator`).
        model: Encoder to train.
        out: Run folder.
        method: Method of `fit`.
        aligner: Tagging: who links words.
        cache: Folder to keep translations in.
        watch: Who is told about progress.
        options: Further arguments and settings of `fit`.
    """
    watch = watch or Silent()
    labelled = pseudo_label(teacher, text, watch)
    there = open_translator(translator, text.language, target)
    watch.start(there.name, len(text))
    data = translate_examples(
        labelled, there, aligner=aligner, cache=cache, progress=lambda done, _: watch.advance(done)
    )
    watch.finish(f"{len(data):,} texts")
    for reason, count in data.skipped.items():
        watch.say(f"left out  {count:,} translations: {reason}")
    # A class that the teacher never chose on this text is a class all the same.
    labels = model_labels(_folder(teacher))
    return fit(method, model=model, data=data, labels=labels, source=target, out=out, watch=watch, **options)


def _folder(model: object) -> str:
    """Return the folder or name of a model, or of the first seed of a run."""
    runs = getattr(model, "folders", None) or find_runs(str(model))
    return str(runs[0].model if runs else model)
