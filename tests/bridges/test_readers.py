"""Readers of six Hugging Face families and of our Transformer: attention, padding, embeddings, fresh weights."""

import json

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from sandtable.arguments import ArgumentError
from sandtable.bridges import huggingface
from sandtable.bridges.readers import read
from sandtable.models import Transformer

VOCAB = 40
SMALL = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24)
BODIES = {
    "bert": lambda: hf.BertModel(hf.BertConfig(**SMALL, max_position_embeddings=20)),
    "roberta": lambda: hf.RobertaForMaskedLM(hf.RobertaConfig(**SMALL, max_position_embeddings=22)),
    "albert": lambda: hf.AlbertForMaskedLM(hf.AlbertConfig(**SMALL, embedding_size=8, max_position_embeddings=20)),
    "bart": lambda: hf.BartForConditionalGeneration(
        hf.BartConfig(
            vocab_size=VOCAB, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=20,
        )
    ),
    "electra": lambda: hf.ElectraForPreTraining(
        hf.ElectraConfig(**SMALL, embedding_size=8, max_position_embeddings=20)
    ),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=4, n_positions=20, bos_token_id=0, eos_token_id=0
        )
    ),
    "ours": lambda: Transformer(VOCAB, layers=2, heads=4, width=16, mlp=24, positions="learned", longest=20),
    "ours, causal": lambda: Transformer(VOCAB, layers=2, heads=4, width=16, causal=True),
}  # fmt: skip
FAMILIES = ("bert", "roberta", "albert", "bart", "electra", "gpt2")


def make(family, seed=0):
    """A tiny model with sizeable weights, so that its attention is far from uniform."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BODIES[family]()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.copy_(torch.randn(parameter.shape) * 0.4)
    return model.eval()


def tokenizer(frame=True):
    """Whole words "w0" … with [PAD] [UNK] [CLS] [SEP] [MASK] in front."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(VOCAB - 5))]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if frame:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    return hf.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def documents(lengths=(7, 3, 1, 5), seed=0):
    ids = torch.randint(5, VOCAB, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids, mask


# -- what every reader promises --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", BODIES)
def test_attention(family):
    reader = read(make(family))
    ids, mask = documents()
    pattern = reader.attention(ids, mask)
    assert pattern.shape == (2, 4, 4, 7, 7)
    assert (reader.layers, reader.heads, reader.causal) == (2, 4, family in ("gpt2", "ours, causal"))
    seen = (mask[:, :, None] & mask[:, None, :])[None, :, None]
    seen = seen.tril() if reader.causal else seen
    kept = pattern * seen
    rows = mask[None, :, None].expand(2, 4, 4, 7)
    torch.testing.assert_close(kept.sum(-1)[rows], torch.ones(int(rows.sum())))
    assert pattern[0, 0, 0, :7].std() > 0.02  # not the uniform attention of small weights
    for d, n in enumerate(mask.sum(1).tolist()):
        alone = reader.attention(ids[d : d + 1, :n])
        torch.testing.assert_close(pattern[:, d, :, :n, :n], alone[:, 0], atol=1e-5, rtol=0)
    changed = ids.masked_fill(~mask, 9)
    assert torch.equal(reader.attention(changed, mask), pattern)


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_and_the_library_s_own_attention(family):
    model = make(family)
    reader = read(model)
    table = model.get_input_embeddings().weight
    assert torch.equal(reader.embeddings, table)
    assert reader.embeddings.shape == (VOCAB, 8 if family in ("albert", "electra") else 16)
    assert not reader.embeddings.requires_grad
    ids, _ = documents((6,))
    pattern = reader.attention(ids)
    model.set_attn_implementation("eager")
    out = model(input_ids=ids, output_attentions=True)
    layers = out.encoder_attentions if family == "bart" else out.attentions
    torch.testing.assert_close(pattern, torch.stack(layers).detach(), atol=1e-6, rtol=0)


def test_our_embeddings():
    model = make("ours")
    assert torch.equal(read(model).embeddings, model.embed.W_E)
    assert torch.equal(read(Transformer(5, embedding="one-hot")).embeddings, torch.eye(5))


@pytest.mark.parametrize("family", BODIES)
def test_random_is_the_model_s_own_initialisation(family):
    reader = read(make(family))
    state = torch.get_rng_state()
    first, again, other = reader.random(3), reader.random(3), reader.random(4)
    assert torch.equal(torch.get_rng_state(), state)
    ids, mask = documents()
    assert torch.equal(first.embeddings, again.embeddings)
    assert torch.equal(first.attention(ids, mask), again.attention(ids, mask))
    assert not torch.equal(first.embeddings, other.embeddings)
    assert (first.layers, first.heads, first.causal) == (2, 4, reader.causal)
    assert first.embeddings.std() == pytest.approx(0.02, rel=0.2)  # what all of these families start from
    assert reader.embeddings.std() == pytest.approx(0.4, rel=0.2)  # the model read is untouched


def test_reading_leaves_the_model_as_it_was():
    model = make("bert")
    model.set_attn_implementation("sdpa")
    model.train()
    model.encoder.layer[0].eval()
    ids, mask = documents()
    reader = read(model)
    assert torch.equal(reader.attention(ids, mask), reader.attention(ids, mask))  # no dropout
    assert model.config._attn_implementation == "sdpa"
    assert model.training
    assert model.encoder.layer[1].training
    assert not model.encoder.layer[0].training


def test_a_model_without_attentions_says_how_to_load_it(monkeypatch):
    model = make("bert")
    model.set_attn_implementation("sdpa")
    monkeypatch.setattr(type(model), "_can_set_attn_implementation", classmethod(lambda cls: False))
    with pytest.raises(ArgumentError, match=r"returns no attentions; load it with .*attn_implementation='eager'"):
        read(model).attention(*documents())


# -- documents -------------------------------------------------------------------------------------------------------


def test_special_tokens_frame_each_document():
    reader = read(make("bert"), tokenizer())
    ids, mask = documents((4, 2))
    framed, seen = reader.with_special(ids, mask)
    for d, n in enumerate((4, 2)):
        words = reader.tokenizer.decode(ids[d, :n])
        assert framed[d][seen[d]].tolist() == reader.tokenizer(words)["input_ids"]
    ((pattern, got_ids, got_mask, causal),) = reader.attentions([(ids, mask)], special=True)
    assert torch.equal(got_ids, framed)
    assert torch.equal(got_mask, seen)
    assert not causal
    assert torch.equal(pattern, reader.attention(framed, seen))


def test_without_special_tokens_nothing_is_added():
    ids, mask = documents((4, 2))
    framed, seen = read(make("gpt2"), tokenizer(frame=False)).with_special(ids, mask)
    assert torch.equal(framed, ids)
    assert torch.equal(seen, mask)
    with pytest.raises(ArgumentError, match="was read without a tokenizer"):
        read(make("gpt2")).with_special(ids, mask)


@pytest.mark.parametrize("family", BODIES)
def test_documents_up_to_the_longest(family):
    reader = read(make(family))
    if family == "ours, causal":
        assert reader.longest is None
        return
    assert reader.longest == 20
    reader.attention(torch.full((1, 20), 7))
    with pytest.raises(ArgumentError, match=r"documents of 21 tokens, .* at most 20"):
        reader.attention(torch.full((1, 21), 7))


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        ([[1, 40]], [[True, True]], "ids: from 1 to 40, the model knows 0 to 39"),
        ([[1, 2]], [[False, True]], "padding must come after"),
        ([[1, 2]], [[True]], "both batch × position"),
        ([[]], [[]], "0 tokens"),
    ],
)
def test_wrong_documents(ids, mask, message):
    with pytest.raises(ArgumentError, match=message):
        read(make("bert")).attention(torch.tensor(ids).long(), torch.tensor(mask, dtype=torch.bool))


