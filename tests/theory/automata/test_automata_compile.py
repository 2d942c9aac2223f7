"""Compiled networks on every input from every start state, their sizes beside the bounds, and a second forward pass."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from small_automata import all_maps, all_runs, automata, permuting
from torch.nn.functional import relu

from sandtable.arguments import ArgumentError
from sandtable.models import Transformer
from sandtable.theory.automata import METHODS, NotThisWay, compile, depths, is_solvable, shallowest, verify
from sandtable.theory.automata.compile.actions import smallest_action
from sandtable.theory.automata.compile.factors import factors, quotient
from sandtable.theory.automata.compile.rungs import prime_rungs
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.worlds.automata import (
    abab,
    alternating,
    cyclic,
    dihedral,
    dyck,
    fixture,
    flip_flop,
    from_permutations,
    from_table,
    grid,
    grid_2d,
    memory,
    product,
    quaternion,
    symmetric,
)

DRAWN = settings(max_examples=12, deadline=None)


def exact(compiled, length):
    """Right on every word of this length from every start state."""
    for start, inputs, right in all_runs(compiled.automaton, length):
        found, residual = compiled.simulate_closely(inputs, start)
        if not found.equal(right) or residual > 0.25:
            return False
    return True


def within_bounds(compiled):
    return max(compiled.sizes.over(compiled.bound).values()) <= 1 + 1e-12


SHORT_S4 = symmetric(4, tokens=[(1, 2, 3, 0), (1, 0, 2, 3)])
KLEIN_RESETS = from_table([[1, 2, 0, 3], [0, 3, 0, 3], [3, 0, 0, 3], [2, 1, 0, 3]])
THREE_RESETS = from_table([[1, 0, 2], [2, 0, 2], [0, 0, 2]])
S3_RESETS = from_table([[1, 1, 2], [2, 0, 2], [0, 2, 2]])
PLAN = {
    "memory": [(flip_flop(), 7), (memory(3), 5), (from_table([[0, 1], [0, 1]]), 5), (from_table([[0]]), 3)],
    "counter": [(cyclic(2), 8), (cyclic(3), 5), (cyclic(5, tokens=(1, 3)), 6), (cyclic(4, tokens=(2,)), 4)],
    "grid": [(grid(2), 6), (grid(3, stay=True), 5), (grid(4), 6), (from_table([[1], [2], [2]]), 4)],
    "cocycle": [(dihedral(3), 6), (dihedral(4), 5), (quaternion(), 3), (SHORT_S4, 4), (alternating(4), 5)],
    "semidirect": [(dihedral(3), 6), (dihedral(4), 5), (alternating(4), 4), (SHORT_S4, 4), (cyclic(6), 3)],
    "wreath": [(dihedral(3), 6), (quaternion(tokens=("i", "j")), 6), (alternating(4), 4), (cyclic(4), 4)],
    "product": [
        (product(memory(3), memory(2)), 3),
        (product(cyclic(2), grid(3)), 3),
        (product(grid(3), grid(4), idle=False), 4),
        (product(grid(3), dihedral(3), idle=False), 4),
        (product(cyclic(2), cyclic(3), memory(2)), 2),
    ],
    "permutation-reset": [(flip_flop(), 6), (THREE_RESETS, 5), (KLEIN_RESETS, 4), (S3_RESETS, 5), (dihedral(3), 4)],
    "krohn-rhodes": [(grid(4), 7), (abab(), 7), (dyck(2, 1), 6), (all_maps(3), 5), (S3_RESETS, 4), (cyclic(3), 4)],
    "log": [(grid(4), 7), (flip_flop(), 5), (abab(), 8), (SHORT_S4, 5), (quaternion(), 3), (all_maps(4), 5)],
}
CASES = [(method, automaton, length) for method, cases in PLAN.items() for automaton, length in cases]


@pytest.mark.parametrize(("method", "automaton", "length"), CASES, ids=[f"{m}-{a.n_states}-{n}" for m, a, n in CASES])
def test_every_method_on_every_input(method, automaton, length):
    compiled = compile(automaton, length, method=method)
    assert compiled.method in (method, "counter")
    assert exact(compiled, length)
    assert exact(compiled, max(1, length - 3))  # any shorter input as well
    assert within_bounds(compiled)
    (expected,) = (d.layers for d in depths(automaton, length) if d.method == method)
    assert compiled.sizes.depth == expected


def test_all_methods_are_here():
    assert list(PLAN) == list(METHODS)


@DRAWN
@given(automata(states=4, tokens=2))
def test_any_automaton_by_its_cascade(automaton):
    if not is_solvable(automaton) or automaton.n_states == 1:
        return
    compiled = compile(automaton, 5, method="krohn-rhodes")
    assert exact(compiled, 5)
    assert within_bounds(compiled)


@DRAWN
@given(automata(states=4, tokens=3))
def test_any_automaton_in_logarithmic_depth(automaton):
    compiled = compile(automaton, 5, method="log")
    assert exact(compiled, 5)
    assert within_bounds(compiled)
    assert compiled.sizes.depth == 3


@DRAWN
@given(automata(states=3, tokens=3))
def test_the_shallowest_for_any_automaton(automaton):
    compiled = compile(automaton, 4)
    assert exact(compiled, 4)
    assert within_bounds(compiled)
    expected = shallowest(depths(automaton, 4))
    assert (compiled.method, compiled.sizes.depth) == (expected.method, expected.layers)


@DRAWN
@given(permuting(points=4, tokens=2))
@example(from_permutations([(0, 1, 2)]))
def test_any_small_group(automaton):
    for method in ("cocycle", "wreath", "log", "permutation-reset"):
        try:
            compiled = compile(automaton, 4, method=method)
        except NotThisWay:
            assert method == "permutation-reset"
            assert automaton.n_states == 1
            continue
        assert exact(compiled, 4)
        assert within_bounds(compiled)


def test_abelian_quotients_of_larger_order_than_points():
    """S_3 × C_5 × C_7 on 15 points: cyclic quotients of order 70, counters no larger than the points allow."""
    parts = (1, 2, 0), (1, 0, 2), (1, 2, 3, 4, 0), (1, 2, 3, 4, 5, 6, 0)
    offsets, images = (0, 0, 3, 8), []
    for part, offset in zip(parts, offsets, strict=True):
        image = list(range(15))
        image[offset : offset + len(part)] = [offset + x for x in part]
        images.append(image)
    compiled = compile(from_permutations(images), 3, method="cocycle")
    assert compiled.sizes.depth == 2
    assert exact(compiled, 3)
    assert within_bounds(compiled)


# -- depth -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("automaton", "method", "layers"),
    [
        (flip_flop(), "memory", 1),
        (cyclic(3), "counter", 1),
        (grid(4), "grid", 2),
        (grid(9), "grid", 2),
        (dihedral(3), "cocycle", 2),
        (quaternion(), "cocycle", 2),
        (SHORT_S4, "cocycle", 3),
        (SHORT_S4, "semidirect", 3),
        (quaternion(), "wreath", 2),
        (THREE_RESETS, "permutation-reset", 2),
        (product(memory(3), memory(3)), "product", 1),
        (product(cyclic(2), grid(4)), "product", 2),
        (abab(), "krohn-rhodes", 4),
        (grid(4), "krohn-rhodes", 5),
        (grid(9), "krohn-rhodes", 15),
    ],
    ids=lambda x: str(getattr(x, "n_states", x)),
)
def test_depth_does_not_depend_on_the_length(automaton, method, layers):
    assert {compile(automaton, length, method=method).sizes.depth for length in (2, 8, 32)} == {layers}


@pytest.mark.parametrize(
    ("length", "layers"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (64, 6), (65, 7)]
)
def test_logarithmic_depth(length, layers):
    assert compile(flip_flop(), length, method="log").sizes.depth == layers == max(1, math.ceil(math.log2(length)))


ONE_STATE = (from_table([[0]]), from_table([[0, 0]]), from_table([[0], [1]]), from_table([[0], [1], [2]]))


@pytest.mark.parametrize("automaton", ONE_STATE, ids=["1", "1 of 2 tokens", "2 that stay", "3 that stay"])
@pytest.mark.parametrize("method", METHODS)
def test_where_nothing_moves(automaton, method):
    """What is listed can be built, and what is not is refused."""
    (listed,) = (d.layers for d in depths(automaton, 5) if d.method == method)
    if listed is None:
        with pytest.raises(NotThisWay):
            compile(automaton, 5, method=method)
    else:
        compiled = compile(automaton, 5, method=method)
        assert compiled.sizes.depth == listed
        assert exact(compiled, 5)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("method", METHODS)
def test_shortest_inputs(method, length):
    automaton = {"memory": flip_flop(), "counter": cyclic(3), "grid": grid(3), "krohn-rhodes": grid(3)}.get(
        method, THREE_RESETS if method == "permutation-reset" else dihedral(3)
    )
    compiled = compile(automaton, length, method=method)
    assert exact(compiled, length)
    assert within_bounds(compiled)


@pytest.mark.parametrize(
    ("name", "method"),
    {
        **{"C5": "counter", "MEMORY4": "memory", "GRID9": "grid", "D6": "cocycle", "ABAB": "krohn-rhodes"},
        **{"GRID4": "krohn-rhodes", "S5": "log"},
    }.items(),
)
def test_a_hundred_tokens(name, method):
    compiled = compile(name, 100, method=method)
    automaton = compiled.automaton
    inputs = torch.randint(automaton.n_tokens, (40, 100), generator=torch.Generator().manual_seed(0))
    for start in range(0, automaton.n_states, 50):
        states = []
        for row in inputs.tolist():
            state = start
            states.append([state := automaton.table[state][token] for token in row])
        found, residual = compiled.simulate_closely(inputs, start)
        assert found.tolist() == states
        assert residual < 0.25
    assert within_bounds(compiled)


def test_twenty_thousand_tokens():
    """Parities beside running sums; weights are linear in T, about 31 for each token."""
    compiled = compile("PARITY", 20_000)
    assert compiled.sizes.parameters < 32 * 20_000
    rows = torch.randint(2, (1, 300), generator=torch.Generator().manual_seed(0))
    found, residual = compiled.simulate_closely(rows)
    assert found.equal(rows.cumsum(1) % 2)
    assert residual < 0.25


# -- ordinary Transformers ---------------------------------------------------------------------------------------------


def forward(model, tokens):
    """Embeddings, causal softmax heads without 1/√k, ReLU layers, residuals but where coordinates are overwritten."""
    p = dict(model.named_parameters())
    x = p["embed.W_E"][tokens] + p["pos_embed.W_pos"][: tokens.shape[1]]
    past = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
    for i, block in enumerate(model.layers):
        q, k, v, o = (p[f"blocks.{i}.attn.W_{name}"] for name in "QKVO")
        kept = torch.ones(x.shape[-1], dtype=x.dtype)
        kept[list(block.config["attn_writes"])] = 0
        out = x * kept
        for h in range(len(q)):
            scores = (x @ q[h]) @ (x @ k[h]).transpose(1, 2)
            out = out + scores.masked_fill(~past, -math.inf).softmax(-1) @ (x @ v[h]) @ o[h]
        x = out
        if f"blocks.{i}.mlp.W_0" in p:
            depth = sum(name.startswith(f"blocks.{i}.mlp.W_") for name in p)
            for j in range(depth):
                out = (relu(out) if j else out) @ p[f"blocks.{i}.mlp.W_{j}"] + p[f"blocks.{i}.mlp.b_{j}"]
            kept = torch.ones(x.shape[-1], dtype=x.dtype)
            kept[list(block.config["mlp_writes"])] = 0
            x = x * kept + out
    return x @ p["unembed.W_U"]


@pytest.mark.parametrize(("method", "automaton", "length"), [(m, *cases[-2]) for m, cases in PLAN.items()])
def test_a_second_forward_pass(method, automaton, length):
    compiled = compile(automaton, length, method=method)
    assert type(compiled.model) is Transformer
    assert {parameter.dtype for parameter in compiled.model.parameters()} == {torch.float64}
    assert not any(parameter.requires_grad for parameter in compiled.model.parameters())
    inputs = torch.randint(automaton.n_tokens, (60, length), generator=torch.Generator().manual_seed(1))
    for start in range(automaton.n_states):
        tokens = compiled.encode(inputs, start)
        ours, theirs = compiled.model(tokens), forward(compiled.model, tokens)
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        assert compiled.decode(theirs, start).equal(automaton.simulate(inputs, start))


def test_sizes_are_counted():
    compiled = compile(dihedral(3), 6, method="cocycle")
    size, parameters = compiled.sizes, list(compiled.model.parameters())
    assert size.parameters == sum(p.numel() for p in parameters)
    assert size.norm == max(float(p.abs().max()) for p in parameters)
    assert (size.length, size.positions, size.depth) == (6, 7, 2)
    shapes = {name: p.shape for name, p in compiled.model.named_parameters()}
    assert size.width == shapes["embed.W_E"][1]
    assert size.heads == max(shapes[f"blocks.{i}.attn.W_Q"][0] for i in range(2))
    assert size.head_width == max(shapes[f"blocks.{i}.attn.W_Q"][2] for i in range(2))
    assert size.mlp_width == max(s[1] for n, s in shapes.items() if ".mlp.W_" in n and s[1] != size.width)
    assert size.wires == size.gates * max(size.attention_width, size.mlp_width)


def test_inputs_of_any_shape_and_states_by_name():
    compiled = compile(grid(4), 8)
    word = compiled.automaton.word("RRRRLLR")
    assert compiled.simulate(word).tolist() == [1, 2, 3, 3, 2, 1, 2]
    assert compiled.simulate(word.expand(2, 3, 7), "3").equal(compiled.automaton.simulate(word.expand(2, 3, 7), 3))


# -- the fewest points -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "points"),
    [("S4", 4), ("A4", 4), ("S5", 5), ("A5", 5), ("D8", 4), ("D6", 3), ("Q8", 8), ("C7", 7), ("S5-POINTS", 5)],
)
def test_groups_on_few_points(name, points):
    automaton = fixture(name)
    action = smallest_action(automaton.maps)
    assert len(action.points[0]) == points
    order = PermutationGroup.of(automaton).order
    assert PermutationGroup.generated(action.points).order == order
    table = action.elements()
    assert len(table) == len(set(table.values())) == order
    for on_points, on_states in zip(action.points, automaton.maps, strict=True):
        for g, h in list(table.items())[:30]:
            assert table[tuple(on_points[x] for x in g)] == tuple(on_states[x] for x in h)


def test_every_normal_subgroup_of_prime_index_is_a_rung():
    """D_8 has three of index 2, A_4 one of index 3, C_6 one each of index 2 and 3, C_2³ seven."""
    for name, expected in (("D8", [2] * 3), ("A4", [3]), ("C6", [2, 3]), ("C2x2x2", [2] * 7), ("Q8", [2] * 3)):
        group = PermutationGroup.of(fixture(name))
        found = list(prime_rungs(group))
        assert [step.orders[0] for step in found] == expected
        assert len({frozenset(step.kernel.elements) for step in found}) == len(expected)
        assert all(group.is_normal(step.kernel) for step in found)


# -- refusals ----------------------------------------------------------------------------------------------------------

S5 = "words permute 120 states by a group with the perfect subgroup A_5, of order 60 (inside a group of order 120)"
A5 = from_permutations([(1, 2, 3, 4, 0), (1, 2, 0, 3, 4)])
REFUSALS = {
    "non-solvable": (("S5", 8, "constant"), S5),
    "non-solvable group": (("S5", 8, "cocycle"), S5),
    "non-solvable on points": (("A5-POINTS", 8, "krohn-rhodes"), "words permute 5 states by a group with the perfect"),
    "non-solvable inside": ((all_maps(5), 8, "krohn-rhodes"), "the perfect subgroup A_5, of order 60 (inside a group"),
    "way out": (("S5", 8, "constant"), "use method='log'"),
    "no semidirect product": (("Q8", 8, "semidirect"), "no normal subgroup of prime index has a complement"),
    "no bijections": (("GRID9", 8, "wreath"), "GRID9 has tokens that are no bijections"),
    "no counter": (("GRID9", 8, "counter"), "the tokens of GRID9 are not powers of one permutation"),
    "no memory": (("GRID9", 8, "memory"), "GRID9 has tokens that neither keep nor write one state"),
    "no corridor": (("D8", 8, "grid"), "the tokens of D8 do not move along a line by at most one"),
    "neither": (("GRID9", 8, "permutation-reset"), "tokens that are neither bijections nor constant"),
    "one state": ((from_table([[0]]), 8, "krohn-rhodes"), "this automaton of 1 state has one state"),
    "pairs": (("DYCK48", 8, "auto"), "21,921,124 pairs of states apart; at most 4,000"),
    "both reasons": (("DYCK48", 8, "auto"), "and no constant depth: cap=4000: DYCK48 has more single states and image"),
    "no way out": (
        (product(A5, grid(13)), 8, "auto"),
        "known for it",
    ),
    "no factors": (("GRID9", 8, "product"), "GRID9 is not told by smaller automata side by side"),
    "a factor": (
        (product(A5, grid(3)), 8, "product"),
        "of a factor",
    ),
    "sets": (("DYCK48", 8, "constant"), "more single states and image sets; 4683 were found"),
    "points": ((from_permutations([(*range(1, 3000), 0)]), 8, "auto"), "a group on 3,000 points: at most 2,000"),
    "length": (("S5", 0, "auto"), "length=0: must be a whole number ≥ 1"),
    "method": (("S5", 8, "lgo"), "did you mean 'log'?"),
    "name": (("GRIT9", 8, "auto"), "did you mean 'GRID9'?"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    (automaton, length, method), message = REFUSALS[name]
    with pytest.raises(ArgumentError) as caught:
        compile(automaton, length, method=method)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_solvable_is_compiled_in_logarithmic_depth():
    compiled = compile("S5-POINTS", 8)
    assert (compiled.method, compiled.sizes.depth) == ("log", 3)
    assert verify(compiled, length=4).exact


def test_bad_inputs():
    compiled = compile(grid(3), 4)
    for inputs, message in (
        (torch.zeros(1, 5, dtype=torch.long), "inputs of 5 tokens: compiled for at most length=4"),
        (torch.tensor([[0, 2]]), "token 2: this automaton has the tokens 0 to 1"),
        (torch.tensor([[0, -1]]), "token -1"),
        (torch.zeros(1, 2), "must be rows of token numbers"),
        ([[0, 1]], "must be a tensor"),
    ):
        with pytest.raises(ArgumentError, match=message):
            compiled.simulate(inputs)
    with pytest.raises(ArgumentError, match="state=3"):
        compiled.simulate(torch.tensor([[0]]), 3)


def test_depths_of_the_published_tasks():
    """At length 100, beside the depths that the constructions are said to have."""
    expected = dict(C5=1, C2x2x2=1, D6=2, D8=2, Q8=2, A4=2, S4=3, A5=7, S5=7, GRID4=2, GRID9=2)
    assert {name: shallowest(depths(fixture(name), 100)).layers for name in expected} == expected


def test_products_of_corridors():
    automaton = product(grid(2), grid(3), idle=False)
    compiled = compile(automaton, 4, method="krohn-rhodes")
    assert exact(compiled, 4)


# -- side by side ------------------------------------------------------------------------------------------------------

IN_PARALLEL = [
    (fixture("GRID3x3"), 2, ("grid", "grid")),
    (product(cyclic(2), grid(4)), 2, ("grid", "counter")),
    (product(memory(3), memory(3)), 1, ("memory", "memory")),
    (product(memory(3), memory(3), memory(2), idle=False), 1, ("memory",) * 3),
    (product(cyclic(3), grid(3), memory(2), idle=False), 2, ("grid", "counter", "memory")),
    (product(dihedral(3), grid(3), idle=False), 2, ("grid", "cocycle", "counter")),
]


@pytest.mark.parametrize(("automaton", "layers", "kinds"), IN_PARALLEL, ids=[str(a.n_states) for a, *_ in IN_PARALLEL])
def test_direct_products_run_in_parallel(automaton, layers, kinds):
    """As deep as the deepest factor, whatever the length, and on every input from every start."""
    assert shallowest(depths(automaton, 100)).layers == layers
    compiled = compile(automaton, 64)
    assert (compiled.method, compiled.sizes.depth) == ("product", layers)
    assert sorted(compiled.facts["factors"]) == sorted(kinds)
    assert within_bounds(compiled)
    assert exact(compile(automaton, 2, method="product"), 2)
    rows = torch.randint(automaton.n_tokens, (5, 64), generator=torch.Generator().manual_seed(0))
    for start in range(automaton.n_states):
        assert compiled.simulate(rows, start).equal(automaton.simulate(rows, start))


def test_side_by_side_is_what_the_parts_tell():
    """A room as two corridors: each coordinate beside the corridor that it walks, moved by hand."""
    rows = torch.randint(4, (20, 30), generator=torch.Generator().manual_seed(0))
    states = compile(grid_2d(5, 4, stay=False), 30).simulate(rows)
    x = y = torch.zeros(20, dtype=torch.long)
    for t, token in enumerate(rows.T):
        x = (x - (token == 0).long() + (token == 1).long()).clamp(0, 4)
        y = (y - (token == 2).long() + (token == 3).long()).clamp(0, 3)
        assert states[:, t].equal(4 * x + y)


def all_partitions(n):
    """Every partition of n points, as blocks numbered by their first point."""
    found = [()]
    for _ in range(n):
        found = [(*one, block) for one in found for block in range(max(one, default=-1) + 2)]
    return found


def respected(automaton, blocks):
    pairs = itertools.combinations(range(automaton.n_states), 2)
    return all(blocks[m[a]] == blocks[m[b]] for a, b in pairs if blocks[a] == blocks[b] for m in automaton.maps)


@settings(max_examples=60, deadline=None)
@given(automata(states=5, tokens=2))
@example(product(memory(2), cyclic(2), idle=False))
@example(abab())
def test_factors_against_all_partitions(automaton):
    """Where any congruences but the trivial one tell all states some are found, but for memories, which stay whole."""
    n = automaton.n_states
    proper = [one for one in all_partitions(n) if max(one) < n - 1 and respected(automaton, one)]
    found = factors(automaton)
    telling = len(set(zip(*proper, strict=True))) == n if proper else False
    is_memory = all(len(set(m)) == 1 or m == tuple(range(n)) for m in automaton.maps)
    assert (len(found) > 1) == (telling and not is_memory)
    assert len(set(zip(*found, strict=True))) == n
    if len(found) > 1:
        assert set(found) <= set(proper)
    for one in found:
        smaller = quotient(automaton, one)
        for q, token in itertools.product(range(n), range(automaton.n_tokens)):
            assert smaller.table[one[q]][token] == one[automaton.table[q][token]]
        assert all(row[-1] == block for block, row in enumerate(smaller.table))


def test_large_automata_are_not_taken_apart():
    with pytest.raises(ArgumentError, match="at most 500 are looked at for factors"):
        factors(grid(501))


def test_nothing_is_shallower_than_auto():
    """Of everything that `depths` lists; refused where it lists nothing."""
    for automaton in (fixture("GRID3x3"), abab(), dyck(2, 1), all_maps(4), product(grid(3), abab()), THREE_RESETS):
        for length in (2, 9, 300):
            listed = [d.layers for d in depths(automaton, length) if d.layers is not None]
            assert compile(automaton, length).sizes.depth == min(listed) == shallowest(depths(automaton, length)).layers
    assert shallowest(depths(fixture("DYCK48"))) is None


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5), (2, 0, 4)])
def test_no_input_has_no_states(shape):
    inputs = torch.zeros(shape, dtype=torch.int32)
    found = compile("GRID4", 5).simulate(inputs)
    assert found.equal(fixture("GRID4").simulate(inputs))


@pytest.mark.parametrize(("states", "length"), [(2, 1), (2, 40), (5, 7), (14, 100)])
def test_the_bound_of_corridors_is_met_and_not_loose(states, length):
    found = compile(grid(states, stay=True), length, method="grid")
    over = found.sizes.over(found.bound)
    assert set(over) == {"depth", "width", "heads", "head_width", "mlp_width", "norm"}
    assert 0.95 < min(over.values()) <= max(over.values()) <= 1
