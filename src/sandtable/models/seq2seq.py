"""An encoder and a decoder that writes all positions at once, or, `causal`, one after another; T5's layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, nearest, typed, whole
from sandtable.inputs import LENGTH, RESERVED, Encoded, Pair
from sandtable.models.activations import Edit, tapped
from sandtable.models.attention import Tap, inside, silent
from sandtable.models.blocks import MLP, RMSNorm
from sandtable.models.initial import Constant, Initial, Normal
from sandtable.models.positions import first
from sandtable.models.relative import MultiHead, RelativeBias
from sandtable.models.transformer import MOST_LAYERS, Embedding, match_names

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

    def forward(self, x: Tensor, bias: Tensor, tap: Tap) -> Tensor:
        inner = self.ln1(x)
        pattern = self.attn.pattern(inner, self.attn.keys(inner), bias, inside("attn", tap))
        x = x + tap("hook_attn_out", self.attn.mix(pattern, self.attn.values(inner)))
        return tap("hook_resid_post", x + tap("hook_mlp_out", self.mlp(self.ln2(x), inside("mlp", tap))))


class Held(NamedTuple):
    """What a decoder layer needs besides the target: keys and values of the source, and how positions attend."""

    keys: Float[Tensor, "batch source heads head"]
    values: Float[Tensor, "batch source heads head"]
    positional: Float[Tensor, "... heads query position"] | None


class Written(NamedTuple):
    """What a decoder layer keeps of the tokens so far: keys and values, and the values of positional attention."""

    keys: Float[Tensor, "row slot heads head"]
    values: Float[Tensor, "row slot heads head"]
    positional: Float[Tensor, "row slot heads head"] | None


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

    def hold(self, memory: Tensor, places: Float[Tensor, "position width"] | None, bias: Tensor, tap: Tap) -> Held:
        """What is known of the source, and of positions with these vectors, before any token is."""
        pattern = None
        if self.positional is not None and self.ln_pos is not None and places is not None:
            normed = self.ln_pos(places)
            pattern = self.positional.pattern(normed, self.positional.keys(normed), bias, inside("positional", tap))
        return Held(self.cross.keys(memory), self.cross.values(memory), pattern)

    def forward(
        self,
        x: Float[Tensor, "batch query width"],
        held: Held,
        before: Written | None,
        bias: Tensor,
        source: Tensor | None,
        tap: Tap,
    ) -> tuple[Tensor, Written]:
        """The stream after this layer at the tokens `x`, which come after those written `before`."""
        inner = self.ln1(x)
        keys, values = self.attn.keys(inner), self.attn.values(inner)
        if before is not None:
            keys, values = torch.cat([before.keys, keys], 1), torch.cat([before.values, values], 1)
        x = x + tap("hook_attn_out", self.attn.mix(self.attn.pattern(inner, keys, bias, inside("attn", tap)), values))
        other = None
        if self.positional is not None and held.positional is not None:
            other = self.positional.values(x)
            if before is not None and before.positional is not None:
                other = torch.cat([before.positional, other], 1)
            x = x + tap("hook_positional_out", self.positional.mix(held.positional, other))
        pattern = self.cross.pattern(self.ln2(x), held.keys, source, inside("cross", tap))
        x = x + tap("hook_cross_out", self.cross.mix(pattern, held.values))
        x = tap("hook_resid_post", x + tap("hook_mlp_out", self.mlp(self.ln3(x), inside("mlp", tap))))
        return x, Written(keys, values, other)


class Prepared(NamedTuple):
    """A source as the decoder reads it, and all that depends on positions alone: worked out once for many passes.

    `bias` is what self-attention adds to its scores, −∞ for hidden positions; `source` the same for cross-attention.
    """

    layers: list[Held]
    bias: Float[Tensor, "... heads query position"]
    source: Float[Tensor, "batch 1 1 source"] | None

    def take(self, index: Int[Tensor, " row"]) -> Prepared:
        """The rows of `index`; what all rows share stays as it is."""
        layers = [Held(h.keys[index], h.values[index], _own_rows(h.positional, index)) for h in self.layers]
        return Prepared(layers, _own_rows(self.bias, index), None if self.source is None else self.source[index])


class Progress(NamedTuple):
    """A causal decoder after some tokens, the same number in every row."""

    prepared: Prepared
    layers: list[Written]
    length: int

    def take(self, index: Int[Tensor, " row"], *, same_source: bool = False) -> Progress:
        """The rows of `index`: to fork rows, to drop them, to change their order (`same_source`: among beams)."""
        prepared = self.prepared if same_source else self.prepared.take(index)
        layers = [
            Written(w.keys[index], w.values[index], None if w.positional is None else w.positional[index])
            for w in self.layers
        ]
        return Progress(prepared, layers, self.length)


def _own_rows(tensor: Tensor | None, index: Tensor) -> Any:
    """The rows of a tensor "row heads query position"; without a row dimension, it is the same in all of them."""
    return tensor if tensor is None or tensor.ndim == 3 else tensor[index]


def catching(want: Sequence[str]) -> tuple[Tap, dict[str, Tensor]]:
    """A tap that keeps the activations of these names, and the dictionary it keeps them in."""
    found: dict[str, Tensor] = {}

    def tap(name: str, tensor: Tensor) -> Tensor:
        if name in want:
            found[name] = tensor
        return tensor

    return (tap if want else silent), found


def _hiding(seen: Bool[Tensor, ...], like: Tensor) -> Tensor:
    """0 where it is seen, −∞ where not."""
    return torch.zeros((), dtype=like.dtype, device=like.device).where(seen, -math.inf)


@typed
class Seq2Seq(nn.Module):
    """logits = decoder(target so far, encoder(source)) W_Eᵀ / √width, at every position of the target.

    Pre-norm layers as in T5: norms have a scale only, MLPs are ReLU, nothing has a bias, scores are not divided by
    √(head width), and relative-position biases are shared by the layers of each side. The decoder sees all its
    positions, or with `causal` those up to the query, and has `positional` attention besides (section 4.5 of Li et al.
    2024). A [LENGTH] token is read before the source; the scores of target lengths 1 … `longest_target`, ⟨eos⟩
    included, are its output times W_L. With `source_positions` a trained vector for each place is added to the source,
    as T5 and the published model do not: small models find the place of a word sooner that way.

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
        source_positions: bool = False,
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
            vocab=size, layers=whole("layers", layers, most=MOST_LAYERS), heads=heads, width=width,
            head_width=head_width, mlp=mlp, causal=causal, positional=positional, source_positions=source_positions,
            longest=longest, longest_target=longest_target, buckets=buckets, furthest=furthest,
            initial=dict(initial or {}),
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
        self.W_source = nn.Parameter(torch.zeros(longest, width)) if source_positions else None
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

    def forward(self, inputs: Pair | Encoded, want: Sequence[str] = (), edits: Mapping[str, Edit] | None = None) -> Any:
        """Logits "batch position vocab"; with `want`, the pair (logits, {name: activation}).

        `edits` maps names or shell patterns to what goes on in the place of these activations.
        """
        return tapped(lambda tap: self._run(inputs, tap), want, edits, self.hook_names)

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
        x = tap("hook_source_embed", F.embedding(torch.cat([start, source], -1), self.embed.W_E))
        if self.W_source is not None:
            x = x + F.pad(first(self.W_source, source.shape[-1]), (0, 0, 1, 0))
        places = torch.arange(source.shape[-1] + 1, device=source.device)
        bias = self.encoder_bias(places, places)
        if seen is not None:
            bias = (
                bias + _hiding(torch.cat([torch.ones_like(start, dtype=torch.bool), seen], -1), x)[..., None, None, :]
            )
        for i, block in enumerate(self.encoder):
            x = block(x, bias, inside(f"encoder.{i}", tap))
        x = self.ln_encoder(x)
        length = tap("hook_length", x[..., 0, :] @ self.W_L.T)
        return tap("hook_memory", x[..., 1:, :]), length

    def prepare(
        self,
        memory: Float[Tensor, "batch source width"],
        seen: Bool[Tensor, "batch source"] | None,
        size: int,
        real: Bool[Tensor, "batch position"] | None = None,
        tap: Tap = silent,
    ) -> Prepared:
        """All that the decoder can work out before it sees a target of `size` positions, `real` where not padding."""
        places = torch.arange(size, device=memory.device)
        bias = self.decoder_bias(places, places)
        if self.causal:
            bias = bias + _hiding(places <= places[:, None], memory)
        if real is not None:
            bias = bias + _hiding(real, memory)[..., None, None, :]
        vectors = None if self.W_pos is None else first(self.W_pos, size)
        held = [b.hold(memory, vectors, bias, inside(f"decoder.{i}", tap)) for i, b in enumerate(self.layers)]
        return Prepared(held, bias, None if seen is None else _hiding(seen, memory)[..., None, None, :])

    def write(self, target: Int[Tensor, "batch position"], prepared: Prepared, tap: Tap = silent) -> Tensor:
        """The logits at all positions of the target: one pass of the decoder."""
        x = tap("hook_embed", F.embedding(target, self.embed.W_E))
        for i, (block, held) in enumerate(zip(self.layers, prepared.layers, strict=True)):
            x, _ = block(x, held, None, prepared.bias, prepared.source, inside(f"decoder.{i}", tap))
        return self._head(x, tap)

    def _run(self, inputs: Pair | Encoded, tap: Tap) -> Tensor:
        memory = inputs.memory if isinstance(inputs, Encoded) else self.encode(inputs.source, inputs.seen, tap)[0]
        return self.write(
            inputs.target, self.prepare(memory, inputs.seen, inputs.target.shape[-1], inputs.real, tap), tap
        )

    def _head(self, x: Tensor, tap: Tap) -> Tensor:
        return tap("hook_normalized", self.ln_final(x)) @ self.embed.W_E.T / self.width**0.5

    @property
    def layers(self) -> list[DecoderBlock]:
        return cast(list[DecoderBlock], list(self.decoder))

    # -- one token after another -------------------------------------------------------------------------------------

    @torch.no_grad()
    def start(
        self,
        memory: Float[Tensor, "row source width"],
        seen: Bool[Tensor, "row source"] | None = None,
        longest: int | None = None,
    ) -> Progress:
        """Rows that have no tokens yet and will have at most `longest`."""
        if not self.causal:
            raise ArgumentError("start: only a causal decoder goes on from what it has written; use causal=True")
        prepared = self.prepare(memory, seen, self.config["longest"] if longest is None else longest)
        none = [h.keys[:, :0] for h in prepared.layers]
        layers = [
            Written(t, t, None if h.positional is None else t) for t, h in zip(none, prepared.layers, strict=True)
        ]
        return Progress(prepared, layers, 0)

    @torch.no_grad()
    def extend(self, ids: Int[Tensor, " row"], progress: Progress) -> tuple[Float[Tensor, "row vocab"], Progress]:
        """The logits that `forward` gives after one more token in every row, and the rows with it."""
        prepared, place = progress.prepared, progress.length
        if place >= prepared.bias.shape[-1]:
            raise ArgumentError(f"{place + 1} tokens: these rows were started for at most longest={place}")
        bias = prepared.bias[..., place : place + 1, : place + 1]
        x = F.embedding(ids[:, None], self.embed.W_E)
        after = []
        for block, held, before in zip(self.layers, prepared.layers, progress.layers, strict=True):
            if held.positional is not None:
                held = held._replace(positional=held.positional[..., place : place + 1, : place + 1])
            x, now = block(x, held, before, bias, prepared.source, silent)
            after.append(now)
        return self._head(x, silent)[:, 0], progress._replace(layers=after, length=place + 1)


def _t5_initial(width: int, heads: int, head: int, hidden: int) -> dict[str, Initial]:
    """T5's initial weights: embeddings, positions, logits and the scores of lengths all start with variance 1."""
    return {
        "*ln*.w": Constant(1.0),
        "*.W_Q": Normal((width * head) ** -0.5),
        "*.W_O": Normal((heads * head) ** -0.5),
        "*.W_out": Normal(hidden**-0.5),
        "embed.W_E": Normal(1.0),
        "W_pos": Normal(1.0),
        "W_source": Normal(1.0),
        "W_L": Normal(width**-0.5),
        "*": Normal(width**-0.5),
    }
