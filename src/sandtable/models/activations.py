"""The activations of one forward pass under their TransformerLens names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from sandtable.arguments import ArgumentError, nearest
from sandtable.models.attention import Tap, silent

NamesFilter = str | Sequence[str] | Callable[[str], bool] | None
"""Which activations to keep: all (None), one name or shell pattern, several, or those for which a function is true."""
Edit = Callable[[Tensor], Tensor]
"""What is put in the place of an activation."""
_IN_MLP = ("pre", "pre_linear", "post")
_IN_BLOCK = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
_IN_ATTENTION = ("q", "k", "v", "z", "rot_q", "rot_k", "attn_scores", "pattern")


class ActivationCache(Mapping[str, Tensor]):
    """Activations by name: `cache["blocks.0.attn.hook_pattern"]`, or for short `cache["pattern", 0]`.

    Negative layers count from the end, and names outside of the blocks need no "hook_": `cache["embed"]`.
    """

    def __init__(self, found: Mapping[str, Tensor], layers: int) -> None:
        self._found, self._layers = dict(found), layers

    def __getitem__(self, key: str | tuple[str, int]) -> Tensor:
        name = key if isinstance(key, str) else self._full(*key)
        for spelling in (name, f"hook_{name}"):
            if spelling in self._found:
                return self._found[spelling]
        raise KeyError(f"{key!r}: not in this cache{nearest(name, list(self._found))}")

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # pyright: ignore[reportArgumentType]
        except (KeyError, TypeError):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"ActivationCache of {len(self)} activations of {self._layers} layers"

    def _full(self, short: str, layer: int) -> str:
        layer = layer if layer >= 0 else self._layers + layer
        places = {_IN_ATTENTION: "attn.hook_", _IN_MLP: "mlp.hook_", _IN_BLOCK: "hook_"}
        for names, place in places.items():
            if short in names:
                return f"blocks.{layer}.{place}{short}"
        known = [name for names in places for name in names]
        raise KeyError(f"{short!r}: must be one of {', '.join(known)}{nearest(short, known)}")


def chosen(names: Sequence[str], wanted: NamesFilter) -> list[str]:
    """The names that a filter keeps; a pattern that keeps none is an `ArgumentError`."""
    if wanted is None:
        return list(names)
    if callable(wanted):
        return [name for name in names if wanted(name)]
    patterns = [wanted] if isinstance(wanted, str) else list(wanted)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ArgumentError(f"names_filter={pattern!r}: no such activation{nearest(pattern, names)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def tapped(
    run: Callable[[Tap], Tensor], want: Sequence[str], edits: Mapping[str, Edit] | None, names: Callable[[], list[str]]
) -> Any:
    """What `run(tap)` returns; with `want` the pair of it and the activations of these names.

    `edits` maps names or shell patterns to what goes on in the place of an activation: all that fit, in their order.
    `names` are the activations that there are, for the message when one asked for is not among them.
    """
    if not want and not edits:
        return run(silent)
    edits, found, edited = edits or {}, {}, set()

    def tap(name: str, tensor: Tensor) -> Tensor:
        for pattern, edit in edits.items():
            if fnmatchcase(name, pattern):
                tensor = edit(tensor)
                edited.add(pattern)
        if name in want:
            found[name] = tensor
        return tensor

    out = run(tap)
    for asked, wanted, seen in (("want", want, found), ("edits", edits, edited)):
        for name in wanted:
            if name not in seen:
                raise ArgumentError(f"{asked}={name!r}: no such activation{nearest(name, names())}")
    return (out, {name: found[name] for name in want}) if want else out
