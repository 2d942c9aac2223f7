"""Refinement against a slow one, row by row in plain Python, and against oracles; what is drawn against its law."""

import itertools
import math

import pytest
import torch
from small_translators import SIZE, WORDS, Oracle, random_model, rng, sources

import sandtable as st
from sandtable.arguments import ArgumentError
from sandtable.decoding import (
    Bottom,
    Learnt,
    LinearSchedule,
    Stutter,
    Truncation,
    exact_match,
    learn_rejecter,
    mask_predict,
    refine,
    translate,
    without_stutter,
)
from sandtable.inputs import EOS, MASK, NEVER_WRITTEN, PAD, RESERVED
from sandtable.models import Pair
from sandtable.probes.classifier import Classifier

# -- the slow one ----------------------------------------------------------------------------------------------------


class Tie(Exception):
    """Which words are the least probable hangs on rounding."""


def slow_rejects(rejecter, tokens, logp, states, step, steps):
    """Positions of words that are taken back; the last position is that of ⟨eos⟩."""
    words, last = range(len(tokens) - 1), step == steps - 1
    doubtful = sorted(words, key=lambda i: logp[i])

    def least(k):
        # Where all tokens are the same, probabilities differ by rounding alone.
        if 0 < k < len(words) and logp[doubtful[k]] - logp[doubtful[k - 1]] < 1e-12:
            raise Tie
        return set(doubtful[:k])

    match rejecter:
        case Stutter():
            return {i for i in words if i and tokens[i] == tokens[i - 1]} if not last or rejecter.last else set()
        case _ if last:
            return set()
        case LinearSchedule():
            return least(max(1, math.floor(len(words) * (steps - step - 1) / steps + 1e-9)))
        case Bottom():
            return least(
                rejecter.k if rejecter.k is not None else math.floor(len(words) * rejecter.percent / 100 + 1e-9)
            )
        case Learnt():
            wrong = [float(rejecter.classifier(states[i]).softmax(-1)[0]) for i in words]
            return {i for i in words if wrong[i] > rejecter.threshold}


@torch.no_grad()
def slow(model, source, begin, steps, rejecters=(), replacement="initial"):
    """X^(0) … X^(T), the log-probabilities of the last pass, and the first pass that changed nothing."""
    states, summed, still = [list(begin)], None, steps
    for step in range(steps):
        x = states[-1]
        logits, found = model(Pair(source[None], None, torch.tensor([x])), want=("hook_normalized",))
        logits = logits[0]
        logits[:, list(NEVER_WRITTEN)] = -math.inf
        summed = logits if summed is None else summed + logits
        table = logits.log_softmax(-1).tolist()
        tokens = [max(range(SIZE), key=lambda v, row=row: row[v]) for row in table]
        logp = [max(row) for row in table]
        back = set()
        for rejecter in rejecters:
            back |= slow_rejects(rejecter, tokens, logp, found["hook_normalized"][0], step, steps)
        instead = {"initial": begin, "previous": x, "summed": summed.argmax(-1).tolist()}[replacement]
        states.append([instead[i] if i in back else token for i, token in enumerate(tokens)])
        if states[-1] == x:
            still = min(still, step + 1)
    return states, logp, still


def slow_end(tokens, logp, begin, *, drop_initial, drop_stutter, alpha):
    """Tokens up to ⟨eos⟩ without what is deleted, and the score."""
    n = tokens.index(EOS) + 1 if EOS in tokens else len(tokens)
    kept = [i for i in range(n) if not drop_initial or tokens[i] != begin[i] or tokens[i] == EOS]
    if drop_stutter:
        words = [tokens[i] for i in kept]
        kept = [i for j, i in enumerate(kept) if not j or words[j] != words[j - 1]]
    score = sum(logp[i] for i in kept) / ((5 + len(kept)) / 6) ** alpha
    return [tokens[i] for i in kept], score


def linear_classifier(width=12):
    classifier = Classifier(width).initialise(rng(5)).double()
    return classifier.requires_grad_(False)


