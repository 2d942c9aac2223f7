"""Figures in one style: direct labels, prediction dashed, measurement solid, seeds as thin lines or a band."""

from sandtable.lab.figures.automata import state_diagram
from sandtable.lab.figures.cascades import Part, cascade
from sandtable.lab.figures.charts import Row, comparison, curves, frontier, scatter, strips
from sandtable.lab.figures.egg_boxes import Box, egg_boxes
from sandtable.lab.figures.maps import heatmaps, landscape, word_lists
from sandtable.lab.figures.style import INK, PALETTE, STYLE, WIDTH, house_style, svg
from sandtable.lab.figures.trees import tree

__all__ = [
    "INK",
    "PALETTE",
    "STYLE",
    "WIDTH",
    "Box",
    "Part",
    "Row",
    "cascade",
    "comparison",
    "curves",
    "egg_boxes",
    "frontier",
    "heatmaps",
    "house_style",
    "landscape",
    "scatter",
    "state_diagram",
    "strips",
    "svg",
    "tree",
    "word_lists",
]
