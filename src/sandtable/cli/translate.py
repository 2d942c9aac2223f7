"""`sandtable translate`: a parallel refiner and a sequential model, trained on a task or on pairs of sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandtable.arguments import ArgumentError, nearest, number, one_of, whole
from sandtable.cli.printing import new_console, new_table, shown
from sandtable.cli.progress import Quiet, Status
from sandtable.cli.settings import several
from sandtable.cli.writing import plain_name

if TYPE_CHECKING:
    from sandtable.bridges.parallel import ParallelText
    from sandtable.decoding import Translated
    from sandtable.lab import Lab
    from sandtable.worlds import Batch

TASKS = ("drop", "fertility", "dialect")
REJECTERS = ("none", "stutter", "linear")
MODELS = ("both", "refiner", "sequential")
NUMBERS = ("BLEU", "exact", "accuracy", "valid", "stutter", "passes", "seconds")


@dataclass(frozen=True)
class Work:
    """What is translated: a world to train on, and pairs to test on; `text` turns tokens into sentences."""

    name: str
    world: Any
    test: Batch
    longest_source: int
    longest_target: int
    text: ParallelText | None = None


def translate(
    task: Annotated[str | None, typer.Option(help="drop, fertility or dialect: toy translation.")] = None,
    source: Annotated[
        str | None, typer.Option(help="A file with a sentence a line, or with --dataset the field of its records.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The file, or the field, of the translations.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="A Hugging Face data set; fields may have dots: translation.de.")
    ] = None,
    config: Annotated[str | None, typer.Option(help="Which configuration of the data set.")] = None,
    split: Annotated[str, typer.Option(help="Which split of the data set.")] = "train",
    distilled: Annotated[bool, typer.Option("--distilled", help="A task with one right answer.")] = False,
    teach: Annotated[
        int, typer.Option(help="Train the refiner on what the sequential model makes of so many sources; 0: do not.")
    ] = 0,
    model: Annotated[str, typer.Option(help="both, refiner or sequential.")] = "both",
    steps: Annotated[int, typer.Option(help="Training steps.")] = 600,
    layers: Annotated[int, typer.Option(help="Layers of the encoder, and of the decoder.")] = 2,
    heads: Annotated[int, typer.Option()] = 4,
    width: Annotated[int, typer.Option()] = 48,
    batch: Annotated[int, typer.Option(help="Pairs of a step.")] = 64,
    lr: Annotated[float, typer.Option(help="Learning rate, after a tenth of the steps.")] = 4e-3,
    vocab: Annotated[int, typer.Option(help="Tokens of the vocabulary trained on both sides.")] = 2000,
    longest: Annotated[int, typer.Option(help="Longer sentences are left out (tokens).")] = 64,
    limit: Annotated[int | None, typer.Option(help="Only so many pairs.")] = None,
    count: Annotated[int, typer.Option("-n", help="Pairs to test on, kept aside.")] = 500,
    passes: Annotated[int, typer.Option(help="Decoder passes of the refiner.")] = 4,
    beams: Annotated[int, typer.Option(help="Lengths that the refiner tries, and beams of the sequential model.")] = 5,
    oracle: Annotated[bool, typer.Option("--oracle", help="The refiner is told the lengths.")] = False,
    rejecter: Annotated[str, typer.Option(help="none, stutter or linear: what is taken back between passes.")] = "none",
    drop_stutter: Annotated[bool, typer.Option("--drop-stutter", help="Delete repetitions at the end.")] = False,
    texts: Annotated[
        Path | None, typer.Option("--input", help="A file to translate, a sentence a line, after training.")
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
    show: Annotated[int, typer.Option(help="Translations to print.")] = 3,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")] = "cpu",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the table and translations.")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Folder of results ($SANDTABLE_HOME, or runs).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Translate: all words at once and refined, beside one word after another.

    Models are trained once and kept in the store; the same command finds them there.
    """
    if (task is None) == (source is None and target is None and dataset is None):
        raise ArgumentError("translate: give --task, or the two files --source and --target, or --dataset with fields")
    if task is not None:
        one_of("--task", task, TASKS)
    elif source is None or target is None:
        raise ArgumentError("translate: --source and --target go together")
    if task is None and distilled:
        raise ArgumentError("--distilled: is of the tasks; text is distilled by --teach")
    if task is not None and texts is not None:
        raise ArgumentError("--input: needs text, not a task")
    for name, value in (("-n", count), ("--passes", passes), ("--beams", beams), ("--batch", batch)):
        several(name, value)
    for name, value in (("--steps", steps), ("--show", show), ("--teach", teach)):
        several(name, value, least=0)
    whole("--seed", seed, least=0)
    whole("--layers", layers, most=1000)
    if limit is not None:
        whole("--limit", limit)
    number("--lr", lr, above=0.0)
    one_of("--rejecter", rejecter, REJECTERS)
    if one_of("--model", model, MODELS) != "both" and teach:
        raise ArgumentError(f"--teach={teach}: needs the sequential model and the refiner; use --model both")
    lines = None if texts is None else _lines(texts)
    from sandtable.lab import Lab, Store
    from sandtable.lab.run import plain

    folder = Store(store)
    folder.require_writable()
    with Status(quiet=quiet) as say:
        lab = Lab(seeds=(seed,), store=folder, device=device, progress=say)
        if task is not None:
            work = _toy(lab, task, distilled, count)
        else:
            assert source is not None
            assert target is not None
            work = _text(lab, source, target, dataset, config, split, vocab, longest, limit, count)
        shape = dict(layers=layers, heads=heads, width=width)
        training = dict(steps=steps, batch_size=batch, lr=lr)
        arms: dict[str, Callable[..., Translated]] = {}
        if model != "refiner":
            sequential = _trained(lab, work, work.world, training, shape, causal=True)
            arms |= _sequential(sequential, beams)
        if model != "sequential":
            world = _taught(lab, work, sequential, teach) if teach else work.world
            refiner = _trained(lab, work, world, training, shape, causal=False)
            own = work.test.latents["length"] if oracle else None
            arms |= _refiner(refiner, passes, beams, rejecter, drop_stutter, own, lab.generator(seed, "noise"))
        made = {name: _timed(lab, work, name, decode) for name, decode in arms.items()}
        rows = [{"method": name} | _measured(work, *result) for name, result in made.items()]
        best = list(arms)[-1]
        answers = None if lines is None else _answers(lab, work, arms[best], lines)
    target_folder = out or folder.path("translate", plain_name(work.name))
    about = {"distilled": distilled, "teach": teach, "seed": seed, "steps": steps, "passes": passes, "beams": beams}
    record = plain({"work": work.name, "pairs": len(work.test), **about, **shape, "rows": rows})
    folder.write_json(target_folder / "translate.json", record)
    if answers is not None:
        folder.write_text(target_folder / "translations.txt", "".join(f"{line}\n" for line in answers))
    if as_json:
        return print(json.dumps(record, allow_nan=False, ensure_ascii=False))
    _print(record, work, made[best][0], best, show)
    names = "translate.json" + (", translations.txt" if answers is not None else "")
    new_console().print(f"written: {target_folder} ({names})")


