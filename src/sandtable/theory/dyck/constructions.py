"""Two-layer Transformers that give the exact next-token law of bounded Dyck prefixes, whatever their attention.

After Wen, Li, Liu & Risteski (2023), Theorem 2.2.1 and Corollary 2.2.1, with every weight explicit. Layer 1 averages
the past uniformly, which tells the depth, and a table turns (token, depth) into one of n = 2kD + 1 symbols. Layer 2
adds a direction b_p for every opener of pair p and takes it away for its closer: under balanced scores matched pairs
cancel, and the normalised sum shows the stack. An MLP reads its top, and writes the law over the 2k brackets.

Coordinates of the stream: n symbols, then the kD + 2 on which b_0, …, b_kD live — orthonormal, each with sum zero, so
that the norm's centring leaves them alone, and away from the symbols, so that the residual does not blur them. The
start has b_0, which keeps the norm away from 0/0 on an empty stack.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, number, one_of, typed, whole
from sandtable.models import Block, DeepMLP, SoftmaxAttention, Transformer
from sandtable.models.transformer import MOST_LAYERS
from sandtable.theory.dyck.balance import constrained_queries, offsets, one_matrix, project, residual, symbol_count
from sandtable.theory.dyck.checking import EXACT, check
from sandtable.theory.dyck.lookup import linear, lookup, network
from sandtable.worlds.dyck import DyckPrefixes

ATTENTIONS = ("uniform", "random", "misleading")
UNBALANCED = 1e-8
"""Balance residual, relative to the size of the scores, above which no values can make matched pairs cancel."""
TRIED = 200
"""Brackets of the random prefixes on which every model is tried before it is handed out."""


def least_width(types: int, depth: int) -> int:
    """n + kD + 2 = 3kD + 3 coordinates."""
    return symbol_count(types, depth) + types * depth + 2


# -- scores of the second layer --------------------------------------------------------------------------------------


@typed
def uniform_scores(*, types: int = 2, depth: int = 4) -> Float[Tensor, "n n"]:
    """All zero: every visible key alike."""
    n = symbol_count(types, depth)
    return torch.zeros(n, n, dtype=torch.float64)


@typed
def random_scores(
    generator: torch.Generator, *, types: int = 2, depth: int = 4, scale: float = 1.0
) -> Float[Tensor, "n n"]:
    """Independent N(0, scale²) scores, projected to balance: n² − kD(k(D−1) − 1) dimensions remain (249 of 289)."""
    n = symbol_count(types, depth)
    drawn = torch.randn(n, n, generator=generator, dtype=torch.float64) * number("scale", scale, least=0.0)
    return project(drawn, types=types, depth=depth)


@typed
def misleading_scores(*, types: int = 2, depth: int = 4, scale: float = 6.0) -> Float[Tensor, "n n"]:
    """A stack to look at: closers that leave depth d attend to openers of depth d, and hardly to closers.

    scale·1[c = d] for opener keys of pair depth c, the same less `scale` for closer keys, −scale for the start.
    """
    pairs, scale = types * depth, number("scale", scale, least=0.0)
    scores = uniform_scores(types=types, depth=depth)
    key_depth = torch.arange(pairs) % depth + 1
    same = (key_depth[:, None] == key_depth - 1).double() * scale
    scores[:pairs, pairs : 2 * pairs] = same
    scores[pairs : 2 * pairs, pairs : 2 * pairs] = same - scale
    scores[2 * pairs] = -scale
    return scores


# -- the model -------------------------------------------------------------------------------------------------------


@typed
def build(
    attention: str = "uniform",
    *,
    types: int = 2,
    depth: int = 4,
    q: float = 0.5,
    seed: int = 0,
    scale: float | None = None,
    layers: int = 2,
    width: int | None = None,
) -> Transformer:
    """An exact model with attention "uniform", "random" (`seed`, `scale` 1 unless given) or "misleading" (`scale` 6).

    It reads tokens 0 … 2k + 1 with ⟨bos⟩ = 2k in front and gives, at every position and every length, the
    probabilities of the 2k brackets. More `layers` and more `width` leave the function as it is.
    """
    size: dict[str, int] = dict(types=types, depth=depth)
    if one_of("attention", attention, ATTENTIONS) == "uniform":
        if scale is not None:
            raise ArgumentError(f"scale={scale!r}: uniform attention has no scores to scale; must be None")
        scores = uniform_scores(**size)
    elif attention == "random":
        generator = torch.Generator().manual_seed(whole("seed", seed, least=0))
        scores = random_scores(generator, **size, scale=1.0 if scale is None else scale)
    else:
        scores = misleading_scores(**size, scale=6.0 if scale is None else scale)
    return from_scores(scores, **size, q=q, layers=layers, width=width, seed=seed)


@typed
def from_scores(
    scores: Float[Tensor, "n n"],
    *,
    types: int,
    depth: int,
    q: float = 0.5,
    layers: int = 2,
    width: int | None = None,
    seed: int = 0,
    threshold: float = 1.0,
) -> Transformer:
    """The exact model whose second layer pays attention by these balanced scores (key × query, symbol order).

    A bracket counts as open from `threshold` times the least weight on that the top of a stack can have: any number up
    to 1 gives the same answers, smaller ones with more rounding. So do larger scores: where one bracket weighs e^s
    times another, its rounding does too. What errs by more than 1e-6 within 200 brackets is refused.

    Layers beyond the second have no values and an MLP that is the identity; what they attend to is random (`seed`).
    """
    q = number("q", q, above=0.0)
    if not q < 1:
        raise ArgumentError(f"q={q!r}: must be > 0 and < 1")
    scores = one_matrix(scores, types=types, depth=depth)
    off = float(residual(scores, types=types, depth=depth))
    if off > UNBALANCED * max(1.0, float(scores.norm())):
        raise ArgumentError(f"scores: miss the balance condition by {off:.3g}; take theory.dyck.project(scores, …)")
    model = skeleton(types=types, depth=depth, layers=layers, width=width)
    n, pairs = symbol_count(types, depth), types * depth
    for name, part in {
        "embed.W_E": _embedding(types, model.width),
        "blocks.0.attn.W_V": _depth_values(types, model.width),
        "blocks.1.attn.W_K": torch.eye(model.width),
        "blocks.1.attn.W_Q": _padded(scores.T, model.width),
        "blocks.1.attn.W_V": _stack_values(offsets(scores, types=types, depth=depth)[0], n, model.width),
        "unembed.W_U": torch.eye(model.width, 2 * types),
    }.items():
        model.set(name, part.double().reshape(model.get_parameter(name).shape))
    _copy(model, "blocks.0.mlp", _symbol_table(types, depth, model.width))
    levels = number("threshold", threshold, above=0.0, most=1.0) * _least_coefficients(scores, types, depth)
    _copy(model, "blocks.1.mlp", _reader(levels, types, depth, q, stack_basis(pairs), model.width))
    generator = torch.Generator().manual_seed(whole("seed", seed, least=0) + 1)
    for i in range(2, layers):
        for name in ("W_Q", "W_K"):
            full = f"blocks.{i}.attn.{name}"
            shape = model.get_parameter(full).shape
            model.set(full, torch.randn(shape, generator=generator, dtype=torch.float64))
        _copy(model, f"blocks.{i}.mlp", linear(torch.eye(model.width)))
    _require_exact(model.requires_grad_(False), DyckPrefixes(types=types, depth=depth, q=q), scores, threshold)
    return model


def _require_exact(model: Transformer, world: DyckPrefixes, scores: Tensor, threshold: float) -> None:
    """Rounding shows on whole prefixes alone: what pairs leave behind adds up, and no single weight tells."""
    found = check(model, world, longest=1, long=TRIED)
    if not max(found.error, found.long_error) <= EXACT:
        raise ArgumentError(
            f"scores up to {float(scores.abs().max()):.3g}, threshold={threshold:g}: in float64 the model errs by "
            f"{max(found.error, found.long_error):.1g} within {TRIED} brackets, at most {EXACT:g} is allowed: take "
            "smaller scores"
        )


def skeleton(*, types: int, depth: int, layers: int = 2, width: int | None = None) -> Transformer:
    """The architecture of all these models, weights zero: blocks mlp(LN_0(attn(x)) + x), one head, no positions."""
    n, pairs, least = symbol_count(types, depth), types * depth, least_width(types, depth)
    width = least if width is None else whole("width", width, least=least)
    whole("layers", layers, least=2, most=MOST_LAYERS)
    hidden = {0: (2 * n,), 1: (2 * pairs + n, types * (depth - 1) + n)}
    blocks = [
        Block(
            SoftmaxAttention(width, causal=True, output=False, scale=1.0),
            mlp=DeepMLP(width, hidden.get(i, (2 * width,))),
            norm=("inner", None),
            norm_kind="unit",
            residual=(True, False),
            eps=0.0,
        )
        for i in range(layers)
    ]
    made = Transformer(2 * types + 2, width=width, tied=False, outputs=2 * types, causal=True, blocks=blocks)
    return made.double()


def second_layer(model: Transformer, *, types: int, depth: int) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n m"]]:
    """What the second layer of a built model does with symbols: scores (key × query) and values, read from weights."""
    skeleton_of(model, types=types, depth=depth)
    n, attn = symbol_count(types, depth), model.layers[1].attn
    assert isinstance(attn, SoftmaxAttention)
    scores = attn.W_K[0, :n] @ attn.W_Q[0, :n].T
    return scores.detach().clone(), attn.W_V[0, :n].detach().clone()


@typed
def with_scores(model: Transformer, scores: Float[Tensor, "n n"], *, types: int, depth: int) -> Transformer:
    """A copy of a built model whose second layer attends by other scores, all else unchanged: to break or blind it."""
    scores = one_matrix(scores, types=types, depth=depth)
    return _edited(model, {"blocks.1.attn.W_Q": _padded(scores.T, model.width)[None]}, types, depth)


@typed
def with_values(model: Transformer, values: Float[Tensor, "n m"], *, types: int, depth: int) -> Transformer:
    """A copy of a built model whose second layer has other values, all else unchanged."""
    value = model.get_parameter("blocks.1.attn.W_V").detach().clone()
    shape = symbol_count(types, depth), value.shape[2]
    if tuple(values.shape) != shape:
        raise ArgumentError(f"values of shape {tuple(values.shape)}: must be symbol × width, {shape[0]} × {shape[1]}")
    value[0, : len(values)] = values
    return _edited(model, {"blocks.1.attn.W_V": value}, types, depth)


def _edited(model: Transformer, changes: dict[str, Tensor], types: int, depth: int) -> Transformer:
    copy = skeleton_of(model, types=types, depth=depth)
    copy.load_state_dict(model.state_dict() | changes)
    return copy.requires_grad_(False)


def skeleton_of(model: Transformer, *, types: int, depth: int) -> Transformer:
    """An empty model of the same shape, or an `ArgumentError` where `model` was not built for such brackets."""
    shape = dict(layers=len(model.layers), width=model.width)
    fits = shape["layers"] >= 2 and shape["width"] >= least_width(types, depth)
    empty = skeleton(types=types, depth=depth, **shape) if fits else None
    if empty is None or _shapes(empty) != _shapes(model):
        raise ArgumentError(f"types={types}, depth={depth}: the model was not built for these")
    return empty


def _shapes(model: Transformer) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}


# -- parts -----------------------------------------------------------------------------------------------------------


@typed
def stack_basis(pairs: int) -> Float[Tensor, "pair+1 coordinate"]:
    """b_0 … b_pairs: Helmert's rows, orthonormal and orthogonal to 1, over pairs + 2 coordinates."""
    size = whole("pairs", pairs) + 2
    rows = torch.zeros(size - 1, size, dtype=torch.float64)
    for i in range(1, size):
        rows[i - 1, :i], rows[i - 1, i] = 1.0, -float(i)
        rows[i - 1] /= (i * (i + 1)) ** 0.5
    return rows


