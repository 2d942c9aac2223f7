"""Whom models of brackets attend to: how far patterns are apart, whether they look like a stack, whether they matter.

Patterns have models, rows and heads in front of (query, key); queries and keys that are padding are 0. What is measured
is that of Wen, Li, Liu & Risteski 2023 (section 2.2.3): two patterns differ by ‖A − A'‖_F², and a pattern that looks
like a stack has closers attend to the last open bracket. Neither says what a head is for: `ablate` takes it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, one_of, typed, whole
from sandtable.inputs import Tokens
from sandtable.models import Stack, Transformer
from sandtable.models.attention import Attention
from sandtable.probes.dyck.reading import Edits, inputs_of, latent, real, stacked
from sandtable.worlds import Batch
from sandtable.worlds.dyck import BoundedDyck

ABLATIONS = ("uniform", "closers", "values")
QUERIES = ("all", "closers")
AT_ONCE = 2**24
"""Entries of attention patterns, of all models and heads together, that are computed at once."""
TIED = 1e-5
"""Relative difference up to which two keys have the same attention: they would, but for rounding in float32."""
Patterns = Float[Tensor, "models rows heads query key"]
PerModel = Float[Tensor, " models"]
PerHead = Float[Tensor, "models heads"]


def patterns(
    models: Stack | nn.Module,
    rows: Batch | Int[Tensor, "rows position"],
    world: BoundedDyck,
    *,
    layer: int,
    reads: str = "tokens",
) -> Patterns:
    """Attention of every model in one layer on the same rows, 0 where a row is padded (`Batch.mask`)."""
    run = _Run.of(models, rows, world, layer=layer, reads=reads)
    return torch.cat([seen for _, seen in run.attention()], dim=1)


# -- how far patterns are apart --------------------------------------------------------------------------------------


def attention_variation(patterns: Patterns) -> Float[Tensor, ""]:
    """The mean over pairs of models of ‖A − A'‖_F², averaged over rows and heads.

    It is 2n/(n − 1) times the mean square about the mean pattern, so that no pair need be visited.
    """
    flat, maps = _flat(patterns, least=2)
    n = len(flat)
    return 2 * n / (n - 1) * _spread(flat) / maps


def pairwise_variation(patterns: Patterns) -> Float[Tensor, "models models"]:
    """‖A − A'‖_F² of every two models, averaged over rows and heads."""
    flat, maps = _flat(patterns, least=2)
    flat = flat - flat.mean(0)  # distances stay, and less cancels below
    products = flat @ flat.T
    squares = products.diagonal()
    apart = (squares[:, None] + squares - (products + products.T)).clamp(min=0) / maps
    return apart.fill_diagonal_(0.0)


def between_variation(groups: Sequence[Patterns]) -> Float[Tensor, ""]:
    """The mean of ‖A − A'‖_F² over all pairs of models from different groups, averaged over rows and heads.

    For groups g and h it is the mean square about the mean of g, that about the mean of h, and the distance of the two
    means.
    """
    if len(groups) < 2 or len({tuple(group.shape[1:]) for group in groups}) > 1:
        shapes = ", ".join(str(tuple(group.shape)) for group in groups)
        raise ArgumentError(f"groups of shapes {shapes}: must be two at least, on the same rows and heads")
    spreads = torch.stack([_spread(_flat(group, least=1)[0]) for group in groups]) / _flat(groups[0], least=1)[1]
    apart = pairwise_variation(torch.stack([group.double().mean(0) for group in groups]))
    sizes = spreads.new_tensor([len(group) for group in groups])
    pairs = (sizes[:, None] * sizes).fill_diagonal_(0.0)
    return (pairs * (spreads[:, None] + spreads + apart)).sum() / pairs.sum()


@typed
def from_uniform(patterns: Patterns, *, causal: bool = True) -> PerModel:
    """‖A − U‖_F² of every model, averaged over rows and heads; U attends to all visible keys of a row alike."""
    flat, maps = _flat(patterns, least=1)
    maps_of = flat.unflatten(1, (maps, *patterns.shape[-2:]))
    if causal and bool((maps_of.triu(1) != 0).any()):
        raise ArgumentError("patterns: attend to later keys; compare them with causal=False")
    counts = maps_of.sum(-1) > 0  # padding attends to nothing
    seen = (counts[..., None] & counts[..., None, :]).double()
    seen = seen.tril() if causal else seen
    return (maps_of - seen / seen.sum(-1, keepdim=True).clamp(min=1)).square().sum((-2, -1)).mean(1)


