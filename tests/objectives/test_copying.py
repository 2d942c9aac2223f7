"""Copying: the target is the input, and padding counts for nothing."""

import torch
import torch.nn.functional as F

import sandtable as st
from sandtable.objectives import Copying
from sandtable.training import Adam

WORDS = st.worlds.DyckWords(longest=10)


def test_loss_row_by_row():
    model = st.models.Transformer(WORDS.vocab, layers=2, width=8, mlp=8, tied=False, norm="pre")
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)) * 0.5
    batch = WORDS.sample(6, torch.Generator().manual_seed(1))
    objective = Copying()
    example = objective.draw(batch, torch.Generator(), 0)
    params = dict(model.named_parameters())
    loss, _ = objective.loss(lambda p, inputs: torch.func.functional_call(model, p, (inputs,)), params, example)
    rows = [row[keep] for row, keep in zip(batch.x, batch.mask, strict=True)]
    losses = torch.cat([F.cross_entropy(model(row[None])[0], row, reduction="none") for row in rows])
    assert torch.allclose(loss, losses.mean(), rtol=1e-5)


def test_copying_is_learned_without_attention():
    model = st.models.Transformer(WORDS.vocab, layers=1, width=16, attention="uniform", tied=False)
    fit = st.fit(model, WORDS, Copying(), steps=150, batch_size=16, seeds=2, optimizer=Adam(0.03))
    batch = WORDS.sample(50, torch.Generator().manual_seed(2))
    assert st.probes.dyck.copying_accuracy(fit.models, batch, WORDS).tolist() == [1.0, 1.0]
