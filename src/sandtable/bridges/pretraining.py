"""Hugging Face masked language models as models of ours: trained from scratch on any corpus with `MaskedLM`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, fits_in_memory, missing, nearest, number, typed, whole
from sandtable.bridges.huggingface import is_masked_lm, load_tokenizer
from sandtable.bridges.tokens import TextWorld, TokenCorpus
from sandtable.inputs import Selected, Tokens
from sandtable.models import Normal
from sandtable.models.attention import take
from sandtable.models.transformer import MOST_LAYERS
from sandtable.objectives import MaskedLM
from sandtable.probes.dynamics import attention_matrices, rotations, watch_norms, watch_values
from sandtable.probes.topics import time_to_fraction
from sandtable.training import Fit, Optimizer, fit_single
from sandtable.training.pace import Pace

_TURNS = 5000  # steps up to which the value matrices themselves are kept, every tenth


class MaskedModel(nn.Module):
    """A Hugging Face masked LM (BERT, RoBERTa, ALBERT, ELECTRA's generator, DistilBERT …) read like our Transformers.

    For `Selected` inputs the vocabulary head works at the selected rows only. `attention_scale` σ starts all query, key
    and value matrices from N(0, σ²) instead of the family's own law: near zero, as in the two-stage experiments of Li,
    Li & Risteski (2023). Train it with `fit_single`.
    """

    def __init__(self, model: nn.Module, *, attention_scale: float | None = None) -> None:
        super().__init__()
        if not is_masked_lm(model):
            raise ArgumentError(
                f"model={type(model).__name__}: must be a Hugging Face encoder with a masked-LM head (…ForMaskedLM)"
            )
        if attention_scale is not None:
            number("attention_scale", attention_scale, least=0.0)
            attention_matrices(model)
        self.model, self.attention_scale = model, attention_scale

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> MaskedModel:
        """Draw every parameter afresh by the model's own initialiser; `scale` multiplies what is random in it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            # A new model, since initialisers skip what they think is initialised already.
            fresh = type(self.model)(copy.deepcopy(self.model.config))  # pyright: ignore[reportCallIssue]
        near_zero = []
        if self.attention_scale is not None:
            near_zero = [name for layer in attention_matrices(fresh) for name in layer.values()]
        with torch.no_grad():
            for name, drawn in fresh.named_parameters():
                if name in near_zero:
                    drawn = Normal(self.attention_scale or 0.0).draw(drawn.shape, generator, scale)
                elif bool((drawn != drawn.flatten()[0]).any()):  # neither a bias of zeros nor a norm's ones
                    drawn = drawn * scale
                self.model.get_parameter(name).copy_(drawn)
        return self

    def describe(self) -> dict[str, Any]:
        """Everything that decides what this model computes before training."""
        frozen = [name for name, parameter in self.named_parameters() if not parameter.requires_grad]
        return dict(
            kind="MaskedModel",
            family=type(self.model).__name__,
            config=self._config.to_diff_dict(),
            attention_scale=self.attention_scale,
            frozen=frozen,
        )

    @property
    def _config(self) -> Any:
        return self.model.config

    # -- forward -----------------------------------------------------------------------------------------------------

    def forward(self, inputs: Tensor | Tokens | Selected, want: Sequence[str] = ()) -> Any:
        """Logits; with `want`, the pair (logits, {name: activation}). `hook_names` lists what can be asked for."""
        if not isinstance(inputs, Tensor | Tokens | Selected):
            raise ArgumentError(f"{type(inputs).__name__} inputs: a Hugging Face model reads tokens in their places")
        ids, mask = inputs[:2] if isinstance(inputs, Tokens | Selected) else (inputs, None)
        names = self.hook_names() if want else []
        for name in want:
            if name not in names:
                raise ArgumentError(f"want={name!r}: no such activation{nearest(name, names)}")
        patterns, streams = (any(n.endswith(end) for n in want) for end in ("hook_pattern", "hook_resid_post"))
        out = self._read(
            inputs.rows if isinstance(inputs, Selected) else None,
            input_ids=ids,
            attention_mask=None if mask is None else mask.long(),
            output_attentions=patterns,
            output_hidden_states=streams,
        )
        if not want:
            return out.logits
        if patterns and (not out.attentions or out.attentions[0] is None):
            raise ArgumentError("want='…hook_pattern': build or load the model with attn_implementation='eager'")
        found = {}
        for name in want:
            layer = int(name.split(".")[1])
            found[name] = out.attentions[layer] if "pattern" in name else out.hidden_states[layer + 1]
        return out.logits, found

    def hook_names(self) -> list[str]:
        """The activations that `forward(tokens, want=…)` can return."""
        layers = range(self._config.num_hidden_layers)
        return [f"blocks.{i}.{end}" for i in layers for end in ("attn.hook_pattern", "hook_resid_post")]

    def _read(self, rows: Tensor | None, **inputs: Any) -> Any:
        """One forward pass; between the encoder and its head only the stream at `rows` is kept."""
        if rows is None:
            return self.model(**inputs, return_dict=True)

        def keep(module: nn.Module, args: Any, output: Any) -> Any:
            output["last_hidden_state"] = take(output["last_hidden_state"], rows)
            return output

        encoder: nn.Module = self.model.base_model  # pyright: ignore[reportAssignmentType]
        handle = encoder.register_forward_hook(keep)
        try:
            return self.model(**inputs, return_dict=True)
        finally:
            handle.remove()


@typed
def bert_like(
    vocab: Any,
    *,
    layers: int = 4,
    heads: int = 4,
    width: int = 256,
    longest: int = 128,
    attention_scale: float | None = 1e-3,
    dropout: float = 0.0,
    attentions: bool = False,
) -> MaskedModel:
    """A small BERT for masked LM from scratch, keys, queries and values near zero (Li, Li & Risteski 2023, Figure 5).

    4 layers and 4 heads are published; width, length and the scale of "near zero" are not. `attention_scale=None` is
    BERT's own initialisation; `attentions=True` lets attention patterns be read, which takes more memory.
    """
    size = whole("vocab", len(vocab) if hasattr(vocab, "__len__") else vocab, least=2)
    layers, longest = whole("layers", layers, most=MOST_LAYERS), whole("longest", longest)
    fits_in_memory("width", width, float(size + longest) * whole("width", width) + 12.0 * layers * width**2)
    if whole("width", width) % whole("heads", heads):
        raise ArgumentError(f"heads={heads}: must divide the width {width}")
    dropout = number("dropout", dropout, least=0.0, most=1.0)
    try:
        from transformers import AutoModelForMaskedLM, BertConfig
    except ImportError as error:
        raise missing("bert_like", "transformers", "text") from error
    config = BertConfig(
        vocab_size=size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        hidden_size=width,
        intermediate_size=4 * width,
        max_position_embeddings=longest,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    model = AutoModelForMaskedLM.from_config(config, attn_implementation="eager" if attentions else "sdpa")
    return MaskedModel(model, attention_scale=attention_scale)


def pretrain_bert(
    tokens: TokenCorpus,
    tokenizer: Any,
    out: Path | str,
    *,
    optimizer: Optimizer,
    steps: int = 400,
    layers: int = 4,
    heads: int = 4,
    width: int = 128,
    length: int = 64,
    batch_size: int = 32,
    attention_scale: float | None = 1e-3,
    precision: str = "float32",
    seed: int = 0,
    device: str = "cpu",
    accelerator: Any = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any] | None:
    """Train `bert_like` on windows of a corpus, save it for Hugging Face in `out`, and tell how its layers grew.

    The same call goes on from the checkpoint of one that was interrupted. With an `accelerator` only the main process
    saves and returns the record (see `dynamics`).
    """
    world = TextWorld(tokens, length=length)
    model = bert_like(
        world.vocab, layers=layers, heads=heads, width=width, longest=length, attention_scale=attention_scale,
        attentions=True,
    )  # fmt: skip
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"out={str(out)!r}: cannot be made a folder ({error.strerror})") from error
    report = None
    if say is not None:
        pace = Pace()
        report = lambda *made: say(pace.training(*made))  # noqa: E731
    fit = fit_single(
        model,
        world,
        MaskedLM(),
        steps=whole("steps", steps, least=20),
        batch_size=batch_size,
        optimizer=optimizer,
        precision=precision,
        seeds=[seed],
        device=device,
        accelerator=accelerator,
        checkpoint=out / "checkpoint",
        progress=report or False,
        watch=watch_norms(model) | (watch_values(model) if steps <= _TURNS else {}),
        watch_every=10,
    )
    if not _main_process(accelerator):
        return None
    trained: Any = fit[0].model
    trained.save_pretrained(out)
    load_tokenizer(tokenizer).save_pretrained(out)
    return dynamics(fit)


def _main_process(accelerator: Any) -> bool:
    if accelerator is None or accelerator is False:
        return True
    from accelerate import PartialState

    return PartialState().is_main_process


def dynamics(fit: Fit) -> dict[str, Any]:
    """How the layers of the first model of a fit grew, from what `watch_norms` and `watch_values` recorded.

    `norms[layer]` has ‖W_K‖, ‖W_Q‖ and ‖W_V‖ at `steps`, `rotation[layer]` how far W_V turned over 10 steps (where it
    was watched), `times[layer]` the steps at which W_V had made half, and W_K and W_Q a tenth, of their change.
    """
    at, watched = fit.watched_at, {name: value.double() for name, value in fit.watched.items()}
    layers = sum(name.endswith(".W_V") for name in watched)
    goals = {"V": 0.5, "K": 0.1, "Q": 0.1}
    times, norms, turns = [], [], []
    for layer in range(layers):
        own = {kind: watched[f"{layer}.W_{kind}"][:1] for kind in "KQV"}
        times.append({kind: float(time_to_fraction(own[kind], at, goal)[0]) for kind, goal in goals.items()})
        norms.append([{kind: float(own[kind][0, i]) for kind in own} for i in range(len(at))])
        if f"{layer}.values" in watched:
            turns.append(rotations(watched[f"{layer}.values"][:1], at)[1][0].tolist())
    return dict(steps=list(at), norms=norms, rotation=turns, times=times, loss=fit.losses[0].tolist())