def _embedding(types: int, width: int) -> Tensor:
    """Brackets and ⟨bos⟩ are the first 2k + 1 basis vectors; ⟨eos⟩, which no prefix holds, is 0."""
    table = torch.eye(2 * types + 2, width).double()
    table[2 * types + 1] = 0.0
    return table


def _depth_values(types: int, width: int) -> Tensor:
    """Openers add to coordinate 0, closers take away, the start adds to coordinate 1: the average is ∝ (depth, 1)."""
    values = torch.zeros(width, width, dtype=torch.float64)
    values[:types, 0], values[types : 2 * types, 0], values[2 * types, 1] = 1.0, -1.0, 1.0
    return values


def _symbol_table(types: int, depth: int, width: int) -> DeepMLP:
    """The table from (token, depth after it), as the first layer shows them, to the one-hot symbol."""
    n, pairs = symbol_count(types, depth), types * depth
    pair = torch.arange(pairs)
    tokens = torch.cat([pair // depth, types + pair // depth, torch.tensor([2 * types])])
    depths = torch.cat([pair % depth + 1, pair % depth, torch.tensor([0])]).double()
    shown = torch.zeros(n, width, dtype=torch.float64)
    shown[:, 0], shown[:, 1] = depths, 1.0
    shown = shown - shown.mean(1, keepdim=True)
    points = shown / shown.norm(dim=1, keepdim=True) + _embedding(types, width)[tokens]
    return lookup(points, torch.eye(n, width))


def _stack_values(offset: Float[Tensor, " pair"], n: int, width: int) -> Tensor:
    """b_p for the opener of pair p, −exp(a_p) b_p for its closer, b_0 for the start."""
    basis = stack_basis(len(offset))
    values = torch.zeros(width, width, dtype=torch.float64)
    here = slice(n, n + basis.shape[1])
    values[: len(offset), here] = basis[1:]
    values[len(offset) : n - 1, here] = -offset.exp()[:, None] * basis[1:]
    values[n - 1, here] = basis[0]
    return values


def _least_coefficients(scores: Float[Tensor, "n n"], types: int, depth: int) -> Float[Tensor, " depth"]:
    """Per depth d, the least that the top of the stack can weigh in the normalised sum, over closers that leave d.

    That is exp(s_top) / √(Σ_{c≤d} exp(2 s_c) + exp(2 s_start)) with the heaviest opener of every other depth below it.
    """
    levels = torch.ones(depth, dtype=torch.float64)
    openers = scores[: types * depth].reshape(types, depth, -1)
    for query in constrained_queries(types, depth).tolist():
        d = (query - types * depth) % depth  # pair depth − 1 is what the closer leaves open
        s = openers[:, :d, query]
        below = (2 * s[:, :-1]).amax(0).exp().sum() + (2 * scores[-1, query]).exp()
        top = s[:, -1].exp()
        levels[d] = torch.minimum(levels[d], (top / (top.square() + below).sqrt()).amin())
    return levels


def _reader(levels: Float[Tensor, " depth"], types: int, depth: int, q: float, basis: Tensor, width: int) -> DeepMLP:
    """Stack and symbol in, law out, in three affine maps.

    Hidden 1: ReLU(B x), ReLU(B x − θ), the symbol. Hidden 2: v_(t,d) = ReLU(clip(B x / θ_d) + [the symbol is a closer
    that leaves depth d] − 1), one iff (t, d) is the top left open by a closer; the symbol. Out: (1 − q) v on closer t,
    and what the symbol alone tells. θ_d is the least weight of a top at depth d, so that the clip gives 1 there.
    """
    n, pairs = symbol_count(types, depth), types * depth
    pair = torch.arange(pairs)
    theta = levels[(pair % depth + 1).clamp(max=depth - 1)]
    first = torch.zeros(width, 2 * pairs + n, dtype=torch.float64)
    first[n : n + basis.shape[1], : 2 * pairs] = torch.cat([basis[1:], basis[1:]]).T
    first[:n, 2 * pairs :] = torch.eye(n)
    shift = torch.zeros(2 * pairs + n, dtype=torch.float64)
    shift[pairs : 2 * pairs] = -theta
    left = pair[pair % depth < depth - 1]  # (type, d) with 1 ≤ d ≤ D − 1: what a closer may leave on top
    gates = len(left)
    second = torch.zeros(2 * pairs + n, gates + n, dtype=torch.float64)
    for gate, p in enumerate(left.tolist()):
        second[p, gate], second[pairs + p, gate] = 1 / theta[p], -1 / theta[p]
        second[2 * pairs + pairs + pair[pair % depth == p % depth + 1], gate] = 1.0
    second[2 * pairs :, gates:] = torch.eye(n)
    bias = torch.zeros(gates + n, dtype=torch.float64)
    bias[:gates] = -1.0
    third = torch.zeros(gates + n, width, dtype=torch.float64)
    third[torch.arange(gates), types + left // depth] = 1 - q
    third[gates:, : 2 * types] = _base(types, depth, q)
    return network([first, second, third], [shift, bias, None])


def _base(types: int, depth: int, q: float) -> Float[Tensor, "n brackets"]:
    """The part of the law that the symbol alone decides: all but the closer that follows a closer."""
    pairs = types * depth
    law = torch.zeros(2 * pairs + 1, 2 * types, dtype=torch.float64)
    pair = torch.arange(pairs)
    deep, alone = pair % depth == depth - 1, pair % depth == 0
    one, push = law.new_ones(()), law.new_tensor(q)
    law[:pairs, :types] = torch.where(deep, 0 * one, push)[:, None] / types
    law[pair, types + pair // depth] = torch.where(deep, one, 1 - push)
    law[pairs : 2 * pairs, :types] = torch.where(alone, one, push)[:, None] / types
    law[-1, :types] = 1.0 / types
    return law


def _padded(block: Tensor, width: int) -> Tensor:
    out = torch.zeros(width, width, dtype=torch.float64)
    out[: len(block), : block.shape[1]] = block
    return out


def _copy(model: Transformer, place: str, part: DeepMLP) -> None:
    for name, value in part.named_parameters():
        model.set(f"{place}.{name}", value.detach())
