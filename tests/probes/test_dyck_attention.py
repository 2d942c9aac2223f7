"""Attention of bracket models: against loops over pairs, queries and models, and on models built to be known."""

import itertools
import math
from typing import Any

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.inputs import Tokens
from sandtable.models import Stack, Transformer
from sandtable.probes.dyck import (
    ablate,
    attention,
    attention_variation,
    between_variation,
    class_mass,
    closing_accuracy,
    copying_accuracy,
    from_uniform,
    pairwise_variation,
    patterns,
    stack_likeness,
    stack_pattern,
)
from sandtable.theory import dyck as theory
from sandtable.theory.dyck.baselines import one_hot_variation, random_variation
from sandtable.worlds import Batch, DyckPrefixes, DyckWords

SIZE = dict(types=2, depth=4)
MAKE: dict[str, Any] = dict(layers=2, heads=2, width=8, mlp=8, norm="pre", biases=True)
WORDS = DyckWords(longest=10)
PREFIXES = DyckPrefixes(length=12)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def models(count=3, *, size=6, seed=0, outputs=None, **options):
    """Random two-layer models with two heads, whose attention is far from uniform."""
    drawn = generator(seed)
    options = {**MAKE, **options}
    made = [Transformer(size, tied=False, outputs=outputs, **options) for _ in range(count)]
    for model in made:
        for parameter in model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=drawn) * 0.7
    return made


def alone(model, row, layer):
    """The pattern on one row without padding, heads query key."""
    hook = f"blocks.{layer}.attn.hook_pattern"
    with torch.no_grad():
        return model(row[None], want=(hook,))[1][hook][0]


def real_rows(batch):
    return [row[keep] for row, keep in zip(batch.x, batch.mask, strict=True)]


# -- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [attention.AT_ONCE, 1])
@pytest.mark.parametrize(
    ("reads", "causal", "positions"), [("tokens", True, None), ("tokens", False, "learned"), ("symbols", True, None)]
)
def test_patterns_are_those_of_every_model_on_every_row(reads, causal, positions, at_once, monkeypatch):
    monkeypatch.setattr(attention, "AT_ONCE", at_once)
    made = models(size=17 if reads == "symbols" else 6, causal=causal, positions=positions, longest=12)
    batch = WORDS.sample(7, generator())
    found = patterns(Stack.of(*made), batch, WORDS, layer=1, reads=reads)
    assert found.shape == (3, 7, 2, 12, 12)
    for (i, model), (r, row) in itertools.product(enumerate(made), enumerate(real_rows(batch))):
        expected = torch.zeros(2, 12, 12)
        read = WORDS.symbols(row[None])[0] if reads == "symbols" else row
        expected[:, : len(row), : len(row)] = alone(model, read, 1)
        assert torch.allclose(found[i, r], expected, atol=1e-6)


def test_one_model_and_plain_rows():
    model = models(1, causal=True)[0]
    rows = PREFIXES.sample(4, generator()).x
    found = patterns(model, rows, PREFIXES, layer=0)
    assert found.shape == (1, 4, 2, 13, 13)
    assert torch.allclose(found[0, 2], alone(model, rows[2], 0), atol=1e-6)


# -- variation -------------------------------------------------------------------------------------------------------


def squared(a, b):
    """‖a − b‖² over query and key, mean over rows and heads, number by number."""
    gaps = [float(((x - y) ** 2).sum()) for x, y in zip(a.flatten(0, 1), b.flatten(0, 1), strict=True)]
    return sum(gaps) / len(gaps)


def test_variation_is_the_mean_over_pairs():
    stack = Stack.of(*models(5, causal=True))
    found = patterns(stack, WORDS.sample(6, generator()), WORDS, layer=1)
    pairs = {(i, j): squared(found[i], found[j]) for i, j in itertools.combinations(range(5), 2)}
    assert float(attention_variation(found)) == pytest.approx(sum(pairs.values()) / 10, rel=1e-5)
    matrix = pairwise_variation(found)
    for (i, j), value in pairs.items():
        assert float(matrix[i, j]) == float(matrix[j, i]) == pytest.approx(value, rel=1e-5)
    assert not bool(matrix.diagonal().any())
    cross = [value for (i, j), value in pairs.items() if (i < 1) != (j < 1) or (i < 3) != (j < 3)]
    groups = [found[:1], found[1:3], found[3:]]  # of different sizes: every pair counts alike
    assert float(between_variation(groups)) == pytest.approx(sum(cross) / len(cross), rel=1e-5)


