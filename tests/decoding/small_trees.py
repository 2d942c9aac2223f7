"""Small trees of prefixes whose laws are written out by plain recursion: what decoders are compared with."""

import itertools
from collections import Counter

import torch

from sandtable.decoding import ExactModel, TransformerModel
from sandtable.models import Transformer


class SmallTree:
    """All prefixes of up to `horizon` tokens under next-token laws `probs[prefix]`; `eos` ends a string early."""

    def __init__(self, lm, prompt, probs, vocab, horizon, eos):
        self.lm, self.prompt, self.probs, self.vocab, self.horizon, self.eos = lm, prompt, probs, vocab, horizon, eos
        self.nodes = [()]
        for node in self.nodes:
            if not self.leaf(node):
                self.nodes += [(*node, token) for token in range(vocab)]
        self.leaves = [node for node in self.nodes if self.leaf(node)]

    def leaf(self, node):
        return len(node) == self.horizon or (len(node) > 0 and node[-1] == self.eos)

    def children(self, node):
        return [] if self.leaf(node) else [(*node, token) for token in range(self.vocab)]

    def base(self, node):
        """π_ref of a prefix."""
        result = 1.0
        for size in range(len(node)):
            result *= self.probs[node[:size]][node[size]]
        return result

    def value(self, tau):
        """V*: the expectation of `tau` over what follows, at every node."""
        values = {}
        for node in reversed(self.nodes):
            inside = sum(p * values[c] for p, c in zip(self.probs.get(node, ()), self.children(node), strict=False))
            values[node] = tau[node] if self.leaf(node) else inside
        return values

    def tilted(self, tau):
        return normalised({leaf: self.base(leaf) * tau[leaf] for leaf in self.leaves})

    def descend(self, weigh):
        """Law of the leaf reached when every child is taken in proportion to `weigh(p, child)`."""
        mass = {(): 1.0}
        for node in self.nodes:
            weights = [weigh(p, c) for p, c in zip(self.probs.get(node, ()), self.children(node), strict=False)]
            for child, weight in zip(self.children(node), weights, strict=True):
                mass[child] = mass[node] * weight / sum(weights) if mass[node] else 0.0
        return {leaf: mass[leaf] for leaf in self.leaves}

    def verifier(self, values, is_value=False):
        return Lookup(self, values, is_value)

    def frequencies(self, made):
        """How often every completion came out, of the rows that did not fail."""
        kept = [tuple(row) for row, good in zip(made.completions, made.accepted.tolist(), strict=True) if good]
        return {node: count / len(kept) for node, count in Counter(kept).items()}


class Lookup:
    """The values of nodes as a verifier, from one dense table: rows are numbers in base V + 1, prompts left out."""

    needs = None

    def __init__(self, tree, values, is_value):
        self.is_value, self.base = is_value, tree.vocab + 1
        self.table = torch.full((self.base**tree.horizon,), torch.nan, dtype=torch.float64)
        for node, value in values.items():
            self.table[sum((token + 1) * self.base**i for i, token in enumerate(node))] = value

    def code(self, view):
        place = torch.arange(view.tokens.shape[1]) - view.prompts[:, None]
        inside = (place >= 0) & (place < (view.lengths - view.prompts)[:, None])
        digits = torch.where(inside, (view.tokens + 1) * self.base ** place.clamp(min=0), 0)
        return digits.sum(1)

    def score(self, view):
        return self.table[self.code(view)]


class Children(Lookup):
    """The same, but only for all children of a node at once."""

    def score(self, view):
        raise AssertionError("children were to be asked for")

    def score_children(self, view):
        tokens = torch.arange(1, self.base) * self.base ** (view.lengths - view.prompts)[:, None]
        return self.table[self.code(view)[:, None] + tokens]


def random_tree(vocab=3, horizon=3, eos=None, seed=0, zeros=0.0):
    """Random next-token laws, drawn for every prefix, some of them without some tokens."""
    generator = torch.Generator().manual_seed(seed)
    tables, probs = [], {}
    for size in range(horizon):
        weights = torch.rand(vocab**size, vocab, generator=generator, dtype=torch.float64) + 0.05
        weights *= torch.rand(weights.shape, generator=generator) >= zeros
        weights[:, 0] += 0.05
        tables.append(weights / weights.sum(1, keepdim=True))
        for number, node in enumerate(itertools.product(range(vocab), repeat=size)):
            probs[node] = tables[size][number].tolist()

    def law(prefix):
        places = vocab ** torch.arange(prefix.shape[1] - 1, -1, -1)
        return tables[prefix.shape[1]][(prefix * places).sum(1)]

    return SmallTree(ExactModel(law, vocab=vocab, eos=eos), [], probs, vocab, horizon, eos)


def network_tree(vocab=3, horizon=3, eos=None, seed=0):
    """The tree of a small random Transformer after a prompt, from forward passes without a cache."""
    network = Transformer(vocab, layers=2, heads=2, width=16, mlp=32, norm="pre", causal=True, longest=12, tied=False)
    network = network.double().initialise(torch.Generator().manual_seed(seed), scale=25.0).double()
    prompt, probs = [1, 0, 2], {}
    with torch.no_grad():
        for size in range(horizon):
            for node in itertools.product(range(vocab), repeat=size):
                probs[node] = network(torch.tensor([[*prompt, *node]]))[0, -1].softmax(-1).tolist()
    return SmallTree(TransformerModel(network, eos=eos), prompt, probs, vocab, horizon, eos)


def normalised(weights):
    total = sum(weights.values())
    return {node: weight / total for node, weight in weights.items()}


def random_values(nodes, seed, low=0.0, high=1.0):
    generator = torch.Generator().manual_seed(seed)
    return {node: low + (high - low) * float(torch.rand((), generator=generator)) for node in nodes}


def distance(p, q):
    """Total variation. Between a law on K strings and N draws from it, it is on average at most √(K / 2πN)."""
    return 0.5 * sum(abs(p.get(node, 0.0) - q.get(node, 0.0)) for node in {*p, *q})


def best_law(law, n, keep):
    """Law of the one of `n` draws from `law` whose place `keep(candidates)` says, by going through all n-tuples."""
    result = Counter()
    for candidates in itertools.product([node for node in law if law[node]], repeat=n):
        weight = 1.0
        for node in candidates:
            weight *= law[node]
        result[candidates[keep(candidates)]] += weight
    return dict(result)
