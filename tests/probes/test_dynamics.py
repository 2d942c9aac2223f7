"""Norms and rotations of every layer against numpy, on our models and on Hugging Face's."""

import numpy as np
import pytest
import torch
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.models import Normal, Stack, Transformer
from sandtable.objectives import MaskedLM
from sandtable.probes.dynamics import attention_matrices, rotations, watch_norms, watch_values
from sandtable.training import fit
from sandtable.worlds import TopicModel

WORLD = TopicModel(3, 2, length=8, present=1)
MODEL = Transformer(WORLD.vocab, layers=3, heads=2, width=4, initial={"*": Normal(0.3)})


def test_every_layer_of_ours():
    assert attention_matrices(MODEL) == [{k: f"blocks.{i}.attn.W_{k}" for k in "VQK"} for i in range(3)]


@pytest.mark.parametrize(
    ("names", "queries"),
    [
        (["bert.encoder.layer.0.attention.self.query.weight", "bert.encoder.layer.10.attention.self.query.weight"], 2),
        (["albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query.weight"], 1),
        (["model.distilbert.transformer.layer.0.attention.q_lin.weight"], 1),
        (["model.encoder.layers.0.self_attn.q_proj.weight", "model.decoder.layers.0.encoder_attn.q_proj.weight"], 2),
    ],
)
def test_other_spellings(names, queries):
    swaps = [("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q_proj", "k_proj", "v_proj")]
    every = []
    for name in names:
        q, k, v = next(swap for swap in swaps if swap[0] in name)
        every += [name.replace(q, k), name.replace("weight", "bias"), name.replace(q, v), name]
    found = attention_matrices([*every, "lm_head.query_norm.weight", "pooler.dense.weight"])
    assert [layer["Q"] for layer in found] == names
    assert len(found) == queries
    assert all("k" in layer["K"] and "v" in layer["V"] and "bias" not in "".join(layer.values()) for layer in found)


def test_no_separate_matrices():
    with pytest.raises(ArgumentError, match="no separate query, key and value"):
        attention_matrices(nn.Linear(2, 2))


def test_norms_and_rotations_of_a_run():
    watch = watch_norms(MODEL) | watch_values(MODEL)
    assert list(watch)[:3] == ["0.W_K", "0.W_Q", "0.W_V"]
    at = tuple(range(0, 21, 5))
    result = fit(MODEL, WORLD, MaskedLM(), steps=20, seeds=3, batch_size=4, watch=watch, watch_every=5, snapshots=at)
    for layer in range(3):
        for kind in "KQV":
            for t, step in enumerate(at):
                matrices = result.snapshot(step)[f"blocks.{layer}.attn.W_{kind}"].numpy()
                flat = np.concatenate([matrices[:, h] for h in range(2)], axis=2).reshape(3, -1)
                np.testing.assert_allclose(
                    result.watched[f"{layer}.W_{kind}"][:, t], np.linalg.norm(flat, axis=1), rtol=1e-5
                )
        later, turned = rotations(result.watched[f"{layer}.values"], result.watched_at, lag=10)
        assert later == [10, 15, 20]
        for t, step in enumerate(later):
            a, b = (
                result.snapshot(s)[f"blocks.{layer}.attn.W_V"].double().flatten(1).numpy() for s in (step - 10, step)
            )
            cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            np.testing.assert_allclose(turned[:, t], (1 - cosine) / 2, atol=1e-9)


def test_rotation_of_known_turns():
    angles = torch.tensor([0.0, 0.3, 0.6, 1.6])
    record = torch.stack([angles.cos(), angles.sin()], dim=-1)[None] * torch.tensor([1.0, 5.0, 2.0, 9.0])[:, None]
    later, turned = rotations(record, [0, 10, 20, 25], lag=10)
    assert later == [10, 20]
    torch.testing.assert_close(turned, torch.full((1, 2), float((1 - np.cos(0.3)) / 2), dtype=torch.float64))
    with pytest.raises(ArgumentError, match="watch_every=7"):
        rotations(record, [0, 10, 20, 25], lag=7)


def test_watches_work_on_a_stack_of_any_module():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))

    modules = [Attention(), Attention()]
    norms = watch_norms(modules[0])["0.W_V"](Stack.of(*modules).params)
    torch.testing.assert_close(norms, torch.stack([torch.linalg.matrix_norm(m.value.weight) for m in modules]))
