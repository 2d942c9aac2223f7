"""Commands on real text: `topics` measures a model on a corpus, `pretrain` trains one on it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandtable.arguments import ArgumentError, number, one_of, whole
from sandtable.cli.printing import new_console, new_table
from sandtable.cli.progress import Quiet, Status
from sandtable.cli.settings import several
from sandtable.cli.writing import draw, plain_name

if TYPE_CHECKING:
    from sandtable.bridges.topics import CorpusTopics, Study

_Corpus = Annotated[
    str, typer.Option(help="A text file or folder, a Hugging Face data set, or builtin: docstrings of this machine.")
]
_Store = Annotated[Path | None, typer.Option("--store", help="Folder of results (default: $SANDTABLE_HOME, or runs).")]
_Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")]


def topics(
    model: Annotated[
        str | None, typer.Option(help="A Hugging Face name or a folder; without one, only the topics are shown.")
    ] = None,
    corpus: _Corpus = "builtin",
    tokenizer: Annotated[str | None, typer.Option(help="Another tokenizer than the model's own.")] = None,
    topics: Annotated[int, typer.Option(help="Topics of the corpus.")] = 100,
    passes: Annotated[int, typer.Option(help="Passes of online LDA over the corpus.")] = 6,
    thresholds: Annotated[str, typer.Option(help="Ambiguity thresholds, with commas between.")] = "0.0005,0.001,0.002",
    words: Annotated[
        str | None,
        typer.Option(help='Words to draw, commas between topics: "frog toad lizard, mozart beethoven schubert".'),
    ] = None,
    documents: Annotated[int, typer.Option(help="Documents in which attention is measured.")] = 1000,
    longest: Annotated[int, typer.Option(help="Tokens after which these are cut.")] = 128,
    limit: Annotated[int | None, typer.Option(help="Only so many documents of the corpus.")] = None,
    seed: Annotated[int, typer.Option(help="Of topics, documents, bootstrap and the random model.")] = 0,
    device: _Device = "cpu",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for tables and figures.")] = None,
    store: _Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Do the topics of a corpus show in a model? The published tables for any model and any text.

    Ratios of same-topic to different-topic pairs, as published, and AUCs, which decide; the same architecture with
    random weights beside them; and figures of the topics, of chosen words, and of every attention head.
    """
    levels = _thresholds(thresholds)
    for name, value in (("--topics", topics), ("--passes", passes), ("--documents", documents), ("--longest", longest)):
        several(name, value, least=2 if name in ("--topics", "--longest") else 1)
    if limit is not None:
        whole("--limit", limit)
    whole("--seed", seed, least=0)
    groups = None if words is None else [group.split() for group in words.split(",") if group.split()]
    from sandtable.bridges import corpus as corpora
    from sandtable.bridges.huggingface import load_tokenizer, no_progress_bars
    from sandtable.bridges.readers import read
    from sandtable.bridges.topics import open_prepared, prepare, study
    from sandtable.lab import Lab, Store

    folder = Store(store)
    folder.require_writable()
    no_progress_bars()
    with Status(quiet=quiet) as say:
        lab = Lab(store=folder, device=device, progress=say)
        # before the corpus, so that a mistyped name does not wait for it
        trained = None if model is None else read(model, tokenizer, device=lab.device)
        source = tokenizer or model
        if trained is None and source is not None:
            load_tokenizer(source)
        place = lab.folder(
            prepare,
            corpus,
            corpora.stamp(corpus) + (corpora.stamp(source) if source else ""),
            tokenizer=str(Path(source).resolve()) if source and Path(source).exists() else source,
            topics=topics,
            passes=passes,
            seed=seed,
            limit=limit,
        )
        found, _ = open_prepared(place)
        groups = _groups(found, groups)
        studies: list[Study] = []
        shown = {}
        if trained is not None:
            trained.check_vocabulary(found.tokens.vocab_size)
            readers = [trained, trained.random(seed)]
            options: dict[str, Any] = dict(documents=documents, longest=longest, special=True, seed=seed, say=say)
            choices = [(level, overlap) for overlap in (False, True) for level in levels]
            studies = [study(each, found, choices=choices, pair_thresholds=levels, **options) for each in readers]
            shown = {each.name: each.embeddings for each in readers}
        target = out or folder.path("topics", plain_name(f"{model or 'topics'}-{corpus}"))
        say("drawing")
        files = _write(target, found, studies, shown, groups, folder)
    record = _record(found, studies)
    folder.write_json(target / "topics.json", record)
    if as_json:
        return print(json.dumps(record, allow_nan=False, ensure_ascii=False))
    _print_topics(found)
    if studies:
        _print_studies(studies)
    new_console().print(f"figures and tables: {target} ({', '.join(file.name for file in files)}, topics.json)")


