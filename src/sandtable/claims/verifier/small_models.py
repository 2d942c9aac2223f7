"""The small generators of the claims, one at a time, for trying a decoder without a model of one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sandtable.arguments import one_of
from sandtable.claims.verifier.code import setting as code
from sandtable.claims.verifier.dyck import setting as dyck
from sandtable.decoding import TransformerModel
from sandtable.decoding.tasks import DyckTask, Task
from sandtable.lab import Lab
from sandtable.models import Transformer
from sandtable.worlds import Vocab


def task_and_model(name: str, lab: Lab, steps: int | None = None) -> tuple[Task, TransformerModel]:
    """A task ("dyck" or "append") with the small Transformer that the claims decode from, trained on the first seed.

    `steps` trains it for longer or shorter than the claims do.
    """
    changed: dict[str, Any] = {} if steps is None else {"steps": steps}
    if one_of("name", name, ("dyck", "append")) == "dyck":
        trained = replace(dyck.Trained(), **changed)
        network = lab.fit(replace(dyck.recipe(trained), chunk=1)).averaged[0]
        return DyckTask(dyck.WORLD), _model(network, lab, dyck.WORLD.vocab, dyck.WORLD.eos)
    network = lab.fit(replace(code.recipe(replace(code.Code(), **changed)), chunk=1))[0]
    return code.TASK, _model(network, lab, code.WORLD.vocab, code.WORLD.vocab.eos)


def _model(network: Transformer, lab: Lab, vocab: Vocab, eos: int) -> TransformerModel:
    return TransformerModel(network.to(lab.device).eval(), vocab=vocab, eos=eos)
