"""The commands: `automaton list`, `automaton show`, `automaton check`, `compile`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from sandtable.arguments import free_path, one_of, whole
from sandtable.cli.automata.choosing import Name, Permutations, Regex, Start, Table, choose
from sandtable.cli.automata.pictures import PICTURES, picture, require_format, write
from sandtable.cli.printing import new_console, new_table
from sandtable.cli.progress import Quiet, Status

automaton = typer.Typer(
    help="Finite automata: their algebra, their pictures, and compiled Transformers checked.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
METHODS = ("auto", "constant", "memory", "counter", "grid", "cocycle", "semidirect", "wreath", "product",
           "permutation-reset", "krohn-rhodes", "log")  # fmt: skip
_Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@automaton.command("list")
def list_automata(as_json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False) -> None:
    """The automata that have names."""
    from sandtable.worlds.automata import TASKS, fixture, fixtures

    known = [fixture(name) for name in fixtures()]
    if as_json:
        rows = [dict(name=a.name, states=a.n_states, tokens=list(a.vocab.tokens), task=a.name in TASKS) for a in known]
        return print(json.dumps(rows, ensure_ascii=False))
    table = new_table("name", "states", "tokens", "start")
    for a in known:
        shown = f"{a.n_tokens}: {' '.join(a.vocab.tokens[:9])}" + " …" * (a.n_tokens > 9)
        table.add_row(a.name + " *" * (a.name in TASKS), f"{a.n_states:,}", shown, a.state_name(a.start))
    console = new_console()
    console.print(table)
    console.print("* is one of the nineteen tasks of Liu et al. (2023)", style="dim")


@automaton.command()
def show(
    name: Name = None,
    table: Table = None,
    regex: Regex = None,
    permutations: Permutations = None,
    start: Start = None,
    length: Annotated[int, typer.Option(help="Tokens that a compiled Transformer would read.")] = 100,
    cap: Annotated[int | None, typer.Option(help="Most maps of the semigroup that are listed.")] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="Draw a picture, as .svg or .png.")
    ] = None,
    draw: Annotated[str, typer.Option("--draw", help=f"What --figure shows: {', '.join(PICTURES)}.")] = "states",
    as_json: _Json = False,
    quiet: Quiet = False,
) -> None:
    """An automaton and its algebra: semigroup, groups, cascade, and how deep a Transformer must be to simulate it."""
    one_of("--draw", draw, PICTURES)
    whole("--length", length)
    if figure is not None:
        require_format(figure)
    with Status(quiet=quiet) as status:
        status("closing its semigroup")
        chosen = choose(name, table, regex, permutations, start)
        from sandtable.cli.automata.facts import facts
        from sandtable.cli.automata.printed import print_facts
        from sandtable.theory.automata import algebra

        known = algebra(chosen, cap=cap)
        found = facts(known, length)
        if figure is not None:
            status("drawing")
            write(picture(known, draw), figure)
    if as_json:
        return _print_json(found)
    print_facts(found)
    if figure is not None:
        print(f"{draw}: {figure}")


def compile_automaton(
    name: Name = None,
    table: Table = None,
    regex: Regex = None,
    permutations: Permutations = None,
    start: Start = None,
    length: Annotated[int, typer.Option(help="The most tokens that it will read, T.")] = 100,
    method: Annotated[str, typer.Option(help=f"One of: {', '.join(METHODS)}.")] = "auto",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write (safetensors).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: _Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile an automaton into a Transformer that gives all its states at once, and print its sizes."""
    whole("--length", length)
    one_of("--method", method, METHODS)
    if out is not None:
        free_path(out, overwrite=force, hint="pass --force")
    with Status(quiet=quiet) as status:
        status("compiling")
        chosen = choose(name, table, regex, permutations, start)
        from sandtable.cli.automata.facts import compiled_facts
        from sandtable.cli.automata.printed import print_compiled
        from sandtable.theory.automata import compile

        compiled = compile(chosen, length, method=method)
        if out is not None:
            status("writing")
            compiled.save(out, overwrite=force)
    known = compiled_facts(compiled)
    if as_json:
        return _print_json({**known, "path": None if out is None else str(out)})
    print_compiled(known, f"{out}: " if out is not None else "")


@automaton.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `compile` wrote.")],
    length: Annotated[
        int | None, typer.Option(help="Tokens per input (default: all that it was compiled for).")
    ] = None,
    samples: Annotated[int, typer.Option(help="Random inputs where there are too many to try all.")] = 100,
    seed: Annotated[int, typer.Option(help="Of random inputs.")] = 0,
    as_json: _Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a compiled model with its automaton, on all inputs where they are few. Exit status 1 where it errs."""
    whole("--samples", samples)
    whole("--seed", seed, least=0)
    if length is not None:
        whole("--length", length)
    from sandtable.cli.automata.facts import compiled_facts, verified_facts
    from sandtable.cli.automata.printed import print_compiled, print_verified
    from sandtable.theory.automata import Compiled, verify

    with Status(quiet=quiet) as status:
        status("reading")
        compiled = Compiled.load(path)
        status(f"running {compiled.method} from {compiled.automaton.n_states} start states")
        found = verified_facts(verify(compiled, length=length, samples=samples, seed=seed), compiled.automaton)
    known = compiled_facts(compiled)
    if as_json:
        _print_json({**known, **found, "path": str(path)})
    else:
        print_compiled(known, f"{path}: ")
        print_verified(found)
    raise typer.Exit(0 if found["exact"] else 1)


def _print_json(known: dict[str, Any]) -> None:
    print(json.dumps(_finite(known), allow_nan=False, ensure_ascii=False))


def _finite(value: Any) -> Any:
    """Bounds beyond all numbers as null, as JSON has no word for them."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
