"""Built models on disk: weights as safetensors, and what they are as JSON in the header; nothing is unpickled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandtable.arguments import ArgumentError, number, typed, whole
from sandtable.models import Transformer
from sandtable.models.files import load_model, misfit, save_model, weights
from sandtable.theory.dyck.constructions import least_width, skeleton, skeleton_of
from sandtable.worlds.dyck import DyckPrefixes

KIND = "dyck"


@dataclass(frozen=True)
class Built:
    """A built model and what it was built for."""

    model: Transformer
    types: int
    depth: int
    q: float
    attention: str = "custom"
    """What it was built as: "uniform", "random" or "misleading", or a word of your own."""
    seed: int = 0
    scale: float | None = None

    @property
    def world(self) -> DyckPrefixes:
        """The law whose next-token probabilities the model gives."""
        return DyckPrefixes(types=self.types, depth=self.depth, q=self.q)


@typed
def save(built: Built, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write weights and facts to one file; readers see the old one or the whole new one."""
    skeleton_of(built.model, types=built.types, depth=built.depth)
    facts = {name: value for name, value in vars(built).items() if name != "model"}
    facts |= dict(layers=len(built.model.layers), width=built.model.width)
    return save_model(path, weights(built.model), facts, kind=KIND, overwrite=overwrite)


@typed
def load(path: str | Path) -> Built:
    """The model that `save` wrote, with the same weights to the last bit."""
    tensors, facts = load_model(path, kind=KIND, what="model of brackets")
    try:
        types, depth = whole("types", facts["types"], most=1000), whole("depth", facts["depth"], most=1000)
        width = whole("width", facts["width"], least=least_width(types, depth), most=100_000)
        q, layers = number("q", facts["q"], above=0.0, most=1.0), whole("layers", facts["layers"], least=2, most=1000)
        DyckPrefixes(types=types, depth=depth, q=q)  # refuses what is no law
        if tuple(tensors["embed.W_E"].shape) != (2 * types + 2, width):
            raise ArgumentError(f"weights of a vocabulary of {len(tensors['embed.W_E'])}, not {2 * types + 2}")
        model = skeleton(types=types, depth=depth, layers=layers, width=width)
        model.load_state_dict(tensors)
    except (KeyError, RuntimeError, ArgumentError) as error:
        raise misfit(path, error) from error
    built = {name: facts[name] for name in ("attention", "seed", "scale") if name in facts}
    return Built(model.requires_grad_(False), types, depth, q, **built)
