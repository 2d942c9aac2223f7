"""A small Transformer: an embedding, a list of blocks, a head. Names follow TransformerLens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, nearest, number, one_of, typed, whole
from sandtable.inputs import Bag, Documents, Inputs, Selected, Tokens
from sandtable.models.activations import ActivationCache, Edit, NamesFilter, chosen, tapped
from sandtable.models.attention import (
    ATTENTIONS,
    AlibiAttention,
    Attention,
    RotaryAttention,
    Tap,
    inside,
    take,
)
from sandtable.models.blocks import MLPS, NORMS, Block
from sandtable.models.cache import Cache
from sandtable.models.initial import Constant, Initial, Normal
from sandtable.models.positions import POSITIONS

IN_ATTENTION: dict[str, type[Attention]] = {"rotary": RotaryAttention, "alibi": AlibiAttention}
"""Positions that only attention knows of."""
DEFAULT_INITIAL: dict[str, Initial] = {"*.b*": Constant(0.0), "*ln*.w": Constant(1.0), "*": Normal(0.02)}


MOST_LAYERS = 4096
"""Of a model that is put together in reasonable time."""


class Embedding(nn.Module):
    """Rows of W_E."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.zeros(size, width))


class Unembedding(nn.Module):
    """Logits x W_U + b_U, `size` of them; without its own W_U the head is tied to the embedding."""

    def __init__(self, size: int, width: int, *, tied: bool, bias: bool) -> None:
        super().__init__()
        self.W_U = None if tied else nn.Parameter(torch.zeros(width, size))
        self.b_U = nn.Parameter(torch.zeros(size)) if bias else None


