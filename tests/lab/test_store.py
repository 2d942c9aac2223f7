import errno
import functools
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.lab import keys
from sandtable.lab.keys import describe, fingerprint, origins, source_hash
from sandtable.lab.store import Store, StoreError


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


@dataclass(frozen=True)
class Settings:
    size: int = 3
    rate: float = 0.5


class Speaker:
    def describe(self):
        return {"weights": torch.zeros(2)}


def test_descriptions_tell_apart_what_differs():
    things = [
        None, True, 1, 1.0, float("nan"), float("inf"), "1", Path("1"), (1,), (1, 2), {"a": 1}, {"a": 2}, {1: "a"},
        {1, 2}, Settings(), Settings(4), Settings, np.zeros(2), np.zeros(2, np.float32), np.zeros((1, 2)), np.ones(2),
        torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16), torch.float32, describe, functools.partial(describe, 1),
        Speaker(), torch.nn.Linear(1, 1),
    ]  # fmt: skip
    assert len({fingerprint(thing) for thing in things}) == len(things)


def test_descriptions_agree_on_what_is_the_same():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": (2,), "a": np.int64(1)})
    assert fingerprint({3, 1, 2}) == fingerprint({2, 3, 1})
    assert fingerprint(torch.arange(6.0).reshape(2, 3).T) == fingerprint(torch.arange(6.0).reshape(2, 3).T.contiguous())
    json.dumps(describe([Settings(), Speaker(), {"x": np.float32(1)}]), allow_nan=False)


@pytest.mark.parametrize("thing", [object(), lambda: 0, np.array([object()]), 1j])
def test_what_cannot_be_described_is_named(thing):
    with pytest.raises(TypeError, match="store key"):
        describe([thing])


def test_environment_moves_the_store(monkeypatch, tmp_path):
    monkeypatch.delenv("SANDTABLE_HOME", raising=False)
    assert Store().root == Path("runs")
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path))
    assert Store().root == tmp_path


def test_json_comes_back(store):
    path = store.path("a", "b.json")
    assert store.read_json(path) is None
    store.write_json(path, {"x": [1, 2.5, None, "é"]})
    assert store.read_json(path) == {"x": [1, 2.5, None, "é"]}
    assert [file.name for file in path.parent.iterdir()] == ["b.json"]


def test_arrays_come_back(store):
    path = store.path("a.npz")
    arrays = {"file": np.arange(6.0).reshape(2, 3).T, "flag": np.array(True), "empty": np.zeros((0, 2), np.int8)}
    store.write_arrays(path, arrays)
    back = store.read_arrays(path)
    assert back is not None
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    with np.load(path, allow_pickle=False) as plain:
        np.testing.assert_array_equal(plain["file"], arrays["file"])
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        store.write_arrays(path, {"x": np.array([object()])})
    assert store.read_arrays(path) is not None


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "edited":
        path.write_bytes(content.replace(b"5", b"6"))
    else:
        path.write_bytes(b"\xff\x00 not this at all")


@pytest.mark.parametrize("how", ["truncated", "empty", "edited", "other"])
def test_damaged_files_are_set_aside(store, how):
    for path, write, read in (
        (store.path("x.json"), store.write_json, store.read_json),
        (store.path("x.npz"), store.write_arrays, store.read_arrays),
    ):
        write(path, {"x": np.array([5, 55]).tolist() if path.suffix == ".json" else np.frombuffer(b"5555", np.uint8)})
        damage(path, how)
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert read(path) is None
        assert not path.exists()
        assert path.with_name(path.name + ".damaged").exists()


def test_an_npz_written_by_hand_does_not_count(store):
    store.root.mkdir()
    np.savez(store.path("x.npz"), x=np.ones(2))
    with pytest.warns(RuntimeWarning, match="checksum"):
        assert store.read_arrays(store.path("x.npz")) is None


def test_pickles_are_never_opened(store):
    store.root.mkdir()
    np.savez(store.path("x.npz"), x=np.array([{"a": 1}], dtype=object))
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert store.read_arrays(store.path("x.npz")) is None


