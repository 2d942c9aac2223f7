"""The hidden prefix: what search costs at least, what is printed, and which verifier would help."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch

from sandtable.claims.verifier.sources import botta
from sandtable.lab import Claim, Control, Evidence, Lab, agrees, bounded, claim, exact, statistic
from sandtable.lab.figures import curves
from sandtable.theory import generation as theory
from sandtable.worlds import HiddenPrefix

# -- search ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Search:
    lengths: tuple[int, ...] = (4, 6, 8, 10)
    secrets: int = 80
    orders: int = 100
    mean: str = "(M+1)/2"
    order: str = "without replacement"
    ones: float = 0.5
    verifier: str = "none"


@claim(
    id="verifier/hidden-prefix",
    statement=(
        "Finding the one string of A that the hidden-prefix oracle draws takes (M+1)/2 calls on average, M = 2^(D−1), "
        "and none can do better than (M−1)(M+2)/(2M): exponential in D, since a call only ever excludes its own "
        "candidate. Rejection of whole strings takes D·2^(D−1)."
    ),
    source=botta("hidden-prefix theorem (thesis 3.1.1), constant corrected"),
    scales={"smoke": Search(secrets=40, orders=60), "desk": Search(lengths=(4, 6, 8, 10, 12))},
    controls=(
        Control("mean as printed", {"mean": "2^(D−1)"}, ("queries over their mean", "least possible")),
        Control(
            "candidates with replacement",
            {"order": "with replacement"},
            ("queries over their mean", "worst case over M"),
        ),
        Control("a verifier that knows the support", {"verifier": "support"}, ("exponent", "whole strings")),
        Control("unfair secrets", {"ones": 0.6}, ("posterior", "a constant answer")),
    ),
)
def hidden_prefix(settings: Search, lab: Lab) -> Evidence:
    lengths = np.array(settings.lengths)
    costs = [theory.hidden_prefix_search(d) for d in settings.lengths]
    printed = settings.mean != "(M+1)/2"
    means = np.array([cost.worst if printed else cost.mean for cost in costs])
    least = [cost.worst if printed else cost.mean_inferring for cost in costs]
    how = (settings.secrets, settings.orders, settings.order, settings.verifier)
    queries = lab.measure(_searches, settings.lengths, *how)["queries"]
    by_secret = queries.mean(2).reshape(-1, len(lengths))
    centred = lengths - lengths.mean()

    def exponent(rows: np.ndarray) -> np.ndarray:
        return np.log2(rows.mean(1)) @ centred / (centred @ centred)

    small = [d for d in settings.lengths if d <= 8]
    return Evidence(
        [
            agrees("queries over their mean", (queries / means).ravel(), 1.0, within=0.05, unit="search"),
            statistic("exponent", exponent, by_secret, predicted=1.0, within=0.05, unit="secret", vectorised=True),
            bounded("worst case over M", queries / np.array([cost.worst for cost in costs]), 1.0, unit="search"),
            exact("least possible", [_optimum(2 ** (d - 1)) for d in lengths], least, rtol=1e-12, unit="length"),
            exact(
                "whole strings",
                [_rejection(d, settings.verifier) for d in small],
                [theory.hidden_prefix_rejection(d) for d in small],
                rtol=1e-12,
                unit="length",
            ),
            bounded("posterior", _posterior_errors(5, settings.ones), 1e-12, unit="call"),
            exact(
                "a constant answer",
                [_constant_answer(d, settings.ones) for d in (3, 4, 5)],
                [2.0 ** -(d - 1) for d in (3, 4, 5)],
                rtol=1e-12,
                unit="length",
            ),
        ],
        figures={
            "queries against length": lambda: curves(
                lengths,
                {"search": by_secret},
                predictions={"(M+1)/2": [cost.mean for cost in costs], "printed bound": [cost.worst for cost in costs]},
                xlabel="length D",
                ylabel="oracle calls",
                title="Finding a hidden prefix",
                log_y=True,
            )
        },
        notes=["Secrets are uniform. 'Least possible' is the optimum over strategies by dynamic programming."],
    )


def _searches(
    lab: Lab, lengths: tuple[int, ...], secrets: int, orders: int, order: str, verifier: str
) -> dict[str, np.ndarray]:
    """Calls of the oracle until its last bit is even: seed × secret × order of candidates × length."""
    queries = np.zeros((len(lab.seeds), secrets, orders, len(lengths)))
    for i, seed in enumerate(lab.seeds):
        for j, length in enumerate(lengths):
            generator = lab.generator(seed, f"secrets of length {length}")
            candidates = torch.tensor(list(itertools.product((0, 1), repeat=length - 1)))
            for k in range(secrets):
                world = HiddenPrefix.draw(length, generator)
                if verifier == "support":
                    queries[i, k, :, j] = _guided(world, orders, generator)
                    continue
                even = (candidates.sum(1) + world.next_token_probs(candidates).argmax(1)) % 2 == 0
                asked = torch.rand(orders, len(candidates), generator=generator).argsort(1)
                if order == "with replacement":
                    asked = torch.randint(len(candidates), (orders, 20 * len(candidates)), generator=generator)
                queries[i, k, :, j] = 1 + even[asked].to(torch.uint8).argmax(1).numpy()
    return {"queries": queries}


def _guided(world: HiddenPrefix, times: int, generator: torch.Generator) -> np.ndarray:
    """Calls when every bit is drawn until a verifier that knows the support accepts it: geometric, the last is free."""
    draws = torch.empty(times, world.length - 1, dtype=torch.float64).geometric_(0.5, generator=generator)
    return 1 + draws.sum(1).numpy()


def _optimum(candidates: int) -> float:
    """Least expected calls with m candidates left, all alike: c(m) = 1 + (m−1)/m·c(m−1), c(1) = 0 as it is known."""
    cost = 0.0
    for m in range(2, candidates + 1):
        cost = 1 + (m - 1) / m * cost
    return cost


def _rejection(length: int, verifier: str) -> float:
    """Expected calls of rejection on the tree; a verifier that knows the support may also stop a string early."""
    world = HiddenPrefix(length, (1,) * (length - 1))
    tree = theory.Tree.of(world)
    aware = verifier == "support"
    values = tree.evaluate(world.accepts_supported if aware else world.accepts)
    return theory.rejection(tree, values, abort=aware).queries


def _posterior_errors(length: int, ones: float) -> list[float]:
    """Bayes after 0, 1, … calls that were odd: distance of the posterior from uniform on the candidates left."""
    secrets = list(itertools.product((0, 1), repeat=length - 1))
    weights = np.array([np.prod(np.where(secret, ones, 1 - ones)) for secret in secrets])
    errors = []
    for calls in range(len(secrets) - 1):
        asked = torch.tensor(secrets[:calls], dtype=torch.long).reshape(calls, length - 1)
        odd = (asked.sum(1, keepdim=True) + 1) % 2
        likelihood = [
            float(HiddenPrefix(length, secret).next_token_probs(asked).gather(1, odd).prod()) for secret in secrets
        ]
        posterior = weights * likelihood
        posterior /= posterior.sum()
        uniform = np.arange(len(secrets)) >= calls
        errors.append(float(np.abs(posterior - uniform / uniform.sum()).max()))
    return errors


def _constant_answer(length: int, ones: float) -> float:
    """How often 0^D is the string that was looked for."""
    secrets = itertools.product((0, 1), repeat=length - 1)
    chances = [np.prod(np.where(s, ones, 1 - ones)) for s in secrets if not any(HiddenPrefix(length, s).answer)]
    return float(sum(chances))


hidden_prefix_printed = Claim(
    id="verifier/printed-hidden-prefix",
    statement="Any algorithm needs at least 2^(D−1) calls in expectation to find the hidden prefix.",
    source=botta("hidden-prefix theorem (thesis 3.1.1) and its proof"),
    scales={scale: replace(settings, mean="2^(D−1)") for scale, settings in hidden_prefix.scales.items()},
    measure=hidden_prefix.measure,
    expected="refuted",
    erratum=(
        "2^(D−1) is the worst case of a fixed order. Trying the candidates in random order takes (2^(D−1) + 1)/2 calls "
        "on average for every secret; the exponent stands."
    ),
    corrected=hidden_prefix.id,
)


# -- what the verifier must know -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aware:
    lengths: tuple[int, ...] = (3, 5, 8)
    secrets: int = 4
    verifier: str = "support"
    tries: int = 1000


@claim(
    id="verifier/support-aware",
    statement=(
        "With a verifier that knows which completions the oracle can draw, |Σ|·D verifier calls find a string of A, "
        "and rejection of tokens finds the hidden prefix in 2(D−1) + 1 calls of the oracle."
    ),
    source=botta("remark on |Σ|D verifier calls, its assumption stated"),
    scales={"smoke": Aware(), "desk": Aware(lengths=(3, 5, 8, 12), secrets=12)},
    controls=(
        Control(
            "a verifier of the constraint alone",
            {"verifier": "constraint"},
            ("succeeds", "token by token", "one at a time", "exhaustive calls over |Σ|D"),
        ),
    ),
)
def support_aware(settings: Aware, lab: Lab) -> Evidence:
    success, greedy, tokens, predicted, calls = [], [], [], [], []
    generator = lab.generator(lab.seeds[0], "secrets")
    for length in settings.lengths:
        for _ in range(settings.secrets):
            world = HiddenPrefix.draw(length, generator)
            tree = theory.Tree.of(world)
            aware = settings.verifier == "support"
            values = tree.evaluate(world.accepts_supported if aware else world.accepts)
            right = tree.counts(torch.tensor([world.answer]))
            found = theory.tokenwise(tree, values, tries=settings.tries)
            verified = theory.exhaustive_tokenwise(tree, values)
            success.append(1 - found.law @ right)
            greedy.append(1 - verified.law @ right)
            tokens.append(found.queries)
            predicted.append(theory.hidden_prefix_tokenwise(length))
            calls.append(verified.verifier_calls / (2 * length * (verified.law @ right)))
    return Evidence(
        [
            bounded("succeeds", success, 1e-12, unit="secret"),
            bounded("one at a time", greedy, 1e-12, unit="secret"),
            exact("token by token", tokens, predicted, rtol=1e-9, unit="secret"),
            bounded("exhaustive calls over |Σ|D", calls, 1.0, unit="secret"),
        ],
        notes=[
            "Shown are chances of failure: of rejecting tokens, and of verifying all of them. Calls are per success.",
            f"A token is given up after {settings.tries} draws; without a limit the constraint's verifier never stops.",
        ],
    )


support_aware_printed = Claim(
    id="verifier/printed-support-aware",
    statement=(
        "With a perfect verifier of the constraint, |Σ|·D verifier calls suffice to generate a string of A that the "
        "oracle can draw, on any oracle."
    ),
    source=botta("remark on |Σ|D verifier calls"),
    scales={scale: replace(settings, verifier="constraint") for scale, settings in support_aware.scales.items()},
    measure=support_aware.measure,
    expected="refuted",
    erratum=(
        "Completability into A is not enough: on the hidden-prefix oracle every proper prefix is accepted and, but for "
        "the secret one, ends in nothing the oracle draws. The verifier must know A ∩ supp, or the oracle have full "
        "support."
    ),
    corrected=support_aware.id,
)

CLAIMS = (hidden_prefix, hidden_prefix_printed, support_aware, support_aware_printed)
