"""What a fit recorded, read back by TensorBoard itself."""

import sys

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.models import Transformer
from sandtable.objectives import MaskedLM
from sandtable.training import fit
from sandtable.worlds import TopicModel

WORLD = TopicModel(3, 2, length=(5, 8), present=1)
MODEL = Transformer(WORLD.vocab, embedding="one-hot", residual=False)


def size(params):
    return params["blocks.0.attn.W_V"].flatten(1).norm(dim=1)


def rows(params):
    return params["blocks.0.attn.W_V"][:, 0, :2, :2].clone()


def train(**options):
    watch = {"size": size, "corner": rows}
    return fit(
        MODEL, WORLD, MaskedLM(form="types"), steps=6, batch_size=4, seeds=2, watch=watch, watch_every=3, **options
    )


def test_curves_come_back(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no TensorBoard")
    done = train(grid=dict(lr=[0.1, 0.01]))
    folders = done.to_tensorboard(tmp_path / "runs")
    assert len(folders) == len(done.rows) == len(set(folders)) == 4
    assert {folder.name for folder in folders} == {f"seed-{s}-lr-{lr}" for s in (0, 1) for lr in (0.1, 0.01)}
    for row, folder in enumerate(folders):
        events = reader.EventAccumulator(str(folder)).Reload()
        tags = events.Tags()["scalars"]
        assert {*done.history, "watched/size", "watched/corner/1/0"} <= set(tags)
        for name, values in done.history.items():
            found = events.Scalars(name)
            assert [event.step for event in found] == list(range(6))
            torch.testing.assert_close(torch.tensor([event.value for event in found]), values[row])
        found = events.Scalars("watched/size")
        assert [event.step for event in found] == [0, 3, 6] == done.watched_at
        torch.testing.assert_close(torch.tensor([event.value for event in found]), done.watched["size"][row])
        corner = [event.value for event in events.Scalars("watched/corner/1/0")]
        torch.testing.assert_close(torch.tensor(corner), done.watched["corner"][row, :, 1, 0])
    with pytest.raises(ArgumentError, match="event files would mix"):
        done.to_tensorboard(tmp_path / "runs")


def test_without_tensorboard_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ArgumentError, match=r"uv sync --extra tensorboard"):
        train().to_tensorboard(tmp_path)