@typed
class Transformer(nn.Module):
    """logits = head(block_L(… block_1(W_E[token] + position) …)).

    - `embedding`: "learned" (width `width`) or "one-hot" (W_E = I, width = vocabulary; nothing to train);
    - `tied`: the head is W_Eᵀ — for one-hot embeddings the identity — else a matrix W_U of its own, which may have
      another number of `outputs` than there are tokens: a model that reads tokens and tells something else;
    - `attention`: "softmax" or "uniform" (every visible key alike); `output=False` leaves out W_O;
    - `mlp`: hidden width, or None, `mlp_kind`: "plain" or "gated"; `residual`, `biases`, `head_bias`: on or off;
    - `norm`: None, "pre", "post" or "inner", `norm_kind`: "layer", "rms" or "unit" (see `Block`, which also says how
      attention and MLP may differ); `embedding_norm`: another one after the embedding;
    - `positions`: None, "learned", "sinusoidal", "linear", or "rotary" (queries and keys turn), up to `longest`, or
      "alibi" (scores fall with the distance), any number; "linear" ones advance by 1 / `position_unit`, or 1 / longest;
    - `initial`: pattern → how matching parameters start; the first match wins, then `DEFAULT_INITIAL`, where "*" stands
      for everything but biases and norms;
    - `blocks`: a list of your own `Block`s instead of `layers` equal ones.

    Parameters are set with `set`, frozen with `freeze`, and looked up by glob patterns with `matching`.
    """

    def __init__(
        self,
        vocab: Any,
        *,
        layers: int = 1,
        heads: int = 1,
        width: int | None = None,
        head_width: int | None = None,
        embedding: str = "learned",
        tied: bool = True,
        outputs: int | None = None,
        attention: str = "softmax",
        output: bool = True,
        causal: bool = False,
        mlp: int | None = None,
        mlp_kind: str = "plain",
        activation: str = "gelu",
        norm: str | Sequence[str | None] | None = None,
        norm_kind: str = "layer",
        residual: bool | Sequence[bool] = True,
        biases: bool = False,
        head_bias: bool = False,
        positions: str | None = None,
        longest: int | None = None,
        position_unit: float | None = None,
        embedding_norm: bool = False,
        final_norm: bool | None = None,
        eps: float = 1e-5,
        initial: Mapping[str, Initial] | None = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        super().__init__()
        size = whole("vocab", len(vocab) if hasattr(vocab, "__len__") else vocab, least=2)
        one_of("embedding", embedding, ("learned", "one-hot"))
        if embedding == "one-hot":
            if width not in (None, size):
                raise ArgumentError(f"width={width!r}: one-hot embeddings are as wide as the vocabulary ({size})")
            width = size
        elif width is None:
            raise ArgumentError("width=None: learned embeddings need a width")
        whole("width", width)
        # As given, not as resolved: `replace` decides anew what follows from other settings.
        self.config: dict[str, Any] = dict(
            vocab=size, layers=layers, heads=heads, width=None if embedding == "one-hot" else width,
            head_width=head_width, embedding=embedding, tied=tied, outputs=outputs, attention=attention, output=output,
            causal=causal,
            mlp=mlp, mlp_kind=mlp_kind, activation=activation, norm=norm, norm_kind=norm_kind, residual=residual,
            biases=biases, head_bias=head_bias, positions=positions, longest=longest, position_unit=position_unit,
            embedding_norm=embedding_norm, final_norm=final_norm, eps=eps, initial=dict(initial or {}),
        )  # fmt: skip
        self.size, self.width = size, width
        self.embed = Embedding(size, width) if embedding == "learned" else None
        self.pos_embed = None
        attend: Callable[..., Attention] = ATTENTIONS[one_of("attention", attention, ATTENTIONS)]
        if position_unit is not None:
            number("position_unit", position_unit, above=0.0)
            if positions != "linear":
                raise ArgumentError(f'position_unit={position_unit!r}: only positions="linear" have one')
        if positions is not None:
            one_of("positions", positions, (*POSITIONS, *IN_ATTENTION))
            if longest is None and positions != "alibi":
                raise ArgumentError(f"longest=None: positions={positions!r} needs the longest length")
            if positions in POSITIONS and longest is not None:
                unit = {} if position_unit is None else {"unit": position_unit}
                self.pos_embed = POSITIONS[positions](width, longest=longest, **unit)
            elif blocks is not None:
                kind = IN_ATTENTION[positions].__name__
                raise ArgumentError(f"positions={positions!r} with blocks of your own: give them {kind} instead")
            elif attention != "softmax":
                raise ArgumentError(f"positions={positions!r} with attention={attention!r}: needs softmax attention")
            else:
                attend = (
                    partial(RotaryAttention, longest=longest) if longest and positions == "rotary" else AlibiAttention
                )
        make_norm = NORMS[one_of("norm_kind", norm_kind, NORMS)]
        self.ln_embed = make_norm(width, eps=eps) if embedding_norm else None
        if blocks is None:
            make_mlp = MLPS[one_of("mlp_kind", mlp_kind, MLPS)]
            blocks = [
                Block(
                    attend(width, heads=heads, head_width=head_width, causal=causal, biases=biases, output=output),
                    mlp=None if mlp is None else make_mlp(width, mlp, activation=activation, biases=biases),
                    norm=norm,
                    norm_kind=norm_kind,
                    residual=residual,
                    eps=eps,
                )
                for _ in range(whole("layers", layers, most=MOST_LAYERS))
            ]
            self._own_blocks = False
        else:
            self._own_blocks = True
        if not blocks:
            raise ArgumentError("blocks=[]: needs at least one block")
        self.blocks = nn.ModuleList(blocks)
        out = blocks[-1].out_width
        if tied and out != width:
            raise ArgumentError(f"tied=True: the last block is {out} wide, the embedding {width}; use tied=False")
        if tied and outputs not in (None, size):
            raise ArgumentError(f"outputs={outputs!r}: a tied head has one for each of {size} tokens; use tied=False")
        final_norm = norm == "pre" if final_norm is None else final_norm
        self.ln_final = make_norm(out, eps=eps) if final_norm else None
        self.outputs = size if outputs is None else whole("outputs", outputs)
        self.unembed = Unembedding(self.outputs, out, tied=tied, bias=head_bias)
        self._set: dict[str, Tensor] = {}
        for name in self.config["initial"]:
            self.matching(name)

    # -- parameters by name ------------------------------------------------------------------------------------------

    def matching(self, *patterns: str) -> list[str]:
        """Names of the parameters that match any of the glob patterns; a pattern without a match is an error."""
        names = [name for name, _ in self.named_parameters()]
        return match_names(patterns, names)

    def set(self, name: str, value: Tensor | Float[Any, ...], *, freeze: bool = False) -> Transformer:
        """Give one parameter its starting value; `freeze=True` also keeps training away from it."""
        if self.matching(name) != [name]:
            raise ArgumentError(f"set: takes the name of one parameter, not a pattern such as {name!r}")
        parameter = self.get_parameter(name)
        value = torch.as_tensor(value, dtype=parameter.dtype)
        if value.shape != parameter.shape:
            raise ArgumentError(
                f"{name}: value of shape {tuple(value.shape)}, the parameter has shape {tuple(parameter.shape)}"
            )
        with torch.no_grad():
            parameter.copy_(value)
        self._set[name] = value.detach().clone()
        return self.freeze(name) if freeze else self

    def freeze(self, *patterns: str) -> Transformer:
        for name in self.matching(*patterns):
            self.get_parameter(name).requires_grad_(False)
        return self

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> Transformer:
        """Draw every parameter afresh, in the order of their names, except those given by `set`."""
        own = self.config["initial"]
        rules = [*((p, rule) for p, rule in own.items() if p != "*"), *(DEFAULT_INITIAL | own).items()]
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                rule = next(rule for pattern, rule in rules if fnmatchcase(name, pattern))
                drawn = rule.draw(parameter.shape, generator, scale)
                parameter.copy_(self._set.get(name, drawn))  # pyright: ignore[reportArgumentType]
        return self

    def replace(self, **changes: Any) -> Transformer:
        """A model of the same make with some settings changed; parameters that were set or frozen stay so."""
        unknown = [name for name in changes if name not in self.config]
        if unknown:
            raise ArgumentError(f"{unknown[0]}: not a setting of Transformer{nearest(unknown[0], list(self.config))}")
        if self._own_blocks:
            raise ArgumentError("replace: a model with blocks of your own is rebuilt by hand")
        copy = Transformer(**{**self.config, **changes})
        for name, value in self._set.items():
            copy.set(name, value)
        frozen = [name for name, parameter in self.named_parameters() if not parameter.requires_grad]
        return copy.freeze(*frozen) if frozen else copy

    def describe(self) -> dict[str, Any]:
        """Everything that decides what this model computes before training."""
        parts = [[type(m).__name__, m.config] for m in self.modules() if m is not self and hasattr(m, "config")]
        frozen = [name for name, parameter in self.named_parameters() if not parameter.requires_grad]
        return dict(
            kind="Transformer",
            config=self.config,
            parts=parts if self._own_blocks else [],
            set=self._set,
            frozen=frozen,
        )

    # -- forward -----------------------------------------------------------------------------------------------------

    def forward(self, inputs: Inputs, want: Sequence[str] = (), edits: Mapping[str, Edit] | None = None) -> Any:
        """Logits; with `want`, the pair (logits, {name: activation}). `hook_names` lists what can be asked for.

        `edits` replace activations on their way: what is computed after `name` goes on from `edits[name](activation)`.
        A name may be a shell pattern, and then stands for all activations that it fits.
        """
        run = self._by_type if isinstance(inputs, Bag | Documents) else self._by_position
        call = lambda tap: run(inputs, tap)  # noqa: E731  # pyright: ignore[reportArgumentType]
        return tapped(call, want, edits, self.hook_names)

    @torch.no_grad()
    def extend(
        self,
        ids: Int[Tensor, "row new"],
        positions: Int[Tensor, "row new"],
        cache: Cache,
        want: Sequence[str] = (),
        *,
        at: Int[Tensor, " row"] | None = None,
    ) -> Any:
        """What `forward` gives at tokens `ids`, which stand at `positions` of their rows behind what the cache holds.

        A token sees slots 0 … its own position, and the cache then holds it there; to rewind a row, go on from an
        earlier position. Rows of different length are padded on the right, at the positions that come next: nobody
        sees the padding before it is overwritten. `at` picks one of the new tokens of every row, and only there are
        logits computed, "row vocab" instead of "row new vocab". The cache grows as needed; nothing is differentiated.
        Under a model on a GPU, `ids`, `positions` and `at` are best given on the CPU, where they are checked.
        """
        low, used = self._check_extension(ids, positions, cache, at)
        cache.grow(used)
        device = cache.values[0].device
        ids, positions, at = ids.to(device), positions.to(device), None if at is None else at.to(device)
        seen = None
        if ids.shape[1] > 1 or low + 1 < used:
            seen = torch.arange(used, device=device) <= positions[:, None, :, None]

        def run(tap: Tap) -> Tensor:
            x = tap("hook_embed", self._embed(ids, self.layers[0]))
            if self.pos_embed is not None:
                x = x + tap("hook_pos_embed", self.pos_embed.at(positions))
            x = x if self.ln_embed is None else self.ln_embed(x)
            for i, block in enumerate(self.layers):
                x = inside(f"blocks.{i}", tap)("hook_resid_pre", x)
                x = block.extend(x, positions, partial(cache.put, i, used), seen, inside(f"blocks.{i}", tap))
            return self._head(x, tap, at)

        return tapped(run, want, None, self.hook_names)

    def _check_extension(self, ids: Tensor, positions: Tensor, cache: Cache, at: Tensor | None) -> tuple[int, int]:
        """The least position, and how many slots of the cache are in use after these tokens."""
        if not all(block.attn.causal for block in self.layers):
            raise ArgumentError("extend: only a causal model can go on from what it has read; use causal=True")
        if ids.ndim != 2 or ids.shape != positions.shape or not ids.numel():
            raise ArgumentError(
                f"ids of shape {tuple(ids.shape)}, positions of shape {tuple(positions.shape)}: must both be (row, new)"
            )
        if len(ids) != cache.rows:
            raise ArgumentError(f"ids with {len(ids)} rows: the cache has {cache.rows}")
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or (self.longest is not None and high >= self.longest):
            allowed = "≥ 0" if self.longest is None else f"from 0 to {self.longest - 1} (longest={self.longest})"
            raise ArgumentError(f"positions from {low} to {high}: must be {allowed}")
        if at is not None and (at.shape != ids.shape[:1] or not 0 <= int(at.min()) <= int(at.max()) < ids.shape[1]):
            raise ArgumentError(f"at={at.tolist()}: must name one of the {ids.shape[1]} new tokens of every row")
        return low, high + 1

    def hook_names(self) -> list[str]:
        """The activations that `forward(tokens, want=…)` can return."""
        names: list[str] = []

        def tap(name: str, tensor: Tensor) -> Tensor:
            names.append(name)
            return tensor

        device = next(self.parameters()).device
        self._by_position(torch.zeros(1, 1, dtype=torch.long, device=device), tap)
        return names

    def run_with_cache(self, inputs: Inputs, names_filter: NamesFilter = None) -> tuple[Tensor, ActivationCache]:
        """The logits and the activations, as in TransformerLens; `names_filter` says which ones to keep.

        What is the same for the whole batch comes once for every row, and one-hot embeddings as vectors.
        """
        if isinstance(inputs, Bag | Documents):
            raise ArgumentError("run_with_cache: counts of tokens have no places; give the tokens themselves")
        found: dict[str, Tensor] = {}
        wanted = chosen(self.hook_names(), names_filter)
        logits, found = self(inputs, want=wanted) if wanted else (self(inputs), found)
        if "hook_pos_embed" in found:
            found["hook_pos_embed"] = found["hook_pos_embed"].expand(len(logits), -1, -1)
        if "hook_embed" in found and not found["hook_embed"].is_floating_point():
            found["hook_embed"] = F.one_hot(found["hook_embed"], self.size).to(logits.dtype)
        return logits, ActivationCache(found, len(self.layers))

    @property
    def longest(self) -> int | None:
        """How many positions the model was built for; None when it takes any number."""
        parts = [*([] if self.pos_embed is None else [self.pos_embed]), *(block.attn for block in self.layers)]
        return min((part.config["longest"] for part in parts if "longest" in part.config), default=None)

    @property
    def layers(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def _embed(self, ids: Int[Tensor, ...], first: Block) -> Tensor:
        if self.embed is not None:
            return F.embedding(ids, self.embed.W_E)
        vectors = first.reads_vectors or self.pos_embed is not None or self.ln_embed is not None
        return F.one_hot(ids, self.size).to(first.attn.W_V.dtype) if vectors else ids

    def _by_position(self, inputs: Tensor | Tokens | Selected, tap: Tap) -> Tensor:
        ids, mask = inputs[:2] if isinstance(inputs, Tokens | Selected) else (inputs, None)
        rows = inputs.rows if isinstance(inputs, Selected) else None
        start = inputs.start if isinstance(inputs, Tokens) else None
        x = tap("hook_embed", self._embed(ids, self.layers[0]))
        if self.pos_embed is not None and start is not None:
            places = torch.arange(ids.shape[-1], device=ids.device) + start[..., None]
            x = x + tap("hook_pos_embed", self.pos_embed.at(places))
        elif self.pos_embed is not None:
            x = x + tap("hook_pos_embed", self.pos_embed(ids.shape[-1]))
        x = x if self.ln_embed is None else self.ln_embed(x)
        for i, block in enumerate(self.layers):
            x = inside(f"blocks.{i}", tap)("hook_resid_pre", x)
            last = i + 1 == len(self.layers)
            x = block(x, mask, inside(f"blocks.{i}", tap), rows if last else None)
        return self._head(x, tap)

    def _by_type(self, inputs: Bag | Documents, tap: Tap) -> Tensor:
        block = self.layers[0]
        if len(self.layers) != 1 or self.pos_embed is not None or block.attn.causal:
            raise ArgumentError("Bag inputs: only a single, non-causal layer without positions ignores word order")
        table = None if self.embed is None else self.embed.W_E
        if table is None and (self.ln_embed is not None or block.norms[0] == "pre"):
            table = torch.eye(self.size, dtype=block.attn.W_V.dtype, device=inputs.counts.device)
        table = self.ln_embed(table) if self.ln_embed is not None else table
        x = None
        if isinstance(inputs, Bag):
            x = self._embed(inputs.query, block) if table is None else F.embedding(inputs.query, table)
        elif block.residuals[0]:
            raise ArgumentError("Documents inputs: a residual stream needs the visible token of every row; use Bag")
        x = block.by_type(x, table, inputs, inside("blocks.0", tap))
        return self._head(x, tap)

    def _head(self, x: Tensor, tap: Tap, at: Int[Tensor, " row"] | None = None) -> Float[Tensor, "... vocab"]:
        """Logits everywhere, or at one place `at` of every row."""
        x = x if self.ln_final is None else tap("ln_final.hook_normalized", self.ln_final(x))
        x = x if at is None else take(x, at[:, None])[:, 0]
        if self.unembed.W_U is not None:
            x = x @ self.unembed.W_U
        elif self.embed is not None:
            x = x @ self.embed.W_E.T
        return x if self.unembed.b_U is None else x + self.unembed.b_U


@typed
def match_names(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that match any glob pattern, in order; a pattern without a match is an `ArgumentError`."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ArgumentError(f"{pattern!r}: no parameter of that name{nearest(pattern, names)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
