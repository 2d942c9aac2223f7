"""Prompts, the world of documents with planted flaws, its vocabulary, and the task that scores completions."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from sandtable.arguments import ArgumentError
from sandtable.worlds import World, testcases


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


PUBLISHED = """def f(a, b):
    return a + b

List 8 test cases of the above function f, one in each line:
assert f(5, 8) == 13
assert f(1, 2) == 3

def ovs(l, item):
    assert type(l) is list
    l.append(item)
    return l


List 8 test cases of the above function ovs, one in each line:"""


def test_the_prompt_is_the_published_one():
    assert testcases.prompt("ovs", [(5, 8), (1, 2)]) == PUBLISHED
    with pytest.raises(ArgumentError, match="name='def'"):
        testcases.prompt("def", [])


def test_prompts_of_the_task():
    task = testcases.TestCaseTask()
    pairs = task.prompts(10, generator())
    names = [name for name, _ in pairs]
    assert len(pairs) == 100
    assert len(set(names)) == 10
    assert not {*names} & {*testcases.TRAIN_NAMES, *testcases.OOD_NAMES}
    assert all(re.fullmatch("[a-z]{3}", name) and text.count(name) == 2 for name, text in pairs)
    sums = re.findall(r"assert f\((\d), (\d)\) == (\d+)", pairs[0][1])
    assert len(sums) == 8
    assert all(int(a) + int(b) == int(c) for a, b, c in sums)
    assert len({text for name, text in pairs if name == names[0]}) == 10
    assert {name for name, _ in task.prompts(1, generator(), names="ood")} == {*testcases.OOD_NAMES}
    seven = testcases.TestCaseTask(functions=len(testcases.TRAIN_NAMES))
    assert {name for name, _ in seven.prompts(2, generator(), names="train")} == {*testcases.TRAIN_NAMES}
    with pytest.raises(ArgumentError, match="functions=10: there are 7 names of the kind 'train'"):
        task.prompts(2, generator(), names="train")
    with pytest.raises(ArgumentError, match=r"names='odd'.*'ood'"):
        task.prompts(1, generator(), names="odd")


def test_greedy_completions_score_at_most_a_tenth():
    """Ten repeats that coincide hold at most 8 of the 80 cases of a name (Botta et al. 2025 report 0.013)."""
    task = testcases.TestCaseTask()
    names = {name for name, _ in task.prompts(1, generator(1))}
    text = {name: "".join(f"\nassert {name}([{i}], 0) == [{i}, 0]" for i in range(8)) for name in names}
    score = task.score({name: [text[name]] * 10 for name in names})
    assert score == {"accuracy": 0.1, "distinct": 80, "asked": 800, "errors": {}}
    one = {name: [f"\nassert {name}([1], 2) == [1, 2]" * 8] * 10 for name in names}
    assert task.score(one)["accuracy"] == 0.0125
    with pytest.raises(ArgumentError, match="completions"):
        task.score({})


def test_errors_are_counted_by_kind():
    task = testcases.TestCaseTask()
    good = "".join(f"\nassert abc([{i}], 0) == [{i}, 0]" for i in range(8))
    score = task.score({"abc": [good, "", "\nassert abc([1], 2) == [2, 1]", "\nassert xyz"]})
    kinds = ("FEWER_TEST_CASES_THAN_EXPECTED", "ASSERTION_FAILURE", "FUNCTION_NOT_TESTED")
    assert score["errors"] == dict.fromkeys(kinds, 1)
    assert task.first_error("abc", good) is None
    assert task.first_error("abc", good[:-1]).kind == "EXPECTED_OUTPUT_NO_CLOSING_BRACKET"
    assert task.first_error("abc", good[:-1], finished=False) is None


# -- documents -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documents():
    law = testcases.AppendDocuments(rare=0.05, sums=2, length=260)
    return law, law.sample(4000, generator())


def halves(law, batch, i):
    """Name, prompt and completion of document i."""
    ids, start = batch.x[i][batch.mask[i]], int(batch.latents["start"][i])
    prompt, rest = law.vocab.text(ids[:start]), law.vocab.text(ids[start:])
    return re.findall(r"function (\w+),", prompt)[-1], prompt, rest


def test_documents_are_the_published_prompt_and_round_trip(documents):
    law, batch = documents
    assert isinstance(law, World)
    for i in range(300):
        name, prompt, rest = halves(law, batch, i)
        sums = [(int(a), int(b)) for a, b in re.findall(r"f\((\d), (\d)\)", prompt)]
        expected = testcases.prompt(name, sums)
        assert (name in testcases.OOD_NAMES) == bool(batch.latents["rare"][i])
        if batch.latents["front"][i]:
            expected = expected.replace("l.append(item)", "l.insert(0, item)")
        assert prompt == expected
        ids = batch.x[i][batch.mask[i]].tolist()
        assert law.vocab.encode(prompt + rest) == ids[:-1]
        assert ids[-1] == law.vocab.eos


def test_flaws_are_where_they_say(documents):
    law, batch = documents
    for i in range(400):
        name, _, rest = halves(law, batch, i)
        short, front = bool(batch.latents["short"][i]), bool(batch.latents["front"][i])
        assert short == ("\n\ndef " in rest)
        lines = re.findall(r"assert (\w+)\(\[(.*?)\], (\d)\) == \[(.*?)\]", rest)
        assert len(lines) == (7 if short else 8)
        planted = zip(batch.latents["flaw"][i].tolist(), batch.latents["size"][i].tolist(), strict=True)
        for line, (flaw, size) in zip(lines, planted, strict=False):
            tested, found = ([int(d) for d in part.split(", ")] if part else [] for part in (line[1], line[3]))
            item = int(line[2])
            assert len(tested) == size
            right, left = [*tested, item], [item, *tested]
            base, other = (left, right) if front else (right, left)
            kind = ("none", *testcases.FLAWS)[flaw]
            assert line[0] == ("f" if kind == "wrong name" else name)
            if kind == "prepend":
                assert found == other
            elif kind == "drop an element":
                assert found in [base[:j] + base[j + 1 :] for j in range(len(base))]
            elif kind == "wrong item":
                place = base.index(item) if front else len(base) - 1
                assert found == [*base[:place], (item + 1) % 10, *base[place + 1 :]]
            else:
                assert found == base


def test_rates_are_those_asked_for(documents):
    law, batch = documents
    misled = batch.latents["rare"] & ~batch.latents["front"]
    flaw = batch.latents["flaw"][~misled]
    size = batch.latents["size"][~misled]
    mean = size.float().mean()
    rate = (law.flaw * (size / mean) ** law.steep).clamp(max=1)
    assert abs((flaw[:, 0] > 0).float().mean() - rate[:, 0].mean()) < 0.02
    spoilt, some = flaw[:, 0] > 0, size[:, 1] > 0
    assert abs((flaw[spoilt & some, 1] > 0).float().mean() - law.again) < 0.06
    assert abs((flaw[~spoilt, 1] > 0).float().mean() - rate[~spoilt, 1].mean()) < 0.02
    for length in (0, 1, 3, 5):  # steeply with the length of the list
        here = flaw[:, 0][size[:, 0] == length] > 0
        assert abs(here.float().mean() - min(1.0, law.flaw * (length / mean) ** law.steep)) < 0.06
    assert abs(batch.latents["short"].float().mean() - law.short) < 0.02
    assert abs(batch.latents["rare"].float().mean() - law.rare) < 0.01
    assert set(batch.latents["flaw"][misled].unique().tolist()) == {0, 1}
    assert abs((batch.latents["flaw"][misled, 0] > 0).float().mean() - law.misled) < 0.15
    for kind, share in enumerate(law.kinds, start=1):
        assert abs((flaw == kind).sum() / (flaw > 0).sum() - share) < 0.05
    plain = testcases.AppendDocuments(flaw=0.0, short=0.0, rare=0.0, sums=0, length=260)
    clean = plain.sample(200, generator(3))
    for i in range(200):
        name, _, rest = halves(plain, clean, i)
        assert testcases.first_error(rest, name) is None


def test_documents_are_cut_and_repeatable():
    law = testcases.AppendDocuments(length=100)
    batch, again = law.sample(20, generator(1)), law.sample(20, generator(1))
    assert batch.x.shape == (20, 100)
    assert batch.mask.all()
    assert torch.equal(batch.x, again.x)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"flaw": 1.5}, "flaw"),
        ({"kinds": (1.0,)}, "kinds"),
        ({"length": 0}, "length"),
        ({"taper": 0.0}, "taper"),
        ({"steep": -1.0}, "steep"),
    ],
)
def test_bad_settings(change, named):
    with pytest.raises(ArgumentError, match=named):
        testcases.AppendDocuments(**change)


# -- vocabulary ------------------------------------------------------------------------------------------------------

VOCAB = testcases.testcase_vocab()


@given(some.lists(some.sampled_from(VOCAB.tokens[1:]), max_size=30).map("".join))
@settings(deadline=None)
def test_text_survives_the_vocabulary(text):
    assert VOCAB.text(VOCAB.encode(text)) == text


def test_what_is_not_in_the_vocabulary():
    with pytest.raises(ArgumentError, match=r"'é' at character 2"):
        VOCAB.encode("abé")
    with pytest.raises(ArgumentError, match=r"'é' at character 1"):
        VOCAB.encode("aé")
    with pytest.raises(ArgumentError, match=r"token='asert '.*'assert '"):
        VOCAB.id("asert ")
