"""`sandtable translate`: a parallel refiner and a sequential model, trained on a task or on pairs of sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandtable.arguments import ArgumentError, nearest, number, one_of, whole
from sandtable.cli.printing import new_console, new_table, shown
from sandtable.cli.progress import Quiet, Status
from sandtable.cli.settings import several
from sandtable.cli.writing import plain_name

if TYPE_CHECKING:
    from torch import Tensor

    from sandtable.bridges.parallel import ParallelText
    from sandtable.decoding import Translated
    from sandtable.lab import Lab
    from sandtable.worlds import Batch

TASKS = ("drop", "fertility", "dialect")
REJECTERS = ("none", "stutter", "linear", "bottom")
MODELS = ("both", "refiner", "sequential")
NOISES = ("random", "mask")
REPLACEMENTS = ("initial", "previous", "summed")
OPTIMIZERS = ("adam", "adafactor")
OF_TEXT = ("--config", "--split", "--vocab", "--longest", "--limit", "--bleu-tokenize")
OF_DATA_SETS = ("--config", "--split")
OF_REFINERS = (
    "--passes", "--noise", "--temperature", "--rejecter", "--percent", "--replacement", "--drop-stutter",
    "--drop-initial",
)  # fmt: skip
NUMBERS = ("BLEU", "exact", "accuracy", "valid", "as long", "words", "stutter", "passes", "seconds")


@dataclass(frozen=True)
class Work:
    """What is translated: a world to train on, and pairs to test on; `text` turns tokens into sentences."""

    name: str
    world: Any
    test: Batch
    longest_source: int
    longest_target: int
    text: ParallelText | None = None


@dataclass(frozen=True)
class How:
    """How answers are decoded: by beams, and by the refiner in so many passes."""

    passes: int
    beams: int
    oracle: bool
    alpha: float
    noise: str
    temperature: float
    rejecter: str
    percent: float
    replacement: str
    drop_stutter: bool
    drop_initial: bool


def translate(
    ctx: typer.Context,
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
    batch_size: Annotated[int, typer.Option(help="Pairs of a step.")] = 64,
    lr: Annotated[float, typer.Option(help="Learning rate, after a tenth of the steps.")] = 4e-3,
    optimizer: Annotated[str, typer.Option(help="adam, or adafactor: steps relative to the size of weights.")] = "adam",
    dropout: Annotated[float, typer.Option(help="Share of activations left out in training.")] = 0.0,
    vocab: Annotated[int, typer.Option(help="Tokens of the vocabulary trained on both sides.")] = 2000,
    longest: Annotated[int, typer.Option(help="Longer sentences are left out (tokens).")] = 64,
    limit: Annotated[int | None, typer.Option(help="Only so many pairs.")] = None,
    count: Annotated[int, typer.Option("-n", help="Pairs to test on, kept aside.")] = 500,
    passes: Annotated[int, typer.Option(help="Decoder passes of the refiner.")] = 4,
    beams: Annotated[int, typer.Option(help="Lengths that the refiner tries, and beams of the sequential model.")] = 5,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Both models are told the lengths; only answers that have them are valid.")
    ] = False,
    alpha: Annotated[float, typer.Option(help="Scores are divided by ((5 + n)/6)^alpha, n the length.")] = 0.0,
    noise: Annotated[
        str,
        typer.Option(
            help="random or mask: what the refiner starts from. With --rejecter linear it decodes as mask-predict, but "
            "is trained as all refiners here: 15 % shown, two stages, the loss on all words."
        ),
    ] = "random",
    temperature: Annotated[float, typer.Option(help="Above 0 the refiner draws its words.")] = 0.0,
    rejecter: Annotated[
        str, typer.Option(help="none, stutter, linear or bottom: what is taken back between passes.")
    ] = "none",
    percent: Annotated[float, typer.Option(help="Of the words, the least probable, that bottom takes back.")] = 25.0,
    replacement: Annotated[
        str, typer.Option(help="initial, previous or summed: what stands in for words taken back.")
    ] = "initial",
    drop_stutter: Annotated[bool, typer.Option("--drop-stutter", help="Delete repetitions at the end.")] = False,
    drop_initial: Annotated[
        bool,
        typer.Option(
            "--drop-initial",
            help="Delete words that equal their initial noise; with --rejecter stutter also repetitions of the last "
            "pass, as published.",
        ),
    ] = False,
    bleu_tokenize: Annotated[str, typer.Option(help="How sacrebleu cuts texts: 13a, zh, intl, none, …")] = "13a",
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
        _refuse(ctx, OF_TEXT, "is of text, not of tasks")
    elif source is None or target is None:
        raise ArgumentError("translate: --source and --target go together")
    elif dataset is None:
        _refuse(ctx, OF_DATA_SETS, "is of data sets; give --dataset too")
    if task is None and distilled:
        raise ArgumentError("--distilled: is of the tasks; text is distilled by --teach")
    if task is not None and texts is not None:
        raise ArgumentError("--input: needs text, not a task")
    for name, value in (("-n", count), ("--passes", passes), ("--beams", beams), ("--batch-size", batch_size)):
        several(name, value)
    for name, value in (("--steps", steps), ("--show", show), ("--teach", teach)):
        several(name, value, least=0)
    whole("--seed", seed, least=0)
    whole("--layers", layers, most=1000)
    if whole("--width", width) % whole("--heads", heads):
        raise ArgumentError(f"--heads={heads}: must divide --width={width}")
    if limit is not None:
        whole("--limit", limit)
    number("--lr", lr, above=0.0)
    one_of("--optimizer", optimizer, OPTIMIZERS)
    number("--dropout", dropout, least=0.0, most=0.99)
    number("--alpha", alpha, least=0.0)
    number("--temperature", temperature, least=0.0)
    number("--percent", percent, least=0.0, most=100.0)
    one_of("--noise", noise, NOISES)
    one_of("--replacement", replacement, REPLACEMENTS)
    if one_of("--rejecter", rejecter, REJECTERS) != "bottom":
        _refuse(ctx, ("--percent",), "is of --rejecter bottom")
    if rejecter == "none":
        _refuse(ctx, ("--replacement",), "is for words taken back; give --rejecter")
    if one_of("--model", model, MODELS) != "both" and teach:
        raise ArgumentError(f"--teach={teach}: needs the sequential model and the refiner; use --model both")
    if model == "sequential":
        _refuse(ctx, OF_REFINERS, "is of the refiner; use --model both or refiner")
    if bleu_tokenize != "13a":
        from sandtable.decoding.quality import bleu_tokenizers

        one_of("--bleu-tokenize", bleu_tokenize, bleu_tokenizers())
    lines = None if texts is None else _lines(texts)
    from sandtable.lab import Lab, Store, fingerprint
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
        encoded = None if texts is None or lines is None else _encoded(work, texts, lines, longest)
        shape = dict(layers=layers, heads=heads, width=width)
        training = dict(steps=steps, batch_size=batch_size, lr=lr, optimizer=optimizer, dropout=dropout, noise=noise)
        how = How(
            passes, beams, oracle, alpha, noise, temperature, rejecter, percent, replacement, drop_stutter, drop_initial
        )
        lengths = work.test.latents["length"] if oracle else None
        arms: dict[str, Callable[..., Translated]] = {}
        if model != "refiner":
            sequential = _trained(lab, work, work.world, training, shape, causal=True)
            arms |= _sequential(sequential, how, lengths)
        if model != "sequential":
            world = _taught(lab, work, sequential, teach) if teach else work.world
            refiner = _trained(lab, work, world, training, shape, causal=False)
            arms |= _refiner(refiner, how, lengths, lab.generator(seed, "noise"))
        made = {name: _timed(lab, work, name, decode) for name, decode in arms.items()}
        rows = [{"method": name} | _measured(work, how, bleu_tokenize, *result) for name, result in made.items()]
        best = list(arms)[-1]
        answers = None if encoded is None else _answers(lab, work, arms[best], *encoded)
    asked = {"task": task, "source": source, "target": target, "dataset": dataset, "config": config, "split": split}
    asked |= {
        "vocab": vocab,
        "longest": longest,
        "limit": limit,
        "distilled": distilled,
        "teach": teach,
        "model": model,
    }
    asked |= {"n": count, "input": None if texts is None else str(texts), "seed": seed, "bleu_tokenize": bleu_tokenize}
    asked |= {**training, **shape, **asdict(how)}
    record = plain({"work": work.name, "pairs": len(work.test), "options": asked, "rows": rows})
    target_folder = out or folder.path("translate", f"{plain_name(work.name)}-{fingerprint(asked)[:8]}")
    folder.write_json(target_folder / "translate.json", record)
    if answers is not None:
        folder.write_text(target_folder / "translations.txt", "".join(f"{line}\n" for line in answers))
    if as_json:
        return print(json.dumps(record, allow_nan=False, ensure_ascii=False))
    _print(record, work, made[best][0], best, show)
    names = "translate.json" + (", translations.txt" if answers is not None else "")
    new_console().print(f"written: {target_folder} ({names})")


def _refuse(ctx: typer.Context, options: Sequence[str], why: str) -> None:
    """An `ArgumentError` for the first of these options that was given and could not do anything."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if source is not None and source.name == "COMMANDLINE" and param.opts[0] in options:
            raise ArgumentError(f"{param.opts[0]}: {why}")


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
    whole("-n", count, most=len(text) - 1)
    here, there = text.split(count)
    return Work(pairs.name, here, there.batch(), text.longest_source, text.longest_target, text)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise ArgumentError(f"--input={str(path)!r}: no such file{nearest(path.name, _beside(path))}")
    lines = path.read_text(encoding="utf-8").splitlines()
    if not all(line.strip() for line in lines) or not lines:
        raise ArgumentError(f"--input={str(path)!r}: has blank lines, or none at all; must be a sentence a line")
    return lines