CASES = {
    "plain": dict(),
    "stutter": dict(rejecters=(Stutter(),), drop_stutter=True),
    "stutter-previous": dict(rejecters=(Stutter(),), replacement="previous"),
    "authors-code": dict(rejecters=(Stutter(last=True),), drop_initial=True),
    "both-deletions": dict(rejecters=(Stutter(last=True),), drop_initial=True, drop_stutter=True, alpha=0.6),
    "linear": dict(rejecters=(LinearSchedule(),)),
    "linear-summed": dict(rejecters=(LinearSchedule(),), replacement="summed", alpha=1.0),
    "bottom-k": dict(rejecters=(Bottom(k=2),), replacement="previous"),
    "bottom-percent": dict(rejecters=(Bottom(percent=40),)),
    "two": dict(rejecters=(Stutter(), Bottom(k=1)), replacement="summed"),
    "learnt": dict(rejecters=(Learnt(linear_classifier(), 0.6),), drop_stutter=True),
}


@pytest.mark.parametrize("early_stop", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_refinement_is_the_slow_one(case, early_stop):
    options = {"rejecters": (), "replacement": "initial", **CASES[case]}
    ending = {"drop_initial": False, "drop_stutter": False, "alpha": 0.0}
    ending |= {name: options.pop(name) for name in ending if name in options}
    steady = all(r.steady for r in options["rejecters"]) and options["replacement"] != "summed"
    stopped = ties = 0
    for seed in range(3):
        model = random_model(seed, mixing=0.1, width=12)
        source, seen = sources(rows=6, seed=seed)
        lengths = torch.tensor([1, 2, 5, 9, 12, 7])
        out = refine(
            model, source, seen=seen, lengths=lengths, steps=5, generator=seed, trace=True, early_stop=early_stop,
            **options, **ending,
        )  # fmt: skip
        assert (out.encoder_passes == 1).all()
        for row in range(6):
            n = int(lengths[row])
            begin = out.trace[0][row, :n].tolist()
            assert begin[-1] == EOS
            assert all(RESERVED <= word < SIZE for word in begin[:-1])
            try:
                states, logp, still = slow(model, source[row][seen[row]], begin, 5, **options)
            except Tie:
                ties += 1
                continue
            tokens, score = slow_end(states[-1], logp, begin, **ending)
            assert out.tokens[row, : out.lengths[row]].tolist() == tokens
            assert (out.tokens[row, out.lengths[row] :] == PAD).all()
            assert float(out.score[row]) == pytest.approx(score, abs=1e-9)
            assert [x[row, :n].tolist() for x in out.trace] == states
            assert all((x[row, n:] == PAD).all() for x in out.trace)
            assert int(out.decoder_passes[row]) == (still if early_stop and steady else 5)
            stopped += still < 5
    assert ties < 6  # of 18
    assert stopped > 1 or not steady  # or early stops were not tested


@pytest.mark.parametrize("case", ["plain", "linear-summed", "both-deletions"])
@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_the_best_of_the_likeliest_lengths_is_kept(case, weight):
    options = {"rejecters": (), "replacement": "initial", **CASES[case]}
    ending = {"drop_initial": False, "drop_stutter": False, "alpha": 0.3}
    ending |= {name: options.pop(name) for name in ending if name in options}
    model, (source, seen) = random_model(4), sources(rows=8, longest=5)
    out = refine(model, source, seen=seen, beams=4, steps=3, noise="mask", length_weight=weight, **options, **ending)
    chosen = set()
    for row in range(8):
        own = source[row][seen[row]]
        with torch.no_grad():
            lengths = model.encode(own[None])[1][0].log_softmax(0)
        found = []
        for n in sorted(range(1, 13), key=lambda n, p=lengths: -p[n - 1])[:4]:
            begin = [MASK] * (n - 1) + [EOS]
            try:
                states, logp, _ = slow(model, own, begin, 3, **options)
            except Tie:
                break
            tokens, score = slow_end(states[-1], logp, begin, **ending)
            found.append((tokens, score + weight * float(lengths[n - 1])))
        if len(found) < 4:
            continue
        tokens, score = max(found, key=lambda pair: pair[1])
        chosen.add([pair[1] for pair in found].index(score))
        assert out.tokens[row, : out.lengths[row]].tolist() == tokens
        assert float(out.score[row]) == pytest.approx(score, abs=1e-9)
    assert len(chosen) > 1
    assert refine(model, source, seen=seen, beams=99, steps=1, noise="mask").tokens.shape[1] == 12


def test_mask_predict_masks_ever_fewer_of_the_least_probable_words():
    model, (source, seen) = random_model(2), sources()
    out = mask_predict(model, source, seen=seen, lengths=torch.full((4,), 9), steps=4, trace=True)
    masked = torch.stack([(x == MASK).sum(1) for x in out.trace])
    assert masked.tolist() == [[8] * 4, [6] * 4, [4] * 4, [2] * 4, [0] * 4]
    assert (out.decoder_passes == 4).all()


def test_a_batch_in_parts_is_the_batch():
    model, (source, seen) = random_model(3), sources(rows=7)
    options = dict(noise="mask", steps=3, rejecters=(Stutter(),), trace=True)
    whole = refine(model, source, seen=seen, **options)
    parts = translate(refine, model, source, seen=seen, batch_size=3, **options)
    width = parts.tokens.shape[1]
    assert torch.equal(whole.tokens[:, :width], parts.tokens)
    for name in ("lengths", "decoder_passes", "encoder_passes"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))
    assert len(parts.trace) == 4
    same = source[:1].expand(4, -1)
    noise = translate(refine, model, same, generator=0, batch_size=2, steps=1, beams=1, trace=True).trace[0]
    assert not torch.equal(noise[:2], noise[2:])  # one seed for all parts
    lengths = torch.arange(2, 9)
    whole = refine(model, source, seen=seen, lengths=lengths, **options)
    parts = translate(refine, model, source, seen=seen, lengths=lengths, batch_size=2, **options)
    assert torch.equal(whole.tokens, parts.tokens)