def test_folders_appear_whole(store):
    path = store.path("fits", "chunk-0")
    with store.lock(path):
        store.write_folder(path, lambda folder: (folder / "w.bin").write_bytes(b"weights"))
    assert store.has_folder(path)

    def fail(folder):
        (folder / "w.bin").write_bytes(b"half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        store.write_folder(path, fail)
    assert (path / "w.bin").read_bytes() == b"weights"
    assert sorted(file.name for file in path.parent.iterdir()) == ["chunk-0", "chunk-0.lock"]
    (path / "w.bin").write_bytes(b"weighty")
    with pytest.warns(RuntimeWarning, match="checksum of w.bin"):
        assert not store.has_folder(path)
    assert not path.exists()


def test_a_full_disk_keeps_the_old_content(store, monkeypatch):
    path = store.path("x.json")
    store.write_json(path, {"x": 1})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="no space left"):
        store.write_json(path, {"x": 2})
    monkeypatch.undo()
    assert store.read_json(path) == {"x": 1}
    assert [file.name for file in store.root.iterdir()] == ["x.json"]


def test_a_store_that_is_not_a_folder(tmp_path):
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ArgumentError, match="not writable"):
            Store(root).require_writable()
        assert Store(root).read_json(root / "x.json") is None


def test_a_lock_is_held_by_one(store):
    path, order, blocked = store.path("x"), [], threading.Event()

    def second():
        with store.lock(path, waiting=blocked.set):
            order.append("second")

    with store.lock(path):
        thread = threading.Thread(target=second)
        thread.start()
        assert blocked.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


WRITER = """
import sys, numpy as np
from sandtable.lab.store import Store
store = Store(sys.argv[1])
for i in range(60):
    store.write_json(store.path("x.json"), {"who": sys.argv[2], "i": i, "pad": "x" * 5000})
    assert store.read_json(store.path("x.json")) is not None
    store.write_arrays(store.path("x.npz"), {"a": np.full(1000, i)})
    assert store.read_arrays(store.path("x.npz")) is not None
"""


def test_two_processes_write_one_file(store):
    runs = [subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, str(store.root), who]) for who in "ab"]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert sorted(file.name for file in store.root.iterdir()) == ["x.json", "x.npz"]


# -- hashes of sources


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `ours` whose `a` imports `b` inside a function and `c` relatively, beside an unrelated `d`."""
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text("from . import c\ndef f():\n    from ours.b import g\n    return g()\n")
    (folder / "b.py").write_text("import json\ndef g():\n    return 1\n")
    (folder / "c.py").write_text("x = 1\n")
    (folder / "d.py").write_text("y = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "ours"]:
        del sys.modules[name]


def hash_now(package: Path) -> str:
    """As a process would that starts now."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "ours"]:
        del sys.modules[name]
    keys._SOURCES.clear()
    from ours.a import f

    return source_hash(f)


def test_source_hash_follows_imports(package):
    before = hash_now(package)
    assert hash_now(package) == before
    (package / "d.py").write_text("y = 2\n")
    assert hash_now(package) == before
    for name in "abc":
        (package / f"{name}.py").write_text((package / f"{name}.py").read_text() + "# changed\n")
        after = hash_now(package)
        assert after != before
        before = after


def test_an_edit_while_running_does_not_change_the_hash(package):
    before = hash_now(package)
    (package / "b.py").write_text("def g():\n    return 2\n")
    assert source_hash(sys.modules["ours.a"].f) == before


def test_source_hash_sees_sandtable_but_not_its_lab(monkeypatch):
    read = []
    original = keys._read
    monkeypatch.setattr(keys, "_read", lambda name, file: read.append(name) or original(name, file))
    from sandtable.worlds import TopicModel

    source_hash(TopicModel, torch.nn.Linear(1, 1), Path())
    assert {"sandtable.worlds.topics", "sandtable.worlds.base", "sandtable.arguments"} <= set(read)
    assert not any(name.startswith(("sandtable.lab", "sandtable.cli", "torch")) for name in read)
    read.clear()
    (read_all,) = [keys._resolve("sandtable", "")]
    assert "sandtable.models.attention" in read_all
    assert not any(name.startswith(("sandtable.lab", "sandtable.claims")) for name in read_all)


def test_origins_look_into_parts():
    @dataclass(frozen=True)
    class Holder:
        parts: dict

    from sandtable.worlds import TopicModel

    found = origins(Holder({"a": [TopicModel(2, 2, present=1)], "b": torch.nn.Linear(1, 1), "c": describe}))
    assert found == {__name__, "sandtable.worlds.topics", "torch.nn.modules.linear", "sandtable.lab.keys"}
