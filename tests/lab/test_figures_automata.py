"""Pictures of automata: every fixture is drawn or refused in one line, with all its states, arrows and names."""

import numpy as np
import pytest
from matplotlib.patches import Ellipse, FancyArrowPatch

from sandtable.arguments import ArgumentError
from sandtable.cli.automata.pictures import PICTURES, picture
from sandtable.lab import figures
from sandtable.theory.automata import algebra, egg_boxes
from sandtable.theory.automata.egg_box import covers
from sandtable.worlds.automata import fixture, fixtures, from_regex

REFUSED = {
    ("RUBIK", "egg-box"): "the group has 43,252,003,274,489,856,000 elements",
    ("DYCK48", "egg-box"): "semigroup not listed",
    ("DYCK48", "cascade"): "holonomy left out",
    ("DYCK48", "states"): "a state diagram has 1 to 60",
    ("S5", "states"): "a state diagram has 1 to 60",
}
SLOW = {"C4", "C6", "C7", "C8", "GRID9-STAY", "C2x2x2", "A5"}
"""Drawn when somebody asks for them: others like them are drawn here."""


@pytest.fixture(scope="module")
def known():
    return {name: algebra(fixture(name)) for name in fixtures() if name not in SLOW}


@pytest.mark.parametrize("what", PICTURES)
def test_every_fixture_is_drawn_or_refused_in_one_line(what, known):
    for name, facts in known.items():
        if (name, what) in REFUSED:
            with pytest.raises(ArgumentError, match=REFUSED[name, what]) as told:
                picture(facts, what)
            assert "\n" not in str(told.value)
            continue
        figure = picture(facts, what)
        assert name in figure.get_suptitle()
        assert max(figure.get_size_inches()) < 20
        text = figures.svg(figure)
        assert text.startswith("<svg")
        assert "NaN" not in text


def test_a_state_diagram_has_every_state_and_every_arrow(known):
    automaton = known["D8"].automaton
    figure = picture(known["D8"], "states")
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert set(automaton.states) <= set(texts)
    assert texts.count("drive") == texts.count("toggle") == 8
    assert sum(isinstance(patch, FancyArrowPatch) for patch in axes.patches) == 16 + 1  # and the one to the start
    assert figures.svg(figure) == figures.svg(picture(known["D8"], "states"))


def test_no_two_states_or_names_overlap(known):
    for name in ("GRID9", "ABAB", "D8", "GRID3x3", "DYCK", "A4", "S4", "Q8"):
        (axes,) = picture(known[name], "states").axes
        rings = [patch for patch in axes.patches if isinstance(patch, Ellipse)]
        centres = np.unique([ring.center for ring in rings], axis=0)
        gaps = np.linalg.norm(centres[:, None] - centres, axis=2)[~np.eye(len(centres), dtype=bool)]
        assert gaps.min() > max(ring.width for ring in rings), name


def test_accepting_states_have_two_rings_and_traps_no_arrows(known):
    (axes,) = picture(algebra(from_regex("(ab)*")), "states").axes
    assert sum(isinstance(patch, Ellipse) for patch in axes.patches) == 3 + 1
    figure = picture(known["DYCK"], "states")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "trap" not in texts
    assert any("lead to the state trap" in text for text in texts)
    assert sum(isinstance(patch, Ellipse) for patch in figure.axes[0].patches) == 31


def test_egg_boxes_shade_one_cell_for_every_idempotent(known):
    listed = known["GRID9"].semigroup
    boxes = egg_boxes(listed)
    figure = picture(known["GRID9"], "egg-box")
    shaded = figure.axes[0].collections[::2]
    assert [len(cells.get_paths()) for cells in shaded] == [box.idempotents for box in boxes]
    assert sum(len(cells.get_paths()) for cells in shaded) == len(listed.idempotents)
    lines = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]
    assert len(lines) == len(covers(listed, boxes)) == len(boxes) - 1
    assert "C₂" in [text.get_text() for text in picture(known["ABAB"], "egg-box").axes[0].texts]


def test_cascades_have_a_box_for_every_component(known):
    texts = [text.get_text() for text in picture(known["ABAB"], "cascade").axes[0].texts]
    assert {"level 1", "level 2", "C₂", "only resets"} <= set(texts)
    assert "level 3" not in texts
    texts = [text.get_text() for text in picture(known["GRID3x3"], "cascade").axes[0].texts]
    assert texts.count("only resets") == 1 + 2 + 3 + 2


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.state_diagram([], {}), "states=0: a state diagram has 1 to 60"),
        (lambda: figures.state_diagram(["p"], {(0, 1): ["a"]}), "must lead from and to states 0 to 0"),
        (lambda: figures.egg_boxes([]), "at least one D-class"),
        (lambda: figures.egg_boxes([figures.Box(1, 1, np.ones((1, 1), bool))], below=[(0, 1)]), "boxes from 0 to 0"),
        (lambda: figures.cascade([]), "levels: must be at least one"),
        (lambda: figures.cascade([[]]), "of at least one component each"),
    ],
)
def test_bad_shapes_are_named(draw, message):
    with pytest.raises(ArgumentError, match=message):
        draw()
