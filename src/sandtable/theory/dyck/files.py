"""Built models on disk: weights as safetensors, and what they are as JSON in the header; nothing is unpickled."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import safetensors
from safetensors.torch import save_file

from sandtable.arguments import ArgumentError, number, whole
from sandtable.models import Transformer
from sandtable.theory.dyck.constructions import least_width, skeleton
from sandtable.worlds.dyck import DyckPrefixes

KIND = "dyck"


@dataclass(frozen=True)
class Built:
    """A built model and what it was built for."""

    model: Transformer
    types: int
    depth: int
    q: float
    attention: str = "uniform"
    seed: int = 0
    scale: float | None = None

    @property
    def world(self) -> DyckPrefixes:
        """The law whose next-token probabilities the model gives."""
        return DyckPrefixes(types=self.types, depth=self.depth, q=self.q)


def save(built: Built, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write weights and facts to one file; readers see the old one or the whole new one."""
    path = Path(path)
    if path.is_dir() or (path.exists() and not overwrite):
        raise ArgumentError(f"{path}: exists already; choose another name" + ", or overwrite it" * path.is_file())
    facts = {name: value for name, value in vars(built).items() if name != "model"}
    facts |= dict(kind=KIND, layers=len(built.model.layers), width=built.model.width)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        tensors = {name: value.detach().contiguous() for name, value in built.model.state_dict().items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary, metadata={"sandtable": json.dumps(facts)})
        os.replace(temporary, path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ArgumentError(f"{path}: cannot be written ({error})") from error
    finally:
        if temporary.exists():
            temporary.unlink()
    return path


def load(path: str | Path) -> Built:
    """The model that `save` wrote, with the same weights to the last bit."""
    path = Path(path)
    if not path.is_file():
        raise ArgumentError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="pt") as handle:
            facts = json.loads((handle.metadata() or {}).get("sandtable", "{}"))
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ArgumentError(f"{path}: not a safetensors file ({error})") from error
    if not isinstance(facts, dict) or facts.get("kind") != KIND:
        raise ArgumentError(f"{path}: holds no model of brackets (its header does not say so)")
    try:
        types, depth = whole("types", facts["types"], most=1000), whole("depth", facts["depth"], most=1000)
        width = whole("width", facts["width"], least=least_width(types, depth), most=100_000)
        q, layers = number("q", facts["q"], above=0.0, most=1.0), whole("layers", facts["layers"], least=2, most=1000)
        if tuple(tensors["embed.W_E"].shape) != (2 * types + 2, width):
            raise ArgumentError(f"weights of a vocabulary of {len(tensors['embed.W_E'])}, not {2 * types + 2}")
        model = skeleton(types=types, depth=depth, layers=layers, width=width)
        model.load_state_dict(tensors)
    except (KeyError, RuntimeError, ArgumentError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(f"{path}: header and weights do not fit together ({reason[:200]})") from error
    built = {name: facts[name] for name in ("attention", "seed", "scale") if name in facts}
    return Built(model.requires_grad_(False), types, depth, q, **built)