def test_nearly_equal_patterns_keep_their_distance():
    base = torch.rand(1, 3, 1, 9, 9, generator=generator(), dtype=torch.float64)
    found = base + 1e-7 * torch.arange(4)[:, None, None, None, None]
    assert float(attention_variation(found)) == pytest.approx(81 * 1e-14 * (3 * 1 + 2 * 4 + 9) / 6, rel=1e-6)
    assert float(pairwise_variation(found)[1, 3]) == pytest.approx(4 * 81 * 1e-14, rel=1e-6)


def simplex(models, positions, draw):
    """Causal patterns whose rows are drawn one by one."""
    out = torch.zeros(models, 1, 1, positions, positions, dtype=torch.float64)
    for i in range(positions):
        out[:, 0, 0, i, : i + 1] = draw(models, i + 1)
    return out


@pytest.mark.parametrize("kind", ["simplex", "one-hot"])
def test_baselines_in_closed_form(kind):
    drawn, n, positions = generator(1), 10_000, 17

    def uniform(models, keys):
        spacing = -torch.rand(models, keys, generator=drawn, dtype=torch.float64).log()
        return spacing / spacing.sum(1, keepdim=True)

    def one_hot(models, keys):
        return torch.eye(keys, dtype=torch.float64)[torch.randint(keys, (models,), generator=drawn)]

    found = simplex(n, positions, uniform if kind == "simplex" else one_hot)
    expected = random_variation(positions) if kind == "simplex" else one_hot_variation(positions)
    # Its standard error is 2/√n times the deviation of ‖A − E A‖², which is below 1 for both kinds of rows.
    assert float(attention_variation(found)) == pytest.approx(expected, abs=4 * 2 / math.sqrt(n))
    apart = from_uniform(found)
    assert float(apart.mean()) == pytest.approx(expected / 2, abs=4 / math.sqrt(n))


@pytest.mark.parametrize("causal", [True, False])
def test_distance_from_uniform_on_padded_rows(causal):
    made = models(2, causal=causal)
    batch = WORDS.sample(5, generator())
    found = from_uniform(patterns(Stack.of(*made), batch, WORDS, layer=0), causal=causal)
    for i, model in enumerate(made):
        total = 0.0
        for row in real_rows(batch):
            for head in alone(model, row, 0):
                for q, keys in enumerate(head):
                    visible = q + 1 if causal else len(row)
                    total += sum(float(a - 1 / visible) ** 2 for a in keys[:visible])
        assert float(found[i]) == pytest.approx(total / 10, rel=1e-4)
    with pytest.raises(ArgumentError, match="causal=False"):
        from_uniform(patterns(models(1, causal=False)[0], batch, WORDS, layer=0))


# -- what is attended to ---------------------------------------------------------------------------------------------


def stacks(row, types=2):
    """Positions of the open brackets after every token, from a Python list."""
    open_now, after = [], []
    for i, token in enumerate(row.tolist()):
        if token < types:
            open_now.append(i)
        elif token < 2 * types:
            open_now.pop()
        after.append(list(open_now))
    return after


def closers_left_open(row, types=2):
    """(query, position of the last open bracket, depth) of every closer after which something is open."""
    after = stacks(row, types)
    return [(q, after[q][-1], len(after[q])) for q, t in enumerate(row.tolist()) if types <= t < 2 * types and after[q]]


