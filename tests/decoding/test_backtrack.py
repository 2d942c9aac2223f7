"""Algorithm 1 against closed forms of the i.i.d.-slip oracle and against its pseudo-code run row by row."""

import itertools
import math
from functools import cache

import pytest
import torch

from sandtable import decoding
from sandtable.arguments import ArgumentError
from sandtable.decoding import ExactModel, Hidden, Noisy, Predicate, Random, Reward, backtrack
from sandtable.decoding.driver import decoder
from sandtable.models import Transformer

LENGTH, SLIP, ROWS = 20, 0.1, 20_000
RIGHT, WRONG, EOS = 0, 1, 2


def slips(prefix):
    return torch.tensor([1 - SLIP, SLIP], dtype=torch.float64).expand(len(prefix), 2)


def clean(view):
    """Reads all that it is shown, as a user's rule would: nothing that was erased may stand behind the end of a row."""
    behind = torch.arange(view.tokens.shape[1]) >= view.lengths[:, None]
    assert not view.tokens[behind].any()
    return ~(view.tokens == WRONG).any(1)


ORACLE, PERFECT = ExactModel(slips, vocab=2), Predicate(clean)


def resampled(stride, quota):
    """Accuracy when erased positions are sampled anew, by recursion over (length, quota left)."""

    @cache
    def f(i, q):
        if i == LENGTH:
            return 1.0
        if q == 0:
            return (1 - SLIP) ** (LENGTH - i)
        return (1 - SLIP) * f(i + 1, q) + SLIP * f(i + 1 - min(stride, i + 1), q - 1)

    return f(0, quota)


@pytest.mark.parametrize(("quota", "stride"), [(1, 1), (2, 4), (4, 4), (4, 30), (0, 1)])
def test_argmax_redo_is_right_iff_slips_fit_the_quota(quota, stride):
    made = backtrack(ORACLE, [[]] * ROWS, PERFECT, max_tokens=LENGTH, quota=quota, stride=stride, generator=quota)
    accuracy = made.tokens[:, :LENGTH].eq(RIGHT).all(1).double().mean()
    expected = sum(math.comb(LENGTH, k) * SLIP**k * (1 - SLIP) ** (LENGTH - k) for k in range(quota + 1))
    assert abs(float(accuracy) - expected) < 0.015
    assert made.lengths.eq(LENGTH).all()
    # Every backtrack erases at most `stride` tokens and redoes exactly those.
    assert torch.equal(made.queries, LENGTH + made.erased)
    assert made.queries.max() <= LENGTH + quota * stride
    assert torch.equal(made.backtracks + made.quota_left, torch.full_like(made.lengths, quota))


@pytest.mark.parametrize(("quota", "stride"), [(1, 1), (2, 1), (2, 4), (4, 4)])
@pytest.mark.parametrize("redo", ["sample", "none"])
def test_resampling_follows_its_recursion(quota, stride, redo):
    made = backtrack(
        ORACLE, [[]] * ROWS, PERFECT, max_tokens=LENGTH, quota=quota, stride=stride, redo=redo, generator=9
    )
    accuracy = made.tokens[:, :LENGTH].eq(RIGHT).all(1).double().mean()
    assert abs(float(accuracy) - resampled(stride, quota)) < 0.015


def script(quota, stride, redo, verify_redo, protect, prompt, tokens, verdicts):
    """Algorithm 1 as printed, one row, with the sampled tokens and the verdicts given: the row and its bill."""
    row, made, checks, bill = list(prompt), iter(tokens), iter(verdicts), [0, 0, 0]
    least = len(prompt) if protect else 0
    greedy, rest, kept = 0, False, len(prompt)
    while len(row) < len(prompt) + 8 and (len(row) == kept or row[-1] != EOS):
        redone = rest or (len(row) - len(prompt) if redo == "released-counter" else 0) < greedy
        row.append(RIGHT if redone else next(made))
        bill[0] += 1
        greedy -= redo == "argmax" and greedy > 0
        if quota and (verify_redo or redo == "released-counter" or not redone):
            bill[1] += 1
            if not next(checks):
                erased = min(stride, len(row) - least)
                del row[len(row) - erased :]
                kept = min(kept, len(row))
                bill[2] += erased
                quota -= 1
                rest = rest or redo == "greedy-rest"
                greedy = {"argmax": erased, "released-counter": greedy + stride}.get(redo, 0)
    return row, bill


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("redo", ["argmax", "sample", "greedy-rest", "released-counter"])
def test_every_option_follows_the_pseudo_code(seed, redo):
    generator = torch.Generator().manual_seed(seed)
    quota, stride = (int(torch.randint(1, 5, (), generator=generator)) for _ in range(2))
    verify_redo, protect = (bool(torch.randint(2, (), generator=generator)) for _ in range(2))
    prompt = torch.randint(2, (3,), generator=generator).tolist()
    drawn = torch.multinomial(torch.tensor([0.5, 0.4, 0.1]), 200, replacement=True, generator=generator).tolist()
    verdicts = (torch.rand(200, generator=generator) < 0.7).tolist()
    expected, bill = script(quota, stride, redo, verify_redo, protect, prompt, drawn, verdicts)
    # An oracle and a verifier that say what the script says, whatever they are shown.
    made, checks = iter(drawn), iter(verdicts)

    class Scripted:
        greedy = False

        def draw(self, logits, uniform):
            return torch.tensor([next(made)])

    def run(call, **options):
        object.__setattr__(call, "law", Scripted())
        asked = call.next_token

        def next_token(rows, greedy):
            if not bool(rows[0]):
                return torch.tensor([0])
            if bool(greedy[0]):
                call.cost.add(queries=rows)
                return torch.tensor([RIGHT])
            return asked(rows)

        call.next_token = next_token
        return original(call, **options)

    original = backtrack.method
    lm = ExactModel(lambda prefix: torch.full((len(prefix), 3), 1 / 3), vocab=3, eos=EOS)
    out = decoder(run)(
        lm, [prompt], Predicate(lambda view: [float(next(checks))]), max_tokens=8, quota=quota, stride=stride,
        redo=redo, verify_redo=verify_redo, protect_prompt=protect, trace=True,
    )  # fmt: skip
    assert out.rows[0] == expected
    assert [int(out.queries[0]), int(out.verifier_calls[0]), int(out.erased[0])] == bill
    assert out.trace.replay(0) == expected