# -- what is translated ----------------------------------------------------------------------------------------------


def _toy(lab: Lab, task: str, distilled: bool, count: int) -> Work:
    from sandtable.worlds import translation_task

    world = translation_task(task, distilled=distilled)
    test = world.sample(count, lab.generator(lab.seeds[0], "test"))
    return Work(f"{task}{'-distilled' * distilled}", world, test, world.length, world.longest)


def _text(
    lab: Lab,
    source: str,
    target: str,
    dataset: str | None,
    config: str | None,
    split: str,
    vocab: int,
    longest: int,
    limit: int | None,
    count: int,
) -> Work:
    from sandtable.bridges import parallel
    from sandtable.bridges.huggingface import no_progress_bars

    no_progress_bars()
    if dataset is None:
        pairs = parallel.read_files(source, target, limit=limit)
    else:
        pairs = parallel.read_dataset(dataset, source, target, split=split, config=config, limit=limit)
    place = lab.folder(parallel.prepare_pairs, pairs, vocab=vocab)
    text = parallel.ParallelText.open(place, longest=longest)
    here, there = text.split(count)
    return Work(pairs.name, here, there.batch(), text.longest_source, text.longest_target, text)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise ArgumentError(f"--input={str(path)!r}: no such file{nearest(path.name, _beside(path))}")
    lines = path.read_text(encoding="utf-8").splitlines()
    if not all(line.strip() for line in lines) or not lines:
        raise ArgumentError(f"--input={str(path)!r}: has blank lines, or none at all; must be a sentence a line")
    return lines


