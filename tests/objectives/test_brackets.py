"""The next bracket and its regulariser: against row-by-row computations, and prefixes against the world's own stack."""

import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from sandtable.arguments import ArgumentError
from sandtable.models import Transformer
from sandtable.objectives import NextBracket, NextToken
from sandtable.theory.dyck.embeddings import minimal_first_layer, symbol_embedding
from sandtable.training import fit
from sandtable.worlds import Batch, DyckPrefixes, DyckWords

WORLD = DyckWords(longest=10)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def apply_of(model):
    return lambda params, inputs, want=(): torch.func.functional_call(model, params, (inputs,))


def ready(model):
    model.initialise(generator(1), 10.0)
    return model, dict(model.named_parameters())


@pytest.mark.parametrize("on", ["closers", "all"])
@pytest.mark.parametrize("error", ["cross-entropy", "squared"])
def test_loss_row_by_row(on, error):
    model, params = ready(minimal_first_layer(width=20, hidden=8))
    batch = WORLD.sample(12, generator())
    objective = NextBracket("symbols", on, error=error)
    loss, parts = objective.loss(apply_of(model), params, objective.draw(batch, generator(), 0))
    errors = []
    for row, real in zip(batch.x, batch.mask, strict=True):
        word = row[real][:-1]  # without <eos>
        out = model(WORLD.symbols(word[None]))[0]
        for i in range(len(word) - 1):
            if on == "closers" and word[i + 1] < 2:
                continue
            truth = F.one_hot(word[i + 1], 4).float()
            squared = (out[i] - truth).square().sum()
            errors.append(squared if error == "squared" else -out[i].log_softmax(-1)[word[i + 1]])
    assert float(loss) == pytest.approx(float(torch.stack(errors).mean()), rel=1e-5)
    assert float(parts["task"]) == float(loss)


def test_on_prefixes_it_is_next_token_among_brackets():
    world = DyckPrefixes(length=9)
    model, params = ready(Transformer(6, width=8, tied=False, outputs=4, causal=True))
    batch = world.sample(10, generator())
    ours, theirs = NextBracket(on="all"), NextToken()
    a, _ = ours.loss(apply_of(model), params, ours.draw(batch, generator(), 0))
    b, _ = theirs.loss(apply_of(model), params, theirs.draw(batch, generator(), 0))
    assert torch.allclose(a, b)
    support = DyckPrefixes(length=4).support()
    a, _ = ours.loss(apply_of(model), params, ours.expect(support))
    b, _ = theirs.loss(apply_of(model), params, theirs.expect(support))
    assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("law", ["nested", "released"])
