"""Several dialects and all words at once: the price of a product of marginals, and what noise does about it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from sandtable.claims.gmlm.padir import measures
from sandtable.claims.gmlm.padir.measures import Decoding, asked, refined_once
from sandtable.claims.gmlm.padir.nets import DESK, PAPER, SEEDS, Net, Size, trained
from sandtable.claims.gmlm.sources import li2024
from sandtable.inputs import EOS, RESERVED
from sandtable.lab import Control, Evidence, Lab, Table, agrees, claim, exact, exceeds
from sandtable.lab.figures import strips
from sandtable.theory.gmlm.dialects import agree_by_chance, agree_from_noise
from sandtable.worlds import DialectTask

CASES = ((2, 2), (2, 3), (2, 6), (3, 2), (3, 4), (5, 3))
NOISE_CASES = ((2, 2, 0.15), (2, 3, 0.15), (3, 2, 0.3), (2, 3, 0.7))


# -- exact -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Law:
    exponent: int = 1
    shown: bool = True


def by_enumeration(dialects: int, words: int) -> float:
    """All M^N targets of one source with right words, weighed by the product of the world's own marginals."""
    world, source, target = _every_target(dialects, words)
    probs = world.log_prob_given(source, target).exp()
    kind = (target[:, :-1] - RESERVED - world.symbols) // world.symbols
    marginals = torch.stack([((kind == z) * probs[:, None]).sum(0) for z in range(dialects)])
    product = marginals.gather(0, kind).log().sum(1).exp()
    return float(product[world.consistent(target)].sum())


def _every_target(dialects: int, words: int) -> tuple[DialectTask, torch.Tensor, torch.Tensor]:
    world = DialectTask(symbols=words, length=words, dialects=dialects)
    symbols = torch.arange(words)
    kinds = torch.tensor(list(itertools.product(range(dialects), repeat=words)))
    target = torch.cat([world.words(symbols, kinds), torch.full((len(kinds), 1), EOS)], 1)
    return world, (symbols + RESERVED).expand(len(kinds), -1), target


def from_every_start(dialects: int, words: int, unmask: float) -> float:
    """All starts of N words out of W: the chance of each if it is noise, and Bayes' rule for a start that shows u."""
    world = DialectTask(symbols=words, length=words, dialects=dialects)
    ids = torch.arange(RESERVED, len(world.vocab))
    starts = torch.cartesian_prod(*[ids] * words)
    right = torch.stack([world.words(torch.arange(words), z) for z in range(dialects)])
    shown = (starts[:, None, :] == right).double() * unmask + (1 - unmask) / len(ids)
    posterior = shown.log().sum(2).softmax(1)
    return float((posterior**words).sum(1).mean())


@claim(
    id="gmlm/dialect-law",
    statement=(
        "If each of N words is drawn from its own marginal, all of them are of one out of M equally likely dialects "
        "with probability M^(1 − N). Random words in place of [MASK]s raise it: of N words out of W, right ones that "
        "stand there by chance tell all positions the same, and the probability is E Σ p^N over posteriors p ∝ "
        "(1 + uW/(1 − u))^m, m the numbers of right words."
    ),
    source=li2024("section 4.4 (multimodality), worked out for the dialect task"),
    scales={"smoke": Law(), "desk": Law()},
    controls=(
        Control("M^(−N)", {"exponent": 0}, ("no evidence",)),
        Control("noise without evidence", {"shown": False}, ("evidence in noise",)),
    ),
)
def law(settings: Law, lab: Lab) -> Evidence:
    chance = [agree_by_chance(m, n) * m ** (settings.exponent - 1) for m, n in CASES]
    noisy = [agree_from_noise(m, n, n * (m + 1), u if settings.shown else 0.0) for m, n, u in NOISE_CASES]
    found = [by_enumeration(m, n) for m, n in CASES]
    seen = [from_every_start(m, n, u) for m, n, u in NOISE_CASES]
    rows = [[m, n, "", agree, value] for (m, n), agree, value in zip(CASES, chance, found, strict=True)]
    rows += [[m, n, u, agree, value] for (m, n, u), agree, value in zip(NOISE_CASES, noisy, seen, strict=True)]
    return Evidence(
        [exact("no evidence", found, chance, rtol=1e-12), exact("evidence in noise", seen, noisy, rtol=1e-9)],
        tables={"one dialect throughout": Table(["dialects M", "words N", "shown u", "formula", "enumerated"], rows)},
    )


