"""Subset sums against all subsets, pruned maps and Transformers against what they stand for, bounds against search."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.models import Block, DeepMLP, SoftmaxAttention, Transformer
from sandtable.models.attention import silent
from sandtable.theory import pruning
from sandtable.theory.pruning import bounds
from sandtable.theory.pruning.linear import SELECTIONS
from sandtable.theory.pruning.subset_sum import MOST


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(*shape, generator):
    return 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1


def normal(*shape, generator):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


# -- subset sums -----------------------------------------------------------------------------------------------------


def all_sums(values):
    """The sum of every subset, from the definition."""
    return np.array(list(product((0, 1), repeat=len(values)))) @ np.asarray(values)


numbers = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.floats(-3, 3))


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 12), data=st.data())
def test_nearest_subset_is_the_nearest_of_all(count, data):
    rows = data.draw(st.lists(st.lists(numbers, min_size=count, max_size=count), min_size=1, max_size=4))
    targets = data.draw(st.lists(numbers, min_size=len(rows), max_size=len(rows)))
    double = dict(dtype=torch.float64)
    chosen, distance = pruning.nearest_subsets(torch.tensor(rows, **double), torch.tensor(targets, **double))
    for values, target, subset, found in zip(rows, targets, chosen, distance, strict=True):
        exact = np.abs(all_sums(values) - target).min()
        assert abs(float(found) - exact) < 1e-12
        total = sum(v for v, kept in zip(values, subset.tolist(), strict=True) if kept)
        assert abs(abs(total - target) - exact) < 1e-12


def test_nearest_subsets_of_many_rows_at_once():
    generator = seeded(3)
    values, targets = uniform(200, 12, generator=generator), uniform(200, generator=generator)
    chosen, distance = pruning.nearest_subsets(values, targets)
    exact = [np.abs(all_sums(row) - float(t)).min() for row, t in zip(values.numpy(), targets, strict=True)]
    assert np.abs(distance.numpy() - exact).max() < 1e-12
    assert torch.equal(distance, ((values * chosen).sum(1) - targets).abs())


def test_rows_beyond_one_batch_are_all_done(monkeypatch):
    values, targets = uniform(50, 8, generator=seeded(1)), uniform(50, generator=seeded(2))
    expected = pruning.nearest_subsets(values, targets)
    monkeypatch.setattr("sandtable.theory.pruning.subset_sum.AT_ONCE", 64)
    assert all(torch.equal(a, b) for a, b in zip(expected, pruning.nearest_subsets(values, targets), strict=True))


def test_nothing_to_sum():
    chosen, distance = pruning.nearest_subsets(torch.zeros(2, 0), torch.tensor([0.5, -2.0]))
    assert chosen.shape == (2, 0)
    assert distance.tolist() == [0.5, 2.0]
    chosen, distance = pruning.nearest_subsets(torch.zeros(0, 5), torch.zeros(0))
    assert chosen.shape == (0, 5)
    assert distance.shape == (0,)


@pytest.mark.parametrize(
    ("values", "targets", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(3), r"targets of shape \(3,\)"),
        (torch.zeros(3), torch.zeros(3), r"values of shape \(3,\)"),
        (torch.zeros(1, MOST + 1), torch.zeros(1), f"{MOST + 1} elements in a set: at most {MOST}"),
        (torch.tensor([[1.0, math.nan]]), torch.zeros(1), "must be finite"),
    ],
)
def test_subset_sums_say_what_is_wrong(values, targets, message):
    with pytest.raises(ArgumentError, match=message):
        pruning.nearest_subsets(values, targets)


def test_expected_residual_is_half_the_gap_of_the_sums_about_the_target():
    generator = seeded(5)
    values = uniform(20, 16, generator=generator) * uniform(20, 16, generator=generator)
    targets = values.sum(1) / 2 + uniform(20, generator=generator) / 2
    expected = pruning.expected_residual(values, targets)
    ratios = []
    for row, target, mean in zip(values.numpy(), targets.tolist(), expected.tolist(), strict=True):
        window = 400 * mean
        ratios.append((np.abs(all_sums(row) - target) < window).sum() / (window / mean))
    assert abs(np.mean(ratios) - 1) < 0.05


def test_distances_are_exponential_with_that_mean():
    generator = seeded(6)
    values = uniform(400, 14, generator=generator) * uniform(400, 14, generator=generator)
    targets = values.sum(1) / 2 + uniform(400, generator=generator) / 2
    bits = np.array(list(product((0.0, 1.0), repeat=14))).T
    distance = np.array([np.abs(row @ bits - t).min() for row, t in zip(values.numpy(), targets.tolist(), strict=True)])
    over = distance / pruning.expected_residual(values, targets).numpy()
    assert abs(np.median(over) - math.log(2)) < 0.2
    assert abs(np.exp(-over).mean() - 0.5) < 0.06  # uniform on (0, 1), so ± 4 standard errors


# -- linear maps -----------------------------------------------------------------------------------------------------


def matrices(inputs, hidden, outputs, seed):
    generator = seeded(seed)
    target = normal(inputs, outputs, generator=generator)
    target = target / torch.linalg.matrix_norm(target, 2)
    return uniform(inputs, hidden, generator=generator), uniform(hidden, outputs, generator=generator), target


@pytest.mark.parametrize("select", SELECTIONS)
def test_two_matrices_are_pruned_to_one(select):
    first, second, target = matrices(3, 120, 5, seed=1)
    done = pruning.prune_linear(first, second, target, units=18, select=select)
    assert done.first.dtype == done.second.dtype == torch.bool
    gap = ((first * done.first) @ (second * done.second) - target).abs()
    assert abs(float(gap.max()) - done.residual) < 1e-12
    assert done.residual < {"best": 1e-3, "largest": 0.05, "first": 1.0}[select]
    assert bool((done.first.sum(0) <= 1).all())


@pytest.mark.parametrize("seed", range(3))
def test_after_a_relu_both_signs_are_right(seed):
    first, second, target = matrices(3, 240, 4, seed=seed)
    done = pruning.prune_relu(first, second, target, units=20)
    assert done.residual < 1e-4
    x = normal(200, 3, generator=seeded(9))
    for sign in (x, -x, torch.eye(3).double(), -torch.eye(3).double()):
        found = (sign @ (first * done.first)).relu() @ (second * done.second)
        # Every weight is off by at most the residual, whichever sign its input has.
        assert bool(((found - sign @ target).abs() <= sign.abs().sum(1, keepdim=True) * done.residual + 1e-12).all())


def test_positive_inputs_need_half_of_the_units():
    first, second, target = matrices(2, 100, 3, seed=4)
    done = pruning.prune_relu(first, second, target, units=20, positive=True)
    x = torch.rand(50, 2, generator=seeded(1)).double()
    found = (x @ (first * done.first)).relu() @ (second * done.second)
    assert (found - x @ target).abs().max() <= 2 * done.residual + 1e-12
    assert bool((first[done.first] > 0).all())
    with pytest.raises(ArgumentError, match="too narrow"):
        pruning.prune_relu(first[:, :60], second[:60], target, units=20)


def test_inputs_without_weights_get_no_units():
    first, second, target = matrices(4, 100, 3, seed=5)
    target[[0, 2]] = 0.0
    done = pruning.prune_linear(first, second, target, units=20)
    assert not done.first[[0, 2]].any()
    assert ((first * done.first) @ (second * done.second) - target).abs().max() <= done.residual + 1e-12
    done = pruning.prune_linear(first, second, torch.zeros_like(target), units=20)
    assert not done.first.any()
    assert not done.second.any()
    assert done.residual == 0.0


def test_the_best_products_leave_no_weight_out_of_reach():
    worst = dict.fromkeys(SELECTIONS, 0.0)
    for seed in range(8):
        first, second, target = matrices(4, 400, 8, seed=seed)
        target = 2 * target / target.abs().max()
        for select in SELECTIONS:
            done = pruning.prune_relu(first, second, target, units=16, select=select)
            worst[select] = max(worst[select], done.residual)
    assert worst["best"] < 2e-3 < 0.02 < worst["largest"]
    assert worst["best"] < 2e-3 < 0.02 < worst["first"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(units=0), "units=0: must be a whole number from 1 to 40"),
        (dict(units=41), "units=41"),
        (dict(units=2.5), "units=2.5"),
        (dict(select="bset"), "did you mean 'best'"),
        (dict(target=torch.ones(3, 4)), r"target of shape \(3, 4\)"),
        (dict(second=torch.ones(90, 5)), r"cannot be made of matrices of shapes \(3, 100\) and \(90, 5\)"),
        (dict(units=34), "100 hidden units for 3 inputs: too narrow, one of them has only 33 of its own"),
    ],
)
def test_linear_says_what_is_wrong(change, message):
    first, second, target = matrices(3, 100, 5, seed=0)
    arguments = dict(first=first, second=second, target=target, units=20) | change
    with pytest.raises(ArgumentError, match=message):
        pruning.prune_linear(**arguments)


# -- layers ----------------------------------------------------------------------------------------------------------


def layer_by_hand(block, x, c, causal):
    """g(LN_C(attention(X)) + X), position by position."""
    weights = {name: p.detach() for name, p in block.named_parameters()}
    keys, queries, values = (x @ weights[f"attn.W_{kind}"][0] for kind in "KQV")
    rows = []
    for q in range(len(x)):
        seen = range(q + 1) if causal else range(len(x))
        scores = torch.stack([keys[k] @ queries[q] for k in seen])
        shares = scores.exp() / scores.exp().sum()
        out = sum(share * values[k] for share, k in zip(shares, seen, strict=True))
        out = out - out.mean()
        out = out / max(float(out.norm()), c)
        rows.append(out + x[q])
    x = torch.stack(rows)
    for i in range(block.mlp.depth):
        x = (x if i == 0 else x.clamp(min=0)) @ weights[f"mlp.W_{i}"]
    return x


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("c", [0.1, 3.0])
def test_stream_is_attention_norm_residual_mlp(causal, c):
    made = dict(width=5, key_width=3, hidden=6, layers=2, eps=c, causal=causal, generator=seeded(1))
    for model in (pruning.random_target(**made), pruning.random_network(**made)):
        x = normal(4, 6, 5, generator=seeded(2))
        expected = x
        for block in model.layers:
            expected = torch.stack([layer_by_hand(block, row, c, causal) for row in expected])
        assert torch.allclose(pruning.stream(model, x), expected, rtol=1e-10, atol=1e-12)
        tokens = torch.tensor([[0, 3, 1]])
        assert torch.allclose(model(tokens), pruning.stream(model, torch.eye(5).double()[tokens]), atol=1e-12)


def test_random_models_are_what_they_are_said_to_be():
    target = pruning.random_target(4, key_width=3, hidden=8, generator=seeded())
    for _, parameter in target.named_parameters():
        assert abs(float(torch.linalg.svdvals(parameter.detach()).max()) - 1) < 1e-12
    network = pruning.random_network(8, key_width=50, hidden=100, layers=1, generator=seeded())
    entries = torch.cat([p.detach().flatten() for p in network.parameters()])
    assert entries.dtype == torch.float64
    assert float(entries.abs().max()) <= 1
    shares = torch.histc(entries, 10, -1, 1) / len(entries)
    assert float((shares - 0.1).abs().max()) < 0.01
    assert [tuple(getattr(network.layers[0].mlp, f"W_{i}").shape) for i in range(4)] == [
        (8, 100), (100, 100), (100, 100), (100, 8)
    ]  # fmt: skip


def test_norms_and_distances():
    x = torch.tensor([[[3.0, 4.0], [0.0, 1.0]], [[0.0, 0.0], [0.6, 0.8]]]).double()
    assert torch.allclose(pruning.norm12(x), torch.tensor([5.0, 1.0]).double())
    one, two = (pruning.random_target(3, key_width=2, hidden=4, generator=seeded(i)) for i in (1, 2))
    x = normal(7, 4, 3, generator=seeded(3))
    a, b = pruning.stream(one, x), pruning.stream(two, x)
    ratios = [
        max(float((a[i, j] - b[i, j]).norm()) for j in range(4)) / max(float(x[i, j].norm()) for j in range(4))
        for i in range(7)
    ]
    assert abs(pruning.distance(one, two, x) - max(ratios)) < 1e-12
    assert pruning.distance(one, one, x) == 0.0
    with pytest.raises(ArgumentError, match=r"x of width 4: must be at most the model's \(3\)"):
        pruning.stream(one, torch.zeros(1, 1, 4).double())


# -- whole networks --------------------------------------------------------------------------------------------------

UNITS = 18


@pytest.fixture(scope="module")
def small():
    """A random network, two targets of width 3 and inputs of norm ≤ 1."""
    generator = seeded(11)
    targets = [pruning.random_target(3, key_width=2, hidden=4, generator=generator) for _ in range(2)]
    network = pruning.random_network(**pruning.sizes(targets[0], units=UNITS), generator=generator)
    x = normal(10, 6, 3, generator=generator)
    return network, targets, x / pruning.norm12(x)[:, None, None]


def is_masked(model, network, masks):
    """Every entry is, bit by bit, the network's own where the mask keeps it, and 0 elsewhere."""
    found, own = dict(model.named_parameters()), dict(network.named_parameters())
    assert set(masks) == set(found) == set(own)
    zero = torch.zeros(()).double()
    return all(torch.equal(found[n], torch.where(mask, own[n], zero)) for n, mask in masks.items())


