"""Word after word: against the enumerated law, a beam search on plain lists, and an exhaustive one."""

import math

import pytest
import torch
from small_translators import SIZE, random_model, rng, sources
from test_refine import within

from sandtable.arguments import ArgumentError
from sandtable.decoding import Truncation, autoregress, beam_search, translate
from sandtable.inputs import EOS, NEVER_WRITTEN, PAD, RESERVED
from sandtable.models import Encoded, Pair


@torch.no_grad()
def next_law(model, source, prefix, temperature=1.0, top_p=1.0, top_k=None):
    """P(next token | prefix, source) of an unpadded source."""
    logits = model(Pair(source[None], None, torch.tensor([[PAD, *prefix]])))[:, -1]
    logits[:, list(NEVER_WRITTEN)] = -math.inf
    return Truncation(temperature, top_p, top_k).probs(logits)[0]


@torch.no_grad()
def enumerated(model, source, longest, **law):
    """The law of all targets of at most `longest` tokens."""
    found, prefixes = {}, {(): 1.0}
    for _ in range(longest):
        longer = {}
        for prefix, mass in prefixes.items():
            probs = next_law(model, source, prefix, **law)
            for token in range(SIZE):
                if float(probs[token]) > 0:
                    goal = found if token == EOS else longer
                    goal[(*prefix, token)] = mass * float(probs[token])
        prefixes = longer
    return found | prefixes


LAWS = [dict(), dict(temperature=0.6, top_k=3), dict(temperature=1.3, top_p=0.7)]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("positional", [False, True])
def test_samples_follow_the_enumerated_law(law, positional):
    model, n = random_model(3, causal=True, positional=positional), 20_000
    source = torch.tensor([5, 8, 4])
    exact = enumerated(model, source, 3, **law)
    assert sum(exact.values()) == pytest.approx(1)
    out = autoregress(model, source.expand(n, -1), how="sample", generator=0, longest=3, **law)
    drawn = [tuple(row[:m]) for row, m in zip(out.tokens.tolist(), out.lengths.tolist(), strict=True)]
    assert set(drawn) <= set(exact)
    counts = torch.tensor([drawn.count(target) for target in exact]).double()
    assert within(counts, torch.tensor(list(exact.values())).double())
    assert torch.equal(out.decoder_passes, out.lengths)
    plain = enumerated(model, source, 3)
    assert out.score[:20].exp().tolist() == pytest.approx([plain[target] for target in drawn[:20]], rel=1e-6)


def test_greedy_takes_the_likeliest_token_each_time():
    model = random_model(7, causal=True)
    source, seen = sources(rows=8)
    out = autoregress(model, source, seen=seen, longest=7)
    for row in range(8):
        prefix, score = [], 0.0
        while len(prefix) < 7 and EOS not in prefix:
            probs = next_law(model, source[row][seen[row]], prefix)
            prefix.append(int(probs.argmax()))
            score += math.log(float(probs.max()))
        assert out.tokens[row, : len(prefix)].tolist() == prefix
        assert (out.tokens[row, len(prefix) :] == PAD).all()
        assert int(out.lengths[row]) == int(out.decoder_passes[row]) == len(prefix)
        assert float(out.score[row]) == pytest.approx(score, abs=1e-9)
    assert out.lengths.unique().numel() > 2
    parts = translate(autoregress, model, source, seen=seen, longest=7, batch_size=3)
    assert torch.equal(parts.tokens, out.tokens)


def test_there_are_as_many_tokens_as_asked_for():
    model, (source, seen) = random_model(7, causal=True), sources(rows=8)
    out = autoregress(model, source, seen=seen, longest=5, shortest=5)
    assert (out.lengths == 5).all()
    assert not (out.tokens[:, :4] == EOS).any()
    assert (autoregress(model, source, seen=seen, longest=5, shortest=3).lengths >= 3).all()
    sampled = autoregress(model, source, seen=seen, how="sample", generator=rng(), longest=6, shortest=4)
    assert (sampled.lengths >= 4).all()


# -- beams -----------------------------------------------------------------------------------------------------------


def slow_beams(model, source, beams, longest, alpha):
    """The best target, its normalised score, and how many passes it took."""
    live, ended, passes = [((), 0.0)], [], 0
    for _ in range(longest):
        if not live:
            break
        passes += 1
        longer = [(kept, score, True) for kept, score in ended]
        for prefix, score in live:
            probs = next_law(model, source, prefix)
            longer += [
                ((*prefix, t), score + math.log(float(probs[t])), t == EOS) for t in (EOS, *range(RESERVED, SIZE))
            ]
        best = sorted(longer, key=lambda entry: -entry[1])[:beams]
        ended = [(target, score) for target, score, done in best if done]
        live = [(target, score) for target, score, done in best if not done]
    ranked = [(target, score / ((5 + len(target)) / 6) ** alpha) for target, score in ended + live]
    return (*max(ranked, key=lambda entry: entry[1]), passes)


