"""Group extensions, and what a Transformer is written out: the identities behind the constructions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Float

from sandtable.claims.automata.sources import liu
from sandtable.lab import Claim, Control, Evidence, Lab, Table, bounded, claim, exact, printed
from sandtable.theory.automata import (
    Compiled,
    Extension,
    PermutationGroup,
    compile,
    normal_subgroups,
    prime_series,
    wreath_product,
)
from sandtable.theory.automata.permutations import conjugate, power, times
from sandtable.worlds.automata import Map, fixture

# -- extensions ------------------------------------------------------------------------------------------------------

CASES = (("Q8", 4, 32), ("Q8", 2, 64), ("S4", 12, 288), ("D8", 4, 32), ("A4", 4, 192))
"""A group, the order of a normal subgroup N, and that of N≀(G/N)."""
SPLIT = {"D6": True, "D8": True, "S4": True, "A4": True, "Q8": False}
"""Whether some normal subgroup other than {e} and G has a complement."""


@dataclass(frozen=True)
class Extensions:
    cases: tuple[tuple[str, int, int], ...] = CASES
    words: int = 200
    order: str = "xy"
    turn: str = "inverse"
    names: tuple[str, ...] = tuple(SPLIT)
    tokens: str = "all"
    copy: int = 0


@claim(
    id="automata/extensions",
    statement=(
        "x ↦ (f_x, x̄), f_x(h) = t(h)·x·t(h·x̄)⁻¹, embeds every extension of N by H in N≀H, and f(e)·t(h) leads back; "
        "Q_8 is no semidirect product of smaller groups; Π φ⁻¹_{h≤τ}(n_τ) = φ⁻¹_{h≤t}(n_{≤t})."
    ),
    source=liu("Lemmas 18 and 19 (Krasner & Kaloujnine)"),
    scales={"smoke": Extensions(cases=(CASES[0], CASES[3]), words=40), "desk": Extensions()},
    controls=(
        Control("products the other way round", {"order": "yx"}, ("products not kept",)),
        Control("φ for φ⁻¹", {"turn": "direct"}, ("turned products",)),
        Control("read from another copy", {"copy": 1}, ("elements that do not come back",)),
        Control("one generator left out", {"tokens": "all but one"}, ("orders of N≀H", "which groups split")),
    ),
)
def extensions(settings: Extensions, lab: Lab) -> Evidence:
    broken, lost, orders = [], [], []
    for name, size, _ in settings.cases:
        extension = _extension(_group(name, settings.tokens), size)
        group = extension.group.elements
        images = {x: extension.embed(x) for x in group}
        orders.append(extension.wreath.order)
        roll = settings.copy
        lost.append(sum(extension.unembed((*f[roll:], *f[:roll]), h) != x for x, (f, h) in images.items()))
        as_points = {x: extension.wreath.element(*images[x]) for x in group}
        broken.append(
            sum(
                times(as_points[x], as_points[y]) != as_points[times(x, y) if settings.order == "xy" else times(y, x)]
                for x, y in product(group, group)
            )
        )
    splits = [_splits(_group(name, settings.tokens)) == SPLIT[name] for name in settings.names]
    return Evidence(
        [
            bounded("products not kept", broken, 0.0, unit="extension"),
            bounded("elements that do not come back", lost, 0.0, unit="extension"),
            exact("orders of N≀H", orders, [order for _, _, order in settings.cases], unit="extension"),
            exact("which groups split", splits, 1, unit="group"),
            bounded("turned products", _turned(settings, lab), 0.0, unit="word"),
        ]
    )


def _group(name: str, tokens: str) -> PermutationGroup:
    maps = fixture(name).maps
    return PermutationGroup.generated(maps if tokens == "all" else maps[:-1])


def _extension(group: PermutationGroup, size: int) -> Extension:
    """By the first normal subgroup of this order, or by all of the group."""
    found = [n for n in normal_subgroups(group) if n.order == size]
    return Extension(group, found[0] if found else group)


def _splits(group: PermutationGroup) -> bool:
    proper = [n for n in normal_subgroups(group) if 1 < n.order < group.order]
    return any(Extension(group, n).is_split for n in proper)


def _turned(settings: Extensions, lab: Lab) -> list[int]:
    """A_4 = V_4⋊C_3: words of pairs (n, h), multiplied in A_4, and as turned elements in V_4."""
    group = PermutationGroup.of(fixture("A4"))
    normal = next(n for n in normal_subgroups(group) if n.order == 4)
    lift = next(x for x in group.elements if x not in normal)
    generator, wrong = lab.generator(lab.seeds[0], "words"), []
    for _ in range(settings.words):
        whole, turned, h = group.identity, group.identity, 0
        for _ in range(12):
            n = normal.elements[int(torch.randint(4, (), generator=generator))]
            k = int(torch.randint(3, (), generator=generator))
            whole, h = times(times(n, power(lift, k)), whole), h + k
            turned = times(_turn(lift, h, n, settings.turn), turned)
        product_of_n = times(whole, power(lift, -h))
        wrong.append(int(turned != _turn(lift, h, product_of_n, "inverse")))
    return wrong


def _turn(lift: Map, h: int, n: Map, way: str) -> Map:
    return conjugate(power(lift, -h if way == "inverse" else h), n)


# -- wreath products -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WreathLaw:
    law: str = "(g, h)"
    action: str = "f(k·h)"
    swapped: bool = False


@claim(
    id="automata/wreath-law",
    statement="In N≀H, (g, e)(e, h) = (g, h) and (e, h)(g, e) = (φ_h(g), h), φ_h(g)(k) = g(k·h).",
    source=liu("eq. (3.1), definition of the wreath product, corrected"),
    scales={"smoke": WreathLaw(), "desk": WreathLaw()},
    controls=(
        Control("copies moved from the left", {"action": "f(h·k)"}, ("(e, h)(g, e)",)),
        Control("factors exchanged", {"swapped": True}, ("(g, e)(e, h)",)),
    ),
)
def wreath_law(settings: WreathLaw, lab: Lab) -> Evidence:
    """C_2≀S_3 on six pairs of points, all 64·6 elements."""
    two = PermutationGroup.generated([(1, 0)])
    three = PermutationGroup.generated([(1, 0, 2), (1, 2, 0)])
    product_of = wreath_product(two, three)
    still, rest = (two.identity,) * three.order, three.identity
    places, first, second = three.places, 0, 0
    for functions, h in product(product(two.elements, repeat=three.order), three.elements):
        g, turn = product_of.element(functions, rest), product_of.element(still, h)
        after = [times(k, h) if settings.action == "f(k·h)" else times(h, k) for k in three.elements]
        moved = product_of.element([functions[places[k]] for k in after], h)
        plain = product_of.element(functions, h)
        one, other = times(g, turn), times(turn, g)
        one = other if settings.swapped else one
        first += one != (plain if settings.law == "(g, h)" else moved)
        second += other != moved
    return Evidence(
        [
            bounded("(g, e)(e, h)", first, 0.0, unit="group"),
            bounded("(e, h)(g, e)", second, 0.0, unit="group"),
        ]
    )


# -- how many steps --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    names: tuple[str, ...] = ("C2", "C6", "C8", "C2x2x2", "D6", "D8", "Q8", "A4", "S4")
    limit: str = "log₂|G|"
    length: int = 8
    of: str = "G"


@claim(
    id="automata/series-length",
    statement="A solvable group G has at most log₂|G| steps of prime index, whatever the length T of the input.",
    source=liu("Theorem 16, number of steps, corrected"),
    scales={"smoke": Steps(), "desk": Steps()},
    controls=(Control("steps of N≀H", {"of": "N≀H", "names": ("D8", "Q8")}, ("steps above the limit",)),),
)
def steps(settings: Steps, lab: Lab) -> Evidence:
    above, rows = [], []
    for name in settings.names:
        group = _group(name, "all")
        whole = group if settings.of == "G" else _extension(group, group.order // 2).wreath.group
        count = len(prime_series(whole))
        limit = math.log2(group.order if settings.limit == "log₂|G|" else settings.length)
        above.append(count - limit)
        rows.append([name, group.order, count, limit])
    return Evidence(
        [bounded("steps above the limit", above, 0.0, atol=1e-9, unit="group")],
        tables={"groups": Table(["group", "order", "steps", settings.limit], rows)},
    )


# -- a network written out -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    names: tuple[tuple[str, str], ...] = (
        ("PARITY", "counter"),
        ("FLIPFLOP", "memory"),
        ("GRID4", "log"),
        ("Q8", "cocycle"),
    )
    length: int = 6
    positions: str = "composed"
    weights: str = "softmax"
    causal: bool = True


@claim(
    id="automata/network-written-out",
    statement=(
        "A network is (mlp_L)∘(attn_L)∘ … ∘(id + P), attention weights being the causal softmax of scores: computed "
        "with numpy alone from the weights, it gives what the model gives."
    ),
    source=liu("section on the Transformer architecture, formulas corrected"),
    scales={"smoke": Written(), "desk": Written()},
    controls=(Control("no causal mask", {"causal": False}, ("largest difference",)),),
)
def written(settings: Written, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "rows")
    differences = []
    for name, method in settings.names:
        compiled = compile(fixture(name), settings.length, method=method)
        tokens = torch.randint(compiled.automaton.n_tokens, (5, settings.length), generator=generator)
        inputs = compiled.encode(tokens, 0)
        wanted = compiled.model(inputs).numpy()
        found = np.stack([_by_hand(compiled, row, settings) for row in inputs.numpy()])
        differences.append(np.abs(found - wanted)[:, compiled.pads :].max() / max(1.0, np.abs(wanted).max()))
    return Evidence([bounded("largest difference", differences, 1e-9, unit="network")])


def _by_hand(compiled: Compiled, row: np.ndarray, settings: Written) -> Float[np.ndarray, "position out"]:
    weights = {name: value.numpy() for name, value in compiled.model.named_parameters()}
    tokens, places = weights["embed.W_E"][row], weights["pos_embed.W_pos"][: len(row)]
    x = tokens if settings.positions == "added" else tokens + places
    ahead = np.triu(np.ones((len(row), len(row)), dtype=bool), 1) & settings.causal
    for i, block in enumerate(compiled.model.layers):
        attn = {part: weights[f"blocks.{i}.attn.{part}"] for part in ("W_Q", "W_K", "W_V", "W_O")}
        out = np.zeros_like(x)
        for query, key, value, write in zip(*attn.values(), strict=True):
            scores = np.where(ahead, -np.inf, (x @ query) @ (x @ key).T)
            if settings.weights == "softmax":
                alpha = np.exp(scores - scores.max(1, keepdims=True))
            else:
                alpha = np.where(ahead, 0.0, scores)
            with np.errstate(divide="ignore", invalid="ignore"):
                alpha = np.nan_to_num(alpha / alpha.sum(1, keepdims=True), posinf=0.0, neginf=0.0)
            out += alpha @ (x @ value) @ write
        x = x * block.get_buffer("attn_kept").numpy() + out
        if block.mlp is not None:
            y, layer = x, 0
            while f"blocks.{i}.mlp.W_{layer}" in weights:
                y = np.maximum(y, 0) if layer else y
                y = y @ weights[f"blocks.{i}.mlp.W_{layer}"] + weights[f"blocks.{i}.mlp.b_{layer}"]
                layer += 1
            x = x * block.get_buffer("mlp_kept").numpy() + y
    x = x + tokens + places if settings.positions == "added" else x
    return x @ weights["unembed.W_U"]


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED: tuple[Claim, ...] = (
    printed(
        "wreath-law",
        wreath_law,
        {"law": "(φ_h(g), h)"},
        statement="In a wreath product (g, e)(e, h) = (φ_h(g), h).",
        where="eq. (3.1)",
        erratum="That is (e, h)(g, e); the product as printed is (g, h), without a permutation of the copies.",
    ),
    printed(
        "series-length",
        steps,
        {"limit": "log₂T"},
        statement="The recursion for solvable groups takes at most log₂T steps.",
        where="Theorem 16, proof",
        erratum="Steps depend on the group alone: S_4 has four, also for T = 8. The limit is log₂|G|.",
    ),
    printed(
        "positions-added",
        written,
        {"positions": "added"},
        statement="A network is (mlp_L)∘(attn_L)∘ … ∘(attn_1) + (id + P).",
        where="section on the Transformer architecture, first displayed network",
        erratum="The last sign must be ∘: positions are added to what the first layer reads.",
    ),
    printed(
        "attention-proportional",
        written,
        {"weights": "proportional"},
        statement="Attention weights are proportional to the scores.",
        where="section on the Transformer architecture",
        erratum="They are proportional to the exponentials of the scores.",
    ),
)

CLAIMS = (extensions, wreath_law, steps, written, *PRINTED)
