"""From an automaton and its algebra to the figures of the lab."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sandtable.arguments import ArgumentError
from sandtable.cli.automata.printed import counted, pretty

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sandtable.lab.figures import Box, Part
    from sandtable.theory.automata import Algebra, Component
    from sandtable.theory.automata.egg_box import EggBox
    from sandtable.worlds.automata import Automaton

PICTURES = ("states", "egg-box", "cascade")
FORMATS = (".svg", ".png")
MOST_BOXES = 40


def picture(known: Algebra, what: str) -> Figure:
    """One of `PICTURES`; an `ArgumentError` says why there is none."""
    return {"states": _states, "egg-box": _egg_boxes, "cascade": _cascade}[what](known)


def write(figure: Figure, path: Path) -> None:
    """As SVG or PNG, as the name ends."""
    from sandtable.lab.figures import svg

    try:
        if path.suffix.lower() == ".svg":
            path.write_text(svg(figure), encoding="utf-8")
        else:
            figure.savefig(path, facecolor="white", dpi=200)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be written ({error})") from error


def require_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS or path.is_dir():
        raise ArgumentError(f"--figure {path}: must be a file that ends in {' or '.join(FORMATS)}")


def _states(known: Algebra) -> Figure:
    from sandtable.lab.figures import state_diagram

    automaton, note = known.automaton, []
    states, arrows = list(range(automaton.n_states)), automaton.arrows
    trap = _trap(automaton)
    if trap is not None:
        states.remove(trap)
        note.append(f"Tokens without an arrow lead to the state {automaton.state_name(trap)}, which nothing leaves.")
    place = {q: i for i, q in enumerate(states)}
    marked = [place[q] for q in states if _accepts(automaton, q)]
    if marked:
        note.append("Two rings: states of label 1.")
    return state_diagram(
        [automaton.state_name(q) for q in states],
        {(place[q], place[p]): tokens for (q, p), tokens in arrows.items() if q in place and p in place},
        start=place.get(automaton.start),
        marked=marked,
        title=_title(automaton),
        note=" ".join(note),
    )


def _accepts(automaton: Automaton, state: int) -> bool:
    """Whether labels are yes and no, and this state's is yes."""
    return automaton.observe is not None and automaton.n_labels == 2 and automaton.observe[state] == 1


def _trap(automaton: Automaton) -> int | None:
    """A state that keeps itself and that most of many others lead to: arrows there would hide everything else."""
    n = automaton.n_states
    for state in range(n):
        into = sum(state in row for row in automaton.table) - 1
        if n > 8 and state != automaton.start and set(automaton.table[state]) == {state} and 2 * into > n:
            return state
    return None


def _egg_boxes(known: Algebra) -> Figure:
    from sandtable.lab import figures
    from sandtable.theory.automata import egg_boxes
    from sandtable.theory.automata.egg_box import covers

    if known.semigroup is None:
        raise ArgumentError(f"--draw egg-box: {known.limits[-1]}")
    boxes = egg_boxes(known.semigroup)
    kept = sorted(sorted(range(len(boxes)), key=lambda i: -boxes[i].order)[:MOST_BOXES])
    place = {i: j for j, i in enumerate(kept)}
    order = counted(known.semigroup.order, "map")
    note = f"{order} in {len(boxes)} D-classes. " if len(boxes) > 1 else f"{order} in one D-class. "
    note += "Rows: kernels; columns: images; shaded: groups, ∗ a trivial one."
    if len(kept) < len(boxes):
        note += f" The {len(boxes) - len(kept)} smallest D-classes are left out."
    return figures.egg_boxes(
        [_box(boxes[i], known.automaton) for i in kept],
        below=[
            (place[upper], place[lower])
            for upper, lower in covers(known.semigroup, boxes)
            if upper in place and lower in place
        ],
        title=f"{_title(known.automaton)}: egg boxes",
        note=note,
    )


def _box(box: EggBox, automaton: Automaton) -> Box:
    from sandtable.lab import figures
    from sandtable.theory.automata import group_name

    rows, columns = box.stars.shape
    group = box.group
    return figures.Box(
        box.rank,
        box.cell,
        box.stars,
        group="" if group is None or group.order == 1 else pretty(group_name(group)),
        rows=["|".join(_set(automaton, block) for block in box.kernel(i)) for i in range(rows)],
        columns=[_set(automaton, box.image(j)) for j in range(columns)],
    )


def _cascade(known: Algebra) -> Figure:
    from sandtable.lab import figures

    if known.holonomy is None:
        raise ArgumentError(f"--draw cascade: {known.limits[0]}")
    if not known.holonomy.components:
        raise ArgumentError("--draw cascade: one state, so that there is nothing to decompose")
    automaton = known.automaton
    return figures.cascade(
        [[_part(component, automaton) for component in level] for level in known.holonomy.levels],
        title=f"{_title(automaton)}: holonomy cascade",
        note="A box is a component with its states (sets that one descends to) and what permutes them; it reads the "
        "token and the states above.",
    )


def _part(component: Component, automaton: Automaton) -> Part:
    from sandtable.lab import figures
    from sandtable.theory.automata import group_name

    trivial = component.group.order == 1
    return figures.Part(
        [_set(automaton, tile) for tile in component.tiles],
        "only resets" if trivial else pretty(group_name(component.group)),
    )


def _set(automaton: Automaton, states: Iterable[int]) -> str:
    """States side by side, with blanks only where a name is longer than one sign."""
    names = [automaton.state_name(q) for q in sorted(states)]
    return ("" if all(len(name) == 1 for name in names) else " ").join(names)


def _title(automaton: Automaton) -> str:
    return automaton.name or "Automaton"