# -- trained ---------------------------------------------------------------------------------------------------------


RELATIVE = 0.1


@dataclass(frozen=True)
class OnePass:
    size: Size = DESK
    inputs: int = 30_000
    predicted_words: int = 0


def agreement(lab: Lab, net: Net, inputs: int) -> measures.Rows:
    """The share of one dialect throughout among answers of one pass, drawn word by word, that translate every symbol.

    Beside it the share of answers that do.
    """
    world, rows = net.world, {"agree": [], "right words": []}
    for seed, model in trained(lab, net):
        batch, generator = asked(lab, net, seed, inputs)
        assert batch.given is not None
        how = Decoding(1, noise=net.noise, temperature=1.0)
        tokens = refined_once(lab, model, batch, generator, how).tokens.cpu()[:, : world.length]
        symbol = torch.where(tokens >= RESERVED + world.symbols, (tokens - RESERVED) % world.symbols, -1)
        right = (symbol == batch.given.x[:, : symbol.shape[1]] - RESERVED).all(1) & (symbol.shape[1] == world.length)
        rows["agree"].append(float(world.consistent(tokens[right]).double().mean()))
        rows["right words"].append(float(right.double().mean()))
    return {name: np.array(values) for name, values in rows.items()}


@claim(
    id="gmlm/dialect-mixing",
    statement=(
        "Trained refiners that draw all N words of a dialect task in one pass mix its two dialects as a product of "
        "marginals does: starting from [MASK]s, all words agree in a share 2^(1 − N) of answers (within 10 %). "
        "Starting from random words, which all positions see, they agree more often."
    ),
    source=li2024("section 4.4 (multimodality), worked out for the dialect task"),
    scales={"desk": OnePass(), "paper": OnePass(size=PAPER, inputs=40_000)},
    controls=(
        Control("two words less in the prediction", {"predicted_words": -2}, ("from masks", "from random words")),
    ),
    seeds=SEEDS,
)
def one_pass(settings: OnePass, lab: Lab) -> Evidence:
    noisy = Net("dialect", size=settings.size)
    masked = noisy.at(noise="mask", stages=1)
    world = noisy.world
    words, vocabulary = world.length, len(world.vocab) - RESERVED
    found = {name: lab.measure(agreement, net, settings.inputs) for name, net in _named(masked, noisy)}
    chance = agree_by_chance(world.dialects, words + settings.predicted_words)
    bayes = agree_from_noise(world.dialects, words, vocabulary, noisy.unmask)
    predicted = {"from masks": chance, "from random words": bayes}
    rows = [
        [name, predicted[name], *(float(one[key].mean()) for key in ("agree", "right words"))]
        for name, one in found.items()
    ]
    return Evidence(
        [
            agrees("from masks", found["from masks"]["agree"], chance, relative=RELATIVE),
            exceeds("from random words", found["from random words"]["agree"], chance),
        ],
        figures={
            "agreement": lambda: strips(
                {name: one["agree"] for name, one in found.items()},
                predictions=predicted,
                xlabel="one dialect throughout, of answers with right words",
                title="One pass, every word drawn from its own law",
            )
        },
        tables={"one pass": Table(["start", "Bayes' rule", "one dialect", "every symbol translated"], rows)},
        notes=[
            "Of answers that translate every symbol. What Bayes' rule makes of random words is shown, not judged: it "
            f"would bring agreement to {bayes:.4f}, and nets trained so briefly use only part of that evidence."
        ],
    )


def _named(masked: Net, noisy: Net) -> tuple[tuple[str, Net], tuple[str, Net]]:
    return ("from masks", masked), ("from random words", noisy)


CLAIMS = (law, one_pass)
