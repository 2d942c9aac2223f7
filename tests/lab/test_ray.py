"""Claims over a local Ray cluster: killed workers, one store, the bits of one process."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from sandtable.arguments import ArgumentError
from sandtable.lab import Store, registry, verify
from sandtable.lab.run import Progress

SWARM = Path(__file__).with_name("ray_claims.py")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


class Log(Progress):
    def __init__(self):
        self.said, self.finished = [], []

    def say(self, text):
        self.said.append(text)

    def done(self, outcome):
        self.finished.append(outcome.claim)


def arrays(store):
    """Every measured row by (folder, seed), and how many files hold it."""
    rows, times = {}, {}
    for file in sorted(store.root.glob("measures/*/seeds-*.npz")):
        found = store.read_arrays(file)
        for i, seed in enumerate(found.pop("__seeds__").tolist()):
            key = (file.parent.name, seed)
            rows[key] = {name: value[i] for name, value in found.items()}
            times[key] = times.get(key, 0) + 1
    return rows, times


def weights(store):
    return {file.relative_to(store.root): file.read_bytes() for file in store.root.rglob("*.safetensors")}


@needs_ray
def test_killed_workers_lose_nothing_and_count_nothing_twice(tmp_path):
    claims = list(registry.from_files([SWARM]).values())
    options = dict(files=[SWARM], changes={"folder": str(tmp_path)})
    alone, spread, log = Store(tmp_path / "alone"), Store(tmp_path / "spread"), Log()
    expected = verify(claims, store=alone, threads=1, **options)
    for file in tmp_path.glob("done-*"):
        file.unlink()
    for name in ("kill-measure", "kill-fit"):
        (tmp_path / name).touch()
    try:
        found = verify(claims, store=spread, on="ray", progress=log, **options)
    except ArgumentError as error:
        if "no local cluster could be started" in str(error):
            pytest.skip(f"Ray gives a new cluster half a minute, and this machine is too busy: {error}")
        raise
    assert not list(tmp_path.glob("kill-*"))  # both were killed
    assert all(outcome.ok for outcome in found), [outcome.notes for outcome in found]
    assert sorted(log.finished) == [item.id for item in claims]
    assert [(o.claim, o.checks, o.controls) for o in found] == [(o.claim, o.checks, o.controls) for o in expected]
    # three blocks of seeds were measured in full, by more than one process; the one that was killed began in vain
    assert sorted(f.name.split("-")[1] for f in tmp_path.glob("done-*")) == ["0", "16", "8"]
    assert [f.read_text() for f in tmp_path.glob("begun-*")] == [" ".join(map(str, range(8, 16)))]
    (rows, times), (own, _) = arrays(spread), arrays(alone)
    assert rows.keys() == own.keys()
    assert all(np.array_equal(rows[key]["draws"], own[key]["draws"]) for key in own)
    assert set(times.values()) == {1}
    assert weights(spread) == weights(alone)
    assert not [*spread.root.glob(".cluster-*"), *spread.root.rglob("*.checkpoint")]
    assert sys.modules["ray"].is_initialized() is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(on="slurm"), "--on slurm: must be ray, or ray://HOST:PORT"),
        (dict(on="ray", jobs=2), "--jobs 2 with --on ray"),
        (dict(on="ray", device="cuda:1"), "--device cuda:1 with --on: must be cpu or cuda"),
    ],
)
def test_wrong_calls_are_one_line(options, said, tmp_path):
    claims = list(registry.from_files([SWARM]).values())
    with pytest.raises(ArgumentError, match=said):
        verify(claims, store=tmp_path / "runs", files=[SWARM], **options)


def test_without_ray_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    claims = list(registry.from_files([SWARM]).values())
    with pytest.raises(ArgumentError, match=r"pip install 'sandtable\[ray\]'"):
        verify(claims, store=tmp_path / "runs", files=[SWARM], on="ray")