def _flat(patterns: Tensor, *, least: int) -> tuple[Float[Tensor, "models entry"], int]:
    """Patterns as one vector for each model, in float64, and how many maps (row, head) there are in it."""
    if patterns.ndim < 3:
        raise ArgumentError(f"patterns of shape {tuple(patterns.shape)}: must be models, rows, heads, query, key")
    if len(patterns) < least:
        raise ArgumentError(f"patterns of {len(patterns)} models: needs at least {least}")
    return patterns.double().flatten(1), max(1, patterns[0, ..., 0, 0].numel())


def _spread(flat: Float[Tensor, "models entry"]) -> Float[Tensor, ""]:
    """The mean square about the mean."""
    return (flat - flat.mean(0)).square().sum(1).mean()


# -- what is attended to ---------------------------------------------------------------------------------------------


class StackLikeness(NamedTuple):
    """Averages over closers that leave a bracket open."""

    top: PerHead
    """Attention to the last open bracket."""
    hits: PerHead
    """How often no key gets more than it; keys that share the first place, as equal symbols do, share the hit."""
    level: PerHead
    """Attention to all openers of the current depth, that of the last open bracket."""


def stack_likeness(
    models: Stack | nn.Module | Patterns,
    batch: Batch,
    world: BoundedDyck,
    *,
    layer: int | None = None,
    reads: str = "tokens",
) -> StackLikeness:
    """Does a closer look at the bracket that is to be closed next? A model without positions can only find its depth
    and type, hence `level`. Patterns on these rows will do as well as the models that they are of."""
    if isinstance(models, Tensor):
        parts: Any = [(slice(0, len(batch.x)), models)]
    elif layer is None:
        raise ArgumentError("layer=None: say which layer of the models to look at, from 0")
    else:
        parts = _Run.of(models, batch, world, layer=layer, reads=reads).attention()
    asked = _asked(batch, world, "closers")
    depth, opener = latent(batch, world, "depth"), latent(batch, world, "opener")
    opens = world.brackets.opens(batch.x)
    sums = []
    for part, seen in parts:
        row, query = asked[part].nonzero(as_tuple=True)
        weight = seen[:, row, :, query]  # asked models heads key
        place = opener[part][row, query][:, None, None, None].expand(*weight.shape[:-1], 1)
        first = weight >= (1 - TIED) * weight.amax(-1, keepdim=True)
        level = opens[part][row] & (depth[part][row] == depth[part][row, query][:, None])
        found = (
            weight.gather(-1, place)[..., 0],
            first.gather(-1, place)[..., 0] / first.sum(-1),
            (weight * level[:, None, None]).sum(-1),
        )
        sums.append(torch.stack([value.sum(0, dtype=torch.float64) for value in found]))
    return StackLikeness(*(torch.stack(sums).sum(0) / int(asked.sum())).unbind())


def stack_pattern(batch: Batch, world: BoundedDyck) -> Patterns:
    """What a stack would attend to: every position to the last open bracket, or to itself where nothing is open."""
    opener, counts = latent(batch, world, "opener"), real(batch)
    place = torch.where(opener >= 0, opener, torch.arange(batch.x.shape[1]))
    return (torch.nn.functional.one_hot(place, batch.x.shape[1]).double() * counts[..., None])[None, :, None]


@dataclass(frozen=True)
class ClassMass:
    """Attention by class of the key, beside the share of the class among visible keys: what uniform attention gives."""

    classes: tuple[str, ...]
    mass: Float[Tensor, "models heads class"]
    frequency: Float[Tensor, " class"]

    @property
    def deviation(self) -> Float[Tensor, "models heads class"]:
        """Attention over frequency; 1 for uniform attention."""
        return self.mass / self.frequency

    def index(self, name: str) -> int:
        """Which class has that name."""
        return self.classes.index(one_of("class", name, self.classes))


