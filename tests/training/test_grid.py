"""Grids that change shapes, choosing and joining models, tables, and what `fit` refuses."""

import pytest
import torch
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.models import Normal, Transformer
from sandtable.objectives import MaskedLM
from sandtable.training import SGD, Fit, Recipe, Stages, fit
from sandtable.worlds import Batch, Expectation, TopicModel

WORLD = TopicModel(3, 2, length=6, present=1)
MODEL = Transformer(9, width=4, initial={"*": Normal(0.3)})
V = "blocks.0.attn.W_V"


def train(**options):
    settings = dict(model=MODEL, source=WORLD, objective=MaskedLM(), steps=4, batch_size=3, block=3, chunk=2, seeds=2)
    settings |= options
    return fit(settings.pop("model"), settings.pop("source"), settings.pop("objective"), **settings)


def test_shapes_make_groups_of_their_own():
    grid = {"model.heads": [1, 2], "objective.error": ["squared", "cross-entropy"], "lr": [0.1, 0.2]}
    result = train(grid=grid, optimizer=SGD())
    assert [len(group.rows) for group in result.groups] == [4, 4, 4, 4]
    assert len(result) == 16
    with pytest.raises(ArgumentError, match="4 different shapes"):
        _ = result.models
    for i, row in enumerate(result.rows):
        alone = train(
            model=MODEL.replace(heads=row["model.heads"]), objective=MaskedLM(error=row["objective.error"]),
            optimizer=SGD(row["lr"]), seeds=[row["seed"]],
        )  # fmt: skip
        assert torch.equal(alone[0].get_parameter(V), result[i].get_parameter(V))
        assert torch.equal(alone.losses[0], result.losses[i])
    assert torch.equal(result[-1].get_parameter(V), result[15].get_parameter(V))
    assert torch.equal(result[-16].get_parameter(V), result[0].get_parameter(V))


@pytest.mark.parametrize(
    ("grid", "change"),
    [
        ({"source.words": [1, 2]}, lambda v: dict(source=TopicModel(3, v, length=6, present=1))),
        ({"source.length": [4, (3, 5)]}, lambda v: dict(source=TopicModel(3, 2, length=v, present=1))),
        ({"batch_size": [2, 5]}, lambda v: dict(batch_size=v)),
        ({"model.width": [4, 6]}, lambda v: dict(model=MODEL.replace(width=v))),
        ({"objective.select": [0.3, 0.6]}, lambda v: dict(objective=MaskedLM(v))),
    ],
)
def test_a_grid_is_its_points(grid, change):
    result = train(grid=grid)
    ((key, values),) = grid.items()
    assert len(result.groups) == 2
    for value in values:
        alone = train(**change(value))
        chosen = result.where(**{key.replace(".", "__"): value})
        assert torch.equal(alone.models[V], chosen.models[V])
        assert torch.equal(alone.losses, chosen.losses)


def test_choosing_and_joining():
    grid = dict(lr=[0.1, 0.2], l2=[0.0, 1.0])
    whole = train(grid=grid, seeds=3, snapshots=(2,), watch={"v": lambda p: p[V].flatten(1).sum(1)}, ema=0.5)
    some = whole.where(lr=0.2, l2=1.0)
    assert some.rows == [dict(seed=s, lr=0.2, l2=1.0) for s in range(3)]
    index = [i for i, row in enumerate(whole.rows) if row["lr"] == 0.2 and row["l2"] == 1.0]
    assert torch.equal(some.models[V], whole.models[V][index])
    assert torch.equal(some.averaged[V], whole.averaged[V][index])
    assert torch.equal(some.snapshot(2)[V], whole.snapshot(2)[V][index])
    assert torch.equal(some.losses, whole.losses[index])
    assert torch.equal(some.watched["v"], whole.watched["v"][index])
    joined = Fit.join([whole.select([2]), whole.select([0, 1])])
    assert joined.rows == whole.rows
    assert torch.equal(joined.models[V], whole.models[V])
    assert torch.equal(joined.losses, whole.losses)
    for wrong, said in ((dict(rate=1), "'rate' is not one of seed, lr, l2"), (dict(lr=5.0), "no model")):
        with pytest.raises(ArgumentError, match=said):
            whole.where(**wrong)
    with pytest.raises(ArgumentError, match="no model"):
        whole.select([7])
    for index in (12, -13):
        with pytest.raises(ArgumentError, match=f"model {index}: this fit holds 12"):
            whole[index]


