"""One layer: counters modulo n by uniform attention, memories by attention to the latest write."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.claims.automata.checking import damaged, on_long, on_short, tabled
from sandtable.claims.automata.sources import liu
from sandtable.lab import Claim, Control, Evidence, Lab, bounded, claim, exact, printed
from sandtable.theory.automata import Compiled, compile
from sandtable.theory.automata.compile import recognise
from sandtable.theory.automata.compile.counter import counter
from sandtable.theory.automata.compile.memory import memory
from sandtable.worlds.automata import Automaton, cyclic
from sandtable.worlds.automata import memory as memory_of

# -- counters --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counters:
    orders: tuple[int, ...] = (2, 3, 5, 8)
    limit: int = 60_000
    longest: int = 12
    long: tuple[tuple[int, int], ...] = ((8, 100), (5, 1000))
    rows: int = 50
    method: str = "counter"
    factor: float = 2.0
    with_start: bool = True
    total: str = "t"
    times: int = 1
    damage: str = "none"


@claim(
    id="automata/counter",
    statement=(
        "One layer with one head counts modulo n: attention gives (1/2T) Σ_{τ≤t} σ_τ, and a table (2T·s + q_0) mod n, "
        "exactly, within the sizes of the lemma."
    ),
    source=liu("Lemma 15, corrected"),
    scales={
        "smoke": Counters(orders=(2, 3, 5), limit=800, long=((8, 100),), rows=5),
        "desk": Counters(),
        "paper": Counters(orders=(*range(2, 9), 12), limit=1_000_000, rows=500),
    },
    controls=(
        Control(
            "positions one late",
            {"damage": "positions one late", "long": ((8, 100),)},
            ("wrong, all inputs", "wrong, long inputs", "distance to prefix sums"),
        ),
        Control("the same by doubling", {"method": "log", "long": ((3, 50),)}, ("layers",)),
        Control("a network for twice as many tokens", {"times": 2, "long": ((8, 100),)}, ("size over bound",)),
    ),
)
def counting(settings: Counters, lab: Lab) -> Evidence:
    def make(automaton: Automaton, length: int) -> Compiled:
        if settings.method == "log":
            return compile(automaton, length, method="log")
        found = recognise.counting(automaton)
        assert found is not None
        options = dict(factor=settings.factor, with_start=settings.with_start)
        how = dict(order=found.order, powers=found.powers, states=found.states)
        return damaged(counter(automaton, length, **how, **options), settings.damage)  # pyright: ignore[reportArgumentType]

    short = on_short(make, map(_counter, settings.orders), settings.limit, longest=settings.longest, device=lab.device)
    cases = [(_counter(n), length) for n, length in settings.long]
    long = on_long(make, cases, settings.rows, seed=lab.seeds[0], device=lab.device)
    over = [
        max(make(automaton, settings.times * length).sizes.over(make(automaton, length).bound).values())
        for automaton, length in cases
    ]
    known = settings.method == "counter"
    errors = [_prefix_error(make(*case), settings.total, lab) if known else math.nan for case in cases]
    return Evidence(
        [
            bounded("wrong, all inputs", short.wrong, 0.0, unit="order"),
            bounded("wrong, long inputs", long.wrong, 0.0, unit="pair (n, T)"),
            bounded("distance to prefix sums", errors, 1e-12, unit="pair (n, T)"),
            exact("layers", short.layers + long.layers, 1, unit="network"),
            bounded("size over bound", short.over + over, 1.0, atol=1e-9, unit="network"),
        ],
        tables={"counters": tabled(short, long)},
    )


def _counter(n: int) -> Automaton:
    return cyclic(n, name=f"C{n}")


def _prefix_error(compiled: Compiled, total: str, lab: Lab) -> float:
    """How far the head's output is from (1/2T) Σ σ_τ, summed up to t, or over all of the input."""
    length, tokens = compiled.length, compiled.automaton.n_tokens
    rows = torch.randint(tokens, (8, length), generator=lab.generator(lab.seeds[0], "rows"))
    name = "blocks.0.hook_attn_out"
    head = compiled.model(compiled.encode(rows, 0), want=(name,))[1][name][:, compiled.pads :]
    sums = rows.double().cumsum(1)
    wanted = (sums if total == "t" else sums[:, -1:].expand(-1, length)) / (2 * length)
    return float((head.sum(-1) - wanted).abs().max())  # the head writes one coordinate alone


# -- memories --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memories:
    states: tuple[int, ...] = (2, 3, 4)
    limit: int = 60_000
    longest: int = 9
    long: tuple[tuple[int, int], ...] = ((9, 400), (2, 1000))
    rows: int = 50
    bounds: tuple[tuple[int, int], ...] = ((2, 2), (2, 3), (2, 5), (3, 4), (2, 8), (4, 4), (16, 1), (3, 9), (9, 400))
    norm: str = "T·log(16nT) for nT < 16"
    method: str = "memory"
    sharpness: float = 1.0
    formula: float = 2.0
    damage: str = "none"