# -- laws ------------------------------------------------------------------------------------------------------------


def within(counts, law, confidence=1e-9):
    """Whether counts agree with a law: TV of the empirical law ≤ ½√(K/n) + √(log(1/δ)/2n) but for probability δ."""
    total = float(counts.sum())
    distance = 0.5 * float((counts / total - law).abs().sum())
    return distance <= 0.5 * math.sqrt(law.numel() / total) + math.sqrt(math.log(1 / confidence) / (2 * total))


@pytest.mark.parametrize(
    "cut", [dict(temperature=1.0), dict(temperature=0.7, top_p=0.8), dict(temperature=1.5, top_k=3)]
)
def test_sampled_tokens_follow_their_law(cut):
    model, n = random_model(1), 20_000
    source = torch.tensor([[5, 7, 4]])
    out = refine(
        model, source.expand(n, -1), lengths=torch.full((n,), 3), steps=1, noise="mask", generator=0, trace=True, **cut
    )
    with torch.no_grad():
        logits = model(Pair(source, None, torch.tensor([[MASK, MASK, EOS]])))[0]
    logits[:, list(NEVER_WRITTEN)] = -math.inf
    a, b, c = Truncation(**cut).probs(logits)
    law = a[:, None, None] * b[:, None] * c
    x = out.trace[1]
    counts = torch.bincount((x[:, 0] * SIZE + x[:, 1]) * SIZE + x[:, 2], minlength=SIZE**3).view(SIZE, SIZE, SIZE)
    assert within(counts.double(), law)
    assert (counts[law == 0] == 0).all()
    logp = logits.log_softmax(-1)
    full = x[:, :2].ne(EOS).all(1)
    place = torch.arange(3)
    assert torch.allclose(out.score[full], logp[place, x][full].sum(1))


def test_random_words_are_uniform_and_hang_on_the_generator():
    model = random_model()
    source, lengths = torch.full((3000, 1), 4), torch.full((3000,), 6)
    first, again, other = (
        refine(model, source, lengths=lengths, steps=1, generator=g, trace=True) for g in (3, rng(3), 4)
    )
    assert torch.equal(first.tokens, again.tokens)
    assert not torch.equal(first.trace[0], other.trace[0])
    counts = torch.bincount(first.trace[0][:, :5].flatten(), minlength=SIZE)[RESERVED:]
    assert within(counts.double(), torch.full((WORDS,), 1 / WORDS).double())