def test_averages_can_be_watched():
    def look(p):
        return p[V].flatten(1).sum(1)

    grid = dict(ema=[0.5, 0.9])
    result = train(grid=grid, seeds=2, steps=6, watch={"raw": look}, watch_averaged={"mean": look}, watch_every=1)
    raw, mean = result.watched["raw"], result.watched["mean"]
    decay = torch.tensor([row["ema"] for row in result.rows])
    expected = [raw[:, 0]]
    for now in raw[:, 1:].unbind(1):
        expected.append(decay * expected[-1] + (1 - decay) * now)
    torch.testing.assert_close(mean, torch.stack(expected, 1))
    with pytest.raises(ArgumentError, match="watch_averaged: needs averages"):
        train(watch_averaged={"mean": look})
    with pytest.raises(ArgumentError, match="watch has this name too"):
        train(ema=0.9, watch={"v": look}, watch_averaged={"v": look})


def test_join_of_shapes():
    grid = {"model.heads": [1, 2]}
    parts = [train(grid=grid, seeds=[s]) for s in (1, 0)]
    joined = Fit.join(parts)
    assert [(r["model.heads"], r["seed"]) for r in joined.rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert torch.equal(joined[2].get_parameter(V), parts[1][1].get_parameter(V))


def test_a_table():
    pytest.importorskip("pandas")
    result = train(grid={"lr": [0.1, 0.2], "model.heads": [1, 2]}, watch={"v": lambda p: p[V].flatten(1).sum(1)})
    frame = result.to_frame()
    assert list(frame.columns) == ["seed", "lr", "model.heads", "loss", "v"]
    assert len(frame) == 8
    assert frame["loss"].tolist() == result.losses[:, -1].tolist()
    assert frame["v"].tolist() == result.watched["v"][:, -1].tolist()
    assert frame["model.heads"].tolist() == [row["model.heads"] for row in result.rows]


def test_no_steps_give_the_initial_models():
    result = train(steps=0, snapshots=(0,))
    assert torch.equal(result.models[V], result.snapshot(0)[V])
    assert len(result.to_frame()) == 2


def test_modules_without_an_initialiser_are_reset_from_the_stream():
    class Score:
        noisy = False

        def draw(self, batch, generator, step):
            return {"x": batch.x}

        def loss(self, apply, params, example):
            return apply(params, example["x"]).square().mean(), {}

    torch.manual_seed(0)
    first = fit(nn.Linear(3, 2), Batch(torch.ones(2, 3)), Score(), steps=0, seeds=3)
    torch.manual_seed(1)
    second = fit(nn.Linear(3, 2), Batch(torch.ones(2, 3)), Score(), steps=0, seeds=3)
    assert torch.equal(first.models["weight"], second.models["weight"])
    assert not torch.equal(first.models["weight"][0], first.models["weight"][1])


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(steps=-1), "steps=-1"),
        (dict(steps=2.5), "steps=2.5"),
        (dict(batch_size=0), "batch_size=0"),
        (dict(batch_size=None), "batch_size=None"),
        (dict(seeds=0), "seeds=0"),
        (dict(seeds=-2), "seeds=-2"),
        (dict(seeds=[]), r"seeds=\[\]"),
        (dict(seeds=[0, -1]), "seed=-1"),
        (dict(seeds=2.5), "seeds=2.5"),
        (dict(chunk=0), "chunk=0"),
        (dict(block=0), "block=0"),
        (dict(watch_every=0), "watch_every=0"),
        (dict(step=5), "step: not an option of fit; did you mean 'steps'"),
        (dict(optimiser=SGD()), "did you mean 'optimizer'"),
        (dict(init_scale=-1.0), "init_scale=-1"),
        (dict(l2=-0.1), "l2=-0.1"),
        (dict(clip=0.0), "clip=0"),
        (dict(ema=1.5), "ema=1.5"),
        (dict(tol=0.0), "tol=0"),
        (dict(dtype="float16"), "dtype='float16'"),
        (dict(device="tpu"), "device='tpu'"),
        (dict(device="cda"), "did you mean 'cuda'"),
        (dict(streams={"dat": 1}), "did you mean 'data'"),
        (dict(streams={"data": "x"}), r"streams\['data'\]='x'"),
        (dict(source=3), "source=3"),
        (dict(snapshots=(9,)), "snapshots=9"),
        (dict(frozen="blocks.0.attn.W_v"), "did you mean 'blocks.0.attn.W_V'"),
        (dict(frozen=Stages(((2, ()), (1, ("*.W_X",))))), "W_X"),
        (dict(frozen="*"), "nothing to train"),
        (dict(frozen=Stages(((2, ()), (1, ("*",))))), "nothing to train"),
        (dict(l2_on=("*.W_X",)), "W_X"),
        (dict(grid={"rl": [1]}), "did you mean 'lr'"),
        (dict(grid={"steps": [1, 2]}), "grid key 'steps'"),
        (dict(grid={"model.head": [1]}), "did you mean 'heads'"),
        (dict(grid={"source.word": [1]}), "did you mean 'words'"),
        (dict(grid={"objective.eror": ["squared"]}), "did you mean 'error'"),
        (dict(grid={"lr": []}), "non-empty"),
        (dict(grid={"lr": 0.1}), "non-empty"),
        (dict(grid={"lr": [0.1, -1]}), "lr=-1"),
        (dict(grid={"lr": ["fast"]}), "lr='fast'"),
        (dict(grid={"l2": [-1]}), "l2=-1"),
        (dict(grid={"clip": [0]}), "clip=0"),
        (dict(grid={"batch_size": [0]}), "batch_size=0"),
        (dict(grid={"source.words": [2, 0]}), "words=0"),
        (dict(grid={"model.heads": [1, 3]}), "heads=3"),
        (dict(grid={"objective.select": [0.1, 7]}), "select=7"),
    ],
)
def test_bad_calls(options, said):
    with pytest.raises(ArgumentError, match=said) as caught:
        train(**options)
    assert "\n" not in str(caught.value)