@pytest.mark.parametrize("generated", range(1, 10))
@pytest.mark.parametrize("protect_prompt", [True, False])
def test_the_released_counter_takes_as_many_likeliest_tokens_as_the_published_code(generated, protect_prompt):
    """max(0, 2b − g) after the first backtrack, at g generated tokens; b fewer are erased where the prompt is kept."""
    stride, prompt = 4, [RIGHT] * 5
    met = []

    def once(view):
        met.append(int(view.lengths[0]))
        return [not (met[-1] == len(prompt) + generated and met.count(met[-1]) == 1)]

    lm = ExactModel(lambda prefix: torch.tensor([0.4, 0.6]).expand(len(prefix), 2), vocab=2)
    out = backtrack(
        lm, [prompt], Predicate(once), max_tokens=20, quota=2, stride=stride, redo="released-counter",
        protect_prompt=protect_prompt, trace=True,
    )  # fmt: skip
    redone = sum(event.how == "redo" for event in out.trace.events)
    kept = max(0, generated - stride) if protect_prompt else generated - stride
    assert redone == max(0, stride - kept)
    assert protect_prompt or redone == max(0, 2 * stride - generated)
    assert out.lengths.tolist() == [len(prompt) + 20]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(quota=-1), "quota=-1"),
        (dict(stride=0), "stride=0"),
        (dict(redo="argmx"), "did you mean 'argmax'"),
        (dict(threshold=-0.5), "threshold=-0.5"),
        (dict(max_tokens=0), "max_tokens=0"),
        (dict(verifier=None), "needs a verifier"),
        (dict(verifier=3), "must be a Verifier"),
        (dict(verifier=lambda view: torch.full((len(view),), torch.nan)), "returned NaN for row 0"),
        (dict(verifier=lambda view: None), "returned None: must be one number for every row"),
        (dict(verifier=lambda view: ["good"] * len(view)), "returned .'good'.: must be one number"),
        (dict(verifier=lambda view: [[1.0], [1.0, 2.0]]), "must be one number for every row"),
        (dict(verifier=lambda view: [0.5 + 0j]), "must be one number for every row"),
        (dict(verifier=type("Judge", (), {"score": clean})()), "has no needs and no is_value"),
        (dict(verifier=type("Judge", (), {"score": clean, "needs": None})()), "has no is_value: beside"),
        (dict(protect_prompt="no"), "protect_prompt='no': must be True or False"),
        (dict(verify_redo=1), "verify_redo=1: must be True or False"),
        (dict(trace="no"), "trace='no': must be True or False"),
        (dict(prompts=[[0, 1.5]]), "prompt 0=.0, 1.5.: token ids must be whole numbers"),
        (dict(prompts=[[0], [1.0]]), "prompt 1=.1.0.: token ids must be whole numbers"),
        (dict(prompts=[[0], [True]]), "prompt 1=.True.: token ids must be whole numbers"),
        (dict(prompts=[["a"]]), "prompt 0=.'a'.: must be a row of token ids"),
        (dict(prompts=[5]), "must be a list of rows"),
        (dict(prompts=[[0], 5]), "prompt 1=5: must be a row of token ids"),
        (dict(verifier=Reward(len, granularity="whole")), "Reward of granularity 'whole': would be asked after every"),
        (dict(verifier=lambda view: torch.zeros(len(view), 2)), "one score a row"),
        (dict(verifier=lambda view: torch.full((len(view),), 1.5)), "a probability in"),
    ],
)
def test_bad_input_gets_one_clear_line(options, message):
    with pytest.raises(ArgumentError, match=message) as error:
        backtrack(ORACLE, **(dict(prompts=[[0]], max_tokens=3, verifier=PERFECT) | options))
    assert "\n" not in str(error.value)


