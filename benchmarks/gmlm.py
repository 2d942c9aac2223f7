"""Speed of the line on generative masked models: many fits at once, information and mixing by enumeration.

    python benchmarks/gmlm.py [--device cuda] [--threads 2] [--only estimation exact]

One run prints, on the same machine:
- estimation: 200 repetitions of k-pseudolikelihood (four spins, n = 1,000, one mask per sequence) in one stack against
  a Python loop that fits them one by one, with the same optimiser, start and tolerance; for Newton's method and for
  gradient descent, and for scipy's BFGS on a loss in numpy as a user would write it;
- exact: seconds and peak memory of Poincaré constants up to N = 12 and of Fisher matrices of all N(N+1)/2 Ising
  parameters up to N = 14, and how they grow.

Only estimation runs on `--device`. Peak memory is that of the whole process, so it never falls from line to line: run
`--only exact` alone to read it.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

from sandtable.theory.gmlm import chains, fisher
from sandtable.theory.gmlm.estimation import draw_pairs, estimate
from sandtable.worlds import CliqueIsing, Ising, MaskLaw, UniformSize, UniformSubset

SPINS, SAMPLES, REPETITIONS, COUPLING = 4, 1000, 200, 0.05
TOLERANCES = {"newton": 1e-9, "gradient descent": 1e-7}


def best(work: Callable[[], object], repeats: int = 3) -> float:
    """Least seconds of several runs, after one to warm up: the machine may be busy with other things."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times[1:])


# -- estimation ------------------------------------------------------------------------------------------------------


def numpy_fit(table: np.ndarray, masks: MaskLaw, statistics: np.ndarray) -> np.ndarray:
    """One fit as one would write it: the loss and its gradient in numpy, scipy's BFGS."""
    axes = [tuple(hidden.nonzero()[:, 0].tolist()) for hidden in masks.family]
    shape = (2,) * SPINS

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        logits, total, slope = statistics @ theta, 0.0, np.zeros_like(theta)
        for block, hidden in enumerate(axes):
            given = (logits.reshape(shape) - logsumexp(logits.reshape(shape), axis=hidden, keepdims=True)).ravel()
            weight = table[:, block]
            seen = np.broadcast_to(weight.reshape(shape).sum(hidden, keepdims=True), shape).ravel()
            total -= weight @ given
            slope -= (weight - seen * np.exp(given)) @ statistics
        return total, slope

    return minimize(loss, np.zeros(statistics.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-7}).x


def estimation(device: str) -> None:
    law = CliqueIsing(SPINS, SPINS, COUPLING)
    statistics = fisher.ising_statistics(SPINS)
    family, start = fisher.exponential(statistics.to(device)), torch.zeros(statistics.shape[1], device=device)
    print(f"{f'{REPETITIONS} fits, N = {SPINS}, n = {SAMPLES}':36}{'stack, s':>11}{'one by one, s':>15}{'ratio':>9}")
    for k in range(1, SPINS + 1):
        masks = UniformSize(SPINS, k)
        generator = torch.Generator().manual_seed(k)
        pairs = draw_pairs(law, masks, SAMPLES, generator, repetitions=REPETITIONS)
        placed = pairs.to(device)
        for method, tol in TOLERANCES.items():
            options = {"method": method, "tol": tol}

            def together(masks=masks, placed=placed, options=options):
                return estimate(family, placed, masks, start, **options)

            def alone(masks=masks, placed=placed, options=options):
                return [estimate(family, row[None], masks, start, **options) for row in placed]

            found, singles = together(), alone()
            assert bool(found.converged.all())
            assert torch.allclose(found.theta, torch.cat([one.theta for one in singles]), atol=1e-4)
            fast = best(together)
            slow = best(alone, repeats=1)
            print(f"{f'k = {k}, {method}':36}{fast:11.3f}{slow:15.2f}{slow / fast:9.0f}", flush=True)
        fast = best(lambda masks=masks, placed=placed: estimate(family, placed, masks, start))
        slow = best(
            lambda masks=masks, pairs=pairs: [numpy_fit(row.numpy(), masks, statistics.numpy()) for row in pairs], 1
        )
        print(f"{f'k = {k}, newton against scipy BFGS':36}{fast:11.3f}{slow:15.2f}{slow / fast:9.0f}", flush=True)


# -- information and mixing ------------------------------------------------------------------------------------------


def random_ising(n: int) -> Ising:
    generator = torch.Generator().manual_seed(n)
    fields, pairs = (torch.randn(size, generator=generator) for size in (n, n * (n - 1) // 2))
    return Ising.of(0.1 * fields, 0.3 / n**0.5 * pairs)


def peak() -> float:
    """Largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def laws_of_masks(n: int) -> Mapping[str, MaskLaw]:
    return {f"k = {k}": UniformSize(n, k) for k in (1, 2, n // 2, n - 1)} | {"all subsets": UniformSubset(n)}


def exact() -> None:
    rows: list[tuple[str, int, str, float]] = []
    for n in (6, 8, 10, 12):
        law = random_ising(n)
        _ = law.probs
        for name, masks in laws_of_masks(n).items():
            began = time.perf_counter()
            chains.poincare(law, masks)
            rows.append(("Poincaré", n, name, time.perf_counter() - began))
            _print_row(rows[-1])
    for n in (6, 8, 10, 12, 14):
        law = random_ising(n)
        theta = torch.cat([law.h, law.j[*torch.triu_indices(n, n, 1)]])
        family = fisher.exponential(fisher.ising_statistics(n))
        for name, masks in laws_of_masks(n).items():
            began = time.perf_counter()
            fisher.asymptotic_covariance(fisher.information(fisher.scores(family, theta), law, masks))
            rows.append(("Fisher", n, name, time.perf_counter() - began))
            _print_row(rows[-1])
    for what in ("Poincaré", "Fisher"):
        slowest = {n: max(s for w, m, _, s in rows if (w, m) == (what, n)) for w, n, _, _ in rows if w == what}
        sizes = sorted(slowest)[-3:]
        steps = ", ".join(
            f"{(slowest[b] / slowest[a]) ** (1 / (b - a)):.1f} from N = {a} to {b}" for a, b in pairwise(sizes)
        )
        print(f"{what}: one more position multiplies the time of the slowest mask law by {steps}")


def _print_row(row: tuple[str, int, str, float]) -> None:
    what, n, name, seconds = row
    print(f"{f'{what}, N = {n}, {name}':36}{seconds:11.2f} s{peak():12.2f} GB", flush=True)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "estimation": lambda arguments: estimation(arguments.device),
    "exact": lambda arguments: exact(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    name = torch.cuda.get_device_name() if arguments.device != "cpu" else "CPU"
    print(f"{name}, {torch.get_num_threads()} CPU threads, torch {torch.__version__}")
    for part in PARTS:
        if part in arguments.only:
            PARTS[part](arguments)


if __name__ == "__main__":
    main()
