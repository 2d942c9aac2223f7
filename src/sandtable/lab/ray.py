"""Claims and blocks of their seeds over a Ray cluster: one that is there, or a local one for as long as it is needed.

Every claim is a task, and every block of seeds that a claim measures or trains is a task of its own. They talk to each
other through the store alone: a task that is run again after its worker was killed goes on from what is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pickle
import platform
import socket
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sandtable.arguments import ArgumentError, missing
from sandtable.lab.claim import Claim
from sandtable.lab.laboratory import Lab
from sandtable.lab.registry import find, from_files
from sandtable.lab.store import Store, StoreError

if TYPE_CHECKING:
    from sandtable.lab.run import Outcome, Plan, Progress

LOOK = 4.0
"""Seconds between two looks at whether the cluster is still there."""
RETRIES = 3
"""How often a task is run again when its worker died."""
STARTS = 2
"""How often a local cluster is started before giving up."""
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_worker_niceness": "0"}
"""Of a local cluster: it tells nobody, builds no environment of its own, and its workers are as urgent as we are."""


class ClusterLost(ArgumentError):
    """The cluster went away while we were waiting for it."""


def spread(claims: Sequence[Claim], plan: Plan, on: str, progress: Progress) -> list[Outcome]:
    """The outcomes of `claims`, in their order, from the cluster that `on` names: "ray" or "ray://host:port"."""
    with _cluster(on) as ray, _meeting_point(Path(plan.store)) as token:
        plan = dataclasses.replace(
            plan,
            cluster=token,
            store=str(Path(plan.store).resolve()),
            files=tuple(str(Path(file).resolve()) for file in plan.files),
        )
        return _run(ray, claims, plan, progress)


def _run(ray: Any, claims: Sequence[Claim], plan: Plan, progress: Progress) -> list[Outcome]:
    from sandtable.lab.run import lost

    slots, task = _slots(ray, plan), ray.remote(_claim)
    waiting, running, found = list(claims), {}, {}
    try:
        while waiting or running:
            while waiting and len(running) < slots:
                item = waiting.pop(0)
                running[task.options(name=item.id, **_needs(plan)).remote(item.id, plan)] = item
            progress.doing(f"{len(found)} of {len(claims)} claims finished, {len(running)} running on Ray")
            done = _next(ray, list(running))
            item = running.pop(done)
            try:
                found[item.id] = _result(ray, done)
            except ray.exceptions.RayError as error:
                found[item.id] = lost(item, plan, f"its worker on Ray was lost: {_first_line(error)}")
            progress.done(found[item.id])
    except ClusterLost:
        running.clear()  # nobody is left to be told
        raise
    finally:
        for left in running:
            with contextlib.suppress(Exception):
                ray.cancel(left, force=True)
    return [found[item.id] for item in claims]


def _next(ray: Any, tasks: Sequence[Any]) -> Any:
    """The first task to end; a cluster that has gone away would otherwise keep us, or take us with it."""
    silent = 0
    while True:
        done, _ = ray.wait(list(tasks), num_returns=1, timeout=LOOK)
        if done:
            return done[0]
        silent = 0 if _answers(ray) else silent + 1
        if silent == 3:
            raise ClusterLost(
                "--on ray: the cluster is gone; finished work is kept, the same command goes on from there"
            )


def _answers(ray: Any) -> bool:
    """Whether the cluster's head still takes calls; a connection by ray:// finds out by itself."""
    if ray.util.client.ray.is_connected():
        return True
    return _listens(ray.get_runtime_context().gcs_address)


