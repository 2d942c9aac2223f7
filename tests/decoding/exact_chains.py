"""What a step of a sampler does to every state, compared with the rows of a matrix; small laws to try it on."""

import math

import torch

from sandtable.worlds import AdaptiveBlocks, Ising, Table

THREE = Table(((1 / 2, 1 / 3), (1 / 6, 0.0)))
"""(0,0), (0,1), (1,0) with probabilities 1/2, 1/3, 1/6."""
THREE_MASKS = AdaptiveBlocks(2, ((0,), (1,)), ((1 / 2, 1 / 2), (1 / 3, 2 / 3), (1 / 4, 3 / 4), (1 / 2, 1 / 2)))
"""P(K={0} | x) = 1/2, 1/3, 1/4; (1,1) has probability 0."""


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_ising(length, seed=0, scale=0.6):
    drawn = torch.randn(length * (length + 1) // 2, generator=generator(seed), dtype=torch.float64) * scale
    return Ising.of(drawn[:length], drawn[length:])


def random_adaptive(length, blocks, seed=0, symbols=2):
    drawn = torch.rand(symbols**length, len(blocks), generator=generator(seed), dtype=torch.float64) + 0.05
    return AdaptiveBlocks.of(length, blocks, lambda states: drawn / drawn.sum(1, keepdim=True), symbols=symbols)


def allowed(laws, draws, failure=1e-7):
    """What the total variation of `draws` draws from each law stays below, but for a chance of `failure`.

    McDiarmid's inequality about its mean, which is at most ½ Σ √(p(1 − p)/n).
    """
    mean = (laws * (1 - laws)).clamp(min=0).sqrt().sum(-1) / (2 * math.sqrt(draws))
    return mean + math.sqrt(math.log(1 / failure) / (2 * draws))


def assert_follows(counts, laws):
    """Every row of counts is as near to its law as draws from it are."""
    draws = counts.sum(-1, keepdim=True)
    distance = (counts / draws - laws).abs().sum(-1) / 2
    bound = allowed(laws, int(draws.min()))
    assert bool((distance <= bound).all()), (float((distance - bound).max()), float(bound.max()))


def assert_steps(sampler, states, codes, laws, draws=3000, seed=1):
    """One step from every state, many times, against the rows of a transition matrix."""
    x = sampler(states.repeat_interleave(draws, 0), generator(seed))
    counts = torch.stack([torch.bincount(row, minlength=laws.shape[1]) for row in codes(x).view(len(states), draws)])
    assert_follows(counts.double(), laws)


def assert_reaches(sampler, start, codes, law, steps, chains=10_000, seed=2):
    """Many chains from one state, after some steps, against a law."""
    x, random = start.expand(chains, -1), generator(seed)
    sampler.check(x)
    for _ in range(steps):
        x = sampler.draw(x, random)
    assert_follows(torch.bincount(codes(x), minlength=len(law)).double(), law)
