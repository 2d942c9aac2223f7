"""Sessions: whatever was appended, erased, forked or dropped, a row's logits are those of a fresh run on its tokens."""

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.decoding import ExactModel, Hidden, TransformerModel, ancestral, greedy
from sandtable.models import Tokens, Transformer

SIZE = 11


def network(positions="learned", longest=40):
    model = Transformer(
        SIZE, layers=2, heads=2, width=16, mlp=32, norm="pre", causal=True, positions=positions, longest=longest,
        tied=False,
    ).double()  # fmt: skip
    return model.initialise(torch.Generator().manual_seed(0), scale=20.0).double()


def fresh(model, row, hook="blocks.1.hook_resid_post"):
    logits, found = model(torch.tensor([row]), want=[hook])
    return logits[0, -1], found[hook][0, -1]


def check(session, model):
    with torch.no_grad():
        for row in range(len(session)):
            logits, state = fresh(model, session.row(row))
            assert torch.allclose(session.logits()[row], logits, atol=1e-10)
            assert torch.allclose(session.hidden()[row], state, atol=1e-10)


def test_a_random_walk_of_edits_never_changes_what_the_model_says():
    model, generator = network(), torch.Generator().manual_seed(1)
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [10, 1]]
    session = TransformerModel(model).start(prompts, room=30, hidden=Hidden(2))
    check(session, model)
    for step in range(40):
        rows = torch.rand(len(session), generator=generator) < 0.8
        rows &= session.lengths < 40
        session.append(torch.randint(SIZE, (len(session),), generator=generator), rows)
        amounts = (torch.rand(len(session), generator=generator) * session.lengths * 0.5).long()
        if step % 3 == 0:
            session.rewind(amounts)
        if step % 2:  # sometimes several edits happen between two looks
            check(session, model)
        if step == 20:
            session = session.fork(torch.tensor([2, 0, 0, 3, 1, 1]))
    check(session, model)


def test_rows_that_retire_leave_the_others_as_they_are():
    model = network()
    session = TransformerModel(model).start([[1], [2], [3], [4], [5]], room=30)
    final = torch.tensor([True, False, True, True, False])
    for step in range(12):
        session.append(torch.full((5,), step % SIZE), ~final if step > 4 else None)
        session.logits(~final)
        session.retire(final)
    assert len(session._rows) == 2
    for row in (1, 4):
        logits, _ = fresh(model, session.row(row))
        assert torch.allclose(session.logits(~final)[row], logits, atol=1e-10)
    half = session.fork(torch.tensor([4, 1]))
    assert torch.allclose(half.logits()[0], fresh(model, session.row(4))[0], atol=1e-10)


def test_rewinding_costs_one_forward_and_nothing_of_the_prefix():
    session = TransformerModel(network()).start([[1, 2, 3]] * 2, room=20)
    session.logits()
    for _ in range(5):
        session.append(torch.tensor([4, 5]))
        session.logits()
    session.rewind(torch.tensor([3, 0]))
    session.logits()
    assert session.forwards.tolist() == [7, 6]
    assert session.passes == 7


def test_a_full_context_is_used_to_its_last_token():
    model = network(longest=8)
    session = TransformerModel(model).start([[1, 2, 3, 4, 5, 6, 7], [1]], room=8)
    session.append(torch.tensor([8, 2]))
    for token in (3, 4, 5):
        session.append(torch.tensor([token, token]), torch.tensor([False, True]))
    assert torch.allclose(session.logits()[0], fresh(model, session.row(0))[0], atol=1e-10)
    assert torch.allclose(session.logits()[1], fresh(model, session.row(1))[0], atol=1e-10)


def test_greedy_equals_a_loop_without_a_cache():
    model = network()
    prompts = [[1, 2, 3], [4], [7, 8, 9, 10, 1]]
    made = greedy(TransformerModel(model, eos=0), prompts, max_tokens=12)
    for row, prompt in enumerate(prompts):
        tokens = list(prompt)
        with torch.no_grad():
            while len(tokens) < len(prompt) + 12 and (len(tokens) == len(prompt) or tokens[-1] != 0):
                tokens.append(int(model(Tokens(torch.tensor([tokens])))[0, -1].argmax()))
        assert made.rows[row] == tokens
        assert made.queries[row] == len(tokens) - len(prompt)


def test_batches_do_not_change_what_a_row_draws():
    model = TransformerModel(network(), eos=0)
    prompts = [[1, 2, 3], [4], [7, 8, 9, 10, 1], [3, 3]]
    whole = ancestral(model, prompts, max_tokens=15, generator=5, top_p=0.9)
    split = ancestral(model, prompts, max_tokens=15, generator=5, top_p=0.9, batch_size=3)
    assert whole.rows == split.rows
    assert torch.equal(whole.queries, split.queries)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], r"prompts=\[\]: must hold at least one"),
        ([[]], "prompt 0 is empty"),
        ([[1, 2], [11]], "prompt 1: token ids from 11 to 11, the model knows 0 to 10"),
        ([[1] * 40], "prompt of 40 tokens: the model reads at most 40"),
        ([1, 2], "must be a list of rows"),
        (["a b"], "no names for its tokens"),
        (torch.zeros(2), "must be row × position"),
    ],
)
def test_bad_prompts_get_one_clear_line(prompts, message):
    with pytest.raises(ArgumentError, match=message) as error:
        greedy(TransformerModel(network()), prompts, max_tokens=3)
    assert "\n" not in str(error.value)


def test_what_is_no_language_model_is_named():
    with pytest.raises(ArgumentError, match="a function goes through"):
        greedy(lambda prefix: prefix, [[1]], max_tokens=2)
    with pytest.raises(ArgumentError, match="causal=True"):
        greedy(Transformer(4, width=4), [[1]], max_tokens=2)
    with pytest.raises(ArgumentError, match="not probabilities"):
        greedy(ExactModel(lambda prefix: torch.ones(len(prefix), 3), vocab=3), [[1]], max_tokens=2)