def test_one_network_two_functions(small):
    network, targets, x = small
    before = [p.clone() for p in network.parameters()]
    done = [pruning.prune(network, target, units=UNITS) for target in targets]
    for one, target in zip(done, targets, strict=True):
        assert pruning.distance(one.model, target, x) < 1e-3
        assert is_masked(one.model, network, one.masks)
        assert 0 < one.residual < 1e-3
    assert pruning.distance(done[0].model, done[1].model, x) > 0.3
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    # What lies beyond the target's width comes out as zero.
    assert float(pruning.stream(done[0].model, x)[..., 3:].abs().max()) == 0.0


@pytest.mark.parametrize("idle", list(combinations(range(4), 2)))
def test_identity_layers_at_any_place_are_shared(small, idle):
    network, targets, x = small
    done = [pruning.prune(network, target, units=UNITS, identity_layers=idle) for target in targets]
    assert max(pruning.distance(one.model, t, x) for one, t in zip(done, targets, strict=True)) < 1e-3
    assert pruning.distance(done[0].model, done[1].model, x) > 0.3
    for name, weight in done[0].model.named_parameters():
        same = torch.equal(weight, done[1].model.get_parameter(name))
        layer = int(name.split(".")[1])
        if layer in idle:
            assert same
            assert weight.any() == ("mlp" in name)
        elif "mlp.W_1" in name or name == f"blocks.{max({0, 1, 2, 3} - set(idle))}.attn.W_K":
            assert not same


