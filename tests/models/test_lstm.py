"""Our LSTM against torch.nn.LSTM with the same weights, alone and in a stack."""

import pytest
import torch
from test_transformer import rng, same
from torch import nn
from torch.func import functional_call, vmap

from sandtable.arguments import ArgumentError
from sandtable.models import LSTM, Stack, Tokens


def theirs_and_ours(layers=2, vocab=5, width=6, hidden=7, outputs=4):
    torch.manual_seed(0)
    embed, lstm = nn.Embedding(vocab, width).double(), nn.LSTM(width, hidden, layers, batch_first=True).double()
    head = nn.Linear(hidden, outputs).double()
    ours = LSTM(vocab, width=width, hidden=hidden, layers=layers, outputs=outputs).double()
    pairs = {"embed.W_E": embed.weight, "unembed.W_U": head.weight.T, "unembed.b_U": head.bias}
    for i in range(layers):
        at, part = f"layers.{i}", {name: getattr(lstm, f"{name}_l{i}") for name in ("weight_ih", "weight_hh")}
        bias = getattr(lstm, f"bias_ih_l{i}") + getattr(lstm, f"bias_hh_l{i}")
        pairs |= {f"{at}.W_x": part["weight_ih"].T, f"{at}.W_h": part["weight_hh"].T, f"{at}.b": bias}
    assert set(pairs) == set(ours.matching("*"))
    with torch.no_grad():
        for name, value in pairs.items():
            ours.get_parameter(name).copy_(value)
    return (lambda ids: head(lstm(embed(ids))[0])), ours, (lambda ids: lstm(embed(ids))[0]), lstm.weight_hh_l0


@pytest.mark.parametrize("layers", [1, 2])
def test_outputs_states_and_gradients_are_those_of_torch(layers):
    theirs, ours, states, recurrent = theirs_and_ours(layers)
    ids = torch.randint(5, (3, 11), generator=rng(1))
    logits, found = ours(ids, want=(f"layers.{layers - 1}.hook_h",))
    same(logits, theirs(ids))
    same(found[f"layers.{layers - 1}.hook_h"], states(ids))
    same(ours(Tokens(ids, None, torch.tensor(7))), logits)  # an LSTM has no positions that could be shifted
    mine = torch.autograd.grad(logits.square().sum(), ours.layers[0].W_h)[0]
    same(mine, torch.autograd.grad(theirs(ids).square().sum(), recurrent)[0].T, atol=1e-8)


def test_a_stack_gives_what_its_models_give():
    models = [LSTM(3, width=4, hidden=5, outputs=2).initialise(rng(i)).double() for i in range(3)]
    ids = torch.randint(3, (2, 6), generator=rng(9))
    same(Stack.of(*models)(ids), torch.stack([m(ids) for m in models]).detach())
    each = torch.stack([ids, ids.flip(1), ids.roll(1, 1)])
    out = vmap(lambda p, x: functional_call(models[0], p, (x,)))(Stack.of(*models).params, each)
    same(out.detach(), torch.stack([m(x) for m, x in zip(models, each, strict=True)]).detach())


def test_it_starts_as_in_torch_and_is_made_anew():
    model = LSTM(3, width=50, hidden=64, outputs=2).initialise(rng(0))
    largest = {name: float(parameter.detach().abs().max()) for name, parameter in model.named_parameters()}
    assert 1.5 < largest.pop("embed.W_E") < 5
    assert all(0.6 / 8 < size <= 1 / 8 for size in largest.values())
    assert model.replace(hidden=8).config == {**model.config, "hidden": 8}
    with pytest.raises(ArgumentError, match="hiden: not a setting of LSTM; did you mean 'hidden'"):
        model.replace(hiden=3)
    with pytest.raises(ArgumentError, match="hook_h"):
        model(torch.zeros(1, 2, dtype=torch.long), want=("hook_h",))