def pretrain(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model, its tokenizer and the record.")],
    corpus: _Corpus = "builtin",
    steps: Annotated[int, typer.Option(help="Training steps.")] = 400,
    layers: Annotated[int, typer.Option()] = 4,
    heads: Annotated[int, typer.Option()] = 4,
    width: Annotated[int, typer.Option()] = 128,
    vocab: Annotated[int, typer.Option(help="Tokens of the tokenizer trained on the corpus.")] = 8192,
    length: Annotated[int, typer.Option(help="Tokens of a window.")] = 64,
    batch_size: Annotated[int, typer.Option(help="Windows of a step.")] = 32,
    optimizer: Annotated[str, typer.Option(help="adam or sgd.")] = "adam",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    eps: Annotated[float, typer.Option(help="Adam's ε: BERT's own 1e-6 shows two stages, 1e-8 does not.")] = 1e-6,
    near_zero: Annotated[
        float | None, typer.Option(help="Scale of the first keys, queries and values; 0: BERT's own.")
    ] = 1e-3,
    precision: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    seed: Annotated[int, typer.Option()] = 0,
    device: _Device = "cpu",
    accelerate: Annotated[
        bool, typer.Option("--accelerate", help="Spread over the processes of `accelerate launch -m sandtable`.")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="Only so many documents of the corpus.")] = None,
    store: _Store = None,
    quiet: Quiet = False,
) -> None:
    """Train a BERT from scratch on a corpus, watching keys, queries and values of every layer.

    The folder can be read by Hugging Face and by `sandtable topics --model FOLDER`. A run that was interrupted goes on
    from its last checkpoint when the same command is given again.
    """
    for name, value in (("--steps", steps), ("--length", length), ("--batch-size", batch_size), ("--vocab", vocab)):
        several(name, value)
    if several("--width", width) % whole("--heads", heads):
        raise ArgumentError(f"--heads={heads}: must divide the width {width}")
    whole("--layers", layers, most=1000)
    whole("--seed", seed, least=0)
    if limit is not None:
        whole("--limit", limit)
    one_of("--optimizer", optimizer, ("adam", "sgd"))
    one_of("--precision", precision, ("float32", "bfloat16"))
    number("--lr", lr, above=0.0)
    number("--eps", eps, above=0.0)
    from sandtable.bridges import corpus as corpora
    from sandtable.bridges.huggingface import no_progress_bars
    from sandtable.bridges.pretraining import pretrain_bert
    from sandtable.bridges.tokens import TokenCorpus, prepare_tokens
    from sandtable.lab import Lab, Store
    from sandtable.training import SGD, Adam

    folder = Store(store)
    folder.require_writable()
    no_progress_bars()
    with Status(quiet=quiet) as say:
        lab = Lab(store=folder, device=device, progress=say)
        place = lab.folder(prepare_tokens, corpus, corpora.stamp(corpus), vocab=vocab, limit=limit)
        record = pretrain_bert(
            TokenCorpus.open(place / "tokens"),
            place / "tokenizer",
            out,
            steps=steps,
            layers=layers,
            heads=heads,
            width=width,
            length=length,
            batch_size=batch_size,
            optimizer=Adam(lr, eps=eps) if optimizer == "adam" else SGD(lr),
            attention_scale=near_zero or None,
            precision=precision,
            seed=seed,
            device=lab.device,
            accelerator=accelerate or None,
            say=say,
        )
    if record is None:  # not the main process
        return
    folder.write_json(out / "dynamics.json", record)
    draw(out / "dynamics", _dynamics(record))
    console = new_console()
    table = new_table("layer", "‖W_V‖ half grown", "‖W_K‖ a tenth grown", "‖W_Q‖ a tenth grown")
    for layer, times in enumerate(record["times"]):
        table.add_row(str(layer), *(_step(times[name]) for name in ("V", "K", "Q")))
    console.print(table)
    console.print(f"loss {record['loss'][0]:.3f} → {record['loss'][-1]:.3f}; model, tokenizer and figure: {out}")


