"""What walks on trees of prefixes have learnt about the nodes they were at."""

from __future__ import annotations

from typing import NamedTuple

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


class Nodes:
    """Every node a walk was at: its value, the model's law there and the values of the children that are listed.

    Node r is the root of row r; a child is found by its parent and its last token. The `listed` likeliest children of a
    node have their values known; all others together weigh, at most, their probability times `bound`. With
    `remember=False` a row has one node, which forgets everything whenever the row moves.
    """

    def __init__(self, call: Call, values: Values, listed: int, bound: float, *, remember: bool) -> None:
        self.call, self.values_of = call, values
        self.bound, self.remember = bound, remember
        rows, vocab = len(call.session), call.model.vocab_size
        listed = min(listed, vocab)
        self._roots, self._ids = rows, dict[int, int]()  # parent · vocab + token → child
        kept = torch.float64 if call.session.logits().dtype == torch.float64 else torch.float32
        device = call.ends.device
        self.known = torch.zeros(rows, dtype=torch.bool, device=device)
        self.parent = torch.arange(rows, device=device)
        self.value = torch.full((rows,), torch.nan, dtype=torch.float64, device=device)
        self.law = torch.zeros(rows, vocab, dtype=kept, device=device)
        self.tokens = torch.arange(listed, device=device).repeat(rows, 1)
        self.values = torch.zeros(rows, listed, dtype=kept, device=device)

    def child(
        self, at: Int[Tensor, " row"], tokens: Int[Tensor, " row"], rows: Bool[Tensor, " row"]
    ) -> Int[Tensor, " row"]:
        """For `rows`, the nodes one token below `at`."""
        if not self.remember:
            return at
        ids, roots, start = self._ids, self._roots, at[rows]
        keys = (start * self.law.shape[1] + tokens[rows]).tolist()
        found = torch.tensor([ids.setdefault(key, roots + len(ids)) for key in keys], dtype=torch.long).to(at)
        self._reserve(roots + len(ids))
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
            law = self.call.law.probs(self.call.session.logits(rows)[index])
            listed, vocab = self.tokens.shape[1], law.shape[1]
            tokens = (
                law.topk(listed).indices if listed < vocab else torch.arange(vocab, device=law.device).expand_as(law)
            )
            want = torch.zeros(len(rows), vocab, dtype=torch.bool, device=law.device)
            want[index] = torch.zeros_like(law, dtype=torch.bool).scatter_(1, tokens, True) & (law > 0)
            values, nodes = self.values_of.children(want)[index].gather(1, tokens), at[index]
            self.law[nodes], self.values[nodes], self.tokens[nodes] = law.to(self.law), values.to(self.values), tokens
            self.known[nodes] = True

    def propose(self, at: Int[Tensor, " row"], rows: Bool[Tensor, " row"], leaf: Bool[Tensor, " row"]) -> Moves:
        """For `rows`, a neighbour in proportion to its weight: V̂(y) of the parent, p(t | y) · V̂(y∘t) of a child.

        Children that are not listed weigh p · bound, and one of them is a proposal only.
        """
        call, index = self.call, rows.nonzero()[:, 0]
        root, leaf, at = (call.session.lengths <= call.session.prompts)[index], leaf[index], at[index]
        law, tokens, values = self.law[at], self.tokens[at], self.values[at]
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

    def _reserve(self, count: int) -> None:
        """Room for `count` nodes; it doubles, so that adding node by node is cheap all in all."""
        have = len(self.known)
        if count <= have:
            return
        blanks = {"known": False, "parent": 0, "value": torch.nan, "law": 0.0, "tokens": 0, "values": 0.0}
        for name, blank in blanks.items():
            old = getattr(self, name)
            new = old.new_full((max(count, 2 * have), *old.shape[1:]), blank)
            new[:have] = old
            setattr(self, name, new)