@pytest.mark.parametrize("latents", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_stack_likeness_query_by_query(causal, latents):
    made = models(causal=causal, positions="learned", longest=12)
    batch = WORDS.sample(12, generator(3))
    given = batch if latents else Batch(x=batch.x, mask=batch.mask)
    found = stack_likeness(Stack.of(*made), given, WORDS, layer=1)
    for i, model in enumerate(made):
        top, hits, level = (torch.zeros(2, dtype=torch.float64) for _ in range(3))
        count = 0
        for row in real_rows(batch):
            after, seen = stacks(row), alone(model, row, 1)
            for q, opener, depth in closers_left_open(row):
                count += 1
                top += seen[:, q, opener]
                hits += (seen[:, q].argmax(-1) == opener).double()
                same = [k for k, t in enumerate(row.tolist()) if t < 2 and len(after[k]) == depth]
                level += seen[:, q, same].sum(-1)
        assert torch.allclose(found.top[i], top / count, atol=1e-6)
        assert torch.allclose(found.hits[i], hits / count, atol=1e-6)
        assert torch.allclose(found.level[i], level / count, atol=1e-6)


def test_equal_keys_share_the_first_place():
    world = DyckPrefixes(length=9)
    row = world.prefix("[][()")[None]  # the last closer leaves the second [ open, which looks like the first
    found = stack_likeness(theory.build("misleading"), Batch(x=row), world, layer=1)
    assert float(found.hits) == pytest.approx(0.5)
    uniform = stack_likeness(theory.build(), Batch(x=row), world, layer=1)
    assert float(uniform.hits) == pytest.approx(1 / 6)
    assert float(uniform.top) == pytest.approx(1 / 6)
    assert float(uniform.level) == pytest.approx(2 / 6)


def test_misleading_attention_has_its_known_shares():
    world = DyckPrefixes(length=60)
    batch = world.sample(300, generator(5))
    model = theory.build("misleading")
    likeness = stack_likeness(model, batch, world, layer=1)
    found = class_mass(model, batch, world, layer=1, queries="closers")
    assert float(found.mass[0, 0, found.index("closers")]) == pytest.approx(0.0016, rel=0.1)
    assert float(likeness.top) == pytest.approx(0.35, rel=0.12)
    # The same from counts of keys: e⁶ for openers of the right depth, 1 for others, both less 6 for closers.
    closers, tops, levels, count = 0.0, 0.0, 0.0, 0
    for row in batch.x:
        after = stacks(row)
        for q, _, depth in closers_left_open(row):
            weights = []
            for k, token in enumerate(row[: q + 1].tolist()):
                pair = len(after[k]) + (token >= 2)
                weights.append(math.exp(6 * (pair == depth) - 6 * (token >= 2)) if token < 4 else math.exp(-6))
            total, opened = sum(weights), [k for k in range(q + 1) if row[k] < 2 and len(after[k]) == depth]
            closers += sum(w for w, t in zip(weights, row.tolist(), strict=False) if 2 <= t < 4) / total
            tops += math.exp(6) / total
            levels += len(opened) * math.exp(6) / total
            count += 1
    assert float(found.mass[0, 0, found.index("closers")]) == pytest.approx(closers / count, rel=1e-9)
    assert float(likeness.top) == pytest.approx(tops / count, rel=1e-9)
    assert float(likeness.level) == pytest.approx(levels / count, rel=1e-9)
    assert float(likeness.level) > 0.95


def by_class(seen, row, queries, *, causal):
    """{class: [attention, share of visible keys]} of one map, summed over queries key by key."""
    names = ["[", "(", "]", ")", "start", "end"]
    sums = {name: [0.0, 0.0] for name in ["openers", "closers", *names, "current"]}
    for q in queries:
        keys = range(q + 1 if causal else len(row))
        for k in keys:
            token = int(row[k])
            side = ["openers"] * (token < 2) + ["closers"] * (2 <= token < 4)
            for name in [names[token], *side, *["current"] * (k == q)]:
                sums[name][0] += float(seen[q, k])
                sums[name][1] += 1 / len(keys)
    return sums


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("which", ["all", "closers"])
def test_class_mass_key_by_key(causal, which):
    made = models(2, causal=causal)
    batch = WORDS.sample(6, generator(3))
    found = class_mass(Stack.of(*made), batch, WORDS, layer=1, queries=which)
    assert set(found.classes) == {"openers", "closers", "[", "(", "]", ")", "start", "end", "current"} - (
        {"end"} if causal and which == "closers" else set()
    )
    for (i, model), head in itertools.product(enumerate(made), range(2)):
        total, count = {}, 0
        for row in real_rows(batch):
            queries = range(len(row)) if which == "all" else [q for q, _, _ in closers_left_open(row)]
            count += len(queries)
            for name, pair in by_class(alone(model, row, 1)[head], row, queries, causal=causal).items():
                total[name] = [a + b for a, b in zip(total.get(name, (0.0, 0.0)), pair, strict=True)]
        for name in found.classes:
            place = found.index(name)
            assert float(found.mass[i, head, place]) == pytest.approx(total[name][0] / count, abs=1e-6)
            assert float(found.frequency[place]) == pytest.approx(total[name][1] / count, rel=1e-9)
            ratio = total[name][0] / total[name][1]
            assert float(found.deviation[i, head, place]) == pytest.approx(ratio, rel=1e-4)


def test_uniform_attention_has_the_frequency_of_every_class():
    batch = PREFIXES.sample(40, generator())
    found = class_mass(theory.build(), batch, PREFIXES, layer=1)
    assert torch.allclose(found.deviation, torch.ones_like(found.deviation), rtol=1e-12)
    frozen = models(2, attention="uniform", causal=False)
    padded = class_mass(Stack.of(*frozen), WORDS.sample(20, generator()), WORDS, layer=0)
    assert torch.allclose(padded.deviation, torch.ones_like(padded.deviation), rtol=1e-5)
    index = [padded.index(name) for name in ("openers", "closers", "start", "end")]
    assert torch.allclose(padded.mass[..., index].sum(-1), torch.ones(2, 2, dtype=torch.float64), atol=1e-6)


# -- ablations -------------------------------------------------------------------------------------------------------


def test_ablations_are_other_scores_and_values():
    """On built models: blinding the scores to closers, levelling them and emptying the values give the same answers."""
    world = DyckPrefixes(length=20)
    batch = world.sample(60, generator(7))
    made = [theory.build("misleading"), theory.build("random", seed=3), theory.build("uniform")]
    stack = Stack.of(*made)
    for kind in attention.ABLATIONS:
        edits = ablate(kind, stack, batch, world, layer=1)
        outputs = stack(batch.x, edits=edits)
        changed = []
        for model in made:
            scores, values = theory.second_layer(model, **SIZE)
            if kind == "closers":
                scores[8:16] = -1000.0
            elif kind == "uniform":
                scores = theory.uniform_scores(**SIZE)
            else:
                values = torch.zeros_like(values)
            changed.append(theory.with_values(theory.with_scores(model, scores, **SIZE), values, **SIZE))
        expected = Stack.of(*changed)
        answers = expected(batch.x)
        assert torch.allclose(outputs, answers, atol=1e-6)
        # Where nothing is left of the stack the closers are tied, and rounding decides which of them is taken.
        found, top = closing_accuracy(stack, batch, world, edits=edits), batch.latents["top"]
        for accuracy, answer in zip(found.tolist(), answers, strict=True):
            lead = (answer[..., 2] - answer[..., 3])[top >= 0] * (1 - 2 * top[top >= 0])
            least, most = (float((lead > margin).double().mean()) for margin in (1e-6, -1e-6))
            assert least - 1e-9 <= accuracy <= most + 1e-9
            assert kind != "closers" or least < 0.97
    assert bool((closing_accuracy(stack, batch, world) == 1).all())


def test_one_head_is_ablated_and_the_other_left_alone():
    made = models(2, causal=False)
    stack = Stack.of(*made)
    batch = WORDS.sample(8, generator())
    hooks = ["blocks.1.attn.hook_pattern", "blocks.1.hook_attn_out"]
    plain, uniform, blind = (
        patterns_under(stack, batch, hooks[0], edits)
        for edits in (None, *(ablate(kind, stack, batch, WORDS, layer=1, head=0) for kind in ("uniform", "closers")))
    )
    closers = (batch.x >= 2) & (batch.x < 4)
    for r, row in enumerate(real_rows(batch)):
        length = len(row)
        assert torch.allclose(uniform[:, r, 0, :length, :length], torch.full((length, length), 1 / length))
        expected = plain[:, r, 0, :length] * ~closers[r]
        assert torch.allclose(blind[:, r, 0, :length], expected / expected.sum(-1, keepdim=True))
        for found in (uniform, blind):
            assert torch.equal(found[:, r, 1], plain[:, r, 1])
    edits = ablate("values", stack, batch, WORDS, layer=1, head=1)
    row = batch.x[0]
    for model in made:
        found = model(row[None], want=hooks[1:], edits=edits)[1][hooks[1]]
        silenced = model(row[None])  # the model runs before its head is emptied, and after
        with torch.no_grad():
            for name in ("W_V", "b_V"):
                getattr(model.layers[1].attn, name)[1] = 0.0
        assert torch.allclose(found, model(row[None], want=hooks[1:])[1][hooks[1]], atol=1e-5)
        assert not torch.allclose(silenced, model(row[None]), atol=1e-3)


def patterns_under(stack, batch, hook, edits):
    return stack(Tokens(batch.x, batch.mask), want=[hook], edits=edits)[1][hook]


def test_copying_row_by_row():
    batch = WORDS.sample(10, generator(2))
    for causal, outputs in ((True, None), (False, 4)):
        made = models(3, causal=causal, outputs=outputs)
        stack = Stack.of(*made)
        found = copying_accuracy(stack, batch, WORDS)
        edits = ablate("values", stack, batch, WORDS, layer=0)
        cut = copying_accuracy(stack, batch, WORDS, edits=edits)
        for i, model in enumerate(made):
            for accuracy, change in ((found, None), (cut, edits)):
                right = [
                    int(out.argmax()) == int(token)
                    for row in real_rows(batch)
                    for out, token in zip(model(row[None], edits=change)[0], row, strict=True)
                    if token < 4
                ]
                assert float(accuracy[i]) == pytest.approx(sum(right) / len(right))


def test_attention_without_values_copies_whatever_it_looks_at():
    model = Transformer(6, embedding="one-hot", layers=2, causal=True, output=False, tied=False)
    for name, parameter in model.named_parameters():
        parameter.data = torch.zeros_like(parameter) if name.endswith("W_V") else torch.randn(parameter.shape) * 3
    model.set("unembed.W_U", torch.eye(6))
    batch = WORDS.sample(20, generator())
    for kind in attention.ABLATIONS:
        edits = ablate(kind, model, batch, WORDS, layer=1)
        assert copying_accuracy(model, batch, WORDS, edits=edits).tolist() == [1.0]


# -- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input():
    stack = Stack.of(*models(2, causal=True))
    batch = WORDS.sample(3, generator())
    with pytest.raises(ArgumentError, match="layer=2: must be a whole number from 0 to 1"):
        patterns(stack, batch, WORDS, layer=2)
    with pytest.raises(ArgumentError, match="a Linear has no attention patterns"):
        patterns(torch.nn.Linear(2, 2), batch, WORDS, layer=0)
    with pytest.raises(ArgumentError, match="reads 6 symbols and writes 6 scores: types=2, depth=4 have 17 symbols"):
        stack_likeness(stack, batch, WORDS, layer=0, reads="symbols")
    with pytest.raises(ArgumentError, match=r"reads 17 tokens .* have 6 tokens and 4 brackets to score; see reads="):
        class_mass(Stack.of(*models(1, size=17)), batch, WORDS, layer=0)
    with pytest.raises(ArgumentError, match="another vocabulary"):
        patterns(stack, DyckWords(types=3).sample(3, generator()), WORDS, layer=0)
    with pytest.raises(ArgumentError, match="another vocabulary"):
        patterns(stack, torch.tensor([[4, 9]]), WORDS, layer=0)
    with pytest.raises(ArgumentError, match=r"rows of shape \(5,\)"):
        patterns(stack, torch.tensor([4, 0, 0, 2, 2]), WORDS, layer=0)
    for measure in (attention_variation, pairwise_variation):
        with pytest.raises(ArgumentError, match="patterns of 1 models: needs at least 2"):
            measure(torch.ones(1, 1, 1, 3, 3))
    with pytest.raises(ArgumentError, match="groups of shapes"):
        between_variation([torch.ones(2, 1, 1, 3, 3), torch.ones(2, 1, 1, 4, 4)])
    with pytest.raises(ArgumentError, match="no closer that leaves a bracket open"):
        stack_likeness(stack, Batch(x=torch.tensor([[4, 0, 2]])), WORDS, layer=0)
    with pytest.raises(ArgumentError, match="did you mean 'closers'"):
        ablate("closer", stack, batch, WORDS, layer=0)
    with pytest.raises(ArgumentError, match="head=2: must be a whole number from 0 to 1"):
        ablate("uniform", stack, batch, WORDS, layer=0, head=2)
    edits = ablate("closers", stack, batch, WORDS, layer=0)
    with pytest.raises(ArgumentError, match="edits made for 3 rows: cannot be used on 4"):
        copying_accuracy(stack, WORDS.sample(4, generator()), WORDS, edits=edits)


def test_a_stack_looks_like_one():
    batch = WORDS.sample(20, generator())
    ideal = stack_pattern(batch, WORDS)
    found = stack_likeness(ideal, batch, WORDS)
    assert [float(value) for value in found] == [1.0, 1.0, 1.0]
    made = Stack.of(*models(causal=True))
    whole, alone = stack_likeness(made, batch, WORDS, layer=1), patterns(made, batch, WORDS, layer=1)
    for a, b in zip(whole, stack_likeness(alone, batch, WORDS), strict=True):
        assert torch.allclose(a, b)
