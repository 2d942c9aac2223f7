"""One module at a time gives what the stack gives; killed, interrupted or spread over processes, too."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.models import Normal, Transformer
from sandtable.objectives import MaskedLM, OneForward
from sandtable.training import SGD, Adam, Cosine, Fit, NormalisedGD, SingleRecipe, Stages, fit, fit_single
from sandtable.training.checkpoint import Checkpoint
from sandtable.training.single import share
from sandtable.worlds import Batch, Expectation, TopicModel

WORLD = TopicModel(3, 2, length=(5, 8), present=1)
# Without biases: nothing depends on a key's, so that Adam would blow up the rounding errors of its gradient.
MODEL = Transformer(
    WORLD.vocab, layers=2, heads=2, width=6, mlp=8, norm="post", positions="learned", longest=8,
    initial={"*": Normal(0.3)},
)  # fmt: skip
SETTINGS = dict(steps=13, batch_size=4, block=5, dtype="float64")


def size(params):
    return params["blocks.0.attn.W_V"].flatten(1).norm(dim=1)


def values(params):
    return params["blocks.1.attn.W_V"].clone()


def single(model=MODEL, source=WORLD, objective=None, **options):
    return fit_single(model, source, objective or MaskedLM(), **{**SETTINGS, **options})


def close(a, b, tolerance=1e-9):
    assert a.rows == b.rows
    torch.testing.assert_close(a.losses, b.losses, rtol=0, atol=tolerance)
    for i in range(len(b)):
        ours, theirs = (dict(fitted[i].named_parameters()) for fitted in (a, b))
        assert ours.keys() == theirs.keys()
        for name in theirs:
            torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=tolerance)


def identical(a, b):
    close(a, b, 0.0)
    for name in b.watched:
        assert torch.equal(a.watched[name], b.watched[name])


# -- against the stack -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        dict(optimizer=SGD(0.3, momentum=0.9)),
        dict(optimizer=Adam(0.02, weight_decay=0.1), schedule=Cosine(warmup=3), clip=0.5),
        dict(optimizer=NormalisedGD(0.05), frozen=("embed.*", "*.W_O")),
        dict(l2=0.05, l2_on=("*.W_V",), ema=0.9, frozen=Stages(((4, ("*.W_[QK]",)), (3, ("*.W_V",))), repeat=True)),
        dict(grid={"lr": [0.01, 0.1], "init_scale": [1.0, 0.3], "batch_size": [4, 2]}, seeds=[5]),
        dict(tol=0.08, optimizer=SGD(0.5), streams={"data": 3}),
    ],
)
def test_the_same_as_in_a_stack(options):
    options = dict(seeds=2, snapshots=(0, 6), watch={"size": size, "values": values}, watch_every=4) | options
    one, many = single(**options), fit(MODEL, WORLD, MaskedLM(), **SETTINGS, **options)
    close(one, many)
    assert torch.equal(one.stopped, many.stopped)
    assert one.watched_at == many.watched_at == [0, 4, 8, 12, 13]
    for name in ("size", "values"):
        torch.testing.assert_close(one.watched[name], many.watched[name], rtol=0, atol=1e-9)
    if len(one.groups) == 1:
        for step in (0, 6):
            for name in many.models.params:
                torch.testing.assert_close(one.snapshot(step)[name], many.snapshot(step)[name], rtol=0, atol=1e-9)
    if "ema" in options:
        torch.testing.assert_close(one.averaged["embed.W_E"], many.averaged["embed.W_E"], rtol=0, atol=1e-9)


def test_float32_agrees_to_float_tolerance():
    options = dict(dtype="float32", steps=20, optimizer=Adam(0.01), seeds=2)
    close(single(**options), fit(MODEL, WORLD, MaskedLM(), **SETTINGS | options), 1e-4)


def test_expectations_and_fixed_data():
    world = TopicModel(3, 2, present=1)
    model = Transformer(world.vocab, embedding="one-hot", residual=False, initial={"*": Normal(0.3)})
    for form in ("types", "documents"):
        if form == "documents":
            model = model.replace(attention="uniform")
        arguments = model, world.infinite(), MaskedLM(form=form)
        close(fit_single(*arguments, steps=8, seeds=2), fit(*arguments, steps=8, seeds=2), 1e-5)
    batch = WORLD.sample(10, torch.Generator().manual_seed(0))
    for batch_size in (None, 3):
        options = SETTINGS | dict(batch_size=batch_size)
        close(single(source=batch, **options), fit(MODEL, batch, MaskedLM(), **options))


def test_a_watch_may_return_a_tensor_per_model(tmp_path):
    """In stacks, too: chunks are padded, joined, chosen from, saved and loaded."""
    options = dict(seeds=3, chunk=2, watch={"values": values}, watch_every=4, snapshots=(0, 4, 8, 12, 13))
    result = fit(MODEL, WORLD, MaskedLM(), **SETTINGS, **options)
    record = result.watched["values"]
    assert record.shape == (3, 5, 2, 6, 3)
    for i, step in enumerate(result.watched_at):
        assert torch.equal(record[:, i], result.snapshot(step)["blocks.1.attn.W_V"])
    loaded = Fit.load(result.select([2, 0]).save(tmp_path), result.recipe)
    assert torch.equal(loaded.watched["values"], record[[0, 2]])


# -- ordinary modules ------------------------------------------------------------------------------------------------


class Noisy(nn.Module):
    """A module with dropout, a tied weight and a buffer, and no way to be initialised but PyTorch's."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.drop = nn.Dropout(0.5)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        return self.second(self.drop(torch.tanh(self.first(x + self.shift))))


