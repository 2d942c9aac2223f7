"""Keys of the store: canonical descriptions of what was computed, and hashes of the sources that computed it."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import hashlib
import importlib.util
import json
import math
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded when first needed: `sandtable list` reads verdicts, which hold no arrays
    import numpy as np

MARK = 8
"""Letters of a fingerprint that the name of a small file carries."""

# How evidence is judged and shown never changes what was measured.
_OUTSIDE = ("sandtable.lab", "sandtable.cli", "sandtable.__main__")
# What sandtable is built on: parts of a model may come from there, but nobody's claims do.
_LIBRARIES = sys.stdlib_module_names - {"__main__"} | {"torch", "numpy", "scipy", "sklearn", "transformers"}


def describe(obj: Any) -> Any:
    """A canonical JSON description: equal descriptions mean the same object for every computation.

    An object with a `describe()` method speaks for itself; anything without a known form is a `TypeError`.
    """
    if obj is None or (isinstance(obj, bool | str) and not isinstance(obj, enum.Enum)):
        return obj
    if isinstance(obj, enum.Enum):
        return {"enum": _name(type(obj)), "member": obj.name}
    if "numpy" in sys.modules and (known := _numpy(obj)) is not None:
        return known
    if isinstance(obj, int):
        return int(obj)
    if isinstance(obj, float):
        return float(obj) if math.isfinite(obj) else {"float": repr(float(obj))}
    if isinstance(obj, Path):
        return {"path": str(obj)}
    if isinstance(obj, type | FunctionType | BuiltinFunctionType):
        return {"name": _name(obj)}
    if isinstance(obj, MethodType):
        return {"method": obj.__func__.__qualname__, "of": describe(obj.__self__)}
    if isinstance(obj, functools.partial):
        return {"partial": describe(obj.func), "args": describe(obj.args), "keywords": describe(obj.keywords)}
    if callable(getattr(obj, "describe", None)):
        return {"type": _name(type(obj)), "describe": describe(obj.describe())}
    if isinstance(obj, Mapping):
        return _mapping(obj)
    if dataclasses.is_dataclass(obj):
        fields = {f.name: describe(getattr(obj, f.name)) for f in dataclasses.fields(obj) if f.compare}
        return {"type": _name(type(obj)), "fields": fields}
    if isinstance(obj, list | tuple):
        return [describe(item) for item in obj]
    if isinstance(obj, range):
        return list(obj)
    if isinstance(obj, set | frozenset):
        return {"set": sorted((describe(item) for item in obj), key=canonical)}
    if "torch" in sys.modules and (known := _torch(obj)) is not None:
        return known
    raise TypeError(f"{obj!r} of type {_name(type(obj))}: cannot be part of a store key; give it a describe() method")


def canonical(content: Any) -> str:
    """JSON with one spelling per value: sorted keys, no blanks, no NaN."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(obj: Any) -> str:
    """SHA-256 (hex) of the canonical description of `obj`."""
    return hashlib.sha256(canonical(describe(obj)).encode()).hexdigest()


def source_hash(*things: Any) -> str:
    """SHA-256 over the source files that `things` (modules, classes, functions, objects) live in and all they import.

    Imports are followed, also inside functions, through `sandtable` (without its lab and command line) and through the
    packages and folders of the things themselves. Of torch and numpy the keys hold the versions.
    """
    return _hash({name for thing in things for name in origins(thing)})


def sources_of(module: str) -> str | None:
    """`source_hash` of a module given by its name, without importing it; None where its source is not to be found."""
    return None if module == "__main__" or _file(module) is None else _hash({module})


def _hash(found: set[str]) -> str:
    waiting = sorted(name for name in found if name.partition(".")[0] not in _LIBRARIES)
    homes = {"sandtable"} | {name.partition(".")[0] for name in waiting}
    folders = {file.parent for name in waiting if "." not in name and (file := _file(name)) is not None}
    seen: dict[str, str] = {}

    def followed(name: str) -> bool:
        top = name.partition(".")[0]
        return top in homes or ((file := _file(top)) is not None and file.parent in folders)

    while waiting:
        name = waiting.pop()
        if name in seen or _within(name, _OUTSIDE):
            continue
        file = _file(name)
        if file is None:
            if name == "__main__":  # typed at a prompt: nothing can tell later what it was, so no key may match it
                seen[name] = uuid.uuid4().hex
            continue
        seen[name], imported = _read(name, file)
        waiting.extend(module for base, child in imported if followed(base) for module in _resolve(base, child))
    return hashlib.sha256(canonical(seen).encode()).hexdigest()


