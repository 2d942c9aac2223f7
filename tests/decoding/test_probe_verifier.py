"""Error prefixes against the parser, the probe's hidden states and scores against plain forward passes."""

from collections import Counter

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.decoding import ExactModel, Hidden, Predicate, TransformerModel, backtrack
from sandtable.decoding.error_prefixes import collect_error_prefixes
from sandtable.decoding.verifiers.probe import ProbeVerifier, hidden_states
from sandtable.models import Transformer
from sandtable.worlds import FixedLengthDyck

WORLD = FixedLengthDyck(10)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def slipping(prefix):
    """The world's law, but every tenth bracket or so is any bracket."""
    law = WORLD.next_token_probs(prefix)
    slip = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0, 0.0], dtype=torch.float64)
    inside = (prefix.shape[1] > 0) and (prefix.shape[1] <= WORLD.length)
    return 0.9 * law + 0.1 * slip if inside else law


def network(seed=0, *, layers=2, width=16, size=6):
    model = Transformer(
        size, layers=layers, heads=2, width=width, mlp=24, norm="pre", causal=True, positions="learned", longest=12
    )
    return model.initialise(rng(seed), 8.0).eval()


def model(seed=0, **options):
    return TransformerModel(network(seed, **options), vocab=WORLD.vocab, eos=WORLD.eos)


def rights(lengths, generator):
    rows = WORLD.sample(len(lengths), generator).x
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]


@pytest.mark.parametrize("fresh", [True, False])
def test_error_prefixes_are_cut_right_after_the_first_error(fresh):
    lm = ExactModel(slipping, vocab=WORLD.vocab, eos=WORLD.eos)
    prompts = WORLD.prompts(400, rng(1), lengths=(2, 6))
    found = collect_error_prefixes(
        lm, prompts, WORLD.first_error, max_tokens=12, generator=rng(2), rights=rights if fresh else None
    )
    assert len(found.wrong) == len(found.right) == len(found) // 2 > 80
    assert Counter(map(len, found.wrong)) == Counter(map(len, found.right))
    for row in found.wrong:
        assert WORLD.first_error(row[None]).position.item() == len(row) - 1
    for row in (*found.right, *found.inducing):
        assert WORLD.accepts(row[None]).item()
    made = found.generation
    assert torch.equal(found.errors, WORLD.first_error(made.tokens, made.lengths).position)
    if fresh:
        assert len(found.wrong) == int((found.errors >= 0).sum())
    else:  # right prefixes were generated, too: they are longer than their prompt and begin a completion
        begun = {tuple(row[:end]) for row, start in zip(made.rows, made.prompts.tolist(), strict=True)
                 for end in range(start + 1, len(row) + 1)}  # fmt: skip
        assert all(tuple(row.tolist()) in begun for row in found.right)


def test_errors_of_the_prompt_do_not_count():
    lm = ExactModel(WORLD)
    prompts = [[4, 0, 3], [4, 0, 2], [4, 1]]  # the first has its error before anything is generated
    found = collect_error_prefixes(lm, prompts, WORLD.first_error, max_tokens=3, rights=rights)
    assert len(found) == 0
    assert found.errors.tolist() == [2, -1, -1]


@pytest.mark.parametrize("hidden", [Hidden(0), Hidden(1), Hidden(2), Hidden(2, normed=True)])
def test_hidden_states_are_those_of_a_plain_forward_pass(hidden):
    lm, rows = model(), [row[:end] for row, end in zip(WORLD.sample(9, rng(3)).x, range(2, 11), strict=True)]
    names = {0: "blocks.0.hook_resid_pre", 1: "blocks.0.hook_resid_post", 2: "blocks.1.hook_resid_post"}
    name = "ln_final.hook_normalized" if hidden.normed else names[hidden.layer]
    expected = [lm.network(row[None], want=(name,))[1][name][0, -1] for row in rows]
    assert torch.allclose(hidden_states(lm, rows, hidden, batch_size=4), torch.stack(expected), atol=1e-5)


def trained(lm, seed=0, **options):
    rows = [*rights(torch.arange(60) % 8 + 3, rng(seed)), *(torch.randint(4, (n % 8 + 3,), generator=rng(n))
            for n in range(60))]  # fmt: skip
    labels = torch.arange(2).flip(0).repeat_interleave(60)
    options = {"hidden": Hidden(2, normed=True), "least_updates": 60} | options
    return ProbeVerifier.fit(lm, rows, labels, rng(seed), **options)


@pytest.mark.parametrize("depth", [1, 3])
def test_scores_while_decoding_are_the_classifiers(depth):
    lm = model()
    verifier = trained(lm, depth=depth)
    prompts = WORLD.prompts(30, rng(4), lengths=(2, 6))
    made = backtrack(lm, prompts, verifier, max_tokens=6, quota=2, stride=2, trace=True, generator=5)
    assert made.trace is not None
    scored = 0
    for row in range(len(made)):
        tokens = made.trace.prompts[row][:]
        for event in made.trace.of_row(row):
            if event.action == "append":
                tokens.append(event.token)
            elif event.action == "erase":
                del tokens[len(tokens) - event.token :]
            else:
                name = "ln_final.hook_normalized"
                state = lm.network(torch.tensor([tokens]), want=(name,))[1][name][:, -1]
                expected = verifier.classifier(state).softmax(-1)[0, 1].item()
                assert event.score == pytest.approx(expected, abs=1e-4)
                assert event.passed == (event.score >= 0.5)
                scored += 1
    assert scored == int(made.verifier_calls.sum()) > 40


