"""Compiled automata on disk: all that runs and verifies comes back; other files are refused in one line."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.compile import Compiled, compile
from sandtable.theory.automata.compile.files import LAWS
from sandtable.theory.automata.verify import verify
from sandtable.worlds import automata
from sandtable.worlds.automata import Automaton, Repeating, fixture

METHODS = {
    "FLIPFLOP": "memory",
    "C5": "counter",
    "GRID4": "grid",
    "Q8": "cocycle",
    "D8": "semidirect",
    "A4": "wreath",
    "MEMORY4": "permutation-reset",
    "ABAB": "krohn-rhodes",
    "A5-POINTS": "log",
}


@pytest.mark.parametrize(("name", "method"), METHODS.items())
def test_everything_comes_back(name, method, tmp_path):
    before = compile(name, 6, method=method)
    after = Compiled.load(before.save(tmp_path / "model.safetensors"))
    for field in before.__dataclass_fields__:
        if field != "model":
            assert getattr(after, field) == getattr(before, field), field
    state = after.model.state_dict()
    assert state.keys() == before.model.state_dict().keys()
    assert all(torch.equal(value, state[key]) for key, value in before.model.state_dict().items())
    assert after.sizes == before.sizes
    inputs = torch.randint(before.automaton.n_tokens, (50, 6), generator=torch.Generator().manual_seed(0))
    for start in range(before.automaton.n_states):
        states, residual = after.simulate_closely(inputs, start)
        assert torch.equal(states, before.automaton.simulate(inputs, start))
        assert residual == before.simulate_closely(inputs, start)[1]


def test_what_is_loaded_can_be_verified(tmp_path):
    path = compile("ABAB", 8).save(tmp_path / "model.safetensors")
    found = verify(Compiled.load(path))
    assert found.exhaustive
    assert found.exact
    assert found.inputs == 5 * 2**8
    assert found.softest < 1e-3
    assert found.over_bound


def test_unbounded_bounds_and_laws_come_back(tmp_path):
    automaton = replace(fixture("C2"), law=Repeating((0, 1), p=0.25), name="mine", shortest=3, observe=(1, 0))
    before = replace(compile(automaton, 5), bound={"width": float("inf"), "depth": 2.5})
    after = Compiled.load(before.save(tmp_path / "model.safetensors"))
    assert after.bound == before.bound
    assert after.automaton == automaton


def test_every_law_of_the_world_can_be_written():
    here = {name for name in automata.__all__ if hasattr(getattr(automata, name), "draw")}
    assert here - {"InputLaw", "StateLaw"} == set(LAWS)


def test_existing_files_and_unknown_laws(tmp_path):
    class Mine:
        def draw(self, automaton, n, length, generator):
            return torch.zeros(n, length, dtype=torch.long)

    compiled, path = compile("PARITY", 4), tmp_path / "model.safetensors"
    compiled.save(path)
    with pytest.raises(ArgumentError, match="exists already; choose another name, or overwrite it"):
        compiled.save(path)
    compile("C3", 4).save(path, overwrite=True)
    assert Compiled.load(path).automaton.name == "C3"
    with pytest.raises(ArgumentError, match="exists already"):
        compiled.save(tmp_path, overwrite=True)
    with pytest.raises(ArgumentError, match="cannot be written"):
        compiled.save(path / "below.safetensors")
    mine = compile(Automaton(((0, 1), (1, 0)), law=Mine()), 4)
    with pytest.raises(ArgumentError, match="cannot be written to a file"):
        mine.save(tmp_path / "other.safetensors")
    assert not list(tmp_path.glob("**/.*"))


def rewritten(path, *, facts=None, tensors=None, drop=()):
    """The file with other facts or tensors."""
    from safetensors import safe_open

    with safe_open(path, "pt") as handle:
        known = json.loads(handle.metadata()["sandtable"])
    held = {name: value for name, value in (load_file(path) | (tensors or {})).items() if name not in drop}
    save_file(held, path, metadata={"sandtable": json.dumps(known | (facts or {}))})


DAMAGE = {
    "a state that is none": dict(tensors={"tables.codes": torch.full((2, 2), 7)}),
    "a table too few": dict(drop=["tables.prefix"]),
    "weights too few": dict(drop=["blocks.0.attn.W_Q"]),
    "weights of another shape": dict(tensors={"unembed.W_U": torch.zeros(9, 1, dtype=torch.float64)}),
    "weights that are no numbers": dict(tensors={"pos_embed.W_pos": torch.full((5, 3), torch.nan)}),
    "floats for numbers": dict(tensors={"tables.delta": torch.zeros(2, 2)}),
    "a law that nobody knows": dict(facts={"law": ["__import__", {}]}),
    "a law's field that is none": dict(facts={"law": ["Uniform", {"p": 0.5}]}),
    "no law": dict(facts={"law": None}),
    "inputs longer than the positions": dict(facts={"length": 50}),
    "no length": dict(facts={"length": "long"}),
    "a start that is none": dict(facts={"automaton": {"start": 5}}),
    "coordinates that are none": dict(facts={"writes": [[[99], []]]}),
    "more layers": dict(facts={"writes": [[[], []]] * 2}),
    "heads unnamed": dict(facts={"hard": []}),
    "digits of another size": dict(facts={"digits": [3]}),
}


@pytest.mark.parametrize("how", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told_in_one_line(how, tmp_path):
    path = compile("PARITY", 4).save(tmp_path / "model.safetensors")
    rewritten(path, **how)
    with pytest.raises(ArgumentError, match="header and weights do not fit together") as told:
        Compiled.load(path)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400


def test_foreign_files(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(ArgumentError, match="no such file"):
        Compiled.load(path)
    path.write_bytes(b"\x80\x04\x95 not tensors at all")
    with pytest.raises(ArgumentError, match="not a safetensors file"):
        Compiled.load(path)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(ArgumentError, match="holds no compiled automaton"):
        Compiled.load(path)
    save_file({"x": torch.zeros(2)}, path, metadata={"sandtable": '{"kind": "dyck"}'})
    with pytest.raises(ArgumentError, match="holds no compiled automaton"):
        Compiled.load(path)
    whole = compile("PARITY", 4).save(path, overwrite=True).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArgumentError, match="not a safetensors file"):
        Compiled.load(path)
