"""Speed of the bracket line: drawing, training, exhaustive checks, pruning.

    python benchmarks/dyck.py [--device cuda] [--threads 2] [--seconds 4] [--only drawing training checking pruning]

One run prints, on the same machine:
- rows per second of `DyckPrefixes.sample` and `DyckWords.sample` against samplers that go token by token: one draw from
  torch's Categorical for each, as published generators do, and plain Python, with the tokens alone and with all latents
  that `sample` returns;
- model-steps per second of the minimal-first-layer net in stacks of several sizes against one by one and against an
  eager loop in PyTorch; the stacks draw fresh data for every model as they go, the eager loop reuses data drawn before;
- prefixes per second of `theory.dyck.check` against a model that is asked prefix by prefix;
- the time to prune a random network to a target, and meet-in-the-middle subset sums against all 2^n of them.

Only training runs on `--device`. On a machine that is busy take `--threads 1`: threads that wait for each other measure
the other processes.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sandtable.objectives import NextBracket
from sandtable.theory import dyck as theory
from sandtable.theory import pruning
from sandtable.theory.dyck import minimal_first_layer
from sandtable.training import Adam, Recipe, stream
from sandtable.worlds import DyckPrefixes, DyckWords

PREFIXES = DyckPrefixes()
WORDS = DyckWords(longest=26)
BATCH, SEEDS, STEPS = 100, 40, 600
CHUNKS = (1, 8, 20, 40)
LEARNING_RATE = 0.01
PARTS = ("drawing", "training", "checking", "pruning")


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """Least seconds of several runs, after one to warm up: the machine may be busy with other things."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times[1:])


# -- drawing ---------------------------------------------------------------------------------------------------------


def plain_row(rng: random.Random, *, ends: bool) -> list[int] | None:
    """One row of tokens, one random choice after another; a word that grows too long is None."""
    types, depth, q = PREFIXES.types, PREFIXES.depth, PREFIXES.q
    row, stack = [PREFIXES.bos], []
    while ends or len(row) <= PREFIXES.length:
        if ends and not stack and len(row) > 1 and rng.random() < WORDS.stop:
            return [*row, PREFIXES.eos]
        if ends and len(row) > WORDS.most:
            return None
        if not stack or (len(stack) < depth and rng.random() < q):
            stack.append(rng.randrange(types))
            row.append(stack[-1])
        else:
            row.append(types + stack.pop())
    return row


def categorical(n: int, *, ends: bool) -> list[list[int]]:
    """`n` rows whose tokens are drawn from torch's Categorical, one law for every stack (Hewitt et al. 2020)."""
    types, depth, q = PREFIXES.types, PREFIXES.depth, PREFIXES.q
    laws: dict[tuple[int, ...], torch.distributions.Categorical] = {}

    def law(stack: tuple[int, ...]) -> torch.distributions.Categorical:
        if stack not in laws:
            probabilities = torch.zeros(2 * types + 2)
            opens = 1.0 if not stack else q if len(stack) < depth else 0.0
            probabilities[:types] = opens / types * (1 - WORDS.stop if ends and not stack else 1)
            probabilities[types + stack[-1] if stack else PREFIXES.eos] = 1 - probabilities[:types].sum()
            laws[stack] = torch.distributions.Categorical(probabilities)
        return laws[stack]

    rows: list[list[int]] = []
    while len(rows) < n:
        row, stack = [PREFIXES.bos], ()
        while row[-1] != PREFIXES.eos and len(row) <= (WORDS.most + 1 if ends else PREFIXES.length):
            row.append(int(law(stack).sample()))
            if row[-1] < PREFIXES.bos:
                stack = (*stack, row[-1]) if row[-1] < types else stack[:-1]
        if not ends or (len(row) > 2 and row[-1] == PREFIXES.eos):
            rows.append(row)
    return rows


def plain_latents(row: list[int]) -> tuple[list[int], ...]:
    """Depth, top, opener and symbol after every token, from a list used as a stack."""
    types, most, stack = PREFIXES.types, PREFIXES.depth, []
    depth, top, opener, symbol = [], [], [], []
    for i, token in enumerate(row):
        if token < types:
            stack.append(i)
            symbol.append(token * most + len(stack) - 1)
        elif token < 2 * types:
            symbol.append(token * most + len(stack) - 1)
            stack.pop()
        else:
            symbol.append(2 * types * most)
        depth.append(len(stack))
        opener.append(stack[-1] if stack else -1)
        top.append(row[stack[-1]] if stack else -1)
    return depth, top, opener, symbol


