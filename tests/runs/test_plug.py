"""From text to a connector, and from a connector to task models in other languages."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

import crosslift as xl
from crosslift.data.word_corpus import write_word_corpus
from crosslift.data.word_pieces import word_pieces
from crosslift.errors import BadInput, Unfinished
from crosslift.methods.plug import Settings
from crosslift.models.connectors import load_connector, locate_connector
from crosslift.models.load import AUTO, load_tokenizer
from crosslift.runs import plug as plug_run
from crosslift.runs.plug import PlugExecution, PlugOptimisation, fit_connector, main
from crosslift.runs.plug_work import PlugWork, plug_work
from crosslift.runs.plugged import plug, reassemble
from crosslift.runs.progress import Lines
from crosslift.runs.replay import Replay
from tests.tiny import TEXTS
from tests.tiny_data import MAKERS
from tests.tiny_models import config_for, save_encoder, tokenizer_for

SMALL = {"steps": 4, "batch_size": 4, "length": 32, "evaluations": 2, "processes": 1, "max_tokens": 64}


def save_mono(folder, seed=3, **changes):
    tokenizer = tokenizer_for("roberta")
    config = config_for("roberta", tokenizer)
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(seed)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A multilingual and a monolingual model, and a text."""
    folder = tmp_path_factory.mktemp("plug")
    save_encoder(folder / "multi")
    save_mono(folder / "mono")
    (folder / "en.txt").write_text("\n".join(TEXTS[:3] * 40), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def connector(home):
    return fit_connector(
        multi=home / "multi", mono=home / "mono", text=home / "en.txt", out=home / "run", align=1.0, **SMALL
    )


@pytest.fixture(scope="module")
def task_models(home):
    made = {}
    for kind, make in MAKERS.items():
        run = xl.fit(
            "finetune", model=home / "mono", data=make(24, seed=1), dev=make(8, seed=2), out=home / kind,
            steps=3, batch_size=8, evaluations=1, learning_rate=1e-3,
        )  # fmt: skip
        made[kind] = run.model
    return made


def test_text_becomes_a_connector(connector, home):
    assert connector.connector == home / "run" / "connector"
    assert set(connector.held_out) == {"accuracy", "loss", "closeness"}
    facts = json.loads((connector.connector / "connector.json").read_text())
    assert (facts["encoder_layers"], facts["connector_layers"], facts["plug_layer"]) == (1, 1, 1)
    assert facts["setting"] == "English text alone"
    assert not (home / "run" / "text").exists()  # scratch goes when the run is done
    own = [name for name in load_file(connector.connector / "connector.safetensors") if not name.startswith("sample.")]
    assert {name.split(".")[0] for name in own} == {"layers"}


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_task_model_is_plugged_and_opens_with_transformers_alone(kind, connector, task_models, tmp_path):
    done = plug(task_models[kind], connector.path, tmp_path / "plugged")
    assert done.kind == kind
    assert done.layers == (1, 1, 1)
    model, tokenizer = AUTO[kind].from_pretrained(done.model).eval(), AutoTokenizer.from_pretrained(done.model)
    whole, same = reassemble(task_models[kind], connector.path)
    assert tokenizer.get_vocab() == same.get_vocab()
    inputs = same(TEXTS[3:6], return_tensors="pt", padding=True, return_token_type_ids=False)
    with torch.no_grad():
        native, expected = model(**inputs), whole(**inputs)
    for name in ("logits", "start_logits", "end_logits"):
        if name in expected:
            assert torch.allclose(native[name], expected[name], atol=1e-5)
    if kind != "qa":  # whose default length is more than a tiny model reads
        assert len(xl.predict(done.model, MAKERS[kind](4, seed=3))) == 4


def test_one_connector_serves_several_task_models_unchanged(connector, task_models, tmp_path):
    before = (connector.connector / "connector.safetensors").read_bytes()
    for kind, model in task_models.items():
        plug(model, connector.path, tmp_path / kind)
    assert (connector.connector / "connector.safetensors").read_bytes() == before


def refusal(call, *args, **named):
    with pytest.raises(BadInput) as error:
        call(*args, **named)
    return str(error.value)


def test_a_task_model_of_another_base_is_refused_with_the_reason(connector, home, tmp_path):
    data, dev = (MAKERS["classification"](24, seed=s) for s in (1, 2))

    def tuned(name):
        return xl.fit(
            "finetune", model=home / name, data=data, dev=dev, out=tmp_path / f"run-{name}",
            steps=1, batch_size=4, evaluations=1,
        ).model  # fmt: skip

    save_mono(home / "stranger", seed=99)
    save_mono(home / "wide", hidden_size=48)
    save_mono(home / "deep", num_hidden_layers=3)
    said = refusal(plug, tuned("stranger"), connector.path, tmp_path / "out")
    assert "does not descend from" in said
    assert "the weights of layer 2 have a cosine of" in said
    assert "crosslift fit plug --mono" in said
    assert "its layers 2–2 differ in shape (48, expected 32)" in refusal(
        plug, tuned("wide"), connector.path, tmp_path / "out"
    )
    assert "it has 3 layers, expected 2" in refusal(plug, tuned("deep"), connector.path, tmp_path / "out")
    assert '"xlm-roberta" model, not "roberta"' in refusal(plug, tuned("multi"), connector.path, tmp_path / "out")


def test_another_multilingual_model_is_refused(connector, task_models, home, tmp_path):
    save_encoder(home / "other", seed=5)
    said = refusal(plug, task_models["qa"], connector.path, tmp_path / "out", multi=home / "other")
    assert "is not the multilingual model that" in said
    assert "layer 1 differs" in said


def test_a_bare_encoder_and_a_wrong_connector_are_refused(connector, home, tmp_path):
    assert "without a task head" in refusal(plug, home / "mono", connector.path, tmp_path / "out")
    assert "is no connector" in refusal(locate_connector, home / "mono")


def test_a_multilingual_model_that_has_moved_is_asked_for(connector, task_models, home, tmp_path):
    moved = tmp_path / "connector"
    shutil.copytree(connector.connector, moved)
    facts = json.loads((moved / "connector.json").read_text())
    (moved / "connector.json").write_text(json.dumps({**facts, "multi": str(tmp_path / "gone")}))
    said = refusal(plug, task_models["qa"], moved, tmp_path / "out")
    assert f'trained with the multilingual model "{tmp_path / "gone"}", which is not here' in said
    assert "Say where that one is with --multi." in said
    assert plug(task_models["qa"], moved, tmp_path / "out", multi=home / "multi").kind == "qa"
    assert "--multi" not in refusal(plug, task_models["qa"], moved, tmp_path / "out", multi=tmp_path / "neither")


def test_a_damaged_connector_is_named(connector, task_models, tmp_path):
    for name, content in (("connector.safetensors", b"torn"), ("connector.json", b"{}")):
        damaged = tmp_path / name
        shutil.copytree(connector.connector, damaged)
        (damaged / name).write_bytes(content)
        assert f"The connector in {damaged} is damaged" in refusal(plug, task_models["qa"], damaged, tmp_path / "out")


def test_only_an_earlier_plugged_model_is_replaced(connector, task_models, home, tmp_path):
    task = task_models["classification"]
    plug(task, connector.path, tmp_path / "out")
    plug(task, connector.path, tmp_path / "out")  # the same command again
    for taken in (task, home, home / "en.txt"):
        assert "holds something that is no plugged model" in refusal(plug, task, connector.path, taken)
    assert (task / "model.safetensors").exists()


def test_models_without_weights_are_refused(connector, task_models, home, tmp_path):
    for name, model in (("task", task_models["qa"]), ("mono", home / "mono")):
        (tmp_path / name).mkdir()
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (tmp_path / name / file).write_bytes((model / file).read_bytes())
    assert "holds no weights" in refusal(plug, tmp_path / "task", connector.path, tmp_path / "out")
    given = {"multi": home / "multi", "mono": tmp_path / "mono", "text": home / "en.txt", "out": tmp_path / "run"}
    assert "holds no weights" in refusal(fit_connector, **given, **SMALL)


def test_a_wrong_plug_point_is_said_before_the_text_is_read(home, tmp_path):
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "nosuch.txt", "out": tmp_path / "run"}
    assert "--plug-layer is between 0 and 2" in refusal(fit_connector, **given, plug_layer=3, **SMALL)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"connector_layers": 0}, "nothing to learn"),
        ({"bitext": ["pairs.tsv"]}, "pairs.tsv, line 2"),
        ({"mono": "unmasked"}, "has no mask_token"),
    ],
    ids=["layers", "bitext", "tokenizer"],
)
def test_what_cannot_be_is_said_before_the_text_is_read(wrong, said, home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text("de\tA house.\tEin Haus.\nde\tA house.\n")
    AutoModelForMaskedLM.from_pretrained(home / "mono").save_pretrained("unmasked")
    tokenizer = load_tokenizer(home / "mono")
    tokenizer.mask_token = None
    tokenizer.save_pretrained("unmasked")
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "nosuch.txt", "out": tmp_path / "run"}
    assert said in refusal(fit_connector, **{**given, **SMALL, **wrong})


