"""`sandtable decode`: any decoder on any model and task, one method or a comparison of many."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandtable.arguments import ArgumentError, nearest, one_of, place, whole
from sandtable.cli.printing import new_console, new_table, shown
from sandtable.cli.progress import Quiet, Status
from sandtable.cli.settings import parse_setting, several
from sandtable.cli.writing import draw, plain_name

if TYPE_CHECKING:
    from sandtable.decoding import Generation, LanguageModel, Verifier
    from sandtable.decoding.tasks import Examples, Problems, Task

METHODS = {
    "ancestral": "ancestral",
    "greedy": "greedy",
    "rejection": "rejection",
    "best-of-n": "best_of_n",
    "block-best-of-n": "block_best_of_n",
    "block-rejection": "block_rejection",
    "tokenwise": "tokenwise_rejection",
    "exhaustive": "exhaustive_tokenwise",
    "action-level": "action_level",
    "backtrack": "backtrack",
    "vgb": "vgb",
    "smc": "smc",
}
TASKS = ("dyck", "append")
PROBE_PROMPTS = {"DyckTask": (4000, 1, "ood"), "AppendTask": (7, 30, "train")}
"""Prompts, completions of each, and kind of prompts on which a probe is trained."""
VERIFIERS = ("probe", "truth", "random")
LAW = ("temperature", "top_p", "top_k", "max_tokens")
_COSTS = ("queries", "forwards", "verifier_calls", "rejections", "backtracks", "erased")


@dataclass(frozen=True)
class Arm:
    """One method with its settings, and the verifier that it asks, as written on the command line.

    `judge` has what it says of the verifier: its name ("verifier"), and the "layer" and "depth" of a probe.
    """

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    judge: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.method, *(f"{name}={value}" for name, value in {**self.settings, **self.judge}.items())])

    @property
    def decoder(self) -> Any:
        from sandtable import decoding

        return getattr(decoding, METHODS[self.method])

    def __post_init__(self) -> None:
        one_of("--method", self.method, METHODS)
        from sandtable.decoding.driver import check_settings

        check_settings(self.decoder, self.settings, _OURS)
        if self.settings.get("returns") == "all":
            raise ArgumentError("returns='all': a prompt has one completion here; ask for more with --repeats")
        if self.judge and "verifier" not in inspect.signature(self.decoder).parameters:
            raise ArgumentError(f"{', '.join(self.judge)}: {self.method} asks no verifier")
        if "verifier" in self.judge:
            _known_verifier(str(self.judge["verifier"]))
            if self.judge["verifier"] != "probe" and len(self.judge) > 1:
                raise ArgumentError(f"verifier={self.judge['verifier']}: only a probe trained here has layer and depth")
        whole("layer", self.judge.get("layer", 0), least=0)
        whole("depth", self.judge.get("depth", 1))


_JUDGE = ("verifier", "layer", "depth")
_OURS = ("lm", "prompts", "verifier", "generator", "batch_size", "trace", "progress")


def decode(
    task: Annotated[str, typer.Option(help="dyck (complete balanced brackets) or append (list Python test cases).")],
    model: Annotated[
        str | None, typer.Option(help="A Hugging Face name or folder; without one, a small model is trained here.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="With --model: a tokenizer's name or folder (default: the model's own).")
    ] = None,
    method: Annotated[str | None, typer.Option(help=f"One of: {', '.join(METHODS)} (default: backtrack).")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Of the method: quota=4, stride=4, top_p=0.9, n=8, …"),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="ARMS",
            help='"standard", or methods with their settings: "ancestral top_p=0.9; backtrack quota=1|2|4 top_p=0.9|1" '
            "(a | b: each in turn, in all combinations). verifier=, layer= and depth= are settings of every arm.",
        ),
    ] = None,
    verifier: Annotated[
        str, typer.Option(help="probe (trained here on hidden states), truth (the rules), random, or a saved probe.")
    ] = "probe",
    steps: Annotated[
        int | None, typer.Option(help="Training steps of the small model (default: what the claims use).")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer that the probe reads (default: the last).")] = None,
    depth: Annotated[int | None, typer.Option(help="Layers of the probe itself (default: 1, it is linear).")] = None,
    count: Annotated[int, typer.Option("-n", help="Prompts; for append, function names.")] = 10,
    repeats: Annotated[int, typer.Option(help="Completions of every prompt.")] = 10,
    runs: Annotated[int, typer.Option(help="Times all of it is done, with other prompts and draws.")] = 1,
    kind: Annotated[str | None, typer.Option(help="Which prompts: test, ood, or (append) train.")] = None,
    seed: Annotated[int, typer.Option(help="Of prompts, draws and the probe.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Rows decoded side by side.")] = 256,
    trace: Annotated[
        int | None, typer.Option(help="Draw what the first method tried for this completion, counted from 0.")
    ] = None,
    show: Annotated[int, typer.Option(help="Completions to print.")] = 3,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")] = "cpu",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the table, figure and probe.")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Folder of results ($SANDTABLE_HOME, or runs).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Decode with a verifier: accuracy, diversity and queries of one method, or of many side by side."""
    one_of("--task", task, TASKS)
    sizes = dict(n=count, repeats=repeats, runs=runs, batch_size=batch_size)
    for name, value in sizes.items():
        several(f"--{name}".replace("_", "-") if name != "n" else "-n", value)
    several("-n × --repeats", count * repeats)
    whole("--seed", seed, least=0)
    whole("--show", show, least=0)
    several("--steps", 1 if steps is None else steps)
    whole("--trace", 0 if trace is None else trace, least=0, most=count * repeats - 1)
    whole("--depth", 1 if depth is None else depth)
    whole("--layer", layer or 0, least=0)
    _known_verifier(verifier)
    if verifier != "probe" and (layer, depth) != (None, None):
        raise ArgumentError(f"--verifier={verifier}: only a probe trained here has --layer and --depth")
    if model is not None and steps is not None:
        raise ArgumentError(f"--steps={steps}: {model} is trained already; leave --steps out")
    if compare is not None and method is not None:
        raise ArgumentError(f"--method={method}: --compare names the methods; give one of the two")
    own = dict(parse_setting(text) for text in settings or ())
    arms = [Arm(method or "backtrack", own)] if compare is None else parse_arms(compare, task, own)
    from sandtable.lab import Lab, Store
    from sandtable.lab.run import plain
    from sandtable.training.pace import Pace

    folder = Store(store)
    folder.require_writable()
    with Status(quiet=quiet) as say:
        lab = Lab(store=folder, device=device, progress=say)
        work, lm = _prepared(task, model, tokenizer, lab, steps)
        kind = one_of("--kind", kind, work.kinds) if kind is not None else work.kinds[0]
        judges = Judges(work, lm, lab, seed, batch_size, {"verifier": verifier, "layer": layer, "depth": depth or 1})
        for arm in arms:
            judges.probe(arm)
        rows, example = [], None
        pace, each = Pace(), count * repeats
        for run in range(runs):
            problems = work.draw(count, repeats, lab.generator(seed + run, "prompts"), kind=kind)
            for number, arm in enumerate(arms):
                say(f"run {run + 1}/{runs} · {arm}")
                first = number == 0 and run == 0
                before = (run * len(arms) + number) * each
                told = lambda done, total, arm=arm, run=run, before=before: say(  # noqa: E731
                    f"run {run + 1}/{runs} · {arm} · {done}/{total} rows"
                    + pace.words(before + done, runs * len(arms) * each)
                )
                judge = judges.of(arm, problems, seed + run)
                made = _run(
                    arm, lm, problems, judge, work, seed=seed + run, batch_size=batch_size,
                    trace=first and trace is not None, progress=told,
                )  # fmt: skip
                rows.append({"arm": str(arm), "run": run} | _measured(work, problems, made))
                example = made if first else example
    target = out or folder.path("decode", f"{task}-{plain_name(model or 'small')}")
    record = {
        "task": task, "model": model or "trained here", "verifier": verifier, "kind": kind, "seed": seed, **sizes,
        "threshold": work.threshold, "probe_accuracy": judges.accuracies(), "arms": _summary(arms, rows), "rows": rows,
    }  # fmt: skip
    record = plain(record)
    folder.write_json(target / "decode.json", record)
    files = ["decode.json", *_kept(target, folder, judges, arms, record)]
    if trace is not None:
        files += _traced(target, folder, example, trace)
    if as_json:
        return print(json.dumps(record, allow_nan=False, ensure_ascii=False))
    _print(record, example, show)
    new_console().print(f"written: {target} ({', '.join(files)})")


