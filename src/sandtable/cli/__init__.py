"""The front door: list, show, verify, report, sample, topics, pretrain, decode, translate, dyck, automaton, compile."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
import webbrowser
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandtable import __version__
from sandtable.arguments import ArgumentError, free_path, one_of, whole
from sandtable.cli.automata import automaton, compile_automaton, sampled
from sandtable.cli.decode import decode
from sandtable.cli.dyck import dyck
from sandtable.cli.printing import new_console, new_table, shown
from sandtable.cli.progress import Door, Quiet, Watched
from sandtable.cli.settings import parse_setting, parse_time
from sandtable.cli.text import pretrain, topics
from sandtable.cli.translate import translate
from sandtable.lab import registry
from sandtable.lab.asked import asked
from sandtable.lab.changes import as_declared, in_words
from sandtable.lab.claim import SCALES

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from sandtable.lab.run import Outcome

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=Door,
)

_From = Annotated[
    list[Path] | None, typer.Option("--from", metavar="FILE", help="Also the claims of this Python file.")
]
_Store = Annotated[Path | None, typer.Option("--store", help="Folder of results (default: $SANDTABLE_HOME, or runs).")]

WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "topics": ("TopicModel", {"topics": 10, "words": 10, "length": (8, 12), "dirichlet": 0.1}),
    "dyck": ("FixedLengthDyck", {}),
    "dyck-prefixes": ("DyckPrefixes", {}),
    "dyck-words": ("DyckWords", {}),
    "drop": ("DropTask", {}),
    "fertility": ("FertilityTask", {}),
    "dialect": ("DialectTask", {}),
    "automaton": ("Automaton", {"name": "PARITY", "length": 20}),
    "ising": ("CliqueIsing", {"size": 8, "clique": 4, "coupling": 0.3}),
}
MOST_SHOWN = 100_000
_COLOUR = {"holds": "green", "refuted": "red", "inconclusive": "yellow", "error": "magenta"}


def _show_version(asked: bool) -> None:
    if asked:
        print(f"sandtable {__version__}")
        raise typer.Exit


@app.callback()
def front(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Small worlds, small models, closed forms, and a verdict on whether the prediction held."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a mistake in the call is one line on stderr and exit status 2."""
    warnings.showwarning = _show_warning
    warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated")  # PyTorch's own, on importing itself
    # Read when PyTorch is first imported. Threads that spin while they wait take the time of those they wait for where
    # the machine has other work: two claims of the tour took 200 seconds, not 17, beside two busy processes.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if arguments is None:  # a scheduler that ends a job asks first: what is finished is kept then, too
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        app(args=words, prog_name="sandtable", obj=words)
    except ArgumentError as error:
        print(f"sandtable: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:  # a file or a folder that is not as it should be, where nobody knew it better
        where = "" if error.filename is None else f": {error.filename}"
        print(f"sandtable: {error.strerror or error}{where}", file=sys.stderr)
        raise SystemExit(2) from None


@app.command("list")
def list_claims(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CLAIM]...", help="Names, shell patterns, or words of statement and source."),
    ] = None,
    scale: Annotated[str | None, typer.Option(help="Only claims that have this scale: smoke, desk or paper.")] = None,
    lacks: Annotated[str | None, typer.Option(help="Only claims without this scale, and what makes them long.")] = None,
    files: _From = None,
    store: _Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
) -> None:
    """Every claim, with its last verdict."""
    for name, value in (("--scale", scale), ("--lacks", lacks)):
        if value is not None:
            one_of(name, value, SCALES)
    known = registry.cards(files or (), say=_say)
    chosen = [known[name] for name in registry.search(patterns or ["*"], known)] if known or patterns else []
    chosen = [card for card in chosen if scale in (None, *card["scales"]) and lacks not in card["scales"]]
    cards: list[dict[str, Any]] = [card | {"last": _last(card["id"], store)} for card in chosen]
    if as_json:
        return print(json.dumps(cards, ensure_ascii=False))
    if lacks is not None:
        return _print_long(cards, lacks)
    table = new_table("claim", "statement", "source", "expected", "last verdict")
    for card in cards:
        name = card["id"] + (" *" if card["tour"] else "")
        last = card["last"]
        seen = _verdict(last["verdict"], f" ({last['scale']}, {last['date'][:10]}{_otherwise(last)})") if last else "—"
        table.add_row(name, card["statement"], _source(card["source"]), card["expected"], seen)
    console = new_console()
    console.print(table)
    lines = Counter(card["id"].partition("/")[0] for card in cards)
    console.print(f"{len(cards)} claims: {', '.join(f'{line}/* ({n})' for line, n in lines.items())}", style="dim")
    console.print("* is part of the tour (sandtable verify); sandtable show CLAIM has the rest", style="dim")