def test_a_file_by_itself_is_one_file(home, tmp_path):
    (tmp_path / "pairs.tsv").write_text(f"de\t{TEXTS[0]}\t{TEXTS[3]}\nde\t{TEXTS[1]}\t{TEXTS[4]}\n", encoding="utf-8")
    (tmp_path / "excluded.txt").write_text(f"{TEXTS[0]}\n", encoding="utf-8")
    files = {"bitext": str(tmp_path / "pairs.tsv"), "exclude": str(tmp_path / "excluded.txt")}
    run = fit_connector(
        multi=home / "multi", mono=home / "mono", text=str(home / "en.txt"), out=tmp_path / "run", **files, **SMALL
    )
    config = json.loads((run.path / "config.json").read_text())
    assert [config[name] for name in files] == [[file] for file in files.values()]


def test_a_run_that_is_done_is_not_run_twice(connector, home):
    again = fit_connector(
        multi=home / "multi", mono=home / "mono", text=home / "en.txt", out=home / "run", align=1.0, **SMALL
    )
    assert again.summary == connector.summary


def interrupted(monkeypatch, **given):
    """Train until the fourth step, and no further."""
    real = PlugWork.batches

    def stop_at_3(self, step, rank, world):
        if step == 3:
            raise Unfinished("stop")
        yield from real(self, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(PlugWork, "batches", stop_at_3)
        with pytest.raises(Unfinished):
            fit_connector(**given)


def listening():
    """Return a watch, and the list of what it is told."""
    watch, said = Lines(io.StringIO()), []
    watch.say = said.append
    return watch, said


@pytest.mark.parametrize("lines", [0.0, 0.5])
def test_an_interrupted_training_ends_with_the_same_connector(home, tmp_path, lines, monkeypatch):
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "en.txt", "align": 1.0, "lines": lines}
    given |= {**SMALL, "checkpoint_every": 2}
    whole = fit_connector(out=tmp_path / "whole", **given)
    interrupted(monkeypatch, out=tmp_path / "cut", **given)
    watch, said = listening()
    resumed = fit_connector(out=tmp_path / "cut", watch=watch, **given)
    a, b = (load_file(run.connector / "connector.safetensors") for run in (whole, resumed))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not any("has changed" in line for line in said)


