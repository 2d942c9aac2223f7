"""Exact laws and costs against plain recursions over strings, written out as the algorithms are."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.theory import generation as theory
from sandtable.worlds import FixedLengthDyck, HiddenPrefix, Knapsack, OneZero, Slips, Trap, Zeros


class Random:
    """A next-token law and a score for every string, drawn once and remembered; some probabilities are zero."""

    def __init__(self, seed, vocab, horizon, eos=None, zeros=0.0):
        self.rng = np.random.default_rng(seed)
        self.vocab, self.horizon, self.eos, self.zeros = vocab, horizon, eos, zeros
        self.known, self.scores = {}, {}

    def law(self, s):
        if s not in self.known:
            p = self.rng.gamma(1.0, size=self.vocab) * (self.rng.random(self.vocab) >= self.zeros)
            p[self.rng.integers(self.vocab)] += 0.5
            self.known[s] = p / p.sum()
        return self.known[s]

    def score(self, s):
        if s not in self.scores:
            self.scores[s] = round(float(self.rng.random()), 1)  # one digit, so that some are equal
        return self.scores[s]

    def over(self, s):
        return len(s) == self.horizon or (len(s) > 0 and s[-1] == self.eos)

    def tree(self, **options):
        def ask(prefix):
            return torch.tensor(np.array([self.law(tuple(row)) for row in prefix.tolist()]))

        return theory.Tree.of(ask, self.horizon, self.vocab, eos=self.eos, **options)

    def values(self, tree):
        return tree.evaluate(lambda rows: [self.score(tuple(row)) for row in rows.tolist()])

    def leaves(self, s=(), p=1.0):
        if self.over(s):
            yield s, p
        else:
            for a, q in enumerate(self.law(s)):
                yield from self.leaves((*s, a), p * q)


CASES = [(0, 2, 3, None, 0.0), (6, 3, 3, None, 0.2), (2, 3, 3, 0, 0.0), (3, 2, 4, 1, 0.2), (4, 3, 2, 2, 0.4)]
RANDOM = pytest.mark.parametrize("case", CASES, ids=lambda case: f"vocab {case[1]} horizon {case[2]} eos {case[3]}")


def compare(tree, law, expected):
    """A law over the leaves of the tree beside a dict from strings to probabilities."""
    rows = list(expected)
    width = max(map(len, rows), default=0)
    padded = torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows], dtype=torch.long).reshape(
        len(rows), width
    )
    nodes = tree.locate(padded, torch.tensor([len(row) for row in rows]))
    assert (nodes[[p > 0 for p in expected.values()]] >= 0).all()
    found = np.zeros(len(tree))
    found[nodes[nodes >= 0]] = np.array(list(expected.values()))[nodes >= 0]
    np.testing.assert_allclose(law, found[tree.leaves], atol=1e-12)


# -- the tree --------------------------------------------------------------------------------------------------------


@RANDOM
@pytest.mark.parametrize("prune", [False, True])
def test_the_tree_holds_every_string(case, prune):
    world = Random(*case)
    tree = world.tree(prune=prune, rows=2)
    compare(tree, theory.base_law(tree), dict(world.leaves()))
    assert prune or len(tree.leaves) == len(list(world.leaves()))
    assert len(tree) == sum(len(rows) for rows in tree.prefixes())
    for depth, rows in enumerate(tree.prefixes()):
        assert (tree.locate(rows) == np.arange(len(tree))[tree.level(depth)]).all()


@RANDOM
@pytest.mark.parametrize("prune", [False, True])
def test_the_tree_is_a_law_itself(case, prune):
    world = Random(*case)
    tree = world.tree(prune=prune)
    for rows in tree.prefixes():
        inner = rows[~tree.leaf[tree.locate(rows)]]
        mixed = inner[torch.randperm(len(inner), generator=torch.Generator().manual_seed(0))]
        expected = np.array([world.law(tuple(row)) for row in mixed.tolist()]).reshape(-1, world.vocab)
        np.testing.assert_allclose(tree.next_token_probs(mixed), expected, atol=1e-15)
    with pytest.raises(ArgumentError, match="not inner nodes"):
        tree.next_token_probs(rows)


@RANDOM
def test_true_values_are_conditional_expectations(case):
    world = Random(*case)
    tree = world.tree()
    values = tree.expect(world.values(tree)[tree.leaves])
    for depth, rows in enumerate(tree.prefixes()):
        for value, row in zip(values[tree.level(depth)], rows.tolist(), strict=True):
            if all(world.law(tuple(row[:i]))[row[i]] > 0 for i in range(depth)):
                found = sum(p * world.score(s) for s, p in world.leaves(tuple(row)))
                assert value == pytest.approx(found, abs=1e-12)


def test_worlds_bring_their_own_sizes():
    world = FixedLengthDyck(8)
    tree = theory.Tree.of(world, prune=True)
    assert len(tree.leaves) == 224
    support = world.support()
    assert tree.counts(support.batch.x).tolist() == [1] * 224
    order = tree.locate(support.batch.x)
    np.testing.assert_allclose(tree.prob[order], support.weights.numpy(), atol=1e-12)
    opened = theory.Tree.of(world, prompt=(world.bos, 0), prune=True)
    assert opened.horizon == 8
    assert opened.prob[opened.leaves].sum() == pytest.approx(1)
    assert opened.evaluate(world.accepts).all()


@pytest.mark.parametrize("prune", [False, True])
def test_ended_strings_can_be_padded(prune):
    """The same strings with the same probabilities, all at one depth."""
    world = Random(2, 3, 4, eos=0, zeros=0.3)
    tree = world.tree(pad=True, prune=prune)
    assert (tree.depth[tree.leaves] == 4).all()
    compare(tree, theory.base_law(tree), {(*s, *[0] * (4 - len(s))): p for s, p in world.leaves()})


def test_truncation_changes_the_base_law():
    world = Random(0, 3, 3)
    greedy = theory.Tree.of(
        lambda prefix: torch.tensor(np.array([world.law(tuple(row)) for row in prefix.tolist()])),
        3,
        truncation=lambda probs: torch.nn.functional.one_hot(probs.argmax(1), 3).double(),
        prune=True,
    )
    assert len(greedy.leaves) == 1
    full = world.tree()
    assert full.locate(list(greedy.prefixes())[-1])[0] in np.flatnonzero(theory.likeliest(full))


def test_noise_stays_within_its_bound_and_spares_leaves():
    tree = theory.Tree.of(Zeros(6))
    values = np.random.default_rng(0).random(len(tree)) + 0.1
    noisy = theory.noised(values, tree, error=0.3, generator=torch.Generator().manual_seed(0))
    ratio = noisy / values
    assert (ratio[tree.leaves] == 1).all()
    assert 1 / 1.3 - 1e-12 <= ratio.min() < 0.85
    assert 1.15 < ratio.max() <= 1.3 + 1e-12
    exact = theory.with_leaves(noisy, tree, np.full(64, 7.0))
    assert (exact[tree.leaves] == 7).all()
    assert (exact[~tree.leaf] == noisy[~tree.leaf]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: theory.Tree.of(lambda x: torch.full((len(x), 2), 0.4), 3), "not probabilities"),
        (lambda: theory.Tree.of(lambda x: torch.ones(3, 2) / 2, 3), "must be 1 ×"),
        (lambda: theory.Tree.of(lambda x: torch.ones(len(x), 2) / 2), "horizon=None"),
        (lambda: theory.Tree.of(lambda x: torch.ones(len(x), 9000) / 9000, 2), "more than"),
        (lambda: theory.Tree.of(Zeros(3)).expect(np.ones(7)), "8 leaves"),
        (lambda: theory.Tree.of(Zeros(3)).evaluate(lambda x: torch.ones(2)), "one for each"),
        (lambda: theory.Tree.of(Zeros(3)).counts(torch.tensor([[0, 1]])), "end in a leaf"),
        (lambda: theory.tokenwise(theory.Tree.of(Zeros(3)), np.ones(3)), "15 nodes"),
        (lambda: theory.tokenwise(theory.Tree.of(Zeros(3)), np.full(15, np.nan)), "finite"),
        (lambda: theory.action_level(theory.Tree.of(Zeros(3)), np.full(15, 2.0), bound=1.0), "largest value, 2"),
        (lambda: theory.action_level(theory.Tree.of(Zeros(3)), np.ones(15), tries=3), "tries=3: goes with bound="),
        (lambda: theory.restricted_law(theory.Tree.of(Zeros(3)), np.zeros(8)), "nothing to restrict to"),
        (lambda: theory.tv([0.5, 0.5], [1.0]), "q of shape"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


# -- whole strings ---------------------------------------------------------------------------------------------------


@RANDOM
def test_restricted_law(case):
    world = Random(*case)
    tree = world.tree()
    weights = {s: p * world.score(s) for s, p in world.leaves()}
    total = sum(weights.values())
    expected = {s: w / total for s, w in weights.items()}
    compare(tree, theory.restricted_law(tree, world.values(tree)[tree.leaves]), expected)


@RANDOM
@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("tries", [None, 1, 3])
def test_rejection(case, abort, tries):
    """One string after another, each with what it costs, up to `tries` or until hardly any mass is left."""
    world = Random(*case)
    tree = world.tree()

    def one(s=(), p=1.0):
        """(string or None, probability, tokens, verifier calls) of one attempt, s already accepted."""
        if world.over(s):
            yield s, p, 0, 0
            return
        for a, q in enumerate(world.law(s)):
            child = (*s, a)
            asked = int(abort or world.over(child))
            if asked and world.score(child) < 0.5:
                yield None, p * q, 1, asked
            else:
                for out, chance, tokens, calls in one(child, p * q):
                    yield out, chance, tokens + 1, calls + asked

    law, alive, queries, calls = defaultdict(float), 1.0, 0.0, 0.0
    for _ in range(tries or 3000):
        lost = 0.0
        for out, chance, tokens, asked in one():
            queries += alive * chance * tokens
            calls += alive * chance * asked
            if out is None:
                lost += chance
            else:
                law[out] += alive * chance
        alive *= lost
        if alive < 1e-14:
            break
    found = theory.rejection(tree, world.values(tree), abort=abort, tries=tries)
    compare(tree, found.law, law)
    assert found.fail == pytest.approx(alive, abs=1e-12)
    assert found.queries == pytest.approx(queries)
    assert found.verifier_calls == pytest.approx(calls)


@RANDOM
@pytest.mark.parametrize("n", [1, 2, 3])
def test_best_of_n_over_all_draws(case, n):
    world = Random(*case)
    strings = list(world.leaves())
    if len(strings) ** n > 20_000:
        pytest.skip("too many draws to enumerate")
    law, queries = defaultdict(float), 0.0
    for draws in itertools.product(strings, repeat=n):
        p = math.prod(q for _, q in draws)
        best = max(draws, key=lambda draw: world.score(draw[0]))  # the first of equals
        law[best[0]] += p
        queries += p * sum(len(s) for s, _ in draws)
    tree = world.tree()
    found = theory.best_of_n(tree, world.values(tree), n)
    compare(tree, found.law, law)
    assert found.queries == pytest.approx(queries)
    assert found.verifier_calls == n


# -- token by token --------------------------------------------------------------------------------------------------


def tokenwise_by_hand(world, chance, tries, s=(), p=1.0):
    """(string or None, probability, draws) with one draw after another; `chance(s)` accepts."""
    if world.over(s):
        yield s, p, 0
        return
    alive = 1.0
    for draw in range(1, tries + 1):
        refused = 0.0
        for a, q in enumerate(world.law(s)):
            accepted = chance((*s, a))
            refused += q * (1 - accepted)
            if q * accepted:
                for out, mass, draws in tokenwise_by_hand(world, chance, tries, (*s, a), p * alive * q * accepted):
                    yield out, mass, draws + draw
        alive *= refused
    yield None, p * alive, tries


@RANDOM
@pytest.mark.parametrize("tries", [1, 2, 4])
@pytest.mark.parametrize("method", ["tokenwise", "action level"])
def test_tokenwise_and_action_level(case, tries, method):
    world = Random(*case)
    tree = world.tree()
    values = world.values(tree)
    if method == "tokenwise":
        found = theory.tokenwise(tree, values, tries=tries)
        by_hand = tokenwise_by_hand(world, lambda s: float(world.score(s) >= 0.5), tries)
    else:
        found = theory.action_level(tree, values, bound=1.25, tries=tries)
        by_hand = tokenwise_by_hand(world, lambda s: world.score(s) / 1.25, tries)
    law, fail, queries = defaultdict(float), 0.0, 0.0
    for out, mass, draws in by_hand:
        queries += mass * draws
        if out is None:
            fail += mass
        else:
            law[out] += mass
    compare(tree, found.law, law)
    assert found.fail == pytest.approx(fail, abs=1e-12)
    assert found.queries == pytest.approx(queries)
    assert found.verifier_calls == pytest.approx(queries)


@RANDOM
def test_tokenwise_without_a_limit_is_the_limit(case):
    world = Random(*case)
    tree = world.tree()
    values = world.values(tree) + 0.2
    endless, long = (theory.action_level(tree, values, bound=1.2, tries=tries) for tries in (None, 4000))
    np.testing.assert_allclose(endless.law, long.law, atol=1e-9)
    assert endless.queries == pytest.approx(long.queries, rel=1e-9)
    # Where all tokens are scored the law is the same, at one query a token and one call for all that may follow.
    scored = theory.action_level(tree, values)
    np.testing.assert_allclose(scored.law, endless.law, atol=1e-12)
    assert scored.queries == pytest.approx(scored.law @ tree.depth[tree.leaves])
    assert scored.backtracks == scored.erased == 0
    assert scored.fail == pytest.approx(0)
    blocked = theory.tokenwise(tree, np.where(tree.depth == 2, 0.0, 1.0))
    assert blocked.queries == math.inf
    assert blocked.fail == pytest.approx(1 - blocked.law.sum())


@RANDOM
@pytest.mark.parametrize("pick", ["sample", "likeliest"])
def test_exhaustive_tokenwise(case, pick):
    world = Random(*case)
    tree = world.tree()
    law, reached, calls = defaultdict(float), 0.0, 0.0

    def walk(s, p):
        nonlocal reached, calls
        if world.over(s):
            law[s] += p
            return
        reached += p
        possible = {a: q for a, q in enumerate(world.law(s)) if q}
        calls += p * len(possible)
        weights = {a: q for a, q in possible.items() if world.score((*s, a)) >= 0.5}
        if pick == "likeliest" and weights:
            weights = {max(weights, key=weights.get): 1.0}
        for a, weight in weights.items():
            walk((*s, a), p * weight / sum(weights.values()))

    walk((), 1.0)
    found = theory.exhaustive_tokenwise(tree, world.values(tree), pick=pick)
    np.testing.assert_allclose(found.law.sum() + found.fail, 1)
    compare(tree, found.law, law)
    assert found.verifier_calls == pytest.approx(calls)
    assert found.queries == pytest.approx(reached)


# -- blocks ----------------------------------------------------------------------------------------------------------


def endings(world, s, block, p=1.0, grown=0):
    if world.over(s) or grown == block:
        yield s, p
    else:
        for a, q in enumerate(world.law(s)):
            if q:
                yield from endings(world, (*s, a), block, p * q, grown + 1)


@RANDOM
@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.parametrize("method", ["best", "rejection"])
def test_blocks_over_all_draws(case, block, method):
    world = Random(*case)
    n = 2
    law, cost = defaultdict(float), [0.0, 0.0]

    def walk(s, p):
        if world.over(s):
            law[s] += p
            return
        for draws in itertools.product(list(endings(world, s, block)), repeat=n):
            chance = p * math.prod(q for _, q in draws)
            scores = [world.score(end) for end, _ in draws]
            good = [i for i, score in enumerate(scores) if score >= 0.5]
            used = n if method == "best" or not good else good[0] + 1
            kept = good[0] if method == "rejection" and good else scores.index(max(scores))
            cost[0] += chance * sum(len(end) - len(s) for end, _ in draws[:used])
            cost[1] += chance * used
            walk(draws[kept][0], chance)

    walk((), 1.0)
    tree = world.tree()
    scores = world.values(tree)
    if method == "best":
        found = theory.block_best_of_n(tree, scores, n=n, block=block)
    else:
        found = theory.block_rejection(tree, scores, tries=n, block=block)
    compare(tree, found.law, law)
    assert found.queries == pytest.approx(cost[0])
    assert found.verifier_calls == pytest.approx(cost[1])
    assert found.fail == pytest.approx(0, abs=1e-12)


def test_one_block_is_best_of_n():
    world = Random(2, 3, 4, eos=0)
    tree = world.tree()
    scores = world.values(tree)
    whole, block = theory.best_of_n(tree, scores, 5), theory.block_best_of_n(tree, scores, n=5, block=4)
    np.testing.assert_allclose(whole.law, block.law, atol=1e-12)
    assert whole.queries == pytest.approx(block.queries)


# -- backtracking ----------------------------------------------------------------------------------------------------

REDO = ("argmax", "sample", "none", "greedy-rest", "released-counter")


def algorithm_1(world, quota, stride, redo, verify_redo):
    """Every path through the algorithm as it is printed, with b = min(stride, length) tokens erased and redone."""
    law, cost = defaultdict(float), defaultdict(float)

    def run(s, p, left, greedy):
        """`greedy`: how many of the coming tokens are greedy."""
        if world.over(s):
            law[s] += p
            return
        redone = len(s) < greedy if redo == "released-counter" else greedy > 0
        probs = world.law(s)
        options = [(int(np.argmax(probs)), 1.0)] if redone else [(a, q) for a, q in enumerate(probs) if q]
        for a, q in options:
            child, chance = (*s, a), p * q
            cost["queries"] += chance
            after = greedy if redo in ("released-counter", "greedy-rest") else max(0, greedy - 1)
            ask = left > 0 and (not redone or verify_redo or redo == "released-counter")
            if ask:
                cost["verifier_calls"] += chance
            if ask and world.score(child) < 0.5:
                erased = min(stride, len(child))
                cost["backtracks"] += chance
                cost["erased"] += chance * erased
                again = {"argmax": erased, "greedy-rest": 10**9, "released-counter": greedy + stride}.get(redo, 0)
                run(child[: len(child) - erased], chance, left - 1, again)
            else:
                run(child, chance, left, after)

    run((), 1.0, quota, 0)
    return law, cost


@RANDOM
@pytest.mark.parametrize("redo", REDO)
@pytest.mark.parametrize(
    ("quota", "stride", "verify_redo"), [(0, 1, False), (2, 1, False), (2, 2, True), (3, 9, False)]
)
def test_backtracking_over_all_paths(case, redo, quota, stride, verify_redo):
    world = Random(*case)
    tree = world.tree()
    law, cost = algorithm_1(world, quota, stride, redo, verify_redo)
    found = theory.backtracking(
        tree, world.values(tree), quota=quota, stride=stride, redo=redo, verify_redo=verify_redo
    )
    compare(tree, found.law, law)
    assert found.law.sum() == pytest.approx(1)
    for name in ("queries", "verifier_calls", "backtracks", "erased"):
        assert getattr(found, name) == pytest.approx(cost[name], abs=1e-12)


@pytest.mark.parametrize("redo", ["argmax", "sample"])
@pytest.mark.parametrize(("quota", "stride"), [(0, 2), (1, 1), (2, 3), (4, 4), (3, 20)])
def test_slip_oracle_closed_forms_are_the_tree(redo, quota, stride):
    world = Slips(9, 0.15)
    tree = theory.Tree.of(world)
    found = theory.backtracking(tree, tree.evaluate(world.accepts), quota=quota, stride=stride, redo=redo)
    valid = tree.evaluate(world.valid)[tree.leaves]
    assert theory.slip_accuracy(9, 0.15, quota=quota, stride=stride, redo=redo) == pytest.approx(found.law @ valid)
    assert theory.slip_queries(9, 0.15, quota=quota, stride=stride, redo=redo) == pytest.approx(found.queries)


def test_slip_oracle_stride_one_is_negative_binomial():
    """The closed form for stride 1 against the recursion, reached through a stride that never reaches further."""
    world = Slips(10, 0.1)
    tree = theory.Tree.of(world)
    valid = tree.evaluate(world.valid)[tree.leaves]
    for quota in range(4):
        found = theory.backtracking(tree, tree.evaluate(world.accepts), quota=quota, stride=1, redo="sample")
        by_hand = sum(math.comb(10 + k - 1, k) * 0.1**k * 0.9**10 for k in range(quota + 1))
        assert found.law @ valid == pytest.approx(by_hand)
        assert theory.slip_accuracy(10, 0.1, quota=quota, stride=1, redo="sample") == pytest.approx(by_hand)


# -- the toy oracles -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_zeros(length):
    tree = theory.Tree.of(Zeros(length))
    values = tree.evaluate(Zeros(length).accepts)
    assert theory.rejection(tree, values).queries == pytest.approx(theory.zeros_rejection(length))
    assert theory.rejection(tree, values, abort=True).queries == pytest.approx(
        theory.zeros_rejection(length, abort=True)
    )
    assert theory.tokenwise(tree, values).queries == pytest.approx(theory.zeros_tokenwise(length))


@pytest.mark.parametrize(("world", "closed"), [(OneZero, theory.one_zero_tv), (Trap, theory.trap_tv)])
@pytest.mark.parametrize("length", [2, 3, 6, 9])
def test_miscalibration(world, closed, length):
    world = world(length)
    tree = theory.Tree.of(world)
    values = tree.evaluate(world.accepts)
    target = theory.restricted_law(tree, values[tree.leaves])
    assert theory.tv(theory.tokenwise(tree, values).law, target) == pytest.approx(closed(length), abs=1e-14)


@pytest.mark.parametrize("length", [2, 3, 5])
def test_hidden_prefix_costs(length):
    """Average and worst number of candidates over all secrets and orders, and the optimum by dynamic programming."""
    candidates = list(itertools.product((0, 1), repeat=length - 1))
    found = theory.hidden_prefix_search(length)
    if len(candidates) <= 4:
        costs = [order.index(secret) + 1 for order in itertools.permutations(candidates) for secret in candidates]
        inferring = [min(cost, len(candidates) - 1) for cost in costs]
        assert (np.mean(costs), np.mean(inferring), max(costs)) == pytest.approx(found)
    best = 0.0  # least expected cost with m candidates left, all equally likely
    for m in range(2, len(candidates) + 1):
        best = 1 + (m - 1) / m * best
    assert found.mean_inferring == pytest.approx(best)
    world = HiddenPrefix(length, candidates[1])
    tree = theory.Tree.of(world)
    rejection = theory.rejection(tree, tree.evaluate(world.accepts))
    assert rejection.queries == pytest.approx(theory.hidden_prefix_rejection(length))
    aware = theory.tokenwise(tree, tree.evaluate(world.accepts_supported))
    assert aware.queries == pytest.approx(theory.hidden_prefix_tokenwise(length))
    assert aware.fail == pytest.approx(0)
    blind = theory.tokenwise(tree, tree.evaluate(world.accepts), tries=50)
    assert blind.fail == pytest.approx(1 - 2.0 ** -(length - 1))


@pytest.mark.parametrize("seed", range(4))
def test_knapsack_costs(seed):
    world = Knapsack.arbitrary(10, torch.Generator().manual_seed(seed))
    tree = theory.Tree.of(world)
    values = tree.evaluate(world.accepts)
    assert theory.rejection(tree, values).queries == pytest.approx(theory.knapsack_rejection(world))
    tokenwise = theory.tokenwise(tree, values)
    assert tokenwise.queries == pytest.approx(theory.knapsack_tokenwise(world))
    assert tokenwise.queries <= 2 * world.length
    assert tokenwise.fail == pytest.approx(0, abs=1e-12)


# -- distances -------------------------------------------------------------------------------------------------------


def test_distances():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    assert theory.tv(p, q) == 0.5
    assert theory.kl(p, q) == pytest.approx(math.log(2))
    assert theory.kl(q, p) == math.inf
    assert theory.coverage(p, q) == 2
    assert theory.coverage(q, p) == math.inf
