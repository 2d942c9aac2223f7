"""Task suites: prompts, rules and scores, against hand-made completions."""

from dataclasses import replace

import torch

from sandtable.decoding import ExactModel, ancestral, backtrack
from sandtable.decoding.tasks import AppendTask, DyckTask
from sandtable.worlds import testcases
from sandtable.worlds.dyck import FixedLengthDyck
from sandtable.worlds.testcases import REQUESTED

WORLD = FixedLengthDyck(length=12)
DYCK = DyckTask(WORLD, lengths=(5, 7))


class Sloppy(FixedLengthDyck):
    """The exact law, but a third of the closing brackets are of any type."""

    def next_token_probs(self, prefix, lengths=None):
        law = super().next_token_probs(prefix, lengths)
        closing = law[:, 2:4].sum(1, keepdim=True) / 2
        law[:, 2:4] = 2 / 3 * law[:, 2:4] + 1 / 3 * closing
        return law


def test_the_exact_law_never_errs_and_repeats_are_told_apart():
    problems = DYCK.draw(20, 5, torch.Generator().manual_seed(0), kind="ood")
    assert len(problems) == 100
    assert problems.keys[:6] == ["0"] * 5 + ["1"]
    made = ancestral(ExactModel(WORLD), problems.prompts, max_tokens=DYCK.max_tokens)
    found = DYCK.measure(problems, made)
    assert found["accuracy"] == 1.0
    assert found["errors"] == {}
    by_prompt = [{tuple(row) for row in made.completions[i : i + 5]} for i in range(0, 100, 5)]
    assert found["diversity"] == sum(map(len, by_prompt)) / 20
    assert DYCK.first_errors(problems, made.model, made.tokens, made.lengths).eq(-1).all()


def test_rules_catch_every_error_of_a_sloppy_law():
    problems = DYCK.draw(300, 1, torch.Generator().manual_seed(1), kind="test")
    sloppy = ExactModel(Sloppy(length=12))
    plain = ancestral(sloppy, problems.prompts, max_tokens=DYCK.max_tokens)
    guided = backtrack(
        sloppy, problems.prompts, DYCK.truth(problems), max_tokens=DYCK.max_tokens, quota=40, stride=1, redo="sample"
    )
    before, after = DYCK.measure(problems, plain), DYCK.measure(problems, guided)
    assert before["accuracy"] < 0.9
    assert set(before["errors"]) == {"INCORRECT_CLOSING_BRACKET"}
    assert after["accuracy"] == 1.0
    places = DYCK.first_errors(problems, sloppy, plain.tokens, plain.lengths).tolist()
    for row, place in enumerate(places):
        wrong = not bool(WORLD.valid(plain.tokens[row : row + 1, : plain.lengths[row]]))
        assert (place >= 0) == wrong
        if place >= 0:
            assert bool(WORLD.accepts(plain.tokens[row : row + 1, :place]))
            assert not bool(WORLD.accepts(plain.tokens[row : row + 1, : place + 1]))


VOCAB = testcases.testcase_vocab()
GOOD = "".join(f"\nassert NAME([{i}], {i}) == [{i}, {i}]" for i in range(REQUESTED))
BAD = GOOD.replace("assert NAME([2], 2) == [2, 2]", "assert NAME([2], 2) == [2, 3]")


def completions(texts):
    """A model that writes these texts, one a row, whatever it is asked."""
    rows = [[*VOCAB.encode(text), VOCAB.eos] for text in texts]
    longest = max(map(len, rows))

    def law(prefix):
        written = prefix.shape[1] - start
        tokens = [row[written] if written < len(row) else VOCAB.eos for row in rows[: len(prefix)]]
        return torch.nn.functional.one_hot(torch.tensor(tokens), len(VOCAB)).double()

    start = 3
    return ExactModel(law, vocab=VOCAB, eos=VOCAB.eos), longest


def test_append_counts_distinct_correct_cases_and_finds_the_wrong_token():
    task = AppendTask(testcases.TestCaseTask(sums=1))
    problems = task.draw(2, 2, torch.Generator().manual_seed(0), kind="test")
    assert problems.keys[0] == problems.keys[1] != problems.keys[2]
    texts = [text.replace("NAME", name) for text, name in zip([GOOD, GOOD, BAD, GOOD], problems.keys, strict=True)]
    lm, longest = completions(texts)
    made = ancestral(lm, [[1, 2, 3]] * 4, max_tokens=longest)
    assert made.text == texts
    found = task.measure(problems, made)
    assert found["diversity"] == 2 * REQUESTED  # each name lists its eight cases once more, and once with one wrong
    assert found["accuracy"] == 2 * REQUESTED / (4 * REQUESTED)
    assert found["errors"] == {"ASSERTION_FAILURE": 1}
    asked = replace(problems, prompts=["012"] * 4)
    places = task.first_errors(asked, lm, made.tokens, made.lengths).tolist()
    assert [place < 0 for place in places] == [True, True, False, True]
    assert lm.decode(made.rows[2][3 : places[2] + 1]).endswith("== [2, 3")
    rules = task.truth(problems)
    shown = {}

    def note(view):
        scores = rules.score(view)
        shown.update({(int(row), int(n)): float(s) for row, n, s in zip(view.rows, view.lengths, scores, strict=True)})
        return scores

    backtrack(lm, [[1, 2, 3]] * 4, note, max_tokens=longest, quota=1, stride=1, redo="none")
    rejected = {key for key, score in shown.items() if score == 0}
    assert rejected == {(2, places[2] + 1)}
