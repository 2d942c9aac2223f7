"""What a signature promises: where a call fails on arguments of other types than it says, one clear line tells which.

Only plain types are looked at: numbers, texts, paths, True and False, and sequences and mappings of them. Ranges, and
how arguments go together, are checked where the function says what it needs.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sandtable.arguments.errors import ArgumentError, shown
from sandtable.arguments.values import LARGEST, whole

Called = TypeVar("Called", bound=Callable[..., Any])
_LONGEST_NAME = 255  # bytes
_LOOKED_AT = 10_000  # of the elements of a sequence
_NO_ROOM = ("can't allocate memory", "Storage size calculation overflowed", "numel: integer multiplication overflow")
_NO_FLOAT = "without overflow"  # how torch ends a line about a number that is too large


class Kind(NamedTuple):
    """What a value must be, in words, and whether it is."""

    words: str
    fits: Callable[[Any], bool]


def typed(called: Called) -> Called:
    """Decorator of a function or a class: an error that comes of arguments of other types than annotated says so.

    So does one that comes of asking for more memory than there is, or for numbers that no float can hold. What goes
    well, and what the function itself refuses, stays as it is.
    """
    function: Any = called.__init__ if isinstance(called, type) else called
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    order = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    annotations = {p.name: str(p.annotation) for p in parameters}
    skipped = 1 if isinstance(called, type) else 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ArgumentError:
            raise
        except Exception as error:
            given = dict(zip(order, args[skipped:], strict=False)) | kwargs
            kinds = {name: kind for name in given if (kind := kind_of(annotations.get(name, ""))) is not None}
            for name, kind in kinds.items():
                if not kind.fits(given[name]):
                    raise ArgumentError(f"{name}={shown(given[name])}: must be {kind.words}") from error
            why = _too_large(error)
            if why is None:
                raise
            plain = ", ".join(f"{name}={shown(given[name])}" for name in kinds)
            raise ArgumentError(f"{called.__name__}({plain}): {why}") from error

    if not isinstance(called, type):
        return call  # pyright: ignore[reportReturnType]
    called.__init__ = call  # pyright: ignore[reportAttributeAccessIssue]
    return called  # pyright: ignore[reportReturnType]


def with_generator(sample: Called) -> Called:
    """Decorator of a world's `sample(n, generator)`: without a generator torch would take the global one, unasked."""

    @functools.wraps(sample)
    def call(self: Any, n: int, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if type(generator).__name__ != "Generator" or not type(generator).__module__.startswith("torch"):
            raise ArgumentError(f"generator={shown(generator)}: must be a torch.Generator")
        return sample(self, whole("n", n, least=0), generator, *args, **kwargs)

    return call  # pyright: ignore[reportReturnType]


def _too_large(error: Exception) -> str | None:
    """What an error says of sizes, where it is of sizes."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_ROOM):
        return "asks for more memory than there is"
    if isinstance(error, OverflowError) or str(error).endswith(_NO_FLOAT):
        return "numbers on the way are too large"
    return None


@functools.cache
def kind_of(annotation: str) -> Kind | None:
    """The kind that an annotation describes; None where it speaks of anything but plain types."""
    try:
        kind = _of(ast.parse(annotation.strip("'\""), mode="eval").body)
    except SyntaxError:
        return None
    if kind is not None and "Path" in annotation:
        return Kind(f"{kind.words} that can be that of a file", lambda value: kind.fits(value) and _is_usable(value))
    return kind


def _of(node: ast.expr) -> Kind | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        one, other = _of(node.left), _of(node.right)
        if one is None or other is None:
            return None
        return Kind(f"{one.words} or {other.words}", lambda value: one.fits(value) or other.fits(value))
    if isinstance(node, ast.Constant) and node.value is None:
        return Kind("None", lambda value: value is None)
    if isinstance(node, ast.Name):
        return _SINGLE.get(node.id)
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "nn.Module":
        return Kind("a module", lambda value: _is_of(value, "Module"))
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Literal":
            return _chosen([item.value for item in inside if isinstance(item, ast.Constant)])
        if node.value.id in ("Float", "Int", "Bool"):
            return Kind("a tensor", lambda value: _is_of(value, "Tensor", "ndarray"))
        if node.value.id in ("Mapping", "dict"):
            return _mapping(inside)
        if node.value.id in ("Sequence", "Collection", "Iterable", "list", "tuple"):
            return _several(node.value.id, inside)
    return None


def _chosen(options: list[Any]) -> Kind:
    """One of these and of its type: True is not 1."""
    *some, last = map(repr, options)
    words = f"{', '.join(some)} or {last}" if some else last
    return Kind(words, lambda value: any(type(value) is type(option) and value == option for option in options))


def _mapping(inside: list[ast.expr]) -> Kind:
    kinds = [_of(item) for item in inside]

    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and all(_each(kinds, pair) for pair in islice(value.items(), _LOOKED_AT))

    words = [kind.words if kind is not None else "anything" for kind in kinds]
    return Kind(f"a mapping of {' to '.join(words)}", fits)


def _several(name: str, inside: list[ast.expr]) -> Kind | None:
    """A sequence of one kind of values; a pair or the like if their number is fixed."""
    kinds = [_of(item) for item in inside if not (isinstance(item, ast.Constant) and item.value is ...)]
    ordered = name not in ("Collection", "Iterable")
    if any(kind is None for kind in kinds):
        return Kind("a sequence", lambda value: _listed(value, ordered=ordered) is not None)
    if name == "tuple" and len(kinds) == len(inside):
        words = ", ".join(kind.words for kind in kinds if kind is not None)

        def all_fit(value: Any) -> bool:
            parts = _listed(value, ordered=True)
            return parts is not None and len(parts) == len(kinds) and _each(kinds, parts)

        return Kind(f"a sequence of {words}", all_fit)
    (kind,) = kinds

    def each_fits(value: Any) -> bool:
        parts = _listed(value, ordered=ordered)
        return parts is not None and all(kind is None or kind.fits(part) for part in parts)

    return Kind(f"a sequence, each {kind.words}" if kind is not None else "a sequence", each_fits)


def _each(kinds: Sequence[Kind | None], parts: Sequence[Any]) -> bool:
    return all(kind is None or kind.fits(part) for kind, part in zip(kinds, parts, strict=True))


def _listed(value: Any, *, ordered: bool) -> Sequence[Any] | None:
    """The first elements of a list, tuple, set, range or array with dimensions; None for anything else."""
    if isinstance(value, str | bytes | Mapping):
        return None
    if isinstance(value, Sequence):
        return value[:_LOOKED_AT]
    if isinstance(value, Set):
        return None if ordered else list(value)
    if getattr(value, "shape", ()) and hasattr(value, "tolist"):
        return value[:_LOOKED_AT].tolist()
    return [] if isinstance(value, Iterable) and not hasattr(value, "tolist") else None  # a stream is not read here


def _is_usable(value: Any) -> bool:
    """No zero byte, and no name longer than file systems take, in a text or a path."""
    if not isinstance(value, str | Path):
        return True
    return "\0" not in str(value) and all(len(os.fsencode(part)) <= _LONGEST_NAME for part in Path(value).parts)


def _is_of(value: Any, *names: str) -> bool:
    """Whether a class of one of these names is among those of `value`: nothing is imported to ask."""
    return any(kind.__name__ in names for kind in type(value).__mro__)


def _is_whole(value: Any) -> bool:
    return _is_scalar(value) and hasattr(value, "__index__") and -LARGEST - 1 <= value.__index__() <= LARGEST


def _is_number(value: Any) -> bool:
    return _is_scalar(value) and (not isinstance(value, int) or -LARGEST <= value <= LARGEST)


def _is_scalar(value: Any) -> bool:
    """A number of Python's or numpy's own: others, and tensors without dimensions, do not go together with both."""
    if isinstance(value, bool):
        return False
    of_numpy = hasattr(value, "dtype") and not hasattr(value, "__len__") and value.dtype.kind in "iuf"
    return isinstance(value, int | float) or of_numpy


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


_SINGLE = {
    "int": Kind("a whole number", _is_whole),
    "float": Kind("a number", _is_number),
    "bool": Kind("True or False", _is_flag),
    "str": Kind("a text", lambda value: isinstance(value, str)),
    "Tensor": Kind("a tensor", lambda value: _is_of(value, "Tensor", "ndarray")),
    "Path": Kind("a path", lambda value: isinstance(value, Path)),
    "ArrayLike": Kind("a number or numbers", lambda value: _is_numeric(value)),
}


def _is_numeric(value: Any) -> bool:
    """A number, an array of numbers, or numbers in sequences however deep, equally long at every depth."""
    return _shape(value) is not None


def _shape(value: Any) -> tuple[int, ...] | None:
    if hasattr(value, "dtype"):
        plain = not str(value.dtype).startswith(("object", "<U", "|S", "bool", "torch.bool"))
        return tuple(value.shape) if plain else None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        inside = [_shape(item) for item in value[:_LOOKED_AT]]
        alike = all(shape == inside[0] for shape in inside)
        first = inside[0] if inside else ()
        return (len(value), *first) if alike and first is not None else None
    return () if _is_number(value) else None
