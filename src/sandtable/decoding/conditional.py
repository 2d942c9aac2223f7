"""Decoding's second protocol: what may stand at hidden positions, given everything that is visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, whole
from sandtable.models import Transformer
from sandtable.worlds import HasConditional, Vocab


@runtime_checkable
class Conditional(Protocol):
    """What Gibbs samplers need. `length` is how many positions a state has, None where a model reads any number."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def length(self) -> int | None: ...

    @property
    def device(self) -> torch.device: ...

    def conditional_logits(
        self, x: Int[Tensor, "batch position"], mask: Bool[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position vocab"]:
        """log p(x_i = · | x_−K) up to a constant, at every position i of K, the positions where `mask` is true.

        What `x` holds at hidden positions is not read, and what is returned at visible ones means nothing.
        """
        ...


class ExactConditional:
    """A world with exact conditionals: p(x_i | x_−K), −∞ where a symbol cannot stand."""

    def __init__(self, world: HasConditional) -> None:
        if not isinstance(world, HasConditional) or not hasattr(world, "vocab"):
            raise ArgumentError(f"world of type {type(world).__name__}: must be one of tokens with exact conditionals")
        self.world = world
        self.vocab: Vocab = world.vocab  # pyright: ignore[reportAttributeAccessIssue]
        self.length: int | None = getattr(world, "length", None)
        self.device = torch.device("cpu")

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)

    def conditional_logits(
        self, x: Int[Tensor, "batch position"], mask: Bool[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position vocab"]:
        return self.world.conditional(x, mask).log()


class MaskedNetwork:
    """A network that reads the token `mask` at hidden positions and answers for all of them in one pass.

    `network` is a `Transformer` that sees both ways, or any module from ids to logits. Its answers need not be the
    conditionals of one joint law. It never writes `mask` itself.
    """

    def __init__(
        self,
        network: Transformer | nn.Module | Callable[[Tensor], Tensor],
        *,
        mask: int,
        vocab_size: int | None = None,
        length: int | None = None,
    ) -> None:
        tokens = writes = None
        if isinstance(network, Transformer):
            tokens, writes = network.size - 1, network.outputs
            if any(block.attn.causal for block in network.layers):
                raise ArgumentError(
                    "network: a causal Transformer does not see what follows; build it with causal=False"
                )
            vocab_size = network.outputs if vocab_size is None else vocab_size
        if vocab_size is None:
            raise ArgumentError("vocab_size=None: a function needs to be told how many tokens it may write")
        self.network = network
        self.vocab_size = whole("vocab_size", vocab_size, most=writes)
        self.mask = whole("mask", mask, least=0, most=tokens)
        self.length = length

    @property
    def device(self) -> torch.device:
        parameters = self.network.parameters() if isinstance(self.network, nn.Module) else iter(())
        return next((parameter.device for parameter in parameters), torch.device("cpu"))

    @torch.no_grad()
    def conditional_logits(
        self, x: Int[Tensor, "batch position"], mask: Bool[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position vocab"]:
        logits = self.network(x.masked_fill(mask, self.mask))[..., : self.vocab_size]
        return without(logits, [self.mask])


def without(logits: Float[Tensor, "... vocab"], tokens: list[int]) -> Float[Tensor, "... vocab"]:
    """The logits with −∞ at tokens that are never written."""
    inside = [token for token in tokens if token < logits.shape[-1]]
    return logits.index_fill(-1, torch.tensor(inside, device=logits.device), -torch.inf) if inside else logits


def as_conditional(model: Any) -> Conditional:
    """A conditional model as it is; a world with exact conditionals made into one."""
    if isinstance(model, Conditional):
        return model
    if isinstance(model, HasConditional):
        return ExactConditional(model)
    hint = ""
    if hasattr(model, "config") and hasattr(model, "get_output_embeddings"):
        hint = "; a Hugging Face model goes through sandtable.bridges.huggingface.load_masked(model)"
    elif callable(model):
        hint = "; a network goes through sandtable.decoding.MaskedNetwork(network, mask=…)"
    raise ArgumentError(f"model of type {type(model).__name__}: says nothing of hidden positions{hint}")
