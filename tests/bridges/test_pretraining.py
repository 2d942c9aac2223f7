"""Masked models of Hugging Face read and trained like ours, checked against their own forward pass and PyTorch."""

import sys

import pytest
import torch
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.bridges.pretraining import MaskedModel, bert_like
from sandtable.inputs import Documents, Selected, Tokens
from sandtable.lab.keys import fingerprint
from sandtable.models import Normal, Transformer
from sandtable.objectives import MaskedLM
from sandtable.probes.dynamics import attention_matrices, rotations, watch_norms, watch_values
from sandtable.training import Adam, Fit, evaluate, fit_single, stream
from sandtable.training.stack import initial_parameters
from sandtable.training.streams import Supply
from sandtable.worlds import TopicModel

transformers = pytest.importorskip("transformers")

WORLD = TopicModel(5, 4, length=(8, 12), present=1)
VOCAB = len(WORLD.vocab)
SMALL = dict(
    vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, pad_token_id=0
)
FAMILIES = {
    "Bert": SMALL,
    "Roberta": SMALL | dict(max_position_embeddings=40),
    "Albert": SMALL | dict(embedding_size=8),
    "Electra": SMALL | dict(embedding_size=8),
    "DistilBert": dict(vocab_size=VOCAB, dim=16, n_layers=2, n_heads=2, hidden_dim=24, pad_token_id=0),
}


def of_family(name, **changes):
    config = getattr(transformers, f"{name}Config")(**FAMILIES[name] | changes)
    return getattr(transformers, f"{name}ForMaskedLM")(config).eval()


def inputs():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, VOCAB, (3, 12), generator=generator)
    mask = torch.arange(12) < torch.tensor([12, 9, 4])[:, None]
    rows = torch.tensor([[11, 0, 5], [8, 8, 1], [3, 2, 0]])
    return ids, mask, rows


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_selected_rows_are_those_of_the_whole(family):
    theirs = of_family(family)
    ids, mask, rows = inputs()
    seen = []
    theirs.get_output_embeddings().register_forward_hook(
        lambda module, args, out: seen.append(tuple(args[0].shape[:2]))
    )
    with torch.no_grad():
        whole = theirs(input_ids=ids, attention_mask=mask.long()).logits
        ours = MaskedModel(theirs)
        torch.testing.assert_close(ours(Tokens(ids, mask)), whole)
        chosen = ours(Selected(ids, mask, rows))
        torch.testing.assert_close(ours(Tokens(ids, mask)), whole)  # nothing of the selection is left behind
    expected = torch.stack([whole[i, rows[i]] for i in range(3)])
    torch.testing.assert_close(chosen, expected)
    assert seen == [(3, 12), (3, 12), (3, 3), (3, 12)]


def test_what_was_asked_for():
    ids, mask, _ = inputs()
    model = bert_like(VOCAB, layers=2, heads=2, width=8, longest=12, attentions=True, attention_scale=None).eval()
    assert model.hook_names()[:2] == ["blocks.0.attn.hook_pattern", "blocks.0.hook_resid_post"]
    with torch.no_grad():
        logits, found = model(Tokens(ids, mask), want=("blocks.1.attn.hook_pattern", "blocks.0.hook_resid_post"))
        theirs = model.model(
            input_ids=ids, attention_mask=mask.long(), output_attentions=True, output_hidden_states=True
        )
    torch.testing.assert_close(logits, theirs.logits)
    torch.testing.assert_close(found["blocks.1.attn.hook_pattern"], theirs.attentions[1])
    torch.testing.assert_close(found["blocks.0.hook_resid_post"], theirs.hidden_states[1])
    with pytest.raises(ArgumentError, match=r"did you mean 'blocks\.1\.attn\.hook_pattern'"):
        model(ids, want=("blocks.1.attn.hook_patern",))
    blind = bert_like(VOCAB, layers=2, heads=2, width=8, longest=12)
    with pytest.raises(ArgumentError, match="attn_implementation='eager'"):
        blind(ids, want=("blocks.0.attn.hook_pattern",))


