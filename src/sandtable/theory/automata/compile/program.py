"""What a construction writes down: coordinates by name, heads and tables that read and write them, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandtable.theory.automata.compile.networks import Net

Form = Mapping[str, float]
"""A linear form Σ weight · coordinate."""


@dataclass(frozen=True)
class Head:
    """One attention head: score Σ_i query_i · key_i without 1/√k, and Σ_j value_j written to coordinate j.

    `writes` are overwritten; heads of one layer that write the same coordinate add up. A `hard` head is meant to look
    at one position alone, others take averages.
    """

    queries: tuple[Form, ...]
    keys: tuple[Form, ...]
    values: tuple[Form, ...]
    writes: tuple[str, ...]
    hard: bool = True


@dataclass(frozen=True)
class Part:
    """A network from linear forms of the stream to coordinates; parts that write the same coordinate add up."""

    net: Net
    reads: tuple[Form, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Layer:
    """Heads, then an MLP: stages one after another, each of parts side by side.

    Coordinates that a later stage reads and an earlier one does not write are passed on; they must be ≥ 0.
    """

    heads: tuple[Head, ...]
    stages: tuple[tuple[Part, ...], ...] = ()

    def followed_by(self, *parts: Part) -> Layer:
        """The layer with one more stage behind."""
        return Layer(self.heads, (*self.stages, parts)) if parts else self


@dataclass
class Program:
    """Everything an ordinary Transformer is assembled from.

    `tokens` and `positions`: what every token, and every position, puts into a coordinate; `outputs`: what the
    model shows of the stream after the last layer.
    """

    vocab: int
    longest: int
    layers: list[Layer]
    outputs: tuple[Form, ...]
    tokens: Mapping[str, Sequence[float]] = field(default_factory=dict)
    positions: Mapping[str, Sequence[float]] = field(default_factory=dict)


def coordinate(name: str) -> Form:
    return {name: 1.0}


def part(net: Net, reads: Sequence[str], writes: Sequence[str]) -> Part:
    """A network that reads coordinates as they are."""
    return Part(net, tuple(map(coordinate, reads)), tuple(writes))
