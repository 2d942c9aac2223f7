"""Figures: the same bytes every time, nothing from outside, text kept as text, bad shapes named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from sandtable.arguments import ArgumentError
from sandtable.lab import figures

X = np.arange(1.0, 21.0)
SEEDS = np.random.default_rng(0).normal(1.0, 0.1, size=(5, 20))
BLOCKS = np.kron(np.eye(3), np.ones((2, 2))) - 0.3

DRAWINGS: dict[str, Callable[[], Figure]] = {
    "curves": lambda: figures.curves(
        X, {"trained": SEEDS, "one": X / 20}, predictions={"trained": X * 0 + 1, "limit": X * 0 + 0.5}, title="T & <t>"
    ),
    "thin seeds": lambda: figures.curves(X, {"loss": SEEDS}, log_x=True, log_y=True, band=False),
    "heatmaps": lambda: figures.heatmaps({"predicted": BLOCKS, "measured": 2 * BLOCKS}, block=2),
    "separate heatmaps": lambda: figures.heatmaps({str(i): BLOCKS * i for i in range(3)}, shared=False),
    "named heatmaps": lambda: figures.heatmaps(
        {"a": BLOCKS, "b": BLOCKS}, rows=list("uvwxyz"), columns=["frog", "toad", "a", "b", "c", "d"], xlabel="head"
    ),
    "word lists": lambda: figures.word_lists({"sea": [("ship", 0.3), ("sail", 0.1)], "law": [("court", 0.2)]}),
    "landscape": lambda: figures.landscape(
        X, X[:9], np.add.outer(X[:9], X), optimum=(3, 2), regions={"bound": (X, X)}, log_x=True, log_z=True
    ),
    "comparison": lambda: figures.comparison([("a", 1.0, 0.9, 1.1, 1.05), ("b", 2.0, 1.5, 2.5, None)], xlabel="ratio"),
    "strips": lambda: figures.strips({"trained": SEEDS[:, 0], "shuffled": SEEDS[:, 1]}, predictions={"trained": 1.0}),
    "frontier": lambda: figures.frontier(
        {"plain": [("p=.9", 10.0, 0.5, 0.02), ("", 20.0, 0.6, 0.01)], "guided": [("", 15.0, 0.8, float("nan"))]}
    ),
    "one line": lambda: figures.strips({"trained": SEEDS[:, 0]}, predictions=1.0, log_x=True),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_same_bytes_every_time_and_stands_alone(name: str) -> None:
    figure = DRAWINGS[name]()
    text = figures.svg(figure)
    assert figures.svg(figure) == text
    assert figures.svg(DRAWINGS[name]()) == text
    root = ElementTree.fromstring(text)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "text" in tags
    assert not tags & {"style", "script", "metadata", "foreignObject"}
    assert "currentColor" in text
    assert figures.INK not in text.partition(">")[2]
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.endswith("href"):
                assert value.startswith(("#", "data:image/png;base64,"))


def test_title_labels_and_key_are_text() -> None:
    text = figures.svg(DRAWINGS["curves"]())
    said = {element.text for element in ElementTree.fromstring(text).iter() if element.text}
    assert {"T & <t>", "trained", "one", "limit"} <= said
    assert "solid: measured · dashed: predicted · band: all seeds" in said


def test_no_global_state() -> None:
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 31, "axes.facecolor": "red"}):
        strange = figures.svg(DRAWINGS["curves"]())
    assert strange == figures.svg(DRAWINGS["curves"]())
    assert dict(matplotlib.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_labels_keep_apart_and_near() -> None:
    ends = {f"curve {i}": X * 0 + 1 + 0.001 * i for i in range(5)} | {"far": X}
    (axes,) = figures.curves(X, ends).axes
    heights = sorted(text.xyann[1] for text in axes.texts)
    assert len(heights) == 6
    assert np.diff(heights).min() > 0.06
    assert heights[0] > 0
    assert heights[-1] < 1.04


def test_gaps_are_left_out() -> None:
    holed = SEEDS.copy()
    holed[:, 10:] = np.nan
    (axes,) = figures.curves(X, {"stops early": holed, "negative": -X}, log_y=True).axes
    assert [text.get_text() for text in axes.texts] == ["stops early"]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: figures.curves(X, {}), "series"),
        (lambda: figures.curves(X, {"a": X[:3]}), r"series\['a'\] of shape \[3\]"),
        (lambda: figures.curves(X, {}, predictions={"p": X[:3]}), r"predictions\['p'\]"),
        (lambda: figures.curves([], {"a": []}), "x of shape"),
        (lambda: figures.heatmaps({}), "matrices"),
        (lambda: figures.heatmaps({"a": X}), r"matrices\['a'\]"),
        (lambda: figures.heatmaps({"a": BLOCKS}, block=0), "block=0"),
        (lambda: figures.heatmaps({"a": BLOCKS}, rows=["x"]), "rows=1 names: must be 6"),
        (lambda: figures.word_lists({"a": []}), "groups"),
        (lambda: figures.landscape(X, X, BLOCKS), "z of shape"),
        (lambda: figures.landscape(X, X, -np.ones((20, 20)), log_z=True), "z: must hold"),
        (lambda: figures.landscape(X, X, np.ones((20, 20)), regions={"r": (X, X[:2])}), r"regions\['r'\]"),
        (lambda: figures.comparison([]), "rows"),
        (lambda: figures.strips({}), "groups"),
        (lambda: figures.scatter({}), "groups"),
        (lambda: figures.scatter({"a": (X, X[:2])}), r"groups\['a'\]: has 20 x and 2 y"),
    ],
)
def test_bad_input_is_named(call: Callable[[], Figure], named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        call()


def test_points_and_the_names_of_their_groups() -> None:
    (axes,) = figures.scatter({"one": (X, X), "two": (X, -X)}, xlabel="x").axes
    assert [text.get_text() for text in axes.texts] == ["one", "two"]
    assert [len(line.get_xdata()) for line in axes.lines] == [20, 20]


def _luminance(colour: str) -> float:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("colour", [figures.INK, *figures.PALETTE])
@pytest.mark.parametrize("paper", ["#ffffff", "#111111"])
def test_ink_reads_on_light_and_dark(colour: str, paper: str) -> None:
    low, high = sorted((_luminance(colour), _luminance(paper)))
    assert (high + 0.05) / (low + 0.05) >= 3


def test_a_line_of_few_marked_places_passes_one_where_nothing_was_measured():
    axes = figures.curves([1, 2, 3, 4], {"some": [0.1, 0.2, np.nan, 0.4]}).axes[0]
    assert [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"] == [[1, 2, 4]]
