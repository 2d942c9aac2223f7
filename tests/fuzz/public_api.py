"""Everything public that takes settings, found from the rooms' `__all__`, so that nothing new stays untried."""

import enum
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

ROOMS = ("worlds", "models", "objectives", "training", "theory", "probes", "decoding", "bridges", "lab")
PLAIN = re.compile(r"\b(int|float|str|bool|ArrayLike)\b")
"""What a setting is annotated as; tensors, worlds and models are not settings."""
_SHAPES = re.compile(r"\b(Float|Int|Bool)\[(Tensor|np\.ndarray), *(f?'[^']*'|f?\"[^\"]*\")\]")


@dataclass(frozen=True)
class Target:
    """Something to call, with its parameters; `plain` are those that are settings."""

    name: str
    call: Callable
    parameters: dict[str, inspect.Parameter]
    plain: tuple[str, ...]


def targets() -> dict[str, Target]:
    """Every public constructor and function that takes settings, by its name without "sandtable."."""
    found: dict[str, Target] = {}
    seen: set[int] = set()
    for room in ROOMS:
        for name, thing in _public(importlib.import_module(f"sandtable.{room}"), set()):
            if id(thing) not in seen and (target := _target(name.removeprefix("sandtable."), thing)) is not None:
                seen.add(id(thing))
                found[target.name] = target
    return found


def _public(module: ModuleType, seen: set[str]) -> Iterator[tuple[str, object]]:
    if module.__name__ in seen:
        return
    seen.add(module.__name__)
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", None) == module.__name__]
    for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
        thing = getattr(module, name)
        if inspect.ismodule(thing):
            yield from _public(thing, seen)
        else:
            yield f"{module.__name__}.{name}", thing
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if info.ispkg:
            yield from _public(importlib.import_module(f"{module.__name__}.{info.name}"), seen)


def _target(name: str, thing: object) -> Target | None:
    if not callable(thing) or typing.get_origin(thing) is not None or getattr(thing, "_is_protocol", False):
        return None
    if isinstance(thing, type) and issubclass(thing, enum.Enum | BaseException | tuple):
        return None  # kinds of errors, and records that functions return
    parameters = {
        key: value
        for key, value in inspect.signature(thing).parameters.items()
        if value.kind not in (value.VAR_KEYWORD, value.VAR_POSITIONAL) and not key.startswith("_")
    }
    plain = tuple(key for key, value in parameters.items() if _is_plain(value))
    return Target(name, thing, parameters, plain) if plain else None


def _is_plain(parameter: inspect.Parameter) -> bool:
    said = _SHAPES.sub("", str(parameter.annotation))
    return bool(PLAIN.search(said)) and "Callable" not in said
