"""Corridors in two layers, whatever their length: prefix sums, then the latest visit to a boundary (Theorem 12).

S + 1 states 0 … S, moves −1, 0, +1, N positions behind a first token ⊥. Layer 1 gives x_t = z_t/2N, z_t the prefix sum
of moves, on a circle. In layer 2 head s looks for the latest position with z_i = z_t + s − S and shows how late it is;
⊥ catches heads that find none. Between the values just reached at both boundaries lies one z that was left longer ago
than its neighbours: the state is the distance to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sandtable.theory.automata.compile.compiled import Compiled, built
from sandtable.theory.automata.compile.gadgets import larger, lookup, threshold
from sandtable.theory.automata.compile.heads import LOG, ONE, PAD, counting
from sandtable.theory.automata.compile.networks import Net, affine, beside, net, then
from sandtable.theory.automata.compile.program import Head, Layer, Part, Program, coordinate, part
from sandtable.worlds.automata import Automaton


def grid(
    automaton: Automaton,
    length: int,
    *,
    order: Sequence[int],
    moves: Sequence[int],
    padding: int | None = None,
    sentinel: bool = True,
    final: str = "S − s",
    turn: int = 1,
    sharpness: float = 1.0,
) -> Compiled:
    """Token σ moves by `moves[σ]` along the states in this `order`, as far as the ends.

    Before the inputs stand ⊥, `padding` = S + 1 moves to the left, then q_0 to the right (and S − q_0 stays, so that
    all start states need as many). Printed otherwise, and wrong: S moves (`padding=S`), heads that find nothing are
    taken to show t itself (`sentinel=False`), a formula that differs between the two boundaries (`final="printed"`),
    and W_Q transposed (`turn=-1`). `sharpness` multiplies the scale of the
    softmax that the theorem asks for.
    """
    states, tokens = automaton.n_states, automaton.n_tokens
    last = states - 1
    left = states if padding is None else padding
    pad, back, stay, ahead = range(tokens, tokens + 4)
    prefix = [
        [pad, *[back] * left, *[ahead] * place, *[stay] * (last - place)] for place in map(order.index, range(states))
    ]
    real = left + last + length
    scale, cost = sharpness * softmax_scale(real), cost_of_age(real)
    late = math.log(2 * real)
    age = [2 * late if sentinel else late] + [math.log(2 * real - t) for t in range(1, real + 1)]
    # ⊥ has a score of its own, between what a head that finds its value scores at least and the rest at most.
    caught = (1 - cost * math.log(2 * real - 1) + math.cos(math.pi / (2 * real)) - cost * math.log(real)) / 2
    if not sentinel:
        caught = -4.0
    angle = turn * math.pi / (2 * real)
    found = [f"found {s}" for s in range(2 * last + 1)]
    root = math.sqrt(scale)
    heads = tuple(
        Head(
            (
                {"cos": root * math.cos((s - last) * angle), "sin": -root * math.sin((s - last) * angle)},
                {"cos": root * math.sin((s - last) * angle), "sin": root * math.cos((s - last) * angle)},
                {ONE: root},
            ),
            ({"cos": root}, {"sin": root}, {LOG: -root * cost, PAD: root * (caught + cost * age[0])}),
            (coordinate(LOG),),
            (name,),
        )
        for s, name in enumerate(found)
    )
    sums = torch.arange(-real, real + 1, dtype=torch.float64) / (2 * real)
    circle = lookup(sums, torch.stack([(math.pi * sums).cos(), (math.pi * sums).sin()], 1))
    counted = Layer(
        (counting((coordinate("move"),), ("move",)),),
        # ⊥ would be taken for a sum of 0: moved off the table, it gets (0, 0) instead of (1, 0).
        ((Part(circle, ({"move": 1.0, PAD: 1.0},), ("cos", "sin")),),),
    )
    choose = _nearest(last, real, final)
    if not sentinel:
        choose = then(_without_own(last, real), choose)
    program = Program(
        vocab=tokens + 4,
        longest=real + 1,
        layers=[counted, Layer(heads, ((part(choose, [*found, LOG], ["place"]),),))],
        outputs=(coordinate("place"),),
        tokens={
            "move": [*map(float, moves), 0.0, -1.0, 0.0, 1.0],
            PAD: [0.0] * tokens + [1.0, 0.0, 0.0, 0.0],
            ONE: [1.0] * (tokens + 4),
        },
        positions={LOG: age},
    )
    return built(
        program,
        automaton,
        length,
        "grid",
        prefix=prefix,
        codes=[list(order)] * states,
        bound=grid_bound(last, real),
        facts=dict(real=real, scale=scale),
    )


def grid_bound(last: int, real: int) -> dict[str, float]:
    """What this construction adds up to; depth and heads are those of Theorem 12, the others are ours.

    The paper says for the rest: embedding O(1), MLP of width O(T), norms poly(T). All 2S + 1 heads write at once, so
    that embeddings have a coordinate for each. Norms: the circle's table has 8N; thresholds rise by 4N a unit, and
    differences of ages reach 3·log 2N; of a score's scale every query and key carries the root.
    """
    root, late = math.sqrt(softmax_scale(real)), math.log(2 * real)
    return dict(
        depth=2,
        width=6 + 2 * last + 2,
        heads=2 * last + 1,
        head_width=3,
        mlp_width=4 * (2 * real + 1),
        norm=max(root * (1 + 2 * late * cost_of_age(real)), 12 * real * late + 1),
    )


def cost_of_age(real: int) -> float:
    """c = π²/(16·ln 2·N²): between matches the later one wins, and no age outweighs a match."""
    return math.pi**2 / (16 * math.log(2) * real**2)


def softmax_scale(real: int) -> float:
    """Matches that follow each other differ by c/2N; the loser must not move the shown age by a tenth of its step."""
    gap = cost_of_age(real) / (2 * real)
    return math.log(2 * real * 2 * math.log(2 * real) / (0.1 / (2 * real))) / gap


def _nearest(last: int, real: int, final: str) -> Net:
    """F_s = max(found_s, found_{s+S}), s = 0 … S, has one least entry; the answer is S − s there.

    The "printed" answer is S − s only where the boundary reached last is 0 (B = 1), else 2S + 1 − s.
    """
    step, places = 1 / (2 * real), last + 1
    windows = torch.zeros(2 * last + 2, 2 * places, dtype=torch.float64)
    later = torch.zeros(2 * last + 2, places, dtype=torch.float64)
    for s in range(places):
        windows[s, 2 * s] = windows[s + last, 2 * s + 1] = 1.0
        later[s, s], later[s + last, s] = later[s, s] - 1.0, later[s + last, s] + 1.0
    oldest = then(affine(torch.cat([windows, later], 1)), beside([*[larger()] * places, affine(torch.eye(places))]))
    beyond = 3 * math.log(2 * real)  # beyond the ends everything is older
    differences = torch.zeros(2 * places, 3 * places, dtype=torch.float64)
    shift = torch.zeros(3 * places, dtype=torch.float64)
    for s in range(places):
        differences[places + s, 2 * places + s] = 1.0
        for k, other in enumerate((s - 1, s + 1)):
            differences[s, 2 * s + k] -= 1.0
            if 0 <= other < places:
                differences[other, 2 * s + k] += 1.0
            else:
                shift[2 * s + k] = beyond
    less = then(affine(differences, shift), beside([threshold(step / 4, 3 * step / 4)] * (3 * places)))
    # ReLU(a + b − 1) is "younger than both neighbours", ReLU(a + b + B − 2) is that and B.
    both = torch.zeros(3 * places, 2 * places, dtype=torch.float64)
    answers = torch.zeros(2 * places, 1, dtype=torch.float64)
    for s in range(places):
        both[[2 * s, 2 * s + 1], s] = 1.0
        both[[2 * s, 2 * s + 1, 2 * places + s], places + s] = 1.0
        answers[s], answers[places + s] = (last - s, 0.0) if final == "S − s" else (2 * last + 1 - s, -(last + 1))
    biases = -torch.cat([torch.ones(places), torch.full((places,), 2.0)])
    return then(then(oldest, less), net([both, answers], [biases, None]))


def _without_own(last: int, real: int) -> Net:
    """The printed test for a head that found nothing: it shows the age of t itself; then it counts as oldest of all."""
    step, heads = 1 / (2 * real), 2 * last + 1
    inputs = torch.zeros(heads + 1, 2 * heads, dtype=torch.float64)
    outputs = torch.zeros(2 * heads, heads + 1, dtype=torch.float64)
    shift = torch.zeros(heads + 1, dtype=torch.float64)
    older = 2 * math.log(2 * real)
    for s in range(heads):
        inputs[s, s], inputs[s, heads + s], inputs[heads, heads + s] = 1.0, 1.0, -1.0
        outputs[s, s] = 1.0
        if s != last:
            outputs[heads + s, s], shift[s] = -older, older
    parts = [affine(torch.eye(heads)), *[threshold(step / 4, 3 * step / 4)] * heads]
    return then(then(affine(inputs), beside(parts)), affine(outputs, shift))
