"""Figures of trees: every branch drawn, the same bytes every time, bad shapes named."""

import pytest

from sandtable.arguments import ArgumentError
from sandtable.lab import figures


def drawing(**changes):
    given = dict(
        parents=[-1, 0, 1, 0, 3], labels=["…", "a", "b", "c", "d"], kept=[True, False, False, True, True],
        rejected=[False, False, True, False, False], title="tries",
    )  # fmt: skip
    return figures.tree(**(given | changes))


def test_a_line_for_every_branch_and_a_cross_for_every_rejection():
    figure = drawing()
    lines = figure.axes[0].lines
    branches = [line for line in lines if line.get_marker() == "None"]
    assert len(branches) == 4
    assert [list(line.get_xdata()) for line in lines if line.get_marker() == "x"] == [[2.0]]
    assert [text.get_text() for text in figure.axes[0].texts] == ["…", "a", "b", "c", "d"]
    assert figures.svg(figure) == figures.svg(drawing())
    # Branches do not lie on one another.
    ends = {(line.get_xdata()[-1], line.get_ydata()[-1]) for line in branches}
    assert len(ends) == 4


def test_large_trees_have_no_labels():
    figure = figures.tree([-1, *range(200)], labels=list(map(str, range(201))))
    assert not figure.axes[0].texts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(parents=[]), r"parents=\[\]"),
        (dict(parents=[-1, 2, 0, 0, 3]), "every parent must come before"),
        (dict(kept=[True]), "kept of 1: must be one for each of the 5"),
    ],
)
def test_bad_shapes_are_named(changes, message):
    with pytest.raises(ArgumentError, match=message):
        drawing(**changes)