# -- starting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_parameters_follow_the_familys_law(family):
    model = MaskedModel(of_family(family))
    before = torch.get_rng_state()
    first, again, other = (initial_parameters(model, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in first.items():
        assert torch.equal(value, again[name])
        random = value.numel() > 1 and bool((value != value.flatten()[0]).any())
        assert random != torch.equal(value, other[name])
        if random and value.numel() > 100:
            assert 0.015 < float(value.std()) < 0.025, name  # initializer_range is 0.02 in all of them
    halved = initial_parameters(model, 1, 0.5)
    for name, value in first.items():
        constant = torch.equal(value, other[name])
        torch.testing.assert_close(halved[name], value if constant else value / 2)


def test_fresh_parameters_whatever_was_there_before(tmp_path):
    """A model read from disk counts as initialised in Hugging Face's books; it must start afresh all the same."""
    of_family("Bert").save_pretrained(tmp_path)
    read = MaskedModel(transformers.BertForMaskedLM.from_pretrained(tmp_path))
    new = MaskedModel(of_family("Bert"))
    ours, theirs = initial_parameters(read, 3), initial_parameters(new, 3)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not torch.equal(ours["model.bert.encoder.layer.0.attention.self.query.weight"],
                           read.model.bert.encoder.layer[0].attention.self.query.weight)  # fmt: skip


def test_attention_starts_near_zero():
    model = bert_like(VOCAB, layers=2, heads=2, width=32, longest=12, attention_scale=1e-4)
    near = {name for layer in attention_matrices(model) for name in layer.values()}
    assert len(near) == 6
    for name, value in initial_parameters(model, 0).items():
        if name in near:
            assert 0.8e-4 < float(value.std()) < 1.2e-4
        elif value.ndim == 2:
            assert float(value.std()) > 0.01, name
    zero = bert_like(VOCAB, layers=1, heads=2, width=32, longest=12, attention_scale=0.0)
    for name, value in initial_parameters(zero, 0).items():
        assert ("self" in name) == (not value.any()) or value.ndim == 1


def test_keys_tell_models_apart():
    same = [bert_like(VOCAB, layers=1, heads=2, width=8, longest=12) for _ in range(2)]
    others = [
        bert_like(VOCAB, layers=1, heads=2, width=8, longest=12, attention_scale=None),
        bert_like(VOCAB, layers=1, heads=1, width=8, longest=12),
        MaskedModel(of_family("Bert")),
        MaskedModel(of_family("Roberta")),
    ]
    assert fingerprint(same[0]) == fingerprint(same[1])  # drawn differently, but always drawn afresh
    assert len({fingerprint(model) for model in [same[0], *others]}) == 5


# -- training --------------------------------------------------------------------------------------------------------


def test_training_is_pytorchs():
    """Against a loop written out with Hugging Face's own loss and PyTorch's own Adam, at all positions."""
    model = bert_like(WORLD.vocab, layers=1, heads=2, width=8, longest=12, attention_scale=0.01)
    objective = MaskedLM()
    result = fit_single(
        model, WORLD, objective, steps=10, batch_size=6, block=5, optimizer=Adam(0.01, eps=1e-4), dtype="float64"
    )
    net = bert_like(WORLD.vocab, layers=1, heads=2, width=8, longest=12, attention_scale=0.01)
    net = net.initialise(stream("init", 0)).double().model
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-4)
    generators, supply, losses = (stream("data", 0), stream("noise", 0)), Supply(WORLD, objective, 6), []
    for first in (0, 5):
        block = supply.draw(first, 5, *generators)
        for s in range(5):
            ids, mask, rows = (tensor[s] for tensor in block["inputs"])
            logits = net(input_ids=ids, attention_mask=mask.long()).logits
            total = 0.0
            for d in range(6):
                real = block["weight"][s, d] > 0
                at, target = rows[d][real], block["target"][s, d][real]
                total = total + nn.functional.cross_entropy(logits[d, at], target) / 6
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            losses.append(float(total.detach()))
    torch.testing.assert_close(result.losses[0], torch.tensor(losses, dtype=torch.float64), rtol=1e-6, atol=0)
    for name, value in net.named_parameters():
        torch.testing.assert_close(result[0].model.get_parameter(name), value, rtol=0, atol=1e-6)


def test_watched_saved_and_resumed(tmp_path):
    model = bert_like(WORLD.vocab, layers=2, heads=2, width=8, longest=12, dropout=0.1)
    options = dict(batch_size=4, seeds=2, watch=watch_norms(model) | watch_values(model), watch_every=2)
    straight = fit_single(model, WORLD, MaskedLM(), steps=8, **options)
    short = fit_single(model, WORLD, MaskedLM(), steps=3, **options)
    loaded = Fit.load(short.save(tmp_path), short.recipe)
    resumed = loaded.resume(steps=8)
    assert torch.equal(resumed.losses, straight.losses)
    for name, record in straight.watched.items():
        assert torch.equal(resumed.watched[name], record)
    assert torch.equal(straight.watched["1.W_V"], straight.watched["1.values"].flatten(2).norm(dim=2))
    weight = straight[1].model.bert.encoder.layer[1].attention.self.value.weight
    assert torch.equal(weight, straight.watched["1.values"][1, -1])
    _, turned = rotations(straight.watched["1.values"], straight.watched_at, lag=2)
    assert turned.shape == (2, 4)
    assert bool(((turned > 0) & (turned < 1)).all())


def test_it_learns_what_our_own_learns():
    """The same objective, data and optimiser: a BERT from Hugging Face and one of ours end at much the same loss."""
    ours = Transformer(
        WORLD.vocab, layers=1, heads=2, width=16, mlp=64, norm="post", biases=True, head_bias=True, positions="learned",
        longest=12, embedding_norm=True, initial={"*": Normal(0.02)},
    )  # fmt: skip
    theirs = bert_like(WORLD.vocab, layers=1, heads=2, width=16, longest=12, attention_scale=None)
    options = dict(steps=150, batch_size=40, optimizer=Adam(0.01))
    a, b = (fit_single(model, WORLD, MaskedLM(), **options) for model in (ours, theirs))
    assert abs(float(a.losses[0, -30:].mean() - b.losses[0, -30:].mean())) < 0.1
    assert float(b.losses[0, -30:].mean()) < float(b.losses[0, :5].mean()) - 0.5
    loss = evaluate(a.models, WORLD, MaskedLM(), batches=5)
    assert abs(float(loss) - float(a.losses[0, -30:].mean())) < 0.2


# -- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input(monkeypatch):
    bart = dict(vocab_size=9, d_model=4, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
                decoder_attention_heads=1, encoder_ffn_dim=4, decoder_ffn_dim=4, bos_token_id=0, pad_token_id=1,
                eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2)  # fmt: skip
    for wrong in (
        nn.Linear(2, 2),
        transformers.BertModel(transformers.BertConfig(**SMALL)),
        transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, is_decoder=True)),
        transformers.BartForConditionalGeneration(transformers.BartConfig(**bart)),
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
        ),
    ):
        with pytest.raises(ArgumentError, match=rf"{type(wrong).__name__}: must be a Hugging Face encoder") as caught:
            MaskedModel(wrong)
        assert "\n" not in str(caught.value)
    with pytest.raises(ArgumentError, match="attention_scale=-1"):
        MaskedModel(of_family("Bert"), attention_scale=-1)
    with pytest.raises(ArgumentError, match="heads=3: must divide the width 8"):
        bert_like(VOCAB, heads=3, width=8)
    with pytest.raises(ArgumentError, match="Documents inputs"):
        MaskedModel(of_family("Bert"))(Documents(torch.ones(1, VOCAB)))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ArgumentError, match=r"uv sync --extra text"):
        bert_like(VOCAB)
