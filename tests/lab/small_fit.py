"""A claim on a small fit, and a process that runs it in children: killed, side by side, without room on the disk.

Called as `python small_fit.py FOLDER KILLS SEED [LARGEST_FILE …]`: children are killed at random moments until so many
died and the last run is finished; then, if sizes of files are given, two children share one store, and others may not
write larger files than that. Every store must end as the undisturbed one; what was done is printed.
"""

import itertools
import os
import random
import shlex
import shutil
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from sandtable.lab import Claim, Control, Evidence, Lab, Source, below, verify
from sandtable.models import Normal, Transformer
from sandtable.objectives import MaskedLM
from sandtable.training import Adam, Recipe
from sandtable.training.checkpoint import Checkpoint
from sandtable.worlds import TopicModel

WORLD = TopicModel(3, 2, length=(5, 8), present=1)
MODEL = Transformer(WORLD.vocab, embedding="one-hot", residual=False, initial={"*": Normal(0.3)})
SEEDS = 6


@dataclass(frozen=True)
class Settings:
    steps: int = 48
    shift: float = 0.0


def last_losses(lab: Lab, steps: int) -> dict[str, np.ndarray]:
    """The loss before the last step of every seed's model."""
    recipe = Recipe(
        MODEL, WORLD, MaskedLM(form="types"), steps, batch_size=4, optimizer=Adam(0.02), chunk=3, block=8, ema=0.9,
        snapshots=(0, steps // 2),
    )  # fmt: skip
    return {"loss": lab.fit(recipe).losses[:, -1].double().numpy()}


def measure(settings: Settings, lab: Lab) -> Evidence:
    found = lab.measure(last_losses, settings.steps)["loss"]
    return Evidence([below("the loss", found + settings.shift, 1e6)])


CLAIM = Claim(
    "small/fit", "The loss is a number.", Source("Nobody", 2024, "nowhere"), {"desk": Settings()}, measure,
    controls=(Control("far off", {"shift": 1e9}, ("the loss",)),), seeds=SEEDS,
)  # fmt: skip


def run(root, steps=Settings.steps):
    """The claim with so many steps declared, one thread, checkpoints at every few looks at the clock."""
    calls = itertools.count(1)
    Checkpoint.due = lambda self: next(calls) % 3 == 0
    return verify([replace(CLAIM, scales={"desk": Settings(steps)})], store=root, threads=1)


def contents(root):
    """All that a store says, by path: what records tell besides time and place, and every other file byte by byte."""
    from sandtable.lab import Store

    store, found = Store(root), {}
    for path in sorted(file for file in Path(root).rglob("*") if file.is_file()):
        name = str(path.relative_to(root))
        if path.suffix == ".lock" or ".tmp-" in name or ".damaged" in name:  # a killed process may leave these behind
            continue
        record = store.read_json(path) if name.startswith("verdicts") and path.suffix == ".json" else None
        if record is not None:
            found[name] = {key: value for key, value in record.items() if key not in ("date", "seconds")}
            found[name]["command"] = record["command"].replace(shlex.join(store.words()), "")
        else:
            found[name] = path.read_bytes()
    return found


def child(root, limit=None):
    """A process that runs the claim; `limit` is the largest file it may write."""
    pid = os.fork()
    if pid:
        return pid
    if limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        (outcome,) = run(root)
        os._exit(0 if outcome.ok else 3)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(2)


def hunted(root, kills, seed):
    """Runs of the claim, each begun anew and killed at random until `kills` children died."""
    chance, died, finished = random.Random(seed), 0, 0
    run(root / "undisturbed")
    expected, began = contents(root / "undisturbed"), time.monotonic()
    assert os.waitpid(child(root / "timed"), 0)[1] == 0
    whole = time.monotonic() - began
    while died < kills:
        place = root / f"run-{finished}"
        while True:
            pid = child(place)
            time.sleep(chance.uniform(0.05, 0.7) * whole)
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if not os.WIFSIGNALED(status):
                assert os.WEXITSTATUS(status) == 0
                break
            died += 1
        assert contents(place) == expected, place
        finished += 1
        shutil.rmtree(place)
    print(f"{died} killed, {finished} runs finished as undisturbed", flush=True)
    return expected


def shared(root, expected):
    """Two processes at once."""
    pids = [child(root / "shared") for _ in range(2)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    assert contents(root / "shared") == expected
    print("shared by two, as undisturbed", flush=True)


def full(root, limits, expected):
    """No room, then a little, then enough."""
    for limit in limits:
        _, status = os.waitpid(child(root / "small", limit), 0)
        assert os.WEXITSTATUS(status) == 2, (limit, status)
    assert os.waitpid(child(root / "small"), 0)[1] == 0
    assert contents(root / "small") == expected
    print("room at last, as undisturbed", flush=True)


def main(root, kills, seed, *limits):
    torch.set_num_threads(1)
    expected = hunted(Path(root), int(kills), int(seed))
    if limits:
        shared(Path(root), expected)
        full(Path(root), map(int, limits), expected)


if __name__ == "__main__":
    main(*sys.argv[1:])
