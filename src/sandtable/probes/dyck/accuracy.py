"""Whether a model closes the right bracket, at trained lengths and far beyond, and what its loss is above the best."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, one_of, probability, typed, whole
from sandtable.models import Stack
from sandtable.probes.dyck.reading import Edits, latent, real, refuse_laws, scores
from sandtable.worlds import Batch, DyckPrefixes
from sandtable.worlds.dyck import BoundedDyck

AT = ("open", "closers")
PerModel = Float[Tensor, " models"]


def asked(batch: Batch, world: BoundedDyck, *, at: str = "open") -> Bool[Tensor, "batch position"]:
    """Positions after which a closer is asked for: wherever a bracket is open, or only where a closer does follow."""
    world.require_own(batch)
    x, counts = batch.x, real(batch)
    if one_of("at", at, AT) == "open":
        where = latent(batch, world, "top") >= 0
    else:
        following = world.brackets.closes(x[:, 1:]) & counts[:, 1:]
        where = torch.nn.functional.pad(following, (0, 1), value=False)
    where = where & counts
    if not bool(where.any()):
        raise ArgumentError(f"at={at!r}: no position of these rows asks for a closer")
    return where


def closing_accuracy(
    models: Stack | nn.Module,
    batch: Batch,
    world: BoundedDyck,
    *,
    reads: str = "tokens",
    outputs: str = "scores",
    strict: float | None = None,
    at: str = "open",
    edits: Edits | None = None,
) -> PerModel:
    """How often the likeliest *closer* is the one that the last open bracket asks for (section 2.2.3).

    Closers are compared among themselves: over all tokens an opener would win wherever q/k > 1 − q, rightly. With
    `strict` the right closer must have more than that share of the closers' probability (the released code: 0.8).
    Asked are all positions with an open bracket (`at="open"`), or those where a closer follows (`at="closers"`, the
    text). `edits` change activations on the way, see `Transformer.forward`.

    Nets that are trained give logits; models of `theory.dyck.build` need outputs="probabilities".
    """
    where, top = asked(batch, world, at=at), latent(batch, world, "top")
    right: Tensor | int = 0
    for part, out in scores(models, batch, world, reads=reads, outputs=outputs, edits=edits):
        closers, here = out[..., world.types :], where[part]
        if strict is None:
            hit = closers.argmax(-1) == top[part]
        else:
            refuse_laws(out, here)
            share = closers.double().softmax(-1)
            index = top[part].clamp(min=0)[None, ..., None].expand(len(out), -1, -1, 1)
            hit = share.gather(-1, index)[..., 0] > probability("strict", strict)
        right = right + (hit & here).sum((1, 2)).double()
    return right / int(where.sum())  # pyright: ignore[reportReturnType]


@typed
def long_prefixes(
    world: BoundedDyck, rows: int, generator: torch.Generator, *, lengths: tuple[int, int] = (400, 500)
) -> Batch:
    """Prefixes whose lengths are uniform from lengths[0] to lengths[1]: what length generalisation is asked on."""
    least = whole("lengths[0]", lengths[0])
    most = whole("lengths[1]", lengths[1], least=least)
    law = DyckPrefixes(types=world.types, depth=world.depth, q=world.q, length=most)
    batch = law.sample(whole("rows", rows), generator)
    ends = torch.randint(least, most + 1, (rows,), generator=generator)
    return replace(batch, mask=torch.arange(most + 1) <= ends[:, None])


def excess_loss(
    models: Stack | nn.Module,
    batch: Batch,
    world: BoundedDyck,
    *,
    reads: str = "tokens",
    outputs: str = "scores",
    on: str = "all",
) -> PerModel:
    """Cross-entropy of the next bracket above the Bayes floor, expected over that bracket: KL(law ‖ model).

    Where a word may end instead, the law is that of the bracket given that one follows. `on="closers"` asks the same
    where a closer is expected alone: the closer is then known, the floor 0 and the excess −log p(closer). Nets that are
    trained give logits; models of `theory.dyck.build` need outputs="probabilities".
    """
    world.require_own(batch)
    brackets = 2 * world.types
    law = world.next_token_law(batch.x)[..., :brackets] * real(batch)[..., None]
    if one_of("on", on, ("all", "closers")) == "closers":
        law = law * (torch.arange(brackets) >= world.types)
    total: Tensor | int = 0
    weight = law.sum(-1, keepdim=True)
    given = (law / weight).nan_to_num(0.0)
    for part, out in scores(models, batch, world, reads=reads, outputs=outputs):
        refuse_laws(out, weight[part][..., 0] > 0)
        p = given[part]
        gap = torch.special.xlogy(p, p) - p * out.double().log_softmax(-1)
        total = total + (gap.sum(-1) * weight[part][..., 0]).sum((1, 2))
    return total / weight.sum()  # pyright: ignore[reportReturnType]