def class_mass(
    models: Stack | nn.Module,
    batch: Batch,
    world: BoundedDyck,
    *,
    layer: int,
    reads: str = "tokens",
    queries: str = "all",
) -> ClassMass:
    """Attention to openers, closers, every bracket, "start", "end" and the "current" position, averaged over queries.

    Queries are all real positions, or the closers that leave a bracket open. Classes that no query sees are left out.
    """
    run = _Run.of(models, batch, world, layer=layer, reads=reads)
    asked, counts, brackets = _asked(run.batch, world, queries), real(run.batch), world.brackets
    one_hot = torch.eye(world.eos + 1, dtype=torch.float64)
    masses, frequencies = [], []
    for part, seen in run.attention():
        x = run.batch.x[part]
        sides = torch.stack([brackets.opens(x), brackets.closes(x)], dim=-1).double()
        member = torch.cat([sides, one_hot[x]], dim=-1)
        even = _uniform(run.attn, counts[part])[None, :, None]
        masses.append(_by_class(seen, asked[part], member))
        frequencies.append(_by_class(even, asked[part], member)[0, 0])
    names = ("openers", "closers", *world.vocab.tokens[: world.bos], "start", "end", "current")
    mass, frequency = (torch.stack(sums).sum(0) / int(asked.sum()) for sums in (masses, frequencies))
    keep = frequency.nonzero()[:, 0]
    return ClassMass(tuple(names[i] for i in keep.tolist()), mass[..., keep], frequency[keep])


def _by_class(
    seen: Patterns, asked: Bool[Tensor, "rows query"], member: Float[Tensor, "rows key class"]
) -> Float[Tensor, "models heads class+1"]:
    """Attention of all asked queries to the keys of every class, and to their own positions, in sum."""
    seen = seen * asked[:, None, :, None]
    classes = torch.einsum("mrhk,rkc->mhc", seen.sum(-2, dtype=torch.float64), member)
    own = seen.diagonal(dim1=-2, dim2=-1).sum((1, -1), dtype=torch.float64)
    return torch.cat([classes, own[..., None]], dim=-1)


def _uniform(attn: Attention, counts: Bool[Tensor, "rows position"]) -> Float[Tensor, "rows query key"]:
    """Attention that does not tell visible keys apart; 0 for padding."""
    seen: Any = attn.visible(counts.shape[1], counts, None, counts.device)
    seen = (seen[:, 0] & counts[:, :, None]).double()
    return seen / seen.sum(-1, keepdim=True).clamp(min=1)


# -- whether it matters ----------------------------------------------------------------------------------------------


def ablate(
    kind: str, models: Stack | nn.Module, batch: Batch, world: BoundedDyck, *, layer: int, head: int | None = None
) -> Edits:
    """Edits that take a head's attention away (of all heads of the layer, unless told), for measurements on `batch`.

    - "uniform": every visible key gets the same attention;
    - "closers": none goes to closers, and the rest is scaled up to sum to 1 (to 0 where nothing is left);
    - "values": the head adds nothing.
    """
    one_of("kind", kind, ABLATIONS)
    attn = _attention_of(stacked(models), layer)
    heads = attn.W_V.shape[0]
    chosen = torch.ones(heads, dtype=torch.bool)
    if head is not None:
        chosen = torch.arange(heads) == whole("head", head, least=0, most=heads - 1)
    name = f"blocks.{layer}.attn.hook_"
    if kind == "values":
        return {f"{name}v": lambda values: values.masked_fill(chosen[:, None].to(values.device), 0.0)}
    counts = real(batch)
    if kind == "uniform":
        even = _uniform(attn, counts[:1] if bool(counts.all()) else counts)[:, None]
        return {f"{name}pattern": _edit(chosen, len(counts), lambda seen: even.to(seen))}
    kept = ~world.brackets.closes(batch.x)[:, None, None, :]

    def renormalised(seen: Tensor) -> Tensor:
        left = seen * kept.to(seen.device)
        return left / left.sum(-1, keepdim=True).clamp(min=torch.finfo(seen.dtype).tiny)

    return {f"{name}pattern": _edit(chosen, len(counts), renormalised)}