def test_an_interrupted_run_whose_text_has_changed_says_so(home, tmp_path, monkeypatch):
    text = tmp_path / "en.txt"
    text.write_text((home / "en.txt").read_text(encoding="utf-8"), encoding="utf-8")
    given = {"multi": home / "multi", "mono": home / "mono", "text": text, **SMALL, "checkpoint_every": 2}
    interrupted(monkeypatch, out=tmp_path / "run", **given)
    text.write_text(text.read_text(encoding="utf-8") + "One more line.\n", encoding="utf-8")
    watch, said = listening()
    fit_connector(out=tmp_path / "run", watch=watch, **given)
    assert any("the text has changed since this run began" in line for line in said)


def test_micro_batches_change_nothing_but_rounding(home, tmp_path):
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "en.txt", "dropout": 0.0, "lines": 0.0}
    runs = [
        fit_connector(out=tmp_path / f"run-{size}", **{**given, **SMALL, "max_tokens": size}) for size in (32, 10_000)
    ]
    a, b = (load_file(run.connector / "connector.safetensors") for run in runs)
    assert all(torch.allclose(a[name].float(), b[name].float(), atol=2e-3) for name in a)


def work_and_held_out(home, tmp_path, batch_size, seed=1, **settings):
    tokenizers = load_tokenizer(home / "multi"), load_tokenizer(home / "mono")
    corpus = write_word_corpus([home / "en.txt"], tmp_path / "words")
    own = Settings(length=32, packing="corpus", align=1.0, **settings)
    return plug_work(
        corpus, word_pieces(corpus.words, *tokenizers, separate=True), tokenizers, own,
        PlugOptimisation(steps=100, batch_size=batch_size), PlugExecution(), tmp_path, seed, None,
    )  # fmt: skip


