"""The public sets that crosslift knows: one declaration each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from crosslift.data import set_readers as readers
from crosslift.data.conll import read_conll
from crosslift.data.draft import Reading
from crosslift.data.examples import Examples, Kind
from crosslift.data.squad import read_squad


@dataclass(frozen=True)
class Hub:
    """The counterpart of a set on the Hugging Face hub.

    Attributes:
        id: `owner/name`.
        splits: Our split -> theirs.
        config: Configuration, with `{code}` for the language; empty = none.
        columns: Our column -> theirs.
        id_prefix: Keep the rows whose id begins so (`{code}` for the language).
        revision: Commit; `None` = the newest.
    """

    id: str
    splits: Mapping[str, str]
    config: str = "{code}"
    columns: Mapping[str, str | int] = field(default_factory=dict)
    id_prefix: str = ""
    revision: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A set of the catalog.

    Attributes:
        name: What users call it.
        kind: Kind of task; "alignment" for gold word alignments.
        languages: ISO code -> the code in the set's file names.
        files: Split -> file below the data folder, with `{code}`; `.xz` and `.gz` are tried too.
        read: Reads one file.
        licence: Terms of use, in short.
        source: Where it comes from: citation in short.
        metric: Main score.
        labels: Classes or tags in fixed order; empty = as found in the training data.
        columns: Our column -> the file's.
        parallel: Whether the languages translate one another row by row.
        hub: Counterpart on the hub.
        finish: Adds what the files imply, such as groups.
        placeholders: Texts that mean "no sentence".
        unseen: Labels that occur in target languages though never in training data.
    """

    name: str
    kind: Kind | Literal["alignment"]
    languages: Mapping[str, str]
    files: Mapping[str, str]
    read: Callable[[Path, Reading], Examples] | None
    licence: str
    source: str
    metric: str = ""
    labels: tuple[str, ...] = ()
    columns: Mapping[str, str | int] = field(default_factory=dict)
    parallel: bool = True
    hub: Hub | None = None
    finish: Callable[[Examples], Examples] | None = None
    placeholders: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


def _codes(text: str) -> dict[str, str]:
    return {code.partition("=")[0]: code.partition("=")[2] or code for code in text.split()}


_XSID = Dataset(
    name="xsid-intent",
    kind="classification",
    languages=_codes("ar da de de-ba de-st en gsw id it ja lt nl no sr tr zh"),
    files={
        "train": "xsid/{code}.train.conll",
        "projected-train": "xsid/{code}.projected-train.conll",
        "dev": "xsid/{code}.valid.conll",
        "test": "xsid/{code}.test.conll",
    },
    read=readers.read_xsid,
    licence="CC BY-SA 4.0",
    source="xSID 0.7 (van der Goot et al. 2021)",
    metric="accuracy",
    labels=(
        "AddToPlaylist",
        "BookRestaurant",
        "PlayMusic",
        "RateBook",
        "SearchCreativeWork",
        "SearchScreeningEvent",
        *(f"alarm/{name}" for name in ("cancel_alarm", "modify_alarm", "set_alarm", "show_alarms")),
        *(f"alarm/{name}" for name in ("snooze_alarm", "time_left_on_alarm")),
        *(f"reminder/{name}" for name in ("cancel_reminder", "set_reminder", "show_reminders")),
        *(f"weather/{name}" for name in ("checkSunrise", "checkSunset", "find")),
    ),
)

