"""`sandtable translate`: tasks, files, data sets and their translations; one line for every mistake."""

import json

import pytest

from sandtable import cli
from sandtable.training import Recipe

SMALL = ("--steps", 2, "--layers", 1, "--heads", 2, "--width", 8, "--batch", 4, "-n", 6, "--passes", 3)
GERMAN = ["eins zwei", "zwei drei vier", "drei", "vier eins eins", "drei zwei"] * 8
ENGLISH = ["one two", "two three four", "three", "four one one", "three two"] * 8


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "runs"))

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            cli.main([str(word) for word in ("translate", *words)])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


@pytest.fixture
def files(tmp_path):
    for name, lines in (("de.txt", GERMAN), ("en.txt", ENGLISH)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return "--source", tmp_path / "de.txt", "--target", tmp_path / "en.txt"


def test_a_task_is_trained_once_and_measured(run, monkeypatch, tmp_path):
    trained = []
    train = Recipe.train
    monkeypatch.setattr(Recipe, "train", lambda self, *args, **kw: trained.append(1) or train(self, *args, **kw))
    words = ("--task", "drop", *SMALL, "--oracle", "--rejecter", "stutter", "--drop-stutter", "--beams", 2)
    status, out, _ = run(*words, "--json")
    assert status == 0
    record = json.loads(out)
    assert [row["method"] for row in record["rows"]] == [
        "sequential, greedy", "sequential, 2 beams", "refined in 1 pass", "refined in 3 passes",
    ]  # fmt: skip
    assert (record["work"], record["pairs"]) == ("drop", 6)
    assert record["rows"][2]["passes"] == 1
    assert all(row["BLEU"] is None and 0 <= row["valid"] <= 1 for row in record["rows"])
    assert record["rows"][2]["stutter"] == 0
    assert len(trained) == 2
    status, out, _ = run(*words, "--out", tmp_path / "out")
    assert len(trained) == 2
    assert "refined in 3 passes" in out
    assert "reference: a" in out
    kept = json.loads((tmp_path / "out" / "translate.json").read_text())
    same = lambda rows: [{k: v for k, v in row.items() if k != "seconds"} for row in rows]  # noqa: E731
    assert same(kept["rows"]) == same(record["rows"])


def test_a_refiner_may_be_taught_by_the_sequential_model(run):
    status, out, _ = run("--task", "dialect", *SMALL, "--teach", 20, "--beams", 1, "--json")
    assert status == 0
    assert json.loads(out)["rows"][0]["method"] == "sequential, greedy"
    status, out, _ = run("--task", "fertility", "--distilled", *SMALL, "--model", "refiner", "--json")
    assert [row["method"] for row in json.loads(out)["rows"]] == ["refined in 1 pass", "refined in 3 passes"]


def test_files_are_learnt_and_another_is_translated(run, files, tmp_path):
    (tmp_path / "new.txt").write_text("eins\nvier drei\n")
    words = (*files, *SMALL, "--vocab", 280, "--input", tmp_path / "new.txt", "--out", tmp_path / "out")
    status, out, err = run(*words, "--model", "refiner")
    assert status == 0, err
    assert "BLEU" in out
    assert "valid" not in out
    assert len((tmp_path / "out" / "translations.txt").read_text().splitlines()) == 2
    record = json.loads((tmp_path / "out" / "translate.json").read_text())
    assert record["work"] == "de.txt → en.txt"
    assert all(0 <= row["BLEU"] <= 100 for row in record["rows"])


def test_a_data_set_is_learnt(run, tmp_path):
    import datasets

    rows = [{"translation": {"de": a, "en": b}} for a, b in zip(GERMAN, ENGLISH, strict=True)]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "pairs"))
    status, out, err = run(
        "--dataset", tmp_path / "pairs", "--source", "translation.de", "--target", "translation.en", *SMALL,
        "--vocab", 270, "--limit", 20, "--model", "sequential", "--beams", 1, "--json",
    )  # fmt: skip
    assert status == 0, err
    assert json.loads(out)["rows"][0]["BLEU"] is not None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --task, or the two files"),
        (("--task", "drop", "--source", "a"), "give --task, or the two files"),
        (("--task", "drops"), "did you mean 'drop'?"),
        (("--source", "de.txt"), "--source and --target go together"),
        (("--source", "no.txt", "--target", "no.txt"), "'no.txt': no such file"),
        (("--dataset", "x", "--distilled"), "--source and --target go together"),
        (("--source", "a", "--target", "b", "--distilled"), "text is distilled by --teach"),
        (("--task", "drop", "--input", "x"), "--input: needs text, not a task"),
        (("--source", "a", "--target", "b", "--input", "nothing.txt"), "--input='nothing.txt': no such file"),
        (("--task", "drop", "--passes", 0), "--passes=0"),
        (("--task", "drop", "--lr", 0), "--lr=0.0"),
        (("--task", "drop", "--rejecter", "stuter"), "did you mean 'stutter'?"),
        (("--task", "drop", "--model", "refiner", "--teach", 5), "needs the sequential model and the refiner"),
        (("--task", "drop", "--width", 10), "heads=4: must divide the width 10"),
        (("--task", "drop", "--device", "tpu"), "device='tpu'"),
    ],
)
def test_mistakes_get_one_line(run, words, message):
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_text_must_leave_something_to_train_on(run, files):
    status, _, err = run(*files, *SMALL, "--vocab", 280, "-n", 40)
    assert status == 2
    assert "held=40: must be a whole number from 1 to 39" in err
