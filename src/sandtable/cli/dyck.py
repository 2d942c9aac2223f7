"""`dyck build` writes a Transformer that knows bracket prefixes exactly; `dyck check` compares a file with the law."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandtable.arguments import free_path, number, whole
from sandtable.cli.progress import Quiet, Status

if TYPE_CHECKING:
    from sandtable.theory.dyck import Built

dyck = typer.Typer(
    help="Transformers on bracket languages whose algorithm is known.", no_args_is_help=True, rich_markup_mode=None
)

_Longest = Annotated[int, typer.Option(help="Compare at every prefix of so many brackets.")]
_Long = Annotated[int, typer.Option(help="Compare at random prefixes of so many brackets; 0: none.")]
MOST_PREFIXES = 400_000
EXACT = 1e-6
"""Errors above this are not rounding."""


@dyck.command()
def build(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (safetensors).")],
    attention: Annotated[str, typer.Option(help="uniform, random or misleading.")] = "uniform",
    types: Annotated[int, typer.Option(help="Types of brackets, k.")] = 2,
    depth: Annotated[int, typer.Option(help="Brackets open at a time, D.")] = 4,
    q: Annotated[float, typer.Option(help="Probability to open where closing is possible.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Of random attention.")] = 0,
    scale: Annotated[float | None, typer.Option(help="Size of the scores (default: random 1, misleading 6).")] = None,
    layers: Annotated[int, typer.Option(help="Layers; those beyond two attend at random and change nothing.")] = 2,
    width: Annotated[int | None, typer.Option(help="Width (default: the least, 3kD + 3).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    longest: _Longest = 8,
    long: _Long = 500,
    quiet: Quiet = False,
) -> None:
    """Write a Transformer that gives the exact next-token law of bounded Dyck prefixes, and check that it does."""
    _check_sizes(longest, long)
    for name, value, least in (
        ("--types", types, 1),
        ("--depth", depth, 1),
        ("--seed", seed, 0),
        ("--layers", layers, 2),
    ):
        whole(name, value, least=least)
    if scale is not None:
        number("--scale", scale, least=0.0)
    free_path(out, overwrite=force, hint="pass --force")
    from sandtable.theory import dyck as theory

    model = theory.build(attention, types=types, depth=depth, q=q, seed=seed, scale=scale, layers=layers, width=width)
    built = theory.Built(model, types, depth, q, attention, seed, scale)
    theory.save(built, out, overwrite=force)
    _report(theory.load(out), out, longest, long, quiet)


@dyck.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `dyck build` wrote.")],
    longest: _Longest = 8,
    long: _Long = 500,
    quiet: Quiet = False,
) -> None:
    """Compare a built model with the exact law. Exit status 1 where it errs."""
    _check_sizes(longest, long)
    from sandtable.theory import dyck as theory

    _report(theory.load(path), path, longest, long, quiet)


def _check_sizes(longest: int, long: int) -> None:
    """Before anything is built."""
    whole("--long", long, least=0, most=20_000)
    whole("--longest", longest, most=64)


def _report(built: Built, path: Path, longest: int, long: int, quiet: bool) -> None:
    from sandtable.theory.dyck import check

    world = built.world
    while longest > 1 and world.count_prefixes(longest) > MOST_PREFIXES:
        longest -= 1
    with Status(quiet=quiet) as say:
        say(f"comparing with the law at {world.count_prefixes(longest):,} prefixes")
        found = check(built.model, world, longest=longest, long=long)
    parameters = sum(parameter.numel() for parameter in built.model.parameters())
    print(
        f"{path}: {built.attention} attention, {built.types} types to depth {built.depth}, q = {built.q:g}, "
        f"{len(built.model.layers)} layers of width {built.model.width}, {parameters:,} parameters"
    )
    print(f"largest error on all {found.prefixes:,} prefixes of at most {longest} brackets: {found.error:.1e}")
    if long:
        print(f"largest error on random prefixes of {long:,} brackets: {found.long_error:.1e}")
    if not max(found.error, found.long_error) <= EXACT:
        raise typer.Exit(1)