def test_identity_layers_leave_the_stream_alone(small):
    network, (target, _), x = small
    model = pruning.prune(network, target, units=UNITS, identity_layers=(0, 3)).model
    inside = torch.nn.functional.pad(x, (0, network.width - 3))
    first = model.layers[0](inside, None, silent)
    assert (first - inside).abs().max() < 1e-3


def test_deeper_targets_and_attention_to_both_sides():
    generator = seeded(2)
    target = pruning.random_target(2, key_width=2, hidden=3, layers=2, eps=0.2, causal=False, generator=generator)
    size = pruning.sizes(target, units=UNITS)
    assert size["layers"] == 8
    network = pruning.random_network(**size, eps=0.2, causal=False, generator=generator)
    x = normal(10, 4, 2, generator=generator)
    x = x / pruning.norm12(x)[:, None, None]
    for idle in (None, (0, 2, 5, 7)):
        done = pruning.prune(network, target, units=UNITS, identity_layers=idle)
        assert pruning.distance(done.model, target, x) < 1e-3
        assert is_masked(done.model, network, done.masks)


def test_too_few_products_cannot_do_it(small):
    network, (target, _), x = small
    done = pruning.prune(network, target, units=6)
    assert done.residual > 1e-2
    assert pruning.distance(done.model, target, x) > 1e-3