class Regression(OneForward):
    noisy = False

    def score(self, outputs, example):
        return (outputs - example["inputs"].roll(1, -1)).square().mean()


def data(n=12):
    return Batch(torch.randn(n, 3, generator=torch.Generator().manual_seed(1)))


def test_dropout_comes_from_the_noise_stream():
    options = dict(steps=30, optimizer=Adam(0.05), seeds=2, batch_size=4)
    first = fit_single(Noisy(), data(), Regression(), **options)
    model = Noisy()
    torch.manual_seed(8)
    before = torch.get_rng_state()
    identical(fit_single(model, data(), Regression(), **options), first)
    assert torch.equal(torch.get_rng_state(), before)
    other = fit_single(Noisy(), data(), Regression(), streams={"noise": 99}, **options)
    assert not bool((other.losses == first.losses).any())


def test_any_module_is_saved_loaded_and_resumed(tmp_path):
    options = dict(optimizer=Adam(0.05), seeds=2, batch_size=4, watch={"w": lambda p: p["first.weight"].sum((1, 2))})
    straight = fit_single(Noisy(), data(), Regression(), steps=20, **options)
    short = fit_single(Noisy(), data(), Regression(), steps=9, **options)
    loaded = Fit.load(short.save(tmp_path), short.recipe)
    assert isinstance(loaded.recipe, SingleRecipe)
    identical(loaded.resume(steps=20), straight)
    net = straight[1]
    assert isinstance(net, Noisy)
    assert net.second.weight is net.first.weight
    assert torch.equal(net.first.weight, straight.models["first.weight"][1])
    assert "second.weight" not in straight.models.params


class Perturbed(OneForward):
    """Calls the model with parameters other than its own: a loss may do so."""

    def loss(self, apply, params, example):
        doubled = {name: 2 * value for name, value in params.items()}
        x = example["inputs"]
        return (apply(params, x) - apply(doubled, x)).square().mean(), {"largest": x.max()}


def test_a_loss_may_change_the_parameters():
    one, many = (
        f(nn.Linear(3, 2), data(), Perturbed(), steps=6, seeds=2, dtype="float64", optimizer=SGD(0.1))
        for f in (fit_single, fit)
    )
    close(one, many)
    assert torch.equal(one.history["largest"], many.history["largest"])


def test_bfloat16_keeps_float32_parameters():
    options = dict(dtype="float32", steps=30, optimizer=Adam(0.01))
    low, full = single(precision="bfloat16", **options), single(**options)
    assert low.models["embed.W_E"].dtype == low.losses.dtype == torch.float32
    assert not torch.equal(low.losses, full.losses)
    torch.testing.assert_close(low.losses, full.losses, rtol=0.05, atol=0)