@claim(
    id="automata/memory",
    statement=(
        "One layer with one head holds a memory of n states: scores c(j/T − 2·1[σ_j keeps]) find the latest write up "
        "to 1/8, and a table rounds it; norms are at most 2T·log(nT) where nT ≥ 16, else T·log(16nT)."
    ),
    source=liu("Lemma 16, corrected"),
    scales={
        "smoke": Memories(states=(2, 3), limit=1200, long=((9, 100),), rows=5),
        "desk": Memories(),
        "paper": Memories(states=(2, 3, 4, 5, 6), limit=1_000_000, rows=500),
    },
    controls=(
        Control("positions one late", {"damage": "positions one late"}, ("wrong, all inputs", "wrong, long inputs")),
        Control("softmax scale a twentieth", {"sharpness": 0.05}, ("before rounding", "distance to the formula")),
        Control("softmax scale three times larger", {"sharpness": 3.0}, ("size over bound",)),
        Control("the same by doubling", {"method": "log", "long": ((3, 50),)}, ("layers",)),
    ),
)
def remembering(settings: Memories, lab: Lab) -> Evidence:
    def make(automaton: Automaton, length: int) -> Compiled:
        if settings.method == "log":
            return compile(automaton, length, method="log")
        found = recognise.writes(automaton)
        assert found is not None
        return damaged(memory(automaton, length, writes=found, sharpness=settings.sharpness), settings.damage)

    short = on_short(make, map(_memory, settings.states), settings.limit, longest=settings.longest, device=lab.device)
    cases = [(_memory(n), length) for n, length in settings.long]
    long = on_long(make, cases, settings.rows, seed=lab.seeds[0], device=lab.device)
    known = settings.method == "memory"
    raw, scores = zip(
        *(_before_rounding(make(*case), settings.formula, lab) if known else (math.nan, math.nan) for case in cases),
        strict=True,
    )
    over = [
        max(compiled.sizes.over({**compiled.bound, "norm": _norm(n, length, settings.norm)}).values())
        for n, length in settings.bounds
        for compiled in [make(_memory(n), length)]
    ]
    return Evidence(
        [
            bounded("wrong, all inputs", short.wrong, 0.0, unit="memory"),
            bounded("wrong, long inputs", long.wrong, 0.0, unit="pair (n, T)"),
            bounded("before rounding", raw, 1 / 8, unit="pair (n, T)"),
            bounded("distance to the formula", scores, 1e-9, unit="pair (n, T)"),
            exact("layers", short.layers + long.layers, 1, unit="network"),
            bounded("size over bound", over, 1.0, atol=1e-9, unit="pair (n, T)"),
        ],
        tables={"memories": tabled(short, long)},
    )


def _norm(n: int, length: int, where: str) -> float:
    """The largest weight allowed: of the keys, of the table that rounds."""
    small = where == "T·log(16nT) for nT < 16" and n * length < 16
    keys = length * math.log(16 * n * length) if small else 2 * length * math.log(n * length)
    return max(keys, 4 * n + 2)


def _memory(n: int) -> Automaton:
    return memory_of(n, name=f"memory of {n}")


def _before_rounding(compiled: Compiled, factor: float, lab: Lab) -> tuple[float, float]:
    """How far the head's output is from the state, and its scores from c(j/T − factor·1[σ_j keeps]), as a share."""
    automaton, length = compiled.automaton, compiled.length
    rows = torch.randint(automaton.n_tokens, (8, length), generator=lab.generator(lab.seeds[0], "rows"))
    names = ("blocks.0.hook_attn_out", "blocks.0.attn.hook_attn_scores")
    seen = compiled.model(compiled.encode(rows, 0), want=names)[1]
    head: Float[Tensor, "row position coordinate"] = seen[names[0]]
    states = automaton.simulate(rows, 0)
    scale = length * math.log(16 * automaton.n_states * length)
    clock = torch.arange(1, length + 1, dtype=torch.float64) / length
    wanted = scale * (clock - factor * (rows == 0).double())
    last = seen[names[1]][:, 0, -1]  # the last query sees every key
    return float((head.sum(-1) - states).abs().max()), float((last - wanted).abs().max() / scale)


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED: tuple[Claim, ...] = (
    printed(
        "counter-argument",
        counting,
        {"factor": 1.0, "long": ((8, 100),)},
        statement="With attention s = (1/2T) Σ σ_τ, the count modulo n is (T·s) mod n.",
        where="Lemma 15, argument of the MLP",
        erratum="T·s is half of the sum; the argument must be 2T·s.",
    ),
    printed(
        "counter-start",
        counting,
        {"with_start": False, "long": ((8, 100),)},
        statement="The state of the counter is (2T·s) mod n for every start state.",
        where="Lemma 15, start state",
        erratum="q_0 is missing: the state is (2T·s + q_0) mod n.",
    ),
    printed(
        "counter-sum",
        counting,
        {"total": "T", "long": ((8, 100),)},
        statement="The head of the counter gives (1/2T) Σ_{τ≤T} σ_τ at every position.",
        where="Lemma 15, the displayed sum",
        erratum="Under the causal mask position t sees τ ≤ t only, and only these count towards q_t.",
    ),
    printed(
        "memory-scores",
        remembering,
        {"formula": 1.0},
        statement="The weights of the memory give scores c(j/T − 1[σ_j = ⊥]).",
        where="Lemma 16, the displayed score",
        erratum="W_Q has a factor of 2 on the second term: scores are c(j/T − 2·1[σ_j = ⊥]). Both would work.",
    ),
    printed(
        "memory-norm",
        remembering,
        {"norm": "2T·log(nT)"},
        statement="A memory of n states for T tokens has weights of at most 2T·log(nT), or 4n + 2 if that is more.",
        where="Lemma 16, norm",
        erratum="T·log(16nT) ≤ 2T·log(nT) only where nT ≥ 16: for n = 2, T = 3 the largest weight is 13.7, not 10.8.",
    ),
)

CLAIMS = (counting, remembering, *PRINTED)