def test_progress_names_every_layer(small):
    network, (target, _), _ = small
    said = []
    pruning.prune(network, target, units=6, progress=said.append)
    assert said == [f"pruning layer {i}/4" for i in (1, 2, 3, 4)]


def test_sizes_hold_enough_units_of_each_sign():
    target = pruning.random_target(3, key_width=2, hidden=20, generator=seeded())
    assert pruning.sizes(target)["hidden"] > 2 * 24 * 20
    assert pruning.sizes(target)["layers"] == 4
    for seed in range(5):
        size = pruning.sizes(target, units=10)
        network = pruning.random_network(**size, generator=seeded(seed))
        pruning.prune(network, target, units=10)  # raises where units are missing


def changed(target, **change):
    """The target with some matrices multiplied."""
    made = pruning.random_target(3, key_width=2, hidden=4, generator=seeded(11))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(target.get_parameter(name) * change.get(name.split(".")[-1], 1.0))
    return made


def plain_transformer(width, depth, **change):
    hidden = (4,) * (depth - 1)
    options = dict(norm=("inner", None), norm_kind="unit", residual=(True, False), eps=0.5)
    attention = pruning.KeyedAttention(width, key_width=2)
    parts = dict(attn=attention, mlp=DeepMLP(width, hidden, biases=False))
    parts |= {key: value for key, value in change.items() if key in parts}
    options |= {key: value for key, value in change.items() if key not in parts}
    return Transformer(width, embedding="one-hot", blocks=[Block(parts["attn"], mlp=parts["mlp"], **options)]).double()