# -- loading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_by_path(family, tmp_path):
    model = make(family)
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    ids, mask = documents()
    reader = read(tmp_path)
    assert reader.name == str(tmp_path)
    assert reader.tokenizer.convert_ids_to_tokens(7) == "w2"
    assert torch.equal(reader.embeddings, read(model).embeddings)
    assert torch.equal(reader.attention(ids, mask), read(model).attention(ids, mask))
    kind = "causal" if family == "gpt2" else "masked"
    loaded, own = huggingface.load_model(str(tmp_path), kind=kind, attentions=True)
    assert not loaded.training
    assert loaded.config._attn_implementation == "eager"
    assert len(own) == VOCAB


def test_kind_that_the_family_does_not_have(tmp_path):
    make("gpt2").save_pretrained(tmp_path)
    with pytest.raises(ArgumentError, match="no model of kind='masked'"):
        huggingface.load_model(tmp_path, kind="masked")
    with pytest.raises(ArgumentError, match="kind='mask': must be one of"):
        huggingface.load_model(tmp_path, kind="mask")


def test_tokenizer_missing(tmp_path):
    make("bert").save_pretrained(tmp_path / "model")
    with pytest.raises(ArgumentError, match=r"tokenizer: .* holds none; pass another, tokenizer="):
        huggingface.load_model(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "words")
    assert len(huggingface.load_model(tmp_path / "model", tokenizer=tmp_path / "words")[1]) == VOCAB


def test_pickles_are_never_read(tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ArgumentError, match=r"no \.safetensors weights, and pickled weights"):
        huggingface.load_model(tmp_path)


def test_damaged_and_foreign_folders(tmp_path):
    with pytest.raises(ArgumentError, match=r"a folder without config\.json"):
        huggingface.load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights at all")
    (tmp_path / "config.json").write_text(json.dumps(make("bert").config.to_dict()))
    with pytest.raises(ArgumentError, match=r"its \.safetensors file is damaged"):
        huggingface.load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}')
    with pytest.raises(ArgumentError, match="needs code from its repository, which is never run"):
        huggingface.load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ArgumentError, match="cannot be loaded"):
        huggingface.load_model(tmp_path)
    with pytest.raises(ArgumentError, match="no such folder"):
        huggingface.load_model(tmp_path / "elsewhere")
    with pytest.raises(ArgumentError, match="a file; must be the folder"):
        huggingface.load_model(tmp_path / "config.json")
    with pytest.raises(ArgumentError, match="source=3: must be"):
        huggingface.load_model(3)


def test_hub_out_of_reach(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ArgumentError, match="neither a folder here nor in the local cache"):
        huggingface.load_model("nobody/no-such-model")
    with pytest.raises(ArgumentError, match="tokenizer='nobody/no-such-tokenizer': cannot be loaded"):
        huggingface.load_model(make("bert"), tokenizer="nobody/no-such-tokenizer")