def work_on(home, tmp_path, batch_size, seed=1, **settings):
    return work_and_held_out(home, tmp_path, batch_size, seed, **settings)[0]


def test_held_out_text_is_the_end_of_the_text_and_never_trained_on(home, tmp_path):
    work, plan = work_and_held_out(home, tmp_path, batch_size=4, lines=0.5)
    whole = write_word_corpus([home / "en.txt"], tmp_path / "words").numbers.tolist()
    assert [*work.numbers.tolist(), *plan.numbers.tolist()] == whole
    assert 0 < len(plan.numbers) <= len(whole) // 50
    for rows in work.plans:
        assert rows.rows(1, 0)[1].max() <= len(whole) - len(plan.numbers)


def test_another_seed_draws_other_rows_and_hides_other_pieces(home, tmp_path):
    one, two = (work_on(home, tmp_path / str(seed), 4, seed, lines=0.0) for seed in (1, 2))
    assert not torch.equal(one.draw(0)[0].ids, two.draw(0)[0].ids)
    assert not torch.equal(one.draw(0)[0].ids, one.draw(1)[0].ids)
    # The same rows, masked by the seeds of two runs and of two steps.
    drawn = one.plans[0].step(1, 0, 4)
    two.plans[0].step = one.plans[0].step = lambda seed, step, size: drawn
    assert not torch.equal(one.draw(0)[0].ids, two.draw(0)[0].ids)
    assert not torch.equal(one.draw(0)[0].ids, one.draw(1)[0].ids)


def test_another_seed_has_another_dropout(home, tmp_path, monkeypatch):
    fixed = work_on(home, tmp_path, 4)
    monkeypatch.setattr(PlugWork, "rows_of", lambda self, step: fixed.draw(step))
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "en.txt", "dropout": 0.5, **SMALL}
    runs = [fit_connector(out=tmp_path / f"run-{n}", seed=seed, **given) for n, seed in enumerate((1, 1, 2))]
    one, again, other = (load_file(run.connector / "connector.safetensors") for run in runs)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_a_row_that_is_a_line_is_closed_once_as_a_tasks_text_is(home, tmp_path):
    work = work_on(home, tmp_path, 8, lines=1.0)
    (rows,) = work.draw(0)
    closing = work.frame.last
    assert ((rows.ids == closing).sum(1) == 1).all()
    assert ((rows.mono_ids == work.frame.mono_last).sum(1) == 1).all()