@pytest.mark.parametrize(
    "change",
    [
        dict(norm=("pre", None)),
        dict(norm_kind="layer"),
        dict(residual=(True, True)),
        dict(mlp=None),
        dict(mlp=DeepMLP(3, (4,))),
        dict(mlp=DeepMLP(3, (4, 4), biases=False)),
        dict(mlp=DeepMLP(3, (4,), biases=False, activation="gelu")),
        dict(attn=SoftmaxAttention(3, causal=True)),
    ],
)
def test_only_layers_of_the_theorem_are_pruned_to(small, change):
    with pytest.raises(ArgumentError, match=r"target: must be layers g.*make it with random_target"):
        pruning.prune(small[0], plain_transformer(3, 2, **change))


def test_prune_says_what_is_wrong(small):
    network, (target, _), _ = small
    make = dict(key_width=2, hidden=4, generator=seeded())

    def refuses(message, network=network, target=target, **options):
        with pytest.raises(ArgumentError, match=message):
            pruning.prune(network, target, **{"units": UNITS, **options})

    refuses("network: must be layers g.*make it with random_network", network=target)
    refuses("target: must be layers g", target=network)
    refuses("units=0", units=0)
    refuses("units=41: must be a whole number from 1 to 40", units=41)
    refuses("select='any': must be one of best, largest, first", select="any")
    refuses(r"identity_layers=\[0\]: must be 2 different ones, so that 2 of 4 remain", identity_layers=[0])
    refuses(r"identity_layers=\[1, 1\]: must be 2 different", identity_layers=[1, 1])
    refuses(r"identity_layers=\[0, 1, 2\]: must be 2 different", identity_layers=[0, 1, 2])
    refuses("identity_layers=4: must be a whole number from 0 to 3", identity_layers=[0, 4])
    refuses("identity_layers=-1", identity_layers=[0, -1])
    refuses("its eps .* and causal must be", target=pruning.random_target(3, **make, eps=0.4))
    refuses("its eps .* and causal must be", target=pruning.random_target(3, **make, causal=False))
    refuses("network with 4 layers: a target of 3 takes at least 6", target=pruning.random_target(3, **make, layers=3))
    refuses("mlp.W_1 has spectral norm 1.5, must be ≤ 1", target=changed(target, W_1=1.5))
    refuses("attn.W_Q has spectral norm 1.001", target=changed(target, W_Q=1.001))
    size = pruning.sizes(target, units=UNITS)
    narrow = {key: pruning.random_network(**size | {key: few}, generator=seeded()) for key, few in NARROW.items()}
    refuses(r"network of width 5: too narrow, must be at least twice the target's \(3\)", network=narrow["width"])
    refuses("40 hidden units for 3 inputs: too narrow, one of them has only 13", network=narrow["key_width"])
    refuses("too narrow, one of them has only .* of each sign", network=narrow["hidden"])
    smaller = pruning.random_network(**size | {"hidden": 10}, generator=seeded())
    refuses("network with hidden=10: too narrow for 12 units in the middle", network=smaller)
    no_diagonal = pruning.random_network(**size, generator=seeded())
    with torch.no_grad():
        no_diagonal.get_parameter("blocks.1.attn.W_V").mul_(0.4)
    refuses("layer 1 has no 3 entries of W_V above 0.5 in rows and columns of their own", network=no_diagonal)


