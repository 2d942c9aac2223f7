"""Built models against a stack written down a second time, and helper networks against what they stand for."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.cli import main
from sandtable.models.attention import silent
from sandtable.probes.dyck.balance import Tokenwise, balance_violation, least_outputs, pair_sums
from sandtable.probes.dyck.pumping import log_slope, pumped_counts, pumped_rows, pumping_distance, pumping_outputs
from sandtable.theory import dyck
from sandtable.worlds import DyckPrefixes, DyckWords


def predict(word, types, depth, q):
    """The next-bracket law after `word`, from a Python list used as a stack; None where `word` is no prefix."""
    stack = []
    for token in word:
        if token < types:
            stack.append(token)
        elif not stack or stack.pop() != token - types:
            return None
        if len(stack) > depth:
            return None
    law = [0.0] * (2 * types)
    if not stack:
        law[:types] = [1 / types] * types
    elif len(stack) == depth:
        law[types + stack[-1]] = 1.0
    else:
        law[:types] = [q / types] * types
        law[types + stack[-1]] = 1 - q
    return law


def all_words(types, depth, q, length):
    for word in itertools.product(range(2 * types), repeat=length):
        if all(predict(word[:i], types, depth, q) is not None for i in range(length + 1)):
            yield word


@pytest.mark.parametrize(
    ("types", "depth", "q", "length"),
    [(2, 4, 0.5, 6), (2, 3, 0.3, 6), (3, 2, 0.7, 4), (1, 3, 0.4, 10), (2, 1, 0.5, 6), (1, 1, 0.2, 7), (2, 2, 0.9, 6)],
)
@pytest.mark.parametrize("attention", dyck.ATTENTIONS)
def test_every_prefix_gets_the_law_of_a_stack(attention, types, depth, q, length):
    model = dyck.build(attention, types=types, depth=depth, q=q, seed=5)
    words = list(all_words(types, depth, q, length))
    out = model(torch.tensor([[2 * types, *word] for word in words]))
    expected = [[predict(word[:i], types, depth, q) for i in range(length + 1)] for word in words]
    assert (out - torch.tensor(expected, dtype=torch.float64)).abs().max() < 1e-9


@settings(max_examples=15, deadline=None)
@given(
    types=st.integers(1, 4),
    depth=st.integers(1, 6),
    q=st.floats(0.05, 0.95),
    scale=st.floats(0, 2),
    seed=st.integers(0, 1000),
    layers=st.integers(2, 4),
    extra=st.integers(0, 20),
)
def test_random_models_are_exact_far_out(types, depth, q, scale, seed, layers, extra):
    width = dyck.least_width(types, depth) + extra
    model = dyck.build("random", types=types, depth=depth, q=q, scale=scale, seed=seed, layers=layers, width=width)
    row = DyckPrefixes(types=types, depth=depth, q=q, length=150).sample(1, torch.Generator().manual_seed(seed)).x
    word = row[0, 1:].tolist()
    expected = torch.tensor([predict(word[:i], types, depth, q) for i in range(len(word) + 1)], dtype=torch.float64)
    assert (model(row)[0] - expected).abs().max() < 1e-6


def test_two_thousand_brackets():
    found = dyck.check(dyck.build("random", seed=1), DyckPrefixes(), longest=5, long=2000, rows=1)
    assert found.prefixes == sum(DyckPrefixes().count_prefixes(n) for n in range(6))
    assert max(found.error, found.long_error) < 1e-6


def test_check_finds_a_wrong_weight():
    model = dyck.build()
    values = dyck.second_layer(model, types=2, depth=4)[1]
    values[3] *= 1.5
    wrong = dyck.with_values(model, values, types=2, depth=4)
    assert dyck.check(wrong, DyckPrefixes(), longest=8).error > 0.01
    assert dyck.check(model, DyckPrefixes(), longest=8).error < 1e-9


def test_attention_is_what_was_asked_for():
    row = DyckPrefixes().reference[None]
    hook = "blocks.1.attn.hook_pattern"
    uniform = dyck.build()(row, want=(hook,))[1][hook][0, 0]
    assert torch.allclose(uniform, torch.ones(17, 17).double().tril() / torch.arange(1, 18)[:, None])
    scores = dyck.random_scores(torch.Generator().manual_seed(0))
    found = dyck.from_scores(scores, types=2, depth=4)(row, want=(hook,))[1][hook][0, 0]
    symbols = DyckPrefixes().symbols(row)[0]
    for query in (3, 9, 16):
        weight = scores[symbols[: query + 1], symbols[query]].exp()
        assert torch.allclose(found[query, : query + 1], weight / weight.sum())


@pytest.mark.parametrize(
    ("attention", "scale", "size"),
    [("random", 20.0, (2, 4)), ("random", 8.0, (2, 4)), ("misleading", 30.0, (2, 4)), ("random", 8.0, (3, 6))],
)
def test_scores_that_float64_cannot_hold_are_refused(attention, scale, size, monkeypatch):
    """And rightly: the model that would come of them errs, by the law of the Python stack above."""
    types, depth = size
    options = dict(types=types, depth=depth, scale=scale)
    with pytest.raises(ArgumentError, match=r"scores up to .* at most 1e-06 is allowed: take smaller scores") as caught:
        dyck.build(attention, **options)
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(dyck.constructions, "_require_exact", lambda *_: None)
    model = dyck.build(attention, **options)
    row = DyckPrefixes(types=types, depth=depth, length=200).sample(4, torch.Generator().manual_seed(0)).x
    words = [word[1:] for word in row.tolist()]
    law = torch.tensor([[predict(word[:i], types, depth, 0.5) for i in range(201)] for word in words])
    assert (model(row) - law).abs().max() > 1e-3


def test_the_full_depth_is_always_looked_at():
    """Eight brackets never open forty: a wrong reader of the deepest pair shows all the same."""
    world = DyckPrefixes(types=2, depth=6)
    model = dyck.build(types=2, depth=6)
    table = model.get_parameter("blocks.1.mlp.W_2").clone()
    gates = 2 * (6 - 1)
    table[gates + 5] = 0.0  # what the opener of depth six, type 0, says
    model.set("blocks.1.mlp.W_2", table)
    assert dyck.check(model, world, longest=3).error == pytest.approx(1.0)


# -- balance ---------------------------------------------------------------------------------------------------------


def written_out(scores, types, depth):
    """Eq. 2.47 for every pair and every two closers of depth ≥ 1, loop by loop."""
    pairs, found = types * depth, []
    closers = [pairs + j * depth + c - 1 for j in range(types) for c in range(2, depth + 1)]
    for p in range(pairs):
        for a, b in itertools.product(closers, closers):
            found.append((scores[p, a] - scores[pairs + p, a]) - (scores[p, b] - scores[pairs + p, b]))
    return torch.stack(found) if found else scores.new_zeros(1)


@pytest.mark.parametrize(("types", "depth"), [(2, 4), (3, 2), (1, 3), (2, 1), (1, 2)])
def test_projection_is_the_nearest_balanced_matrix(types, depth):
    n = dyck.symbol_count(types, depth)
    drawn = torch.randn(n, n, generator=torch.Generator().manual_seed(0)).double()
    near = dyck.project(drawn, types=types, depth=depth)
    assert written_out(near, types, depth).abs().max() < 1e-12
    assert dyck.residual(near, types=types, depth=depth) < 1e-12
    # least squares on the constraints written out as a matrix gives the same point
    eye = torch.eye(n * n).double().reshape(-1, n, n)
    rows = torch.stack([written_out(unit, types, depth) for unit in eye], 1)
    step = torch.linalg.lstsq(rows, rows @ drawn.flatten(), driver="gelsd").solution.reshape(n, n)
    assert torch.allclose(drawn - step, near, atol=1e-9)
    assert int(torch.linalg.matrix_rank(rows)) == dyck.constraint_count(types, depth)


def test_residual_sees_a_single_broken_constraint():
    scores = dyck.random_scores(torch.Generator().manual_seed(0))
    scores[0, 9] += 0.1
    assert dyck.residual(scores, types=2, depth=4) == pytest.approx(0.1 * math.sqrt(5 / 6))
    with pytest.raises(ArgumentError, match="balance condition"):
        dyck.from_scores(scores, types=2, depth=4)


def outputs_of_the_two_prefixes(layer, length, outer, i, query_depth):
    """LN_0 of attention after the two prefixes of the proof of Theorem 2.2.2 (type j = 0), symbol by symbol; and P.

    p = opener_i^d' (opener_i closer_i)^n' closer_i^d' with n' = ⌊N/2⌋ − d' − d − 1, then t or t' (d − 1 openers), then
    a pair of type 0. t has the least output at its end, t' the least of those with another last opener.
    """
    copies = length // 2 - outer - query_depth - 1
    front = "".join(["[("[i]] * outer + ["[("[i] + "])"[i]] * copies + ["])"[i]] * outer)
    world, query = DyckPrefixes(), 8 + query_depth - 1

    def output(text):  # unnormalised and without its mean
        symbols = world.symbols(world.prefix(text)[None])[0].tolist()
        assert symbols[-1] == query
        return sum(layer.scores[key, query].exp() * layer.values[key] for key in symbols)

    strings = ["".join(t) for t in itertools.product("[(", repeat=query_depth - 1)]
    norms = {t: float(output(t + "[]").norm()) for t in strings}
    first = min(strings, key=norms.__getitem__)
    second = min((t for t in strings if t[-1] != first[-1]), key=norms.__getitem__)
    texts = [front + t + "[]" for t in (first, second)]
    assert all(len(text) == 2 * (length // 2) - query_depth - 1 <= length for text in texts)
    assert len({tuple(world.next_token_law(world.prefix(text)[None])[0, -1].tolist()) for text in texts}) == 2
    ends = [output(text) for text in texts]
    return [end / end.norm() for end in ends], norms[second]


@pytest.mark.parametrize("spread", [0.03, 0.3, 1.0])
@pytest.mark.parametrize("query_depth", [2, 3])
def test_explicit_bounds_on_the_two_prefixes_of_the_proof(spread, query_depth):
    """An exact g needs at least the Lipschitz constant √2(1−q)/Δ for outputs Δ apart; with it the bounds must hold.

    They could fail: three tenths of them do, at every pair depth, for some of the layers.
    """
    length, size = 200, dict(types=2, depth=4)
    tight = torch.zeros(4)
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        scores, values = dyck.second_layer(dyck.build("random", seed=seed, scale=0.5), **size)
        scores = scores + spread * torch.randn(scores.shape, generator=generator).double()
        values = values + spread * torch.randn(values.shape, generator=generator).double()
        layer = Tokenwise(scores, values - values.mean(1, keepdim=True))
        sums = pair_sums(layer, **size).norm(dim=-1).reshape(2, 3, 2, 4)[0, query_depth - 2]
        ratios = sums / least_outputs(layer, **size).reshape(2, 3)[0, query_depth - 2]  # (i, pair depth)
        for i in range(2):
            apart = []
            for outer in range(4):
                (one, two), _ = outputs_of_the_two_prefixes(layer, length, outer, i, query_depth)
                apart.append(float((one - two).norm()))
            bounds = dyck.approximate_balance_bounds(
                length, query_depth=query_depth, depth=4, q=0.5, lipschitz=math.sqrt(2) * 0.5 / min(apart)
            )
            assert all(r <= b for r, b in zip(ratios[i].tolist(), bounds, strict=True))
            tight = torch.maximum(tight, ratios[i] / torch.tensor(bounds))
    assert bool((tight > 0.3).all()), tight


def test_explicit_bounds_by_their_recursion():
    bounds = dyck.approximate_balance_bounds(60, query_depth=2, depth=4, q=0.5, lipschitz=3.0, error=0.1)
    ratio = 2 * 3.0 / (math.sqrt(2) * 0.5 - 2 * 0.1)
    assert bounds[0] == pytest.approx(ratio / (30 - 2 - 1))
    assert bounds[1] == pytest.approx((ratio + bounds[0]) / (30 - 2 - 2))
    assert bounds[2] == pytest.approx((ratio + bounds[0] + bounds[1]) / (30 - 2 - 3))


# -- pumping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [(0, 1), (1, 3), (1, 4)])
def test_counts_are_those_of_the_rows(pair):
    for stack in ((0,), (1, 0), (0, 1, 1)):
        row = pumped_rows(5, types=2, depth=4, pair=pair, stack=stack)
        counts = torch.bincount(DyckPrefixes().symbols(row[None])[0], minlength=17).double()
        assert torch.equal(pumped_counts([5], types=2, depth=4, pair=pair, stack=stack)[0], counts)


def test_pumping_fades_without_balance_only():
    size, copies = dict(types=2, depth=4), [100, 1000, 10_000]
    generator = torch.Generator().manual_seed(1)
    generic = Tokenwise(*(torch.randn(17, n, generator=generator).double() for n in (17, 20)))
    assert log_slope(copies, pumping_distance(generic, copies, **size)) == pytest.approx(-1, abs=0.05)
    model = dyck.build("random", seed=2)
    balanced = Tokenwise(*dyck.second_layer(model, **size))
    assert log_slope(copies, pumping_distance(balanced, copies, **size)) == pytest.approx(0, abs=1e-6)
    assert balance_violation(balanced, **size) < 1e-12
    apart = pumping_outputs(model, [1, 30, 300], **size, pair=(1, 2))
    assert torch.allclose(apart, torch.full((3,), math.sqrt(2) / 2).double(), atol=1e-6)


# -- helper networks -------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 12), width=st.integers(1, 6), seed=st.integers(0, 1000))
def test_tables_return_their_values(count, width, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randint(-3, 4, (count, width), generator=generator).double().unique(dim=0)
    values = torch.randn(len(points), 2, generator=generator).double()
    assert torch.allclose(dyck.lookup(points, values)(points, silent), values, atol=1e-7)


def test_points_that_coincide_have_no_table():
    with pytest.raises(ArgumentError, match="coincide"):
        dyck.lookup(torch.zeros(2, 3), torch.eye(2))


def test_selection_places_and_linear_maps():
    generator = torch.Generator().manual_seed(0)
    x = 5 * torch.rand(7, 7, generator=generator).double()
    chosen = dyck.selector(7, 5.0)(torch.cat([x, torch.arange(1, 8).double()[:, None]], 1), silent)
    assert torch.allclose(chosen[:, 0], x.diagonal())
    single = torch.zeros(1, 7).double()
    single[0, 2] = 10.5
    assert dyck.place_of_one(7, 10.0)(single, silent).item() == pytest.approx(3)
    weight = torch.randn(4, 6, generator=generator).double()
    given_x = torch.randn(9, 4, generator=generator).double()
    assert torch.allclose(dyck.linear(weight)(given_x, silent), given_x @ weight)


# -- files and the command line --------------------------------------------------------------------------------------


def run(*arguments):
    try:
        main(["dyck", *map(str, arguments)])
    except SystemExit as done:
        return done.code or 0
    return 0


def test_a_file_gives_back_the_same_model(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    options = [
        "--attention",
        "random",
        "--seed",
        3,
        "--types",
        3,
        "--depth",
        2,
        "--q",
        0.3,
        "--layers",
        3,
        "--width",
        40,
    ]
    assert run("build", *options, "-o", path, "--longest", 5, "--long", 50) == 0
    built = dyck.load(path)
    same = dyck.build("random", types=3, depth=2, q=0.3, seed=3, layers=3, width=40).state_dict()
    assert all(torch.equal(value, same[name]) for name, value in built.model.state_dict().items())
    assert built.world == DyckPrefixes(types=3, depth=2, q=0.3)
    assert (built.attention, built.seed) == ("random", 3)
    assert run("check", path, "--longest", 4, "--long", 0) == 0
    assert "largest error" in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_damaged_model_is_found_out(tmp_path, capsys):
    model = dyck.build()
    model.set("blocks.1.mlp.b_2", torch.full((model.width,), 0.1))
    path = dyck.save(dyck.Built(model, 2, 4, 0.5), tmp_path / "wrong.safetensors")
    assert dyck.load(path).attention == "custom"
    assert run("check", path, "--longest", 4, "--long", 0) == 1
    found = capsys.readouterr()
    assert "custom attention" in found.out
    assert found.err.startswith("sandtable: not exact: errors above 1e-06 come of")
    assert found.err.count("\n") == 1


def test_what_is_compared_is_said(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    assert run("build", "-o", path, "--depth", 3, "--longest", 60, "--long", 0) == 0
    out = capsys.readouterr().out
    world, longest = DyckPrefixes(depth=3), 1
    while world.count_prefixes(longest + 1) <= 400_000:
        longest += 1
    assert f"--longest 60 is {world.count_prefixes(60):,} prefixes; compared at {longest} brackets instead" in out
    assert "on one of 12 that opens every type 3 deep" in out


def test_a_file_is_not_written_for_other_brackets(tmp_path):
    model = dyck.build()
    for types, depth in ((3, 4), (2, 3), (1, 8)):
        with pytest.raises(ArgumentError, match=f"types={types}, depth={depth}: the model was not built for these"):
            dyck.save(dyck.Built(model, types, depth, 0.5), tmp_path / "x")
        with pytest.raises(ArgumentError, match="was not built for these"):
            dyck.second_layer(model, types=types, depth=depth)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attention", "unifrom"], "did you mean 'uniform'"),
        (["--types", "0"], "--types=0"),
        (["--depth", "0"], "--depth=0"),
        (["--q", "1.5"], "q=1.5"),
        (["--width", "5"], "width=5"),
        (["--layers", "1"], "--layers=1"),
        (["--scale", "2"], "scale=2.0: uniform attention has no scores to scale"),
        (["--seed", "7"], "--seed=7: uniform attention of two layers draws nothing"),
        (["--seed", "7", "--attention", "misleading"], "--seed=7: misleading attention"),
        (["--seed", "-1", "--layers", "3"], "--seed=-1"),
        (["--scale", "8", "--attention", "random"], "take smaller scores"),
    ],
)
def test_bad_options_are_one_line(arguments, message, tmp_path, capsys):
    assert run("build", *arguments, "-o", tmp_path / "x") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_long_prefixes_must_fit_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sandtable.arguments.memory.most_memory", lambda: 2**30)
    assert run("build", "--long", "20000", "-o", tmp_path / "x") == 2
    assert "--long=20000: asks for 18 GiB of numbers" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_bad_files_are_one_line(tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("not a model")
    assert run("build", "-o", text) == 2
    assert "exists already" in capsys.readouterr().err
    assert run("build", "-o", text / "below") == 2
    assert "cannot be written" in capsys.readouterr().err
    assert run("check", text) == 2
    assert "not a safetensors file" in capsys.readouterr().err
    assert run("check", tmp_path / "missing") == 2
    assert "no such file" in capsys.readouterr().err
    assert run("check", tmp_path) == 2
    assert "a folder, not a file" in capsys.readouterr().err
    torch_file = tmp_path / "other.safetensors"
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, torch_file, metadata={"sandtable": '{"kind": "dyck", "types": 2, "depth": 4}'})
    assert run("check", torch_file) == 2
    assert "do not fit together" in capsys.readouterr().err
    built = dyck.Built(dyck.build(types=1, depth=2), 1, 2, 0.5)
    object.__setattr__(built, "q", 1.0)
    assert run("check", dyck.save(built, tmp_path / "sure.safetensors")) == 2
    assert "sure.safetensors: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: dyck.from_scores(torch.zeros(3, 17, 17), types=2, depth=4),
            r"shape \(3, 17, 17\): must be those of one",
        ),
        (lambda: dyck.with_scores(dyck.build(), torch.zeros(3, 17, 17), types=2, depth=4), r"shape \(3, 17, 17\)"),
        (lambda: dyck.from_scores(torch.full((17, 17), math.nan), types=2, depth=4), "289 entries nan or inf"),
        (lambda: dyck.project(torch.full((17, 17), math.inf), types=2, depth=4), "must be finite"),
        (lambda: dyck.with_values(dyck.build(), torch.zeros(17, 5), types=2, depth=4), r"\(17, 5\): .* 17 × 27"),
        (lambda: dyck.with_values(dyck.build(), torch.zeros(5, 27), types=2, depth=4), r"\(5, 27\): .* 17 × 27"),
        (lambda: dyck.check(dyck.build(), DyckWords()), "world=DyckWords.*: must be a DyckPrefixes"),
        (lambda: dyck.build(scale=2.0), "scale=2.0: uniform attention has no scores"),
    ],
)
def test_mistakes_are_one_line(call, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_other_vocabularies_are_refused():
    with pytest.raises(ArgumentError, match="reads 6 tokens"):
        dyck.check(dyck.build(), DyckPrefixes(types=3))
    with pytest.raises(ArgumentError, match="17 × 17"):
        dyck.residual(torch.zeros(16, 16), types=2, depth=4)