def parse_arms(text: str, task: str, own: Mapping[str, Any]) -> list[Arm]:
    """The arms of a comparison, with `a|b` for a setting those of every combination.

    `own` settings hold in every arm that has them and does not set them itself.
    """
    if text == "standard":
        best = "block-best-of-n n=2 top_p={p}" if task == "append" else "best-of-n n=2 top_p={p}"
        lines = ["greedy"]
        for p in (0.9, 1.0) if task == "dyck" else (0.95, 1.0):
            lines += [f"ancestral top_p={p}", f"backtrack quota=4 stride=4 top_p={p}", best.format(p=p)]
        text = "; ".join(lines)
    arms, taken = [], set[str]()
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        name, *words = part.split()
        bare = Arm(name)
        fitting = {k: v for k, v in own.items() if k in inspect.signature(bare.decoder).parameters}
        taken |= fitting.keys()
        for chosen in itertools.product(*map(_choices, words)):
            given = dict(parse_setting(word) for word in chosen)
            judge = {k: given.pop(k) for k in _JUDGE if k in given}
            arms.append(Arm(name, fitting | given, judge))
    if not arms:
        raise ArgumentError(f'--compare={text!r}: must name methods, such as "ancestral; backtrack quota=4"')
    for name in own.keys() - taken:
        raise ArgumentError(f"--set {name}={own[name]}: no method of --compare has this setting")
    return arms


