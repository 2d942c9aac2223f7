"""Claims over a local Ray cluster: killed workers, one store, the bits of one process."""

import importlib.util
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.lab import Store, ray, registry, verify
from sandtable.lab.run import Plan, Progress
from sandtable.lab.store import StoreError

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
def test_killed_workers_lose_nothing_and_count_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "local")
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
    with pytest.raises(ArgumentError, match=r"uv sync --extra ray"):
        verify(claims, store=tmp_path / "runs", files=[SWARM], on="ray")


class Cluster:
    """As much of Ray as the waiting needs: nodes with resources, and the address of a head."""

    def __init__(self, *nodes, port=1):
        self._nodes, self._port = nodes, port
        self.util = SimpleNamespace(client=SimpleNamespace(ray=SimpleNamespace(is_connected=lambda: False)))

    def nodes(self):
        return [{"Alive": alive, "Resources": resources} for alive, resources in self._nodes]

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=f"127.0.0.1:{self._port}")


@needs_ray
@pytest.mark.parametrize("on", ["ray", "ray://{}"])
def test_nobody_there_is_one_line_at_once(on, tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    claims = list(registry.from_files([SWARM]).values())
    with pytest.raises(ArgumentError, match=f"no cluster answers at .*{address}"):
        verify(claims, store=tmp_path / "runs", files=[SWARM], on=on.format(address))


def test_a_cluster_that_is_gone_is_one_line():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    silent = Cluster(port=port)
    silent.wait = lambda tasks, **_: ([], tasks)
    with pytest.raises(ray.ClusterLost, match="the cluster is gone; finished work is kept"):
        ray._next(silent, ["task"])
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        head.listen()
        slow, answers = Cluster(port=head.getsockname()[1]), [[]] * 5 + [["task"]]
        slow.wait = lambda tasks, **_: (answers.pop(0), [])
        assert ray._next(slow, ["task"]) == "task"  # a head that answers may take its time


def test_wishes_that_no_node_can_grant(tmp_path):
    nodes = ((True, {"CPU": 4.0}), (True, {"CPU": 2.0}), (False, {"CPU": 64.0, "GPU": 1.0}))
    assert ray._slots(Cluster(*nodes), Plan(threads=2)) == 3
    with pytest.raises(ArgumentError, match="--threads 8: the largest node of the cluster has 4 CPUs"):
        ray._slots(Cluster(*nodes), Plan(threads=8))
    with pytest.raises(ArgumentError, match="the cluster has no GPU"):
        ray._slots(Cluster(*nodes), Plan(device="cuda"))
    with pytest.raises(StoreError, match="is not the same folder on"):
        ray._arrive(Plan(store=str(tmp_path), cluster=".cluster-of-another", threads=torch.get_num_threads()))