def test_prefixes_are_words_and_symbols_are_the_worlds(law):
    chance = torch.rand(4000, 6, generator=generator())
    tokens, lengths = NextBracket("tokens", prefixes=law).prefix(chance)
    symbols, same = NextBracket("symbols", prefixes=law).prefix(chance)
    assert torch.equal(lengths, same)
    world = DyckWords()
    for length in lengths.unique().tolist():
        rows = lengths == length
        x = F.pad(tokens[rows, :length], (1, 0), value=world.bos)
        trace = world.brackets.trace(x)
        assert not bool(trace.wrong.any())
        assert bool((trace.depth[:, -1] == 0).all())
        assert torch.equal(world.symbols(x)[:, 1:], symbols[rows, :length])
    if law == "nested":
        assert stats.chisquare(torch.bincount(lengths // 2, minlength=5)[1:]).pvalue > 1e-3
        assert stats.chisquare(torch.bincount(tokens[:, 0])).pvalue > 1e-3
    else:
        assert set(lengths.tolist()) == {18}
        # Without its extra pair a row has 4 openers of each type at depths 1 … 4: the extra one has any of 8 symbols.
        extra = F.one_hot(symbols, 17).sum(1)[:, :8] - 1
        assert bool((extra.sum(1) == 1).all())
        assert stats.chisquare(extra.sum(0)).pvalue > 1e-3


@pytest.mark.parametrize("law", ["nested", "released"])
@pytest.mark.parametrize("reads", ["tokens", "symbols"])
def test_contrast_row_by_row(law, reads):
    size = 17 if reads == "symbols" else 6
    model, params = ready(Transformer(size, width=8, mlp=8, norm="pre", tied=False, outputs=4, causal=True))
    batch = WORLD.sample(6, generator())
    objective = NextBracket(reads, contrast=0.7, prefixes=law)
    loss, parts = objective.loss(apply_of(model), params, objective.draw(batch, generator(3), 0))
    chance = torch.rand(1, 6, objective.depth + 2, generator=generator(3))[0]  # the numbers that `draw` used
    prefix, lengths = objective.prefix(chance)
    gaps = []
    for row, real, p, length in zip(batch.x, batch.mask, prefix, lengths.tolist(), strict=True):
        word = row[real][:-1]
        alone = (WORLD.symbols(word[None]) if reads == "symbols" else word[None])[0]
        longer = torch.cat([alone[:1], p[:length], alone[1:]])
        gaps.append((model(longer[None])[0, -len(alone) :] - model(alone[None])[0]).square())
    assert float(parts["contrast"]) == pytest.approx(float(torch.cat(gaps).mean()), rel=1e-5)
    assert float(loss) == pytest.approx(float(parts["task"] + 0.7 * parts["contrast"]), rel=1e-6)


def test_a_stack_trains_like_single_models_and_the_regulariser_lowers_the_contrast():
    model = minimal_first_layer(width=20, hidden=8)
    objective = NextBracket("symbols", contrast=1.0)
    options = dict(steps=4, batch_size=8, seeds=2, chunk=2, block=4)
    together = fit(model, WORLD, objective, **options)
    alone = fit(model, WORLD, objective, stacked=False, **options)
    assert torch.allclose(together.losses, alone.losses, atol=1e-5)
    assert set(together.history) == {"loss", "task", "contrast"}
    grid = fit(model, WORLD, objective, grid={"objective.contrast": [0.0, 0.3]}, **options)
    assert torch.equal(grid.where(objective__contrast=0.0).losses[:, 0], grid.losses[:2, 0])
    assert torch.equal(
        grid.groups[0].parts[0][0].params["embed.W_E"][1], symbol_embedding("E1", types=2, depth=4, width=20)
    )


def test_rows_without_a_closer_have_no_task():
    """[ and [( hold openers alone: nothing is asked, no model is harmed, and the contrast still counts."""
    model, params = ready(minimal_first_layer(width=20, hidden=8))
    batch = Batch(x=torch.tensor([[4, 0, 1], [4, 0, 0]]))
    for contrast in (0.0, 0.5):
        objective = NextBracket("symbols", contrast=contrast)
        loss, parts = objective.loss(apply_of(model), params, objective.draw(batch, generator(), 0))
        assert float(parts["task"]) == 0.0
        assert float(loss) == pytest.approx(contrast * float(parts.get("contrast", 0.0)))
        gradients = torch.autograd.grad(loss, [p for p in params.values() if p.requires_grad], allow_unused=True)
        assert all(g is None or bool(g.isfinite().all()) for g in gradients)
    trained = fit(model, DyckPrefixes(length=2), NextBracket("symbols"), steps=30, batch_size=2, seeds=2)
    assert bool(trained.losses.isfinite().all())
    assert all(bool(value.isfinite().all()) for value in trained.models.params.values())


def test_symbols_are_numbered_by_the_depth_of_the_objective():
    """Whatever the depth of the world that drew the rows: shallower ones are read rightly, deeper ones refused."""
    objective = NextBracket("symbols", on="all")
    drawn = DyckPrefixes(depth=2, length=6).sample(5, generator())
    inputs = objective.draw(drawn, generator(), 0)["inputs"]
    assert torch.equal(inputs, DyckPrefixes(depth=4).symbols(drawn.x)[:, :-1])
    assert not torch.equal(inputs, drawn.latents["symbol"][:, :-1])
    with pytest.raises(ArgumentError, match="a bracket deeper than 3"):
        fit(minimal_first_layer(depth=3), DyckPrefixes(), NextBracket("symbols", depth=3), steps=2, batch_size=20)


def test_tables():
    one, two, three = (symbol_embedding(kind, types=2, depth=4) for kind in ("E1", "E2", "E3"))
    assert torch.equal(one, torch.eye(17))
    assert two.shape == (17, 9)
    assert three.shape == (17, 7)
    ranks = [int(torch.linalg.matrix_rank(table[:-1].double())) for table in (one, two, three)]
    # Types and depths each sum to the same vector, which costs E2 one; with plain depths types alone span four.
    assert ranks == [16, 7, 6]
    plain = symbol_embedding("E2", types=2, depth=4, depths="plain")
    assert plain.shape == (17, 10)
    assert torch.equal(plain[8, 4:9], torch.eye(5)[0])  # ] that closes a pair of depth 1 leaves depth 0
    angle = torch.atan2(three[:4, 5], three[:4, 4])
    assert torch.allclose(angle.tan(), torch.tensor([1 / 5, 2 / 4, 3 / 3, 4 / 2]))
    assert not bool(symbol_embedding("E3", types=2, depth=4, width=50)[:, 7:].any())


def test_bad_input():
    with pytest.raises(ArgumentError, match="on='openers'"):
        NextBracket(on="openers")
    with pytest.raises(ArgumentError, match="contrast=-1"):
        NextBracket(contrast=-1)
    with pytest.raises(ArgumentError, match="types=3: the data have 6 tokens"):
        NextBracket(types=3).draw(WORLD.sample(2, generator()), generator(), 0)
    with pytest.raises(ArgumentError, match=r"contrast=0\.3: the inserted prefixes are drawn"):
        NextBracket(contrast=0.3).expect(DyckPrefixes(length=3).support())
    with pytest.raises(ArgumentError, match="width=12"):
        symbol_embedding("E1", types=2, depth=4, width=12)
    with pytest.raises(ArgumentError, match="depths='plain'"):
        symbol_embedding("E1", types=2, depth=4, depths="plain")


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        (minimal_first_layer(types=3), NextBracket(reads="symbols")),
        (minimal_first_layer(types=1, depth=2), NextBracket(reads="symbols")),
        (minimal_first_layer(), NextBracket()),
        (Transformer(6, width=8, causal=True, tied=False, outputs=3), NextBracket()),
        (minimal_first_layer(types=4, depth=2), NextBracket(reads="symbols")),  # 17 symbols too
    ],
)
def test_a_model_of_another_vocabulary_is_refused(model, objective):
    with pytest.raises(ArgumentError, match="a model that reads"):
        fit(model, DyckPrefixes(), objective, steps=2, batch_size=4)