# -- interrupted, killed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["in the loss", "in the update", "while watching"])
def test_ctrl_c_loses_nothing(tmp_path, where, monkeypatch):
    """The signal arrives in the middle of step 7: the step is finished, saved, and the run goes on from step 8."""
    straight = single(watch={"size": size})
    calls = {"in the loss": 0, "in the update": 0, "while watching": 0}
    names = [name for name, _ in MODEL.named_parameters()]

    def strike(place, at):
        calls[place] += 1
        if place == where and calls[place] == at:
            os.kill(os.getpid(), signal.SIGINT)

    class Struck(MaskedLM):
        def loss(self, *args):
            strike("in the loss", 8)
            return super().loss(*args)

    class StruckAdam(Adam):
        def update(self, *args):
            strike("in the update", 7 * len(names) + 3)
            super().update(*args)

    def watch(params):
        strike("while watching", 8)
        return size(params)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        single(objective=Struck(), optimizer=StruckAdam(), watch={"size": watch}, checkpoint=tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    saved = Checkpoint(tmp_path / "0" / "0.safetensors").load()
    assert saved is not None
    assert int(saved["step"]) == 8
    again = single(objective=Struck(), optimizer=StruckAdam(), watch={"size": size}, checkpoint=tmp_path)
    identical(again, straight)


def test_ctrl_c_after_the_last_step_is_not_swallowed(tmp_path):
    def watch(params):
        nonlocal calls
        calls += 1
        if calls == 14:
            os.kill(os.getpid(), signal.SIGINT)
        return size(params)

    calls = 0
    with pytest.raises(KeyboardInterrupt):
        single(watch={"size": watch}, checkpoint=tmp_path)
    saved = Checkpoint(tmp_path / "0" / "0.safetensors").load()
    assert saved is not None
    assert int(saved["step"]) == 13


def test_in_another_thread():
    """Signals belong to the main thread; training elsewhere does without."""
    out = []
    thread = threading.Thread(target=lambda: out.append(single()))
    thread.start()
    thread.join()
    identical(out[0], single())


KILLED = """
import itertools, os, signal, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[2])
from test_single import Checkpoint, long_run, size

calls, steps = itertools.count(1), itertools.count()
Checkpoint.due = lambda self: next(calls) % 37 == 0

def watch(params):
    if next(steps) == 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return size(params)

long_run(checkpoint=sys.argv[1], watch={"size": watch})
"""


def long_run(**options):
    return single(**dict(steps=80, ema=0.9, optimizer=Adam(0.05)) | options)


def test_killed_outright_and_resumed(tmp_path):
    here = str(Path(__file__).parent)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), here], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = Checkpoint(tmp_path / "0" / "0.safetensors").load()
    assert left is not None
    assert int(left["step"]) == 37
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        resumed, straight = long_run(checkpoint=tmp_path), long_run()
    finally:
        torch.set_num_threads(threads)
    identical(resumed, straight)
    assert torch.equal(resumed.averaged["embed.W_E"], straight.averaged["embed.W_E"])


# -- several processes -----------------------------------------------------------------------------------------------

TOGETHER = """
import os, signal, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[2])
from test_single import Batch, Regression, data, size, single
from sandtable.arguments import ArgumentError
from sandtable.objectives import MaskedLM
from sandtable.training import fit_single
from torch import nn

folder = sys.argv[1]
rank = int(os.environ["RANK"])
result = single(accelerator=True, l2=0.01, clip=0.5, watch={"size": size}, checkpoint=f"{folder}/together")
assert all((p := result.models[n]).isfinite().all() for n in result.models.params)
mean = fit_single(nn.Linear(3, 3), data(), Regression(), steps=9, batch_size=4, accelerator=True)
for options in (dict(batch_size=3), dict(objective=MaskedLM(form="types"))):
    try:
        single(accelerator=True, **options)
    except ArgumentError as error:
        assert "cannot be spread over 2 processes" in str(error), error
    else:
        raise AssertionError(options)

calls = 0
def watch(params):
    global calls
    calls += 1
    if rank == 1 and calls == 6:
        os.kill(os.getpid(), signal.SIGINT)
    return size(params)

try:  # the signal reaches one process only; both stop at the same step, and the main process saves
    single(accelerator=True, watch={"size": watch}, checkpoint=f"{folder}/stopped")
except KeyboardInterrupt:
    resumed = single(accelerator=True, watch={"size": size}, checkpoint=f"{folder}/stopped")
    result.save(f"{folder}/result-{rank}"), mean.save(f"{folder}/mean-{rank}"), resumed.save(f"{folder}/resumed-{rank}")
else:
    raise AssertionError("not interrupted")
"""