# -- arguments -------------------------------------------------------------------------------------------------------


def _thresholds(text: str) -> list[float]:
    try:
        levels = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ArgumentError(f"--thresholds {text!r}: must be numbers with commas between") from error
    if not levels or not all(0 < level < 1 for level in levels):
        raise ArgumentError(f"--thresholds {text!r}: must be numbers between 0 and 1, both excluded")
    return sorted(set(levels))


def _groups(found: CorpusTopics, words: Sequence[Sequence[str]] | None) -> list[list[int]]:
    if words is not None:
        return [found.ids(group) for group in words]
    return found.clearest()


# -- what is written -------------------------------------------------------------------------------------------------


def _write(
    target: Path,
    found: CorpusTopics,
    studies: Sequence[Study],
    embeddings: Mapping[str, Any],
    groups: Sequence[Sequence[int]],
    store: Any,
) -> list[Path]:
    from sandtable.lab.figures import heatmaps, word_lists
    from sandtable.probes.text_topics import similarity_matrix

    names = found.tokens.words
    order = found.topics.share.argsort(descending=True, stable=True)[:12].tolist()
    top = found.topics.top_words(names, 8)
    figures = {
        "topics": word_lists(
            {f"{float(found.topics.share[k]):.1%} of words, NPMI {float(found.coherence.npmi[k]):.2f}": top[k]
             for k in order},
            title=f"Topics of {found.tokens.name}",
            xlabel="P(word | topic)",
        )
    }  # fmt: skip
    chosen = [i for group in groups for i in group]
    if embeddings:
        labels = [names[i].lstrip("Ġ▁") for i in chosen]
        matrices = {name: similarity_matrix(table, chosen).numpy() for name, table in embeddings.items()}
        even = len({len(group) for group in groups}) == 1 and len(groups) > 1
        figures["words"] = heatmaps(
            matrices,
            block=len(groups[0]) if even else None,
            rows=labels,
            columns=labels,
            title="Cosine of embeddings",
            limit=1.0,
        )
        choice = next(iter(studies[0].cells))
        percent = {each.name: 100 * (each.cells[choice].attention.ratio - 1).numpy() for each in studies}
        layers, heads = studies[0].cells[choice].attention.same.shape
        figures["heads"] = heatmaps(
            percent,
            rows=[str(i) for i in range(layers)],
            columns=[str(i) for i in range(heads)],
            xlabel="head",
            ylabel="layer",
            title="Percent more attention within topics than between",
        )
    return [file for name, figure in figures.items() for file in draw(target / name, figure, store)]


def _record(found: CorpusTopics, studies: Sequence[Study]) -> dict[str, Any]:
    from sandtable.bridges.topics import SAME, TOGETHER, rows
    from sandtable.lab.run import plain

    npmi = found.coherence.npmi
    pairs = [
        dict(
            model=each.name,
            threshold=threshold,
            pairs=cell.pairs,
            attention={kind: cell.attention.means[kind] for kind in (SAME, TOGETHER)},
            attention_difference_interval=cell.attention.difference_interval(SAME, TOGETHER),
            cosine={kind: cell.cosine.means[kind] for kind in (SAME, TOGETHER)},
            cosine_difference_interval=cell.cosine.difference_interval(SAME, TOGETHER),
        )
        for each in studies
        for threshold, cell in each.pairs.items()
    ]
    top = found.topics.top_words(found.tokens.words, 10)
    listed = [
        dict(topic=k, share=float(found.topics.share[k]), npmi=float(npmi[k]), words=[word for word, _ in top[k]])
        for k in range(len(found.topics))
    ]
    about = dict(name=found.tokens.name, documents=len(found.tokens), tokens=len(found.tokens.ids))
    return plain(dict(corpus=about, topics=listed, cells=list(rows(studies)), pairs=pairs))


