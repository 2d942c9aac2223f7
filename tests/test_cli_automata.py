"""The commands on automata: what they print, what they write, and one line for every mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandtable import cli
from sandtable.cli.automata.commands import METHODS
from sandtable.worlds.automata import fixtures


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the command line in this process and in an empty folder: (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str):
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


def test_list(run):
    status, out, _ = run("automaton", "list", "--json")
    assert status == 0
    listed = json.loads(out)
    assert [row["name"] for row in listed] == list(fixtures())
    assert sum(row["task"] for row in listed) == 19
    assert "GRID9 *" in run("automaton", "list")[1]


def test_show_tells_the_algebra(run):
    status, out, _ = run("automaton", "show", "GRID9")
    assert status == 0
    for words in ("212 maps (no identity), 44 idempotents, 8 D-classes", "aperiodic  yes", "2 states (8 levels)"):
        assert words in out
    assert "grid *" in out
    known = json.loads(run("automaton", "show", "S4", "--json", "--length", "64")[1])
    assert known["order"] == 24
    assert known["group"] == dict(
        name="S_4", order=24, derived=[24, 12, 4, 1], primes=[24, 12, 4, 2, 1], composition=[2, 3, 2, 2]
    )
    assert known["aperiodic"] is False
    assert known["solvable"] is True
    layers = {depth["method"]: depth["layers"] for depth in known["depths"]}
    assert layers["cocycle"] == 3
    assert layers["log"] == 6
    assert layers["grid"] is None
    assert known["auto"] == "cocycle"


def test_show_tells_why_not(run):
    out = run("automaton", "show", "A5-POINTS")[1]
    assert "solvable   no: words permute 5 states by a group with the perfect subgroup A₅, of order 60" in out
    assert "log *" in out
    out = run("automaton", "show", "DYCK48")[1]
    assert "semigroup  not listed" in out
    assert "words of up to" in out
    out = run("automaton", "show", "GRID9", "--cap", "20")[1]
    assert "semigroup  not listed" in out
    assert "aperiodic  yes" in out  # holonomy knows it without the list


def test_tables_expressions_and_permutations(run):
    Path("walk.json").write_text('{"here": {"go": "there", "stay": "here"}, "there": {"go": "here", "stay": "there"}}')
    known = json.loads(run("automaton", "show", "--table", "walk.json", "--json")[1])
    assert known["name"] == "walk"
    assert known["states"] == ["here", "there"]
    assert known["table"] == [[1, 0], [0, 1]]
    Path("rows.json").write_text('{"table": [[1, 0], [1, 1]], "start": 1, "name": "mine", "states": ["p", "q"]}')
    known = json.loads(run("automaton", "show", "--table", "rows.json", "--json")[1])
    assert (known["name"], known["start"]) == ("mine", "q")
    known = json.loads(run("automaton", "show", "--regex", "(ab)*", "--json")[1])
    assert known["states"] == ["0", "1", "trap"]
    assert known["labels"] == [1, 0, 0]
    assert "labels     1 in 0; 0 in 1 trap" in run("automaton", "show", "--regex", "(ab)*")[1]
    assert known["aperiodic"] is True
    known = json.loads(
        run("automaton", "show", "--permutations", "(1 2 3)(4 5)", "--permutations", "(1,2)", "--start", "4", "--json")[
            1
        ]
    )
    assert known["tokens"] == ["(1 2 3)(4 5)", "(1 2)"]
    assert known["table"] == [[1, 1], [2, 0], [0, 2], [4, 3], [3, 4]]
    assert known["start"] == "4"
    assert known["group"]["name"] == "D_12"  # S_3 × C_2


@pytest.mark.parametrize("what", ["states", "egg-box", "cascade"])
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_figures_are_written(what, suffix, run):
    path = Path(f"picture.{suffix}")
    assert run("automaton", "show", "GRID4", "--draw", what, "--figure", str(path))[0] == 0
    assert path.read_bytes().startswith(b"<svg" if suffix == "svg" else b"\x89PNG")


def test_compile_then_check(run):
    status, out, _ = run("compile", "GRID9", "--length", "6", "-o", "model.safetensors")
    assert status == 0
    assert "method 'grid'" in out
    assert [line.split()[-2:] for line in out.splitlines() if "depth" in line] == [["2", "2"]]
    status, out, _ = run("automaton", "check", "model.safetensors")
    assert status == 0
    assert f"{9 * 2**6} (all inputs, from every start state)" in out
    assert "wrong: 0" in out
    assert "hard heads" in out
    status, out, _ = run("automaton", "check", "model.safetensors", "--json", "--length", "3")
    assert status == 0
    found = json.loads(out)
    assert found["exact"] is True
    assert found["inputs"] == 9 * 8
    assert found["sizes"]["depth"] == {"size": 2, "bound": 2}
    assert "exists already" in run("compile", "C2", "-o", "model.safetensors")[2]
    assert run("compile", "C2", "--length", "30", "-o", "model.safetensors", "--force")[0] == 0
    status, out, _ = run("automaton", "check", "model.safetensors", "--samples", "20")
    assert status == 0
    assert "random, lawful and adversarial" in out


def test_a_model_that_errs_is_found_out(run):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    run("compile", "PARITY", "--length", "5", "-o", "model.safetensors")
    with safe_open("model.safetensors", "pt") as handle:
        facts = handle.metadata()
    tensors = load_file("model.safetensors")
    tensors["tables.codes"] = tensors["tables.codes"].flip(1)
    save_file(tensors, "model.safetensors", metadata=facts)
    status, out, _ = run("automaton", "check", "model.safetensors")
    assert status == 1
    assert "wrong: 64 inputs (0 % of states right)" in out


def test_sizes_without_a_file(run):
    status, out, _ = run("compile", "Q8", "--length", "7", "--json")
    assert status == 0
    known = json.loads(out)
    assert known["method"] == "cocycle"
    assert known["path"] is None
    assert known["sizes"]["depth"]["size"] == 2


def test_sample(run):
    status, out, err = run("sample", "automaton", "-n", "2", "--set", "name=GRID4", "--set", "length=6")
    assert status == 0
    assert err.strip() == "GRID4"
    for line in out.splitlines():
        read, states = line.split(" → ")
        now = 0
        for token, state in zip(read.split(), states.split(), strict=True):
            now = max(now - 1, 0) if token == "L" else min(now + 1, 3)
            assert int(state) == now


TABLES = {
    "partial.json": '{"p": {"a": "q"}, "q": {"b": "p", "a": "p"}}',
    "lost.json": '{"p": {"a": "nowhere"}}',
    "ragged.json": "[[0, 1], [1]]",
    "far.json": "[[0, 7], [1, 0]]",
    "strange.json": '{"table": [[0]], "begin": 0}',
    "mixed.json": '[{"a": 0}]',
    "words.json": '"a table"',
    "not.json": "{",
    "texts.json": '[["a", "b"]]',
    "start.json": '{"table": [[0, 1], [1, 0]], "start": 4}',
    "lists.json": '{"p": {"a": ["p"]}}',
}
MISTAKES = {
    "automaton show GRYD9": ["automaton='GRYD9': must be one of", "did you mean 'GRID9'?"],
    "automaton show": ["give one of NAME, --table, --regex, --permutations"],
    "automaton show C2 --regex ab": ["not NAME and --regex"],
    "automaton show --table none.json": ["none.json: no such file"],
    "automaton show --table partial.json": ["state 'p' has no next state on token 'b'; it must be total"],
    "automaton show --table lost.json": ["state 'p' goes to 'nowhere', which is no state of it"],
    "automaton show --table ragged.json": ["state 1 has 1 next states, state 0 has 2; it must be total"],
    "automaton show --table far.json": ["table[0][1]=7: must be a state from 0 to 1"],
    "automaton show --table strange.json": ["'begin' must be one of table, start"],
    "automaton show --table mixed.json": ["must hold rows of next states"],
    "automaton show --table words.json": ["must hold rows of next states"],
    "automaton show --table not.json": ["is not JSON"],
    "automaton show --table texts.json": ["table[0][0]='a': must be a state from 0 to 0"],
    "automaton show --table start.json": ["start=4"],
    "automaton show --table lists.json": ["lists.json: "],
    "automaton show GRID9 --start 9": ["start=9: must be a whole number from 0 to 8"],
    "automaton show ABAB --start end": ["start='end': there is no such name"],
    "automaton show --regex (ab": ["does not parse"],
    "automaton show --permutations (1|2": ["must be disjoint cycles as (1 2 3)(4 5); a bracket is missing"],
    "automaton show --permutations (1|2|1)": ["1 stands in it twice"],
    "automaton show --permutations (0|1)": ["points are whole numbers from 1"],
    "automaton show --permutations 2|1": ["a bracket is missing"],
    "automaton show C2 --length 0": ["--length=0: must be a whole number"],
    "automaton show C2 --cap 0": ["cap=0"],
    "automaton show C2 --figure picture.pdf": ["must be a file that ends in .svg or .png"],
    "automaton show C2 --figure none/picture.png": ["cannot be written"],
    "automaton show C2 --draw eggs --figure a.png": ["--draw='eggs': must be one of states, egg-box, cascade"],
    "automaton show S5 --cap 50 --draw egg-box --figure a.png": ["semigroup not listed", "120 elements"],
    "automaton show DYCK48 --draw cascade --figure a.png": ["--draw cascade: holonomy left out"],
    "compile C2 --length 0": ["--length=0: must be a whole number"],
    "compile C2 --method logg": ["--method='logg'", "did you mean 'log'?"],
    "compile GRID9 --method counter": ["method='counter': the tokens of GRID9 are not powers of one permutation"],
    "compile A5 --method constant": ["method='constant': A5 is non-solvable", "the perfect subgroup A_5"],
    "compile S5-POINTS --method krohn-rhodes": ["S5-POINTS is non-solvable: words permute 5 states"],
    "compile C2 -o .": ["exists already"],
    "automaton check none.safetensors": ["none.safetensors: no such file"],
    "automaton check far.json": ["not a safetensors file"],
    "automaton check far.json --samples 0": ["--samples=0"],
    "sample automaton --set name=PARTY": ["did you mean 'PARITY'?"],
}  # fmt: skip


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_line(line, run):
    for name, text in TABLES.items():
        Path(name).write_text(text)
    status, out, err = run(*(word.replace("|", " ") for word in line.split()))
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    for words in MISTAKES[line]:
        assert words in err


def test_methods_are_those_of_the_compiler():
    from sandtable.theory import automata

    assert set(METHODS) == {*automata.METHODS, "auto", "constant"}


def test_help_does_not_wait_for_torch():
    script = (
        "import sys; from sandtable import cli\n"
        "for words in (['automaton', '--help'], ['automaton', 'show', '--help'], ['compile', '--help']):\n"
        "    try: cli.main(words)\n"
        "    except SystemExit as stop: assert not stop.code\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, stdout=subprocess.DEVNULL).returncode == 0