@app.command()
def show(
    claim: Annotated[str, typer.Argument(help="The id of a claim.")], files: _From = None, store: _Store = None
) -> None:
    """A claim: statement, source, settings, and what would refute it."""
    known = registry.cards(files or (), say=_say)
    for card in (known[name] for name in registry.match([claim], known)):
        _show(card, _last(card["id"], store))


@app.command()
def verify(
    patterns: Annotated[list[str] | None, typer.Argument(metavar="[CLAIM]...", help="Names or shell patterns.")] = None,
    scale: Annotated[str | None, typer.Option(help="smoke, desk (the default) or paper.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")] = "cpu",
    seeds: Annotated[int | None, typer.Option(help="How many seeds (default: what each claim asks for).")] = None,
    seed_base: Annotated[int, typer.Option(help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(help="Claims to run side by side, each in a process of its own.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Threads of each job (default: the cores, shared).")] = None,
    on: Annotated[
        str | None, typer.Option("--on", help="ray, or ray://HOST:PORT: spread claims and seeds over a Ray cluster.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute everything again.")] = False,
    fresh_since: Annotated[
        str | None, typer.Option("--fresh-since", metavar="TIME", help="Compute again what is older than this.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another setting, in all chosen claims that have it."),
    ] = None,
    store: _Store = None,
    files: _From = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout, nothing else there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run claims, compare with the prediction, judge. Exit status 0: all as expected, 1: not, 2: a mistake in the call.

    Without CLAIM and --scale: the tour, one claim per line of work, and then the report. With --scale alone: every
    claim that has this scale.
    """
    if scale is not None:
        one_of("scale", scale, SCALES)
    whole("--seed-base", seed_base, least=0)
    for name, value in (("--seeds", seeds), ("--jobs", jobs), ("--threads", threads)):
        if value is not None:
            whole(name, value)
    since = None if fresh_since is None else parse_time("--fresh-since", fresh_since)
    if fresh and since is not None:
        raise ArgumentError("--fresh with --fresh-since: choose one, all again or what is older than a moment")
    cards = registry.cards(files or (), say=_say)
    tour = not patterns and scale is None
    names = [name for name, card in cards.items() if card["tour"]] if tour else None
    names = registry.match(patterns or ["*"], cards) if names is None else names
    from sandtable.lab.run import verify as run  # only now: a mistyped name should not wait for torch

    known = registry.load(files or ())
    changes = dict(parse_setting(text) for text in settings or ())
    progress = Watched(quiet=quiet)
    interrupted = False
    try:
        with progress:
            run(
                [known[name] for name in names],
                scale=scale or "desk",
                seeds=seeds,
                seed_base=seed_base,
                device=device,
                store=store,
                fresh=fresh if since is None else since,
                jobs=jobs,
                threads=threads,
                on=on,
                files=files or (),
                changes=changes,
                progress=progress,
            )
    except KeyboardInterrupt:
        interrupted = True
    outcomes = sorted(progress.outcomes, key=lambda outcome: outcome.claim)
    if as_json:
        print(json.dumps([outcome.as_json() for outcome in outcomes], allow_nan=False, ensure_ascii=False))
    else:
        _print_outcomes(outcomes, progress.total)
    if interrupted:
        raise KeyboardInterrupt
    if tour:
        print(f"report: {_write_report(store, cards)}", file=sys.stderr if as_json else sys.stdout)
    raise typer.Exit(0 if all(outcome.ok for outcome in outcomes) else 1)


@app.command()
def report(
    store: _Store = None,
    files: _From = None,
    browse: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write the report, one HTML page of all that was run.

    It is self-contained: scoreboard, figures, settings, errata.
    """
    path = _write_report(store, registry.cards(files or (), say=_say))
    print(path)
    if browse:
        webbrowser.open(path.resolve().as_uri())


@app.command()
def sample(
    world: Annotated[str, typer.Argument(help=f"One of: {', '.join(WORLDS)}.")],
    count: Annotated[int, typer.Option("-n", help="How many samples.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the generator.")] = 0,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A file to write instead: .parquet, .jsonl or .csv.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Look at a world: a few samples of it, or many in a file with tokens, mask and latents as columns."""
    kind, defaults = WORLDS[one_of("world", world, WORLDS)]
    whole("-n", count, most=MOST_SHOWN)
    whole("--seed", seed, least=0)
    import torch

    from sandtable import worlds

    make = getattr(worlds, kind)
    fields = list(make.__dataclass_fields__)
    given = dict(parse_setting(text, fields) for text in settings or ())
    law: Any = sampled(defaults | given) if kind == "Automaton" else make(**(defaults | given))
    if out is not None:
        from sandtable.bridges.columns import write

        free_path(out, overwrite=force, hint="pass --force")
        print(f"{write(law, out, count, seed=seed, overwrite=force)}: {count} samples")
        return
    batch = law.sample(count, torch.Generator().manual_seed(seed))
    print(law.name if kind == "Automaton" else f"{law}", file=sys.stderr)
    for row in range(count):
        real = batch.mask[row]
        given = [] if batch.given is None else [law.vocab.text(batch.given.x[row][batch.given.mask[row]])]
        states = [law.state_text(batch.latents["state"][row][real])] if kind == "Automaton" else []
        print(" → ".join([*given, law.vocab.text(batch.x[row][real]), *states]))


app.command(short_help="Do the topics of a corpus show in a model?")(topics)
app.command(short_help="Train a BERT from scratch on a corpus, watched.")(pretrain)
app.command(short_help="Decode with a verifier: accuracy against queries.")(decode)
app.command(short_help="Translate: all words at once, or one by one.")(translate)
app.add_typer(dyck, name="dyck", short_help="Exact Transformers on brackets.")
app.add_typer(automaton, name="automaton", short_help="Automata: algebra, pictures, compiled models.")
app.command("compile", short_help="An automaton as a Transformer, no training.")(compile_automaton)


def _write_report(store: Path | None, cards: Mapping[str, Mapping[str, Any]]) -> Path:
    from sandtable.lab.report import write_report
    from sandtable.lab.store import Store

    folder = Store(store)
    folder.require_writable()
    return write_report(folder.root, claims=list(cards.values()))


def _last(claim: str, store: Path | None) -> dict[str, Any] | None:
    from sandtable.lab.store import Store

    record = Store(store).last_verdict(claim)
    keys = ("verdict", "scale", "date", "ok", "checks", "targets", "variation", "seeds", "declared_seeds")
    return record and {key: record.get(key) for key in keys}


def _otherwise(last: Mapping[str, Any]) -> str:
    """What marks a verdict that is not one of the claim as it is declared."""
    return "" if as_declared(last) else f", variation: {in_words(last['variation'])}"


def _show(card: Mapping[str, Any], last: Mapping[str, Any] | None) -> None:
    console = new_console()
    console.print(card["id"], style="bold")
    console.print(card["statement"])
    console.print(f"source: {_source(card['source'])}")
    console.print(f"expected: {card['expected']}")
    if card["erratum"]:
        console.print(f"erratum: {card['erratum']}\ncorrected: {card['corrected']}")
    table = new_table("setting", *card["scales"])
    for name in card["scales"]["desk"]:
        table.add_row(name, *(settings[name] for settings in card["scales"].values()))
    table.add_row("seeds", *(str(count) for count in card["seeds"].values()))
    console.print(table)
    if card["no_smoke"]:
        console.print(f"no smoke scale: {card['no_smoke']}")
    if card["controls"]:
        console.print("must be refuted:")
    for control in card["controls"]:
        change = ", ".join(f"{name}={value}" for name, value in control["change"].items())
        console.print(f"  {control['name']} ({change}) refutes {', '.join(control['refutes'])}")
    if last:
        console.print(
            "last verdict:", _verdict(last["verdict"], f" ({last['scale']}, {last['date']}{_otherwise(last)})")
        )
        console.print(_checks_table(last["checks"], last["targets"] or {}))


def _print_long(cards: Sequence[Mapping[str, Any]], lacks: str) -> None:
    """Claims without a scale, with the counts of their desk scale: these take long, or cannot be made smaller."""
    table = new_table("claim", "seeds", "largest settings at desk scale", "why")
    for card in cards:
        counts = ", ".join(f"{name}={count}" for name, count in card["work"]["desk"].items())
        table.add_row(card["id"], str(card["seeds"]["desk"]), counts, card["no_smoke"] if lacks == "smoke" else "")
    console = new_console()
    console.print(table)
    console.print(f"{len(cards)} claims without a {lacks} scale", style="dim")


def _print_outcomes(outcomes: Sequence[Outcome], total: int) -> None:
    if not outcomes:
        return
    table = new_table("claim", "verdict", "check", "predicted or asked", "measured (interval)", "controls", "seconds")
    for outcome in outcomes:
        refuted = sum(control["verdict"] == "refuted" for control in outcome.controls)
        controls = f"{refuted}/{len(outcome.controls)} refuted" if outcome.controls else "—"
        surprise = "" if outcome.verdict == outcome.expected else f", expected {outcome.expected}"
        verdict = _verdict(outcome.verdict, surprise)
        rows = [_numbers(check, outcome.targets) for check in outcome.checks] or [("", "", "")]
        for row, numbers in enumerate(rows):
            first = row == 0
            ends = (controls, f"{outcome.seconds:.1f}") if first else ("", "")
            table.add_row(outcome.claim if first else "", verdict if first else "", *numbers, *ends)
    console = new_console()
    console.print(table)
    for outcome in outcomes:
        for check in outcome.checks:
            if not outcome.ok and check["verdict"] != outcome.expected:
                console.print(f"{outcome.claim}: {check['name']}: {outcome.messages[check['name']]}")
        for note in outcome.notes:
            console.print(f"{outcome.claim}: {note}")
        for control in outcome.controls:
            if control["verdict"] != "refuted":
                text = f"{outcome.claim}: control {control['name']!r} should be refuted, but: {control['verdict']}"
                console.print(text)
        if outcome.variation:
            console.print(f"{outcome.claim}: a variation, not what it declares: {in_words(outcome.variation)}")
    good = sum(outcome.ok for outcome in outcomes)
    missing = f"; {total - len(outcomes)} not run" if total > len(outcomes) else ""
    console.print(f"{good} of {total} claims are as expected{missing}; figures and settings: sandtable report --open")


def _checks_table(checks: Sequence[Mapping[str, Any]], targets: Mapping[str, Any]) -> Table:
    table = new_table("check", "predicted or asked", "measured (interval)", "verdict")
    for check in checks:
        table.add_row(*_numbers(check, targets), _verdict(check["verdict"]))
    return table


def _numbers(check: Mapping[str, Any], targets: Mapping[str, Any]) -> tuple[str, str, str]:
    measured, low, high = (shown(check[key]) for key in ("measured", "low", "high"))
    interval = "" if low == high == measured else f" ({low} … {high})"
    word, wanted = asked(check, targets.get(check["name"]), shown)
    return check["name"], f"{word} {wanted}".strip(), measured + interval


def _verdict(verdict: str, after: str = "") -> Text:
    from rich.text import Text

    return Text.assemble((verdict, _COLOUR.get(verdict, "default")), after)


def _source(source: Mapping[str, Any]) -> str:
    return f"{source['authors']} {source['year']}, {source['where']}"


def _say(text: str) -> None:
    print(f"sandtable: {text}", file=sys.stderr)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    print(f"sandtable: warning: {message}", file=sys.stderr)