NARROW = dict(width=5, key_width=40, hidden=200)


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (pruning.random_target, dict(key_width=0)),
        (pruning.random_target, dict(hidden=0)),
        (pruning.random_target, dict(layers=0)),
        (pruning.random_target, dict(eps=0.0)),
        (pruning.random_network, dict(hidden=2.5)),
        (pruning.random_network, dict(eps=-1.0)),
    ],
)
def test_random_models_say_what_is_wrong(make, change):
    with pytest.raises(ArgumentError, match=next(iter(change))):
        make(3, **dict(key_width=2, hidden=4, layers=1, generator=seeded()) | change)


# -- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [0.05, 0.7, 4.0])
def test_softmax_moves_by_at_most_twice_tanh_of_half(eps):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(50_000, 3)) * generator.choice([0.1, 1, 3], size=(50_000, 1))
    y = x + eps * generator.choice([-1.0, 0.0, 1.0], size=x.shape)
    sigma = [np.exp(v) / np.exp(v).sum(1, keepdims=True) for v in (x, y)]
    most = np.abs(sigma[0] - sigma[1]).sum(1).max()
    assert 0.97 * bounds.softmax_perturbation(eps) < most <= bounds.softmax_perturbation(eps) + 1e-12
    one = math.exp(eps / 2) / (2 * math.cosh(eps / 2))
    assert abs(2 * (2 * one - 1) - bounds.softmax_perturbation(eps)) < 1e-12
    assert bounds.softmax_perturbation_printed(eps) > 2 * most


@pytest.mark.parametrize("c", [0.1, 1.0, 5.0])
def test_layer_norm_is_lipschitz_with_one_over_c(c):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(20_000, 4)) * generator.choice([0.05, 1, 10], size=(20_000, 1))
    y = x + generator.normal(size=x.shape) * generator.choice([1e-3, 1, 10], size=(20_000, 1))

    def norm(v):
        v = v - v.mean(1, keepdims=True)
        return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), c)

    ratio = (np.linalg.norm(norm(x) - norm(y), axis=1) / np.linalg.norm(x - y, axis=1)).max()
    assert 0.99 / c < ratio <= bounds.layer_norm_lipschitz(c) * (1 + 1e-9)
    assert bounds.layer_norm_lipschitz_printed(c) == 2 * bounds.layer_norm_lipschitz(c)


@pytest.mark.parametrize("case", [(2.0, 0.01, 0.5, 0.1), (0.3, 0.2, 3.0, 0.05), (1.0, 0.1, 1.0, 0.1)])
def test_composition_is_attained_by_numbers_and_never_exceeded(case):
    l1, e1, l2, e2 = case
    assert abs((l1 + e1) * (l2 + e2) - l1 * l2 - bounds.composition(*case)) < 1e-12
    generator = seeded(1)
    most = 0.0
    for _ in range(300):
        g1, d1, g2, d2 = (
            size * w / torch.linalg.matrix_norm(w, 2)
            for size, w in zip(case, (normal(3, 3, generator=generator) for _ in case), strict=True)
        )
        x = normal(50, 3, generator=generator)
        # Not linear: the first map followed by a ReLU, which neither lengthens nor moves apart.
        gap = (x @ (g1 + d1)).relu() @ (g2 + d2) - (x @ g1).relu() @ g2
        most = max(most, float((gap.norm(dim=1) / x.norm(dim=1)).max()))
    assert most <= bounds.composition(*case)


def test_crossed_lambdas_are_exceeded():
    case = (2.0, 0.01, 0.5, 0.1)
    assert (2.01 * 0.6 - 1.0) / bounds.composition_printed(*case) > 2.9
    assert bounds.composition_printed(1.0, 0.2, 1.0, 0.3) == bounds.composition(1.0, 0.2, 1.0, 0.3)


