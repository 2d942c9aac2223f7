"""Hugging Face masked models as conditionals: their own logits, and chains that follow the matrix written from them."""

import sys

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

from sandtable.arguments import ArgumentError
from sandtable.bridges.huggingface import load_masked
from sandtable.bridges.pretraining import MaskedModel
from sandtable.decoding import Conditional, MaskedNetwork, ModelBlocks, as_conditional, k_gibbs, run_chains
from sandtable.theory.gmlm import chains
from sandtable.worlds import UniformSize
from sandtable.worlds.finite import all_states, places

SIZE, PAD, MASK = 6, 0, 5
"""Tokens 1 to 4 are words."""
SMALL = dict(vocab_size=SIZE, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
IDS = dict(pad_token_id=PAD, bos_token_id=None, eos_token_id=None)
FAMILIES = {
    "Bert": SMALL | IDS,
    "Roberta": SMALL | IDS | dict(max_position_embeddings=20),
    "Albert": SMALL | IDS | dict(embedding_size=8),
    "DistilBert": dict(vocab_size=SIZE, dim=16, n_layers=2, n_heads=2, hidden_dim=24, pad_token_id=PAD),
}


def tiny(family="Bert", seed=0):
    """A random model whose opinions are strong enough to be told from one another."""
    config = getattr(hf, f"{family}Config")(**FAMILIES[family], initializer_range=0.7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return getattr(hf, f"{family}ForMaskedLM")(config)


def rows(seed=0, count=5, length=7):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(1, 5, (count, length), generator=generator)
    return x, torch.rand(count, length, generator=generator) < 0.4


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_model_with_masks_in_place(family):
    network = tiny(family)
    model = load_masked(network, mask=MASK)
    assert isinstance(model, Conditional)
    assert as_conditional(model) is model
    x, hidden = rows()
    with torch.no_grad():
        theirs = network(input_ids=torch.where(hidden, MASK, x), attention_mask=torch.ones_like(x)).logits
    ours = model.conditional_logits(x, hidden)
    torch.testing.assert_close(ours[..., 1:5], theirs[..., 1:5])
    assert bool((ours[..., [PAD, MASK]] == -torch.inf).all())
    # Neither what stands at hidden positions nor padding at the end makes a difference.
    changed = torch.where(hidden, x % 4 + 1, x)
    torch.testing.assert_close(model.conditional_logits(changed, hidden), ours)
    longer, more = (torch.nn.functional.pad(t, (0, 3)) for t in (x, hidden))
    torch.testing.assert_close(model.conditional_logits(longer, more)[:, :7], ours, atol=1e-5, rtol=1e-4)


def test_models_that_we_train_are_read_in_the_same_way():
    network, (x, hidden) = tiny().eval(), rows()
    ours = MaskedNetwork(MaskedModel(network), mask=MASK, vocab_size=SIZE)
    expected = load_masked(network, mask=MASK).conditional_logits(x, hidden)
    torch.testing.assert_close(ours.conditional_logits(x, hidden)[..., 1:5], expected[..., 1:5])


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_chains_follow_the_matrix_of_the_model(family):
    """k = 1 at the two last of three positions: P = ½ Σ_i p(x_i | x_−i), which no law need be behind."""
    model = load_masked(tiny(family, seed=3), mask=MASK)
    words = all_states(4, 3)
    matrix = torch.zeros(64, 64, dtype=torch.float64)
    for place in (1, 2):
        hidden = torch.zeros(64, 3, dtype=torch.bool)
        hidden[:, place] = True
        probs = model.conditional_logits(words + 1, hidden)[:, place].double().softmax(-1)[:, 1:5]
        for word in range(4):
            after = words.clone()
            after[:, place] = word
            matrix[torch.arange(64), (after * places(4, 3)).sum(1)] += probs[:, word] / 2
    sampler = ModelBlocks(model, UniformSize(2, 1), free=torch.tensor([1, 2]))
    generator = torch.Generator().manual_seed(0)
    start = words[21]
    inside = (words[:, 0] == start[0]).nonzero()[:, 0]
    for steps in (1, 25):
        law = torch.linalg.matrix_power(matrix, steps)[21]
        x = run_chains(sampler, (start + 1).expand(4000, -1), steps=steps, generator=generator).x - 1
        counts = torch.bincount((x * places(4, 3)).sum(1), minlength=64).double()
        assert float((counts / 4000 - law).abs().sum()) / 2 < 0.06
    kept = chains.stationary(matrix[inside][:, inside])
    assert float((law[inside] - kept).abs().sum()) / 2 < 0.01


def test_a_model_with_words():
    words = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "ran"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[PAD]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = dict(pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=made, **special)
    network = hf.BertForMaskedLM(hf.BertConfig(**SMALL | dict(vocab_size=len(words)), initializer_range=0.5))
    model = load_masked(network, tokenizer=tokenizer)
    assert (model.mask, model.pad, model.never) == (3, 0, [0, 1, 2, 3])
    x = torch.tensor([model.encode("[CLS] the [MASK] [MASK] [SEP]")]).expand(30, -1)
    free = (x[0] == model.mask).nonzero()[:, 0]
    sampler = ModelBlocks(model, UniformSize(len(free), 1), free=free)
    out = run_chains(sampler, x, steps=12, generator=torch.Generator().manual_seed(0)).x
    assert bool((out[:, [0, 1, 4]] == x[:, [0, 1, 4]]).all())
    assert bool(((out[:, 2:4] >= 4) & (out[:, 2:4] <= 8)).all())
    assert len({model.decode(row) for row in out.tolist()}) > 3
    assert model.decode(x[0].tolist()) == "the"


def test_saved_models_are_loaded(tmp_path):
    network = tiny().eval()
    network.save_pretrained(tmp_path)
    with pytest.raises(ArgumentError, match="holds none"):
        load_masked(tmp_path)
    x, hidden = rows()
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(SIZE)}, unk_token="w0"))
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=words, mask_token="w5", pad_token="w0")
    loaded = load_masked(tmp_path, tokenizer=tokenizer)
    torch.testing.assert_close(
        loaded.conditional_logits(x, hidden), load_masked(network, mask=MASK).conditional_logits(x, hidden)
    )


def test_what_is_refused(monkeypatch):
    causal = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=SIZE, n_embd=8, n_layer=1, n_head=1, n_positions=8))
    with pytest.raises(ArgumentError, match="GPT2LMHeadModel is no masked language model"):
        load_masked(causal, mask=MASK)
    with pytest.raises(ArgumentError, match="pass mask=ID"):
        load_masked(tiny())
    with pytest.raises(ArgumentError, match="mask=6"):
        load_masked(tiny(), mask=6)
    with pytest.raises(ArgumentError, match="never=9"):
        load_masked(tiny(), mask=MASK, never=[9])
    model = load_masked(tiny(), mask=MASK)
    with pytest.raises(ArgumentError, match="pass tokenizer="):
        model.encode("w1")
    with pytest.raises(ArgumentError, match="x holds 6"):
        k_gibbs(model, 1, positions=3)(torch.full((1, 3), 6), torch.Generator().manual_seed(0))
    with pytest.raises(ArgumentError, match="load_masked"):
        as_conditional(tiny())
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ArgumentError, match="needs the package transformers"):
        load_masked(tiny)
