"""Truncation against a plain sort in Python, draws against their law."""

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.decoding import (
    Accepts,
    Draws,
    ExactModel,
    Predicate,
    TransformerModel,
    Truncation,
    ancestral,
    backtrack,
    vgb,
)
from sandtable.decoding.truncation import inverse_cdf
from sandtable.models import Normal, Transformer
from sandtable.worlds import FixedLengthDyck, SlippingDyck


def nucleus(probs, top_k, top_p):
    """Textbook top-k and nucleus truncation of one row."""
    order = sorted(range(len(probs)), key=lambda i: -probs[i])[: top_k or len(probs)]
    total, kept, mass = sum(probs[i] for i in order), [], 0.0
    for i in order:
        if mass >= top_p:
            break
        kept.append(i)
        mass += probs[i] / total
    norm = sum(probs[i] for i in kept)
    return [probs[i] / norm if i in kept else 0.0 for i in range(len(probs))]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, 1.0), (None, 0.7), (3, 1.0), (4, 0.5), (None, 1e-9)])
def test_truncation_is_the_textbook_one(temperature, top_k, top_p):
    logits = torch.randn(20, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    law = Truncation(temperature, top_p, top_k)
    for row, probs in zip(logits, law.probs(logits), strict=True):
        expected = nucleus((row / temperature).softmax(-1).tolist(), top_k, top_p)
        assert torch.allclose(probs, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (None, 0.43), (5, 0.67)])
def test_the_first_of_equal_tokens_is_kept(top_k, top_p):
    logits = torch.randint(3, (200, 9), generator=torch.Generator().manual_seed(0)).double()
    for row, probs in zip(logits, Truncation(1.0, top_p, top_k).probs(logits), strict=True):
        expected = nucleus(row.softmax(-1).tolist(), top_k, top_p)
        assert torch.allclose(probs, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("law", [Truncation(), Truncation(0.7, 0.8), Truncation(1.0, 1.0, 3), Truncation(0.0)])
def test_draws_follow_the_law(law):
    logits = torch.randn(1, 7, generator=torch.Generator().manual_seed(3)).expand(200_000, 7)
    drawn = law.draw(logits, Draws.of(0, len(logits)).uniform())
    frequencies = torch.bincount(drawn, minlength=7) / len(drawn)
    assert (frequencies - law.probs(logits[:1])[0]).abs().max() < 0.005


def test_what_has_no_probability_is_never_drawn():
    logits = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, 4)
    edge = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)  # 1.0 cannot occur, but rounding must not matter
    assert Truncation().draw(logits, edge).tolist() == [0, 2, 2]


def test_streams_are_uniform_independent_and_their_own():
    draws = Draws.of(7, 1000)
    first = torch.stack([draws.uniform() for _ in range(100)])
    assert abs(float(first.mean()) - 0.5) < 0.005
    assert abs(float(torch.corrcoef(first.T[:50]).fill_diagonal_(0).abs().max())) < 0.6
    again = Draws.of(7, 1000).take(torch.tensor([5, 9]))
    some = torch.tensor([True, False])
    seen = [again.uniform(some)[0] for _ in range(100)]
    assert torch.equal(torch.stack(seen), first[:, 5])
    assert again.uniform()[1] == first[0, 9]


