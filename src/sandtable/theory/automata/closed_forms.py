"""Numbers of automata that are known without running them: orders of semigroups and groups, and what position tells.

A corridor's words are the maps x ↦ min(max(x + a, low), high); a stack's are "pop w, then push v, rising by m on the
way", defined where the stack ends in w and m brackets more have room, and the trap everywhere.
"""

from __future__ import annotations

from math import factorial

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import typed, whole
from sandtable.worlds.automata import Automaton
from sandtable.worlds.automata.fixtures import as_automaton

MOST_DEPTH = 1000
"""Numbers of many more digits than this are of no use."""


@typed
def grid_order(n: int, *, stay: bool = False) -> int:
    """|T(Grid_n)| = n(n−1)(2n−1)/6 + n − 1, and one more where a token keeps (n ≥ 2)."""
    whole("n", n, least=2)
    return n * (n - 1) * (2 * n - 1) // 6 + n - 1 + stay


@typed
def stacks(n: int, k: int) -> int:
    """How many stacks hold at most n brackets of k types."""
    whole("n", n, least=0, most=MOST_DEPTH)
    whole("k", k)
    return sum(k**depth for depth in range(n + 1))


@typed
def dyck_order(n: int, k: int) -> int:
    """|T(Dyck_{n,k})| = Σ_{j≤n} s_j², s_j the number of stacks of depth at most j, with the trap as a state.

    A map that is not constant is pop w, push v and the rise m: kᵖ⁺ᵍ choices of |w| = p, |v| = q for each of the
    n + 1 − max(p, q) values of m. No word is the identity; the map to the trap takes its place in the sum.
    """
    return sum(stacks(j, k) ** 2 for j in range(whole("n", n, least=0, most=MOST_DEPTH) + 1))


@typed
def full_orders(n: int) -> tuple[int, ...]:
    """Orders of the groups of all maps on n points, by rank from the top: n!, (n−1)!, …, 2."""
    return tuple(factorial(rank) for rank in range(whole("n", n, most=MOST_DEPTH), 1, -1))


def rubik_order() -> int:
    """Places and turns of eight corners and twelve edges, of which one in 2·3·2 can be reached by turning faces."""
    return factorial(8) * 3**8 * factorial(12) * 2**12 // 12


def rubik_bound() -> int:
    """|C_3 ≀ S_8|·|C_2 ≀ S_12|: corners and edges taken apart and put back in any way."""
    return 3**8 * factorial(8) * 2**12 * factorial(12)


# -- what position alone tells ---------------------------------------------------------------------------------------


@typed
def state_laws(automaton: Automaton | str, length: int | None = None) -> Float[Tensor, "position state"]:
    """P(q_t = q) for t = 1 … T, exactly: states are a Markov chain where the input law looks at nothing but them."""
    automaton = as_automaton(automaton)
    law, table, steps = automaton.token_law(), automaton.tensor(), automaton.length if length is None else length
    chain = torch.zeros(automaton.n_states, automaton.n_states, dtype=torch.float64)
    chain.scatter_add_(1, table, law.contiguous())
    found = torch.empty(whole("length", steps), automaton.n_states, dtype=torch.float64)
    now = torch.zeros(automaton.n_states, dtype=torch.float64)
    now[automaton.start] = 1.0
    for row in found:
        now = now @ chain
        row.copy_(now)
    return found


@typed
def label_laws(automaton: Automaton | str, length: int | None = None) -> Float[Tensor, "position label"]:
    """P(φ(q_t) = y) for t = 1 … T."""
    automaton = as_automaton(automaton)
    states = state_laws(automaton, length)
    if automaton.observe is None:
        return states
    labels = torch.zeros(len(states), automaton.n_labels, dtype=torch.float64)
    return labels.index_add_(1, torch.tensor(automaton.observe), states)


@typed
def chance(automaton: Automaton | str, length: int | None = None) -> float:
    """(1/T) Σ_t max_y P(φ(q_t) = y): the accuracy of the best answer that looks at the position only."""
    return float(label_laws(automaton, length).amax(1).mean())
