"""`sandtable translate`: tasks, files, data sets and their translations; one line for every mistake."""

import json

import pytest
import torch

from sandtable import cli
from sandtable.inputs import EOS
from sandtable.models import Seq2Seq
from sandtable.training import Recipe

SMALL = ("--steps", 2, "--layers", 1, "--heads", 2, "--width", 8, "--batch-size", 4, "-n", 6, "--passes", 3)
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
    asked = record["options"]
    assert {"oracle", "rejecter", "drop_stutter", "lr", "batch_size", "vocab", "longest", "limit"} <= set(asked)
    assert (asked["oracle"], asked["rejecter"], asked["batch_size"], asked["n"]) == (True, "stutter", 4, 6)
    assert [row["as long"] for row in record["rows"][:2]] == [1, 1]  # beams are held to the given lengths
    assert all(row["valid"] <= row["as long"] for row in record["rows"])
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


def test_nothing_is_no_valid_answer_where_a_length_is_given(run, monkeypatch):
    """A model that writes ⟨eos⟩ at once: a subsequence of every source, but none of the given lengths."""
    write = Seq2Seq.write

    def mute(self, *args, **kw):
        logits = write(self, *args, **kw)
        return logits.index_fill(-1, torch.tensor(EOS), 1e4)

    monkeypatch.setattr(Seq2Seq, "write", mute)
    words = ("--task", "drop", *SMALL, "-n", 40, "--model", "refiner", "--json")
    free, held = (json.loads(run(*words, *more)[1])["rows"][0] for more in ((), ("--oracle",)))
    assert (free["valid"], free["words"], held["words"]) == (1, 0, 0)
    assert free["as long"] == held["as long"] == held["valid"] < 0.2


def test_runs_with_other_options_are_kept_beside_each_other(run, tmp_path):
    words = ("--task", "drop", *SMALL, "--model", "refiner")
    for more in ((), ("--noise", "mask", "--rejecter", "linear"), ("--seed", 1), ()):
        status, _, err = run(*words, *more)
        assert status == 0, err
    kept = sorted((tmp_path / "runs" / "translate").iterdir())
    assert len(kept) == 3
    assert all(folder.name.startswith("drop-") for folder in kept)
    asked = [json.loads((folder / "translate.json").read_text())["options"] for folder in kept]
    assert sorted((a["noise"], a["rejecter"], a["seed"]) for a in asked) == [
        ("mask", "linear", 0), ("random", "none", 0), ("random", "none", 1),
    ]  # fmt: skip


def test_ways_to_train_and_to_decode(run):
    words = ("--task", "fertility", *SMALL, "--model", "refiner", "--dropout", 0.1, "--optimizer", "adafactor")
    words = (*words, "--rejecter", "bottom", "--percent", 40, "--replacement", "previous", "--alpha", 0.6)
    status, out, err = run(*words, "--temperature", 0.7, "--json")
    assert status == 0, err
    asked = json.loads(out)["options"]
    assert (asked["dropout"], asked["optimizer"], asked["percent"], asked["alpha"]) == (0.1, "adafactor", 40, 0.6)


def test_the_published_inference_takes_repetitions_back_and_deletes_them(run):
    words = ("--task", "drop", *SMALL, "--steps", 0, "--model", "refiner", "--noise", "mask", "--oracle")
    plain, published = (
        json.loads(run(*words, *more, "--json")[1]) for more in ((), ("--rejecter", "stutter", "--drop-initial"))
    )
    assert published["options"]["drop_initial"] is True
    assert plain["rows"][-1]["stutter"] > 0
    assert [row["stutter"] for row in published["rows"]] == [0, 0]
    assert all(0 < new["words"] < old["words"] for new, old in zip(published["rows"], plain["rows"], strict=True))


def test_lines_that_are_too_long_are_refused_before_anything_is_trained(run, files, tmp_path, monkeypatch):
    monkeypatch.setattr(Recipe, "train", lambda *args, **kw: pytest.fail("trained"))
    (tmp_path / "new.txt").write_text(f"eins\n{'eins zwei ' * 40}\n")
    words = (*files, *SMALL, "--vocab", 280, "--longest", 30, "--input", tmp_path / "new.txt")
    status, out, err = run(*words, "--model", "refiner")
    assert (status, out) == (2, "")
    assert "line 2 has" in err
    assert "the longest source that is trained on has" in err
    assert "(with --longest=30)" in err


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
    assert "tok:13a" in out
    assert "valid" not in out
    assert len((tmp_path / "out" / "translations.txt").read_text().splitlines()) == 2
    record = json.loads((tmp_path / "out" / "translate.json").read_text())
    assert record["work"] == "de.txt → en.txt"
    assert all(0 <= row["BLEU"] <= 100 for row in record["rows"])
    status, out, _ = run(*words, "--model", "refiner", "--bleu-tokenize", "char", "--json")
    assert "tok:char" in json.loads(out)["rows"][0]["signature"]


def test_a_data_set_is_learnt(run, tmp_path):
    import datasets

    rows = [{"translation": {"de": a, "en": b}} for a, b in zip(GERMAN, ENGLISH, strict=True)]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "pairs"))
    status, out, err = run(
        "--dataset", tmp_path / "pairs", "--source", "translation.de", "--target", "translation.en", *SMALL[:-2],
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
        (("--task", "drop", "--width", 10), "--heads=4: must divide --width=10"),
        (("--task", "drop", "--config", "x"), "--config: is of text, not of tasks"),
        (("--task", "drop", "--vocab", 2000), "--vocab: is of text, not of tasks"),
        (("--source", "a", "--target", "b", "--config", "x"), "--config: is of data sets; give --dataset too"),
        (("--source", "a", "--target", "b", "--split", "x"), "--split: is of data sets; give --dataset too"),
        (("--task", "drop", "--percent", 10), "--percent: is of --rejecter bottom"),
        (("--task", "drop", "--replacement", "previous"), "--replacement: is for words taken back; give --rejecter"),
        (("--task", "drop", "--model", "sequential", "--noise", "mask"), "--noise: is of the refiner"),
        (("--task", "drop", "--model", "sequential", "--drop-initial"), "--drop-initial: is of the refiner"),
        (("--task", "drop", "--noise", "masks"), "did you mean 'mask'?"),
        (("--task", "drop", "--optimizer", "sgd"), "--optimizer='sgd'"),
        (("--task", "drop", "--dropout", 1), "--dropout=1.0"),
        (("--source", "a", "--target", "b", "--bleu-tokenize", "13b"), "--bleu-tokenize='13b'"),
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
    assert "-n=40: must be a whole number from 1 to 39" in err
