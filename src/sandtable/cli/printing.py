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


class Status:
    """One line on stderr that changes while work goes on; nothing where nobody watches."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = new_console(stderr=True)
        shown = self._console.is_terminal and not quiet
        self._status = self._console.status("starting") if shown else None

    def __enter__(self) -> Status:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, text: str) -> None:
        if self._status is not None:
            from rich.markup import escape

            self._status.update(escape(text))
