"""Automata whose tokens are bijections of a solvable group: three ways to multiply by counting, in as many layers for
all lengths."""

from __future__ import annotations

from dataclasses import dataclass

from sandtable.arguments import one_of
from sandtable.claims.automata.checking import damaged, on_long, on_short, tabled
from sandtable.claims.automata.sources import liu
from sandtable.lab import Claim, Control, Evidence, Lab, bounded, claim, exact, printed
from sandtable.theory.automata import Compiled, PermutationGroup, compile
from sandtable.theory.automata.compile.groups import from_simulator
from sandtable.theory.automata.compile.simulators import Simulator, cocycle, semidirect, wreath
from sandtable.worlds.automata import Automaton, fixture

LENGTHS = (8, 16, 32, 64)
"""At which the number of layers is compared."""
PAPER = dict(limit=1_000_000, rows=500)
LATE = Control("positions one late", {"damage": "positions one late"}, ("wrong, all inputs", "wrong, long inputs"))
DOUBLED = Control("the same by doubling", {"instead": "log"}, ("layers", "layers that depend on T", "size over bound"))


@dataclass(frozen=True)
class Groups:
    """`names` with the number of attention layers that each needs."""

    names: tuple[tuple[str, int], ...]
    method: str = "cocycle"
    limit: int = 20_000
    length: int = 100
    rows: int = 50
    third: str = "N"
    instead: str = ""
    damage: str = "none"


def _multiply(settings: Groups, lab: Lab) -> Evidence:
    def make(automaton: Automaton, length: int) -> Compiled:
        if settings.instead:
            return compile(automaton, length, method=settings.instead)
        made = from_simulator(automaton, length, _simulator(automaton, length, settings), settings.method)
        return damaged(made, settings.damage)

    automata = [fixture(name) for name, _ in settings.names]
    short = on_short(make, automata, settings.limit, device=lab.device)
    cases = [(automaton, settings.length) for automaton in automata]
    long = on_long(make, cases, settings.rows, seed=lab.seeds[0], device=lab.device)
    over = [
        max(make(automaton, length).sizes.over(_simulator(automaton, length, settings).bound.record).values())
        for automaton, length in cases
    ]
    grows = [make(a, length).sizes.depth - make(a, LENGTHS[0]).sizes.depth for a in automata for length in LENGTHS]
    return Evidence(
        [
            bounded("wrong, all inputs", short.wrong, 0.0, unit="group"),
            bounded("wrong, long inputs", long.wrong, 0.0, unit="group"),
            exact("layers", long.layers, [layers for _, layers in settings.names], unit="group"),
            bounded("layers that depend on T", grows, 0.0, unit="pair (group, T)"),
            bounded("size over bound", over, 1.0, atol=1e-9, unit="group"),
        ],
        tables={"groups": tabled(short, long)},
        notes=[
            "Layers are those with attention; the paper also counts MLPs between them, up to twice as many and one."
        ],
    )


def _simulator(automaton: Automaton, length: int, settings: Groups) -> Simulator:
    group = PermutationGroup.of(automaton)
    if one_of("method", settings.method, ("cocycle", "semidirect", "wreath")) == "semidirect":
        return semidirect(group, length, third=settings.third)
    return (cocycle if settings.method == "cocycle" else wreath)(group, length)


COCYCLES = Groups((("C6", 1), ("C2x2x2", 1), ("D6", 2), ("D8", 2), ("Q8", 2), ("A4", 2), ("S4", 3)))
SEMIDIRECT = Groups((("D6", 2), ("D8", 2), ("A4", 2), ("S4", 3)), "semidirect")
WREATHS = Groups((("D6", 2), ("D8", 2), ("Q8", 2), ("A4", 3), ("S4", 4)), "wreath")


def _scales(desk: Groups, smoke: tuple[tuple[str, int], ...]) -> dict[str, Groups]:
    return {
        "smoke": Groups(smoke, desk.method, limit=600, length=30, rows=3),
        "desk": desk,
        "paper": Groups(desk.names, desk.method, limit=1_000_000, rows=500),
    }


@claim(
    id="automata/cocycle",
    statement=(
        "Every solvable group is multiplied up its derived series, split or not, by one copy of each abelian factor in "
        "one layer: exactly, within the sizes of the theorem, in as many layers for all T."
    ),
    source=liu("Theorem 16, by another construction: h_t is counted, then c_t = t(h_t)⁻¹ σ_t t(h_{t−1}) ∈ N"),
    scales=_scales(COCYCLES, (("D6", 2), ("Q8", 2))),
    controls=(LATE, DOUBLED),
)
def cocycles(settings: Groups, lab: Lab) -> Evidence:
    return _multiply(settings, lab)


@claim(
    id="automata/semidirect",
    statement=(
        "G = N⋊H is multiplied by counting in H, turning by φ⁻¹, multiplying in N and turning back: exactly, within "
        "the sizes of the lemma, in as many layers for all T."
    ),
    source=liu("Lemma 18, stages corrected"),
    scales=_scales(SEMIDIRECT, (("D6", 2), ("D8", 2))),
    controls=(LATE, DOUBLED),
)
def semidirects(settings: Groups, lab: Lab) -> Evidence:
    return _multiply(settings, lab)


@claim(
    id="automata/wreath",
    statement=(
        "Any extension of N by H, the quaternions among them, is multiplied inside N≀H by |H| copies of N that H "
        "permutes: exactly, within the sizes of the lemma, in as many layers for all T."
    ),
    source=liu("Lemma 19 and Theorem 16"),
    scales=_scales(WREATHS, (("D6", 2), ("Q8", 2))),
    controls=(LATE, DOUBLED),
)
def wreaths(settings: Groups, lab: Lab) -> Evidence:
    return _multiply(settings, lab)


PRINTED: tuple[Claim, ...] = (
    printed(
        "semidirect-stages",
        semidirects,
        {"third": "H"},
        statement="The third stage of the semidirect construction is the network that simulates H.",
        where="Lemma 18, stage 3",
        erratum="H was simulated in the first stage; the turned elements lie in N, whose network must come third.",
    ),
)

CLAIMS = (cocycles, semidirects, wreaths, *PRINTED)