# -- oracles ---------------------------------------------------------------------------------------------------------

TASKS = [
    st.worlds.DropTask(symbols=9, length=6, distilled=True),
    st.worlds.FertilityTask(distilled=True),
    st.worlds.DialectTask(dialects=3, distilled=True),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_an_oracle_is_right_and_its_passes_are_counted(task):
    batch = task.sample(40, rng())
    source, n = batch.given.x, batch.mask.sum(1)
    oracle = Oracle(task)
    out = refine(oracle, source, generator=0, steps=4, length_weight=1.0)
    assert exact_match(out.tokens, batch.x).all()
    assert task.valid(source, out.tokens).all()
    assert torch.equal(out.lengths, n)
    assert oracle.encoded == 40
    assert (out.decoder_passes == 2).all()  # the second pass sees that nothing changes
    # What is published leaves the length out of the score: nothing is as sure as a target without words.
    assert (refine(oracle, source, generator=0, beams=task.longest).lengths < n).any()
    oracle = Oracle(task)
    out = refine(oracle, source, generator=0, steps=4, lengths=n, early_stop=False)
    assert (out.decoder_passes == 4).all()
    assert (oracle.encoded, oracle.written) == (40, 160)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_one_word_a_pass_takes_as_many_passes_as_words_and_one_to_see_it(task):
    batch = task.sample(40, rng())
    source, n = batch.given.x, batch.mask.sum(1)
    oracle = Oracle(task, slow=True)
    out = refine(oracle, source, noise="mask", steps=task.longest, lengths=n)
    assert exact_match(out.tokens, batch.x).all()
    assert torch.equal(out.decoder_passes, n)
    assert oracle.written == int(n.sum())
    few = refine(oracle, source, noise="mask", steps=2, lengths=n, trace=True)
    assert torch.equal(few.decoder_passes, n.clamp(max=2))
    wrong = (few.trace[-1] != batch.x[:, : few.trace[-1].shape[1]]).sum(1)
    assert torch.equal(wrong, (n - 3).clamp(min=0))


def test_a_model_learns_to_translate():
    task = st.worlds.DialectTask(symbols=4, length=2, distilled=True)
    model = st.models.Seq2Seq(
        task.vocab, layers=1, heads=2, width=16, longest=4, longest_target=4, source_positions=True
    )
    fit = st.fit(
        model,
        task,
        st.objectives.Refinement(stages=1),
        steps=250,
        batch_size=32,
        optimizer=st.training.Adam(0.01),
        seeds=1,
    )
    batch = task.sample(60, rng(9))
    out = refine(fit[0], batch.given.x, generator=0, beams=1)
    assert float(exact_match(out.tokens, batch.x).double().mean()) > 0.95


# -- the end, rejecters, bad input -----------------------------------------------------------------------------------


def test_stutter_is_deleted_at_the_end():
    tokens = torch.tensor([[5, 5, 6, 5, 5, EOS, PAD], [4, 4, 4, 4, 4, 4, 4], [EOS, 0, 0, 0, 0, 0, 0]])
    found, lengths = without_stutter(tokens, torch.tensor([6, 7, 1]))
    assert found.tolist() == [[5, 6, 5, EOS, 0, 0, 0], [4, 0, 0, 0, 0, 0, 0], [EOS, 0, 0, 0, 0, 0, 0]]
    assert lengths.tolist() == [4, 1, 1]
    # by hand for all words of length 4
    for word in itertools.product((4, 5), repeat=4):
        expected = [w for i, w in enumerate(word) if not i or w != word[i - 1]]
        found, n = without_stutter(torch.tensor([[*word, EOS]]), torch.tensor([5]))
        assert found[0, : int(n)].tolist() == [*expected, EOS]


def test_a_rejecter_is_learnt_where_there_is_something_to_learn():
    task = st.worlds.DropTask(symbols=3, length=2)
    model = st.models.Seq2Seq(task.vocab, layers=1, heads=2, width=8, longest=4, longest_target=4)
    batch = task.sample(300, rng())
    learnt = learn_rejecter(model, batch, rng(1), unmask=0.5)
    assert learnt.classifier.config["width"] == 8
    out = refine(model, batch.given.x, generator=0, rejecters=(learnt,), steps=3)
    assert out.tokens.shape[0] == 300
    oracle = Oracle(st.worlds.DropTask(symbols=3, length=2, distilled=True))
    oracle.forward = lambda inputs, want=(): (  # type: ignore[method-assign]
        oracle.write(inputs.target, oracle.prepare(inputs.memory, None, 3)),
        {"hook_normalized": torch.zeros(*inputs.target.shape, 4)},
    )
    distilled = oracle.task.sample(20, rng())
    words = int((distilled.mask.sum(1) - 1).sum())
    with pytest.raises(ArgumentError, match=f"of {words} words this model writes {words} right"):
        learn_rejecter(oracle, distilled, rng())
    with pytest.raises(ArgumentError, match="needs sources"):
        learn_rejecter(model, distilled.given, rng())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(steps=0), "steps=0"),
        (dict(noise="zeros"), "noise='zeros': must be one of random, mask"),
        (dict(noise="random"), "generator=None"),
        (dict(temperature=0.5), "generator=None"),
        (dict(replacement="first"), "replacement='first'"),
        (dict(alpha=-1.0), "alpha=-1"),
        (dict(beams=0), "beams=0"),
        (dict(length_weight=-1), "length_weight=-1"),
        (dict(rejecters=["stutter"]), r"rejecters=\['stutter'\]: must be rejecters, such as Stutter\(\)"),
        (dict(rejecters=(Stutter,)), "must be rejecters"),
        (dict(lengths=torch.tensor([1, 2])), "lengths of shape"),
        (dict(lengths=torch.tensor([2.5])), "lengths of torch.float32: must be whole numbers"),
        (dict(lengths=torch.tensor([True])), "lengths of torch.bool: must be whole numbers"),
        (dict(lengths=torch.tensor([1, 2, 3, 13])), "must be one from 1 to 12 for every row"),
        (dict(seen=torch.ones(4, 3, dtype=torch.bool)), "seen of shape"),
        (dict(seen=torch.ones(4, 4)), "must be booleans"),
        (dict(seen=torch.zeros(4, 4, dtype=torch.bool)), "every source needs at least one token"),
        (dict(source=torch.zeros(4, 4)), "must be ids"),
        (dict(source=torch.full((4, 4), SIZE)), f"must be ids from 0 to {SIZE - 1}"),
        (dict(model=random_model(causal=True)), "this decoder needs a Seq2Seq with causal=False"),
    ],
)
def test_bad_input_gets_one_line(options, message):
    make = {"model": random_model(), "source": sources()[0], "noise": "mask", **options}
    with pytest.raises(ArgumentError, match=message):
        refine(make.pop("model"), make.pop("source"), **make)


@pytest.mark.parametrize("own", [dict(noise="mask"), dict(rejecters=())])
def test_mask_predict_has_its_own_noise_and_schedule(own):
    name = next(iter(own))
    with pytest.raises(ArgumentError, match=f"{name}=.*: mask_predict has its own; `refine` takes any"):
        mask_predict(random_model(), sources()[0], **own)


def test_bad_rejecters_get_one_line():
    for make, message in (
        (lambda: Bottom(), "give exactly one"),
        (lambda: Bottom(k=1, percent=2), "give exactly one"),
        (lambda: Bottom(k=-1), "k=-1"),
        (lambda: Bottom(percent=101), "percent=101"),
        (lambda: Learnt(linear_classifier(), 1.5), "threshold=1.5"),
        (lambda: translate(refine, random_model(), torch.zeros(0, 3).long()), "nothing to translate"),
        (lambda: translate(refine, random_model(), sources()[0], batch_size=0), "batch_size=0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            make()
