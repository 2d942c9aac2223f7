"""`sandtable decode`: one method, a comparison, a saved probe, and one clear line for every mistake."""

import json

import pytest
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from sandtable.cli import main
from sandtable.cli.decode import PROBE_PROMPTS, parse_arms
from sandtable.decoding import ProbeVerifier, Trace

QUICK = ["decode", "--task", "dyck", "--steps", "60", "-n", "30", "--repeats", "2", "--quiet"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return ["--store", str(tmp_path_factory.mktemp("runs"))]


def run(arguments, capsys):
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code == 0
    return capsys.readouterr().out


def test_a_method_with_a_probe_trained_on_the_spot(store, tmp_path, capsys):
    out = run([*QUICK, *store, "--json", "-o", str(tmp_path), "--set", "quota=2", "--set", "stride=3"], capsys)
    record = json.loads(out)
    (arm,) = record["arms"]
    assert arm["arm"] == "backtrack quota=2 stride=3"
    assert 0 <= arm["accuracy"] <= 1 <= arm["diversity"] <= 2
    assert arm["queries"] >= arm["erased"] >= arm["backtracks"] > 0
    assert 0.5 < record["probe_accuracy"]["probe"] <= 1
    with safe_open(tmp_path / "probe.safetensors", framework="pt") as file:
        assert file.metadata()
    again = run([*QUICK, *store, "--json", "--verifier", str(tmp_path / "probe.safetensors")], capsys)
    assert json.loads(again)["arms"][0]["verifier_calls"] > 0


def test_a_trace_is_drawn_and_replays(store, tmp_path, capsys):
    run([*QUICK, *store, "--verifier", "truth", "--set", "redo=sample", "--trace", "5", "-o", str(tmp_path)], capsys)
    assert (tmp_path / "tree.svg").read_text().startswith("<svg")
    trace = Trace.from_json((tmp_path / "trace.json").read_text())
    assert len(trace.prompts) == 60
    assert trace.replay(5)[: len(trace.prompts[5])] == trace.prompts[5]


def test_a_comparison_draws_its_frontier(store, tmp_path, capsys):
    arms = "ancestral; ancestral top_p=0.5; backtrack quota=8 stride=1 redo=sample; tokenwise; vgb steps=50"
    out = run([*QUICK, *store, "--verifier", "truth", "--compare", arms, "--runs", "2", "-o", str(tmp_path)], capsys)
    record = json.loads((tmp_path / "decode.json").read_text())
    accuracy = {arm["arm"]: arm["accuracy"] for arm in record["arms"]}
    assert len(record["rows"]) == 10
    assert accuracy["backtrack quota=8 stride=1 redo=sample"] > accuracy["ancestral"]
    assert (tmp_path / "frontier.svg").read_text().startswith("<svg")
    for name in ("ancestral top_p=0.5", "tokenwise", "vgb steps=50"):
        assert name in out


def test_arms_multiply_and_bring_their_own_verifiers(store, tmp_path, capsys):
    arms = "ancestral top_p=0.5|1.0; backtrack quota=1|2 layer=1|2; backtrack depth=2; tokenwise verifier=truth|random"
    run([*QUICK, *store, "--compare", arms, "--runs", "2", "-o", str(tmp_path)], capsys)
    record = json.loads((tmp_path / "decode.json").read_text())
    assert [arm["arm"] for arm in record["arms"]] == [
        "ancestral top_p=0.5", "ancestral top_p=1.0",
        "backtrack quota=1 layer=1", "backtrack quota=1 layer=2",
        "backtrack quota=2 layer=1", "backtrack quota=2 layer=2",
        "backtrack depth=2", "tokenwise verifier=truth", "tokenwise verifier=random",
    ]  # fmt: skip
    by_arm = {arm["arm"]: arm for arm in record["arms"]}
    assert set(record["probe_accuracy"]) == {"probe layer 1", "probe layer 2", "probe depth 2"}
    for name in record["probe_accuracy"]:
        assert (tmp_path / f"{name.replace(' ', '-')}.safetensors").is_file()
    assert by_arm["tokenwise verifier=truth"]["accuracy"] == 1 > by_arm["tokenwise verifier=random"]["accuracy"]
    for arm in record["arms"]:
        one, two = (row["queries"] for row in record["rows"] if row["arm"] == arm["arm"])
        assert arm["queries"] == (one + two) / 2
        assert arm["queries_std"] == pytest.approx(abs(one - two) / 2**0.5)
        assert arm["queries_se"] == pytest.approx(abs(one - two) / 2)


def test_walks_need_no_number_of_steps(store, capsys):
    (arm,) = json.loads(run([*QUICK, *store, "--method", "vgb", "--verifier", "truth", "--json"], capsys))["arms"]
    assert (arm["accuracy"], arm["failed"]) == (1, 0)


def test_append_has_the_threshold_of_the_paper_and_blocks_a_probe_of_lines(store, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PROBE_PROMPTS, "AppendTask", (2, 12, "train"))
    quick = ["--task", "append", "--steps", "60", "-n", "1", "--repeats", "2", "--quiet"]
    arms = "backtrack max_tokens=40; backtrack threshold=0.1 max_tokens=40; block-best-of-n n=2 max_blocks=2"
    run(["decode", *quick, *store, "--compare", arms, "-o", str(tmp_path)], capsys)
    record = json.loads((tmp_path / "decode.json").read_text())
    assert set(record["probe_accuracy"]) == {"probe", "probe blocks"}
    assert record["threshold"] == 0.1
    usual, told, _ = record["arms"]
    assert usual["queries"] == told["queries"]
    assert ProbeVerifier.load(tmp_path / "probe-blocks.safetensors").granularity == "block"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama with a tokenizer of bytes, as save_pretrained writes them."""
    place = tmp_path_factory.mktemp("llama")
    bytes_of = pre_tokenizers.ByteLevel
    inner = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate([*sorted(bytes_of.alphabet()), "<eos>"])}, merges=[])
    )
    inner.pre_tokenizer, inner.decoder = bytes_of(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>").save_pretrained(place)
    config = LlamaConfig(
        vocab_size=257, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=1024, eos_token_id=256, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(place)
    return str(place)


def test_a_hugging_face_model_lists_test_cases(folder, store, capsys):
    arguments = ["decode", "--task", "append", "--model", folder, "-n", "2", "--repeats", "2", "--set", "max_tokens=12"]
    out = run([*arguments, "--verifier", "truth", "--json", "--quiet", *store], capsys)
    (arm,) = json.loads(out)["arms"]
    assert arm["accuracy"] == 0  # random weights write no test case
    assert arm["backtracks"] == 4 * 4
    assert arm["queries"] > 4 * 12


def test_standard_arms_take_settings_that_they_have():
    arms = parse_arms("standard", "append", {"quota": 7, "temperature": 0.5})
    assert {str(arm) for arm in arms} >= {
        "greedy temperature=0.5",
        "backtrack quota=4 temperature=0.5 stride=4 top_p=0.95",
        "block-best-of-n temperature=0.5 n=2 top_p=1.0",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "dick"], "did you mean 'dyck'"),
        (["--task", "dyck", "--method", "backtrak"], "did you mean 'backtrack'"),
        (["--task", "dyck", "--set", "quotas=3"], "quotas=3: not a setting of backtrack"),
        (["--task", "dyck", "--set", "quota"], "must be NAME=VALUE"),
        (["--task", "dyck", "--compare", ";"], "must name methods"),
        (["--task", "dyck", "--set", "protect_prompt=maybe"], "protect_prompt='maybe': must be True or False"),
        (["--task", "dyck", "--set", "quota=-1"], "quota=-1"),
        (["--task", "dyck", "--compare", "vgb; backtrack quota=1|x"], "quota='x'"),
        (["--task", "dyck", "--compare", "ancestral verifier=truth"], "ancestral asks no verifier"),
        (["--task", "dyck", "--compare", "backtrack verifier=trut"], "did you mean 'truth'"),
        (["--task", "dyck", "--compare", "backtrack verifier=truth layer=1"], "only a probe trained here has layer"),
        (["--task", "dyck", "--compare", "backtrack layer=-1"], "layer=-1"),
        (["--task", "dyck", "--depth", "0"], "--depth=0"),
        (["--task", "dyck", "--method", "smc", "--set", "returns=all"], "a prompt has one completion here"),
        (["--task", "dyck", "--compare", "ancestral; greedy", "--set", "qota=3"], "--set qota=3: no method"),
        (["--task", "dyck", "--compare", "greedy", "--method", "vgb"], "give one of the two"),
        (["--task", "dyck", "--verifier", "truth", "--layer", "1"], "only a probe trained here has --layer"),
        (["--task", "append", "--model", "gpt2", "--steps", "5"], "leave --steps out"),
        (["--task", "dyck", "--verifier", "no-such-file"], "the file of a saved probe"),
        (["--task", "dyck", "-n", "0"], "-n=0"),
        (["--task", "dyck", "--model", "gpt2"], "leave --model out"),
        (["--task", "dyck", "--kind", "train", "--steps", "1"], "--kind='train'"),
    ],
)
def test_mistakes_get_one_line(arguments, message, store, capsys):
    with pytest.raises(SystemExit) as done:
        main(["decode", *arguments, *store, "--quiet"])
    assert done.value.code == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
