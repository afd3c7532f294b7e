"""Frozen outputs are computed once, whatever happens to the processes that compute them."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from crosslift.errors import BadInput
from crosslift.models.frozen import FrozenCache, text_keys, tokenizer_fingerprint, weights_fingerprint
from crosslift.tasks.encoded import Ragged
from tests.tiny import bpe_tokenizer, unigram_tokenizer
from tests.tiny_models import save_encoder

TEXTS = [f"text number {i}" for i in range(25)]
WHO = {"kind": "test", "model": "m", "tokenizer": "t", "width": 3}


def outputs(texts):
    """A row per text that only that text has."""
    return np.array([[len(text), sum(map(ord, text)) % 97, ord(text[-1])] for text in texts], dtype=np.float32)


class Teller:
    """Computes outputs and remembers for which texts it was asked."""

    def __init__(self, texts, ragged=False):
        self.texts, self.ragged, self.asked = texts, ragged, []

    def __call__(self, places):
        part = [self.texts[i] for i in places.tolist()]
        self.asked += part
        if not self.ragged:
            return outputs(part)
        rows = [np.repeat(outputs([text]), len(text) % 4, axis=0) for text in part]
        return Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


def test_every_text_is_computed_once_and_read_back_in_order(tmp_path):
    texts = [*TEXTS, TEXTS[3], "new"]
    teller = Teller(texts)
    rows = FrozenCache(tmp_path).rows(text_keys(texts), teller, **WHO, chunk=7)
    assert sorted(teller.asked) == sorted([*TEXTS, "new"])
    order = np.array([26, 3, 25, 0])
    assert np.array_equal(rows.stack(order), outputs([texts[i] for i in order]))

    again = Teller(texts)
    rows = FrozenCache(tmp_path).rows(text_keys(texts[::-1]), again, **WHO)
    assert again.asked == []
    assert np.array_equal(rows.stack(np.arange(27)), outputs(texts[::-1]))


@given(st.lists(st.text(alphabet="abcdefg", min_size=1, max_size=9), min_size=1, max_size=20), st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_ragged_rows_are_those_that_were_computed(tmp_path_factory, texts, chunk):
    cache = FrozenCache(tmp_path_factory.mktemp("cache"))
    rows = cache.rows(text_keys(texts), Teller(texts, ragged=True), **WHO, chunk=chunk)
    expected = [np.repeat(outputs([text]), len(text) % 4, axis=0) for text in texts]
    assert rows.counts.tolist() == [len(text) % 4 for text in texts]
    everything = np.arange(len(texts))
    assert all(np.array_equal(rows[i], expected[i]) for i in everything)
    assert np.array_equal(rows.flat(everything), np.concatenate(expected))
    padded = rows.pad(everything, 5, fill=-1)
    assert all(np.array_equal(padded[i, : len(row)], row) for i, row in enumerate(expected))
    assert all((padded[i, len(row) :] == -1).all() for i, row in enumerate(expected))


def test_another_model_tokenizer_kind_or_type_is_another_store(tmp_path):
    cache, keys = FrozenCache(tmp_path), text_keys(TEXTS)
    cache.rows(keys, Teller(TEXTS), **WHO)
    for change in ({"model": "m2"}, {"tokenizer": "t2"}, {"kind": "test2"}, {"dtype": np.float16}):
        teller = Teller(TEXTS)
        rows = cache.rows(keys, teller, **{**WHO, **change})
        assert len(teller.asked) == len(TEXTS)
        assert np.array_equal(rows.stack(np.arange(25)), outputs(TEXTS))


def test_keys_tell_texts_pairs_and_spans_apart():
    spans = [np.array([[0, 1]], dtype=np.int32), np.array([[0, 2]], dtype=np.int32)]
    keys = [
        *text_keys(["a b", "a"]),
        *text_keys(["a", "a b"], ["b", ""]),
        *text_keys(["a", "a"], ["b", "b"], spans),
    ]
    assert len(set(keys)) == 6
    assert text_keys(["a"], None) == text_keys(["a"])


@pytest.mark.parametrize("cut", ["values", "index"])
@pytest.mark.parametrize("bytes_off", [1, 13, 60])
def test_a_torn_file_costs_only_what_was_torn(tmp_path, cut, bytes_off):
    FrozenCache(tmp_path).rows(text_keys(TEXTS), Teller(TEXTS), **WHO)
    (file,) = tmp_path.glob(f"*/{cut}.bin")
    with file.open("r+b") as handle:
        handle.truncate(file.stat().st_size - bytes_off)
    teller = Teller(TEXTS)
    rows = FrozenCache(tmp_path).rows(text_keys(TEXTS), teller, **WHO)
    assert 1 <= len(teller.asked) <= 6
    assert np.array_equal(rows.stack(np.arange(25)), outputs(TEXTS))


def test_records_of_zeros_or_noise_are_not_believed(tmp_path):
    FrozenCache(tmp_path).rows(text_keys(TEXTS[:10]), Teller(TEXTS), **WHO)
    (index,) = tmp_path.glob("*/index.bin")
    with index.open("ab") as handle:
        handle.write(bytes(40) + np.random.default_rng(0).bytes(80))
    teller = Teller(TEXTS)
    rows = FrozenCache(tmp_path).rows(text_keys(TEXTS), teller, **WHO)
    assert sorted(teller.asked) == sorted(TEXTS[10:])
    assert np.array_equal(rows.stack(np.arange(25)), outputs(TEXTS))


def _work(folder, out):
    teller = Teller(TEXTS)
    rows = FrozenCache(folder).rows(text_keys(TEXTS), teller, **WHO, chunk=3)
    np.save(out, rows.stack(np.arange(25)))
    (out.parent / f"{out.stem}.txt").write_text("\n".join(teller.asked))


def test_several_processes_share_the_work(tmp_path):
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=_work, args=(tmp_path / "cache", tmp_path / f"{i}.npy")) for i in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert all(np.array_equal(np.load(tmp_path / f"{i}.npy"), outputs(TEXTS)) for i in range(4))
    asked = [line for i in range(4) for line in (tmp_path / f"{i}.txt").read_text().splitlines()]
    assert sorted(asked) == sorted(TEXTS)


def _die_in_the_third_chunk(folder):
    teller = Teller(TEXTS)

    def compute(places):
        if len(teller.asked) >= 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return teller(places)

    FrozenCache(folder).rows(text_keys(TEXTS), compute, **WHO, chunk=5)


def test_a_killed_process_loses_one_chunk_and_blocks_nobody(tmp_path):
    job = multiprocessing.get_context("fork").Process(target=_die_in_the_third_chunk, args=(tmp_path,))
    job.start()
    job.join()
    assert job.exitcode == -signal.SIGKILL
    teller = Teller(TEXTS)
    rows = FrozenCache(tmp_path).rows(text_keys(TEXTS), teller, **WHO, chunk=5)
    assert sorted(teller.asked) == sorted(TEXTS[10:])
    assert np.array_equal(rows.stack(np.arange(25)), outputs(TEXTS))


def test_the_store_used_longest_ago_goes_first_and_open_rows_stay_readable(tmp_path):
    one = 25 * (12 + 40)
    cache = FrozenCache(tmp_path, limit=2 * one)
    keys = text_keys(TEXTS)
    first = cache.rows(keys, Teller(TEXTS), **{**WHO, "model": "a"})
    cache.rows(keys, Teller(TEXTS), **{**WHO, "model": "b"})
    for age, about in enumerate(sorted(tmp_path.glob("*/about.json"), key=lambda f: '"a"' in f.read_text())):
        os.utime(about, (time.time() - 100 - age, time.time() - 100 - age))
    cache.rows(keys, Teller(TEXTS), **{**WHO, "model": "c"})
    assert cache.size() <= 2 * one
    left = "".join(about.read_text() for about in tmp_path.glob("*/about.json"))
    assert [model for model in "abc" if f'"model": "{model}"' in left] == ["b", "c"]
    assert np.array_equal(first.stack(np.arange(25)), outputs(TEXTS))


def test_outputs_beyond_the_limit_are_refused(tmp_path):
    with pytest.raises(BadInput, match="CROSSLIFT_CACHE_LIMIT"):
        FrozenCache(tmp_path, limit=100).rows(text_keys(TEXTS), Teller(TEXTS), **WHO)


def test_the_folder_and_the_limit_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSLIFT_CACHE", str(tmp_path))
    monkeypatch.setenv("CROSSLIFT_CACHE_LIMIT", "1234")
    assert (FrozenCache().folder, FrozenCache().limit) == (tmp_path / "frozen", 1234)


def test_a_wrong_shape_is_refused(tmp_path):
    with pytest.raises(ValueError, match="shape"):
        FrozenCache(tmp_path).rows(text_keys(TEXTS), lambda places: np.zeros((len(places), 4)), **WHO)


def test_weights_have_one_fingerprint_and_changed_weights_another(tmp_path):
    from crosslift.models.load import load_encoder

    model = load_encoder(save_encoder(tmp_path / "a"))
    same = load_encoder(save_encoder(tmp_path / "b"))
    assert weights_fingerprint(model) == weights_fingerprint(same)
    with torch.no_grad():
        next(same.parameters())[0, 0] += 1e-6
    assert weights_fingerprint(model) != weights_fingerprint(same)
    assert weights_fingerprint(nn.Linear(2, 2)) != weights_fingerprint(nn.Linear(2, 2))


def test_tokenizers_have_fingerprints_that_calls_do_not_change():
    before = tokenizer_fingerprint(bpe_tokenizer())
    bpe_tokenizer()(["some text"], truncation=True, max_length=4, padding=True)
    assert tokenizer_fingerprint(bpe_tokenizer()) == before
    assert tokenizer_fingerprint(unigram_tokenizer()) != before