def plain(n: int, *, ends: bool, latents: bool) -> tuple[np.ndarray, ...]:
    """`n` rows drawn one by one, padded, in the arrays that `sample` returns."""
    rng, size = random.Random(0), WORDS.most + 2 if ends else PREFIXES.length + 1
    x = np.full((n, size), PREFIXES.eos)
    mask = np.zeros((n, size), dtype=bool)
    found = np.zeros((4, n, size), dtype=np.int64)
    for i in range(n):
        row = None
        while row is None:
            row = plain_row(rng, ends=ends)
        x[i, : len(row)], mask[i, : len(row)] = row, True
        if latents:
            found[:, i, : len(row)] = plain_latents(row)
    return x, mask, found


def drawing(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    print(f"{'drawing':44}{'rows/s':>12}{'vs published':>14}{'vs tokens':>11}{'vs latents':>11}")
    for world, ends in ((PREFIXES, False), (WORDS, True)):
        ways: dict[str, Callable[[int], object]] = {
            "a Categorical for each token": lambda n, ends=ends: categorical(n, ends=ends),
            "Python, tokens": lambda n, ends=ends: plain(n, ends=ends, latents=False),
            "Python, tokens and latents": lambda n, ends=ends: plain(n, ends=ends, latents=True),
        }
        slow = {name: best(lambda way=way: way(300)) / 300 for name, way in ways.items()}
        for name, each in slow.items():
            print(f"{f'{type(world).__name__}, {name}':44}{1 / each:12.0f}")
        for n in (BATCH, 1000, rows):
            fast = best(lambda world=world, n=n: world.sample(n, generator), repeats=20) / n
            ratios = "".join(
                f"{each / fast:{width}.1f}" for each, width in zip(slow.values(), (14, 11, 11), strict=True)
            )
            print(f"{f'{type(world).__name__}.sample({n})':44}{1 / fast:12.0f}{ratios}", flush=True)


# -- training --------------------------------------------------------------------------------------------------------


def stacked(models: int, device: str, seconds: float) -> float:
    """Steady model-steps per second of one stack, measured between progress reports."""
    ticks: list[tuple[float, int]] = []

    class Enough(Exception):
        pass

    def progress(step: int, steps: int, speed: float, loss: float) -> None:
        if device != "cpu":
            torch.cuda.synchronize()
        ticks.append((time.monotonic(), step))
        if len(ticks) > 2 and ticks[-1][0] - ticks[1][0] > seconds:
            raise Enough

    recipe = Recipe(
        minimal_first_layer(form="theory", width=50),
        WORDS,
        NextBracket(reads="symbols"),
        steps=10**6,
        batch_size=BATCH,
        optimizer=Adam(LEARNING_RATE),
        chunk=models,
    )
    with contextlib.suppress(Enough):
        recipe.train(models, device=device, progress=progress)
    (t0, s0), (t1, s1) = ticks[1], ticks[-1]
    return models * (s1 - s0) / (t1 - t0)


def eager(device: str, seconds: float, warm: int = 5) -> float:
    """Steps per second of one ordinary module with torch.optim.Adam, on 64 batches drawn before."""
    net = minimal_first_layer(form="theory", width=50).initialise(stream("init", 0)).to(device)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=LEARNING_RATE)
    objective = NextBracket(reads="symbols")
    block = objective.draw_block(WORDS.sample(64 * BATCH, stream("data", 0)).fold(64), stream("noise", 0), range(64))
    examples = [tree_map(lambda t, s=s: t[s].to(device), block) for s in range(64)]

    def step(i: int) -> None:
        optimizer.zero_grad()
        objective.loss(lambda _, inputs: net(inputs), {}, examples[i % 64])[0].backward()
        optimizer.step()

    done, began = -warm, 0.0
    while done <= 0 or time.monotonic() - began < seconds:
        if done == 0:
            began = time.monotonic()
        step(warm + done)
        done += 1
    if device != "cpu":
        torch.cuda.synchronize()
    return done / (time.monotonic() - began)


