"""What is shown on stderr while work goes on, and what is said when it is stopped."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sandtable.cli.printing import new_console
from sandtable.lab.progress import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sandtable.lab.run import Outcome

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


class Status:
    """A line on stderr that changes while work goes on, with the time it took; nothing where nobody watches."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = new_console(stderr=True)
        self.watched = self.console.is_terminal and not quiet
        self._text = "starting"
        self._began = time.monotonic()
        self._live: Any = None

    def __enter__(self) -> Status:
        if self.watched:
            from rich.live import Live
            from rich.spinner import Spinner

            self._spinner = Spinner("dots")
            self._live = Live(
                console=self.console, get_renderable=self._shown, refresh_per_second=5, transient=True,
                redirect_stdout=False,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, text: str) -> None:
        self._text = text

    def _shown(self) -> RenderableType:
        """One line, cut where the terminal ends: a longer one would leave its overhang behind."""
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(padding=(0, 1), expand=True)
        line.add_column(width=1)
        line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        line.add_column(no_wrap=True)
        line.add_row(
            self._spinner,
            Text(self._text),
            Text(str(timedelta(seconds=int(time.monotonic() - self._began))), style="dim"),
        )
        return line


class Watched(Status, Progress):
    """The progress of `verify`: how many claims are finished, and what is running.

    Where stderr is no terminal every finished claim is one line there; with `quiet` only trouble is told.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self.quiet = quiet
        self.outcomes: list[Outcome] = []
        self.total = 0

    def begins(self, total: int) -> None:
        self.total = total

    def doing(self, text: str) -> None:
        self(text)

    def done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.trace:
            self.say(f"{outcome.claim}:\n{outcome.trace.rstrip()}")
        if not self.quiet:
            count = f"{len(self.outcomes)}/{self.total}"
            surprise = "" if outcome.verdict == outcome.expected else f", expected {outcome.expected}"
            self.say(f"[{count}] {outcome.claim}: {outcome.verdict}{surprise} ({outcome.seconds:.1f} s)")

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def _shown(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        if self.total < 2:
            return super()._shown()
        line = Table.grid(padding=(0, 1))
        line.add_row(
            ProgressBar(total=self.total, completed=len(self.outcomes), width=30),
            f"{len(self.outcomes)} of {self.total} claims",
        )
        return Group(line, super()._shown())


class Door(TyperGroup):
    """The commands; one that is interrupted leaves with status 130, and says how to go on if it has kept anything."""

    def invoke(self, ctx: typer.Context) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        began = datetime.now().astimezone()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            kept = f"; what is finished is kept. Go on: {going_on(ctx.obj, began)}" if _keeps(ctx) else ""
            print(f"sandtable: interrupted{kept}", file=sys.stderr)
            raise typer.Exit(130) from None


def _keeps(ctx: typer.Context) -> bool:
    """Whether the finished part of a command is in the store or in a checkpoint."""
    ready = ctx.invoked_subcommand == "decode" and any(word.startswith("--model") for word in ctx.obj)  # trains nothing
    return ctx.invoked_subcommand in ("verify", "topics", "pretrain", "decode", "translate") and not ready


def going_on(words: Sequence[str], began: datetime) -> str:
    """The command that goes on from where this one, begun then, was stopped.

    In place of --fresh, which would compute the finished part again, it asks anew for what is older than that.
    """
    since = ["--fresh-since", began.isoformat(timespec="milliseconds")]
    return shlex.join(["sandtable", *(part for word in words for part in (since if word == "--fresh" else [word]))])
