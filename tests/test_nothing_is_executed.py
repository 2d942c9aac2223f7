"""Files from elsewhere are read, never run: no source can, and what is planted stays asleep."""

import ast
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import sandtable
from sandtable.arguments import ArgumentError
from sandtable.bridges import corpus, huggingface
from sandtable.bridges.lda import Topics
from sandtable.bridges.readers import read
from sandtable.bridges.tokens import TokenCorpus
from sandtable.bridges.topics import CorpusTopics
from sandtable.cli import main
from sandtable.decoding import ProbeVerifier, Trace
from sandtable.lab import Store, registry
from sandtable.objectives import NextToken
from sandtable.theory import dyck
from sandtable.theory.automata.compile import files as compiled
from sandtable.training import Fit, Recipe
from sandtable.training.checkpoint import Checkpoint
from sandtable.worlds import DyckPrefixes

HOUSE = Path(sandtable.__file__).parent
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "codeop", "pty"}
UNSAFE_NAMES = {"eval", "exec", "__import__", "execfile"}
UNSAFE_CALLS = {
    "torch.load", "torch.hub", "torch.jit.load", "numpy.load", "np.load", "np.loadtxt", "np.fromfile", "yaml.load",
    "os.system", "os.popen", "pd.read_pickle", "pandas.read_pickle", "builtins.eval", "builtins.exec", "runpy.run_path",
}  # fmt: skip
UNSAFE_OPTIONS = {"allow_pickle", "trust_remote_code", "weights_only", "shell"}
MEANT = {"lab/registry.py", "lab/ray.py"}
"""`--from` runs the Python file that its user names: that is what it is for. And what Ray hands from one process of a
run to another is pickled, in memory: no file, and nothing that anybody else wrote."""


def dangers(tree):
    """What a source could run or unpickle, as (line, words)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in names:
                if name.split(".")[0] in UNSAFE_MODULES or name in ("torch.hub", "runpy", "subprocess"):
                    yield node.lineno, f"import {name}"
        elif isinstance(node, ast.Name) and node.id in UNSAFE_NAMES:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and (
            ast.unparse(node) in UNSAFE_CALLS or node.attr in ("exec_module", "Unpickler", "read_pickle", "cloudpickle")
        ):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.keyword) and node.arg in (
            "allow_pickle",
            "trust_remote_code",
            "weights_only",
            "shell",
        ):
            safe = node.arg == "weights_only"
            if not (isinstance(node.value, ast.Constant) and node.value.value is safe):
                yield node.value.lineno, f"{node.arg}={ast.unparse(node.value)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("read_array", "write_array")):
            if not any(keyword.arg == "allow_pickle" for keyword in node.keywords):
                yield node.lineno, f"{ast.unparse(node.func)} without allow_pickle=False"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "compile":
            yield node.lineno, "compile"


def test_no_source_can_run_or_unpickle_a_file():
    found = []
    for path in sorted(HOUSE.rglob("*.py")):
        name = str(path.relative_to(HOUSE))
        own = "automata" in name  # where `compile` is the name of a function of ours
        for line, words in dangers(ast.parse(path.read_text())):
            if name not in MEANT and not (own and words == "compile"):
                found.append(f"{name}:{line}: {words}")
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')", "import pickle", "from pickle import loads", "torch.load(path)", "np.load(path)",
        "np.lib.format.read_array(file)", "f(trust_remote_code=True)", "np.savez(allow_pickle=maybe)",
        "import dill as x",
        "spec.loader.exec_module(m)", "subprocess.run(c, shell=True)", "torch.load(p, weights_only=False)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(source):
    assert list(dangers(ast.parse(source)))


class Bomb:
    """Unpickled, it makes a folder called "exploded" where the process is."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


PICKLED = pickle.dumps(Bomb())


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield tmp_path
    assert not (tmp_path / "exploded").exists()