def test_what_is_wrong_with_a_score_is_said_of_the_prompt_it_belongs_to():
    """Also where only some rows are due, and in a later batch."""

    def late(view):
        return [
            math.nan if row == 4 and length == 3 else 1.0 for row, length in zip(view.rows, view.lengths, strict=True)
        ]

    for method in (backtrack, decoding.exhaustive_tokenwise, decoding.rejection):
        options = dict(abort=True) if method is decoding.rejection else {}
        with pytest.raises(ArgumentError, match="returned NaN for row 4: must be"):
            method(ORACLE, [[0, 0, 0]] * 4 + [[], [0, 0, 0]], Predicate(late), max_tokens=5, batch_size=2, **options)


GRAINS = {
    "token": ("backtrack", "tokenwise_rejection", "exhaustive_tokenwise", "action_level", "vgb", "smc"),
    "block": ("block_best_of_n", "block_rejection"),
    "whole": ("best_of_n", "rejection"),
}


@pytest.mark.parametrize("knows", GRAINS)
def test_a_verifier_is_only_asked_what_it_knows(knows):
    """One that needs more than a method shows it is refused by name; wrapped ones know what their base does."""
    ranks, seen = list(GRAINS), []

    def finished(view):
        seen.extend(view.lengths.tolist())
        return torch.ones(len(view))

    judge = Noisy(Predicate(finished, granularity=knows))
    for asks, names in GRAINS.items():
        for name in names:
            seen.clear()
            options = dict(boundary=2) if asks == "block" else {}
            if ranks.index(knows) > ranks.index(asks):
                with pytest.raises(ArgumentError, match=f"verifier Noisy of granularity '{knows}': would be asked"):
                    getattr(decoding, name)(ORACLE, [[]] * 3, judge, max_tokens=4, **options)
                assert not seen
            else:
                getattr(decoding, name)(ORACLE, [[]] * 3, judge, max_tokens=4, **options)
                assert set(seen) <= {"token": {0, 1, 2, 3, 4}, "block": {2, 4}, "whole": {4}}[asks]
    if knows == "whole":
        decoding.rejection(ORACLE, [[]], judge, max_tokens=4)
        with pytest.raises(ArgumentError, match="after every token"):
            decoding.rejection(ORACLE, [[]], judge, max_tokens=4, abort=True)
        backtrack(ORACLE, [[]], judge, max_tokens=4, quota=0)


@pytest.mark.parametrize("make", [lambda: Random(3), lambda: Noisy(PERFECT, 0.3, 0.2, seed=3)])
@pytest.mark.parametrize("name", ["backtrack", "vgb", "best_of_n", "smc", "exhaustive_tokenwise", "rejection"])
def test_what_chance_says_of_a_row_does_not_depend_on_its_batch(make, name):
    options = dict(max_tokens=6, generator=1) | (dict(max_restarts=3) if name == "vgb" else {})
    whole = getattr(decoding, name)(ORACLE, [[]] * 9, make(), **options)
    split = getattr(decoding, name)(ORACLE, [[]] * 9, make(), batch_size=2, **options)
    assert whole.rows == split.rows
    assert torch.allclose(whole.score, split.score, equal_nan=True)


def test_chance_is_uniform_and_anew_at_every_call():
    session = ORACLE.start([[0]] * 500, room=1)
    judge, everyone = Random(5), torch.arange(500)
    view = decoding.verifiers.base.view_of(session, everyone, None)
    said = torch.stack([judge.score(view) for _ in range(40)])
    assert len(said.unique()) == said.numel()
    assert abs(float(said.mean()) - 0.5) < 0.01
    assert abs(float(said.var()) - 1 / 12) < 0.003
    assert float(torch.corrcoef(said).fill_diagonal_(0).abs().max()) < 0.25
    assert not torch.equal(Random(6).score(view), said[0])


def test_granularities_have_names():
    with pytest.raises(ArgumentError, match="granularity='line': must be one of token, block, whole"):
        Predicate(clean, granularity="line")


def test_a_granularity_goes_to_disk_with_its_probe(tmp_path):
    lm = decoding.TransformerModel(Transformer(3, layers=1, heads=1, width=8, mlp=8, causal=True, longest=8))
    rows = [list(row) for row in itertools.product(range(3), repeat=3)]
    labels = torch.arange(27) % 2
    probe = decoding.ProbeVerifier.fit(
        lm, rows, labels, torch.Generator().manual_seed(0), hidden=Hidden(1), granularity="block"
    )
    assert decoding.ProbeVerifier.load(probe.save(tmp_path / "probe")).granularity == "block"
