"""Closing accuracy, excess loss and pumping: models whose answers are known by hand, and loops over every position."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.models import Stack, Transformer
from sandtable.probes.dyck import (
    Tokenwise,
    asked,
    attended,
    closing_accuracy,
    excess_loss,
    log_slope,
    long_prefixes,
    pumped_counts,
    pumped_rows,
    pumping_distance,
    pumping_outputs,
)
from sandtable.theory import dyck
from sandtable.theory.dyck.embeddings import minimal_first_layer
from sandtable.worlds import Batch, DyckPrefixes, DyckWords

WORLD = DyckPrefixes(types=2, depth=4, q=0.5)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


class Says(nn.Module):
    """The same scores after every token."""

    def __init__(self, *scores):
        super().__init__()
        self.scores = nn.Parameter(torch.tensor(scores, dtype=torch.float64))

    def forward(self, x):
        return self.scores.expand(*x.shape, -1)


class Logarithm(nn.Module):
    """The logarithm of what a model says; `off` is added to the first closer."""

    def __init__(self, model, off=0.0):
        super().__init__()
        self.model = model
        self.off = nn.Parameter(torch.tensor(off, dtype=torch.float64))

    def forward(self, x):
        said = self.model(x).clamp(min=1e-40).log()
        return said + self.off * (torch.arange(said.shape[-1]) == said.shape[-1] // 2)


def stacks(row, k):
    """The types of the open brackets after every token of a row."""
    stack, found = [], []
    for token in row:
        if token < k:
            stack = [*stack, token]
        elif token < 2 * k:
            stack = stack[:-1]
        found.append(stack)
    return found


def places(batch, world, at):
    """(row, position, type to close) of every question, by loops."""
    for r, row in enumerate(batch.x.tolist()):
        real = len(row) if batch.mask is None else int(batch.mask[r].sum())
        for i, stack in enumerate(stacks(row[:real], world.types)):
            closes = i + 1 < real and world.types <= row[i + 1] < 2 * world.types
            if closes if at == "closers" else stack:
                yield r, i, stack[-1]


def random_models(count=3, **options):
    made = []
    for seed in range(count):
        model = Transformer(6, layers=2, width=8, tied=False, outputs=4, causal=True, **options)
        model.initialise(rng(seed), 15.0)
        made.append(model)
    return made


ROWS = {
    "prefixes": (WORLD, DyckPrefixes(length=15).sample(20, rng())),
    "words": (DyckWords(longest=14), DyckWords(longest=14).sample(30, rng())),
    "long": (WORLD, long_prefixes(WORLD, 6, rng(), lengths=(20, 40))),
}


# -- accuracy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", dyck.ATTENTIONS)
@pytest.mark.parametrize("at", ["open", "closers"])
def test_exact_models_close_every_bracket(attention, at):
    model = dyck.build(attention)
    for world, batch in ROWS.values():
        assert closing_accuracy(model, batch, world, at=at).tolist() == [1.0]
        assert closing_accuracy(Logarithm(model), batch, world, at=at, strict=0.999).tolist() == [1.0]


def test_one_closer_is_right_as_often_as_it_is_asked_for():
    model = Says(9.0, 9.0, 1.0, 0.0)  # openers do not compete
    batch = Batch(x=torch.stack([WORLD.prefix("[[]()"), WORLD.prefix("[][][")]))
    # after [[]() the stack is [ [[ [ [( [; after [][][ it is [ · [ · [
    assert closing_accuracy(model, batch, WORLD).item() == pytest.approx(7 / 8)
    assert closing_accuracy(Says(9.0, 9.0, 0.0, 1.0), batch, WORLD).item() == pytest.approx(1 / 8)
    # closers that follow: ] ) and ] ]
    assert closing_accuracy(model, batch, WORLD, at="closers").item() == pytest.approx(3 / 4)
    reference = Batch(x=WORLD.reference[None])
    for at in ("open", "closers"):
        assert (
            closing_accuracy(Stack.of(model, Says(0.0, 0.0, 2.0, 5.0)), reference, WORLD, at=at).tolist() == [0.5] * 2
        )


def test_strict_asks_for_a_share_of_the_closers():
    batch = Batch(x=WORLD.prefix("[[[")[None])
    for share, right in ((0.79, 0.0), (0.81, 1.0)):
        model = Says(50.0, -50.0, math.log(share), math.log(1 - share))
        assert closing_accuracy(model, batch, WORLD, strict=0.8).item() == right
        assert closing_accuracy(model, batch, WORLD).item() == 1.0
    three = DyckPrefixes(types=3)
    model = Says(0.0, 0.0, 0.0, math.log(0.5), math.log(0.3), math.log(0.2))
    rows = Batch(x=torch.stack([three.prefix("[("), three.prefix("{{")]))
    assert closing_accuracy(model, rows, three, strict=0.45).item() == pytest.approx(1 / 4)
    assert closing_accuracy(model, rows, three, strict=0.25).item() == pytest.approx(2 / 4)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("at", ["open", "closers"])
@pytest.mark.parametrize("strict", [None, 0.6])
def test_accuracy_position_by_position(rows, at, strict):
    world, batch = ROWS[rows]
    models = random_models()
    found = closing_accuracy(Stack.of(*models), batch, world, at=at, strict=strict)
    for model, accuracy in zip(models, found.tolist(), strict=True):
        said = [model(row[None])[0, :, 2:].tolist() for row in batch.x]
        hits = []
        for r, i, top in places(batch, world, at):
            closers = said[r][i]
            share = math.exp(closers[top]) / sum(map(math.exp, closers))
            hits.append(closers[top] > closers[1 - top] if strict is None else share > strict)
        assert accuracy == pytest.approx(sum(hits) / len(hits))


def test_symbols_are_read_where_asked_and_latents_are_not_needed():
    world, batch = ROWS["words"]
    model = minimal_first_layer(width=20, hidden=8)
    model.initialise(rng(5), 15.0)
    found = closing_accuracy(model, batch, world, reads="symbols").item()
    out = model(world.symbols(batch.x))
    hits = [int(out[r, i, 2:].argmax()) == top for r, i, top in places(batch, world, "open")]
    assert found == pytest.approx(sum(hits) / len(hits))
    assert closing_accuracy(model, Batch(x=batch.x, mask=batch.mask), world, reads="symbols").item() == found


def test_long_rows_in_parts():
    """More rows than are run at once: the parts add up."""
    batch = long_prefixes(WORLD, 12, rng(1), lengths=(500, 600))
    model = Says(0.0, 0.0, 1.0, 0.0)
    tops = [top for _, _, top in places(batch, WORLD, "open")]
    assert closing_accuracy(model, batch, WORLD).item() == pytest.approx(tops.count(0) / len(tops))
    assert closing_accuracy(dyck.build(), batch[:9], WORLD, outputs="probabilities", strict=0.6).item() == 1.0


def test_edits_blind_a_model():
    """A second layer that sees only its own position knows what it has opened, and nothing after a closer."""
    world, batch = ROWS["prefixes"]

    def alone(pattern):
        return torch.eye(pattern.shape[-1], dtype=pattern.dtype).expand_as(pattern)

    kinds = [int(batch.x[r, i]) < 2 for r, i, _ in places(batch, world, "open")]
    # probabilities as scores: 1 − q = ½ against 0 is a share of 0.62, nothing known one of ½
    found = closing_accuracy(dyck.build(), batch, world, strict=0.6, edits={"blocks.1.attn.hook_pattern": alone})
    assert found.item() == pytest.approx(sum(kinds) / len(kinds))


def test_long_prefixes_have_uniform_lengths():
    world = DyckWords(types=3, depth=2, q=0.7)
    batch = long_prefixes(world, 4000, rng(2), lengths=(7, 12))
    assert batch.x.shape == (4000, 13)
    assert batch.mask is not None
    lengths = Counter((batch.mask.sum(1) - 1).tolist())
    assert lengths.keys() == set(range(7, 13))
    assert all(abs(count / 4000 - 1 / 6) < 0.03 for count in lengths.values())
    assert torch.equal(batch.mask, torch.arange(13) < batch.mask.sum(1, keepdim=True))
    assert DyckPrefixes(types=3, depth=2).accepts(batch.x).all()
    inside = (batch.latents["depth"][:, :-1] == 1).nonzero(as_tuple=True)
    opened = (batch.x[:, 1:][inside] < 3).double().mean().item()
    assert opened == pytest.approx(0.7, abs=0.02)
    assert long_prefixes(WORLD, 3, rng()).x.shape == (3, 501)


# -- excess loss -----------------------------------------------------------------------------------------------------


def conditionals(world):
    """P(next bracket, then any bracket | beginning) of a small world, from its enumerated rows."""
    support, k = world.support(), world.types
    begun, then = Counter(), {}
    for row, p in zip(support.batch.x.tolist(), support.weights.tolist(), strict=True):
        word = tuple(token for token in row[1:] if token < 2 * k)
        for end in range(len(word) + 1):
            begun[word[:end]] += p
            if end < len(word):
                then.setdefault(word[:end], Counter())[word[end]] += p
    return {word: {token: p / begun[word] for token, p in law.items()} for word, law in then.items()}


@pytest.mark.parametrize("on", ["all", "closers"])
@pytest.mark.parametrize("world", [DyckPrefixes(q=0.3, length=7), DyckWords(q=0.6, longest=6, stop=0.3)], ids=str)
def test_excess_loss_position_by_position(world, on):
    k, law = world.types, conditionals(world)
    rows = 25
    batch = world.sample(rows, rng(3))
    if isinstance(world, DyckPrefixes):  # what follows the last bracket is not among the enumerated rows
        batch = Batch(x=batch.x[:, :-1], mask=torch.arange(7) <= torch.randint(2, 7, (rows, 1), generator=rng(4)))
    models = random_models()
    found = excess_loss(Stack.of(*models), batch, world, on=on)
    assert batch.mask is not None
    for model, excess in zip(models, found.tolist(), strict=True):
        total = weight = 0.0
        for row, real in zip(batch.x, batch.mask.sum(1).tolist(), strict=True):
            said = model(row[None])[0].double().log_softmax(-1).tolist()
            for i in range(real):
                word = tuple(row[1 : i + 1].tolist())
                after = {t: p for t, p in law.get(word, {}).items() if on == "all" or t >= k}
                size = sum(after.values())
                weight += size
                total += sum(p * (math.log(p / size) - said[i][token]) for token, p in after.items())
        assert excess == pytest.approx(total / weight, rel=1e-5)


@pytest.mark.parametrize("attention", dyck.ATTENTIONS)
def test_probabilities_are_not_logits(attention):
    """An exact model is right at any strictness and loses nothing; its law is not taken for logits."""
    model = dyck.build(attention)
    for world, batch in ROWS.values():
        for at in ("open", "closers"):
            said = closing_accuracy(model, batch, world, outputs="probabilities", at=at, strict=0.999)
            assert said.tolist() == [1.0]
        with pytest.raises(ArgumentError, match="outputs='scores': these are probabilities"):
            closing_accuracy(model, batch, world, strict=0.8)
    for rows in ("prefixes", "long"):
        world, batch = ROWS[rows]
        assert abs(excess_loss(model, batch, world, outputs="probabilities").item()) < 1e-6
        with pytest.raises(ArgumentError, match="outputs='scores': these are probabilities"):
            excess_loss(model, batch, world)


@pytest.mark.parametrize("attention", dyck.ATTENTIONS)
def test_logarithms_of_exact_models_lose_nothing(attention):
    for rows in ("prefixes", "long"):
        world, batch = ROWS[rows]
        found = excess_loss(Stack.of(Logarithm(dyck.build(attention)), Logarithm(dyck.build(), 0.1)), batch, world)
        assert abs(found[0]) < 1e-6
        assert found[1] > 1e-4


def test_excess_loss_of_a_constant_model():
    """KL(law ‖ uniform) = ln 4 − entropy, with the closed-form entropies of the true law at every depth."""
    batch = Batch(x=WORLD.reference[None])
    depths = [len(stack) for stack in stacks(WORLD.reference.tolist(), 2)]
    entropies = [{0: math.log(2), 4: 0.0}.get(d, 1.5 * math.log(2)) for d in depths]
    expected = math.log(4) - sum(entropies) / len(entropies)
    assert excess_loss(Says(0.0, 0.0, 0.0, 0.0), batch, WORLD).item() == pytest.approx(expected)
    # a closer is expected with probability ½ inside and 1 at the top: −log of its share, ln 4, whatever the weights
    assert excess_loss(Says(0.0, 0.0, 0.0, 0.0), batch, WORLD, on="closers").item() == pytest.approx(math.log(4))


# -- pumping ---------------------------------------------------------------------------------------------------------


def generic(types, depth, width=11, seed=0):
    n, generator = 2 * types * depth + 1, rng(seed)
    scores, values = (torch.randn(n, m, generator=generator, dtype=torch.float64) for m in (n, width))
    return Tokenwise(scores, values - values.mean(1, keepdim=True))


@given(
    types=st.integers(1, 4),
    depth=st.integers(2, 5),
    copies=st.integers(0, 6),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=60)
def test_counts_are_the_symbols_of_the_rows(types, depth, copies, seed):
    draw = torch.randint(0, 10_000, (depth + 3,), generator=rng(seed)).tolist()
    pair = (draw[0] % types, 1 + draw[1] % depth)
    stack = [kind % types for kind in draw[2 : 3 + draw[2] % (depth - 1)]]
    world = DyckPrefixes(types=types, depth=depth)
    row = pumped_rows(copies, types=types, depth=depth, pair=pair, stack=stack)
    symbols = world.symbols(row[None])[0].tolist()
    counts = pumped_counts([copies, copies + 2], types=types, depth=depth, pair=pair, stack=stack)
    assert counts[0].tolist() == [symbols.count(symbol) for symbol in range(world.symbol_count)]
    kind, level = pair
    pumped = {kind * depth + level - 1, types * depth + kind * depth + level - 1}
    moved = (counts[1] - counts[0]).tolist()
    assert moved == [2.0 * (symbol in pumped) for symbol in range(world.symbol_count)]
    # the row is a prefix, it ends with a pair of type 0 on the stack, and the stack is what it should be
    assert world.accepts(row[None]).all()
    assert row[-2:].tolist() == [0, types]
    assert stacks(row.tolist(), types)[-1] == stack


def output(layer, symbols, own=None):
    """LN_0 of softmax attention from the last symbol of a row, token by token."""
    query = symbols[-1]
    weights = [math.exp(layer.scores[key, query]) for key in symbols]
    out = torch.stack([w * layer.values[key] for w, key in zip(weights, symbols, strict=True)]).sum(0) / sum(weights)
    out = out if own is None else out + own
    out = out - out.mean()
    return out / out.norm()


@pytest.mark.parametrize("under_norm", [False, True])
@pytest.mark.parametrize(("types", "depth", "pair", "heads"), [(2, 4, (1, 3), (0, 1)), (3, 3, (2, 1), (2, 1))])
def test_distances_token_by_token(types, depth, pair, heads, under_norm):
    layer, world = generic(types, depth), DyckPrefixes(types=types, depth=depth)
    own = torch.randn(layer.values.shape, generator=rng(9), dtype=torch.float64) if under_norm else None
    stacked = (1, heads[0]), (1, heads[1])
    copies = [0, 1, 4]
    found = pumping_distance(layer, copies, types=types, depth=depth, pair=pair, stacks=stacked, own=own)
    for n, distance in zip(copies, found.tolist(), strict=True):
        ends = []
        for stack in stacked:
            row = pumped_rows(n, types=types, depth=depth, pair=pair, stack=stack)
            symbols = world.symbols(row[None])[0].tolist()
            ends.append(output(layer, symbols, None if own is None else own[symbols[-1]]))
            counts = pumped_counts([n], types=types, depth=depth, pair=pair, stack=stack)
            seen = attended(layer, counts, symbols[-1], own=None if own is None else own[symbols[-1]])[0]
            assert torch.allclose(seen, ends[-1], atol=1e-12)
        assert distance == pytest.approx(float((ends[0] - ends[1]).norm()), abs=1e-12)


def test_whole_models_are_asked_at_the_end():
    (model,) = random_models(1)
    found = pumping_outputs(model, [0, 3], types=2, depth=4, pair=(1, 2), stacks=((0, 0), (0, 1)))
    for n, distance in zip([0, 3], found.tolist(), strict=True):
        pumped = "(" + "()" * n + ")"
        ends = [model(WORLD.prefix(f"{pumped}{stack}[]")[None])[0, -1] for stack in ("[[", "[(")]
        assert distance == pytest.approx(float((ends[0] - ends[1]).detach().norm()), rel=1e-5)
    exact = pumping_outputs(dyck.build("misleading"), [1, 50], types=2, depth=4)
    assert exact.tolist() == pytest.approx([dyck.top_distance(WORLD)] * 2, abs=1e-6)


def test_slopes_of_power_laws():
    copies = [1, 10, 100, 1000]
    assert log_slope(copies, torch.tensor([3 * n**-1.5 for n in copies])) == pytest.approx(-1.5, abs=1e-5)
    assert log_slope(copies, torch.ones(4)) == pytest.approx(0.0, abs=1e-12)


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: closing_accuracy(dyck.build(), b, WORLD, at="close"), "at='close': .*did you mean 'closers'"),
        (lambda b: closing_accuracy(dyck.build(), b, WORLD, outputs="probabilities", strict=1.5), "strict=1.5"),
        (lambda b: closing_accuracy(dyck.build(), b, WORLD, reads="symbol"), "reads='symbol'"),
        (lambda b: closing_accuracy(Says(0.0, 1.0), b, WORLD), "models with 2 outputs: must score all 4 brackets"),
        (lambda b: closing_accuracy(dyck.build(), b, WORLD, reads="symbols"), "a model that reads 6 symbols"),
        (lambda b: closing_accuracy(dyck.build(types=3), b, WORLD), "reads 8 tokens and writes 6 scores: types=2"),
        (lambda b: excess_loss(dyck.build(types=3), b, WORLD), "reads 8 tokens and writes 6 scores: types=2"),
        (lambda b: pumping_outputs(dyck.build(types=3), [1], types=2, depth=4), "reads 8 tokens and writes 6 scores"),
        (
            lambda b: closing_accuracy(minimal_first_layer(depth=3), b, WORLD, reads="symbols"),
            "reads 13 symbols .*types=2, depth=4 have 17 symbols",
        ),
        # as many symbols as one type to depth eight, and twice as many brackets
        (
            lambda b: excess_loss(
                minimal_first_layer(), DyckPrefixes(1, 8).sample(1, rng()), DyckPrefixes(1, 8), reads="symbols"
            ),
            "reads 17 symbols and writes 4 scores: types=1, depth=8 have 17 symbols and 2 brackets",
        ),
        (
            lambda b: closing_accuracy(
                Transformer(5, width=8, causal=True, tied=False, outputs=4), DyckWords().sample(2, rng()), DyckWords()
            ),
            "rows with token 5: the models read 5 tokens",
        ),
        (lambda b: closing_accuracy(dyck.build(), b, WORLD, outputs="logits"), "outputs='logits'"),
        (lambda b: excess_loss(dyck.build(), b, WORLD, on="openers"), "on='openers'"),
        (lambda b: asked(Batch(x=torch.tensor([[4]])), WORLD), "at='open': no position of these rows"),
        (lambda b: asked(Batch(x=torch.tensor([[4, 0, 0]])), WORLD, at="closers"), "at='closers': no position"),
        (lambda b: long_prefixes(WORLD, 3, rng(), lengths=(9, 8)), r"lengths\[1\]=8"),
        (lambda b: long_prefixes(WORLD, 3, rng(), lengths=(0, 8)), r"lengths\[0\]=0"),
        (lambda b: long_prefixes(WORLD, 0, rng()), "rows=0"),
        (lambda b: pumped_rows(-1, types=2, depth=4), "copies=-1"),
        (lambda b: pumped_counts([1], types=2, depth=4, pair=(2, 1)), "pair type=2"),
        (lambda b: pumped_counts([1], types=2, depth=4, pair=(0, 5)), "pair depth=5"),
        (lambda b: pumped_counts([1], types=2, depth=4, stack=()), r"stack=\(\): must hold 1 to 3"),
        (lambda b: pumped_counts([1], types=2, depth=4, stack=(0, 0, 0, 0)), "must hold 1 to 3 open brackets"),
        (lambda b: pumped_counts([1], types=2, depth=4, stack=(2,)), "stack type=2"),
        (lambda b: log_slope([1], torch.ones(1)), "needs at least two numbers"),
        (lambda b: log_slope([0, 1], torch.ones(2)), "needs at least two numbers ≥ 1"),
    ],
)
def test_mistakes_are_one_line(call, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        call(Batch(x=WORLD.reference[None]))
    assert "\n" not in str(caught.value)
