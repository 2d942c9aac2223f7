"""Probes of translations against counting by hand, scipy and loops over heads and pairs."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine

from sandtable.arguments import ArgumentError
from sandtable.decoding import refine, stutter_rate
from sandtable.inputs import EOS, PAD, RESERVED, Pair
from sandtable.models import Seq2Seq
from sandtable.probes import translation as probe
from sandtable.worlds import DropTask


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def texts(n, size=9, words=3, seed=0):
    """Random rows of few words, so that they stutter, with ⟨eos⟩ somewhere and padding behind it."""
    tokens = torch.randint(RESERVED, RESERVED + words, (n, size), generator=generator(seed))
    end = torch.randint(0, size, (n, 1), generator=generator(seed + 1))
    place = torch.arange(size)
    return torch.where(place < end, tokens, torch.where(place == end, EOS, PAD))


def said(row):
    return [int(t) for t in row if t >= RESERVED]


def patterns(rows=4, heads=3, queries=6, keys=7, seed=0):
    return torch.rand(rows, heads, queries, keys, generator=generator(seed)).double().log().mul(2).softmax(-1)


# -- stutter ---------------------------------------------------------------------------------------------------------


def test_stutter_is_every_pair_of_equal_words():
    tokens = texts(200)
    found = probe.neighbours(tokens)
    for row, words, stutter in zip(tokens, *found, strict=True):
        assert words.sum() == max(len(said(row)) - 1, 0)
        assert stutter.sum() == sum(a == b for a, b in pairwise(said(row)))


def test_a_reference_excuses_as_many_repetitions_of_a_word_as_it_has():
    tokens, reference = texts(400), texts(400, size=11, seed=5)
    found = probe.neighbours(tokens, reference)
    for row, other, stutter in zip(tokens, reference, found.stutter, strict=True):
        left = Counter(a for a, b in pairwise(said(row)) if a == b)
        left -= Counter(a for a, b in pairwise(said(other)) if a == b)
        assert Counter(row[1:][stutter].tolist()) == left
    texted = [[" ".join(map(str, said(row))) for row in rows] for rows in (tokens, reference)]
    rate, incidence = stutter_rate(*texted)
    assert found.rate == pytest.approx(rate)
    assert found.incidence == pytest.approx(incidence)


def test_what_a_text_says_itself_is_no_stutter():
    tokens = texts(50)
    assert not probe.neighbours(tokens, tokens).stutter.any()
    assert probe.neighbours(tokens[:, :1]).rate == 0


def test_words_end_at_the_first_end():
    row = torch.tensor([[RESERVED, RESERVED, EOS, RESERVED, RESERVED]])
    found = probe.neighbours(row)
    assert found.words.tolist() == [[True, False, False, False]]
    assert found.rate == found.incidence == 1


def test_references_are_one_for_each():
    with pytest.raises(ArgumentError, match="3 references"):
        probe.neighbours(texts(4), texts(3))


# -- attention -------------------------------------------------------------------------------------------------------


def top(weights, k):
    return set(np.argsort(-np.asarray(weights), kind="stable")[:k].tolist())


def test_self_dependence_head_by_head():
    pattern = patterns(keys=6)
    found = probe.self_dependence(pattern)
    assert tuple(found) == probe.SELF
    for r, row in enumerate(pattern.numpy()):
        for i in range(5):
            over = {"min": np.min, "avg": np.mean, "max": np.max}
            for name, reduce in over.items():
                both = [reduce([head[a, b] for head in row]) for a, b in ((i, i + 1), (i + 1, i))]
                assert found[name][r, i] == pytest.approx(np.mean(both))
            for k in (1, 2):
                hits = [b in top(head[a], k) for head in row for a, b in ((i, i + 1), (i + 1, i))]
                assert found[f"top-{k}"][r, i] == pytest.approx(np.mean(hits))


def test_cross_dependence_head_by_head():
    pattern = patterns()
    found = probe.cross_dependence(pattern)
    assert tuple(found) == probe.CROSS
    for r, row in enumerate(pattern.numpy()):
        for i in range(5):
            ways = {
                "TV": [np.abs(head[i] - head[i + 1]).sum() / 2 for head in row],
                "cosine": [cosine(head[i], head[i + 1]) for head in row],
            }
            for name, values in ways.items():
                for over, reduce in {"min": np.min, "avg": np.mean, "max": np.max}.items():
                    assert found[f"{name} {over}"][r, i] == pytest.approx(reduce(values))
            for k in (1, 2):
                meet = [bool(top(head[i], k) & top(head[i + 1], k)) for head in row]
                assert found[f"top-{k}"][r, i] == pytest.approx(np.mean(meet))


def test_words_that_look_at_the_same_place_are_at_no_distance():
    same = patterns(queries=1).expand(-1, -1, 6, -1)
    found = probe.cross_dependence(same)
    for name in probe.CROSS[:6]:
        torch.testing.assert_close(found[name], torch.zeros(4, 5, dtype=torch.float64))
    assert (found["top-1"] == 1).all()


def test_attention_is_that_of_the_last_layer_whatever_the_batches():
    world = DropTask(symbols=6, length=4)
    model = Seq2Seq(world.vocab, layers=2, heads=2, width=8, longest=8, longest_target=8)
    batch = world.sample(7, generator())
    assert batch.given is not None
    own, cross = probe.last_layer(model, batch.given.x, batch.x, batch_size=3)
    names = ("decoder.1.attn.hook_pattern", "decoder.1.cross.hook_pattern")
    _, found = model(Pair(batch.given.x, None, batch.x, batch.mask), want=names)
    torch.testing.assert_close(own, found[names[0]])
    torch.testing.assert_close(cross, found[names[1]])
    assert batch.mask is not None
    hidden = ~batch.mask[:, None, None, :].expand_as(own)
    assert (own[hidden] == 0).all()


# -- refinement ------------------------------------------------------------------------------------------------------


def test_edits_and_the_pass_that_settles():
    states = [[1, 1, 1], [1, 2, 1], [3, 2, 3], [3, 2, 3], [3, 2, 3]], [[1, 1, 1]] * 5
    trace = [torch.tensor([row[t] for row in states]) for t in range(5)]
    assert probe.edits(trace).tolist() == [[1, 2, 0, 0], [0, 0, 0, 0]]
    assert probe.settled(trace).tolist() == [2, 0]


def test_a_refiner_that_settled_stays():
    world = DropTask(symbols=6, length=4)
    model = Seq2Seq(world.vocab, layers=1, heads=2, width=8, longest=8, longest_target=8)
    batch = world.sample(50, generator())
    assert batch.given is not None
    options: dict[str, Any] = dict(lengths=batch.latents["length"], trace=True)
    out = refine(model, batch.given.x, generator=generator(1), steps=12, early_stop=False, **options)
    settled = probe.settled(out.trace)
    early = refine(model, batch.given.x, generator=generator(1), steps=12, **options)
    done = settled < 12
    assert done.any()
    # A pass that changes nothing shows that the one before it settled.
    torch.testing.assert_close(early.decoder_passes[done], settled[done] + 1)


def test_one_state_is_no_refinement():
    with pytest.raises(ArgumentError, match="two at least"):
        probe.edits([torch.zeros(2, 3)])
