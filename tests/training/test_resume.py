"""Killed, interrupted, resumed, saved, loaded: always the bits of the run that nobody disturbed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.models import Normal, Transformer
from sandtable.objectives import MaskedLM, OneForward
from sandtable.training import SGD, Adam, Cosine, Fit, Stages, fit
from sandtable.training.checkpoint import Checkpoint
from sandtable.training.interruption import Interruption
from sandtable.worlds import Batch, TopicModel

WORLD = TopicModel(3, 2, length=(5, 8), present=1)
MODEL = Transformer(WORLD.vocab, embedding="one-hot", residual=False, initial={"*": Normal(0.3)})
SETTINGS = dict(
    steps=23, batch_size=4, block=5, optimizer=Adam(0.05), ema=0.9, seeds=3, chunk=2, snapshots=(0, 7, 20),
    watch_every=4, schedule=Cosine(warmup=2), grid=dict(l2=[0.0, 0.1]),
)  # fmt: skip


def size(params):
    return params["blocks.0.attn.W_V"].flatten(1).norm(dim=1)


def train(objective=MaskedLM(form="types"), source=WORLD, **options):  # noqa: B008
    return fit(MODEL, source, objective, **{**SETTINGS, "watch": {"size": size}, **options})


def identical(a, b):
    for x, y in ((a.models, b.models), (a.averaged, b.averaged), *((a.snapshot(s), b.snapshot(s)) for s in (0, 7, 20))):
        assert all(torch.equal(x[n], y[n]) for n in x.params)
    assert torch.equal(a.losses, b.losses)
    assert a.watched_at == b.watched_at
    assert torch.equal(a.watched["size"], b.watched["size"])
    assert a.rows == b.rows
    for group, other in zip(a.groups, b.groups, strict=True):
        for (x, _), (y, _) in zip(group.parts, other.parts, strict=True):
            assert x.state.keys() == y.state.keys()
            assert all(torch.equal(x.state[k], y.state[k]) for k in x.state)


@pytest.fixture(scope="module")
def undisturbed():
    return train()


class Bomb:
    """Raises KeyboardInterrupt at its `at`-th call."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, *_):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt


# -- interrupted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 2, 4, 8, 9, 15])
def test_interrupted_while_watching(undisturbed, tmp_path, at):
    bomb = Bomb(at)

    def watch(params):
        bomb()
        return size(params)

    with pytest.raises(KeyboardInterrupt):
        train(checkpoint=tmp_path, watch={"size": watch})
    identical(train(checkpoint=tmp_path), undisturbed)


def test_interrupted_again_and_again(undisturbed, tmp_path):
    for _ in range(60):
        bomb = Bomb(5)

        def watch(params, bomb=bomb):
            bomb()
            return size(params)

        try:
            result = train(checkpoint=tmp_path, watch={"size": watch})
        except KeyboardInterrupt:
            continue
        break
    identical(result, undisturbed)


