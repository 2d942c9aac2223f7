"""What is measured of trained nets, one row per net: what they write, how refinement goes, what they attend to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import one_of
from sandtable.claims.gmlm.padir.nets import Net, trained
from sandtable.decoding import (
    Bottom,
    LinearSchedule,
    Rejecter,
    Stutter,
    Translated,
    autoregress,
    beam_search,
    exact_match,
    refine,
    token_accuracy,
)
from sandtable.inputs import EOS, PAD, RESERVED
from sandtable.lab import Lab
from sandtable.models import Seq2Seq
from sandtable.probes import translation as probe
from sandtable.worlds import Batch

PASSES = 10
BEAMS = 5
REJECTERS: dict[str, tuple[Rejecter, ...]] = {
    "none": (),
    "stutter": (Stutter(),),
    "stutter, at the end too": (Stutter(last=True),),
    "linear": (LinearSchedule(),),
    "a quarter": (Bottom(percent=25.0),),
    "one word": (Bottom(k=1),),
    "every word": (Bottom(percent=100.0),),
}
LENGTHS = ("given", "own")
SCORES = ("valid", "any length", "exact", "accuracy", "overlap", "as long", "words", "stutter", "incidence")
KINDS = ("stutter", "most attending")
Ids = Int[Tensor, "row position"]
Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class Decoding:
    """How a refiner decodes: with the `lengths` of an oracle, or with the best of five that it predicts (`own`)."""

    steps: int = 4
    lengths: str = "given"
    noise: str = "random"
    rejecter: str = "none"
    drop_stutter: bool = False
    drop_initial: bool = False
    temperature: float = 0.0


def refined(lab: Lab, net: Net) -> Rows:
    """Scores after pass 1, 2, …; edits of every pass; the share of rows that nothing changes after it, and of those
    that are right too.
    """
    rows = []
    for seed, model in trained(lab, net):
        batch, generator = asked(lab, net, seed)
        assert batch.given is not None
        out = refined_once(lab, model, batch, generator, Decoding(PASSES, noise=net.noise), trace=True)
        after = [_scores(net, batch, until_end(x.cpu()), "given") for x in out.trace[1:]]
        stay = (probe.settled(out.trace).cpu()[:, None] <= torch.arange(1, PASSES + 1)).numpy()
        right = valid(net, batch, until_end(out.trace[-1].cpu()), "given")
        rows.append(
            {name: np.array([one[name] for one in after]) for name in SCORES}
            | {"edits": probe.edits(out.trace).double().mean(0).cpu().numpy()}
            | {"settled": stay.mean(0), "settled right": (stay & right[:, None].numpy()).mean(0)}
        )
    return _stacked(rows)


def decoded(lab: Lab, net: Net, how: Decoding) -> Rows:
    """Scores of the answers of one way to decode."""
    rows = []
    for seed, model in trained(lab, net):
        batch, generator = asked(lab, net, seed)
        out = refined_once(lab, model, batch, generator, how)
        rows.append(_scores(net, batch, out.tokens.cpu(), how.lengths))
    return _stacked(rows)


def in_order(lab: Lab, net: Net, how: str = "beam", lengths: str = "own") -> Rows:
    """Scores of a sequential net: `beam` search, `greedy`, or words as they are drawn (`sample`).

    Beams can be held to the `given` lengths, those that refiners are given; drawn targets have lengths of the net's
    own law.
    """
    one_of("how", how, ("beam", "greedy", "sample"))
    one_of("lengths", lengths, LENGTHS if how == "beam" else ("own",))
    rows = []
    for seed, model in trained(lab, net):
        batch, generator = asked(lab, net, seed)
        assert batch.given is not None
        source = batch.given.x.to(lab.device)
        if how == "beam":
            given = batch.latents["length"] if lengths == "given" else None
            out = beam_search(model, source, beams=BEAMS, lengths=given)
        else:
            out = autoregress(model, source, how=how, generator=generator)
        rows.append(_scores(net, batch, out.tokens.cpu(), lengths))
    return _stacked(rows)


def attended(lab: Lab, net: Net, steps: int, inputs: int, kind: str = "stutter") -> Rows:
    """Means and standard deviations of every measure of attention, over pairs of one `kind` and over the others.

    Also how many pairs these are. Attention is that of the pass that wrote the answer. The pairs are those that
    "stutter", or as many that attend most to one another ("most attending").
    """
    one_of("kind", kind, KINDS)
    rows = []
    for seed, model in trained(lab, net):
        batch, generator = asked(lab, net, seed, inputs)
        assert batch.given is not None
        out = refined_once(lab, model, batch, generator, Decoding(steps, noise=net.noise), trace=True)
        own, cross = probe.last_layer(model, batch.given.x.to(lab.device), out.trace[-2])
        found = {f"self {name}": value for name, value in probe.self_dependence(own).items()}
        found |= {f"cross {name}": value for name, value in probe.cross_dependence(cross).items()}
        pairs = probe.neighbours(out.trace[-1])
        chosen = pairs.stutter if kind == "stutter" else _largest(found["self avg"], pairs)
        both = (chosen, pairs.words & ~chosen)
        row = {name: np.array([_moments(value[which]) for which in both]) for name, value in found.items()}
        rows.append(row | {"pairs": np.array([float(which.sum()) for which in both])})
    return _stacked(rows)


def _largest(values: Float[Tensor, "row pair"], pairs: probe.Neighbours) -> Bool[Tensor, "row pair"]:
    """The pairs of words of largest value, as many as stutter."""
    most = values.masked_fill(~pairs.words, -torch.inf).flatten().topk(int(pairs.stutter.sum())).indices
    return torch.zeros_like(pairs.words).flatten().index_fill(0, most, True).view_as(pairs.words)


# -- one net ---------------------------------------------------------------------------------------------------------


def asked(lab: Lab, net: Net, seed: int, inputs: int | None = None) -> tuple[Batch, torch.Generator]:
    """Sources of its own for every net, with one target each, and a generator for noise."""
    batch = net.world.sample(net.size.inputs if inputs is None else inputs, lab.generator(seed, "sources"))
    return batch, lab.generator(seed, "noise of translations")


def refined_once(
    lab: Lab, model: Seq2Seq, batch: Batch, generator: torch.Generator, how: Decoding, **options: Any
) -> Translated:
    assert batch.given is not None
    return refine(
        model,
        batch.given.x.to(lab.device),
        generator=generator,
        steps=how.steps,
        lengths=batch.latents["length"] if one_of("lengths", how.lengths, LENGTHS) == "given" else None,
        beams=BEAMS,
        length_weight=1.0,  # a hypothesis is as likely as its length and its words, as it is for a sequential net
        noise=how.noise,
        rejecters=REJECTERS[one_of("rejecter", how.rejecter, REJECTERS)],
        drop_stutter=how.drop_stutter,
        drop_initial=how.drop_initial,
        temperature=how.temperature,
        **options,
    )


def until_end(tokens: Ids) -> Ids:
    """Tokens up to the first ⟨eos⟩, padding after it."""
    end = tokens == EOS
    return torch.where(end.cumsum(1) - end.long() > 0, PAD, tokens)


def valid(net: Net, batch: Batch, tokens: Ids, lengths: str) -> Bool[Tensor, " row"]:
    """Translations that the task allows; where lengths were `given`, only those that have them."""
    assert batch.given is not None
    allowed = net.world.valid(batch.given.x, tokens)
    return allowed & _as_long(batch, tokens) if lengths == "given" else allowed


def _as_long(batch: Batch, tokens: Ids) -> Bool[Tensor, " row"]:
    return (tokens != PAD).sum(1) == batch.latents["length"]


def overlap(net: Net, source: Ids, tokens: Ids) -> Float[Tensor, " row"]:
    """The share of words that translate a symbol of the source and are not there already: clipped precision.

    The reference is everything that could be said, as in BLEU with many references; an empty answer has none.
    """
    symbols = net.world.symbols
    word = tokens >= RESERVED + symbols
    symbol = torch.where(word, (tokens - RESERVED) % symbols, -1)
    meant = (symbol[:, :, None] == source[:, None, :] - RESERVED).any(2)
    again = (tokens[:, :, None] == tokens[:, None, :]).tril(-1).any(2)
    said = tokens >= RESERVED
    return (word & meant & ~again).sum(1).double() / said.sum(1).clamp(min=1)


def _scores(net: Net, batch: Batch, tokens: Ids, lengths: str) -> dict[str, float]:
    """`valid` asks for the length where it was given; `as long` is whether the answer has that of the drawn target."""
    assert batch.given is not None
    pairs = probe.neighbours(tokens, batch.x)
    each = {
        "valid": valid(net, batch, tokens, lengths),
        "any length": valid(net, batch, tokens, "own"),
        "exact": exact_match(tokens, batch.x),
        "accuracy": token_accuracy(tokens, batch.x),
        "overlap": overlap(net, batch.given.x, tokens),
        "as long": _as_long(batch, tokens),
        "words": (tokens >= RESERVED).sum(1),
    }
    means = {name: float(value.double().mean()) for name, value in each.items()}
    return means | {"stutter": pairs.rate, "incidence": pairs.incidence}


def _moments(values: Tensor) -> tuple[float, float]:
    """Mean and standard deviation; nan where there are too few values."""
    values = values.double()
    return (float(values.mean()), float(values.std())) if len(values) > 1 else (float("nan"), float("nan"))


def _stacked(rows: list[dict[str, Any]]) -> Rows:
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