def attended(scores, values, c):
    """X ↦ LN_C(attention(X)) + X at the last of all positions, as a layer of its own."""
    block = Block(
        pruning.KeyedAttention(3, key_width=3), norm=("inner", None), norm_kind="unit", residual=(True, False), eps=c
    ).double()
    with torch.no_grad():
        block.attn.W_K.copy_(scores[None])
        block.attn.W_Q.copy_(torch.eye(3)[None])
        block.attn.W_V.copy_(values[None])
    return lambda x: block(x[None], None, silent)[0, -1]


@pytest.mark.parametrize(("radius", "c"), [(4.0, 0.5), (1.0, 0.2), (0.3, 3.0)])
def test_attention_is_lipschitz_with_that_constant(radius, c):
    bound = bounds.attention_lipschitz(radius, c)
    generator = seeded(3)
    for _ in range(200):
        x, move = normal(5, 3, generator=generator), normal(5, 3, generator=generator)
        x, move = (v / v.norm(dim=1, keepdim=True) for v in (x, move))
        maps = [w / torch.linalg.matrix_norm(w, 2) for w in normal(2, 3, 3, generator=generator)]
        layer = attended(*maps, c)
        slope = torch.autograd.functional.jvp(layer, radius * x, move)[1]
        assert float(slope.norm()) <= bound
    witness = bounds.attention_witness(radius, 1000)
    assert float(witness.x.norm(dim=1).max()) <= radius + 1e-12
    assert float(witness.direction.norm(dim=1).max()) <= 1 + 1e-12
    assert all(float(torch.linalg.matrix_norm(w, 2)) <= 1 + 1e-12 for w in (witness.scores, witness.values))
    slope = torch.autograd.functional.jvp(attended(witness.scores, witness.values, c), witness.x, witness.direction)[1]
    assert 0.995 * bound < float(slope.norm()) <= bound


def test_printed_attention_constant_is_valid_and_loose():
    for layers, c in product((1, 2, 5), (0.01, 0.5, 1.0)):
        best = bounds.attention_lipschitz(4 * layers, c)
        assert 4 * best < bounds.attention_lipschitz_printed(layers, c) < 7 * best


def test_attended_values():
    generator = seeded(4)
    for _ in range(300):
        p, b = normal(2, 4, 3, generator=generator)
        a, sigma = normal(2, 4, generator=generator).softmax(-1)
        gap = float((a @ b - sigma @ p).norm())
        off = float((b - p).norm(dim=1).max())
        assert gap <= bounds.value_error(float((a - sigma).abs().sum()), off, float(p.norm(dim=1).max())) + 1e-12
    # attained: mass moved from a value to its opposite, and all values off in the same direction
    p = torch.tensor([[2.0], [-2.0]])
    gap = torch.tensor([0.7, 0.3]) @ (p + 0.1) - torch.tensor([0.5, 0.5]) @ p
    assert abs(float(gap) - bounds.value_error(0.4, 0.1, 2.0)) < 1e-6


def test_two_stages_stay_within_eps():
    largest = 64 * (1 - 1 / math.sqrt(2))
    for eps in (1e-3, 0.1, 1.0, 10.0, largest):
        first = eps / 8
        assert abs(bounds.two_stage_error(eps) - (4 * math.sqrt(2) * first + first**2)) < 1e-12 * max(1, eps)
        assert bounds.two_stage_error(eps) <= eps * (1 + 1e-12)
    assert bounds.two_stage_error(1.01 * largest) > 1.01 * largest


@pytest.mark.parametrize("ratio", [1.5, 4.0, 40.0])
def test_directions_of_sums(ratio):
    angles = np.linspace(0, 2 * math.pi, 3601)
    # In the plane of r and a: directions lie between ± the steepest, and any two of them in between occur.
    turned = np.arctan2(np.sin(angles), ratio + np.cos(angles))
    widest = turned.max() - turned.min()
    assert abs(2 * math.sin(widest / 2) - bounds.direction_gap(ratio)) < 1e-5
    generator = np.random.default_rng(2)
    a, b = generator.normal(size=(2, 50_000, 3))
    a, b = (v / np.maximum(1, np.linalg.norm(v, axis=1, keepdims=True)) for v in (a, b))
    r = np.array([ratio, 0, 0])
    gaps = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (a + r, b + r)]
    most = np.linalg.norm(gaps[0] - gaps[1], axis=1).max()
    assert 0.9 * bounds.direction_gap(ratio) < most <= bounds.direction_gap(ratio) + 1e-12