def test_interrupted_by_the_progress_report(undisturbed, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(checkpoint=tmp_path, progress=Bomb(2))
    identical(train(checkpoint=tmp_path), undisturbed)


class Fragile(Adam):
    """Adam that is interrupted in the middle of a step, when some parameters have moved and others have not."""

    bomb = staticmethod(lambda: None)

    def update(self, *args):
        type(self).bomb()
        super().update(*args)


@pytest.mark.parametrize("at", [1, 2, 35, 60, 91])
def test_interrupted_inside_a_step(undisturbed, tmp_path, at, monkeypatch):
    straight = train(optimizer=Fragile(0.05))
    monkeypatch.setattr(Fragile, "bomb", Bomb(at))
    with pytest.raises(KeyboardInterrupt):
        train(checkpoint=tmp_path, optimizer=Fragile(0.05))
    monkeypatch.undo()
    identical(train(checkpoint=tmp_path, optimizer=Fragile(0.05)), straight)
    identical(straight, undisturbed)


class Struck(MaskedLM):
    """Asks for an end in the middle of a step, twice if `again`."""

    count, at, again = 0, 0, False

    def loss(self, apply, params, example):
        type(self).count += 1
        if self.count == self.at:
            signal.raise_signal(signal.SIGINT)
            if self.again:
                signal.raise_signal(signal.SIGINT)
        return super().loss(apply, params, example)


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_waits_for_the_step_once(undisturbed, tmp_path, again, monkeypatch):
    for name, value in dict(count=0, at=9, again=again).items():
        monkeypatch.setattr(Struck, name, value)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(objective=Struck(form="types"), checkpoint=tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    saved = Checkpoint(tmp_path / "0" / "0.safetensors").load()
    assert (None if saved is None else int(saved["step"])) == (None if again else 9)
    identical(train(objective=Struck(form="types"), checkpoint=tmp_path), undisturbed)


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGINT)
        assert not interruption.asked
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_waits_where_it_is_asked_to():
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    interruption = Interruption()
    try:
        interruption.__enter__()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert interruption.asked
        with pytest.raises(KeyboardInterrupt):
            interruption.__exit__(None, None, None)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


KILLED = """
import itertools, os, signal, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[2])
from test_resume import Checkpoint, long_run, size

calls = itertools.count(1)
Checkpoint.due = lambda self: next(calls) % 37 == 0
steps = itertools.count()

def watch(params):
    if next(steps) == 250:
        os.kill(os.getpid(), signal.SIGKILL)
    return size(params)

long_run(checkpoint=sys.argv[1], watch={"size": watch})
"""


def long_run(**options):
    settings = dict(steps=400, watch_every=1, snapshots=(0, 7, 20), grid={}, block=16, chunk=4, seeds=3)
    return train(**{**settings, **options})


def test_killed_outright_and_resumed(tmp_path):
    """SIGKILL at step 250 of 400, some steps after the last checkpoint: no handler runs, nothing is flushed."""
    here = str(Path(__file__).parent)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), here], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = Checkpoint(tmp_path / "0" / "0.safetensors").load()
    assert left is not None
    assert int(left["step"]) == 222
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        identical(long_run(checkpoint=tmp_path), long_run())
    finally:
        torch.set_num_threads(threads)


# -- more steps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 5, 8, 10, 22, 23])
def test_more_steps_are_one_longer_run(first):
    options = dict(snapshots=(), schedule=Stepwise())
    straight = train(**options)
    resumed = train(steps=first, **options).resume(steps=23)
    assert all(torch.equal(resumed.models[n], straight.models[n]) for n in straight.models.params)
    assert all(torch.equal(resumed.averaged[n], straight.averaged[n]) for n in straight.models.params)
    assert torch.equal(resumed.losses, straight.losses)
    assert resumed.watched_at == straight.watched_at
    assert torch.equal(resumed.watched["size"], straight.watched["size"])


class Stepwise:
    """A schedule that knows nothing of the number of steps, so that a longer run begins like a shorter one."""

    def factor(self, step, steps):
        return 1.0 / (1 + step)


class Regression(OneForward):
    def loss(self, apply, params, example):
        x = example["inputs"]
        return (apply(params, x[:, :2])[:, 0] - x[:, 2]).square().mean(), {"seen": x.sum()}


@pytest.mark.parametrize("batch_size", [None, 4, 7])
def test_more_steps_on_fixed_data(batch_size):
    batch = Batch(torch.randn(10, 3, generator=torch.Generator().manual_seed(0)))
    options = dict(batch_size=batch_size, block=3, seeds=2, optimizer=SGD(0.05, momentum=0.9))
    straight = fit(nn.Linear(2, 1), batch, Regression(), steps=20, **options)
    resumed = fit(nn.Linear(2, 1), batch, Regression(), steps=8, **options).resume(steps=20)
    assert torch.equal(resumed.losses, straight.losses)
    assert torch.equal(resumed.history["seen"], straight.history["seen"])
    assert torch.equal(resumed.models["weight"], straight.models["weight"])