def test_saved_and_loaded_it_says_the_same(tmp_path):
    lm = model()
    verifier = trained(lm, depth=2, hidden=Hidden(1))
    again = ProbeVerifier.load(verifier.save(tmp_path / "probe.safetensors"))
    assert again.needs == Hidden(1)
    assert again.validation_accuracy == verifier.validation_accuracy
    states = torch.randn(7, 16, generator=rng(6))
    assert torch.equal(again.classifier(states), verifier.classifier(states))
    prompts = WORLD.prompts(5, rng(4), lengths=(2, 6))
    one, other = (backtrack(lm, prompts, v, max_tokens=5, generator=5) for v in (verifier, again))
    assert torch.equal(one.tokens, other.tokens)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: model(1), "probe of another model"),
        (lambda: model(layers=1), "layer=2"),
        (lambda: model(width=32), "probe of hidden states 16 wide"),
        (lambda: TransformerModel(network(size=4)), "probe of a model with more than 4 tokens"),
        (lambda: ExactModel(WORLD), "has no hidden states"),
    ],
)
def test_another_model_is_refused_in_one_line(other, message):
    verifier = trained(model())
    with pytest.raises(ArgumentError, match=message) as caught:
        backtrack(other(), [[0, 1, 3]], verifier, max_tokens=3)
    assert "\n" not in str(caught.value)


def test_the_same_weights_in_another_object_are_known():
    verifier = trained(model())
    backtrack(model(), [[4, 0, 1]], verifier, max_tokens=3)


def test_files_that_hold_no_probe(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "text").write_text("not a probe")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    for name, message in (("text", "cannot be read"), ("missing", "cannot be read"), ("other.safetensors", "holds no")):
        with pytest.raises(ArgumentError, match=message) as caught:
            ProbeVerifier.load(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_functions_that_answer_wrongly():
    lm = ExactModel(slipping, vocab=WORLD.vocab, eos=WORLD.eos)
    prompts = WORLD.prompts(60, rng(1), lengths=(2, 6))
    with pytest.raises(ArgumentError, match="first_error: must give"):
        collect_error_prefixes(lm, prompts, lambda tokens, lengths: lengths, max_tokens=12)
    with pytest.raises(ArgumentError, match="rights: must give"):
        collect_error_prefixes(lm, prompts, WORLD.first_error, max_tokens=12, rights=lambda lengths, generator: [])


def test_a_state_of_another_layer_is_refused():
    lm = model()
    verifier = trained(lm, hidden=Hidden(1))
    for needs in (Hidden(2), Hidden(2, normed=True)):
        with pytest.raises(ArgumentError, match=r"this probe reads Hidden\(layer=1, normed=False\)"):
            backtrack(lm, [[4, 0, 1]], Predicate(verifier.score, needs=needs), max_tokens=3)
    backtrack(lm, [[4, 0, 1]], Predicate(verifier.score, needs=Hidden(1)), max_tokens=3)


def test_weights_that_were_trained_on_are_another_model():
    verifier, other = trained(model()), model()
    with torch.no_grad():
        for number, parameter in enumerate(other.network.parameters()):
            parameter += 0.05 * parameter.std() * torch.randn(parameter.shape, generator=rng(number))
    with pytest.raises(ArgumentError, match="probe of another model"):
        backtrack(other, [[4, 0, 1]], verifier, max_tokens=3)
    half = model()
    half.network.to(torch.bfloat16)
    backtrack(half, [[4, 0, 1]], verifier, max_tokens=3)


def test_models_that_are_gone_are_not_remembered():
    verifier, lm = trained(model()), model()
    for _ in range(5):  # as a `generate` that wraps its network anew in every call
        backtrack(TransformerModel(lm.network), [[4, 0, 1]], verifier, max_tokens=3)
    assert len(verifier._known) == 1
    for _ in range(5):
        backtrack(model(), [[4, 0, 1]], verifier, max_tokens=3)
    assert len(verifier._known) <= 2


def test_what_a_verifier_is_worth_on_fresh_prefixes():
    lm = model()
    verifier = trained(lm)
    rows, labels = [[4, 0, 1, 2], [4, 0, 2], [4, 1, 1]], torch.tensor([0, 1, 1])
    found = verifier.assess(lm, rows, labels)
    states = hidden_states(lm, rows, verifier.needs)
    scores = verifier.classifier(states).softmax(-1)[:, 1].detach().double()
    assert found.brier == pytest.approx(float((scores - labels).square().mean()))
    assert found.accuracy == pytest.approx(float(((scores >= 0.5) == labels.bool()).double().mean()))