def origins(thing: Any) -> set[str]:
    """Names of the modules in which an object's class, its parts' classes and its functions are written."""
    if isinstance(thing, ModuleType):
        return {thing.__name__}
    if isinstance(thing, type | FunctionType):
        return {thing.__module__}
    if isinstance(thing, MethodType):
        return origins(thing.__func__) | origins(thing.__self__)
    if isinstance(thing, functools.partial):
        return origins(thing.func) | origins(thing.args) | origins(thing.keywords)
    if isinstance(thing, Mapping):
        return set().union(*(origins(value) for value in thing.values()))
    if isinstance(thing, list | tuple | set | frozenset):
        return set().union(*(origins(item) for item in thing))
    own = set() if type(thing).__module__ == "builtins" else {type(thing).__module__}
    if dataclasses.is_dataclass(thing):
        return own.union(*(origins(getattr(thing, field.name)) for field in dataclasses.fields(thing)))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.nn.Module):
        return {type(part).__module__ for part in thing.modules()}
    return own


def _name(obj: Any) -> str:
    module, name = obj.__module__, obj.__qualname__
    if "<" in name:
        raise TypeError(f"{module}.{name}: only things with a name of their own in a module can be part of a store key")
    return f"{module}.{name}"


def _numpy(obj: Any) -> Any:
    """An array, or a number of numpy's as the Python number that it is."""
    import numpy as np

    if isinstance(obj, np.generic):
        return describe(obj.item())
    return _array(obj) if isinstance(obj, np.ndarray) else None


def _array(array: np.ndarray) -> dict[str, Any]:
    import numpy as np

    if array.dtype.hasobject:
        raise TypeError(f"an array of dtype {array.dtype}: only plain numbers can be part of a store key")
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return {"array": array.dtype.str, "shape": list(array.shape), "sha256": digest}


def _mapping(mapping: Mapping[Any, Any]) -> Any:
    if all(isinstance(key, str) for key in mapping):
        return {"mapping": {key: describe(value) for key, value in mapping.items()}}
    pairs = [[describe(key), describe(value)] for key, value in mapping.items()]
    return {"pairs": sorted(pairs, key=lambda pair: canonical(pair[0]))}


def _torch(obj: Any) -> Any:
    torch = sys.modules["torch"]
    if isinstance(obj, torch.Tensor):
        data = obj.detach().to("cpu").contiguous()
        digest = hashlib.sha256(data.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
        return {"tensor": str(obj.dtype), "shape": list(obj.shape), "sha256": digest}
    if isinstance(obj, torch.dtype | torch.device):
        return {"torch": str(obj)}
    if isinstance(obj, torch.nn.Module):
        config = getattr(obj, "config", None)
        known = describe(config) if dataclasses.is_dataclass(config) else None
        return {"type": _name(type(obj)), "config": known, "parts": repr(obj), "tensors": describe(obj.state_dict())}
    return None


def _within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def _file(name: str) -> Path | None:
    """The source file of a module, found without importing anything."""
    if (module := sys.modules.get(name)) is not None:
        file = getattr(module, "__file__", None)
        return Path(file) if file is not None and file.endswith(".py") else None
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None
    bases = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    places = [place for base in bases for place in (base / "__init__.py", base.with_name(base.name + ".py"))]
    return next((place for place in places if place.is_file()), None)


# Sources as they were when first asked for, not as edited since: a file changed during a run is not what is running.
# A reloaded module has a new spec and is read again.
_SOURCES: dict[str, tuple[Any, str, tuple[tuple[str, str], ...]]] = {}


def _read(name: str, file: Path) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Hash of a module's source, and its imports as pairs (module, name taken from it)."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    known = _SOURCES.get(name)
    if known is None or known[0] is not spec:
        source = file.read_bytes()
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        imported = tuple(sorted(set(_imports(ast.parse(source), package))))
        known = _SOURCES[name] = (spec, hashlib.sha256(source).hexdigest(), imported)
    return known[1], known[2]


def _imports(tree: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".") if node.level else []
            parents = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            if base:
                yield from ((base, alias.name) for alias in node.names)


def _resolve(base: str, child: str) -> list[str]:
    """The modules that `from base import child` (or `import base`) depends on."""
    if child and _file(f"{base}.{child}") is not None:
        return [f"{base}.{child}"]
    if base != "sandtable" or (init := _file(base)) is None:
        return [base]
    # The bare package loads its rooms on demand, so it stands for every room that can be measured with.
    names = [
        ".".join(("sandtable", *f.relative_to(init.parent).with_suffix("").parts)) for f in init.parent.rglob("*.py")
    ]
    return [n.removesuffix(".__init__") for n in names if not _within(n, (*_OUTSIDE, "sandtable.claims"))]