_MASSIVE_INTENTS = {
    "alarm": "query remove set",
    "audio": "volume_down volume_mute volume_other volume_up",
    "calendar": "query remove set",
    "cooking": "query recipe",
    "datetime": "convert query",
    "email": "addcontact query querycontact sendemail",
    "general": "greet joke quirky",
    "iot": "cleaning coffee hue_lightchange hue_lightdim hue_lightoff hue_lighton hue_lightup wemo_off wemo_on",
    "lists": "createoradd query remove",
    "music": "dislikeness likeness query settings",
    "news": "query",
    "play": "audiobook game music podcasts radio",
    "qa": "currency definition factoid maths stock",
    "recommendation": "events locations movies",
    "social": "post query",
    "takeaway": "order query",
    "transport": "query taxi ticket traffic",
    "weather": "query",
}
_MASSIVE_LOCALES = (
    "en-US de-DE es-ES fr-FR pt-PT it-IT nl-NL ru-RU el-GR tr-TR ar-SA fa-IR he-IL hi-IN ur-PK "
    "bn-BD ta-IN th-TH vi-VN id-ID zh-CN ja-JP ko-KR sw-KE am-ET fi-FI pl-PL ro-RO hu-HU da-DK"
)
_BY_ID: dict[str, str | int] = {"id": "id", "parallel_id": "id"}
_STANDARD_SPLITS = {"train": "train", "dev": "validation", "test": "test"}

_MASSIVE = Dataset(
    name="massive-intent",
    kind="classification",
    languages={locale.split("-")[0]: locale for locale in _MASSIVE_LOCALES.split()},
    files={split: f"massive/{{code}}.{split}.jsonl" for split in ("train", "train-1k", "dev", "test")},
    read=readers.read_objects,
    licence="CC BY 4.0",
    source="MASSIVE 1.1 (FitzGerald et al. 2023)",
    metric="accuracy",
    labels=tuple(f"{head}_{tail}" for head, tails in _MASSIVE_INTENTS.items() for tail in tails.split()),
    columns={**_BY_ID, "label": "intent"},
    hub=Hub("AmazonScience/massive", _STANDARD_SPLITS, columns={**_BY_ID, "label": "intent"}),
)

_SLOT_COLUMNS: dict[str, str | int] = {**_BY_ID, "text": "utt", "annotated": "annot_utt"}

_DEMO = Dataset(
    name="demo-intent",
    kind="classification",
    languages={},
    files={},
    read=None,
    licence="see crosslift's NOTICE",
    source="part of crosslift",
    metric="accuracy",
)

