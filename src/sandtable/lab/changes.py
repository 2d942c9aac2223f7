"""Other settings than the declared ones: by name, with dots for settings inside settings, refused before any work."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandtable.arguments import ArgumentError, kind_of, nearest, shown

if TYPE_CHECKING:
    from sandtable.lab.claim import Claim

Changes = tuple[tuple[str, Any], ...]
_COUNT = "number of seeds"


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting by its name; of settings inside settings also each part, as `size.mlp`."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        if field.init:
            value = getattr(settings, field.name)
            found[prefix + field.name] = value
            if _is_group(value):
                found |= flat(value, f"{prefix}{field.name}.")
    return found


def changed(settings: Any, changes: Iterable[tuple[str, Any]]) -> Any:
    """`settings` with the changes that apply to them; an `ArgumentError` for a value of another kind."""
    for name, value in changes:
        if name in flat(settings):
            settings = _replaced(settings, name, name, value)
    return settings


def checked_changes(claims: Sequence[Claim], scale: str, changes: Mapping[str, Any]) -> Changes:
    """The changes as pairs; an `ArgumentError` where no claim has such a setting, or one cannot take the value."""
    chosen = [item.scales[scale] for item in claims if scale in item.scales]
    known = sorted({name for settings in chosen for name in flat(settings)})
    for name in changes:
        if name not in known:
            raise ArgumentError(f"--set {name}: no chosen claim has such a setting{nearest(name, known)}")
    for settings in chosen:
        changed(settings, changes.items())
    return tuple(changes.items())


def variation(claim: Claim, scale: str, settings: Any, seeds: Sequence[int]) -> dict[str, str]:
    """What a run does otherwise than the claim declares, by name; nothing for the declared run."""
    declared, own = flat(claim.scales[scale]), flat(settings)
    found = {
        name: repr(value)
        for name, value in own.items()
        if not _is_group(value) and repr(value) != repr(declared.get(name))
    }
    if len(seeds) != claim.seeds_at(scale):
        found[_COUNT] = str(len(seeds))
    if seeds[0] != 0:
        found["first seed"] = str(seeds[0])
    return found


def as_declared(record: Mapping[str, Any]) -> bool:
    """Whether a verdict record counts as a run of its claim: the declared settings, and at least the declared seeds."""
    variation = record.get("variation") or {}
    seeds, declared = record.get("seeds"), record.get("declared_seeds")
    more = isinstance(seeds, int) and isinstance(declared, int) and seeds > declared
    return not variation or (more and set(variation) == {_COUNT})


def in_words(variation: Mapping[str, str]) -> str:
    """A variation for a reader, in one line."""
    return ", ".join(f"{name}={value}" for name, value in variation.items())


def _is_group(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _replaced(settings: Any, path: str, name: str, value: Any) -> Any:
    """`settings` with `value` at `path`; `name` is the whole of what was written, for messages."""
    head, _, rest = path.partition(".")
    value = _replaced(getattr(settings, head), rest, name, value) if rest else _fitted(settings, head, name, value)
    try:
        return dataclasses.replace(settings, **{head: value})
    except ArgumentError:
        raise
    except Exception as error:  # settings are foreign code, and this value is what they refuse
        raise ArgumentError(f"--set {name}={shown(value)}: {type(error).__name__}: {error}") from error


def _fitted(settings: Any, head: str, name: str, value: Any) -> Any:
    """The value, whole numbers made fractions where these are asked for, if it is what the setting is declared as."""
    (field,) = (field for field in dataclasses.fields(settings) if field.name == head)
    declared, old = _annotation(field), getattr(settings, head)
    kind = kind_of(declared)
    words = None
    if _is_group(old) and type(value) is not type(old):
        words = f"set by its parts: {', '.join(flat(old, name + '.'))}"
    elif kind is not None and not kind.fits(value):
        one = isinstance(old, tuple) and not isinstance(value, tuple | list)
        words = kind.words + f" (one alone is written {name}={shown(value)},)" * one
    elif isinstance(old, tuple) and old and _is_group(old[0]) and any(type(item) is not type(old[0]) for item in value):
        words = f"a sequence of {type(old[0]).__name__}, which cannot be written here"
    if words is not None:
        raise ArgumentError(f"--set {name}={shown(value)}: must be {words}")
    named = set(re.findall(r"\w+", declared))
    return _as_fractions(value) if "float" in named and "int" not in named else value


def _annotation(field: dataclasses.Field[Any]) -> str:
    return field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)


def _as_fractions(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_as_fractions(item) for item in value)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
