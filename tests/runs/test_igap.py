"""Gated evaluation equals evaluating everything; one call measures, compares and resumes."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

import crosslift.runs.igap as module
from crosslift.data.examples import Examples, concatenate
from crosslift.data.storage import read_json, write_json
from crosslift.errors import BadInput
from crosslift.measure.igap import Band, Checkpoint, Errors, igaps, mean_igap
from crosslift.measure.igap_result import IgapResult
from crosslift.models.load import load_model, load_tokenizer
from crosslift.runs.evaluate import predict_examples
from crosslift.runs.folder import RunFolder
from crosslift.runs.gated import Measured, Passes
from crosslift.runs.igap import igap, method_spec
from crosslift.runs.progress import Silent
from crosslift.runs.rank import gold_scores, rank
from crosslift.tasks import task_for
from tests.tiny_data import classification, tagging
from tests.tiny_models import save_encoder

WORDS = {"house": "Haus", "tree": "Baum", "river": "Fluss", "stone": "Stein", "bird": "Vogel", "the": "das"}
COLOURS = {"red": "rot", "green": "grün", "blue": "blau"}
FAST = {"learning_rate": 5e-3, "batch_size": 8, "max_tokens": 2048}


def translated(examples: Examples, language: str, words: dict[str, str]) -> Examples:
    texts = []
    for text in examples.texts:
        for old, new in words.items():
            text = text.replace(old, new)
        texts.append(text)
    return replace(examples, language=language, texts=texts)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("igap") / "tiny")


@pytest.fixture(scope="module")
def sets():
    english = classification(24)
    return {
        "en": english,
        "de": translated(english, "de", WORDS),
        "fr": translated(english, "fr", {**WORDS, "today": "aujourd'hui", "red": "rot"}),
        "xx": translated(english, "xx", {**WORDS, **COLOURS}),
    }


def bands_of(result):
    return {
        name: {
            band: {target: score.to_dict() for target, score in igaps(errors, band).items()} for band in result.bands
        }
        for name, errors in result.systems.items()
    }


def test_gated_evaluation_gives_the_numbers_of_the_exhaustive_one_for_less(encoder, sets):
    settings = {"seeds": [1], "errors": [0.3, 0.4, 0.5, 0.6], "epsilon": 0.1, "every": 1, "epochs": 5, **FAST}
    gated, whole = (igap(encoder, sets, whole=whole, candidates=None, **settings) for whole in (False, True))
    assert bands_of(gated) == bands_of(whole)
    defined = [score.defined for band in gated.bands for score in igaps(gated.systems["tiny"], band).values()]
    assert any(defined)
    assert gated.texts < whole.texts
    assert [end.parallel for end in gated.systems["tiny"].ends] == [end.parallel for end in whole.systems["tiny"].ends]


@pytest.mark.parametrize("kind", ["classification", "tagging"])
@pytest.mark.parametrize("candidates", [None, 2])
@pytest.mark.parametrize("held_out", [False, True])
def test_gated_numbers_are_the_exhaustive_ones_with_rates_candidates_tags_and_held_out_data(
    kind, candidates, held_out, encoder, monkeypatch
):
    monkeypatch.setattr("crosslift.runs.gated.SMALLEST", 3)  # so that few items are given up before the last
    english = classification(20) if kind == "classification" else tagging(20)
    given = {"en": english, "de": translated(english, "de", WORDS), "xx": translated(english, "xx", COLOURS)}
    if kind == "tagging":  # the same words with other letters, so that all spans fit
        given |= {x: replace(english, language=x, texts=[t.swapcase() for t in english.texts]) for x in ("de", "xx")}
    settings = {name: value for name, value in FAST.items() if name != "learning_rate"}
    settings |= {"seeds": [1], "rates": [5e-3, 1e-3], "every": 2, "epochs": 4, "candidates": candidates}
    settings |= {"errors": [0.0, 0.5, 0.3], "epsilon": 0.4, "held_out": given if held_out else None}
    gated, whole = (igap(encoder, given, whole=whole, **settings) for whole in (False, True))
    for band in gated.bands:
        ours, theirs = gated.of("tiny", band), whole.of("tiny", band)
        assert [x.by_seed for x in ours.values()] == [x.by_seed for x in theirs.values()]
        assert [x.used for x in ours.values()] == [x.used for x in theirs.values()]
        if candidates is None:
            assert ours == theirs
    assert any(score.defined for band in gated.bands for score in gated.of("tiny", band).values())
    assert gated.texts < whole.texts
    if held_out or candidates is None:  # else the gated run ends when its bands are full
        assert gated.systems["tiny"].ends == whole.systems["tiny"].ends


def test_tagging_counts_sentences_with_any_wrong_word_as_decoding_would(tmp_path):
    encoder = save_encoder(tmp_path / "tiny")
    # Long texts are cut into several rows, and words without a space between them share pieces.
    examples = tagging(30, seed=3)
    task = task_for(examples, max_length=20)
    tokenizer, model = load_tokenizer(encoder), load_model(encoder, task, head_seed=4)
    measured = Measured(examples, task, tokenizer)
    items = np.array([5, 0, 29, 7, 8, 12, 13])
    predictions = predict_examples(model, tokenizer, task, examples)
    right = [list(p["prediction"]) == list(tags) for p, tags in zip(predictions, examples.labels, strict=True)]
    assert measured.run(model.eval(), items, Passes())[0].tolist() == [not right[i] for i in items]
    assert len(measured.encoded.example_of) > len(examples)
    # With what the model says as gold, nothing is wrong; with one tag changed, one sentence is.
    said = [list(p["prediction"]) for p in predictions]
    other = "O" if said[7][2] != "O" else "B-LOC"
    changed = [*said[:7], [*said[7][:2], other, *said[7][3:]], *said[8:]]
    for labels, expected in ((said, [False] * 7), (changed, [i == 7 for i in items])):
        again = Measured(replace(examples, labels=labels), task, tokenizer)
        assert again.run(model, items, Passes())[0].tolist() == expected


def test_tagging_is_measured_end_to_end(encoder):
    english = tagging(16)
    sets = {"en": english, "de": replace(english, language="de")}
    result = igap(encoder, sets, seeds=[1], errors=[0.0], epsilon=1.1, every=4, epochs=4, **FAST)
    found = mean_igap(result.of("tiny"))
    assert found.by_seed == {1: 0.0}  # the translation is the sentence itself


def test_held_out_data_gives_decomposition_scores_and_gap(encoder, sets):
    apart = {language: examples.select(range(10)) for language, examples in sets.items()}
    result = igap(encoder, sets, held_out=apart, seeds=[1, 2], every=3, epochs=1, targets=["de", "xx"], **FAST)
    errors = result.systems["tiny"]
    parts = errors.decomposition("xx")
    assert parts.error == pytest.approx(parts.interlingual + parts.intralingual + parts.training)
    assert result.matrix("score").values[0, 0] == pytest.approx(100 - errors.final("en").mean)
    assert "transfer gap" in str(result)


def test_held_out_data_that_is_trained_on_is_said(encoder, sets, monkeypatch):
    class Listener(Silent):
        said: ClassVar[list[str]] = []

        def say(self, text):
            self.said.append(text)

    monkeypatch.setattr(module, "train", lambda *_, **__: 1 / 0)
    new = classification(60, seed=9)
    new = new.select([row for row, text in enumerate(new.texts) if text not in set(sets["en"].texts)])
    apart = {"en": concatenate([new.take(5), sets["en"].select(range(10))]), "de": sets["de"]}
    for held_out in (apart, {**apart, "en": new}):
        with pytest.raises(ZeroDivisionError):
            igap(encoder, sets, held_out=held_out, targets=["de"], watch=Listener())
    assert Listener.said == ["10 of 15 held-out examples in en are among those trained on."]


def test_models_methods_and_sources_are_compared_in_one_call(encoder, sets, tmp_path):
    result = igap(
        encoder, sets, sources=["en", "de"], targets=["en", "de", "fr"], methods=["finetune", "gaussian:sigma=0.01"],
        seeds=[1], errors=[0.0], epsilon=1.1, every=3, epochs=3, **FAST,
    )  # fmt: skip
    assert list(result.systems) == [
        "finetune from en", "finetune from de", "gaussian:sigma=0.01 from en", "gaussian:sigma=0.01 from de",
    ]  # fmt: skip
    band = result.bands[0]
    used = {name: set(next(iter(result.of(name).values())).used.values()) for name in result.systems}
    assert set.union(*used.values()) == {result.candidates(band)}
    with pytest.raises(BadInput, match="share a source"):
        result.matrix()


def test_random_labels_need_no_labels_and_are_drawn_anew_for_each_seed(encoder, sets):
    plain = {language: replace(examples.unlabelled(), kind="text") for language, examples in sets.items()}
    result = igap(
        encoder, plain, labels="random", limit=16, seeds=[1, 2], errors=[0.0], epsilon=1.1, every=4, epochs=2,
        candidates=1, **FAST,
    )  # fmt: skip
    assert result.systems["tiny"].items == 16
    with pytest.raises(BadInput, match="has no labels"):
        igap(encoder, plain, seeds=[1])


@pytest.mark.parametrize(("labels", "noise"), [("random", 0.0), ("gold", 0.5)])
def test_each_seed_draws_labels_of_its_own_and_translations_share_them(labels, noise, encoder, sets):
    two = {language: sets[language] for language in ("en", "xx")}
    some = two["en"].unlabelled() if labels == "random" else two["en"]
    task = task_for(replace(some, kind="classification"), ("0", "1") if labels == "random" else None)
    tokenised = module._Tokenised(encoder, task, two, {}, labels)
    drawn = {}
    for seed in (1, 2):
        examples, measured = tokenised.labelled(seed, noise)
        drawn[seed] = examples["en"].labels
        assert drawn[seed] == examples["xx"].labels
        assert all(measured[language].examples.labels == drawn[seed] for language in two)
    assert drawn[1] != drawn[2]


def test_noise_and_extra_rows_change_training_and_not_the_measured_set(encoder, sets):
    settings = {"seeds": [1], "errors": [0.0], "epsilon": 1.1, "every": 3, "epochs": 1, **FAST}
    plain, noisy, more = (
        igap(encoder, sets, **settings, **change).systems["tiny"]
        for change in ({}, {"noise": 1.0}, {"extra": classification(24, seed=9)})
    )
    assert plain.items == noisy.items == more.items == 24
    assert len(more.checkpoints) == 2 * len(plain.checkpoints)
    assert noisy.checkpoints != plain.checkpoints


def test_a_call_that_was_stopped_goes_on_and_a_finished_run_is_not_run_again(encoder, sets, tmp_path, monkeypatch):
    settings = {"errors": [0.0], "epsilon": 0.5, "every": 4, "epochs": 2, **FAST}
    first = igap(encoder, sets, seeds=[1], out=tmp_path / "out", **settings)
    (file,) = (tmp_path / "out").iterdir()
    written = file.stat().st_mtime_ns
    both = igap(encoder, sets, seeds=[1, 2], out=tmp_path / "out", **settings)
    assert file.stat().st_mtime_ns == written and len(list((tmp_path / "out").iterdir())) == 2
    assert (
        both.systems["tiny"].checkpoints[: len(first.systems["tiny"].checkpoints)] == first.systems["tiny"].checkpoints
    )

    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(module, "train", never)
    assert igap(encoder, sets, seeds=[1, 2], out=tmp_path / "out", **settings).systems == both.systems
    with pytest.raises(AssertionError, match="trained again"):
        igap(encoder, sets, seeds=[1], out=tmp_path / "out", **{**settings, "epochs": 3})


def test_a_call_that_was_killed_while_it_wrote_a_run_ends_as_if_nothing_had_happened(
    encoder, sets, tmp_path, monkeypatch
):
    settings = {"seeds": [1, 2], "errors": [0.0], "epsilon": 1.1, "every": 3, "epochs": 1, "targets": ["de"], **FAST}

    def killed(path, content):
        path.with_name(f".{path.name}.draft").write_text(str(content)[:50])
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(module, "write_json", lambda *a: killed(*a) if "seed-2" in a[0].name else write_json(*a))
        with pytest.raises(KeyboardInterrupt):
            igap(encoder, sets, out=tmp_path, **settings)
    assert igap(encoder, sets, out=tmp_path, **settings).systems == igap(encoder, sets, **settings).systems
    assert sorted(file.name.split(".")[3] for file in tmp_path.glob("*.json")) == ["seed-1", "seed-2"]


def test_a_run_that_was_kept_is_not_taken_for_one_of_other_settings(encoder, sets, tmp_path, monkeypatch):
    settings = {"seeds": [1], "errors": [0.0], "epsilon": 1.1, "every": 4, "epochs": 1, "out": tmp_path, **FAST}
    igap(encoder, sets, **settings)

    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(module, "train", never)
    igap(encoder, sets, **settings)
    apart = {language: examples.select(range(4)) for language, examples in sets.items()}
    for change in (
        {"noise": 0.5}, {"candidates": 3}, {"labels": "random"}, {"errors": [0.5]}, {"epsilon": 1.2}, {"every": 2},
        {"extra": classification(4)}, {"learning_rate": 1e-3}, {"limit": 20}, {"held_out": apart}, {"whole": True},
        {"methods": "gaussian"}, {"targets": ["de"]}, {"sources": "de"}, {"max_length": 16},
    ):  # fmt: skip
        with pytest.raises(AssertionError, match="trained again"):
            igap(encoder, sets, **{**settings, **change})


def test_what_is_named_twice_is_run_and_counted_once(encoder, sets):
    settings = {"errors": [0.0], "epsilon": 1.1, "every": 3, "epochs": 1, "targets": ["de"], **FAST}
    del settings["learning_rate"]
    once = igap(encoder, sets, seeds=[1], rates=[5e-3], **settings)
    twice = igap(
        [encoder, str(encoder)], sets, sources=["en", "en"], methods=["finetune", " finetune"], seeds=[1, 1],
        rates=[5e-3, 5e-3], **settings,
    )  # fmt: skip
    assert twice.systems == once.systems


def test_all_sources_are_those_of_the_targets_or_of_the_data(encoder, sets):
    settings = {"seeds": [1], "errors": [0.0], "epsilon": 1.1, "every": 9, "epochs": 1, **FAST}
    assert igap(encoder, sets, sources=None, targets=["de", "xx"], **settings).matrix().sources == ("de", "xx")
    assert igap(encoder, sets, sources=None, **settings).matrix().sources == tuple(sets)


def test_runs_made_one_source_at_a_time_are_found_by_a_call_for_all_of_them(encoder, sets, tmp_path, monkeypatch):
    settings = {"seeds": [1], "errors": [0.0], "epsilon": 0.5, "every": 4, "epochs": 2, "targets": ["en", "de"], **FAST}
    alone = [igap(encoder, sets, sources=x, out=tmp_path, **settings).systems["tiny"] for x in ("en", "de")]

    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(module, "train", never)
    both = igap(encoder, sets, sources=["en", "de"], out=tmp_path, **settings)
    assert [errors.checkpoints for errors in both.systems.values()] == [errors.checkpoints for errors in alone]


def test_runs_are_found_whatever_the_order_of_the_targets(encoder, sets, tmp_path):
    settings = {"errors": [0.0], "epsilon": 1.1, "every": 3, "epochs": 1, "out": tmp_path, **FAST}
    igap(encoder, sets, seeds=[1], targets=["de", "xx"], **settings)
    both = igap(encoder, sets, seeds=[1, 2], targets=["xx", "de"], **settings)
    assert len(list(tmp_path.iterdir())) == 2
    assert both.systems["tiny"].targets == ("xx", "de") and both.systems["tiny"].seeds == [1, 2]


def test_sources_are_compared_on_the_same_targets(encoder, sets, tmp_path):
    settings = {"seeds": [1], "errors": [0.0], "epsilon": 1.1, "every": 3, "epochs": 1, "out": tmp_path, **FAST}
    result = igap(encoder, sets, sources=["en", "de"], targets=["fr", "xx"], **settings)
    assert [errors.targets for errors in result.systems.values()] == [("fr", "xx")] * 2
    assert result.matrix().targets == ("en", "de", "fr", "xx")
    # Items and runs are those of all four languages, but not the targets: these are not taken for each other.
    more = igap(encoder, sets, targets=["de", "fr", "xx"], **settings)
    assert more.systems["tiny"].targets == ("de", "fr", "xx") and len(list(tmp_path.iterdir())) == 3


def test_languages_are_ranked_with_intervals_and_similarities(encoder, sets):
    found = rank(
        encoder, ["de", "fr", "xx"], parallel=sets, sentences=16, seeds=[1, 2], epsilon=0.6, every=2, candidates=2,
        epochs=10, batch_size=8, rates=[5e-3],
    )  # fmt: skip
    assert {row.language for row in found.rows} == {"de", "fr", "xx"}
    gaps = [row.gap for row in found.rows]
    assert gaps == sorted(gaps)
    assert all(row.low <= row.gap <= row.high and 1 <= row.first <= row.last <= 3 for row in found.rows)
    assert all(set(row.similarities) == {"l2", "dot", "cosine"} for row in found.rows)
    assert set(found.checkpoints.values()) == {2}


def test_a_ranking_without_a_learnt_source_says_what_to_do(encoder, sets):
    with pytest.raises(BadInput, match=r"No checkpoint of .* has a training error from 0 to 0\.01"):
        rank(encoder, ["de"], parallel=sets, seeds=[1], epochs=0.2, every=1, rates=[1e-6], batch_size=8)


def test_a_ranking_says_how_many_seeds_have_learnt_their_labels(encoder, sets, monkeypatch):
    rows = tuple(
        Checkpoint(seed, 1e-3, 5, wrong, {"de": 9}, {"en": [], "de": list(range(9))})
        for seed, wrong in ((1, 0), (2, None), (3, 0))
    )
    found = IgapResult({"tiny": Errors("tiny", "en", ("de",), 24, rows)}, (Band(0.0, 0.01),))
    monkeypatch.setattr("crosslift.runs.rank.igap", lambda *_, **__: found)
    ranking = rank(encoder, ["de"], parallel=sets)
    assert "random labels on 24 sentences, 2 of 3 seeds," in str(ranking)
    assert ranking.checkpoints == {1: 1, 2: 0, 3: 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [({"sentences": 0}, "--sentences must be at least 1, not 0"), ({"layer": 99}, "there is no layer 99")],
)
def test_a_ranking_that_cannot_be_shown_is_refused_before_anything_is_trained(change, said, encoder, sets, monkeypatch):
    monkeypatch.setattr("crosslift.runs.rank.igap", lambda *_, **__: pytest.fail("something was trained"))
    with pytest.raises(BadInput, match=said):
        rank(encoder, ["de"], parallel=sets, **change)


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ("ear", ("ear", {})),
        ("xtune", ("robust", {"variant": "xtune"})),
        ("ear:alpha=1,kl-unit=element", ("ear", {"alpha": "1", "kl_unit": "element"})),
    ],
)
def test_methods_are_named_with_their_settings(spec, read):
    assert method_spec(spec) == read


@pytest.mark.parametrize(("spec", "said"), [("gausian", 'Did you mean "gaussian"'), ("ear:alpha", "name=value")])
def test_methods_that_cannot_be_read_are_refused(spec, said):
    with pytest.raises(BadInput, match=said):
        method_spec(spec)


def test_a_gate_stops_looking_when_every_band_is_full(encoder, sets):
    result = igap(encoder, sets, seeds=[1], errors=[0.0], epsilon=1.1, every=1, epochs=5, candidates=3, **FAST)
    assert len(result.systems["tiny"].checkpoints) == 3
    assert result.systems["tiny"].ends[0].step == 3


def test_an_item_without_labels_cannot_be_measured(encoder, sets):
    task = task_for(sets["en"])
    with pytest.raises(BadInput, match="no labels to measure errors by"):
        Measured(sets["en"].unlabelled(), task, load_tokenizer(encoder))


def test_other_weights_under_the_same_name_are_measured_anew(sets, tmp_path):
    settings = {"seeds": [1], "errors": [0.0], "epsilon": 1.1, "every": 1, "candidates": 1, "out": tmp_path / "out"}
    for seed in (0, 1):
        save_encoder(tmp_path / "tiny", seed=seed)
        igap(tmp_path / "tiny", sets, **settings, **FAST)
    assert len(list((tmp_path / "out").iterdir())) == 2
    config = tmp_path / "tiny" / "config.json"
    content = read_json(config)
    write_json(config, {**content, "hidden_dropout_prob": 0.5})  # the same weights are trained otherwise
    igap(tmp_path / "tiny", sets, **settings, **FAST)
    assert len(list((tmp_path / "out").iterdir())) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methods": "finetune:alpha=1"}, 'There is no setting "alpha"'),
        ({"labels": "coin"}, "gold or random"),
        ({"every": 0}, "--every must be at least 1"),
        ({"limit": -3}, "--limit must be at least 1, not -3"),
        ({"labels": "random", "extra": classification(4)}, "go without them"),
        ({"sources": "yo"}, 'No data for "yo"'),
        ({"sources": ["en", "de"]}, 'No target is left for the source "de"'),
        ({"rates": [1e-3], "learning_rate": 1e-3}, "either rates, or learning_rate"),
        ({"rates": [1e-3, 0]}, "--learning-rate must be above 0, not 0"),
        ({"seeds": []}, "one seed or more"),
        ({"labels": "random", "held_out": "test"}, "foretell random labels of held-out data"),
        ({"labels": "random", "noise": 0.5}, "noise already"),
        ({"noise": 1.5}, "between 0 and 1"),
        ({"sources": None, "extra": classification(4)}, "in one language"),
        ({"errors": [0, 0.02], "epsilon": 0.01}, "No number of wrong items, of 24, is a training error from 0.02 to"),
        ({"max_length": 2}, "max_length 2 leaves no room for text"),
        ({"max_length": -1}, "max_length -1 leaves no room for text"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_trained(change, said, encoder, sets, monkeypatch):
    monkeypatch.setattr(module, "train", lambda *_, **__: pytest.fail("something was trained"))
    with pytest.raises(BadInput, match=said):
        igap(encoder, sets, **{"targets": ["de"], **change})


def test_a_model_that_is_not_there_is_refused_before_the_others_are_trained(encoder, sets, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "train", lambda *_, **__: pytest.fail("something was trained"))
    with pytest.raises(BadInput, match="nowhere"):
        igap([encoder, tmp_path / "nowhere"], sets, targets=["de"])


def test_noise_of_tags_is_refused_before_anything_is_trained(encoder, monkeypatch):
    monkeypatch.setattr(module, "train", lambda *_, **__: pytest.fail("something was trained"))
    english = tagging(16)
    with pytest.raises(BadInput, match="Label noise is for classification"):
        igap(encoder, {"en": english, "de": replace(english, language="de")}, noise=0.5)


def evaluated(folder, *seeds):
    for number, scores in enumerate(seeds, 1):
        run = RunFolder.start(folder / f"seed-{number}", {"method": "finetune"})
        cells = {x: {"scores": {"accuracy": {"metric": "accuracy", "value": v}}} for x, v in scores.items()}
        write_json(run.results_file, {"set/test": cells})
    return folder


def test_gold_scores_are_those_of_a_run_averaged_over_its_seeds(tmp_path):
    run = evaluated(tmp_path / "run", {"de": 80.0, "sw": 50.0, "xx": 1.0}, {"sw": 60.0, "de": 70.0})
    assert gold_scores(run) == gold_scores(run, "set/test") == {"de": 75.0, "sw": 55.0}
    with pytest.raises(BadInput, match="no scores on"):
        gold_scores(run, "set/tets")
    with pytest.raises(BadInput, match="is not a run folder"):
        gold_scores(tmp_path)
    for number in (1, 2):
        file = RunFolder(run / f"seed-{number}").results_file
        write_json(file, {**read_json(file), "other/test": {}})
    with pytest.raises(BadInput, match="It has set/test, other/test"):
        gold_scores(run)
