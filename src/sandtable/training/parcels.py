"""Parameters that are trained together lie side by side in memory: an update is a few operations on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.models import match_names
from sandtable.training.optimizers import Optimizer, State
from sandtable.training.schedules import Freezing, Frozen, Stages, ever_frozen

_MOST = {"cpu": 2**16, "cuda": 2**22}
"""Numbers of a parcel with several parameters: more would fall out of the cache from one operation to the next."""


@dataclass
class Parcel:
    """One parameter of all models, or several as the columns of one matrix, and what the optimiser keeps for them."""

    names: tuple[str, ...]
    values: Tensor
    state: State
    sizes: tuple[int, ...]

    def gather(self, of: Mapping[str, Tensor]) -> Tensor:
        """What belongs to these parameters, one tensor each, laid out as `values` are."""
        if len(self.names) == 1:
            return of[self.names[0]]
        return torch.cat([of[name].reshape(len(self.values), -1) for name in self.names], dim=1)

    def spread(self, tensor: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every parameter's part of a tensor laid out as `values` are, as views; others belong to all alike."""
        if len(self.names) == 1 or tensor.shape != self.values.shape:
            return dict.fromkeys(self.names, tensor)
        parts = tensor.split(self.sizes, dim=1)
        return {name: part.view(like[name].shape) for name, part in zip(self.names, parts, strict=True)}


def pack(
    params: Mapping[str, Float[Tensor, "models ..."]],
    trainable: Sequence[str],
    optimizer: Optimizer,
    freezing: Freezing,
    steps: int,
) -> list[Parcel]:
    """The trainable parameters in parcels, copied.

    Only what is frozen at the same steps comes together, and only where the optimiser treats every number by itself.
    """
    # A kind of optimiser says so itself: one that is derived from ours may look at shapes.
    elementwise = vars(type(optimizer)).get("elementwise", False)
    alone = not elementwise or not isinstance(freezing, Frozen | Stages)
    off = [set(match_names(patterns, list(params))) for patterns in ever_frozen(freezing, steps)]
    groups: dict[object, list[str]] = {}
    for name in trainable:
        groups.setdefault(name if alone else tuple(name in frozen for frozen in off), []).append(name)
    parcels = []
    for names in groups.values():
        most = _MOST.get(params[names[0]].device.type, _MOST["cpu"])
        held: list[str] = []
        for name in [*names, None]:
            if held and (name is None or sum(params[n].numel() for n in [*held, name]) > most):
                parcels.append(_parcel(held, params, optimizer))
                held = []
            held += [name] if name is not None else []
    return parcels


def _parcel(names: Sequence[str], params: Mapping[str, Tensor], optimizer: Optimizer) -> Parcel:
    values = params[names[0]]
    sizes = tuple(params[name][0].numel() for name in names)
    if len(names) > 1:
        values = torch.cat([params[name].reshape(len(params[name]), -1) for name in names], dim=1)
    return Parcel(tuple(names), values, optimizer.start(values), sizes)