def hand_out(
    plan: Plan, lab: Lab, what: str, blocks: Sequence[Sequence[int]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Let tasks do `lab.measure` or `lab.fit` for these blocks of seeds, into the same store, and wait for them.

    Nobody may hold a lock of the store while waiting here: the tasks need the processor that it would keep.
    """
    ray = importlib.import_module("ray")
    try:
        payload = ray.cloudpickle.dumps((args, kwargs))
    except (TypeError, AttributeError, pickle.PicklingError):
        return  # something that cannot travel is computed where it is
    task = ray.remote(_block).options(name=f"{what} seeds", **_needs(plan))
    tasks = [task.remote(plan, dataclasses.replace(lab, seeds=block, **_HERE), what, payload) for block in blocks]
    try:
        for one in tasks:
            _result(ray, one)
    except ray.exceptions.RayError:
        return  # what is still missing is computed here
    finally:
        for one in tasks:
            with contextlib.suppress(Exception):
                ray.cancel(one, force=True)


_HERE: dict[str, Any] = dict(spread=None, progress=None, _memo={})
"""What of a laboratory does not travel."""


# -- in a worker -----------------------------------------------------------------------------------------------------


def _claim(name: str, plan: Plan) -> Outcome:
    from sandtable.lab.run import run_claim

    _arrive(plan)
    (item,) = find([name], plan.files)
    return run_claim(item, plan)


def _block(plan: Plan, lab: Lab, what: str, payload: bytes) -> None:
    _arrive(plan)
    args, kwargs = importlib.import_module("ray").cloudpickle.loads(payload)  # written by `hand_out`, by nobody else
    getattr(lab, what)(*args, **kwargs)


def _arrive(plan: Plan) -> None:
    """The threads that the keys speak of, the claims of files by the names they have, and the same store."""
    torch.set_num_threads(plan.threads)
    from_files(plan.files)
    if not (Path(plan.store) / plan.cluster).exists():
        raise StoreError(
            f"the store {plan.store} is not the same folder on {platform.node()}: a cluster needs one that all its "
            "nodes share, see --store"
        )


# -- the cluster -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _cluster(on: str) -> Iterator[Any]:
    """Ray, connected; a local instance that was started here also ends here."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise missing("--on ray", "ray", "ray") from error
    if ray.is_initialized():  # by whoever called us, and theirs to end
        yield ray
        return
    _connect(ray, on)
    try:
        yield ray
    except ClusterLost:
        raise  # a farewell would wait for an answer
    except BaseException:
        ray.shutdown()
        raise
    ray.shutdown()


def _connect(ray: Any, on: str) -> None:
    """To the cluster named by `on` or by RAY_ADDRESS, else to a new local one."""
    address = os.environ.get("RAY_ADDRESS", "local") if on == "ray" else on
    local = address == "local"
    if ":" in address and not _listens(address.removeprefix("ray://")):
        raise ArgumentError(f"--on {on}: no cluster answers at {address}")
    for attempt in range(STARTS):
        try:
            ray.init(address=address, include_dashboard=False if local else None, log_to_driver=False,
                     logging_level="ERROR")  # fmt: skip
            return
        except Exception as error:  # a bare Exception where a busy machine starts too slowly for Ray's patience
            ray.shutdown()
            if not local or attempt + 1 == STARTS:
                what = "no local cluster could be started" if local else f"{address} does not let us in"
                raise ArgumentError(f"--on {on}: {what} ({_first_line(error)})") from error


def _listens(address: str) -> bool:
    """Whether anything takes calls at host:port; Ray itself would ask for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


@contextlib.contextmanager
def _meeting_point(store: Path) -> Iterator[str]:
    """The name of a file in the store by which workers see that theirs is the same folder."""
    token = f".cluster-{uuid.uuid4().hex}"
    Store(store).write_text(store / token, "")
    try:
        yield token
    finally:
        (store / token).unlink(missing_ok=True)


def _needs(plan: Plan) -> dict[str, Any]:
    return dict(num_cpus=plan.threads, num_gpus=int(plan.device.startswith("cuda")), max_retries=RETRIES)


def _slots(ray: Any, plan: Plan) -> int:
    """How many claims run side by side; a wish that no node can ever grant is a mistake in the call."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((node.get("CPU", 0) for node in nodes), default=0)
    if plan.threads > most:
        raise ArgumentError(f"--threads {plan.threads}: the largest node of the cluster has {most:g} CPUs")
    if plan.device.startswith("cuda") and not any(node.get("GPU", 0) for node in nodes):
        raise ArgumentError(f"--device {plan.device}: the cluster has no GPU")
    return sum(int(node.get("CPU", 0) // plan.threads) for node in nodes)


def on_cluster(on: str, device: str, jobs: int) -> str:
    """The device as a cluster can promise it: the machine that asks need not have it, and Ray numbers GPUs itself."""
    if on != "ray" and not on.startswith("ray://"):
        raise ArgumentError(f"--on {on}: must be ray, or ray://HOST:PORT of a cluster")
    if jobs != 1:
        raise ArgumentError(f"--jobs {jobs} with --on {on}: Ray decides how many run side by side; leave out --jobs")
    if device not in ("cpu", "cuda"):
        raise ArgumentError(f"--device {device} with --on: must be cpu or cuda, Ray chooses which")
    return device


def spreader(plan: Plan) -> Any:
    """What a laboratory in a worker hands its blocks of seeds to."""
    return partial(hand_out, plan)


def _result(ray: Any, task: Any) -> Any:
    """What a task returned; an error of its own code is raised as it was."""
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        error.cause.add_note(error.traceback_str)
        raise error.cause from None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