_SETS = (
    _XSID,
    replace(_XSID, name="xsid-slots", kind="tagging", metric="entity_f1", labels=(), unseen=("reference-part",)),
    Dataset(
        name="sib200",
        kind="classification",
        languages=_codes(
            "en=eng_Latn de=deu_Latn es=spa_Latn fr=fra_Latn pt=por_Latn it=ita_Latn nl=nld_Latn ru=rus_Cyrl "
            "uk=ukr_Cyrl bg=bul_Cyrl el=ell_Grek tr=tur_Latn ar=arb_Arab fa=pes_Arab he=heb_Hebr hi=hin_Deva "
            "ur=urd_Arab bn=ben_Beng ta=tam_Taml th=tha_Thai vi=vie_Latn id=ind_Latn zh=zho_Hans ja=jpn_Jpan "
            "ko=kor_Hang sw=swh_Latn am=amh_Ethi yo=yor_Latn fi=fin_Latn pl=pol_Latn cs=ces_Latn ro=ron_Latn "
            "hu=hun_Latn"
        ),
        files={split: f"sib200/{{code}}/{split}.tsv" for split in ("train", "dev", "test")},
        read=readers.read_quoted_tsv,
        licence="CC BY-SA 4.0",
        source="SIB-200 (Adelani et al. 2024)",
        metric="accuracy",
        labels=(
            "science/technology",
            "travel",
            "politics",
            "sports",
            "health",
            "entertainment",
            "geography",
        ),
        columns={"id": "index_id", "parallel_id": "index_id", "label": "category"},
        hub=Hub(
            "Davlan/sib200",
            _STANDARD_SPLITS,
            columns={"id": "index_id", "parallel_id": "index_id", "label": "category"},
        ),
    ),
    Dataset(
        name="xnli",
        kind="classification",
        languages=_codes("ar bg de el en es fr hi ru sw th tr ur vi zh"),
        files={"dev": "xnli/xnli.dev.tsv", "test": "xnli/xnli.test.tsv"},
        read=readers.read_tsv,
        licence="CC BY-NC 4.0",
        source="XNLI 1.0 (Conneau et al. 2018)",
        metric="accuracy",
        labels=("contradiction", "entailment", "neutral"),
        hub=Hub("facebook/xnli", _STANDARD_SPLITS),
        finish=readers.by_premise,
    ),
    Dataset(
        name="mnli",
        kind="classification",
        languages=_codes("en id"),
        files={
            "train": "mnli/{code}.train.tsv",
            "dev": "mnli/{code}.dev.tsv",
            "translated-train": "mnli/translated-{code}.tsv",
        },
        read=readers.read_mnli,
        licence="OANC licence; fiction parts CC BY and CC BY-SA",
        source="MultiNLI (Williams et al. 2018); Indonesian: IndoNLI (Mahendra et al. 2021)",
        metric="accuracy",
        labels=("contradiction", "entailment", "neutral"),
        parallel=False,
        hub=Hub("nyu-mll/multi_nli", {"train": "train", "dev": "validation_matched"}, config=""),
        finish=readers.by_text,
    ),
    Dataset(
        name="panx",
        kind="tagging",
        languages=_codes("ar bg bn de el en es et fa fi fr he hi hu id it ja ko nl pl pt ro ru sw ta tr uk ur vi zh"),
        files={split: f"panx/{{code}}.{split}.conll" for split in ("train", "dev", "test")},
        read=read_conll,
        licence="none stated; text from Wikipedia, CC BY-SA 3.0",
        source="PAN-X / WikiANN (Pan et al. 2017, Rahimi et al. 2019)",
        metric="entity_f1",
        labels=("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"),
        parallel=False,
        hub=Hub("unimelb-nlp/wikiann", _STANDARD_SPLITS, columns={"words": "tokens", "tags": "ner_tags"}),
    ),
    Dataset(
        name="xquad",
        kind="qa",
        languages=_codes("ar de el en es hi ro ru th tr vi zh"),
        files={"test": "xquad/xquad.{code}.json"},
        read=readers.read_parallel_squad,
        licence="CC BY-SA 4.0",
        source="XQuAD (Artetxe et al. 2020)",
        metric="answer_f1",
        hub=Hub("google/xquad", {"test": "validation"}, config="xquad.{code}", columns=_BY_ID),
        finish=readers.by_paragraph,
    ),
    Dataset(
        name="squad",
        kind="qa",
        languages=_codes("en"),
        files={"train": "xquad/squad.{code}.train.json"},
        read=read_squad,
        licence="CC BY-SA 4.0",
        source="SQuAD 1.1 (Rajpurkar et al. 2016), a sample of train",
        metric="answer_f1",
        parallel=False,
        hub=Hub("rajpurkar/squad", {"train": "train", "dev": "validation"}, config=""),
        finish=readers.by_paragraph,
    ),
    Dataset(
        name="mlqa",
        kind="qa",
        languages=_codes("ar de en es hi vi zh"),
        files={"dev": "mlqa/dev-context-{code}-question-{code}.json"}
        | {"test": "mlqa/test-context-{code}-question-{code}.json"},
        read=readers.read_parallel_squad,
        licence="CC BY-SA 3.0",
        source="MLQA (Lewis et al. 2020)",
        metric="answer_f1",
        hub=Hub(
            "facebook/mlqa",
            {"dev": "validation", "test": "test"},
            config="mlqa.{code}.{code}",
            columns=_BY_ID,
        ),
        finish=readers.by_paragraph,
    ),
    Dataset(
        name="tydiqa",
        kind="qa",
        languages=_codes(
            "ar=arabic bn=bengali en=english fi=finnish id=indonesian ko=korean ru=russian sw=swahili te=telugu"
        ),
        files={"train": "tydiqa/{code}.train.json", "dev": "tydiqa/{code}.dev.json"},
        read=read_squad,
        licence="Apache-2.0",
        source="TyDi QA, gold passages (Clark et al. 2020)",
        metric="answer_f1",
        parallel=False,
        hub=Hub(
            "google-research-datasets/tydiqa",
            {"train": "train", "dev": "validation"},
            config="secondary_task",
            id_prefix="{code}-",
        ),
        finish=readers.by_paragraph,
    ),
    Dataset(
        name="pawsx",
        kind="classification",
        languages=_codes("en de es fr ja ko zh"),
        files={
            "train": "pawsx/pawsx.{code}.train.tsv",
            "dev": "pawsx/pawsx.dev.tsv",
            "test": "pawsx/pawsx.test.tsv",
        },
        read=readers.read_tsv,
        licence="free for any purpose, credit to Google LLC",
        source="PAWS-X (Yang et al. 2019)",
        metric="accuracy",
        labels=("0", "1"),
        columns=_BY_ID,
        hub=Hub("google-research-datasets/paws-x", _STANDARD_SPLITS, columns=_BY_ID),
        placeholders=("NS",),
    ),
    Dataset(
        name="ntrex",
        kind="text",
        languages=_codes("ar bg bn de el en es fa fi fr hi id it ja ko nl pl pt ru sw th tr uk ur vi zh"),
        files={"test": "ntrex/ntrex.{code}.txt"},
        read=readers.read_ntrex,
        licence="CC BY-SA 4.0",
        source="NTREX-128 (Federmann et al. 2022)",
    ),
    Dataset(
        name="bitext",
        kind="bitext",
        languages=_codes(
            "am ar bg bn cs de el es fa fi fr he hi hu id it ja ko nl pl pt ro ru sw ta th tr uk ur vi yo zh"
        ),
        files={"train": "bitext/en-{code}.tsv"},
        read=readers.read_english_pairs,
        licence="by source: CC BY 2.0 FR, CC BY-NC 4.0, CC BY 4.0",
        source="English with others: Tatoeba Challenge, LAFAND-MT, MASSIVE train",
    ),
    Dataset(
        name="wordalign",
        kind="alignment",
        languages=_codes(
            "en-ar en-bg en-cs en-da en-es en-fr en-hi en-hu en-it en-ko en-nl en-pt en-ru en-sv ja-en ro-en zh-en"
        ),
        files={split: f"wordalign/{{code}}.{split}.tsv" for split in ("dev", "test", "pud-content")},
        read=None,
        licence="by pair; XL-WA pairs CC BY-NC-SA 4.0",
        source="gold word alignments (shared tasks of 2003 and 2005, XL-WA, KFTT, PUD and others)",
        metric="aer",
    ),
    _MASSIVE,
    replace(
        _MASSIVE,
        name="massive-scenario",
        labels=tuple(_MASSIVE_INTENTS),
        columns={**_BY_ID, "label": "scenario"},
        hub=Hub("AmazonScience/massive", _STANDARD_SPLITS, columns={**_BY_ID, "label": "scenario"}),
    ),
    replace(
        _MASSIVE,
        name="massive-slots",
        kind="tagging",
        metric="entity_f1",
        labels=(),
        columns=_SLOT_COLUMNS,
        hub=Hub("AmazonScience/massive", _STANDARD_SPLITS, columns=_SLOT_COLUMNS),
    ),
    _DEMO,
    replace(_DEMO, name="demo-slots", kind="tagging", metric="entity_f1"),
    replace(_DEMO, name="demo-nli"),
    replace(_DEMO, name="demo-qa", kind="qa", metric="answer_f1"),
)

CATALOG: dict[str, Dataset] = {dataset.name: dataset for dataset in _SETS}
"""Every set by name."""

ALIASES = {
    "massive": "massive-intent",
    "xsid": "xsid-intent",
    "paws-x": "pawsx",
    "wikiann": "panx",
    "sib-200": "sib200",
}
"""Other names that people use."""