def test_bad_grid_values_show_before_anything_is_trained():
    calls = []
    with pytest.raises(ArgumentError, match="heads=3"):
        train(grid={"model.heads": [1, 3]}, progress=lambda *call: calls.append(call))
    assert not calls


def test_no_clipping_is_a_point_of_the_grid():
    result = train(grid={"clip": [None, 1e-3]}, seeds=1, optimizer=SGD(0.5))
    assert torch.equal(result.where(clip=None).models[V], train(seeds=1, optimizer=SGD(0.5)).models[V])
    assert not torch.equal(result.models[V][0], result.models[V][1])


def test_cuda_is_refused_where_there_is_none():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ArgumentError, match="no CUDA device"):
        train(device="cuda")


def test_an_objective_without_expectations():
    class Plain:
        def draw(self, batch, generator, step):
            return {"x": batch.x}

        def loss(self, apply, params, example):
            return apply(params, example["x"]).mean(), {}

    with pytest.raises(ArgumentError, match="Plain: does not say"):
        fit(nn.Linear(3, 2), Expectation(Batch(torch.eye(3)), torch.ones(3) / 3), Plain(), steps=1)


def test_no_averages_were_kept():
    with pytest.raises(ArgumentError, match="ema=0"):
        _ = train().averaged


def test_a_recipe_trains_any_seeds():
    recipe = Recipe(MODEL, WORLD, MaskedLM(), 4, batch_size=3, block=3, chunk=2)
    assert torch.equal(recipe.train([1]).models[V], train(seeds=[1]).models[V])
    assert "model" in recipe.describe()
