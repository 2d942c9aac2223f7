"""Many models of one make, held as stacked parameters and run in one computation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sandtable.arguments import ArgumentError, nearest


class Stack:
    """`stack["name"]` are the parameters of all models, `stack[i]` one ordinary module, `stack(inputs)` runs them all.

    `template` gives the make; `params` maps every parameter's name to a tensor with the models in front.
    """

    def __init__(self, template: nn.Module, params: Mapping[str, Float[Tensor, "models ..."]]) -> None:
        self.template = template
        self.params = dict(params)

    @classmethod
    def of(cls, *modules: nn.Module) -> Stack:
        """The stack of modules of one make."""
        names = [name for name, _ in modules[0].named_parameters()]
        stacked = {n: torch.stack([m.get_parameter(n).detach() for m in modules]) for n in names}
        return cls(modules[0], stacked)

    def __len__(self) -> int:
        return len(next(iter(self.params.values())))

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            if key not in self.params:
                raise ArgumentError(f"{key!r}: no parameter of that name{nearest(key, list(self.params))}")
            return self.params[key]
        if not -len(self) <= key < len(self):
            raise ArgumentError(f"model {key}: the stack holds {len(self)} models")
        module = copy.deepcopy(self.template).to(next(iter(self.params.values())).dtype)
        with torch.no_grad():
            for name, value in self.params.items():
                module.get_parameter(name).data = value[key].detach().clone().cpu()
        return module

    def to(self, device: str | torch.device) -> Stack:
        """The same models on a device; inputs must then lie there too."""
        moved = {name: value.to(device) for name, value in self.params.items()}
        return Stack(copy.deepcopy(self.template).to(device), moved)

    def select(self, index: Sequence[int]) -> Stack:
        return Stack(self.template, {name: value[list(index)] for name, value in self.params.items()})

    def __call__(
        self,
        inputs: Any,
        want: Sequence[str] = (),
        *,
        shared: bool = True,
        edits: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
    ) -> Any:
        """Outputs of every model, models in front; `shared=False` gives each model its own inputs.

        `edits` see the activations of one model at a time.
        """
        options = ({"want": tuple(want)} if want else {}) | ({"edits": edits} if edits else {})

        def one(params: Mapping[str, Tensor], inputs: Any) -> Any:
            return functional_call(self.template, dict(params), (inputs,), options)

        with torch.no_grad():
            return vmap(one, in_dims=(0, None if shared else 0))(self.params, inputs)