def test_the_bomb_would_go_off(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(PICKLED)
    assert (tmp_path / "exploded").is_dir()


def planted(folder):
    """One file of every kind that could hide a pickle."""
    folder.mkdir()
    (folder / "raw.pt").write_bytes(PICKLED)
    torch.save({"weights": Bomb()}, folder / "saved.pt")
    np.savez(folder / "objects.npz", x=np.array([Bomb()], dtype=object))
    np.save(folder / "objects.npy", np.array([Bomb()], dtype=object))
    save_file({"x": torch.zeros(1)}, folder / "bare.safetensors")
    (folder / "claims.json").write_text(json.dumps({"claim": "__import__('os').mkdir('exploded')"}))
    with zipfile.ZipFile(folder / "zip.npz", "w") as archive:
        archive.writestr("data.pkl", PICKLED)
    return sorted(folder.iterdir())


def recipe():
    world = DyckPrefixes(2, 2, 0.5, length=4)
    return Recipe(dyck.build("uniform", types=2, depth=2), world, NextToken(), 1, batch_size=2)


READERS = {
    "a probe": ProbeVerifier.load,
    "a model of brackets": dyck.load,
    "a compiled automaton": compiled.load,
    "topics": Topics.load,
    "a trace": lambda path: Trace.from_json(path.read_bytes().decode(errors="replace")),
    "a model": huggingface.load,
    "a masked model": huggingface.load_masked,
    "a tokenizer": huggingface.load_tokenizer,
    "a reader": read,
    "a corpus of tokens": TokenCorpus.open,
    "a fit": lambda path: Fit.load(path, recipe()),
    "prepared topics": lambda path: CorpusTopics.load(path, None),
}


@pytest.mark.parametrize("what", READERS)
def test_planted_files_are_refused_in_one_line(here, what):
    for path in planted(here / "elsewhere"):
        with pytest.raises(ArgumentError) as caught:
            READERS[what](path)
        assert "\n" not in str(caught.value)


def test_planted_files_in_a_store_are_set_aside(here):
    store = Store(here / "runs")
    for path in planted(here / "elsewhere"):
        place = store.path("x", path.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        for reads in (store.read_json, store.read_arrays):
            shutil.copy(path, place)
            with pytest.warns(RuntimeWarning, match="damaged"):
                assert reads(place) is None
        shutil.copy(path, place)
        if path.suffix != ".safetensors":
            with pytest.warns(UserWarning, match="damaged"):
                assert Checkpoint(place).load() is None


def test_pickled_weights_are_never_loaded(here):
    folder = here / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1}))
    (folder / "pytorch_model.bin").write_bytes(PICKLED)
    for load in (huggingface.load, huggingface.load_masked, read):
        with pytest.raises(ArgumentError, match="pickled weights") as caught:
            load(str(folder))
        assert "\n" not in str(caught.value)


def test_code_that_comes_with_a_model_is_never_run(here):
    folder = here / "model"
    folder.mkdir()
    auto = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto}))
    (folder / "evil.py").write_text("import os\nos.mkdir('exploded')\n")
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(ArgumentError, match="never run"):
        huggingface.load(str(folder))


@pytest.mark.parametrize(
    "config",
    [
        {}, [], "text", {"model_type": "gpt2", "n_embd": "wide"}, {"model_type": "gpt2", "n_head": 0},
        {"model_type": "gpt2", "n_layer": -1}, {"model_type": ["gpt2"]}, {"model_type": "gpt2", "vocab_size": None},
    ],
)  # fmt: skip
def test_a_config_that_makes_no_sense_is_one_line(here, config):
    folder = here / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(ArgumentError) as caught:
        huggingface.load(str(folder))
    assert "\n" not in str(caught.value)


def test_python_in_a_corpus_is_text(here):
    (here / "text").mkdir()
    (here / "text" / "a.txt").write_text("import os; os.mkdir('exploded') " * 20)
    (here / "text" / "b.jsonl").write_text(json.dumps({"text": "__import__('os').mkdir('exploded') " * 20}))
    assert len(list(corpus.load(here / "text"))) == 2
    for name in ("raw.pt", "saved.pt", "objects.npz"):
        if not (here / "elsewhere").exists():
            planted(here / "elsewhere")
        with pytest.raises(ArgumentError, match=r"binary|empty"):
            corpus.load(here / "elsewhere" / name)


@pytest.mark.parametrize("name", ["raw.pt", "objects.npz", "claims.json"])
@pytest.mark.parametrize(
    "words", [["decode", "--task", "dyck", "--steps", "1", "-n", "1", "--repeats", "1", "-q", "--verifier"],
              ["dyck", "check"], ["topics", "-q", "--corpus"], ["list", "--from"]]
)  # fmt: skip
def test_the_command_line_refuses_them(here, capsys, monkeypatch, words, name):
    monkeypatch.setattr(registry, "_entry_points", lambda: [])
    planted(here / "elsewhere")
    with pytest.raises(SystemExit) as stop:
        main([*words, str(here / "elsewhere" / name)])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
