"""Do words of one topic stand out in the embeddings and the attention of a model of real text?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sandtable.bridges.topics import CHANCE, THRESHOLDS
from sandtable.claims.real import published, setting
from sandtable.claims.real.setting import Text, label, source
from sandtable.lab import Control, Evidence, Lab, Table, agrees, claim, statistic
from sandtable.lab.figures import heatmaps, strips, word_lists

CHOICE = (0.002, False)
"""The largest published threshold, one topic per word: the most words, so the shortest intervals."""
LEAST_RATIO = 1.05
"""The least ratio that counts: the smallest published one of a trained model with one topic per word is 1.11."""


# -- embeddings ------------------------------------------------------------------------------------------------------


@claim(
    id="real/embedding-topics",
    statement=(
        "In the trained embedding of a BERT, words of one topic of its corpus are more alike, by cosine and by dot "
        "product, than words of different topics; in its random initialisation they are not."
    ),
    source=source("Table 1, cosine and dot product (thesis 2.3), Figure 3"),
    scales={"desk": Text(), "paper": setting.PAPER},
    controls=(
        Control("random initialisation", {"weights": "random"}, ("cosine", "dot product")),
        Control("shuffled topics", {"labels": "shuffled"}, ("cosine", "dot product")),
    ),
    seeds={"desk": 2, "paper": 3},
)
def embedding_topics(settings: Text, lab: Lab) -> Evidence:
    found = setting.measured(settings, lab, choices=(CHOICE,))
    checks = [
        setting.embedding_auc("cosine", found, CHOICE, settings),
        setting.embedding_auc("dot product", found, CHOICE, settings, cosine=False),
    ]
    return Evidence(
        checks,
        figures={"topics": lambda: _topics(settings, lab), "nine words": lambda: _nine_words(settings, lab, found)},
        tables={"ratios beside the published": _ratios(settings, found, [CHOICE])},
        notes=_notes(settings, lab),
    )


THRESHOLD_CHECKS = tuple(
    f"{threshold:g}{', overlap' if overlap else ''}" for overlap in (False, True) for threshold in THRESHOLDS
)


@claim(
    id="real/thresholds",
    statement=(
        "Words of one topic are embedded closer together at all three published ambiguity thresholds, whether a word "
        "has one topic or may have several."
    ),
    source=source("Tables 1 and 5 (thesis 2.3, 2.4)"),
    scales={"desk": Text(), "paper": setting.PAPER},
    controls=(
        Control("random initialisation", {"weights": "random"}, THRESHOLD_CHECKS),
        Control("shuffled topics", {"labels": "shuffled"}, THRESHOLD_CHECKS),
    ),
    seeds={"desk": 2, "paper": 3},
)
def thresholds(settings: Text, lab: Lab) -> Evidence:
    choices = tuple((threshold, overlap) for overlap in (False, True) for threshold in THRESHOLDS)
    found = setting.measured(settings, lab, choices=choices)
    checks = [setting.embedding_auc(label(choice), found, choice, settings) for choice in choices]
    return Evidence(
        checks,
        tables={"ratios beside the published": _ratios(settings, found, choices)},
        notes=_notes(settings, lab),
    )


# -- attention -------------------------------------------------------------------------------------------------------


@claim(
    id="real/attention-topics",
    statement="A trained BERT attends more to words of the same topic than to words of different topics.",
    source=source("Table 1, attention (thesis 2.3)"),
    scales={"desk": Text(), "paper": setting.PAPER},
    expected="refuted",
    erratum=(
        "Printed for models pretrained on billions of words; it is no consequence of masked language modelling as "
        "such. A small BERT trained from scratch on a small corpus learns topics in its embedding and attends within "
        "topics no more, if anything less, than between them; trained longer, it attends less still. Run it on a "
        "pretrained model with --set model=NAME."
    ),
    corrected="real/embedding-before-attention",
    seeds={"desk": 2, "paper": 3},
)
def attention_topics(settings: Text, lab: Lab) -> Evidence:
    found = setting.measured(settings, lab, choices=tuple((threshold, False) for threshold in THRESHOLDS))
    checks = []
    for threshold in THRESHOLDS:
        key = f"{threshold:g}"
        documents = setting.over_documents(found, f"{key}: documents")
        histograms = setting.over_documents(found, f"{key}: histograms")
        checks += [
            statistic(f"ratio, {key}", setting.attention_ratio, documents, above=LEAST_RATIO, unit="document"),
            statistic(f"AUC, {key}", setting.attention_auc, histograms, above=setting.ABOVE_CHANCE, unit="document"),
        ]
    return Evidence(
        checks,
        figures={"heads": lambda: _heads(settings, lab, found)},
        tables={"ratios beside the published": _ratios(settings, found, [(t, False) for t in THRESHOLDS])},
        notes=_notes(settings, lab),
    )


@claim(
    id="real/embedding-before-attention",
    statement=(
        "In a small BERT trained from scratch for minutes, words of one topic already stand out in the embedding, and "
        "do not yet stand out in attention: topics are learnt there first."
    ),
    source=source("Section 4 (stage one before stage two), on the measurement of Table 1"),
    scales={"desk": Text(), "paper": setting.PAPER},
    controls=(
        Control("random initialisation", {"weights": "random"}, ("embedding AUC",)),
        Control("attention raised to the published ratio", {"boost": 1.32}, ("attention ratio", "attention AUC")),
    ),
    seeds={"desk": 2, "paper": 3},
)
def embedding_before_attention(settings: Text, lab: Lab) -> Evidence:
    found = setting.measured(settings, lab, choices=(CHOICE,))
    documents = setting.over_documents(found, f"{label(CHOICE)}: documents")
    histograms = setting.over_documents(found, f"{label(CHOICE)}: histograms")
    checks = [
        setting.embedding_auc("embedding AUC", found, CHOICE, settings),
        statistic("attention ratio", setting.attention_ratio, documents, below=LEAST_RATIO, unit="document"),
        statistic("attention AUC", setting.attention_auc, histograms, below=setting.ABOVE_CHANCE, unit="document"),
    ]
    return Evidence(checks, figures={"heads": lambda: _heads(settings, lab, found)}, notes=_notes(settings, lab))


# -- co-occurrence ---------------------------------------------------------------------------------------------------

PAIRS = tuple(zip(THRESHOLDS, published.COOCCURRENCE, strict=True))
"""The published numbers of co-occurring pairs, 105, 435 and 1711, beside the topics of each threshold."""
MORE_ATTENTION = 1.06
"""Half of the smallest published excess of co-occurring over same-topic attention (1.12)."""
MORE_ALIKE = 0.05
"""Half of the smallest published excess of same-topic over co-occurring cosine (0.102)."""


@claim(
    id="real/cooccurrence",
    statement=(
        "Topics are not just co-occurrence: pairs of words of one topic get less attention, but have a higher cosine, "
        "than the pairs that co-occur in most documents."
    ),
    source=source("Table 2 (thesis 2.5)"),
    scales={"desk": Text(), "paper": setting.PAPER},
    expected="refuted",
    erratum=(
        "Printed for a pretrained BERT on Wikipedia. In a small BERT trained on docstrings attention differs the other "
        "way round: the pairs that co-occur most are the commonest words, and those get little attention. How their "
        "cosines compare depends on how many are taken. Run it on a pretrained model with --set model=NAME."
    ),
    corrected="real/cooccurrence-small-models",
    seeds={"desk": 2, "paper": 3},
)
def cooccurrence(settings: Text, lab: Lab) -> Evidence:
    found = setting.measured(settings, lab, choices=(CHOICE,), pairs=PAIRS)
    checks = []
    for threshold, pairs in PAIRS:
        fn, units = _pair_cosines(found, threshold)
        documents = setting.over_documents(found, f"{threshold:g}: pair documents")
        checks += [
            statistic(
                f"attention, {pairs} pairs", setting.pair_ratio, documents, above=MORE_ATTENTION, unit="document"
            ),
            statistic(f"cosine, {pairs} pairs", fn, units, above=MORE_ALIKE, unit="word", vectorised=True),
        ]
    return Evidence(checks, tables={"beside the published": _pair_table(found)}, notes=_notes(settings, lab))


@claim(
    id="real/cooccurrence-small-models",
    statement=(
        "In a small BERT trained from scratch, pairs of words of one topic get more attention than the pairs that "
        "co-occur in most documents, by at least the margin that was published for the opposite."
    ),
    source=source("the measurement of Table 2"),
    scales={"desk": Text(), "paper": setting.PAPER},
    controls=(Control("random initialisation", {"weights": "random"}, tuple(f"{pairs} pairs" for _, pairs in PAIRS)),),
    seeds={"desk": 2, "paper": 3},
)
def cooccurrence_small_models(settings: Text, lab: Lab) -> Evidence:
    found = setting.measured(settings, lab, choices=(CHOICE,), pairs=PAIRS)
    checks = []
    for threshold, pairs in PAIRS:
        documents = setting.over_documents(found, f"{threshold:g}: pair documents")
        checks.append(
            statistic(f"{pairs} pairs", setting.pair_ratio, documents, below=1 / MORE_ATTENTION, unit="document")
        )
    return Evidence(checks, tables={"beside the published": _pair_table(found)}, notes=_notes(settings, lab))


def _pair_cosines(found: Mapping[str, np.ndarray], threshold: float):
    fn, words = setting.cosine_gap(found, f"{threshold:g}")
    return fn, np.arange(words)


def _pair_table(found: Mapping[str, np.ndarray]) -> Table:
    rows = []
    for threshold, pairs in PAIRS:
        same, same_pairs, together, together_pairs = found[f"{threshold:g}: pair documents"].sum((0, 1))
        units = found[f"{threshold:g}: pair vectors"]
        units = units / np.linalg.norm(units, axis=2, keepdims=True)
        cosines = []
        for kind in setting.KINDS:
            index = found[f"{threshold:g}: {kind}"]
            cosines.append(
                np.mean([(u[i[:, 0]] * u[i[:, 1]]).sum(1).mean() for u, i in zip(units, index, strict=True)])
            )
        rows.append([f"{pairs} pairs, ours", same / same_pairs, together / together_pairs, *map(float, cosines)])
        rows.append([f"{pairs} pairs, published", *published.COOCCURRENCE[pairs]])
    columns = ["", "attention, same topic", "attention, co-occurring", "cosine, same topic", "cosine, co-occurring"]
    return Table(columns, rows)


# -- a random model --------------------------------------------------------------------------------------------------


PRINTED_NOISE = 0.001
"""The printed attention ratios of a random BERT are at most 0.0006 away from one, to the digits that a table gives."""


@dataclass(frozen=True)
class Blind(Text):
    """Documents are read whole, so that their lengths differ: that is what fakes topics in unscaled attention."""

    documents: int = 200
    longest: int = 512
    length: int = 512
    weights: str = "random"
    planted: float = 0.0


@claim(
    id="real/random-control",
    statement=(
        "A randomly initialised BERT shows no topics: same-topic against different-topic pairs have an AUC of one "
        "half by cosine, dot product and attention, and a ratio of attention of one once it is scaled by document "
        "length; unscaled, long documents with many topics fake a preference."
    ),
    source=source("Tables 1 and 5, last rows (thesis 2.3, 2.4), and the remark on document length"),
    scales={
        "desk": Blind(),
        "paper": Blind(**vars(setting.PAPER) | {"weights": "random", "longest": 512, "length": 512}),
    },
    controls=(
        Control("topics planted in the embedding", {"planted": 0.2}, ("cosine", "dot product")),
        Control("attention raised by a tenth within topics", {"boost": 1.1}, ("attention", "attention ratio")),
        Control("attention not scaled by length", {"debias": False}, ("attention ratio",)),
    ),
    seeds={"desk": 16, "paper": 16},
)
def random_control(settings: Blind, lab: Lab) -> Evidence:
    found = setting.measured(settings, lab, choices=(CHOICE,), planted=settings.planted)
    key = label(CHOICE)
    everyone = np.arange(found[f"{key}: words"].shape[1])[None]
    aucs = {
        name: np.array(
            [setting.word_auc(_one(found, i), key, cosine=cosine)(everyone)[0] for i in range(len(lab.seeds))]
        )
        for name, cosine in (("cosine", True), ("dot product", False))
    }
    aucs["attention"] = np.array([setting.attention_auc(histograms) for histograms in found[f"{key}: histograms"]])
    checks = [agrees(name, values, 0.5, within=CHANCE) for name, values in aucs.items()]
    ratios = np.array([setting.attention_ratio(documents) for documents in found[f"{key}: documents"]])
    checks.append(agrees("attention ratio", ratios, 1.0, within=PRINTED_NOISE))
    return Evidence(
        checks,
        figures={
            "aucs": lambda: strips(aucs, predictions=0.5, xlabel="AUC", title="A random model knows no topics"),
        },
        tables={"ratios beside the published": _ratios(settings, found, [CHOICE])},
        notes=[
            "Ratios of embeddings are noise over noise here: the mean similarity of different-topic words is 0 in "
            "expectation. The AUC is not.",
        ],
    )


def _one(found: Mapping[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
    return {name: values[i : i + 1] for name, values in found.items()}


# -- what is shown ---------------------------------------------------------------------------------------------------


def _notes(settings: Text, lab: Lab) -> list[str]:
    about = setting.prepared(settings, lab)
    which = settings.model or f"{len(lab.seeds)} models trained for {settings.steps} steps"
    return [
        f"{about.tokens.name}: {len(about.tokens):,} documents, {len(about.tokens.ids):,} tokens, {len(about.topics)} "
        f"topics (mean NPMI {float(about.coherence.npmi.mean()):.3f}); {which}. Intervals are over words or documents, "
        "with these models given."
    ]


def _ratios(settings: Text, found: Mapping[str, np.ndarray], choices: Sequence[tuple[float, bool]]) -> Table:
    """Our ratios per seed beside those printed for the same family."""
    family = published.nearest_family(settings.model or "BERT")
    family = "BERT, random" if settings.weights == "random" else family
    rows = []
    for threshold, overlap in choices:
        ratios = found[f"{label((threshold, overlap))}: ratios"]
        tables = published.OVERLAPPING if overlap else published.SEPARATE
        printed = tables[family][published.THRESHOLDS.index(threshold)] if threshold in published.THRESHOLDS else None
        for i, name in enumerate(("cosine", "dot product", "attention")):
            seeds = ", ".join(f"{value:.3f}" for value in ratios[:4, i])
            rows.append([label((threshold, overlap)), name, seeds, "—" if printed is None else printed[i]])
    return Table(["threshold", "ratio", "ours, by seed", f"published, {family}"], rows)


def _topics(settings: Text, lab: Lab):
    about = setting.prepared(settings, lab)
    top = about.topics.top_words(about.tokens.words, 8)
    order = about.topics.share.argsort(descending=True, stable=True)[:12].tolist()
    return word_lists(
        {f"{float(about.topics.share[k]):.1%} of words": top[k] for k in order},
        title="The largest topics",
        xlabel="P(word | topic)",
    )


def _heads(settings: Text, lab: Lab, found: Mapping[str, np.ndarray]):
    """Percent more attention within topics than between, by layer and head, first seed, trained and random."""
    random = setting.measured(replace(settings, weights="random"), lab, choices=(CHOICE,))
    name = f"{label(CHOICE)}: heads"
    panels = {"trained": 100 * (found[name][0] - 1), "random": 100 * (random[name][0] - 1)}
    layers, heads = panels["trained"].shape
    return heatmaps(
        panels,
        rows=[str(i) for i in range(layers)],
        columns=[str(i) for i in range(heads)],
        xlabel="head",
        ylabel="layer",
        title="Percent more attention within topics",
    )


def _nine_words(settings: Text, lab: Lab, found: Mapping[str, np.ndarray]):
    """Cosines of three clear words of each of three clear topics, trained and random (figure 3)."""
    about = setting.prepared(settings, lab)
    chosen = [i for group in about.clearest(threshold=CHOICE[0]) for i in group]
    random = setting.measured(replace(settings, weights="random"), lab, choices=(CHOICE,))
    matrices = {}
    for name, arrays in (("trained", found), ("random", random)):
        place = np.searchsorted(arrays[f"{label(CHOICE)}: words"][0], chosen)
        vectors = arrays[f"{label(CHOICE)}: vectors"][0, 0][place]
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        matrices[name] = units @ units.T
    names = [about.tokens.words[i].lstrip("Ġ▁") for i in chosen]
    return heatmaps(matrices, block=3, rows=names, columns=names, limit=1.0, title="Cosines of nine words")


CLAIMS = (
    embedding_topics,
    thresholds,
    attention_topics,
    embedding_before_attention,
    cooccurrence,
    cooccurrence_small_models,
    random_control,
)
