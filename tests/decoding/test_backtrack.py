"""Algorithm 1 against closed forms of the i.i.d.-slip oracle and against its pseudo-code run row by row."""

import math
from functools import cache

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.decoding import ExactModel, Predicate, backtrack
from sandtable.decoding.driver import decoder

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
        (dict(verifier=lambda view: torch.zeros(len(view), 2)), "one score a row"),
        (dict(verifier=lambda view: torch.full((len(view),), 1.5)), "a probability in"),
    ],
)
def test_bad_input_gets_one_clear_line(options, message):
    with pytest.raises(ArgumentError, match=message) as error:
        backtrack(ORACLE, [[0]], **(dict(max_tokens=3, verifier=PERFECT) | options))
    assert "\n" not in str(error.value)
