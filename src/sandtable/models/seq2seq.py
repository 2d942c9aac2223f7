"""An encoder and a decoder that writes all positions at once, or, `causal`, one after another; T5's layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, nearest, whole
from sandtable.inputs import LENGTH, RESERVED, Encoded, Pair
from sandtable.models.attention import Tap, inside, silent
from sandtable.models.blocks import MLP, RMSNorm
from sandtable.models.initial import Constant, Initial, Normal
from sandtable.models.positions import first
from sandtable.models.relative import MultiHead, RelativeBias
from sandtable.models.transformer import Embedding, match_names

EPS = 1e-6
PUBLISHED = dict(vocab=32128, layers=6, heads=8, width=512, mlp=2048, longest=256, longest_target=128)
"""The size of Li et al. 2024: 66 997 760 parameters, T5-small's layers with positional attention in the decoder."""


class EncoderBlock(nn.Module):
    """x ← x + attention(norm x); x ← x + mlp(norm x)."""

    def __init__(self, width: int, *, heads: int, head_width: int, mlp: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = RMSNorm(width, eps=EPS), RMSNorm(width, eps=EPS)
        self.attn = MultiHead(width, heads=heads, head_width=head_width)
        self.mlp = MLP(width, mlp, activation="relu", biases=False)

    def forward(self, x: Tensor, bias: Tensor, seen: Tensor | None, tap: Tap) -> Tensor:
        inner = self.ln1(x)
        x = x + self.attn(inner, self.attn.keys(inner), self.attn.values(inner), bias, seen, inside("attn", tap))
        return tap("hook_resid_post", x + self.mlp(self.ln2(x), inside("mlp", tap)))


class Kept(NamedTuple):
    """Keys and values of one decoder layer: of the tokens so far, of their positional attention, of the source."""

    keys: Float[Tensor, "row slot heads head"]
    values: Float[Tensor, "row slot heads head"]
    positional: Float[Tensor, "row slot heads head"] | None
    cross_keys: Float[Tensor, "row source heads head"]
    cross_values: Float[Tensor, "row source heads head"]


class DecoderBlock(nn.Module):
    """Self-attention, positional attention, cross-attention, MLP, each added to the stream.

    Positional attention has normed position vectors for queries and keys, and the stream itself for values.
    """

    def __init__(self, width: int, *, heads: int, head_width: int, mlp: int, positional: bool) -> None:
        super().__init__()
        options = dict(heads=heads, head_width=head_width)
        self.ln1, self.ln2, self.ln3 = (RMSNorm(width, eps=EPS) for _ in range(3))
        self.attn, self.cross = MultiHead(width, **options), MultiHead(width, **options)
        self.positional = MultiHead(width, **options) if positional else None
        self.ln_pos = RMSNorm(width, eps=EPS) if positional else None
        self.mlp = MLP(width, mlp, activation="relu", biases=False)

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source."""
        return self.cross.keys(memory), self.cross.values(memory)

    def forward(
        self,
        x: Float[Tensor, "batch query width"],
        places: Float[Tensor, "slot width"] | None,
        queries: slice,
        bias: Tensor,
        seen: Tensor | None,
        source: Tensor | None,
        kept: Kept | tuple[Tensor, Tensor],
        tap: Tap,
    ) -> tuple[Tensor, Kept]:
        """The stream after this layer at the positions `queries`; `kept` holds what stood before them, and the source.

        `places` are the vectors of all positions so far, those of `x` included.
        """
        before = kept if isinstance(kept, Kept) else None
        inner = self.ln1(x)
        keys, values = self.attn.keys(inner), self.attn.values(inner)
        if before is not None:
            keys, values = torch.cat([before.keys, keys], 1), torch.cat([before.values, values], 1)
        x = x + self.attn(inner, keys, values, bias, seen, inside("attn", tap))
        other = None
        if self.positional is not None and self.ln_pos is not None and places is not None:
            normed, other = self.ln_pos(places), self.positional.values(x)
            if before is not None and before.positional is not None:
                other = torch.cat([before.positional, other], 1)
            at = (normed[queries], self.positional.keys(normed))
            x = x + self.positional(*at, other, bias, seen, inside("positional", tap))
        cross = kept[-2:]
        x = x + self.cross(self.ln2(x), *cross, None, source, inside("cross", tap))
        x = tap("hook_resid_post", x + self.mlp(self.ln3(x), inside("mlp", tap)))
        return x, Kept(keys, values, other, *cross)


class Seq2Seq(nn.Module):
    """logits = decoder(target so far, encoder(source)) W_Eᵀ / √width, at every position of the target.

    Pre-norm layers as in T5: norms have a scale only, MLPs are ReLU, nothing has a bias, scores are not divided by
    √(head width), and relative-position biases are shared by the layers of each side. The decoder sees all its
    positions, or with `causal` those up to the query, and has `positional` attention besides (section 4.5 of Li et al.
    2024). A [LENGTH] token is read before the source; the scores of target lengths 1 … `longest_target`, ⟨eos⟩
    included, are its output times W_L.

    `forward` takes a `Pair` or, with the source read before, an `Encoded`; `want` asks for activations by name:
    "hook_memory", "hook_length", "decoder.1.cross.hook_pattern", … (see `hook_names`).
    """

    def __init__(
        self,
        vocab: Any,
        *,
        layers: int = 2,
        heads: int = 4,
        width: int = 48,
        head_width: int | None = None,
        mlp: int | None = None,
        causal: bool = False,
        positional: bool = True,
        longest: int = 256,
        longest_target: int = 128,
        buckets: int = 32,
        furthest: int = 128,
        initial: Mapping[str, Initial] | None = None,
    ) -> None:
        super().__init__()
        size = whole("vocab", len(vocab) if hasattr(vocab, "__len__") else vocab, least=RESERVED + 1)
        whole("width", width)
        if head_width is None and width % whole("heads", heads):
            raise ArgumentError(f"heads={heads}: must divide the width {width}, or give head_width")
        whole("longest", longest)
        whole("longest_target", longest_target, most=longest)
        self.config: dict[str, Any] = dict(
            vocab=size, layers=whole("layers", layers), heads=heads, width=width, head_width=head_width, mlp=mlp,
            causal=causal, positional=positional, longest=longest, longest_target=longest_target, buckets=buckets,
            furthest=furthest, initial=dict(initial or {}),
        )  # fmt: skip
        head = width // heads if head_width is None else whole("head_width", head_width)
        hidden = 4 * width if mlp is None else whole("mlp", mlp)
        options: dict[str, Any] = dict(heads=heads, head_width=head, mlp=hidden)
        self.size, self.width, self.causal = size, width, causal
        self.embed = Embedding(size, width)
        self.encoder = nn.ModuleList(EncoderBlock(width, **options) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderBlock(width, **options, positional=positional) for _ in range(layers))
        self.encoder_bias = RelativeBias(heads, buckets=buckets, furthest=furthest)
        self.decoder_bias = RelativeBias(heads, buckets=buckets, furthest=furthest, causal=causal)
        self.ln_encoder, self.ln_final = RMSNorm(width, eps=EPS), RMSNorm(width, eps=EPS)
        self.W_pos = nn.Parameter(torch.zeros(longest, width)) if positional else None
        self.W_L = nn.Parameter(torch.zeros(longest_target, width))
        match_names(list(self.config["initial"]), [name for name, _ in self.named_parameters()])
        self._rules = [*self.config["initial"].items(), *_t5_initial(width, heads, head, hidden).items()]
        self.initialise(torch.Generator().manual_seed(0))

    # -- parameters --------------------------------------------------------------------------------------------------

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> Seq2Seq:
        """Draw every parameter afresh, in the order of their names."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                rule = next(rule for pattern, rule in self._rules if fnmatchcase(name, pattern))
                parameter.copy_(rule.draw(parameter.shape, generator, scale))
        return self

    def replace(self, **changes: Any) -> Seq2Seq:
        """A model of the same make with some settings changed."""
        unknown = [name for name in changes if name not in self.config]
        if unknown:
            raise ArgumentError(f"{unknown[0]}: not a setting of Seq2Seq{nearest(unknown[0], list(self.config))}")
        return Seq2Seq(**{**self.config, **changes})

    def describe(self) -> dict[str, Any]:
        """Everything that decides what this model computes before training."""
        frozen = [name for name, parameter in self.named_parameters() if not parameter.requires_grad]
        return dict(kind="Seq2Seq", config=self.config, frozen=frozen)

    # -- forward -----------------------------------------------------------------------------------------------------

    def forward(self, inputs: Pair | Encoded, want: Sequence[str] = ()) -> Any:
        """Logits "batch position vocab"; with `want`, the pair (logits, {name: activation})."""
        found: dict[str, Tensor] = {}

        def tap(name: str, tensor: Tensor) -> Tensor:
            if name in want:
                found[name] = tensor
            return tensor

        logits = self._run(inputs, tap if want else silent)
        for name in want:
            if name not in found:
                raise ArgumentError(f"want={name!r}: no such activation{nearest(name, self.hook_names())}")
        return (logits, found) if want else logits

    def hook_names(self) -> list[str]:
        """The activations that `forward(pair, want=…)` can return."""
        names: list[str] = []

        def tap(name: str, tensor: Tensor) -> Tensor:
            names.append(name)
            return tensor

        one = torch.zeros(1, 1, dtype=torch.long, device=self.W_L.device)
        self._run(Pair(one, None, one), tap)
        return names

    def encode(
        self, source: Int[Tensor, "batch source"], seen: Bool[Tensor, "batch source"] | None = None, tap: Tap = silent
    ) -> tuple[Float[Tensor, "batch source width"], Float[Tensor, "batch length"]]:
        """What the decoder reads of the source, and the scores of target lengths 1, 2, …"""
        start = torch.full_like(source[..., :1], LENGTH)
        mask = (
            None
            if seen is None
            else torch.cat([torch.ones_like(start, dtype=torch.bool), seen], -1)[..., None, None, :]
        )
        x = F.embedding(torch.cat([start, source], -1), self.embed.W_E)
        places = torch.arange(source.shape[-1] + 1, device=source.device)
        bias = self.encoder_bias(places, places)
        for i, block in enumerate(self.encoder):
            x = block(x, bias, mask, inside(f"encoder.{i}", tap))
        x = self.ln_encoder(x)
        length = tap("hook_length", x[..., 0, :] @ self.W_L.T)
        return tap("hook_memory", x[..., 1:, :]), length

    def _run(self, inputs: Pair | Encoded, tap: Tap) -> Tensor:
        if isinstance(inputs, Encoded):
            memory = inputs.memory
        else:
            memory, _ = self.encode(inputs.source, inputs.seen, tap)
        target, real = inputs.target, inputs.real
        places = torch.arange(target.shape[-1], device=target.device)
        mask = None if real is None else real[..., None, None, :]
        if self.causal:
            past = places <= places[:, None]
            mask = past if mask is None else mask & past
        source = None if inputs.seen is None else inputs.seen[..., None, None, :]
        vectors = None if self.W_pos is None else first(self.W_pos, target.shape[-1])
        bias = self.decoder_bias(places, places)
        x = F.embedding(target, self.embed.W_E)
        for i, block in enumerate(self.layers):
            kept = block.read(memory)
            x, _ = block(x, vectors, slice(None), bias, mask, source, kept, inside(f"decoder.{i}", tap))
        return self._head(x, tap)

    def _head(self, x: Tensor, tap: Tap) -> Tensor:
        return tap("hook_normalized", self.ln_final(x)) @ self.embed.W_E.T / self.width**0.5

    @property
    def layers(self) -> list[DecoderBlock]:
        return cast(list[DecoderBlock], list(self.decoder))

    # -- one token after another -------------------------------------------------------------------------------------

    @torch.no_grad()
    def start(self, memory: Float[Tensor, "row source width"]) -> list[Kept]:
        """The cache of rows that have no tokens yet: the source's keys and values in every layer, and nothing else."""
        if not self.causal:
            raise ArgumentError("start: only a causal decoder goes on from what it has written; use causal=True")
        kept = []
        for block in self.layers:
            keys, values = block.read(memory)
            none = keys[:, :0]
            kept.append(Kept(none, none, none if block.positional is not None else None, keys, values))
        return kept

    @torch.no_grad()
    def extend(
        self, ids: Int[Tensor, " row"], cache: list[Kept], seen: Bool[Tensor, "row source"] | None = None
    ) -> tuple[Float[Tensor, "row vocab"], list[Kept]]:
        """The logits that `forward` gives after one more token in every row, and the cache that holds it too."""
        place = cache[0].keys.shape[1]
        places = torch.arange(place + 1, device=ids.device)
        vectors = None if self.W_pos is None else first(self.W_pos, place + 1)
        bias = self.decoder_bias(places[-1:], places)
        source = None if seen is None else seen[:, None, None, :]
        x = F.embedding(ids[:, None], self.embed.W_E)
        after = []
        for block, kept in zip(self.layers, cache, strict=True):
            x, now = block(x, vectors, slice(place, None), bias, None, source, kept, silent)
            after.append(now)
        return self._head(x, silent)[:, 0], after


def take_rows(cache: list[Kept], index: Int[Tensor, " row"]) -> list[Kept]:
    """A cache whose row i is row index[i]: to fork rows, to drop them, to change their order."""
    return [Kept(*(None if t is None else t.index_select(0, index) for t in kept)) for kept in cache]  # pyright: ignore


def _t5_initial(width: int, heads: int, head: int, hidden: int) -> dict[str, Initial]:
    """T5's initial weights: unit vectors in, unit vectors out; positions and lengths are N(0, 1) too."""
    return {
        "*ln*.w": Constant(1.0),
        "*.W_Q": Normal((width * head) ** -0.5),
        "*.W_O": Normal((heads * head) ** -0.5),
        "*.W_out": Normal(hidden**-0.5),
        "embed.W_E": Normal(1.0),
        "W_pos": Normal(1.0),
        "W_L": Normal(width**-0.5),
        "*": Normal(width**-0.5),
    }
