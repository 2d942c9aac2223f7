"""What the claims on translation measure, against counting by hand and against decoding once more."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.claims.gmlm.padir import dialect, measures, quality, refinement, speed, stutter
from sandtable.claims.gmlm.padir.measures import Decoding
from sandtable.claims.gmlm.padir.nets import DESK, TASKS, Net, trained
from sandtable.decoding import beam_search, refine
from sandtable.inputs import EOS, PAD, RESERVED
from sandtable.lab import Lab, Store
from sandtable.probes import translation as probe
from sandtable.theory.gmlm.dialects import agree_by_chance

SIZE = replace(
    DESK,
    drop=(6, 4),
    fertility=(4, 3),
    dialect=(5, 3),
    steps=8,
    distilled_steps=8,
    width=8,
    heads=2,
    inputs=60,
    chunk=2,
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(seeds=(0, 1), store=Store(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def net():
    return Net("drop", size=SIZE)


@pytest.mark.parametrize("task", TASKS)
def test_targets_of_the_world_get_full_marks(task):
    net = Net(task, size=SIZE)
    batch = net.world.sample(50, torch.Generator().manual_seed(0))
    scores = measures._scores(net, batch, batch.x, "given")
    assert [scores[name] for name in ("valid", "any length", "exact", "accuracy", "as long")] == [1] * 5
    assert scores["overlap"] == pytest.approx(_said(batch))
    assert scores["words"] == pytest.approx(float(batch.latents["length"].double().mean()) - 1)
    assert scores["stutter"] == scores["incidence"] == 0


def given(batch):
    assert batch.given is not None
    return batch.given.x


def _said(batch):
    """An empty target has no word that could be right."""
    return float((batch.mask.sum(1) > 1).double().mean())


def test_with_a_length_given_only_answers_that_have_it_are_right():
    """Against every subsequence of the source of the given length; at any length ⟨eos⟩ alone is a subsequence."""
    net = Net("drop", size=SIZE)
    batch = net.world.sample(200, torch.Generator().manual_seed(2))
    tokens = batch.x[:, torch.randperm(5, generator=torch.Generator().manual_seed(3))].sort(1, descending=True).values
    tokens = torch.where(torch.arange(200)[:, None] % 3 == 0, batch.x.roll(1, 0), tokens)
    tokens = torch.where(torch.arange(200)[:, None] % 3 == 1, batch.x, tokens)
    tokens[::5] = torch.tensor([EOS, *[PAD] * 4])
    expected = []
    for row, source, length in zip(tokens.tolist(), given(batch).tolist(), batch.latents["length"], strict=True):
        words = [symbol + net.world.symbols for symbol in source]
        every = itertools.combinations(words, int(length) - 1)
        expected.append(row in [[*few, EOS, *[PAD] * (4 - len(few))] for few in every])
    assert measures.valid(net, batch, tokens, "given").tolist() == expected
    scores = [measures._scores(net, batch, tokens, lengths) for lengths in ("given", "own")]
    assert scores[0]["valid"] == pytest.approx(np.mean(expected))
    assert 0.2 < scores[0]["valid"] < 0.9
    assert scores[0]["any length"] == scores[1]["valid"] > scores[0]["valid"] + 0.1
    nothing = torch.tensor([[EOS, *[PAD] * 4]]).expand(200, -1)
    scores = [measures._scores(net, batch, nothing, lengths) for lengths in ("given", "own")]
    assert scores[1]["valid"] == 1
    assert scores[0]["valid"] == scores[0]["as long"] == float((batch.latents["length"] == 1).double().mean())


@pytest.mark.parametrize("task", TASKS)
def test_overlap_word_by_word(task):
    net = Net(task, size=SIZE)
    world = net.world
    generator = torch.Generator().manual_seed(1)
    source = given(world.sample(80, generator))
    tokens = measures.until_end(torch.randint(1, len(world.vocab), (80, 7), generator=generator))
    for row, symbols, found in zip(tokens, source, measures.overlap(net, source, tokens), strict=True):
        names = [str(world.vocab.tokens[t]) for t in row if t >= RESERVED]
        own = [str(world.vocab.tokens[t]) for t in symbols]
        allowed = {f"{letter}{name[1:]}" for letter in world.renderings for name in own}
        right = sum(name in allowed and name not in names[:i] for i, name in enumerate(names))
        assert found == pytest.approx(right / max(len(names), 1))


def test_an_answer_ends_at_its_first_end():
    rows = torch.tensor([[5, EOS, 6, EOS], [5, 6, 7, EOS], [EOS, EOS, 5, PAD], [5, 6, 7, 8]])
    expected = [[5, EOS, PAD, PAD], [5, 6, 7, EOS], [EOS, PAD, PAD, PAD], [5, 6, 7, 8]]
    assert measures.until_end(rows).tolist() == expected


def test_scores_on_the_way_are_those_of_stopping_there(lab, net):
    found = lab.measure(measures.refined, net)
    for steps in (1, 3):
        stopped = lab.measure(measures.decoded, net, Decoding(steps))
        for name in measures.SCORES:
            np.testing.assert_allclose(found[name][:, steps - 1], stopped[name])
    assert (np.diff(found["settled"]) >= 0).all()
    np.testing.assert_array_equal(found["settled"][:, -1], 1)
    np.testing.assert_allclose(found["settled right"][:, -1], found["valid"][:, -1])
    assert (found["settled right"] <= found["settled"]).all()


def test_sequential_nets_can_be_held_to_the_lengths_that_refiners_are_given(lab, net):
    found = lab.measure(measures.in_order, net.at(kind="sequential"), "beam", "given")
    seed, model = next(iter(trained(lab, net.at(kind="sequential"))))
    batch, _ = measures.asked(lab, net, seed)
    out = beam_search(model, given(batch), beams=measures.BEAMS, lengths=batch.latents["length"])
    assert torch.equal(out.lengths, batch.latents["length"])
    assert found["valid"][0] == pytest.approx(float(net.world.valid(given(batch), out.tokens).double().mean()))
    with pytest.raises(ArgumentError, match="lengths='given'"):
        lab.measure(measures.in_order, net.at(kind="sequential"), "greedy", "given")


def test_refiners_can_find_their_own_lengths(lab, net):
    found = lab.measure(measures.decoded, net, Decoding(2, lengths="own"))
    seed, model = next(iter(trained(lab, net)))
    batch, generator = measures.asked(lab, net, seed)
    out = refine(model, given(batch), generator=generator, steps=2, beams=measures.BEAMS, length_weight=1.0)
    assert found["stutter"][0] == pytest.approx(probe.neighbours(out.tokens).rate)
    assert found["stutter"][0] != lab.measure(measures.decoded, net, Decoding(2))["stutter"][0]


@pytest.mark.parametrize(
    ("measure", "settings"),
    [
        (stutter.rate, stutter.Rate(size=SIZE)),
        (stutter.rate, stutter.Rate(size=SIZE, exchanged=True)),
        (quality.quality, quality.Quality(size=SIZE)),
        (quality.quality, quality.Quality(size=SIZE, distilled=False, few=1)),
        (refinement.converges, refinement.Converges(size=SIZE)),
        (refinement.converges, refinement.Converges(size=SIZE, nets="several right")),
        (refinement.converges, refinement.Converges(size=SIZE, nets="untrained")),
        (refinement.remasking, refinement.Remasking(size=SIZE)),
        (refinement.remasking, refinement.Remasking(size=SIZE, every_word=True)),
        (stutter.self_attention, stutter.Attention(size=SIZE, inputs=60)),
        (stutter.cross_attention, stutter.Attention(size=SIZE, inputs=60)),
    ],
)
def test_claims_run(lab, measure, settings):
    evidence = measure.measure(settings, lab)
    names = {check.name for check in evidence.checks}
    assert {name for control in measure.controls for name in control.refutes} == names


def test_dropped_stutter_is_gone(lab, net):
    found = lab.measure(measures.decoded, net, Decoding(2, drop_stutter=True))
    assert (found["stutter"] == 0).all()
    kept = lab.measure(measures.decoded, net, Decoding(2))
    assert (kept["stutter"] > 0).all()
    # Dropping can only make answers right where no length is asked for, and where one is it changes nothing.
    assert (found["any length"] >= kept["any length"]).all()
    np.testing.assert_array_equal(found["valid"], kept["valid"])
    assert (found["as long"] < kept["as long"]).all()


def test_the_published_inference_stutters_less_and_writes_less(lab, net):
    """Not never: a right word that stood there as noise is deleted too, and equal ones around it become neighbours."""
    how = Decoding(2, rejecter="stutter, at the end too", drop_initial=True)
    found, kept = (lab.measure(measures.decoded, net, one) for one in (how, Decoding(2)))
    assert (found["stutter"] < kept["stutter"]).all(), (found["stutter"], kept["stutter"])
    assert (found["words"] < kept["words"]).all()


def test_with_every_word_taken_back_only_the_last_pass_writes(lab, net):
    seed, model = next(iter(trained(lab, net)))
    batch, generator = measures.asked(lab, net, seed)
    out = measures.refined_once(lab, model, batch, generator, Decoding(4, rejecter="every word"), trace=True)
    word = torch.arange(out.trace[0].shape[1]) < batch.latents["length"][:, None] - 1
    for x in out.trace[1:-1]:
        torch.testing.assert_close(x[word], out.trace[0][word])
    assert (out.trace[-1][word] != out.trace[0][word]).any()


def test_pairs_that_attend_most_to_one_another(lab, net):
    """Labels of stutter given to as many pairs, found by sorting: the ratio is as large as it can be."""
    seed, model = next(iter(trained(lab, net)))
    batch, generator = measures.asked(lab, net, seed, 60)
    out = measures.refined_once(lab, model, batch, generator, Decoding(2), trace=True)
    own, _ = probe.last_layer(model, given(batch), out.trace[1])
    pairs = probe.neighbours(out.trace[2])
    values = probe.self_dependence(own)["avg"][pairs.words].double().sort(descending=True).values
    count = int(pairs.stutter.sum())
    found = lab.measure(measures.attended, net, 2, 60, "most attending")
    assert found["pairs"][0].tolist() == [count, len(values) - count]
    assert found["self avg"][0, :, 0] == pytest.approx([float(values[:count].mean()), float(values[count:].mean())])
    with pytest.raises(ArgumentError, match="kind='least attending'"):
        lab.measure(measures.attended, net, 2, 60, "least attending")


def test_arms_of_a_seed_share_sources_but_seeds_do_not(lab, net):
    one, other = (measures.asked(lab, arm, 0)[0] for arm in (net, net.at(stages=1)))
    torch.testing.assert_close(one.x, other.x)
    assert not torch.equal(given(one), given(measures.asked(lab, net, 1)[0]))


def test_attention_is_averaged_over_pairs_of_words(lab, net):
    found = lab.measure(measures.attended, net, 2, 60)
    seed, model = next(iter(trained(lab, net)))
    batch, generator = measures.asked(lab, net, seed, 60)
    out = measures.refined_once(lab, model, batch, generator, Decoding(2), trace=True)
    own, cross = probe.last_layer(model, given(batch), out.trace[1])
    values = {"self avg": probe.self_dependence(own)["avg"], "cross TV avg": probe.cross_dependence(cross)["TV avg"]}
    kinds = [[], []]
    for r, row in enumerate(out.trace[2].tolist()):
        end = row.index(EOS) if EOS in row else len(row)
        for i in range(max(end - 1, 0)):
            if min(row[i], row[i + 1]) >= RESERVED:
                kinds[row[i] != row[i + 1]].append((r, i))
    assert found["pairs"][0].tolist() == [len(kind) for kind in kinds]
    for name, value in values.items():
        for place, kind in enumerate(kinds):
            assert found[name][0, place, 0] == pytest.approx(np.mean([float(value[at]) for at in kind]), rel=1e-5)
    ratio = stutter._ratio(found, "cross TV avg")
    np.testing.assert_allclose(ratio * stutter._ratio(found, "cross TV avg", exchanged=True), 1)


def test_untrained_words_agree_by_chance_or_not_at_all(lab):
    """One dialect among the answers that translate every symbol; there is at most one way to be so by chance."""
    net = Net("dialect", size=replace(SIZE, dialect=(2, 1)))
    found = lab.measure(dialect.agreement, net, 400)
    np.testing.assert_array_equal(found["agree"], 1)  # one word is always of one dialect
    assert ((found["right words"] > 0) & (found["right words"] < 1)).all()


@pytest.mark.parametrize(("m", "n"), dialect.CASES)
def test_the_product_of_marginals_is_enumerated(m, n):
    assert dialect.by_enumeration(m, n) == pytest.approx(agree_by_chance(m, n), rel=1e-12)


def test_hooks_count_the_passes_that_decoders_report():
    settings = speed.Speed(layers=3, lengths=(3, 8), rows=2)
    found = speed.passes(settings)
    for i, length in enumerate(settings.lengths):
        for name, (model, decode) in speed._decoders(settings, "cpu", 2, length).items():
            said = decode().decoder_passes
            assert (said == said[0]).all()
            assert found[name][i].tolist() == [int(said[0])] * 3
            assert not any(block._forward_hooks for block in model.layers)