def training(device: str, seconds: float) -> None:
    alone = eager(device, seconds)
    print(f"{'training, batch 100':44}{'model-steps/s':>14}{'vs eager':>12}{f'{SEEDS} × {STEPS}, s':>12}")
    print(f"{'eager PyTorch, one by one':44}{alone:14.1f}{1.0:12.2f}{SEEDS * STEPS / alone:12.0f}")
    for models in CHUNKS:
        speed = stacked(models, device, seconds)
        label = f"stacks of {models}" if models > 1 else "fit, one by one"
        print(f"{label:44}{speed:14.1f}{speed / alone:12.2f}{SEEDS * STEPS / speed:12.0f}", flush=True)


# -- checking --------------------------------------------------------------------------------------------------------


def one_prefix(model: Callable[[Tensor], Tensor], row: Tensor) -> float:
    """|model − law| after one prefix."""
    law = PREFIXES.next_token_probs(row[None])[0, : 2 * PREFIXES.types]
    return float((model(row[None])[0, -1] - law).abs().max())


def checking(longest: int) -> None:
    model = theory.build("random", seed=1)
    prefixes = [row for n in range(1, 6) for row in DyckPrefixes(length=n).support().batch.x]
    rng = random.Random(0)
    some = rng.sample(prefixes, 100)
    with torch.no_grad():
        slow = best(lambda: [one_prefix(model, row) for row in some]) / len(some)
    count = theory.check(model, PREFIXES, longest=longest).prefixes
    fast = best(lambda: theory.check(model, PREFIXES, longest=longest), repeats=3) / count
    print(f"{'checking':44}{'prefixes/s':>14}{'ratio':>12}")
    print(f"{'prefix by prefix, at most 5 brackets':44}{1 / slow:14.0f}{1.0:12.1f}")
    print(f"{f'check, all {count} of at most {longest}':44}{1 / fast:14.0f}{slow / fast:12.1f}", flush=True)


# -- pruning ---------------------------------------------------------------------------------------------------------


def every_subset(values: Tensor, targets: Tensor) -> Tensor:
    """The nearest sum by looking at all 2^n of them, one set after another."""
    found = []
    for row, target in zip(values, targets, strict=True):
        sums = row.new_zeros(1)
        for value in row:
            sums = torch.cat([sums, sums + value])
        found.append((sums - target).abs().min())
    return torch.stack(found)


def pruning_time() -> None:
    generator = torch.Generator().manual_seed(0)
    print(f"{'subset sums':44}{'sets/s':>14}{'vs all 2^n':>12}")
    for n in (12, 16, 20):
        values = 2 * torch.rand(32, n, generator=generator, dtype=torch.float64) - 1
        targets = 2 * torch.rand(32, generator=generator, dtype=torch.float64) - 1
        assert torch.allclose(every_subset(values, targets), pruning.nearest_subsets(values, targets)[1], atol=1e-12)
        slow = best(lambda v=values, t=targets: every_subset(v, t), repeats=3) / 32
        fast = best(lambda v=values, t=targets: pruning.nearest_subsets(v, t)) / 32
        print(f"{f'nearest_subsets, n = {n}':44}{1 / fast:14.0f}{slow / fast:12.1f}")
    target = pruning.random_target(4, key_width=3, hidden=8, generator=generator)
    size: dict[str, Any] = pruning.sizes(target)
    network = pruning.random_network(**size, generator=generator)
    began = time.perf_counter()
    pruned = pruning.prune(network, target)
    spent = time.perf_counter() - began
    weights = sum(mask.numel() for mask in pruned.masks.values())
    print(f"prune to m = 4, m_a = 3, w = 8: {spent:.1f} s for {weights} weights, worst residual {pruned.residual:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--longest", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    name = torch.cuda.get_device_name() if arguments.device != "cpu" else "CPU"
    print(f"{name}, {torch.get_num_threads()} CPU threads, torch {torch.__version__}")
    if "drawing" in arguments.only:
        drawing(arguments.rows)
    if "training" in arguments.only:
        training(arguments.device, arguments.seconds)
    if "checking" in arguments.only:
        checking(arguments.longest)
    if "pruning" in arguments.only:
        pruning_time()


if __name__ == "__main__":
    main()
