"""The data of an evaluation: a set by language, and the name of the results on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crosslift.data import catalog, check_labels, cross, languages_of, load, mixed
from crosslift.data.examples import Examples
from crosslift.data.files import COMPRESSED
from crosslift.errors import BadInput, nearest
from crosslift.tasks import Task

MIXES = ("sentences", "question", "context")


def evaluation_name(
    data: str | Path | Mapping[str, Examples], split: str = "test", *, mix: str | None = None, source: str = "en"
) -> str:
    """Return the name under which `results.json` holds the scores on some data.

    It is `xnli/test`, and of a file `FOLDER/STEM`: most are called test or dev, and several may be scored for one run.
    """
    if isinstance(data, Mapping):
        names = {examples.name for examples in data.values()}
        name = names.pop() if len(names) == 1 else "data"
    elif catalog.is_known(str(data)):
        name = f"{catalog.find(str(data)).name}/{split}"
    else:
        file = Path(data).resolve()
        stem = (Path(file.stem) if file.suffix.lower() in COMPRESSED else file).stem
        folders = (_without_language(folder.name) for folder in file.parents)
        name = "/".join([next(filter(None, folders), ""), _without_language(stem) or "data"]).lstrip("/")
    return f"{name}+{source}-{mix}" if mix else name


def _without_language(name: str) -> str:
    return name.replace("{lang}", "").strip("-_.")


class EvaluationSets:
    """The evaluation data by language."""

    def __init__(
        self,
        data: str | Path | Mapping[str, Examples],
        split: str,
        limit: int | None,
        reading: Mapping[str, object],
        mix: str | None,
        source: str,
    ) -> None:
        if mix is not None and mix not in MIXES:
            raise BadInput(f'--mix is one of {", ".join(MIXES)}, not "{mix}".{nearest(mix, MIXES)}')
        self.data, self.split, self.limit, self.reading = data, split, limit, reading
        self.mix, self.source = mix, source
        self.known = not isinstance(data, Mapping) and catalog.is_known(str(data))
        self.name = evaluation_name(data, split, mix=mix, source=source)

    def same(self, scored: object) -> bool:
        """Whether these are the data that a score says it is on."""
        if isinstance(self.data, Mapping) or scored is None:
            return isinstance(self.data, Mapping) and scored is None
        return str(self.data) == scored or Path(str(self.data)).resolve() == Path(str(scored)).resolve()

    def languages(self) -> list[str]:
        """Return the languages that there are."""
        return list(self.data) if isinstance(self.data, Mapping) else languages_of(self.data, self.split)

    def load(self, language: str, task: Task, keep_unknown: bool) -> Examples:
        """Load one language and check that the task can be scored on it."""
        examples = self._examples(language, task, keep_unknown)
        check_kind(examples, task)
        if self.mix and language != self.source:
            examples = self._mixed(examples, self._examples(self.source, task, keep_unknown))
        if examples.labels is None:
            raise BadInput(f"{examples.name} ({language}) has no labels to score against.")
        if not keep_unknown:
            # Labels that the set's target languages have though its training data never had them count as errors.
            unseen = catalog.find(str(self.data)).unseen if self.known else ()
            check_labels([examples], task.labels or None, allow=unseen)
        return examples.take(self.limit) if self.limit else examples

    def _mixed(self, target: Examples, source: Examples) -> Examples:
        if self.mix == "sentences":
            return mixed(target, source)
        return cross(source, target) if self.mix == "question" else cross(target, source)

    def _examples(self, language: str, task: Task, keep_unknown: bool) -> Examples:
        if isinstance(self.data, Mapping):
            if language not in self.data:
                raise BadInput(f'No data for "{language}"; there is {", ".join(self.data)}.')
            return self.data[language]
        name = str(self.data).replace("{lang}", language)
        options: dict[str, object] = {"kind": task.kind, **self.reading}
        if not self.known and not keep_unknown:
            options["allowed_labels"] = _allowed(task)  # so that an unknown label is named with its line
        return load(name, language=language, split=self.split, **options)  # type: ignore[arg-type]


def _allowed(task: Task) -> list[str]:
    """Return the labels a file may have; tags also begun or continued where training data never did."""
    spans = (label for label in task.labels if label[:2] in ("B-", "I-"))
    other = [f"{'I' if label[0] == 'B' else 'B'}-{label[2:]}" for label in spans] if task.kind == "tagging" else []
    return list(dict.fromkeys([*task.labels, *other]))


def check_kind(examples: Examples, task: Task) -> None:
    """Refuse examples of another kind than the task's."""
    if examples.kind != task.kind:
        raise BadInput(f"{examples.name or 'The data'} is {examples.kind} data, but the model does {task.kind}.")
