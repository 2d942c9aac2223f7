"""What translations are worth, against counts by hand and sacrebleu's own command."""

import subprocess
import sys

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.decoding import bleu, exact_match, stutter_rate, token_accuracy
from sandtable.inputs import EOS, PAD


def test_exact_match_and_token_accuracy():
    target = torch.tensor([[5, 6, EOS, PAD], [5, EOS, PAD, PAD], [EOS, PAD, PAD, PAD], [4, 4, 4, EOS]])
    tokens = torch.tensor([[5, 6, EOS], [5, 6, EOS], [EOS, PAD, PAD], [4, 5, EOS]])
    assert exact_match(tokens, target).tolist() == [True, False, True, False]
    assert token_accuracy(tokens, target).tolist() == pytest.approx([1, 1 / 2, 1, 1 / 4])
    assert token_accuracy(torch.tensor([[5, 6, EOS, 7, 7]]), target[:1]).tolist() == [1.0]
    with pytest.raises(ArgumentError, match="3 translations, 4 references"):
        exact_match(tokens[:3], target)


def test_stutter_of_texts():
    outputs = ["the the cat sat", "no no no", "", "one", "a b a b"]
    assert stutter_rate(outputs) == pytest.approx((3 / (3 + 2 + 3), 2 / 5))
    references = ["the cat sat", "no no, said he", "", "one", "a b"]
    assert stutter_rate(outputs, references) == pytest.approx((3 / 8, 2 / 5))
    references[1] = "no no"  # excuses one of two
    assert stutter_rate(outputs, references) == pytest.approx((2 / 8, 2 / 5))
    references[1] = "no no no"
    assert stutter_rate(outputs, references) == pytest.approx((1 / 8, 1 / 5))
    with pytest.raises(ArgumentError, match="1 references"):
        stutter_rate(outputs, ["a"])


def test_bleu_is_that_of_the_command(tmp_path):
    outputs = ["the cat sat on the mat .", "There is a dog, here!", "five words make a sentence"]
    references = ["the cat sat on a mat .", "There was a dog here!", "five words make one sentence"]
    (tmp_path / "reference").write_text("\n".join(references) + "\n")
    (tmp_path / "output").write_text("\n".join(outputs) + "\n")
    found = bleu(outputs, references)
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(tmp_path / "reference"),
        "-i",
        str(tmp_path / "output"),
        "-b",
        "-w",
        "6",
    ]
    printed = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found.score == pytest.approx(printed, abs=1e-5)
    assert "tok:13a" in found.signature
    assert bleu(references, references).score == pytest.approx(100)
    assert "tok:intl" in bleu(outputs, references, tokenize="intl").signature


def test_bad_input_gets_one_line():
    with pytest.raises(ArgumentError, match="tokenize='14a': must be one of"):
        bleu(["a"], ["a"], tokenize="14a")
    with pytest.raises(ArgumentError, match="2 texts, 1 references"):
        bleu(["a", "b"], ["a"])
    with pytest.raises(ArgumentError, match="not none"):
        bleu([], [])
