"""How the command line prints: one console, one kind of table, one way to write a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def new_console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    made = Console(highlight=False, markup=False, stderr=stderr)  # "[mask]" in a statement is a word, not a style
    if not made.is_terminal:
        made.width = 200  # a file or a pipe has no edge to fold at
    return made


def new_table(*columns: str, title: str | None = None) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for place, column in enumerate(columns):
        made.add_column(column, no_wrap=place == 0, overflow="fold")
    return made


def shown(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:.4g}"
    return "—" if value is None else str(value)
