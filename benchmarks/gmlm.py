"""Speed of the line on generative masked models: many fits at once, information and mixing by enumeration.

    python benchmarks/gmlm.py [--device cuda] [--threads 2] [--only estimation exact chains]

One run prints, on the same machine:
- estimation: 200 repetitions of k-pseudolikelihood (four spins, n = 1,000, one mask per sequence) in one stack against
  a Python loop that fits them one by one, with the same optimiser, start and tolerance; for Newton's method and for
  gradient descent, and for scipy's BFGS on a loss in numpy as a user would write it;
- exact: seconds and peak memory of Poincaré constants up to N = 12 and of Fisher matrices of all N(N+1)/2 Ising
  parameters up to N = 14, and how they grow;
- chains: microseconds a chain and step of k-Gibbs on a clique of 32 among 64 spins: 1,000 chains at once against one
  chain in plain Python and one chain with the same sampler; and 1,000 chains of which only the number of spins up is
  kept, which is a chain too.

Estimation and chains run on `--device`, plain Python always on the CPU. Peak memory is that of the whole process, so it
never falls from line to line: run `--only exact` alone to read it.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

from sandtable.decoding import CliqueGibbs, MatrixChain, Sampler
from sandtable.theory.gmlm import chains, fisher
from sandtable.theory.gmlm.estimation import draw_pairs, estimate
from sandtable.theory.gmlm.magnetisation import k_gibbs_chain
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


# -- k-Gibbs chains --------------------------------------------------------------------------------------------------

CLIQUE = CliqueIsing(64, 32, 0.05, 0.02)
CHAINS, MANY = 1000, 100_000


def plain_chain(k: int, steps: int, rng: random.Random) -> list[int]:
    """One chain in Python: a block, then how many of its clique spins turn up, which, and the others one by one."""
    n, c, coupling = CLIQUE.size, CLIQUE.clique, CLIQUE.coupling
    h = CLIQUE.h.tolist()
    x = [0] * n
    for _ in range(steps):
        block = rng.sample(range(n), k)
        mine = [i for i in block if i < c]
        inside = set(mine)
        stay = sum(x[i] for i in range(c) if i not in inside)
        counts = range(len(mine) + 1)
        pairs = [coupling * ((2 * (stay + b) - c) ** 2 - c) / 2 for b in counts]
        weights = [math.comb(len(mine), b) * math.exp(2 * h[0] * b + pairs[b]) for b in counts]
        up = set(rng.sample(mine, rng.choices(counts, weights)[0]))
        for i in mine:
            x[i] = int(i in up)
        for i in block:
            if i >= c:
                x[i] = int(rng.random() < 1 / (1 + math.exp(-2 * h[i])))
    return x


def _a_step(sampler: Sampler, x: torch.Tensor, generator: torch.Generator) -> float:
    """Microseconds a chain and step, the best of several runs of 20 steps."""
    cuda = x.device.type == "cuda"

    def work() -> None:
        state = x
        for _ in range(20):
            state = sampler.draw(state, generator)
        if cuda:
            torch.cuda.synchronize()

    return best(work, repeats=10) / 20 / len(x) * 1e6


def k_gibbs_chains(device: str) -> None:
    generator = torch.Generator(device).manual_seed(0)
    title = f"k-Gibbs, c = {CLIQUE.clique} of N = {CLIQUE.size}"
    print(f"{title:40}{'µs a step':>11}{'plain / it':>12}{'one / it':>10}")
    for k in (8, 32, 48, 64):
        steps = 500
        slow = best(lambda k=k, steps=steps: plain_chain(k, steps, random.Random(0)), 10) / steps * 1e6
        print(f"{f'k = {k}, one chain, plain Python':40}{slow:11.3f}", flush=True)
        sampler, up = CliqueGibbs(CLIQUE, k=k), MatrixChain(k_gibbs_chain(CLIQUE, k=k).transition)
        rows = {
            "one chain": (sampler, torch.zeros(1, CLIQUE.size, dtype=torch.uint8)),
            f"{CHAINS:,} chains": (sampler, torch.zeros(CHAINS, CLIQUE.size, dtype=torch.uint8)),
            f"{CHAINS:,} chains, spins up only": (up, torch.zeros(CHAINS, 1, dtype=torch.long)),
        }
        if device != "cpu":
            rows[f"{MANY:,} chains"] = (sampler, torch.zeros(MANY, CLIQUE.size, dtype=torch.uint8))
        alone = 0.0
        for name, (chain, x) in rows.items():
            fast = _a_step(chain, x.to(device), generator)
            alone = alone or fast
            print(f"{f'k = {k}, {name}':40}{fast:11.3f}{slow / fast:12.1f}{alone / fast:10.1f}", flush=True)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "estimation": lambda arguments: estimation(arguments.device),
    "exact": lambda arguments: exact(),
    "chains": lambda arguments: k_gibbs_chains(arguments.device),
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
