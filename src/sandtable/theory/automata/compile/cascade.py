"""Cascades of permutation-reset automata, level by level (Lemma 21, reading states from before the token).

For every level but the first, a head fetches the states of all components above from one place before; a table turns
(those, σ_t) into the inputs of the level's components, which run side by side. The first token ⊥_{q_0} resets every
component to its part of q_0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.compile.compiled import Compiled, built
from sandtable.theory.automata.compile.gadgets import tables_over
from sandtable.theory.automata.compile.heads import (
    LOG,
    PAD,
    clock,
    counting_log,
    earlier,
    earlier_scale,
    half_circle,
)
from sandtable.theory.automata.compile.program import Head, Layer, Part, Program, coordinate, part
from sandtable.theory.automata.compile.resets import Slots, permutation_reset, slot_values
from sandtable.theory.automata.compile.simulators import Simulator, cocycle, together
from sandtable.theory.automata.image_sets import Action
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.worlds.automata import Automaton

Coordinates = tuple[int, ...]
STAY = Action()
MOST_COORDINATES = 20_000


@dataclass(frozen=True, eq=False)
class Cascade:
    """Permutation-reset components in levels, and what every token does to each: `actions(old, σ)`, one per component.

    A component's action may depend on σ and on the old states of components in the levels above, no others.
    """

    levels: tuple[tuple[int, ...], ...]
    """Numbers of the components, level by level."""
    sizes: Coordinates
    actions: Callable[[Coordinates, int], Sequence[Action]]
    starts: tuple[Coordinates, ...]
    """Of every state of the automaton."""
    decode: Callable[[Coordinates], int]


def compile_cascade(
    cascade: Cascade,
    automaton: Automaton,
    length: int,
    method: str,
    *,
    shifted: bool = True,
    pad: bool = True,
    bound: Mapping[str, float] | None = None,
) -> Compiled:
    """The automaton that the cascade computes, as a Transformer whose depth does not depend on T.

    Printed otherwise, and wrong: components read the states of those above from after the token (`shifted=False`,
    Lemma 21), or there is no first token that resets (`pad=False`: it keeps instead, Lemma 20).
    """
    reached = _reach(cascade, automaton.n_tokens)
    simulators = _simulators(cascade, reached, length)
    n, tokens, positions = automaton.n_states, automaton.n_tokens, length + 1
    slots = [Slots.named(f"c{i}", simulator.dimensions) for i, simulator in enumerate(simulators)]
    wiring = _Wiring(cascade, reached, simulators, slots, tokens)
    inputs: dict[str, list[float]] = {PAD: [0.0] * tokens + [1.0] * n}
    if len(cascade.levels) > 1:  # what tables between levels and heads that look back need
        inputs["token"] = [*map(float, range(tokens + n))]
    layers: list[Layer] = []
    states: dict[int, str] = {}
    for depth, level in enumerate(cascade.levels):
        if depth == 0:
            inputs |= wiring.embedded(level, reset=pad)
        else:
            above = cascade.levels[depth - 1]
            fetch = _shift([states[i] for i in above], [f"c{i} old" for i in above], cascade, positions, shifted)
            layers.append(Layer((fetch,), (wiring.tables(level, reset=pad),)))
        runs = [permutation_reset(simulators[i], slots[i], wiring.permutations(i), positions) for i in level]
        layers += together([run for run, _ in runs])
        states |= {i: state for i, (_, state) in zip(level, runs, strict=True)}
    order = [i for level in cascade.levels for i in level]
    answer = states[order[-1]]
    if any(cascade.decode(old) != old[order[-1]] for old in reached):
        rows = [([old[i] for i in order], [cascade.decode(old)]) for old in reached]
        layers[-1] = layers[-1].followed_by(part(tables_over(rows), [states[i] for i in order], [answer]))
    program = Program(
        vocab=tokens + n,
        longest=positions,
        layers=layers,
        outputs=(coordinate(answer),),
        tokens=inputs,
        positions={
            LOG: counting_log(length),
            **clock(positions),
            **(half_circle(positions) if len(cascade.levels) > 1 else {}),
        },
    )
    groups = tuple(simulator.group.order for simulator in simulators)
    return built(
        program,
        automaton,
        length,
        method,
        prefix=[[tokens + q] for q in range(n)],
        codes=[range(n)] * n,
        bound=bound,
        facts=dict(levels=len(cascade.levels), components=cascade.sizes, groups=groups, coordinates=len(reached)),
    )


def _reach(cascade: Cascade, tokens: int) -> dict[Coordinates, list[tuple[Coordinates, Sequence[Action]]]]:
    """For all coordinates that any start leads to, what every token does: (new coordinates, actions)."""
    reached: dict[Coordinates, list] = {}
    queue = list(dict.fromkeys(cascade.starts))
    found = set(queue)
    for old in queue:
        if len(found) > MOST_COORDINATES:
            raise ArgumentError(
                f"its cascade has more than {MOST_COORDINATES:,} tuples of coordinates, each of which needs a unit"
            )
        reached[old] = []
        for token in range(tokens):
            actions = cascade.actions(old, token)
            new = tuple(action(x) for action, x in zip(actions, old, strict=True))
            reached[old].append((new, actions))
            if new not in found:
                found.add(new)
                queue.append(new)
    return reached


def _simulators(cascade: Cascade, reached: Mapping, length: int) -> list[Simulator]:
    """Of the group that each component's permutations generate."""
    used: list[dict] = [{} for _ in cascade.sizes]
    for rows in reached.values():
        for _, actions in rows:
            for i, action in enumerate(actions):
                if action.reset is None and not action.is_identity:
                    used[i][action.permutation] = None
    return [
        cocycle(PermutationGroup.generated(permutations, degree=size), length)
        for permutations, size in zip(used, cascade.sizes, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Wiring:
    """(old states of the components above, σ) → the inputs of a level's components."""

    cascade: Cascade
    reached: Mapping[Coordinates, list[tuple[Coordinates, Sequence[Action]]]]
    simulators: Sequence[Simulator]
    slots: Sequence[Slots]
    tokens: int

    def permutations(self, component: int) -> list:
        """The permutations that a component receives, the identity among them."""
        group = self.simulators[component].group
        found = {group.identity: None}
        for rows in self.reached.values():
            for _, actions in rows:
                action = actions[component]
                if action.reset is None and action.permutation is not None:
                    found[action.permutation] = None
        return list(found)

    def embedded(self, level: Sequence[int], *, reset: bool) -> dict[str, list[float]]:
        """The inputs of the first level, which depend on σ alone, as embeddings."""
        filled: dict[str, list[float]] = {}
        some = next(iter(self.reached))
        for i in level:
            actions = [self.reached[some][token][1][i] for token in range(self.tokens)]
            actions += [Action(reset=start[i]) if reset else STAY for start in self.cascade.starts]
            rows = [slot_values(self.simulators[i], action.permutation, action.reset) for action in actions]
            filled |= {name: [float(row[k]) for row in rows] for k, name in enumerate(self.slots[i].names)}
        return filled

    def tables(self, level: Sequence[int], *, reset: bool) -> tuple[Part, ...]:
        """The inputs of a later level, one table for all of its components."""
        above = [i for upper in self.cascade.levels for i in upper]
        above = above[: above.index(level[0])]
        rows: dict[Coordinates, Coordinates] = {}

        def add(old: Coordinates, token: int, actions: Sequence[Action]) -> None:
            key = (*(old[i] for i in above), token)
            values = [slot_values(self.simulators[i], actions[i].permutation, actions[i].reset) for i in level]
            rows[key] = tuple(x for value in values for x in value)

        for old, steps in self.reached.items():
            for token, (_, actions) in enumerate(steps):
                add(old, token, actions)
        for q, start in enumerate(self.cascade.starts):
            add(start, self.tokens + q, [Action(reset=x) if reset else STAY for x in start])
        names = [name for i in level for name in self.slots[i].names]
        return (part(tables_over(list(rows.items())), [*(f"c{i} old" for i in above), "token"], names),)


def _shift(reads: Sequence[str], writes: Sequence[str], cascade: Cascade, positions: int, shifted: bool) -> Head:
    scale = earlier_scale(positions, positions, max(cascade.sizes) - 1)
    return earlier(1 if shifted else 0, positions, scale, tuple(map(coordinate, reads)), writes)
