"""ReLU networks as lists of affine maps, put one after another and side by side without a superfluous layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Net:
    """x ↦ ReLU(… ReLU(x W_0 + b_0) …) W_n + b_n; one affine map alone has no ReLU."""

    weights: tuple[Float[Tensor, "before after"], ...]
    biases: tuple[Float[Tensor, " after"], ...]

    def __call__(self, x: Float[Tensor, "*rows reads"]) -> Float[Tensor, "*rows writes"]:
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = (x.relu() if i else x) @ weight + bias
        return x

    @property
    def depth(self) -> int:
        """How many affine maps."""
        return len(self.weights)

    @property
    def reads(self) -> int:
        return len(self.weights[0])

    @property
    def writes(self) -> int:
        return self.weights[-1].shape[1]


def net(weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Net:
    """A network of these weights in float64; a bias of None is zero."""
    wide = tuple(weight.double() for weight in weights)
    full = tuple(
        w.new_zeros(w.shape[1]) if bias is None else bias.double() for w, bias in zip(wide, biases, strict=True)
    )
    return Net(wide, full)


def affine(weight: Float[Tensor, "reads writes"], bias: Float[Tensor, " writes"] | None = None) -> Net:
    return net([weight], [bias])


def then(first: Net, second: Net) -> Net:
    """second(first(x)): the last map of the one and the first of the other become a single one."""
    joint = first.weights[-1] @ second.weights[0]
    shift = first.biases[-1] @ second.weights[0] + second.biases[0]
    return Net(
        (*first.weights[:-1], joint, *second.weights[1:]),
        (*first.biases[:-1], shift, *second.biases[1:]),
    )


def beside(parts: Sequence[Net]) -> Net:
    """All parts at once, each on its own inputs and outputs; shallow ones are deepened."""
    depth = max(part.depth for part in parts)
    parts = [deepen(part, depth) for part in parts]
    return Net(
        tuple(torch.block_diag(*(part.weights[i] for part in parts)) for i in range(depth)),
        tuple(torch.cat([part.biases[i] for part in parts]) for i in range(depth)),
    )


def deepen(part: Net, depth: int) -> Net:
    """The same function in so many affine maps: y = ReLU(y) − ReLU(−y)."""
    while part.depth < depth:
        eye = torch.eye(part.writes, dtype=torch.float64)
        part = then(part, net([torch.cat([eye, -eye], 1), torch.cat([eye, -eye])], [None, None]))
    return part


def passing(count: int) -> Net:
    """Numbers ≥ 0 passed on through one ReLU each."""
    eye = torch.eye(count, dtype=torch.float64)
    return net([eye, eye], [None, None])
