"""All that a generator can write, as a tree of prefixes: the ground on which ways to generate are computed exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.worlds import HasNextToken, Vocab

NextToken = Callable[[Int[Tensor, "batch position"]], Float[Tensor, "batch vocab"]]

_ROWS = 1 << 16  # prefixes that the law is asked about at once
_MOST_NODES = 20_000_000


@dataclass(frozen=True, eq=False)
class Tree:
    """Every prefix y_{1:h}, h ≤ `horizon`, of a base law π_ref: nodes in breadth-first order, node 0 the empty prefix.

    A node is a leaf at depth `horizon` or, with `eos`, where its last token ends the string; every other node has its
    children next to each other in the order of their tokens. Values of a verifier and masses of a law are plain arrays
    over nodes, results arrays over `leaves`.
    """

    parent: Int[np.ndarray, " nodes"]
    """Index of the node without its last token; −1 at the root."""
    token: Int[np.ndarray, " nodes"]
    step: Float[np.ndarray, " nodes"]
    """π_ref(last token | what is before it); 1 at the root."""
    starts: Int[np.ndarray, " levels"]
    """Level h is the nodes starts[h] … starts[h+1] − 1."""
    leaf: Bool[np.ndarray, " nodes"]
    vocab: int
    prompt: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        law: HasNextToken | NextToken,
        horizon: int | None = None,
        vocab: Vocab | int | None = None,
        *,
        eos: int | None = None,
        truncation: NextToken | None = None,
        prompt: Sequence[int] = (),
        pad: bool = False,
        prune: bool = False,
        rows: int = _ROWS,
    ) -> Tree:
        """The tree of a world, or of a function from prefixes (rows of equal length) to next-token probabilities.

        `horizon`, `vocab` and `eos` default to what the world says. `truncation` maps rows of probabilities to those
        actually sampled (a nucleus, a temperature): π_ref is then the truncated law. Every prefix follows `prompt`.
        With `pad` an ended string goes on with `eos` to the horizon, so that all leaves are at one depth.
        `prune` leaves out prefixes of probability zero. The law is asked about `rows` prefixes at a time.
        """
        ask = law.next_token_probs if isinstance(law, HasNextToken) else law
        longest = getattr(law, "longest", None)
        horizon = longest - len(prompt) if horizon is None and longest is not None else horizon
        horizon = whole("horizon", horizon)
        vocab = getattr(law, "vocab", None) if vocab is None else vocab
        size = None if vocab is None else len(vocab) if isinstance(vocab, Vocab) else whole("vocab", vocab)
        eos = getattr(law, "eos", None) if eos is None else eos
        end = -2 if eos is None else whole("eos", eos, least=0)  # no node has −2
        prompt = tuple(int(token) for token in prompt)

        parents, tokens, steps, starts = [np.full(1, -1)], [np.full(1, -1)], [np.ones(1)], [0, 1]
        leaves = [np.zeros(1, dtype=bool)]
        prefix = torch.zeros(1, 0, dtype=torch.long)
        for depth in range(1, horizon + 1):
            inner = np.flatnonzero(~leaves[-1])
            if not len(inner):
                break
            ended = pad & (tokens[-1][inner] == end)
            if starts[-1] + len(inner) * (1 if prune else size or 1) > _MOST_NODES:
                raise ArgumentError(f"horizon={horizon}: the tree has more than {_MOST_NODES} nodes")
            prefix = prefix[torch.from_numpy(inner)]
            known = _ask(ask, prefix[torch.from_numpy(~ended)], prompt, truncation, size, rows)
            size = known.shape[1]
            probs = np.zeros((len(inner), size))
            probs[~ended] = known
            probs[ended, max(end, 0)] = 1.0
            row, token = np.nonzero((probs > 0) | ~(ended[:, None] | prune))
            prefix = torch.cat([prefix[torch.from_numpy(row)], torch.from_numpy(token)[:, None]], dim=1)
            parents.append(starts[-2] + inner[row])
            tokens.append(token)
            steps.append(probs[row, token])
            leaves.append(np.full(len(row), depth == horizon) | ((token == end) & (not pad)))
            starts.append(starts[-1] + len(row))
        return cls(
            parent=np.concatenate(parents),
            token=np.concatenate(tokens),
            step=np.concatenate(steps),
            starts=np.array(starts),
            leaf=np.concatenate(leaves),
            vocab=size or 0,
            prompt=prompt,
        )

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def horizon(self) -> int:
        """Depth of the deepest node."""
        return len(self.starts) - 2

    @property
    def longest(self) -> int:
        return len(self.prompt) + self.horizon

    @cached_property
    def prob(self) -> Float[np.ndarray, " nodes"]:
        """π_ref(prefix), the product of the steps down to a node."""
        return self.descend(self.step)

    @cached_property
    def depth(self) -> Int[np.ndarray, " nodes"]:
        return np.repeat(np.arange(self.horizon + 1), np.diff(self.starts))

    @cached_property
    def leaves(self) -> Int[np.ndarray, " leaves"]:
        """Indices of the leaves."""
        return np.flatnonzero(self.leaf)

    def level(self, depth: int) -> slice:
        return slice(int(self.starts[depth]), int(self.starts[depth + 1]))

    # -- recursions --------------------------------------------------------------------------------------------------

    def sums(self, below: Float[np.ndarray, " below"], depth: int) -> Float[np.ndarray, " level"]:
        """Σ over its children, for every node of level `depth`, of values given for level `depth` + 1."""
        size = int(self.starts[depth + 1] - self.starts[depth])
        return np.bincount(self.parent[self.level(depth + 1)] - self.starts[depth], below, minlength=size)

    def all_sums(self, values: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, " nodes"]:
        """Σ over its children of `values`, for every node."""
        return np.bincount(self.parent[1:], values[1:], minlength=len(self))

    def descend(self, share: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, " nodes"]:
        """Mass 1 at the root, passed down: a node receives the fraction `share` of what its parent received."""
        mass = np.array(share, dtype=float)
        mass[0] = 1.0
        for depth in range(1, self.horizon + 1):
            below = self.level(depth)
            mass[below] *= mass[self.parent[below]]
        return mass

    def expect(self, at_leaves: Float[np.ndarray, " leaves"]) -> Float[np.ndarray, " nodes"]:
        """V*(v) = E_{π_ref}[τ | v] = Σ_a π_ref(a | v) V*(va) at every node, for τ given at the leaves."""
        values = np.zeros(len(self))
        values[self.leaves] = _leaf_array("at_leaves", at_leaves, self)
        for depth in reversed(range(self.horizon)):
            here, below = self.level(depth), self.level(depth + 1)
            sums = self.sums(self.step[below] * values[below], depth)
            values[here] = np.where(self.leaf[here], values[here], sums)
        return values

    # -- prefixes ----------------------------------------------------------------------------------------------------

    def prefixes(self) -> Iterator[Int[Tensor, "level position"]]:
        """The token rows of level 0, 1, …, each level at once, the prompt in front."""
        rows = torch.tensor([self.prompt], dtype=torch.long).reshape(1, -1)
        yield rows
        for depth in range(1, self.horizon + 1):
            below = self.level(depth)
            above = torch.from_numpy(self.parent[below] - self.starts[depth - 1])
            rows = torch.cat([rows[above], torch.from_numpy(self.token[below])[:, None]], dim=1)
            yield rows

    def evaluate(
        self, function: Callable[[Int[Tensor, "batch position"]], Any], *, rows: int = _ROWS
    ) -> Float[np.ndarray, " nodes"]:
        """A number for every prefix, such as what a recogniser says: `function` is given rows of equal length."""
        found = []
        for prefix in self.prefixes():
            for block in prefix.split(rows):
                values = torch.as_tensor(function(block), dtype=torch.float64).detach().cpu().reshape(-1).numpy()
                if len(values) != len(block):
                    raise ArgumentError(f"function returned {len(values)} values: must be one for each of {len(block)}")
                found.append(values)
        return np.concatenate(found)

    def next_token_probs(self, prefix: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]:
        """π_ref after each row, prompt included: the tree as a law that can be sampled."""
        node = self.locate(prefix[:, len(self.prompt) :])
        if (node < 0).any() or self.leaf[node].any():
            raise ArgumentError("prefix: holds rows that are not inner nodes of the tree")
        first = np.searchsorted(self.parent, node)  # children stand next to each other, in the order of their parents
        last = np.searchsorted(self.parent, node, side="right")
        size = last - first
        row = np.repeat(np.arange(len(node)), size)
        child = np.repeat(last - np.cumsum(size), size) + np.arange(len(row))
        probs = np.zeros((len(node), self.vocab))
        probs[row, self.token[child]] = self.step[child]
        return torch.from_numpy(probs)

    def locate(
        self, tokens: Int[Tensor, "row position"], lengths: Int[Tensor, " row"] | None = None
    ) -> Int[np.ndarray, " row"]:
        """The node of every row (without its prompt), of which the first `lengths` tokens count; −1 if it is none."""
        x = torch.as_tensor(tokens).cpu().numpy()
        ends = np.full(len(x), x.shape[1]) if lengths is None else torch.as_tensor(lengths).cpu().numpy()
        names = self.parent[1:] * self.vocab + self.token[1:]  # rising, since nodes are in breadth-first order
        node = np.zeros(len(x), dtype=np.int64)
        for i in range(int(ends.max(initial=0))):
            going = (i < ends) & (node >= 0)
            name = node[going] * self.vocab + x[going, i]
            place = np.searchsorted(names, name).clip(max=len(names) - 1)
            node[going] = np.where(names[place] == name, place + 1, -1)
        return node

    def counts(
        self, tokens: Int[Tensor, "row position"], lengths: Int[Tensor, " row"] | None = None
    ) -> Int[np.ndarray, " leaves"]:
        """How many of the rows are each of the leaves; rows that end elsewhere are an error."""
        node = self.locate(tokens, lengths)
        if (node < 0).any() or not self.leaf[node].all():
            raise ArgumentError("tokens: holds rows that do not end in a leaf of the tree")
        return np.bincount(node, minlength=len(self))[self.leaves]


def _ask(
    ask: NextToken,
    prefix: Int[Tensor, "row position"],
    prompt: tuple[int, ...],
    truncation: NextToken | None,
    size: int | None,
    rows: int,
) -> Float[np.ndarray, "row vocab"]:
    """Next-token probabilities after every prefix, in float64 and with sums of exactly one."""
    found = []
    for block in prefix.split(whole("rows", rows)):
        front = torch.tensor(prompt, dtype=torch.long).expand(len(block), -1)
        probs = torch.as_tensor(ask(torch.cat([front, block], dim=1))).detach().to("cpu", torch.float64)
        probs = probs if truncation is None else truncation(probs).to(torch.float64)
        if probs.ndim != 2 or len(probs) != len(block) or (size is not None and probs.shape[1] != size):
            raise ArgumentError(
                f"the law returned shape {tuple(probs.shape)}: must be {len(block)} × {size or 'vocab'}"
            )
        totals = probs.sum(1, keepdim=True)
        if not bool((probs >= 0).all()) or not bool(((totals - 1).abs() < 1e-5).all()):
            raise ArgumentError("the law returned rows that are not probabilities: non-negative, with sum 1")
        found.append(probs / totals)
    return torch.cat(found).numpy()


def _leaf_array(name: str, values: Any, tree: Tree) -> Float[np.ndarray, " leaves"]:
    array = np.asarray(values, dtype=float)
    if array.shape != (len(tree.leaves),):
        raise ArgumentError(f"{name} of shape {array.shape}: must be one value for each of {len(tree.leaves)} leaves")
    return array


def node_array(name: str, values: Any, tree: Tree) -> Float[np.ndarray, " nodes"]:
    """`values` as non-negative numbers, one for every node."""
    array = np.asarray(values, dtype=float)
    if array.shape != (len(tree),):
        raise ArgumentError(f"{name} of shape {array.shape}: must be one value for each of {len(tree)} nodes")
    if not bool(np.isfinite(array).all()) or bool((array < 0).any()):
        raise ArgumentError(f"{name}: must be finite and ≥ 0")
    return array


def with_leaves(
    values: Float[np.ndarray, " nodes"], tree: Tree, at_leaves: Float[np.ndarray, " leaves"]
) -> Float[np.ndarray, " nodes"]:
    """`values` with those of the leaves replaced: the outcome reward is known exactly, the inner values are not."""
    changed = node_array("values", values, tree).copy()
    changed[tree.leaves] = _leaf_array("at_leaves", at_leaves, tree)
    return changed


@typed
def noised(
    values: Float[np.ndarray, " nodes"], tree: Tree, *, error: float, generator: torch.Generator
) -> Float[np.ndarray, " nodes"]:
    """V̂ = V·e^u at inner nodes, u uniform on ±ln(1 + error), so that V/(1+error) ≤ V̂ ≤ (1+error)·V; leaves exact."""
    if not error >= 0:
        raise ArgumentError(f"error={error!r}: must be a number ≥ 0")
    uniform = torch.rand(len(tree), generator=generator, dtype=torch.float64).numpy()
    factor = np.exp(np.log1p(error) * (2 * uniform - 1))
    return node_array("values", values, tree) * np.where(tree.leaf, 1.0, factor)