def _choices(word: str) -> list[str]:
    """NAME=A|B|C as NAME=A, NAME=B and NAME=C."""
    name, equals, values = word.partition("=")
    return [name + equals + value for value in values.split("|")]


def _known_verifier(name: str) -> None:
    if name not in VERIFIERS and not place("--verifier", name).is_file():
        raise ArgumentError(
            f"--verifier={name!r}: must be {', '.join(VERIFIERS)}, or the file of a saved probe"
            f"{nearest(name, VERIFIERS)}"
        )


def _prepared(
    task: str, model: str | None, tokenizer: str | None, lab: Any, steps: int | None
) -> tuple[Any, LanguageModel]:
    """The task, and the model to decode from."""
    from sandtable.decoding.tasks import AppendTask, DyckTask

    work: Any = DyckTask() if task == "dyck" else AppendTask()
    if model is not None:
        if task == "dyck":
            raise ArgumentError(f"--model={model!r}: the dyck task has a vocabulary of its own; leave --model out")
        from sandtable.bridges import huggingface

        huggingface.no_progress_bars()
        return work, huggingface.load(model, tokenizer=tokenizer, device=lab.device)
    if tokenizer is not None:
        raise ArgumentError(f"--tokenizer={tokenizer!r}: goes with --model; a model trained here has its own")
    from sandtable.claims.verifier.small_models import task_and_model

    return task_and_model(task, lab, steps)


