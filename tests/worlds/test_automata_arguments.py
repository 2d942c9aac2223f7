"""Bad input gets one clear line: the argument, the value, what is allowed."""

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.theory.automata import PermutationGroup, holonomy, semigroup
from sandtable.theory.automata.closed_forms import chance
from sandtable.worlds.automata import (
    Bernoulli,
    Counted,
    Legal,
    Repeating,
    Writes,
    alternating,
    cascade,
    cyclic,
    dihedral,
    dyck,
    fixture,
    from_permutations,
    from_regex,
    from_table,
    grid,
    product,
    quaternion,
    rubik,
    symmetric,
)

TWO = [[0, 1], [1, 0]]
ROW = torch.tensor([[0, 1]])


def drawn(**fields):
    return from_table(TWO, **fields).sample(1, torch.Generator())


CALLS = {
    # states and tokens
    "unknown token": (
        lambda: grid(4).simulate(torch.tensor([[0, 2]])),
        "token 2: this automaton has the tokens 0 to 1",
    ),
    "negative token": (lambda: grid(4).simulate(torch.tensor([-1])), "token -1"),
    "token by name": (lambda: grid(4).word("LRX"), "token='X': there is no such name; the tokens are L, R"),
    "token by number": (lambda: grid(4).token(2), "token=2: must be a whole number from 0 to 1"),
    "state by name": (lambda: grid(4).state("five"), "state='five'"),
    "state by number": (lambda: grid(4).state(4), "state=4: must be a whole number from 0 to 3"),
    "start outside": (lambda: from_table(TWO, start=2), "start=2: must be a whole number from 0 to 1"),
    "start by name": (lambda: grid(4, start="x"), "start='x': there is no such name; the states are 0, 1, 2, 3"),
    "start of a run": (lambda: grid(4).simulate(ROW, start=7), "state=7"),
    "starts of rows": (lambda: grid(4).simulate(ROW, start=torch.tensor([4])), "start: must be states from 0 to 3"),
    "start of halves": (lambda: grid(4).simulate(ROW, start=torch.tensor([0.5])), "float32: must be one state"),
    "two starts": (lambda: grid(4).simulate(ROW, start=torch.tensor([0, 1])), "start of shape (2,)"),
    "start in holonomy": (lambda: holonomy(grid(4)).encode(9), "state=9"),
    "inputs in a list": (lambda: grid(4).simulate([0, 1]), "inputs of type list: must be a tensor"),
    "inputs of floats": (lambda: grid(4).simulate(torch.zeros(2, 3)), "must be rows of token numbers"),
    # tables
    "not total": (lambda: from_table([[0, 1], [1]]), "it must be total"),
    "not total, named": (
        lambda: from_table({"a": {"x": "a", "y": "b"}, "b": {"x": "a"}}),
        "no next state on token 'y'",
    ),
    "no such state": (lambda: from_table([[0, 2], [1, 1]]), "table[0][1]=2: must be a state from 0 to 1"),
    "no such state, named": (lambda: from_table({"a": {"x": "c"}}), "goes to 'c', which is no state"),
    "half a state": (lambda: from_table([[0, 1.5], [1, 1]]), "table[0][1]=1.5"),
    "no rows": (lambda: from_table([]), "table: must be a tuple of rows"),
    "no tokens": (lambda: from_table([[], []]), "table: must be a tuple of rows"),
    "one name for two": (lambda: from_table(TWO, states=("a", "a")), "states=('a', 'a'): must be 2 different names"),
    "observe": (lambda: from_table(TWO, observe=(0,)), "observe=(0,): must give a label to each of 2 states"),
    "observe below zero": (lambda: from_table(TWO, observe=(0, -1)), "observe=-1"),
    # lengths and sizes
    "length": (lambda: grid(4, length=0), "length=0: must be a whole number ≥ 1"),
    "shortest": (lambda: grid(4, length=5, shortest=6), "shortest=6: must be a whole number from 1 to 5"),
    "rows": (lambda: grid(4).sample(0, torch.Generator()), "n=0"),
    "corridor": (lambda: grid(0), "n=0"),
    "stack": (lambda: dyck(0, 2), "n=0"),
    "counter": (lambda: cyclic(3, tokens=(3,)), "tokens=3: must be a whole number from 0 to 2"),
    "car": (lambda: dihedral(3, tokens=("fly",)), "tokens='fly': must be one of drive, toggle, stay"),
    "quaternion": (lambda: quaternion(tokens=("l",)), "tokens='l'"),
    "cube": (lambda: rubik(tokens=("X",)), "tokens='X': must be one of U, D, F, B, L, R"),
    "too many permutations": (lambda: symmetric(9), "n=9: must be a whole number from 2 to 8"),
    "fewer permutations": (lambda: symmetric(3, tokens=8), "tokens=8: must be a whole number from 1 to 6"),
    "chance of no position": (lambda: chance(grid(4), 0), "length=0"),
    # laws
    "law": (lambda: from_table(TWO, law="uniform"), "law='uniform'"),
    "no bits": (lambda: cyclic(3, law=Bernoulli(0.5)).sample(1, torch.Generator()), "needs an automaton of 2 tokens"),
    "rate": (lambda: Bernoulli(1.5), "p=1.5"),
    "writes": (lambda: Writes(-0.5), "p=-0.5"),
    "count": (lambda: drawn(law=Counted(101)), "ones=101: must be a whole number from 0 to 100"),
    "word": (lambda: drawn(law=Repeating((0, 2))), "word=(0, 2): its tokens must be from 0 to 1"),
    "no word": (lambda: Repeating(()), "word=()"),
    "trap": (lambda: drawn(law=Legal(2)), "trap=2: must be a whole number from -2 to 1"),
    "no chain": (lambda: from_table(TWO, law=Counted(3)).token_law(), "depends on more than the state"),
    # groups
    "no permutation": (lambda: from_permutations([(0, 0, 1)]), "generator (0, 0, 1): must be a permutation"),
    "letters": (lambda: from_permutations([(0, "a")]), "generator (0, 'a'): must be a permutation"),
    "halves": (lambda: from_permutations([(0.0, 1.0)]), "generator (0.0, 1.0): must be a permutation"),
    "a number": (lambda: from_permutations([3]), "generator 3: must be a permutation"),
    "of other points": (
        lambda: from_permutations([(0, 1), (0, 1, 2)]),
        "(0, 1, 2) acts on 3 points, the first one on 2",
    ),
    "no generators": (lambda: from_permutations([]), "generators: must be at least one"),
    "group": (lambda: PermutationGroup.generated([(1, 1)]), "generator (1, 1): must be a permutation"),
    "no group": (lambda: PermutationGroup.of(grid(4)), "token 'L': is no permutation of the states"),
    "odd": (lambda: alternating(4, tokens=[(1, 0, 2, 3)]), "token (1, 0, 2, 3): must be an even permutation"),
    # products
    "nothing to multiply": (lambda: product(), "needs at least one automaton"),
    "wires": (lambda: cascade([grid(2), grid(2)], [], tokens=2), "wires: 0 functions for 2 components"),
    "wire": (lambda: cascade([grid(2), grid(2)], [lambda q, s: 2], tokens=2), "wire 1 gives token 2"),
    "first wire": (lambda: cascade([grid(2)], [], tokens=3), "wire 0 gives token 2"),
    # expressions
    "open bracket": (lambda: from_regex("(a"), "does not parse at sign 3: a bracket '(' is left open"),
    "closed bracket": (lambda: from_regex("a)"), "')' closes nothing"),
    "nothing to repeat": (lambda: from_regex("a|*"), "'*' has nothing to repeat"),
    "no choice": (lambda: from_regex("a[]"), "'[' must be followed by letters"),
    "open choice": (lambda: from_regex("[ab"), "'[' must be followed by letters"),
    "range": (lambda: from_regex("[a-c]"), "there are no ranges"),
    "foreign": (lambda: from_regex("a{2}"), "'{' has no meaning here"),
    "backslash": (lambda: from_regex("a\\"), "nothing after the backslash"),
    "not in the alphabet": (lambda: from_regex("ab", alphabet="a"), "'b' is not in the alphabet 'a'"),
    "alphabet": (lambda: from_regex("a", alphabet=["a", "ab"]), "must be single signs, 'ab' is none"),
    "no letters": (lambda: from_regex(""), "has no letters; give an alphabet"),
    "no text": (lambda: from_regex(5), "regex 5: must be a text"),
    "too many states": (lambda: from_regex("(a|b)*a" + "(a|b)" * 12, cap=1000), "cap=1000: the automaton of regex"),
    # caps
    "semigroup": (lambda: semigroup(fixture("DYCK"), cap=100), "of up to 4 tokens alone induce 147 maps"),
    "sets": (lambda: holonomy(fixture("DYCK"), cap=20), "cap=20: DYCK has more single states and image sets; 33 were"),
    "no cap": (lambda: semigroup(grid(3), cap=0), "cap=0"),
    # names
    "fixture": (lambda: fixture("GRIT9"), "did you mean 'GRID9'?"),
    "no name": (lambda: fixture(9), "automaton=9: must be one of"),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_clear_line(name):
    call, message = CALLS[name]
    with pytest.raises(ArgumentError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cap_stops_before_memory_is_filled():
    with pytest.raises(ArgumentError, match="cap=5000") as caught:
        semigroup(dyck(4, 8), cap=5_000)  # 22,259,397 maps
    reached = int(str(caught.value).split(" alone induce ")[1].split()[0])
    assert 5_000 < reached < 100_000