def test_rows_are_filled_up_to_round_numbers_of_labels_and_words(home, tmp_path):
    work = work_on(home, tmp_path, batch_size=8, lines=0.5)
    for step in range(4):
        (rows,) = work.draw(step)
        ((batch, share),) = work.batches(step, 0, 1)
        tokens = rows.ids.numel()
        assert len(batch["labels"]) % (tokens // 64) == len(batch["real_words"]) % (tokens // 16) == 0
        hidden = len(rows.labels)
        assert batch["labels"].tolist() == [*rows.labels.tolist(), *[-100] * (len(batch["labels"]) - hidden)]
        assert torch.equal(batch["places"][:hidden], rows.places)
        assert len(batch["places"]) == len(batch["labels"])
        assert batch["real_words"].tolist() == [1.0] * rows.count + [0.0] * (len(batch["real_words"]) - rows.count)
        assert int(max(batch["words"].max(), batch["mono_words"].max())) <= rows.count
        assert share == 1


def test_full_rows_of_many_steps_have_few_shapes(home, tmp_path):
    work = work_on(home, tmp_path, batch_size=64)
    shapes = {
        tuple((name, tuple(tensor.shape)) for name, tensor in sorted(batch.items()))
        for step in range(30)
        for batch, _ in work.batches(step, 0, 1)
    }
    assert len({len(work.draw(step)[0].labels) for step in range(30)}) > 15
    assert len(shapes) <= 12


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"hmlm": 0.0}, {"align": 0.0}], ids=["both", "align", "hmlm"])
def test_recorded_steps_train_the_connector_that_plain_ones_do(options, home, tmp_path, monkeypatch):
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "en.txt", "align": 1.0, "lines": 0.5}
    given |= {
        **SMALL,
        "steps": 24,
        "batch_size": 8,
        "max_tokens": 10_000,
        "dropout": 0.0,
        "precision": "fp32",
        **options,
    }
    found, counts = [], []
    real = Replay._record
    monkeypatch.setattr(Replay, "_record", lambda self, batch: counts.append(1) or real(self, batch))
    for graphs in (False, None):
        run = fit_connector(out=tmp_path / str(graphs), cuda_graphs=graphs, **given)
        found.append(load_file(run.connector / "connector.safetensors"))
        assert bool(counts) is (graphs is None)
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name].float(), value.float(), rtol=2e-3, atol=1e-3)


@pytest.mark.slow
def test_two_processes_equal_one(home, tmp_path):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text(f"de\t{TEXTS[0]}\t{TEXTS[3]}\nfr\t{TEXTS[1]}\t{TEXTS[4]}\n")
    given = {"multi": str(home / "multi"), "mono": str(home / "mono"), "text": [str(home / "en.txt")]}
    given |= {"bitext": [str(pairs)], "align": 1.0, "lines": 0.5, "dropout": 0.0, **SMALL}
    one = fit_connector(out=tmp_path / "one", **given)
    (tmp_path / "two.json").write_text(json.dumps({**given, "out": str(tmp_path / "two")}))
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launched, "-m", "crosslift.runs.plug", "--config", str(tmp_path / "two.json")]
    source = str(Path(__file__).parents[2] / "src")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source, "ACCELERATE_USE_CPU": "true"}
    subprocess.run(command, check=True, env=env, capture_output=True, timeout=200)
    a, b = (load_file(folder / "connector" / "connector.safetensors") for folder in (one.path, tmp_path / "two"))
    assert all(torch.allclose(a[name].float(), b[name].float(), atol=2e-3) for name in a)
    summary = json.loads((tmp_path / "two" / "results.json").read_text())
    assert (summary["steps"], summary["tokens"]) == (one.summary["steps"], one.summary["tokens"])
    assert not (tmp_path / "two" / "text").exists()


@pytest.mark.parametrize("packing", ["corpus", "documents", "lines"])
def test_every_packing_trains(packing, home, tmp_path):
    run = fit_connector(
        multi=home / "multi", mono=home / "mono", text=home / "en.txt", out=tmp_path / "run", packing=packing,
        **{**SMALL, "steps": 2, "evaluations": 1},
    )  # fmt: skip
    assert run.summary["steps"] == 2


def test_alignment_alone_needs_no_masked_lm_head(home, tmp_path):
    save_encoder(home / "headless", "roberta")
    given = {"multi": home / "multi", "mono": home / "headless", "text": home / "en.txt", **SMALL}
    run = fit_connector(out=tmp_path / "run", hmlm=0.0, align=1.0, **given)
    assert set(run.held_out) == {"closeness"}
    assert "has no masked-LM head" in refusal(fit_connector, out=tmp_path / "other", **given)


