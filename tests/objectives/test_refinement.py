"""Refinement and teacher forcing: the loss row by row, what is drawn, where gradients go."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

import sandtable as st
from sandtable.arguments import ArgumentError
from sandtable.inputs import EOS, MASK, NEVER_WRITTEN, PAD, RESERVED
from sandtable.models import Pair, Seq2Seq
from sandtable.objectives import Refinement, TeacherForcing

WORLD = st.worlds.DropTask(symbols=6, length=4)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def small(causal=False):
    model = Seq2Seq(WORLD.vocab, layers=1, heads=2, width=8, longest=8, longest_target=6, causal=causal).double()
    generator = rng(1)
    for parameter in model.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def applied(model):
    def apply(params, inputs, want=()):
        return functional_call(model, dict(params), (inputs,), {"want": want} if want else {})

    return apply, {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}


def row_by_row(model, example, stages, counted):
    """The losses of every stage and of the length, each row on its own and without padding."""
    sums, weights = [0.0] * stages, [0] * stages
    length = []
    for i in range(len(example["target"])):
        n = int(example["real"][i].sum())
        target, state = example["target"][i, :n], example["start"][i, :n]
        shown = example["start"][i, :n] == target
        for s in range(stages):
            logits, found = model(Pair(example["source"][i : i + 1], None, state[None]), want=("hook_length",))
            losses = F.cross_entropy(logits[0], target, reduction="none")
            every = counted == "all" or s > 0
            kept = torch.ones(n, dtype=torch.bool) if every else ~shown | (target == EOS)
            sums[s], weights[s] = sums[s] + losses[kept].sum(), weights[s] + int(kept.sum())
            written = logits[0].clone()
            written[:, list(NEVER_WRITTEN)] = -math.inf
            state = written.argmax(-1)
        length.append(F.cross_entropy(found["hook_length"], torch.tensor([n - 1])))
    return [float(a / b) for a, b in zip(sums, weights, strict=True)], float(sum(length) / len(length))


@pytest.mark.parametrize("counted", ["all", "noised"])
@pytest.mark.parametrize("stages", [1, 3])
def test_refinement_row_by_row(stages, counted):
    model, batch = small(), WORLD.sample(7, rng())
    # An answer equal to the noise would look as if it had been shown; [MASK]s never do.
    objective = Refinement(0.4, noise="mask", stages=stages, counted=counted, length=0.3)
    example = objective.draw(batch, rng(3), 0)
    apply, params = applied(model)
    with torch.no_grad():
        loss, metrics = objective.loss(apply, params, example)
        expected, length = row_by_row(model, example, stages, counted)
    assert [float(metrics[f"stage {s + 1}"]) for s in range(stages)] == pytest.approx(expected, rel=1e-9)
    assert float(metrics["length"]) == pytest.approx(length, rel=1e-9)
    assert float(loss) == pytest.approx(sum(expected) / stages + 0.3 * length, rel=1e-9)


def test_no_gradient_goes_through_the_likeliest_word():
    """The gradient of two stages is the mean of those of two separate passes, with X^(1) a constant."""
    model, batch = small(), WORLD.sample(7, rng())
    apply, params = applied(model)
    both = Refinement(stages=2, length=0.0)
    example = both.draw(batch, rng(3), 0)
    grads = torch.autograd.grad(both.loss(apply, params, example)[0], list(params.values()))
    one = Refinement(stages=1, length=0.0)
    total = None
    for start in (example["start"], None):
        if start is None:
            with torch.no_grad():
                logits = apply(params, Pair(example["source"], example["seen"], example["start"], example["real"]))
            logits[..., list(NEVER_WRITTEN)] = -math.inf
            start = torch.where(example["real"], logits.argmax(-1), PAD)
            assert not torch.equal(start, example["start"])
        loss, _ = one.loss(apply, params, {**example, "start": start})
        part = torch.autograd.grad(loss, list(params.values()))
        total = part if total is None else [a + b for a, b in zip(total, part, strict=True)]
    for name, mine, theirs in zip(params, grads, total, strict=True):
        assert torch.allclose(mine, theirs / 2, atol=1e-12)
        assert bool((mine != 0).any()) == (name != "W_L")


@pytest.mark.parametrize("noise", ["random", "mask"])
def test_what_is_drawn(noise):
    batch, unmask = WORLD.sample(20_000, rng()), 0.3
    example = Refinement(unmask, noise=noise).draw(batch, rng(1), 0)
    real, target, start = example["real"], example["target"], example["start"]
    assert torch.equal(real, batch.mask)
    assert (start[~real] == PAD).all()
    assert (start[real & (target == EOS)] == EOS).all()
    words = start[real & (target != EOS)]
    same = (words == target[real & (target != EOS)]).double().mean()
    size = len(WORLD.vocab) - RESERVED
    assert float(same) == pytest.approx(unmask + (1 - unmask) / size * (noise == "random"), abs=0.01)
    if noise == "mask":
        assert ((start == target) | (start == MASK))[real].all()
    else:
        changed = (start != target) & real
        counts = torch.bincount(start[changed], minlength=len(WORLD.vocab)).double()
        assert (counts[:RESERVED] == 0).all()
        # A word is noise for all targets but itself: only the target's words are a little rarer.
        assert counts[RESERVED:].min() > 0.7 * counts[RESERVED:].max()


def test_blocks_of_steps_are_drawn_with_their_dimensions_in_front():
    batch = WORLD.sample(12, rng()).fold(3)
    for objective in (Refinement(), TeacherForcing()):
        block = objective.draw_block(batch, rng(1), range(3))
        assert all(value.shape[:2] == (3, 4) for value in block.values())
        one = objective.draw_block(WORLD.sample(12, rng()), rng(1), range(1))
        assert all(torch.equal(value.flatten(0, 1), one[name]) for name, value in block.items())


def test_teacher_forcing_is_the_log_probability_of_the_target():
    model, batch = small(causal=True), WORLD.sample(5, rng())
    objective = TeacherForcing()
    example = objective.draw(batch, rng(), 0)
    apply, params = applied(model)
    total, count = 0.0, 0
    with torch.no_grad():
        loss, _ = objective.loss(apply, params, example)
        for row in range(5):
            memory, _ = model.encode(batch.given.x[row : row + 1])
            progress, word = model.start(memory), torch.tensor([PAD])
            for token in batch.x[row][batch.mask[row]]:
                logits, progress = model.extend(word, progress)
                total, count = total - logits.log_softmax(-1)[0, token], count + 1
                word = token[None]
    assert float(loss) == pytest.approx(float(total / count), rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Refinement(unmask=1.5), "unmask=1.5"),
        (lambda: Refinement(noise="masks"), "did you mean 'mask'"),
        (lambda: Refinement(stages=0), "stages=0"),
        (lambda: Refinement(counted="none"), "counted='none': must be one of all, noised"),
        (lambda: Refinement(length=-1), "length=-1"),
        (lambda: st.fit(small(causal=True), WORLD, Refinement(), steps=1), "Refinement needs a Seq2Seq with causal=F"),
        (lambda: st.fit(small(), WORLD, TeacherForcing(), steps=1), "TeacherForcing needs a Seq2Seq with causal=True"),
        (
            lambda: st.fit(st.models.Transformer(9, layers=1, width=8), WORLD, TeacherForcing(), steps=1),
            "model of Transformer: TeacherForcing needs a Seq2Seq",
        ),
        (
            lambda: st.fit(small(), st.worlds.DyckWords(), Refinement(), steps=1),
            "needs integer tokens whose `given` is the source",
        ),
        (
            lambda: st.fit(small(), st.worlds.DropTask(symbols=6, length=6), Refinement(), steps=1),
            "targets of 7 positions: this model has longest_target=6",
        ),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