def test_two_processes_are_one(tmp_path):
    """Rows are shared out, gradients averaged: the same run to rounding, whichever process is asked."""
    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    here = str(Path(__file__).parent)
    address = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE="2", ACCELERATE_USE_CPU="true")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), here],
            env={**os.environ, **address, "RANK": str(r), "LOCAL_RANK": str(r), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    try:
        errors = [process.communicate(timeout=100)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    runs = {
        "result": single(l2=0.01, clip=0.5, watch={"size": size}),
        "mean": fit_single(nn.Linear(3, 3), data(), Regression(), steps=9, batch_size=4),
        "resumed": single(watch={"size": size}),
    }
    for name, alone in runs.items():
        first, second = (Fit.load(tmp_path / f"{name}-{rank}", alone.recipe) for rank in range(2))
        identical(first, second)
        close(first, alone, 1e-5 if name == "mean" else 1e-9)
    at = int(Checkpoint(tmp_path / "stopped" / "0" / "0.safetensors").load()["step"])
    assert at == 13


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_shares_make_up_the_whole():
    objective, batch = MaskedLM(), WORLD.sample(6, torch.Generator().manual_seed(0))
    example = objective.draw(batch, torch.Generator().manual_seed(1), 0)
    net = MODEL.initialise(torch.Generator().manual_seed(2))
    losses = [objective.loss(lambda _, x: net(x), {}, share(objective, example, r, 3))[0] for r in range(3)]
    whole, _ = objective.loss(lambda _, x: net(x), {}, example)
    torch.testing.assert_close(torch.stack(losses).mean(), whole)

    class Own(MaskedLM):
        def share(self, example, rank, world):
            return {"rank": rank, "world": world}

    assert share(Own(), example, 1, 3) == {"rank": 1, "world": 3}


def test_an_expectation_is_shared_with_its_weights():
    points = Expectation(data(4), torch.tensor([0.1, 0.2, 0.3, 0.4]))
    example = OneForward().expect(points)
    parts = [share(OneForward(), example, r, 2) for r in range(2)]
    torch.testing.assert_close(sum((p["weights"][:, None] * p["inputs"]).sum(0) for p in parts) / 2,
                               (points.weights[:, None] * points.batch.x).sum(0))  # fmt: skip


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(precision="float16"), "precision='float16': must be one of float32, bfloat16"),
        (dict(precision="bfloat16"), "dtype='float64'"),
        (dict(chunk=4), "chunk=4"),
        (dict(optimiser=Adam()), "did you mean 'optimizer'"),
        (dict(model=nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))), "BatchNorm1d: keeps running statistics"),
        (dict(device="tpu"), "device='tpu'"),
        (dict(frozen="*.W_X"), "no parameter of that name"),
    ],
)
def test_bad_input(options, said):
    with pytest.raises(ArgumentError, match="(?s)" + said.replace("(", r"\(")) as caught:
        single(**options)
    assert "\n" not in str(caught.value)


def test_accelerate_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ArgumentError, match=r"uv sync --extra text"):
        single(accelerator=True)


def test_a_checkpoint_in_another_precision_is_refused(tmp_path):
    single(dtype="float32", checkpoint=tmp_path)
    with pytest.raises(ArgumentError, match="another precision"):
        single(dtype="float32", precision="bfloat16", checkpoint=tmp_path)


def test_the_accelerator_is_no_part_of_the_key():
    recipe = SingleRecipe(MODEL, WORLD, MaskedLM(), 3, batch_size=4, accelerator=True)
    assert "accelerator" not in recipe.describe()
    assert recipe.describe()["precision"] == "float32"
