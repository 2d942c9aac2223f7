"""A trained verifier: a classifier on the generator's own hidden states tells right prefixes from wrong ones."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sandtable.arguments import ArgumentError, flag, one_of, whole
from sandtable.decoding.adapt import as_language_model
from sandtable.decoding.language_model import Hidden, LanguageModel
from sandtable.decoding.verifiers.base import GRANULARITIES, View
from sandtable.probes.classifier import Assessment, Classifier, ClassifierFit, assess, train_classifier

_KIND = "sandtable probe verifier"
_TOKENS = 8  # of the row that tells one model from another
_DRIFT = 0.01  # relative change of its hidden state that another machine can explain
_COARSE_DRIFT = 0.1  # and that 16 bits can explain, here or where it was trained


def hidden_states(lm: Any, rows: Sequence[Any], hidden: Hidden, *, batch_size: int = 64) -> Float[Tensor, "row width"]:
    """The hidden state of the last token of every row, in float32 on the CPU.

    Rows of similar length are read together, so that little of a batch is padding.
    """
    if not len(rows):
        raise ArgumentError("rows=[]: must hold at least one row")
    model, parts = as_language_model(lm), []
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    with torch.no_grad():
        for first in range(0, len(order), whole("batch_size", batch_size)):
            session = model.start([rows[row] for row in order[first : first + batch_size]], room=0, hidden=hidden)
            parts.append(session.hidden().float().cpu())
    states = torch.cat(parts)
    return torch.empty_like(states).index_copy_(0, torch.tensor(order), states)


def _state(model: LanguageModel, row: Tensor, hidden: Hidden) -> tuple[Float[Tensor, " width"], bool]:
    """The hidden state of the last token of a row, and whether the model computes it in 16 bits."""
    with torch.no_grad():
        state = model.start([row], room=0, hidden=hidden).hidden()[0]
    return state.float().cpu(), torch.finfo(state.dtype).bits < 32


@dataclass
class ProbeVerifier:
    """P(a prefix is right) by a classifier on the hidden state of its last token (Botta et al. 2025).

    Layer and normalisation of the state belong to the verifier (`needs`) and go with it to disk. So does the state of
    one short row, by which it notices that it is asked about another model than it was trained on. `granularity` is
    that of the prefixes that it was trained on: "block" for finished lines.
    """

    classifier: Classifier
    needs: Hidden
    row: Int[Tensor, " position"]
    state: Float[Tensor, " width"]
    validation_accuracy: float = float("nan")
    is_value: bool = False
    granularity: str = "token"
    coarse: bool = False
    """Whether the states had 16 bits when it was trained."""
    _known: list[weakref.ref[Any]] = field(default_factory=list, repr=False)

    @classmethod
    def fit(
        cls,
        lm: Any,
        rows: Sequence[Any],
        labels: Int[Tensor, " row"],
        generator: torch.Generator,
        *,
        hidden: Hidden,
        granularity: str = "token",
        batch_size: int = 64,
        **training: Any,
    ) -> ProbeVerifier:
        """Train on prefixes `rows` with label 1 (right) or 0 (wrong); `training` goes to `probes.train_classifier`.

        A prefix that comes more than once is used once, so that none is trained on and validated with.
        """
        if not len(rows):
            raise ArgumentError(
                "rows=[]: a probe needs right and wrong prefixes; collect_error_prefixes finds none where nothing is "
                "wrong, or nothing right is as long as what is wrong"
            )
        kept = sorted({tuple(map(int, row)): number for number, row in reversed(list(enumerate(rows)))}.values())
        rows, labels = [rows[number] for number in kept], torch.as_tensor(labels)[kept]
        states = hidden_states(lm, rows, hidden, batch_size=batch_size)
        made = cls.of(lm, rows[0], train_classifier(states, labels, generator, **training), hidden)
        return replace(made, granularity=one_of("granularity", granularity, GRANULARITIES))

    @classmethod
    def of(cls, lm: Any, row: Any, fit: ClassifierFit, hidden: Hidden) -> ProbeVerifier:
        """The verifier of a classifier that was trained on `hidden` of `lm`; `row` is any row of tokens."""
        row = torch.as_tensor(row, dtype=torch.long).cpu()[:_TOKENS].clone()
        state, coarse = _state(as_language_model(lm), row, hidden)
        return cls(fit.classifier, hidden, row, state, fit.validation_accuracy, coarse=coarse)

    def score(self, view: View) -> Float[Tensor, " row"]:
        if view.hidden is None:
            raise ArgumentError(f"hidden=None: this probe reads {self.needs}; start the session with it")
        if view.needs not in (None, self.needs):
            raise ArgumentError(f"hidden={view.needs}: this probe reads {self.needs}; what asks it must need that too")
        network = getattr(view.model, "network", view.model)
        if not any(known() is network for known in self._known):
            self._recognise(view.model)
            self._known = [*(known for known in self._known if known() is not None), weakref.ref(network)]
        if next(self.classifier.parameters()).device != view.hidden.device:
            self.classifier.to(view.hidden.device)
        with torch.no_grad():
            return self.classifier(view.hidden).softmax(-1)[:, 1].cpu()

    def assess(self, lm: Any, rows: Sequence[Any], labels: Int[Tensor, " row"], *, batch_size: int = 64) -> Assessment:
        """Accuracy, best threshold and calibration on prefixes that it was not trained on (label 1: right)."""
        model = as_language_model(lm)
        self._recognise(model)
        states = hidden_states(model, rows, self.needs, batch_size=batch_size)
        with torch.no_grad():
            scores = self.classifier.cpu()(states).softmax(-1)[:, 1]
        return assess(scores, labels)

    def _recognise(self, model: LanguageModel) -> None:
        """Refuse a model whose hidden state of the stored row is another one than at training time."""
        if int(self.row.max()) >= model.vocab_size:
            raise ArgumentError(f"probe of a model with more than {int(self.row.max())} tokens: {self._misfit(model)}")
        state, coarse = _state(model, self.row, self.needs)
        if state.shape != self.state.shape:
            raise ArgumentError(f"probe of hidden states {len(self.state)} wide: {self._misfit(model)} is {len(state)}")
        drift = float((state - self.state).norm() / self.state.norm().clamp(min=1e-12))
        if not drift <= (_COARSE_DRIFT if coarse or self.coarse else _DRIFT):
            raise ArgumentError(
                f"probe of another model: hidden states ({self.needs}) of {self._misfit(model)} differ by {drift:.0%}"
            )

    def _misfit(self, model: LanguageModel) -> str:
        return f"this {type(model).__name__} with {model.vocab_size} tokens"

    # -- disk --------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the verifier as one safetensors file."""
        path = Path(path)
        tensors = {f"classifier.{name}": value.cpu() for name, value in self.classifier.state_dict().items()}
        tensors |= {"row": self.row, "state": self.state}
        facts = {
            "kind": _KIND,
            "classifier": self.classifier.config,
            "layer": self.needs.layer,
            "normed": self.needs.normed,
            "validation_accuracy": self.validation_accuracy,
            "granularity": self.granularity,
            "coarse": self.coarse,
        }
        save_file({name: value.contiguous() for name, value in tensors.items()}, path, {"probe": json.dumps(facts)})
        return path

    @classmethod
    def load(cls, path: str | Path) -> ProbeVerifier:
        """Read a verifier written by `save`."""
        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads((file.metadata() or {}).get("probe", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, ValueError, RecursionError) as error:
            raise ArgumentError(f"{path}: cannot be read as a probe verifier ({error})") from error
        if not isinstance(facts, dict) or facts.get("kind") != _KIND:
            raise ArgumentError(f"{path}: holds no probe verifier")
        try:
            part = "classifier."
            weights = {n.removeprefix(part): t for n, t in tensors.items() if n.startswith(part)}
            with torch.device("meta"):  # whatever the header says, only what is in the file takes memory
                classifier = Classifier(**facts["classifier"])
            classifier.load_state_dict(weights, assign=True)
            hidden = Hidden(facts["layer"], normed=facts["normed"])
            accuracy = float(facts["validation_accuracy"])
            made = cls(classifier.requires_grad_(False), hidden, tensors["row"], tensors["state"], accuracy)
            made.coarse = flag("coarse", facts.get("coarse", True))
            made.granularity = one_of("granularity", facts.get("granularity", "token"), GRANULARITIES)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(f"{path}: header and weights do not fit together ({error})") from error
        return made