def _encoded(work: Work, path: Path, lines: Sequence[str], longest: int) -> tuple[Tensor, Tensor]:
    """The lines as tokens, refused before anything is trained if the model would not read them."""
    assert work.text is not None
    source, seen = work.text.encode(lines)
    sizes, most = seen.sum(1), work.longest_source
    if int(sizes.max()) > most:
        line = f"--input={str(path)!r}: line {int(sizes.argmax()) + 1} has {int(sizes.max())} tokens"
        raise ArgumentError(f"{line}; the longest source that is trained on has {most} (with --longest={longest})")
    return source, seen


def _beside(path: Path) -> Sequence[str]:
    return [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []


# -- models ----------------------------------------------------------------------------------------------------------


def _trained(
    lab: Lab, work: Work, source: Any, training: Mapping[str, Any], shape: Mapping[str, Any], *, causal: bool
) -> Any:
    from sandtable.models import Seq2Seq
    from sandtable.objectives import Dropout, Refinement, TeacherForcing
    from sandtable.training import AdaFactor, Adam, Cosine, Recipe

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
    objective = TeacherForcing() if causal else Refinement(noise=training["noise"])
    recipe = Recipe(
        model,
        source,
        Dropout(objective, training["dropout"]) if training["dropout"] else objective,
        training["steps"],
        batch_size=training["batch_size"],
        optimizer={"adam": Adam, "adafactor": AdaFactor}[training["optimizer"]](training["lr"]),
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


def _sequential(model: Any, how: How, lengths: Any) -> dict[str, Callable[..., Translated]]:
    from sandtable.decoding import autoregress, beam_search
    from sandtable.decoding import translate as in_batches

    def arm(beams: int) -> Callable[..., Translated]:
        def decode(source: Any, seen: Any, own: bool = False) -> Translated:
            if beams == 1 and (lengths is None or own):  # what one beam writes too, sooner
                return in_batches(autoregress, model, source, seen=seen)
            given = None if lengths is None or own else lengths.to(source.device)
            return in_batches(beam_search, model, source, seen=seen, beams=beams, alpha=how.alpha, lengths=given)

        return decode

    several = {f"sequential, {how.beams} beams": arm(how.beams)} if how.beams > 1 else {}
    return {"sequential, greedy": arm(1)} | several


def _refiner(model: Any, how: How, lengths: Any, generator: Any) -> dict[str, Callable[..., Translated]]:
    from sandtable.decoding import Bottom, LinearSchedule, Stutter, refine
    from sandtable.decoding import translate as in_batches

    rejecters = {
        "none": (),
        "stutter": (Stutter(last=how.drop_initial),),  # what is put in the last place of a repetition is then deleted
        "linear": (LinearSchedule(),),
        "bottom": (Bottom(percent=how.percent),),
    }

    def arm(steps: int) -> Callable[..., Translated]:
        def decode(source: Any, seen: Any, own: bool = False) -> Translated:
            return in_batches(
                refine, model, source, seen=seen, steps=steps, beams=how.beams, generator=generator,
                noise=how.noise, temperature=how.temperature, rejecters=rejecters[how.rejecter],
                replacement=how.replacement, drop_stutter=how.drop_stutter, drop_initial=how.drop_initial,
                alpha=how.alpha, length_weight=1.0,
                lengths=None if lengths is None or own else lengths.to(source.device),
            )  # fmt: skip

        return decode

    return {f"refined in {n} pass{'es' * (n > 1)}": arm(n) for n in dict.fromkeys((1, how.passes))}


# -- what comes of it ------------------------------------------------------------------------------------------------


def _timed(lab: Lab, work: Work, name: str, decode: Callable[..., Translated]) -> tuple[Translated, float]:
    lab.say(f"translating: {name}")
    given: Any = work.test.given
    began = time.perf_counter()
    out = decode(given.x.to(lab.device), given.mask.to(lab.device))
    out.lengths.cpu()
    return out, (time.perf_counter() - began) / len(work.test)


def _measured(work: Work, how: How, tokenize: str, out: Translated, seconds: float) -> dict[str, Any]:
    """Scores of the answers. Where lengths were given, an answer is valid only if it has its own.

    Where they were not, nothing may be a translation too (a task that drops words): hence how long answers are.
    """
    from sandtable.decoding import exact_match, stutter_rate, token_accuracy
    from sandtable.inputs import PAD, RESERVED
    from sandtable.probes.translation import neighbours

    given: Any = work.test.given
    tokens, target = out.tokens.cpu(), work.test.x
    as_long = (tokens != PAD).sum(1) == (target != PAD).sum(1)
    found: dict[str, Any] = {
        "exact": float(exact_match(tokens, target).double().mean()),
        "accuracy": float(token_accuracy(tokens, target).mean()),
        "as long": float(as_long.double().mean()),
        "words": float((tokens >= RESERVED).sum(1).double().mean()),
        "passes": float(out.decoder_passes.double().mean()),
        "seconds": seconds,
    }
    if work.text is None:
        valid = work.world.valid(given.x, tokens)
        valid = float((valid & as_long if how.oracle else valid).double().mean())
        return found | {"BLEU": None, "valid": valid, "stutter": neighbours(tokens, target).rate}
    written, references = work.text.decode(tokens), work.text.decode(target)
    stutter = stutter_rate(written, references)[0]
    return found | _bleu(written, references, tokenize) | {"valid": None, "stutter": stutter}


def _bleu(written: Sequence[str], references: Sequence[str], tokenize: str) -> dict[str, Any]:
    from importlib.util import find_spec

    from sandtable.decoding import bleu

    if not find_spec("sacrebleu"):
        return {"BLEU": None}
    found = bleu(written, references, tokenize=tokenize)
    return {"BLEU": found.score, "signature": found.signature}


def _answers(lab: Lab, work: Work, decode: Callable[..., Translated], source: Tensor, seen: Tensor) -> list[str]:
    assert work.text is not None
    return work.text.decode(decode(source.to(lab.device), seen.to(lab.device), True).tokens)


def _print(record: Mapping[str, Any], work: Work, out: Translated, method: str, show: int) -> None:
    console = new_console()
    kept = [name for name in NUMBERS if any(row[name] is not None for row in record["rows"])]
    table = new_table("method", *kept, title=f"{work.name}, {record['pairs']} pairs")
    for row in record["rows"]:
        table.add_row(row["method"], *(shown(row[name]) for name in kept))
    console.print(table)
    if signature := record["rows"][0].get("signature"):
        console.print(f"BLEU: {signature}")
    given: Any = work.test.given
    say: Callable[[Any], list[str]] = work.text.decode if work.text is not None else _words(work)
    few = slice(0, show)
    for asked, answer, right in zip(*map(say, (given.x[few], out.tokens[few].cpu(), work.test.x[few])), strict=True):
        console.print(f"{asked}\n  {method}: {answer}\n  reference: {right}")


def _words(work: Work) -> Callable[[Any], list[str]]:
    from sandtable.inputs import RESERVED

    return lambda ids: [work.world.vocab.text(row[row >= RESERVED]) for row in ids]