def test_more_steps_through_stages_and_expectations():
    stages = Stages(((6, ("*.W_[QK]",)), (5, ("*.W_V",))), repeat=True)
    world = TopicModel(3, 2, present=1)
    for source, size_ in ((world.infinite(), None), (WORLD, 4)):
        options = dict(frozen=stages, snapshots=(), schedule=Stepwise(), source=source, batch_size=size_)
        straight, resumed = train(**options), train(steps=9, **options).resume(steps=23)
        assert all(torch.equal(resumed.models[n], straight.models[n]) for n in straight.models.params)


def test_a_loaded_fit_goes_on(tmp_path):
    options = dict(snapshots=(), schedule=Stepwise())
    straight, short = train(**options), train(steps=9, **options)
    loaded = Fit.load(short.save(tmp_path / "short"), short.recipe)
    resumed = loaded.resume(steps=23, checkpoint=tmp_path / "more")
    assert torch.equal(resumed.losses, straight.losses)
    assert all(torch.equal(resumed.models[n], straight.models[n]) for n in straight.models.params)


def test_what_cannot_be_resumed(undisturbed):
    with pytest.raises(ArgumentError, match="steps=5"):
        undisturbed.resume(steps=5)
    with pytest.raises(ArgumentError, match="selection"):
        undisturbed.select([0]).resume(steps=30)


# -- disk ------------------------------------------------------------------------------------------------------------


def test_save_and_load(undisturbed, tmp_path):
    folder = undisturbed.save(tmp_path / "fit")
    identical(Fit.load(folder, undisturbed.recipe), undisturbed)
    assert not [p.name for p in folder.iterdir() if p.name.startswith(".")]
    part = undisturbed.where(l2=0.1).select([2, 0])
    loaded = Fit.load(part.save(tmp_path / "part"), undisturbed.recipe)
    assert loaded.rows == part.rows == [{"seed": 0, "l2": 0.1}, {"seed": 2, "l2": 0.1}]
    assert torch.equal(loaded.models["blocks.0.attn.W_V"], part.models["blocks.0.attn.W_V"])
    assert torch.equal(loaded.watched["size"], part.watched["size"])
    assert torch.equal(loaded.snapshot(7)["blocks.0.attn.W_K"], part.snapshot(7)["blocks.0.attn.W_K"])
    with pytest.raises(ArgumentError, match="no saved fit"):
        Fit.load(tmp_path / "nothing", undisturbed.recipe)


def test_grid_values_of_any_kind_come_back(tmp_path):
    grid = {"source.length": [(3, 4), 5], "model.initial": [{"*": Normal(0.1)}, {"*": Normal(0.2)}]}
    result = train(grid=grid, steps=2, snapshots=(), seeds=1)
    loaded = Fit.load(result.save(tmp_path), result.recipe)
    assert loaded.rows == result.rows
    chosen = loaded.where(source__length=(3, 4), model__initial={"*": Normal(0.2)})
    assert torch.equal(chosen.models["blocks.0.attn.W_V"], result.groups[1].parts[0][0].params["blocks.0.attn.W_V"][:1])


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", "half"])
def test_a_damaged_checkpoint_is_set_aside(undisturbed, tmp_path, damage):
    train(checkpoint=tmp_path)
    file = tmp_path / "0" / "1.safetensors"
    file.write_bytes(file.read_bytes()[:900] if damage == "half" else damage)
    with pytest.warns(UserWarning, match=r"1\.safetensors is damaged"):
        identical(train(checkpoint=tmp_path), undisturbed)
    assert (tmp_path / "0" / "1.damaged").exists()
    identical(train(checkpoint=tmp_path), undisturbed)  # whole again, without a warning


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(optimizer=Adam(0.01)), "another"),
        (dict(ema=0.5), "another numbers"),
        (dict(seeds=[0, 1, 9]), "another seeds"),
        (dict(dtype="float64"), "another dtype"),
        (dict(objective=MaskedLM(0.3, form="types")), "another objective"),
        (dict(source=TopicModel(3, 2, length=9, present=1)), "another source"),
        (dict(steps=20), "already at step 23"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, said):
    train(checkpoint=tmp_path)
    with pytest.raises(ArgumentError, match=said) as caught:
        train(checkpoint=tmp_path, **change)
    assert "\n" not in str(caught.value)