def test_pairs_are_a_setting_of_their_own_and_said_so(home, tmp_path):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("".join(f"de\t{TEXTS[0]}\t{TEXTS[3]}\nfr\t{TEXTS[1]}\t{TEXTS[4]}\n" for _ in range(3)))
    run = fit_connector(
        multi=home / "multi", mono=home / "mono", text=home / "en.txt", bitext=[pairs], out=tmp_path / "run",
        log_every=1, **SMALL,
    )  # fmt: skip
    assert run.summary["setting"] == "text, and pairs of de, fr"
    assert load_connector(run.path).facts.setting == run.summary["setting"]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("pairs" in json.dumps(row) for row in rows)


def test_pairs_without_a_weight_are_refused(home, tmp_path):
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "en.txt", "out": tmp_path / "run"}
    assert "--pairs 0" in refusal(fit_connector, bitext=[home / "en.txt"], pairs=0.0, **given, **SMALL)


def test_excluded_lines_are_learnt_from_neither_in_the_text_nor_in_pairs(home, tmp_path):
    (tmp_path / "out.txt").write_text(f"{TEXTS[0]}\n")
    pairs = tmp_path / "pairs.txt"
    pairs.write_text(f"de\t{TEXTS[0]}\t{TEXTS[3]}\nfr\t{TEXTS[1]}\t{TEXTS[4]}\n")
    run = fit_connector(
        multi=home / "multi", mono=home / "mono", text=home / "en.txt", bitext=[pairs], exclude=[tmp_path / "out.txt"],
        cache=tmp_path / "cache", out=tmp_path / "run", **SMALL,
    )  # fmt: skip
    assert run.summary["setting"] == "text, and pairs of fr"
    words = set((tmp_path / "cache" / "words" / "words.txt").read_text().split())
    assert words == set(f"{TEXTS[1]} {TEXTS[2]}".split())
    pairs.write_text(f"de\t{TEXTS[3]}\t  {TEXTS[0]}\n")
    said = refusal(
        fit_connector, multi=home / "multi", mono=home / "mono", text=home / "en.txt", bitext=[pairs],
        exclude=[tmp_path / "out.txt"], out=tmp_path / "other", **SMALL,
    )  # fmt: skip
    assert "Every pair" in said
    assert not (tmp_path / "other").exists()  # refused, so that the folder is free for the mended command


def test_a_connector_between_two_widths_is_kept_with_its_projection(home, tmp_path):
    save_mono(tmp_path / "wide", hidden_size=48)
    run = fit_connector(
        multi=home / "multi", mono=tmp_path / "wide", text=home / "en.txt", out=tmp_path / "run", **SMALL
    )
    kept = load_file(run.connector / "connector.safetensors")
    connector = load_connector(run.path).connector
    assert connector.project.weight.shape == (48, 32)
    assert torch.equal(connector.project.weight, kept["project.weight"].float())
    ids = torch.randint(5, 100, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(0))
        by_hand = connector._run[0](states) @ connector.project.weight.T + connector.project.bias
        assert torch.allclose(connector(states), by_hand, atol=1e-6)
    task = xl.fit(
        "finetune", model=tmp_path / "wide", data=MAKERS["classification"](24), dev=MAKERS["classification"](8, seed=2),
        out=tmp_path / "task", steps=1, batch_size=4, evaluations=1,
    ).model  # fmt: skip
    whole, _ = reassemble(task, run.path)
    assert whole(ids).logits.shape[0] == 2
    said = refusal(plug, task, run.path, tmp_path / "plugged")
    assert "differ in hidden_size (32 and 48)" in said and "plugged.reassemble" in said


def test_that_no_one_model_will_hold_the_result_is_said_before_training(home, tmp_path):
    save_mono(tmp_path / "wide", hidden_size=48)
    lines = []
    watch = Lines(io.StringIO())
    watch.say = lines.append
    fit_connector(
        multi=home / "multi", mono=tmp_path / "wide", text=home / "en.txt", out=tmp_path / "run", watch=watch, **SMALL
    )
    assert any("in memory alone" in line and "hidden_size" in line for line in lines)