def test_ancestral_samples_the_world():
    table = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.9, 0.1, 0.0]], dtype=torch.float64)
    lm = ExactModel(
        lambda prefix: table[prefix[:, -1]] if prefix.shape[1] else table[:1].expand(len(prefix), 3), vocab=3
    )
    made = ancestral(lm, [[]] * 60_000, max_tokens=2, generator=1)
    counts = torch.bincount(made.tokens[:, 0] * 3 + made.tokens[:, 1], minlength=9) / 60_000
    assert (counts - (table[0][:, None] * table).flatten()).abs().max() < 0.01
    assert made.queries.eq(2).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(dict(temperature=-1.0), "temperature=-1"), (dict(top_p=1.5), "top_p=1.5"), (dict(top_k=0), "top_k=0")],
)
def test_bad_laws_get_one_clear_line(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Truncation(**arguments)


def test_however_small_a_temperature_the_likeliest_token_stays():
    logits = torch.tensor([[1.0, 12.0, 0.0], [3.0, 3.0, -torch.inf]])
    for temperature in (1e-3, 1e-38, 1e-300):
        law = Truncation(temperature)
        assert law.draw(logits, torch.tensor([0.7, 0.2], dtype=torch.float64)).tolist() == [1, 0]
        assert law.probs(logits).tolist() == [[0, 1, 0], [0.5, 0.5, 0]]


@pytest.mark.parametrize("kind", ["world", "network"])
def test_log_prob_is_that_of_what_was_written(kind):
    """Of rows that end early, were rewound, or sampled from another law; a network against one plain forward pass."""
    world = FixedLengthDyck(length=6)
    prompts = world.prompts(40, torch.Generator().manual_seed(0), lengths=(1, 4))
    lm = ExactModel(SlippingDyck(world, 0.3))
    if kind == "network":
        net = Transformer(6, layers=2, width=8, heads=2, mlp=8, causal=True, longest=9, initial={"*": Normal(0.5)})
        lm = TransformerModel(net.initialise(torch.Generator().manual_seed(1)), vocab=world.vocab, eos=world.eos)
    for made in (
        ancestral(lm, prompts, max_tokens=7, top_p=0.8),
        backtrack(lm, prompts, Accepts(world), max_tokens=7, quota=3, stride=2),
    ):
        assert made.lengths.unique().numel() > 1 or kind == "world"
        expected = []
        for row, start in zip(made.rows, made.prompts.tolist(), strict=True):
            if kind == "network":
                law = lm.network(torch.tensor([row])).detach().double().log_softmax(-1)[0]
                expected.append(sum(float(law[i - 1, row[i]]) for i in range(start, len(row))))
            else:
                whole, before = (lm.law.log_prob(torch.tensor([part])) for part in (row, row[:start]))
                expected.append(float(whole - before))
        assert torch.allclose(made.log_prob(), torch.tensor(expected, dtype=torch.float64), atol=1e-5)


@pytest.mark.parametrize("items", [4097, 5000, 50_257])
def test_long_rows_are_searched_block_by_block_with_the_same_answer(items):
    g = torch.Generator().manual_seed(items)
    logits = 4 * torch.randn(40, items, generator=g, dtype=torch.float64)
    weights = logits.softmax(-1)
    weights[::3, 7::2] = 0.0
    weights[1, : items - 1] = 0.0
    weights[2, 1:] = 0.0
    uniform = torch.rand(40, generator=g, dtype=torch.float64)
    uniform[3:6] = torch.tensor([0.0, 1 - 2.0**-53, 1 - 2.0**-53])
    running = weights.cumsum(-1)
    plain = torch.searchsorted(running, uniform[:, None] * running[:, -1:], right=True)[:, 0]
    found = inverse_cdf(weights, uniform)
    near = running.gather(1, found[:, None])[:, 0] - uniform * running[:, -1]
    assert ((found == plain) | (near.abs() < 1e-12)).all()
    assert (weights.gather(1, found[:, None]) > 0).all()
    assert (found[1], found[2]) == (items - 1, 0)

    kept = Truncation(top_p=0.8).probs(logits) > 0
    for row, law in enumerate(logits.softmax(-1)):
        ordered = law.sort(descending=True)
        size = int((ordered.values.cumsum(0) < 0.8).sum()) + 1
        assert kept[row].nonzero()[:, 0].tolist() == ordered.indices[:size].sort().values.tolist()


def test_of_no_rows_no_tokens_are_drawn():
    for items in (5, 5000):
        nothing = torch.zeros(0, items)
        assert inverse_cdf(nothing, torch.zeros(0)).shape == (0,)
        assert Truncation(0.9, 0.8).draw(nothing, torch.zeros(0)).shape == (0,)


@pytest.mark.parametrize("children", ["all", "top_k", "rejection"])
def test_walks_over_long_vocabularies_end(children):
    law = ExactModel(lambda prefix: torch.full((len(prefix), 5000), 1 / 5000), vocab=5000)
    made = vgb(law, [[]] * 2, Predicate(lambda view: torch.ones(len(view))), max_tokens=2, children=children, k=3)
    assert made.accepted.all()
    assert made.lengths.tolist() == [2, 2]


@pytest.mark.parametrize("way", [dict(), dict(top_p=0.5), dict(temperature=0.0)])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_model_that_says_nan_is_named_in_one_line(way, broken):
    network = Transformer(6, layers=1, width=8, causal=True, positions="learned", longest=9, head_bias=True)
    network.unembed.b_U.data[2] = broken
    with pytest.raises(ArgumentError, match="logits of row 0 after 1 tokens: NaN or infinite"):
        ancestral(TransformerModel(network), [[1], [2]], max_tokens=3, **way)
