"""Balance of a layer over symbols, against loops over the indices of the definition and against the model itself."""

import itertools

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.models import Stack
from sandtable.probes.dyck import balance
from sandtable.probes.dyck.balance import Tokenwise, balance_violation, tokenwise
from sandtable.theory.dyck.embeddings import minimal_first_layer
from sandtable.worlds import DyckPrefixes

SIZE = dict(types=2, depth=4)


def random_layer(seed, *, models=(), types=2, depth=4, width=11, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    n = 2 * types * depth + 1
    scores = spread * torch.randn(*models, n, n, generator=generator, dtype=torch.float64)
    values = torch.randn(*models, n, width, generator=generator, dtype=torch.float64)
    return Tokenwise(scores, values - values.mean(-1, keepdim=True))


def by_loops(layer, types, depth):
    """Both conventions, written down index by index."""

    def u(key, query):
        return layer.scores[key, query].exp() * layer.values[key]

    def opener(i, c):
        return i * depth + c - 1

    def closer(i, c):
        return types * depth + i * depth + c - 1

    ratios, worst = [], []
    for j in range(types):
        for d in range(2, depth + 1):
            query = closer(j, d)
            norms = {}
            for t in itertools.product(range(types), repeat=d - 1):
                total = u(2 * types * depth, query) + u(opener(j, d), query) + u(query, query)
                total = total + sum(u(opener(i, c + 1), query) for c, i in enumerate(t))
                norms[t] = float(total.norm())
            best = min(norms, key=norms.__getitem__)
            other = min(value for t, value in norms.items() if t[-1] != best[-1])
            sums = [
                float((u(opener(i, c), query) + u(closer(i, c), query)).norm())
                for i in range(types)
                for c in range(1, depth + 1)
            ]
            ratios += [value / other for value in sums]
            worst.append(max(sums) / norms[best])
    return sum(ratios) / len(ratios), sum(worst) / len(worst)


@pytest.mark.parametrize(("types", "depth"), [(2, 4), (3, 3), (2, 2)])
def test_violation_is_the_definition(types, depth):
    layer = random_layer(1, types=types, depth=depth)
    mean, release = by_loops(layer, types, depth)
    assert float(balance_violation(layer, types=types, depth=depth)) == pytest.approx(mean, rel=1e-12)
    found = balance_violation(layer, types=types, depth=depth, convention="release")
    assert float(found) == pytest.approx(release, rel=1e-12)


def balanced(seed):
    """Closers whose score differs from their opener's by a constant, and whose value is the opener's times −e^a."""
    layer = random_layer(seed)
    offset = torch.randn(8, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scores, values = layer.scores.clone(), layer.values.clone()
    scores[:8, 9:] = scores[8:16, 9:] + offset
    values[8:16] = -offset.exp() * values[:8]
    return Tokenwise(scores, values)


def test_balanced_weights_do_not_violate_and_one_changed_score_does():
    layer = balanced(0)
    for convention in balance.CONVENTIONS:
        assert float(balance_violation(layer, **SIZE, convention=convention)) <= 1e-12
    assert float(balance.bilinear_residual(layer, **SIZE)) <= 1e-12
    assert torch.allclose(balance.antiparallelism(layer, **SIZE), -torch.ones(2, 4, dtype=torch.float64))
    scores = layer.scores.clone()
    scores[0, 9] += 0.1  # the first opener, asked by a closer of depth 1
    broken = Tokenwise(scores, layer.values)
    assert float(balance_violation(broken, **SIZE)) > 1e-4
    # One entry of a centred row of 6 queries: 0.1 · √(1 − 1/6).
    assert float(balance.bilinear_residual(broken, **SIZE)) == pytest.approx(0.1 * (5 / 6) ** 0.5)


@pytest.mark.parametrize(("types", "depth"), [(1, 4), (1, 2), (1, 1), (3, 1), (2, 2)])
def test_measures_that_need_no_second_type(types, depth):
    layer = random_layer(2, types=types, depth=depth)
    pairs = types * depth
    closers = [pairs + j * depth + d - 1 for j in range(types) for d in range(2, depth + 1)]
    gaps = layer.scores[:pairs][:, closers] - layer.scores[pairs : 2 * pairs][:, closers]
    # ‖gaps‖² about the row means is the mean over closers of all squared differences of two, halved
    square = sum(float((gaps[:, a] - gaps[:, b]).square().sum()) for a in range(len(closers)) for b in range(a))
    found = balance.bilinear_residual(layer, types=types, depth=depth)
    assert float(found) == pytest.approx((square / max(len(closers), 1)) ** 0.5)
    cosines = balance.antiparallelism(layer, types=types, depth=depth)
    for i, c in itertools.product(range(types), range(depth)):
        one, two = layer.values[i * depth + c], layer.values[pairs + i * depth + c]
        assert float(cosines[i, c]) == pytest.approx(float(one @ two / one.norm() / two.norm()))


def test_one_type_has_no_other_string():
    """P is about two strings whose last openers differ; the least of all strings is defined for one type too."""
    layer = random_layer(4, types=1, depth=3)
    with pytest.raises(ArgumentError, match="types=1"):
        balance.least_outputs(layer, types=1, depth=3)
    sums = balance.pair_sums(layer, types=1, depth=3).norm(dim=-1)
    floors = []
    for place, query in enumerate((4, 5)):  # closers of pair depth 2 and 3
        weight = (layer.scores[:, query] - layer.scores[:, query].max()).exp()
        keys = [6, *range(place + 2), query]  # the start, all openers up to that depth, the closer
        floors.append(float((weight[keys, None] * layer.values[keys]).sum(0).norm()))
    found = balance_violation(layer, types=1, depth=3, convention="release")
    assert float(found) == pytest.approx(float(sums.amax(-1) @ (1 / torch.tensor(floors).double())) / 2)


def test_random_weights_and_large_scores():
    layer = random_layer(3, models=(40,), width=50, spread=0.02)
    assert float(balance_violation(layer, **SIZE).mean()) == pytest.approx(0.63, abs=0.03)
    far = Tokenwise(layer.scores + 2000, layer.values)  # e^2000 is no float
    assert torch.allclose(balance_violation(far, **SIZE), balance_violation(layer, **SIZE))


@pytest.mark.parametrize("form", ["attention", "theory", "gpt"])
def test_the_layer_is_that_of_the_model(form):
    """Σ_k e^score · value, normalised, is the attention output that the model computes on a word, up to its mean."""
    world = DyckPrefixes()
    generator = torch.Generator().manual_seed(0)
    models = [minimal_first_layer(form=form, width=20, hidden=8) for _ in range(2)]
    for model in models:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name != "embed.W_E":
                    parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    symbols = world.sample(3, generator).latents["symbol"]
    stack = Stack.of(*models)
    _, found = stack(symbols, want=["blocks.0.hook_attn_out"])
    out = found["blocks.0.hook_attn_out"].double()
    layer = tokenwise(stack)
    for place in range(2):
        scores, values = layer.scores[place], layer.values[place]
        pattern = scores[symbols[:, None, :], symbols[:, :, None]]  # row query key
        pattern = pattern.masked_fill(~torch.ones_like(pattern, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
        expected = pattern @ values[symbols]
        assert torch.allclose(out[place] - out[place].mean(-1, keepdim=True), expected, atol=1e-5)
        assert torch.allclose(tokenwise(models[place]).scores, scores)


def test_bad_input():
    layer = random_layer(0)
    with pytest.raises(ArgumentError, match=r"17 symbols: types=2, depth=3 make 2kD \+ 1 = 13"):
        balance_violation(layer, types=2, depth=3)
    with pytest.raises(ArgumentError, match="types=1"):
        balance_violation(layer, types=1, depth=8)
    with pytest.raises(ArgumentError, match="depth=1"):
        balance.pair_sums(random_layer(0, depth=1), types=2, depth=1)
    with pytest.raises(ArgumentError, match="convention='max'"):
        balance_violation(layer, **SIZE, convention="max")
    with pytest.raises(ArgumentError, match="must be"):
        Tokenwise(layer.scores[:, :4], layer.values)