def test_the_needed_ratio_does_not_depend_on_the_unit_of_length():
    assert bounds.direction_gap(bounds.needed_ratio(0.2)) == pytest.approx(0.2)
    assert bounds.needed_ratio_printed(0.2, 0.05) == pytest.approx(2.0)
    for eps in (0.05, 0.2, 1.0):
        edge = 0.5 - eps / 4
        assert bounds.needed_ratio_printed(eps, 0.99 * edge) < bounds.needed_ratio(eps)
        assert bounds.needed_ratio_printed(eps, 1.01 * edge) > bounds.needed_ratio(eps)


def test_a_basis_that_misses_points():
    points = normal(30, 7, generator=seeded(5))
    points = points - points.mean(1, keepdim=True)
    basis = bounds.missing_basis(points, generator=seeded(6))
    assert basis.shape == (5, 7)
    assert torch.allclose(basis @ basis.mT, torch.eye(5).double(), atol=1e-12)
    assert float((basis @ torch.ones(7).double()).abs().max()) < 1e-12
    for point in points:
        singular = torch.linalg.svdvals(torch.cat([basis, point[None] / point.norm()]))
        assert float(singular[-1]) > 1e-6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.softmax_perturbation(-1.0), "eps=-1.0"),
        (lambda: bounds.layer_norm_lipschitz(0.0), "c=0.0"),
        (lambda: bounds.attention_lipschitz(0.0, 1.0), "radius=0.0"),
        (lambda: bounds.attention_witness(1.0, 1), "keys=1"),
        (lambda: bounds.direction_gap(0.5), "ratio=0.5"),
        (lambda: bounds.needed_ratio(0.0), "eps=0.0"),
        (lambda: bounds.needed_ratio(2.5), "eps=2.5"),
        (lambda: bounds.needed_ratio_printed(0.1, 0.0), "r0=0.0"),
        (lambda: bounds.missing_basis(torch.zeros(1, 4), generator=seeded()), "the zero vector lies in every span"),
        (lambda: bounds.missing_basis(torch.ones(1, 2), generator=seeded()), "width=2"),
    ],
)
def test_bounds_say_what_is_wrong(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


# -- several networks in one -----------------------------------------------------------------------------------------


def one_hidden_layer(hidden, generator):
    net = DeepMLP(3, (hidden,), out_width=2).double().requires_grad_(False)
    for parameter in net.parameters():
        parameter.copy_(normal(*parameter.shape, generator=generator))
    return net


def multiplex_error(networks, **options):
    x = normal(200, 3, generator=seeded(8))
    bound = max(float((x @ net.W_0 + net.b_0).abs().max()) for net in networks)
    made = pruning.multiplexer(networks, bound, **options)
    assert made.depth == 2
    gaps = [
        made(torch.cat([torch.full((200, 1), k).double(), x], 1), silent) - net(x, silent)
        for k, net in enumerate(networks, start=1)
    ]
    return max(float(gap.abs().max()) for gap in gaps)


@pytest.mark.parametrize("widths", [(5,), (2, 7), (4, 4, 1, 6, 3)])
def test_multiplexer_is_the_network_it_is_told_to_be(widths):
    generator = seeded(7)
    networks = [one_hidden_layer(hidden, generator) for hidden in widths]
    assert multiplex_error(networks) < 1e-10
    if len(widths) > 1:
        assert multiplex_error(networks, spacing=1.0) > 0.1
        assert multiplex_error(networks, biases="summed") > 0.1


def test_multiplexer_says_what_is_wrong():
    net = one_hidden_layer(4, seeded())
    for networks, options, message in (
        ([], {}, "networks: must be at least one"),
        ([DeepMLP(3, (4, 4))], {}, "one hidden layer and biases"),
        ([DeepMLP(3, (4,), biases=False)], {}, "one hidden layer and biases"),
        ([net, DeepMLP(3, (4,), out_width=3)], {}, "the same width and out_width"),
        ([net], dict(bound=0.0), "bound=0.0"),
        ([net], dict(spacing=0.0), "spacing=0.0"),
        ([net], dict(biases="all"), "biases='all'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            pruning.multiplexer(networks, **{"bound": 1.0, **options})