@dataclass
class Judges:
    """The verifiers of all arms; a probe is trained once for all arms that ask the same one."""

    work: Task
    lm: LanguageModel
    lab: Any
    seed: int
    batch_size: int
    usual: Mapping[str, Any]
    probes: dict[str, Any] = field(default_factory=dict)
    """By a name that says what sets a probe apart."""
    examples: dict[bool, Examples] = field(default_factory=dict)
    """Prefixes to train on, for tokens and for blocks."""

    def of(self, arm: Arm, problems: Problems, seed: int) -> Verifier:
        """What an arm asks about these problems."""
        from sandtable.decoding import Random

        probe = self.probe(arm)
        if probe is not None:
            return probe
        return Random(seed) if self._asked(arm)["verifier"] == "random" else self.work.truth(problems)

    def probe(self, arm: Arm) -> Any:
        """The probe that an arm asks, trained here or saved; None where it asks rules, or nothing."""
        from sandtable.decoding import Hidden, ProbeVerifier

        asked = self._asked(arm)
        if "verifier" not in inspect.signature(arm.decoder).parameters or asked["verifier"] in VERIFIERS[1:]:
            return None
        blocks = arm.method.startswith("block") and self.work.block_probe
        name = self._name(asked, blocks=blocks)
        if name not in self.probes and asked["verifier"] != "probe":
            self.probes[name] = ProbeVerifier.load(asked["verifier"])
        elif name not in self.probes:
            from sandtable.decoding.tasks import fit_probe

            found = self._examples(blocks=blocks)
            self.lab.say(f"training the {name}")
            self.probes[name] = fit_probe(
                self.lm, found, self.lab.generator(self.seed, "probe"), depth=asked["depth"],
                granularity="block" if blocks else "token",
                hidden=None if asked["layer"] is None else Hidden(asked["layer"]), batch_size=self.batch_size,
            )  # fmt: skip
        return self.probes[name]

    def accuracies(self) -> dict[str, float]:
        return {name: probe.validation_accuracy for name, probe in self.probes.items()}

    def _asked(self, arm: Arm) -> dict[str, Any]:
        return {**self.usual, **arm.judge}

    def _name(self, asked: Mapping[str, Any], *, blocks: bool) -> str:
        if asked["verifier"] != "probe":
            return Path(asked["verifier"]).stem
        layer = [] if asked["layer"] is None else [f"layer {asked['layer']}"]
        depth = [] if asked["depth"] == 1 else [f"depth {asked['depth']}"]
        return " ".join(["probe", *layer, *depth, *["blocks"] * blocks])

    def _examples(self, *, blocks: bool) -> Examples:
        if blocks not in self.examples:
            count, repeats, kind = PROBE_PROMPTS[type(self.work).__name__]
            problems = self.work.draw(count, repeats, self.lab.generator(self.seed, "probe prompts"), kind=kind)
            self.lab.say("completing prompts for probes")
            self.examples[blocks] = self.work.examples(
                problems, self.lm, self.lab.generator(self.seed, "probe completions"),
                blocks=blocks, batch_size=self.batch_size, top_p=0.95,
            )  # fmt: skip
        return self.examples[blocks]


def _run(
    arm: Arm,
    lm: LanguageModel,
    problems: Problems,
    judge: Verifier,
    work: Task,
    *,
    seed: int,
    batch_size: int,
    trace: bool,
    progress: Callable[[int, int], object],
) -> Generation:
    options: dict[str, Any] = {"max_tokens": work.max_tokens, **arm.settings}
    if "verifier" in inspect.signature(arm.decoder).parameters:
        options["verifier"] = judge
    if "threshold" in inspect.signature(arm.decoder).parameters:
        options = {"threshold": work.threshold, **options}
    if arm.method.startswith("block"):
        options = {**work.blocks, **options}
    return arm.decoder(
        lm,
        problems.prompts,
        generator=seed,
        batch_size=batch_size,
        trace=trace,
        progress=progress,
        **options,
    )


def _measured(work: Task, problems: Problems, made: Generation) -> dict[str, Any]:
    costs = {name: int(getattr(made.cost, name).sum()) for name in _COSTS}
    failed = int((~made.accepted).sum())
    return work.measure(problems, made) | costs | {"failed": failed, "passes": made.passes, "seconds": made.seconds}