def _beside(path: Path) -> Sequence[str]:
    return [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []


# -- models ----------------------------------------------------------------------------------------------------------


def _trained(
    lab: Lab, work: Work, source: Any, training: Mapping[str, Any], shape: Mapping[str, Any], *, causal: bool
) -> Any:
    from sandtable.models import Seq2Seq
    from sandtable.objectives import Refinement, TeacherForcing
    from sandtable.training import Adam, Cosine, Recipe

    lab.say("training the sequential model" if causal else "training the refiner")
    places = max(work.longest_source, work.longest_target)
    model = Seq2Seq(
        work.world.vocab,
        **shape,
        causal=causal,
        source_positions=True,
        longest=places,
        longest_target=work.longest_target,
    )
    recipe = Recipe(
        model,
        source,
        TeacherForcing() if causal else Refinement(),
        training["steps"],
        batch_size=training["batch_size"],
        optimizer=Adam(training["lr"]),
        schedule=Cosine(warmup=training["steps"] // 10),
        chunk=1,
    )
    return lab.fit(recipe)[0].to(lab.device).eval()


def _taught(lab: Lab, work: Work, teacher: Any, count: int) -> Batch:
    """Sources with what the sequential model makes of them, greedily."""
    from sandtable.decoding import autoregress
    from sandtable.decoding import translate as in_batches
    from sandtable.worlds import Batch

    lab.say(f"the sequential model translates {count:,} sources")
    batch = work.world.sample(count, lab.generator(lab.seeds[0], "sources to teach with"))
    given = batch.given
    out = in_batches(autoregress, teacher, given.x.to(lab.device), seen=given.mask.to(lab.device))
    return Batch(out.tokens.cpu(), mask=out.mask.cpu(), given=given, vocab=batch.vocab)


def _sequential(model: Any, beams: int) -> dict[str, Callable[..., Translated]]:
    from sandtable.decoding import autoregress, beam_search
    from sandtable.decoding import translate as in_batches

    greedy = lambda source, seen, own=False: in_batches(autoregress, model, source, seen=seen)  # noqa: E731
    beam = lambda source, seen, own=False: in_batches(beam_search, model, source, seen=seen, beams=beams)  # noqa: E731
    return {"sequential, greedy": greedy} | ({f"sequential, {beams} beams": beam} if beams > 1 else {})


def _refiner(
    model: Any, passes: int, beams: int, rejecter: str, drop_stutter: bool, lengths: Any, generator: Any
) -> dict[str, Callable[..., Translated]]:
    from sandtable.decoding import LinearSchedule, Stutter, refine
    from sandtable.decoding import translate as in_batches

    rejecters = {"none": (), "stutter": (Stutter(),), "linear": (LinearSchedule(),)}[rejecter]

    def arm(steps: int) -> Callable[..., Translated]:
        def decode(source: Any, seen: Any, own: bool = False) -> Translated:
            return in_batches(
                refine, model, source, seen=seen, steps=steps, beams=beams, generator=generator, rejecters=rejecters,
                drop_stutter=drop_stutter, length_weight=1.0,
                lengths=None if lengths is None or own else lengths.to(source.device),
            )  # fmt: skip

        return decode

    return {f"refined in {n} pass{'es' * (n > 1)}": arm(n) for n in dict.fromkeys((1, passes))}


# -- what comes of it ------------------------------------------------------------------------------------------------


def _timed(lab: Lab, work: Work, name: str, decode: Callable[..., Translated]) -> tuple[Translated, float]:
    lab.say(f"translating: {name}")
    given: Any = work.test.given
    began = time.perf_counter()
    out = decode(given.x.to(lab.device), given.mask.to(lab.device))
    out.lengths.cpu()
    return out, (time.perf_counter() - began) / len(work.test)


def _measured(work: Work, out: Translated, seconds: float) -> dict[str, float | None]:
    from sandtable.decoding import exact_match, stutter_rate, token_accuracy
    from sandtable.probes.translation import neighbours

    given: Any = work.test.given
    tokens, target = out.tokens.cpu(), work.test.x
    found: dict[str, float | None] = {
        "exact": float(exact_match(tokens, target).double().mean()),
        "accuracy": float(token_accuracy(tokens, target).mean()),
        "passes": float(out.decoder_passes.double().mean()),
        "seconds": seconds,
    }
    if work.text is None:
        valid = float(work.world.valid(given.x, tokens).double().mean())
        return found | {"BLEU": None, "valid": valid, "stutter": neighbours(tokens, target).rate}
    written, references = work.text.decode(tokens), work.text.decode(target)
    return found | {
        "BLEU": _bleu(written, references),
        "valid": None,
        "stutter": stutter_rate(written, references)[0],
    }


def _bleu(written: Sequence[str], references: Sequence[str]) -> float | None:
    from importlib.util import find_spec

    from sandtable.decoding import bleu

    return bleu(written, references).score if find_spec("sacrebleu") else None


def _answers(lab: Lab, work: Work, decode: Callable[..., Translated], lines: Sequence[str]) -> list[str]:
    assert work.text is not None
    source, seen = work.text.encode(lines)
    if source.shape[1] > work.longest_source:
        raise ArgumentError(f"--input: a sentence of {source.shape[1]} tokens; this model reads {work.longest_source}")
    return work.text.decode(decode(source.to(lab.device), seen.to(lab.device), True).tokens)


def _print(record: Mapping[str, Any], work: Work, out: Translated, method: str, show: int) -> None:
    console = new_console()
    kept = [name for name in NUMBERS if any(row[name] is not None for row in record["rows"])]
    table = new_table("method", *kept, title=f"{work.name}, {record['pairs']} pairs")
    for row in record["rows"]:
        table.add_row(row["method"], *(shown(row[name]) for name in kept))
    console.print(table)
    given: Any = work.test.given
    say: Callable[[Any], list[str]] = work.text.decode if work.text is not None else _words(work)
    few = slice(0, show)
    for asked, answer, right in zip(*map(say, (given.x[few], out.tokens[few].cpu(), work.test.x[few])), strict=True):
        console.print(f"{asked}\n  {method}: {answer}\n  reference: {right}")


def _words(work: Work) -> Callable[[Any], list[str]]:
    from sandtable.inputs import RESERVED

    return lambda ids: [work.world.vocab.text(row[row >= RESERVED]) for row in ids]