def _dynamics(record: Mapping[str, Any]) -> Any:
    from sandtable.lab.figures import curves

    series = {
        f"W_{kind}, layer {layer}": [value[kind] for value in norms]
        for layer, norms in enumerate(record["norms"])
        for kind in ("V", "K")
    }
    return curves(record["steps"], series, xlabel="step", ylabel="Frobenius norm", title="How the layers grow")


# -- what is printed -------------------------------------------------------------------------------------------------


def _print_topics(found: CorpusTopics) -> None:
    npmi, share = found.coherence.npmi, found.topics.share
    about = f"{len(found.topics)} topics of {len(found.tokens):,} documents, {len(found.tokens.ids):,} tokens"
    table = new_table("share", "NPMI", "words", title=f"{about}; mean NPMI {float(npmi.mean()):.3f}")
    top = found.topics.top_words(found.tokens.words, 10)
    order = share.argsort(descending=True, stable=True).tolist()
    for k in order[:20]:
        table.add_row(f"{float(share[k]):.1%}", f"{float(npmi[k]):.2f}", " ".join(word for word, _ in top[k]))
    console = new_console()
    console.print(table)
    if len(order) > 20:
        console.print(f"and {len(order) - 20} smaller ones", style="dim")


def _print_studies(studies: Sequence[Study]) -> None:
    from sandtable.bridges.topics import SAME, TOGETHER, rows
    from sandtable.claims.real import published

    console = new_console()
    table = new_table(
        "model", "threshold", "words", "cosine ratio", "dot ratio", "attention ratio", "AUC cosine", "AUC dot",
        "AUC attention", "same-topic pairs stand out", title="Same topic over different topic",
    )  # fmt: skip
    for row in rows(studies):
        parts = [row[name] for name in ("cosine", "dot", "attention")]
        ratios = ["undefined" if part["ratio"] is None else f"{part['ratio']:.3f}" for part in parts]
        aucs = [f"{part['auc']:.3f} ({part['auc_interval'][0]:.3f} … {part['auc_interval'][1]:.3f})" for part in parts]
        verdicts = ", ".join(part["verdict"] for part in parts)
        level = f"{row['threshold']:g}" + (", overlap" if row["overlap"] else "")
        table.add_row(row["model"], level, str(row["words"]), *ratios, *aucs, verdicts)
    console.print(table)
    family = published.nearest_family(studies[0].name)
    for kind, tables in (("one topic per word", published.SEPARATE), ("overlap", published.OVERLAPPING)):
        for name in (family, "BERT, random"):
            cells = (f"{level:g}: {' / '.join(f'{value:g}' for value in ratios)}"
                     for level, ratios in zip(published.THRESHOLDS, tables[name], strict=True))  # fmt: skip
            console.print(f"published, {name}, {kind} (cosine / dot / attention): {'; '.join(cells)}", style="dim")
    console.print(
        "The AUC decides: yes above 0.52, no below. A ratio is undefined where its denominator cannot be told from 0, "
        "as for the embeddings of a random model: whatever is printed there is noise over noise.",
        style="dim",
    )
    table = new_table(
        "model", "pairs", "attention, same topic", "co-occurring", "cosine, same topic", "co-occurring",
        title="Same topic against top co-occurrence",
    )  # fmt: skip
    for each in studies:
        for cell in each.pairs.values():
            means = [part.means[kind] for part in (cell.attention, cell.cosine) for kind in (SAME, TOGETHER)]
            table.add_row(each.name, str(cell.pairs), *(f"{mean:.5f}" for mean in means))
    console.print(table)
    lines = (
        f"{pairs} pairs: {' / '.join(f'{v:g}' for v in values)}" for pairs, values in published.COOCCURRENCE.items()
    )
    console.print(f"published, BERT, in the same order: {'; '.join(lines)}", style="dim")


def _step(value: float) -> str:
    return "never" if value is None or not math.isfinite(value) else f"step {value:g}"
