"""The measuring instruments of the exact topic claims, and how errata lean on what holds."""

import dataclasses

import pytest
import torch
from torch.func import functional_call

from sandtable.claims.topics import attention_loss, attention_theory, errata, exact, exact_embedding
from sandtable.lab import Lab
from sandtable.objectives import MaskedLM
from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

BERT = BertMasking()
SMALL = TopicModel(4, 3, length=50, present=2)
BY_ID = {item.id: item for item in (*exact.CLAIMS, *attention_theory.CLAIMS, *errata.CLAIMS)}


def test_shown_words_are_renumbered_by_document():
    """Without random words nothing outside a document's own topics is shown, whichever topics they are."""
    counts = exact.shown_words(Lab(seeds=(0, 1)), SMALL, BertMasking(0.3, 0.2, 0.0), 50)["counts"]
    assert counts.shape == (2, 13)
    assert (counts[:, 1:7] > 0).all()
    assert (counts[:, 7:] == 0).all()
    assert counts.sum() == 2 * 50 * 50
    assert 0.2 < counts[:, 0].sum() / counts.sum() < 0.28


@pytest.mark.parametrize("width", [2, 13])
def test_embedding_network_has_the_loss_of_theorem_1(width):
    model = exact_embedding.embedding_model(SMALL, BERT, width=width)
    table = torch.randn(13, width, generator=torch.Generator().manual_seed(0)).double()
    objective = MaskedLM(error="squared", form="documents")
    params = {**dict(model.named_parameters()), "embed.W_E": table}
    loss, _ = objective.loss(
        lambda params, inputs: functional_call(model, params, (inputs,)), params, objective.expect(SMALL.infinite())
    )
    assert loss.item() == pytest.approx(float(theory.embedding_loss(SMALL, BERT, table @ table.mT)), rel=1e-12)


def test_predicted_shares_are_a_law_only_with_the_right_normalisers():
    for kind, right in (("own", True), ("exchanged", False), ("printed", False)):
        sums = attention_loss.predicted_shares(SMALL, BERT, 0.7, 5.0, kind).sum(0)
        assert bool(torch.allclose(sums, torch.ones_like(sums))) == right


@pytest.mark.parametrize("printed", errata.PRINTED, ids=lambda item: item.id)
def test_an_erratum_differs_from_its_correction_in_settings_alone(printed):
    corrected = BY_ID[printed.corrected]
    assert printed.expected == "refuted"
    assert corrected.expected == "holds"
    assert printed.measure is corrected.measure
    for scale, settings in printed.scales.items():
        before = dataclasses.asdict(corrected.scales[scale])
        assert 1 <= sum(before[name] != value for name, value in dataclasses.asdict(settings).items()) <= 3


def test_stated_interval_misses_optima_of_crowded_documents():
    """Outside τ = o(T) the stated λ₁ fails where the proved one does not."""
    world = TopicModel(50, 12, present=49)
    found = {m: theory.optimal_gamma(world, m).beta for m in attention_loss.GRID}
    stated = [gamma in theory.block_interval(world, m) for m, gamma in found.items()]
    proved = [gamma in theory.block_interval(world, m, constant="proved") for m, gamma in found.items()]
    assert sum(stated) == 12
    assert all(proved)
