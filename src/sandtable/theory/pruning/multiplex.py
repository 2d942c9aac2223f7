"""Several ReLU networks in one, told which of them to be (thesis, Lemma 2.2.19, corrected)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from sandtable.arguments import ArgumentError, number, one_of
from sandtable.models import DeepMLP
from sandtable.theory.dyck.lookup import network


def multiplexer(networks: Sequence[DeepMLP], bound: float, *, spacing: float = 2.0, biases: str = "chosen") -> DeepMLP:
    """[k; x] ↦ f_k(x) for k in 1 … K and networks f_k with one hidden layer, as one network with one hidden layer.

    A hidden unit of f_i with pre-activation u, |u| ≤ M, becomes ReLU(u + 2M(k − i)) − ReLU(u + 2M(k − i) − M): 0 for
    k < i, ReLU(u) for k = i, M for k > i. These constants and the output bias of f_k are a function of k alone.
    Printed are offsets only M apart (`spacing=1`), where k = i + 1 gives M + u for u < 0, and the sum of all output
    biases (`biases="summed"`).
    """
    if not networks or any(net.depth != 2 or not net.config["biases"] for net in networks):
        raise ArgumentError("networks: must be at least one, each with one hidden layer and biases")
    if len({(net.config["width"], net.out_width) for net in networks}) > 1:
        raise ArgumentError("networks: must all have the same width and out_width")
    m, step = number("bound", bound, above=0.0), number("spacing", spacing, above=0.0)
    one_of("biases", biases, ("chosen", "summed"))
    total = torch.stack([net.get_parameter("b_1").detach().double() for net in networks]).sum(0)
    inner, shift, outer, constants, past = [], [], [], [], torch.zeros_like(total)
    for i, net in enumerate(networks, start=1):
        w0, b0, w1, b1 = (net.get_parameter(name).detach().double() for name in ("W_0", "b_0", "W_1", "b_1"))
        told = torch.full((1, w0.shape[1]), step * m, dtype=torch.float64)
        for low, sign in ((0.0, 1.0), (m, -1.0)):
            inner.append(torch.cat([told, w0]))
            shift.append(b0 - step * m * i - low)
            outer.append(sign * w1)
        constants.append((b1 if biases == "chosen" else total) - past)
        past = past + m * w1.sum(0)
    # c_1 + Σ_i (c_i − c_{i−1}) (ReLU(k − i + 1) − ReLU(k − i)): a staircase through the constants.
    for i, (before, after) in enumerate(pairwise(constants), start=2):
        inner.append(torch.eye(len(inner[0]), 1, dtype=torch.float64).expand(-1, 2))
        shift.append(torch.tensor([1.0 - i, -1.0 * i], dtype=torch.float64))
        outer.append(torch.stack([after - before, before - after]))
    return network([torch.cat(inner, 1), torch.cat(outer)], [torch.cat(shift), constants[0]])
