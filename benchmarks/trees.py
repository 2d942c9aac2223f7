"""Speed of exact analysis: trees of prefixes, laws of methods on them, and the chain behind VGB.

    python benchmarks/trees.py [--length 19] [--plain 13] [--gap]

Nodes per second of `theory.generation` on the tree of all fair-bit strings up to `--length` bits (2^20 − 1 nodes by
default), against recursions over tuples and dictionaries in plain Python on a tree of `--plain` bits; both compute the
same numbers, which is checked there. The first two ask the world about every prefix, level by level here and prefix by
prefix there. `--gap` also times the spectral gap of the large tree.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sandtable.theory import generation as theory
from sandtable.worlds import Trap

Node = tuple[int, ...]


class Plain:
    """The same tree as dictionaries from prefixes to numbers; the world is asked prefix by prefix."""

    def __init__(self, world: Trap) -> None:
        self.world, self.length = world, world.length
        self.prob: dict[Node, float] = {}
        self.grow((), 1.0)

    def grow(self, s: Node, p: float) -> None:
        self.prob[s] = p
        if len(s) < self.length:
            law = self.world.next_token_probs(torch.tensor([s], dtype=torch.long))[0].tolist()
            for bit in (0, 1):
                self.grow((*s, bit), p * law[bit])

    def accept(self) -> dict[Node, float]:
        return {s: float(self.world.accepts(torch.tensor([s], dtype=torch.long))) for s in self.prob}

    def tokenwise(self, values: dict[Node, float]) -> dict[Node, float]:
        law: dict[Node, float] = {}

        def walk(s: Node, p: float) -> None:
            if len(s) == self.length:
                law[s] = p
                return
            shares = [0.5 * values[(*s, bit)] for bit in (0, 1)]
            for bit, share in enumerate(shares):
                walk((*s, bit), p * share / sum(shares) if share else 0.0)

        walk((), 1.0)
        return law

    def stationary(self, values: dict[Node, float]) -> dict[Node, float]:
        weight = {s: self.prob[s] * values[s] * (len(s) > 0) for s in self.prob}
        total = dict(weight)
        for s, w in weight.items():
            if s:
                total[s[:-1]] += w
        whole = sum(total.values())
        return {s: c / whole for s, c in total.items()}

    def first_leaf(self, values: dict[Node, float]) -> dict[Node, float]:
        branch: dict[Node, float] = {}
        law: dict[Node, float] = {}

        def conduct(s: Node) -> float:
            w = self.prob[s] * values[s]
            if len(s) < self.length:
                below = conduct((*s, 0)) + conduct((*s, 1))
                w = 1 / (1 / w + 1 / below) if s and w and below else 0.0
            branch[s] = w
            return w

        def walk(s: Node, p: float) -> None:
            if len(s) == self.length:
                law[s] = p
                return
            total = branch[(*s, 0)] + branch[(*s, 1)]
            for bit in (0, 1):
                walk((*s, bit), p * branch[(*s, bit)] / total if total else 0.0)

        conduct(())
        walk((), 1.0)
        return law


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the least seconds of three runs."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return result, min(times)


def same(found: np.ndarray, plain: dict[Node, float]) -> bool:
    """Nodes of one level come in the order of their strings on both sides."""
    return np.allclose(found, [plain[s] for s in sorted(plain, key=lambda s: (len(s), s))], atol=1e-12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=19)
    parser.add_argument("--plain", type=int, default=13)
    parser.add_argument("--gap", action="store_true")
    arguments = parser.parse_args()

    world, small = Trap(arguments.length), Trap(arguments.plain)
    jobs: dict[str, Callable[[theory.Tree, np.ndarray], Any]] = {
        "tokenwise law": lambda tree, values: theory.tokenwise(tree, values).law,
        "stationary law": lambda tree, values: theory.Chain.of(tree, values).stationary,
        "first-leaf law": lambda tree, values: theory.Chain.of(tree, values).first_leaf_law,
    }
    tree, building = timed(lambda: theory.Tree.of(world))
    values, judging = timed(lambda: tree.evaluate(world.accepts))
    ours = {"build the tree": building, "verifier at every node": judging}
    for name, job in jobs.items():
        ours[name] = timed(lambda job=job: job(tree, values))[1]
    more = {
        "true values": lambda: tree.expect(values[tree.leaves]),
        "steps to the first leaf": lambda: theory.Chain.of(tree, values).steps_to_leaf(),
        "best of 8": lambda: theory.best_of_n(tree, values, 8),
        "backtracking, quota 4, stride 4": lambda: theory.backtracking(tree, values, quota=4, stride=4),
    }
    for name, work in more.items():
        ours[name] = timed(work)[1]

    plain, growing = timed(lambda: Plain(small))
    accepted, deciding = timed(plain.accept)
    theirs = {"build the tree": growing, "verifier at every node": deciding}
    check = theory.Tree.of(small)
    for name, method in zip(jobs, (plain.tokenwise, plain.stationary, plain.first_leaf), strict=True):
        found, theirs[name] = timed(lambda method=method: method(accepted))
        assert same(jobs[name](check, check.evaluate(small.accepts)), found), name

    print(f"{len(tree)} nodes, {torch.get_num_threads()} threads; plain Python on {len(plain.prob)} nodes")
    print(f"{'':34}{'seconds':>9}{'nodes/s':>12}{'plain nodes/s':>15}{'ratio':>8}")
    for name, seconds in ours.items():
        line = f"{name:34}{seconds:9.3f}{len(tree) / seconds:12.3g}"
        if name in theirs:
            speed = len(plain.prob) / theirs[name]
            line += f"{speed:15.3g}{len(tree) / seconds / speed:8.1f}"
        print(line)
    print(f"all of them: {sum(ours.values()):.2f} s")
    if arguments.gap:
        chain = theory.Chain.of(tree, np.ones(len(tree)))
        began = time.perf_counter()
        found = chain.gap()
        print(f"spectral gap {found:.8g} (closed form {theory.exact_gap(world.length):.8g}) in", end=" ")
        print(f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