@pytest.mark.parametrize("alpha", [0.0, 0.8])
@pytest.mark.parametrize("beams", [1, 2, 5, 9])
def test_beam_search_is_the_slow_one(beams, alpha):
    model = random_model(9, causal=True)
    source, seen = sources(rows=6, seed=4)
    out = beam_search(model, source, seen=seen, beams=beams, longest=5, alpha=alpha)
    for row in range(6):
        target, score, passes = slow_beams(model, source[row][seen[row]], beams, 5, alpha)
        assert tuple(out.tokens[row, : out.lengths[row]].tolist()) == target
        assert float(out.score[row]) == pytest.approx(score, abs=1e-9)
        assert int(out.decoder_passes[row]) == passes
    if beams == 1 and not alpha:
        greedy = autoregress(model, source, seen=seen, longest=5)
        assert torch.equal(out.tokens, greedy.tokens)
        assert torch.equal(out.decoder_passes, greedy.decoder_passes)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_with_room_for_all_prefixes_the_best_target_is_found(alpha):
    better = 0
    for seed in range(6):
        model, source = random_model(seed, causal=True), torch.tensor([4 + seed % 3, 6])
        law = enumerated(model, source, 4)
        score = {target: math.log(mass) / ((5 + len(target)) / 6) ** alpha for target, mass in law.items()}
        best = max(score, key=score.__getitem__)
        out = beam_search(model, source[None], beams=SIZE**3, longest=4, alpha=alpha)
        assert tuple(out.tokens[0, : out.lengths[0]].tolist()) == best
        assert float(out.score[0]) == pytest.approx(score[best], abs=1e-9)
        better += score[best] > float(beam_search(model, source[None], beams=1, longest=4, alpha=alpha).score[0]) + 1e-9
    assert better  # greedy is not always the best


def test_given_lengths_leave_the_best_target_of_that_length():
    model, asked = random_model(3, causal=True), torch.tensor([3, 1, 4, 2])
    source = torch.tensor([[4, 6], [5, 7], [6, 4], [8, 5]])
    out = beam_search(model, source, beams=SIZE**3, lengths=asked)
    assert torch.equal(out.lengths, asked)
    assert torch.equal(out.decoder_passes, asked)
    for row, length in enumerate(asked.tolist()):
        law = enumerated(model, source[row], length).items()
        score = {target: math.log(p) for target, p in law if len(target) == length and EOS in target}
        best = max(score, key=score.__getitem__)
        assert out.tokens[row].tolist() == [*best, *[PAD] * (4 - length)]
        assert float(out.score[row]) == pytest.approx(score[best], abs=1e-9)
    few = beam_search(model, source, beams=2, lengths=asked)
    assert torch.equal(few.lengths, asked)
    assert (few.score <= out.score + 1e-9).all()


def test_prefixes_are_summed_by_the_whole_target():
    """log P of a target by teacher forcing is the score that sampling gives it."""
    model, (source, seen) = random_model(2, causal=True), sources()
    out = autoregress(model, source, seen=seen, how="sample", generator=1, longest=6)
    start = torch.nn.functional.pad(out.tokens[:, :-1], (1, 0), value=PAD)
    with torch.no_grad():
        logits = model(Encoded(model.encode(source, seen)[0], seen, start))
    logits[..., list(NEVER_WRITTEN)] = -math.inf
    each = logits.log_softmax(-1).gather(2, out.tokens[..., None])[..., 0]
    assert torch.allclose(torch.where(out.mask, each, 0.0).sum(1), out.score, atol=1e-9)


@pytest.mark.parametrize(
    ("decode", "options", "message"),
    [
        (autoregress, dict(how="best"), "how='best': must be one of greedy, sample"),
        (autoregress, dict(how="sample"), "generator=None: sampling needs a generator"),
        (autoregress, dict(longest=17), "longest=17: must be a whole number from 1 to 16"),
        (autoregress, dict(longest=3, shortest=4), "shortest=4"),
        (autoregress, dict(temperature=-1), "temperature=-1"),
        (beam_search, dict(beams=0), "beams=0"),
        (beam_search, dict(alpha=-0.1), "alpha=-0.1"),
        (beam_search, dict(lengths=torch.tensor([1, 2])), "lengths of shape"),
        (beam_search, dict(lengths=torch.tensor([2.5])), "lengths of torch.float32: must be whole numbers"),
        (beam_search, dict(lengths=torch.tensor([True])), "lengths of torch.bool: must be whole numbers"),
        (beam_search, dict(model=random_model()), "this decoder needs a Seq2Seq with causal=True"),
    ],
)
def test_bad_input_gets_one_line(decode, options, message):
    make = {"model": random_model(causal=True), **options}
    with pytest.raises(ArgumentError, match=message):
        decode(make.pop("model"), sources()[0], **make)
