"""What walks on trees of prefixes have learnt about the nodes they were at."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.decoding.driver import Call
from sandtable.decoding.truncation import inverse_cdf
from sandtable.decoding.values import Values


class Moves(NamedTuple):
    """Where walks would go next: to the parent, or to the child `token`; both False and zero for walks not asked."""

    stuck: Bool[Tensor, " row"]
    """All neighbours have weight zero."""
    up: Bool[Tensor, " row"]
    token: Int[Tensor, " row"]
    value: Float[Tensor, " row"]
    """The child's."""
    proposed: Bool[Tensor, " row"]
    """The child is a proposal of unknown value, to be taken with probability value / bound."""


_HELD = 2**26
"""How many numbers of laws and values are held where nothing else is said: 256 MiB in float32."""


class Nodes:
    """Every node a walk was at: its value, the model's law there and the values of the children that are listed.

    Node r is the root of row r; a child is found by its parent and its last token. The `listed` likeliest children of a
    node have their values known; all others together weigh, at most, their probability times `bound`. With
    `remember=False` a row has one node, which forgets everything whenever the row moves.

    Laws are as wide as the vocabulary: only those of the `most` nodes that walks were at last are held, in *slots*, and
    the model is asked anew where a walk comes back to another. `known` nodes are those whose slot holds their law.
    """

    def __init__(
        self, call: Call, values: Values, listed: int, bound: float, *, remember: bool, most: int | None = None
    ) -> None:
        self.call, self.values_of = call, values
        self.bound, self.remember = bound, remember
        rows, vocab = len(call.session), call.model.vocab_size
        listed = min(listed, vocab)
        self._roots, self._ids = rows, dict[int, int]()  # parent · vocab + token → child
        kept = torch.float64 if call.session.logits().dtype == torch.float64 else torch.float32
        width = 2 * vocab if listed == vocab else vocab + 2 * listed
        self.most = max(rows, _HELD // width if most is None else most)  # a walk needs the law of the node it is at
        self.known = torch.zeros(rows, dtype=torch.bool)
        self.slot = torch.full_like(self.known, -1, dtype=torch.long)
        self.parent = torch.arange(rows)
        self.value = torch.full((rows,), torch.nan, dtype=torch.float64)
        # Of every slot: whose it is, when a walk was last there, the law, and the children that are listed.
        self.owner = torch.zeros(0, dtype=torch.long)
        self.used = torch.zeros(0, dtype=torch.long)
        self.law = torch.zeros(0, vocab, dtype=kept)
        self.values = torch.zeros(0, listed, dtype=kept)
        self.tokens = torch.zeros(0, listed if listed < vocab else 0, dtype=torch.long)
        self._all = torch.arange(vocab) if listed == vocab else None
        self._filled = self._clock = 0

    def child(
        self, at: Int[Tensor, " row"], tokens: Int[Tensor, " row"], rows: Bool[Tensor, " row"]
    ) -> Int[Tensor, " row"]:
        """For `rows`, the nodes one token below `at`."""
        if not self.remember:
            return at
        ids, roots, start = self._ids, self._roots, at[rows]
        keys = (start * self.law.shape[1] + tokens[rows]).tolist()
        found = torch.tensor([ids.setdefault(key, roots + len(ids)) for key in keys], dtype=torch.long).to(at)
        self._reserve(roots + len(ids), known=False, slot=-1, parent=0, value=torch.nan)
        self.parent[found] = start
        return at.masked_scatter(rows, found)

    def recall(self, at: Int[Tensor, " row"]) -> Float[Tensor, " row"]:
        """The values of nodes, NaN if they are not known."""
        return self.value[at] if self.remember else torch.full_like(self.value, torch.nan)

    def learn(self, below: Tensor, value: Tensor, down: Tensor, rejected: Tensor) -> None:
        """The values of the children that walks in `down` looked at; but for those `rejected` they are there now."""
        rows = down if self.remember else down & ~rejected
        self.value[below[rows]] = value[rows]
        if not self.remember:
            self.known = self.known & ~rows

    def above(self, at: Int[Tensor, " row"], rows: Bool[Tensor, " row"]) -> Int[Tensor, " row"]:
        """The nodes of all walks when `rows`, just rewound by a token, have gone to the parent of theirs."""
        if self.remember:
            return self.parent[at].where(rows, at)
        self.known = self.known & ~rows
        inner = rows & (self.call.session.lengths > self.call.session.prompts)
        self.value = self.values_of.here(inner).where(rows, self.value)
        return at

    def new(self, at: Int[Tensor, " row"], rows: Bool[Tensor, " row"]) -> Bool[Tensor, " row"]:
        """Those of `rows` whose nodes are not known so far."""
        return rows & ~self.known[at]

    def read(self, at: Int[Tensor, " row"], rows: Bool[Tensor, " row"]) -> None:
        """Ask the model and the verifier about the nodes of `rows`."""
        index = rows.nonzero()[:, 0]
        if len(index):
            logits = self.call.session.logits(rows)
            law = self.call.law.probs(logits[index.to(logits.device)]).cpu()
            tokens = law.topk(self.values.shape[1]).indices if self._all is None else self._all.expand_as(law)
            want = torch.zeros(len(rows), law.shape[1], dtype=torch.bool)
            want[index] = torch.zeros_like(law, dtype=torch.bool).scatter_(1, tokens, True) & (law > 0)
            values, slots = self.values_of.children(want)[index].gather(1, tokens), self._slots(at[index], at)
            self.law[slots], self.values[slots] = law.to(self.law), values.to(self.values)
            if self._all is None:
                self.tokens[slots] = tokens
            self.known[at[index]] = True

    def propose(self, at: Int[Tensor, " row"], rows: Bool[Tensor, " row"], leaf: Bool[Tensor, " row"]) -> Moves:
        """For `rows`, a neighbour in proportion to its weight: V̂(y) of the parent, p(t | y) · V̂(y∘t) of a child.

        Children that are not listed weigh p · bound, and one of them is a proposal only.
        """
        call, index = self.call, rows.nonzero()[:, 0]
        root, leaf, at = (call.session.lengths <= call.session.prompts)[index], leaf[index], at[index]
        slots, self._clock = self.slot[at], self._clock + 1
        self.used[slots] = self._clock
        law, values = self.law[slots], self.values[slots]
        tokens = self.tokens[slots] if self._all is None else self._all.expand_as(law)
        rest, listed = law.scatter(1, tokens, 0.0), tokens.shape[1]
        up = self.value[at].masked_fill(root, 0.0)
        below = torch.cat([law.gather(1, tokens) * values, rest.sum(1, keepdim=True) * self.bound], dim=1).double()
        weights = torch.cat([up[:, None], below.masked_fill(leaf[:, None], 0.0)], dim=1)
        column = inverse_cdf(weights, call.draws.uniform(rows)[index])
        proposed = column > listed
        token, value = torch.zeros_like(column), torch.full_like(up, torch.nan)
        if listed:
            place = (column - 1).clamp(0, listed - 1)[:, None]
            token, value = tokens.gather(1, place)[:, 0], values.gather(1, place)[:, 0].double()
        if listed < law.shape[1]:
            token = inverse_cdf(rest, call.draws.uniform(rows)[index]).where(proposed, token)
        stuck = weights.sum(1) == 0
        found = Moves(stuck, (column == 0) & ~stuck, token, value, proposed & ~stuck)
        return Moves(*(part.new_zeros(len(rows)).index_copy(0, index, part) for part in found))

    def _slots(self, nodes: Int[Tensor, " some"], at: Int[Tensor, " row"]) -> Int[Tensor, " some"]:
        """A slot for each of `nodes`; where there are no more, those in which walks were longest ago are given away."""
        homeless = nodes[self.slot[nodes] < 0]
        fresh = min(len(homeless), self.most - self._filled)
        self._filled += fresh
        self._reserve(self._filled, most=self.most, owner=0, used=0, law=0.0, values=0.0, tokens=0)
        slots = torch.arange(self._filled - fresh, self._filled)
        if fresh < len(homeless):
            here = self.slot[at]
            self.used[here[here >= 0]] = self._clock + 1  # nodes that walks are at keep theirs
            self.used[slots] = self._clock + 1
            old = self.used[: self._filled].topk(len(homeless) - fresh, largest=False).indices
            self.known[self.owner[old]] = False
            self.slot[self.owner[old]] = -1
            slots = torch.cat([slots, old])
        self.slot[homeless], self.owner[slots] = slots, homeless
        return self.slot[nodes]

    def _reserve(self, count: int, *, most: int | None = None, **blanks: Any) -> None:
        """Room for `count` rows in the named arrays, filled up with blanks; it doubles, so that adding is cheap."""
        for name, blank in blanks.items():
            old = getattr(self, name)
            if count > len(old):
                size = max(count, 2 * len(old))
                new = old.new_full((size if most is None else min(size, most), *old.shape[1:]), blank)
                new[: len(old)] = old
                setattr(self, name, new)
