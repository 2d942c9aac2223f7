"""Masked prediction with a mask law: its loss state by state, exactly and drawn, and what its best model loses."""

import pytest
import torch

import sandtable as st
from sandtable.arguments import ArgumentError
from sandtable.decoding import MaskedNetwork, ModelBlocks
from sandtable.objectives import MaskedBlocks
from sandtable.theory.gmlm import chains
from sandtable.worlds import AdaptiveBlocks, Blocks, CliqueIsing, Table, UniformSize, UniformSubset

LAW = Table.random(3, torch.Generator().manual_seed(0), symbols=3)
LOOKS = AdaptiveBlocks.of(3, [(0,), (1, 2)], lambda x: torch.stack([x[:, 0] + 1.0, 3.0 - x[:, 0]], 1) / 4, symbols=3)
MASKS = pytest.mark.parametrize(
    "masks",
    [UniformSize(3, 2), UniformSubset(3), Blocks(3, ((0,), (1, 2)), (0.2, 0.8)), LOOKS],
    ids=lambda m: type(m).__name__,
)


def says(ids):
    """A fixed model: logits that depend on all that is seen, the mask token (3) included."""
    wave = torch.arange(9, dtype=torch.float64).view(3, 3)
    return (
        torch.sin(ids.double() @ torch.arange(1.0, 10.0, dtype=torch.float64).view(3, 3) + 1.0)[..., None] * wave.cos()
    )


def by_hand(masks):
    total = 0.0
    for x, p in zip(LAW.states, LAW.probs, strict=True):
        for hidden, q in zip(masks.family, masks.probs(x[None])[0], strict=True):
            logs = says(torch.where(hidden, 3, x)[None])[0].log_softmax(-1)
            total -= float(p * q * sum(logs[i, x[i]] for i in range(3) if hidden[i]))
    return total


@MASKS
def test_the_exact_loss(masks):
    objective = MaskedBlocks(masks, mask=3, symbols=3)
    example = objective.expect(LAW.expectation)
    assert len(example["inputs"].unique(dim=0)) == len(example["inputs"])
    assert float(objective.score(says(example["inputs"]), example)) == pytest.approx(by_hand(masks), rel=1e-12)


@MASKS
def test_the_drawn_loss_is_that_on_average(masks):
    objective, generator = MaskedBlocks(masks, mask=3, symbols=3), torch.Generator().manual_seed(1)
    batch = LAW.sample(200_000, generator)
    example = objective.draw(batch, generator, 0)
    assert float(objective.score(says(example["inputs"]), example)) == pytest.approx(by_hand(masks), rel=0.02)


def test_the_best_loss_is_that_of_the_marginals():
    """Conditional entropy plus total correlation, for a model that says p(x_i | x_−K) itself."""
    masks = UniformSize(3, 2)
    objective = MaskedBlocks(masks, mask=3, symbols=3)
    example = objective.expect(LAW.expectation)
    hidden = example["inputs"] == 3
    marginals = LAW.conditional(example["inputs"].masked_fill(hidden, 0), hidden)
    best = float(objective.score(marginals.clamp(min=1e-300).log(), example))
    gap = chains.expected_total_correlation(LAW, masks)
    assert gap > 0.01
    assert best == pytest.approx(chains.conditional_entropy(LAW, masks) + gap, rel=1e-12)


def test_stacked_models_learn_it():
    masks = UniformSize(3, 1)
    net = st.models.Transformer(
        4, width=16, mlp=32, norm="pre", positions="learned", longest=3, outputs=3, tied=False, biases=True
    )
    adam = st.training.Adam(0.01)
    objective = MaskedBlocks(masks, mask=3, symbols=3)
    exact = st.fit(net, LAW.expectation, objective, steps=300, seeds=3, optimizer=adam, schedule=st.training.Cosine())
    floor = chains.conditional_entropy(LAW, masks)
    assert (exact.losses[:, -1] - floor).tolist() == pytest.approx([0, 0, 0], abs=0.01)
    assert float(exact.losses[:, 0].min()) > floor + 0.05
    drawn = st.fit(net, LAW, objective, steps=40, batch_size=50, seeds=2, optimizer=adam)
    assert float(drawn.losses[:, -5:].mean()) < float(drawn.losses[:, 0].mean())


@pytest.mark.parametrize("masks", [UniformSize(64, 8), UniformSubset(64, 0.15)], ids=repr)
def test_one_mask_law_trains_and_samples_at_any_size(masks):
    """The same object, with the same numbers: what training hides, one step of a sampler draws anew."""
    world = CliqueIsing(64, 32, 0.05)
    batch = world.sample(50, torch.Generator().manual_seed(0))
    example = MaskedBlocks(masks, mask=2, symbols=2).draw(batch, torch.Generator().manual_seed(1), 0)
    hidden = example["inputs"] == 2
    assert torch.equal(hidden, masks.hide(batch.x, torch.Generator().manual_seed(1)))
    flips = MaskedNetwork(lambda ids: _surely_not(batch.x), mask=2, vocab_size=2)
    step = ModelBlocks(flips, masks, within="independent")(batch.x, torch.Generator().manual_seed(1))
    assert torch.equal(step != batch.x, hidden)
    assert torch.equal(example["target"].sum(2) > 0, hidden)


def _surely_not(x):
    """Logits of the other symbol."""
    return torch.stack([x, 1 - x], -1) * 1e4


@pytest.mark.parametrize("masks", [UniformSize(3, 2), UniformSubset(3), Blocks(3, ((0,), (1, 2)))], ids=repr)
def test_masks_are_drawn_where_the_batch_is(masks):
    """On "meta", which holds no numbers and refuses all other devices."""
    batch = LAW.sample(10, torch.Generator().manual_seed(0)).map(lambda t: t.to("meta"))
    example = MaskedBlocks(masks, mask=3, symbols=3).draw(batch, torch.Generator().manual_seed(1), 0)
    assert {t.device.type for t in example.values()} == {"meta"}


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="must be a mask law"):
        MaskedBlocks(0.15, mask=3, symbols=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="symbols=1"):
        MaskedBlocks(UniformSize(3, 1), mask=3, symbols=1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (st.models.Transformer(3, width=4), "mask=3: the model reads tokens from 0 to 2"),
        (st.models.Transformer(4, width=4), "symbols=3: the model scores 4; it needs outputs=3"),
        (torch.nn.Embedding(4, 2), r"model: its outputs have the shape \(27, 3, 2\); must be \(27, 3, 3\)"),
    ],
    ids=["reads too few", "scores too many", "another shape"],
)
def test_models_that_do_not_fit_are_refused(model, message):
    with pytest.raises(ArgumentError, match=message):
        st.fit(model, LAW.expectation, MaskedBlocks(UniformSize(3, 1), mask=3, symbols=3), steps=1)
