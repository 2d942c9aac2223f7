"""`dyck build` writes a Transformer that knows bracket prefixes exactly; `dyck check` compares a file with the law."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandtable.arguments import ArgumentError, fits_in_memory, free_path, number, whole
from sandtable.cli.progress import Quiet, Status

if TYPE_CHECKING:
    from sandtable.theory.dyck import Built

dyck = typer.Typer(
    help="Transformers on bracket languages whose algorithm is known.", no_args_is_help=True, rich_markup_mode=None
)

_Longest = Annotated[int, typer.Option(help="Compare at every prefix of so many brackets.")]
_Long = Annotated[int, typer.Option(help="Compare at random prefixes of so many brackets; 0: none.")]
MOST_PREFIXES = 400_000
"""Compared at most; `--longest` is then shortened."""


@dyck.command()
def build(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (safetensors).")],
    attention: Annotated[str, typer.Option(help="uniform, random or misleading.")] = "uniform",
    types: Annotated[int, typer.Option(help="Types of brackets, k.")] = 2,
    depth: Annotated[int, typer.Option(help="Brackets open at a time, D.")] = 4,
    q: Annotated[float, typer.Option(help="Probability to open where closing is possible.")] = 0.5,
    seed: Annotated[int | None, typer.Option(help="Of random attention and of further layers (default: 0).")] = None,
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
        whole(name, 0 if value is None else value, least=least)
    if scale is not None:
        number("--scale", scale, least=0.0)
    if seed is not None and attention in ("uniform", "misleading") and layers == 2:
        raise ArgumentError(f"--seed={seed}: {attention} attention of two layers draws nothing; leave it out")
    free_path(out, overwrite=force, hint="pass --force")
    from sandtable.theory import dyck as theory

    drawn: dict[str, Any] = dict(seed=seed or 0, scale=scale)
    model = theory.build(attention, types=types, depth=depth, q=q, layers=layers, width=width, **drawn)
    theory.save(theory.Built(model, types, depth, q, attention, **drawn), out, overwrite=force)
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
    fits_in_memory("--long", long, 6.0 * long**2, size=8)  # attention of one row, and what is made of it
    whole("--longest", longest, most=64)


def _report(built: Built, path: Path, longest: int, long: int, quiet: bool) -> None:
    from sandtable.theory.dyck import check
    from sandtable.theory.dyck.checking import EXACT

    world, asked = built.world, longest
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
    if longest < asked:
        print(f"--longest {asked} is {world.count_prefixes(asked):,} prefixes; compared at {longest} brackets instead")
    deep = 2 * built.types * built.depth
    print(
        f"largest error on all {found.prefixes:,} prefixes of at most {longest} brackets, and on one of {deep:,} that "
        f"opens every type {built.depth} deep: {found.error:.1e}"
    )
    if long:
        print(f"largest error on random prefixes of {long:,} brackets: {found.long_error:.1e}")
    if not max(found.error, found.long_error) <= EXACT:
        print(
            f"sandtable: not exact: errors above {EXACT:g} come of changed weights, or of scores too large for float64 "
            f"at this length; {path} is kept",
            file=sys.stderr,
        )
        raise typer.Exit(1)
