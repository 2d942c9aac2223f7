"""Minimal first layers: fixed tables from (type, depth) symbols to vectors, and the small nets trained on top."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, typed, whole
from sandtable.models import Transformer

EMBEDDINGS = ("E1", "E2", "E3")
FORMS = ("attention", "theory", "gpt")


@typed
def symbol_embedding(
    kind: str, *, types: int, depth: int, width: int | None = None, depths: str | None = None
) -> Float[Tensor, "symbol width"]:
    """The tables of Wen, Li, Liu & Risteski 2023, eqs. 2.55–2.57, rows in the worlds' order of symbols, ⟨bos⟩ last.

    E1 is one-hot in (type, depth); E2 = o_t ⊕ o_d; E3 = o_t ⊕ (cos θ_d, sin θ_d), θ_d = arctan(d / (D + 2 − d)), after
    Yao et al. 2021. ⟨bos⟩ has a coordinate of its own, and zeros fill up to `width`. `depths` says which depth a closer
    has: that of its pair (E1 and E2; with the depth after it, E1 as printed gives two symbols one index) or the plain
    depth after it (E3, unless told otherwise).
    """
    one_of("kind", kind, EMBEDDINGS)
    k, most = whole("types", types), whole("depth", depth)
    depths = one_of("depths", depths or ("plain" if kind == "E3" else "pair"), ("pair", "plain"))
    if kind == "E1" and depths == "plain":
        raise ArgumentError("depths='plain': E1 has one index for every (type, depth of the pair)")
    token = torch.arange(2 * k).repeat_interleave(most)
    level = torch.arange(1, most + 1).repeat(2 * k)
    if depths == "plain":
        level = level - (token >= k).long()
    bracket = torch.eye(2 * k)[token]
    if kind == "E1":
        rows = torch.eye(2 * k * most)
    elif kind == "E2":
        rows = torch.cat([bracket, torch.eye(most + 1)[level][:, int(depths == "pair") :]], dim=1)
    else:
        angle = torch.atan(level / (most + 2 - level))
        rows = torch.cat([bracket, angle.cos()[:, None], angle.sin()[:, None]], dim=1)
    least = rows.shape[1] + 1
    width = least if width is None else whole("width", width, least=least)
    table = torch.zeros(len(rows) + 1, width)
    table[:-1, : rows.shape[1]] = rows
    table[-1, rows.shape[1]] = 1.0
    return table


@typed
def minimal_first_layer(
    *,
    types: int = 2,
    depth: int = 4,
    embedding: str = "E1",
    depths: str | None = None,
    form: str = "theory",
    width: int = 50,
    hidden: int = 50,
    biases: bool = True,
    eps: float = 1e-5,
) -> Transformer:
    """A frozen table of symbols, one trained layer with one head and a head for the 2k brackets (section 2.2.3).

    `form` is "attention", head(LN(attn(x))): no residual, no MLP, no norm before the head; "theory",
    head(mlp(LN(attn(x)) + x)), the layer of section 2.2.2; or "gpt", the pre-norm layer with a final norm.
    """
    one_of("form", form, FORMS)
    shape: dict[str, dict] = {
        "attention": dict(norm=("inner", None), residual=False, final_norm=False),
        "theory": dict(norm=("inner", None), residual=(True, False), mlp=hidden, final_norm=False),
        "gpt": dict(norm="pre", mlp=hidden),
    }
    table = symbol_embedding(embedding, types=types, depth=depth, width=width, depths=depths)
    model = Transformer(
        len(table),
        width=width,
        causal=True,
        tied=False,
        outputs=2 * types,
        biases=biases,
        head_bias=biases,
        eps=eps,
        **shape[form],
    )
    return model.set("embed.W_E", table, freeze=True)