def test_a_very_short_text_is_no_reason_for_numbers_that_are_none(home, tmp_path):
    (tmp_path / "short.txt").write_text("\n".join(TEXTS[:2]))
    run = fit_connector(
        multi=home / "multi", mono=home / "mono", text=tmp_path / "short.txt", out=tmp_path / "run", align=1.0,
        **{**SMALL, "steps": 2},
    )  # fmt: skip
    assert all(value == value for value in run.held_out.values())


def test_plugged_in_behind_the_last_layer_a_strangers_head_is_refused_too(home, tmp_path):
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "en.txt"}
    run = fit_connector(out=tmp_path / "run", plug_layer=2, **given, **SMALL)
    save_mono(tmp_path / "stranger", seed=98)
    data, dev = (MAKERS["classification"](24, seed=s) for s in (1, 2))
    task = xl.fit(
        "finetune", model=tmp_path / "stranger", data=data, dev=dev, out=tmp_path / "task", steps=1, batch_size=4,
        evaluations=1,
    ).model  # fmt: skip
    assert "does not descend from" in refusal(plug, task, run.path, tmp_path / "out")


def test_connectors_of_every_evaluation_can_be_kept(home, tmp_path, task_models):
    run = fit_connector(
        multi=home / "multi", mono=home / "mono", text=home / "en.txt", out=tmp_path / "run", keep_steps=True, **SMALL
    )
    assert sorted(p.name for p in (run.path / "steps").iterdir()) == ["000002", "000004"]
    plug(task_models["classification"], run.path / "steps" / "000002", tmp_path / "early")


def test_a_deadline_keeps_what_is_there(home, tmp_path):
    run = fit_connector(
        multi=home / "multi", mono=home / "mono", text=home / "en.txt", out=tmp_path / "run", max_minutes=1e-9, **SMALL
    )
    assert run.summary["steps"] == 0
    assert load_connector(run.path).facts.connector_layers == 1


def test_bad_settings_are_named(home, tmp_path):
    given = {"multi": home / "multi", "mono": home / "mono", "text": home / "en.txt", "out": tmp_path / "run"}
    assert 'Did you mean "paper"?' in refusal(fit_connector, preset="papr", **given)
    assert 'Did you mean "connector_layers"?' in refusal(fit_connector, connector_layer=2, **given)
    assert "more than the models can read" in refusal(fit_connector, **{**given, **SMALL, "length": 300})
    assert "--seed must be 0 or more, not -1" in refusal(fit_connector, seed=-1, **given)
    for minutes in (0.0, -1.0, float("nan")):
        assert "--max-minutes must be above 0" in refusal(fit_connector, max_minutes=minutes, **given)
    assert "--evaluations must be at least 1, not 0" in refusal(fit_connector, evaluations=0, **given)
    assert "counts in steps, not epochs" in refusal(fit_connector, epochs=2, **given)
    assert "--encoder-layers" in refusal(fit_connector, frozen_layers=1, **given)
    assert not (tmp_path / "run").exists()


def test_the_plain_command_reads_a_config(home, tmp_path, capsys):
    config = {"multi": str(home / "multi"), "mono": str(home / "mono"), "text": [str(home / "en.txt")], **SMALL}
    (tmp_path / "c.json").write_text(json.dumps({**config, "out": str(tmp_path / "run")}))
    assert main(["--config", str(tmp_path / "c.json"), "--set", "steps=2", "--set", "seed=4"]) == 0
    assert (tmp_path / "run" / "connector" / "connector.json").exists()
    assert main(["--config", str(tmp_path / "c.json"), "--set", "preset=none-such"]) == 2
    assert "There is no preset" in capsys.readouterr().err


def test_settings_of_the_paper_are_complete():
    names = {field for cls in plug_run.SETTINGS for field in cls.__dataclass_fields__}
    assert set(plug_run.PRESETS["paper"]) <= names
    assert set(plug_run.PRESETS["small"]) <= names
