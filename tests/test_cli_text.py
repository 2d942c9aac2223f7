"""The commands on real text, from files to tables and figures, and one line for every mistake."""

import json

import numpy as np
import pytest
import torch
import transformers

from sandtable import cli
from sandtable.bridges.readers import read

WORDS = [
    ["ship", "sail", "harbour", "wave", "tide", "anchor", "captain", "storm", "island", "fisher", "deck", "rope"],
    ["bread", "butter", "oven", "flour", "sugar", "recipe", "spoon", "pepper", "onion", "garlic", "dough", "plate"],
    ["court", "judge", "lawyer", "verdict", "trial", "witness", "appeal", "statute", "crime", "jury", "bail", "oath"],
    ["violin", "opera", "chord", "melody", "piano", "flute", "singer", "rhythm", "tempo", "sonata", "choir", "cello"],
    ["planet", "comet", "orbit", "galaxy", "lunar", "solar", "nebula", "rocket", "meteor", "crater", "quasar", "probe"],
    ["forest", "maple", "willow", "fern", "moss", "branch", "acorn", "sapling", "birch", "cedar", "thicket", "bark"],
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of documents, each of one topic and a few odd words."""
    rng = np.random.default_rng(0)
    lines = []
    for i in range(400):
        which = np.where(rng.random(40) < 0.9, i % 6, rng.integers(6, size=40))
        lines.append(" ".join(WORDS[k][rng.integers(12)] for k in which))
    path = tmp_path_factory.mktemp("text") / "my.txt"
    path.write_text("\n\n".join(lines))
    return path


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """A folder that `sandtable pretrain` made in a few steps."""
    place = tmp_path_factory.mktemp("model")
    command = (
        f"pretrain --corpus {text} --out {place / 'bert'} --steps 40 --layers 2 --heads 2 --width 16 --vocab 300 "
        f"--length 32 --batch-size 8 --optimizer adam --lr 0.01 --store {place / 'runs'}"
    )
    with pytest.raises(SystemExit) as stop:
        cli.main(command.split())
    assert not stop.value.code
    return place / "bert"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "runs"))

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


def test_a_trained_model_is_a_hugging_face_folder_with_its_record(trained):
    model = transformers.AutoModelForMaskedLM.from_pretrained(trained)
    assert model.config.num_hidden_layers == 2
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained)
    assert tokenizer.mask_token == "[MASK]"
    assert len(tokenizer("ship sail")["input_ids"]) == 2  # nothing around it: the model saw no [CLS]
    record = json.loads((trained / "dynamics.json").read_text())
    assert record["steps"] == list(range(0, 41, 10))
    assert len(record["norms"]) == len(record["times"]) == len(record["rotation"]) == 2
    assert record["norms"][0][-1]["V"] == pytest.approx(
        float(model.bert.encoder.layer[0].attention.self.value.weight.norm()), rel=1e-4
    )
    assert np.mean(record["loss"][-5:]) < np.mean(record["loss"][:5])
    assert (trained / "dynamics.svg").read_text().startswith("<svg")


def test_the_tables_for_a_model_and_a_corpus(run, text, trained, tmp_path):
    command = ("topics", "--corpus", text, "--model", trained, "--topics", 6, "--thresholds", "0.02,0.03",
               "--documents", 60, "--out", tmp_path / "out")  # fmt: skip
    status, out, err = run(*command)
    assert status == 0, err
    for word in ("6 topics of 400 documents", "cosine ratio", "AUC attention", "random", "0.02, overlap", "undefined"):
        assert word in out
    assert "published, BERT, one topic per word (cosine / dot / attention): 0.0005: 1.21 / 1.19 / 1.32" in out
    assert "105 pairs: 0.00659 / 0.00751 / 0.468 / 0.316" in out
    for name in ("topics", "words", "heads"):
        assert (tmp_path / "out" / f"{name}.svg").read_text().startswith("<svg")
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 1000
    status, out, _ = run(*command, "--json", "--words", "ship sail, bread butter")
    record = json.loads(out)
    assert record["corpus"]["documents"] == 400
    assert len(record["topics"]) == 6
    assert len(record["cells"]) == 2 * 4
    assert {cell["threshold"] for cell in record["cells"]} == {0.02, 0.03}
    assert ">ship<" in (tmp_path / "out" / "words.svg").read_text()


def test_topics_alone(run, text):
    status, out, _ = run("topics", "--corpus", text, "--topics", 6, "--passes", 10)
    assert status == 0
    assert "mean NPMI" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--corpus nowhere.txt", "no such file or folder"),
        ("--corpus {binary}", "binary file"),
        ("--corpus {empty}", "empty corpus"),
        ("--corpus {text} --topics 500", "topics=500: needs at least as many documents, the corpus has 400"),
        ("--corpus {text} --topics 1", "--topics=1: must be a whole number ≥ 2"),
        ("--corpus {text} --thresholds 0.1,2", "--thresholds '0.1,2': must be numbers between 0 and 1"),
        ("--corpus {text} --thresholds many", "must be numbers with commas between"),
        ("--corpus {text} --topics 6 --model {model} --words shipp", "'shipp' is not in the vocabulary as one token"),
        ("--corpus {text} --model {nothing}", "a folder without config.json is not a saved model"),
        ("--corpus {text} --model no/such/model", "no such folder"),
        ("--corpus {text} --topics 6 --device cuda:9", "device='cuda:9'"),
    ],
)
def test_mistakes_are_one_line_and_status_two(run, text, trained, tmp_path, words, message):
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "nothing").mkdir()
    names = dict(text=text, model=trained, binary=tmp_path / "binary.txt", empty=tmp_path / "empty.txt",
                 nothing=tmp_path / "nothing")  # fmt: skip
    status, out, err = run("topics", *words.format(**names).split())
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
    assert not out


def test_mistakes_in_pretrain(run, text, tmp_path):
    command = ["pretrain", "--corpus", text, "--out", tmp_path / "m", "--vocab", 200]
    for extra, message in (
        (["--heads", 3], "heads=3: must divide the width 128"),
        (["--optimizer", "adm"], "did you mean 'adam'"),
        (["--lr", -1], "--lr=-1.0"),
        (["--steps", 3], "steps=3: must be a whole number ≥ 20"),
    ):
        status, _, err = run(*command, *extra)
        assert status == 2
        assert message in err
        assert err.count("\n") == 1


def test_a_model_that_returns_no_attentions_says_how_to_load_it(trained):
    class Silent(transformers.BertModel):
        def forward(self, *args, output_attentions=None, **kwargs):
            return super().forward(*args, output_attentions=False, **kwargs)

    reader = read(Silent(transformers.BertConfig(vocab_size=40, hidden_size=16, num_attention_heads=2)))
    with pytest.raises(ValueError, match=r"returns no attentions; load it with from_pretrained\(…, attn_impl"):
        reader.attention(torch.zeros(1, 4, dtype=torch.long))
