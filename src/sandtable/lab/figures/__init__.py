"""Figures in one style: direct labels, prediction dashed, measurement solid, seeds as thin lines or a band."""

from sandtable.lab.figures.charts import Row, comparison, curves, frontier, scatter, strips
from sandtable.lab.figures.maps import heatmaps, landscape, word_lists
from sandtable.lab.figures.style import INK, PALETTE, STYLE, WIDTH, house_style, svg
from sandtable.lab.figures.trees import tree

__all__ = [
    "INK",
    "PALETTE",
    "STYLE",
    "WIDTH",
    "Row",
    "comparison",
    "curves",
    "frontier",
    "heatmaps",
    "house_style",
    "landscape",
    "scatter",
    "strips",
    "svg",
    "tree",
    "word_lists",
]