def _summary(arms: Sequence[Arm], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean, standard deviation and standard error of every number over the runs, arm by arm."""
    found = []
    for arm in arms:
        own = [row for row in rows if row["arm"] == str(arm)]
        numbers = [name for name in own[0] if name not in ("arm", "run", "errors")]
        means = {name: sum(row[name] for row in own) / len(own) for name in numbers}
        squares = {name: sum((row[name] - means[name]) ** 2 for row in own) for name in numbers}
        spread = {name: math.sqrt(s / (len(own) - 1)) if len(own) > 1 else math.nan for name, s in squares.items()}
        deviation = {f"{name}_std": value for name, value in spread.items()}
        error = {f"{name}_se": value / math.sqrt(len(own)) for name, value in spread.items()}
        found.append({"arm": str(arm), "method": arm.method, "runs": len(own)} | means | deviation | error)
    return found


def _kept(target: Path, folder: Any, judges: Judges, arms: Sequence[Arm], record: Mapping[str, Any]) -> list[str]:
    files = []
    for name, probe in judges.probes.items():
        files.append(f"{plain_name(name)}.safetensors")
        with folder.writing(target):
            probe.save(target / files[-1])
    if len(arms) > 1:
        files += [file.name for file in draw(target / "frontier", _figure(record), folder)]
    return files


def _traced(target: Path, folder: Any, made: Any, row: int) -> list[str]:
    """The tree of what was tried for one row, and all traces, which can be replayed."""
    from sandtable.lab.figures import tree

    tried = made.trace.tree(row)
    figure = tree(
        tried.parents,
        labels=tried.labels(lambda token: made.model.decode([token])),
        kept=[node.kept for node in tried.nodes],
        rejected=[node.rejected for node in tried.nodes],
        title=f"What was tried for completion {row}",
    )
    folder.write_text(target / "trace.json", made.trace.to_json())
    return ["trace.json", *(file.name for file in draw(target / "tree", figure, folder))]


def _figure(record: Mapping[str, Any]) -> Any:
    from sandtable.lab.figures import frontier

    arms: dict[str, list[tuple[set[str], Any]]] = {}
    for arm in record["arms"]:
        arms.setdefault(arm["method"], []).append((set(arm["arm"].split()[1:]), arm))
    groups = {}
    for method, points in arms.items():
        common = set.intersection(*(settings for settings, _ in points))
        name = " ".join([method, *(word for word in points[0][1]["arm"].split()[1:] if word in common)])
        groups[name if len(points) > 1 else points[0][1]["arm"]] = [
            (" ".join(sorted(settings - common)), arm["queries"], arm["accuracy"], arm["accuracy_se"] or math.nan)
            for settings, arm in points
        ]
    title = f"Accuracy against queries: {record['task']}"
    return frontier(groups, xlabel="queries of the generator", ylabel="accuracy", title=title)


def _print(record: Mapping[str, Any], example: Any, show: int) -> None:
    console = new_console()
    for name, accuracy in record["probe_accuracy"].items():
        console.print(f"{name}: validation accuracy {shown(accuracy)}")
    table = new_table("method", "accuracy", "diversity", "queries", "verifier calls", "backtracks", "failed", "seconds")
    names = ("accuracy", "diversity", "queries", "verifier_calls", "backtracks", "failed", "seconds")
    for arm in record["arms"]:
        cells = [shown(arm[name]) + (f" ± {shown(arm[f'{name}_se'])}" if arm["runs"] > 1 else "") for name in names]
        table.add_row(arm["arm"], *cells)
    console.print(table)
    errors = record["rows"][0]["errors"]
    if errors:
        console.print("errors: " + ", ".join(f"{name} {number}" for name, number in list(errors.items())[:6]))
    for text in example.text[:show]:
        console.print(f"— {text.strip()}")