def _edit(chosen: Bool[Tensor, " heads"], rows: int, change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`change` for the chosen heads of patterns "rows heads query key"."""

    def edit(seen: Tensor) -> Tensor:
        if len(seen) != rows:
            raise ArgumentError(f"edits made for {rows} rows: cannot be used on {len(seen)}")
        return torch.where(chosen[:, None, None].to(seen.device), change(seen), seen)

    return edit


def copying_accuracy(
    models: Stack | nn.Module, batch: Batch, world: BoundedDyck, *, reads: str = "tokens", edits: Edits | None = None
) -> PerModel:
    """How often the likeliest token at a position is the bracket that stands there."""
    run = _Run.of(models, batch, world, layer=0, reads=reads)
    x = run.batch.x
    where = real(run.batch) & (x < world.bos)
    if not bool(where.any()):
        raise ArgumentError("batch: holds no bracket to copy")
    right = torch.zeros(len(run.stack), dtype=torch.float64)
    for part, out in run.outputs(edits):
        if out.shape[-1] < world.bos:
            raise ArgumentError(f"models with {out.shape[-1]} outputs: must score all {world.bos} brackets")
        right += ((out.argmax(-1) == x[part]) & where[part]).sum((1, 2))
    return right / int(where.sum())


def _asked(batch: Batch, world: BoundedDyck, which: str) -> Bool[Tensor, "rows position"]:
    """All real positions, or the closers that leave a bracket open."""
    asked = real(batch)
    if one_of("queries", which, QUERIES) == "closers":
        asked = asked & world.brackets.closes(batch.x) & (latent(batch, world, "opener") >= 0)
    if not bool(asked.any()):
        raise ArgumentError(f"rows: hold no {'closer that leaves a bracket open' if which == 'closers' else 'token'}")
    return asked


# -- running models --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """Models, rows and the layer of interest, checked to fit together."""

    stack: Stack
    batch: Batch
    world: BoundedDyck
    inputs: Int[Tensor, "rows position"]
    layer: int

    @classmethod
    def of(cls, models: Any, rows: Batch | Tensor, world: BoundedDyck, *, layer: int, reads: str) -> _Run:
        stack = stacked(models)
        _attention_of(stack, layer)
        batch = rows if isinstance(rows, Batch) else Batch(x=rows)
        if batch.x.ndim != 2 or batch.x.is_floating_point() or not batch.x.numel():
            raise ArgumentError(f"rows of shape {tuple(batch.x.shape)}, {batch.x.dtype}: must be row × position tokens")
        foreign = batch.vocab is not None and batch.vocab != world.vocab
        if foreign or not 0 <= int(batch.x.min()) <= int(batch.x.max()) <= world.eos:
            raise ArgumentError(f"rows in another vocabulary: this world's is {' '.join(world.vocab.tokens)}")
        return cls(stack, batch, world, inputs_of(stack, batch.x, world, reads=reads), layer)

    @property
    def attn(self) -> Attention:
        return _attention_of(self.stack, self.layer)

    def attention(self) -> Iterator[tuple[slice, Patterns]]:
        """Patterns of some rows at a time, 0 for padding."""
        name = f"blocks.{self.layer}.attn.hook_pattern"
        counts = real(self.batch)
        for part, (_, found) in self._parts(want=(name,)):
            yield part, found[name].cpu().where(counts[part][:, None, :, None], 0.0)

    def outputs(self, edits: Edits | None) -> Iterator[tuple[slice, Float[Tensor, "models rows position output"]]]:
        """What models say, some rows at a time; all at once with `edits`, which may know their rows."""
        options = {"edits": edits} if edits else {}
        for part, out in self._parts(whole_batch=bool(edits), **options):
            yield part, out.cpu()

    def _parts(self, *, whole_batch: bool = False, **options: Any) -> Iterator[tuple[slice, Any]]:
        counts, (n, positions) = real(self.batch), self.inputs.shape
        device = next(iter(self.stack.params.values())).device
        each = len(self.stack) * self.attn.W_V.shape[0] * positions**2
        rows = n if whole_batch else max(1, AT_ONCE // each)
        for first in range(0, n, rows):
            part = slice(first, first + rows)
            ids, mask = self.inputs[part].to(device), counts[part].to(device)
            yield part, self.stack(ids if bool(mask.all()) else Tokens(ids, mask), **options)


def _attention_of(stack: Stack, layer: int) -> Attention:
    template = stack.template
    if not isinstance(template, Transformer):
        raise ArgumentError(f"models: a {type(template).__name__} has no attention patterns; must be Transformers")
    return template.layers[whole("layer", layer, least=0, most=len(template.layers) - 1)].attn
