"""Hugging Face causal models as language models: whatever was appended, erased or forked, logits are a fresh run's."""

import warnings

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

import sandtable as st
from sandtable.arguments import ArgumentError
from sandtable.bridges.huggingface import load
from sandtable.bridges.huggingface.sessions import HuggingFaceSession, RecomputeSession
from sandtable.decoding import Hidden, LanguageModel, ancestral, backtrack, greedy

SIZE = 23
SMALL = dict(vocab_size=SIZE, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24)
NAMED = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
GPT2 = dict(vocab_size=SIZE, n_embd=16, n_layer=2, n_head=4, n_positions=40, **NAMED)
CACHED = {
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, **NAMED, num_key_value_heads=2)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SMALL, **NAMED, num_key_value_heads=2)),
    "gpt-neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL, **NAMED)),
    "opt": lambda: hf.OPTForCausalLM(
        hf.OPTConfig(
            vocab_size=SIZE, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, ffn_dim=24,
            word_embed_proj_dim=8, max_position_embeddings=40, **NAMED,
        )
    ),
    "gpt-j": lambda: hf.GPTJForCausalLM(hf.GPTJConfig(**GPT2, rotary_dim=4)),
    "phi": lambda: hf.PhiForCausalLM(hf.PhiConfig(**SMALL, **NAMED)),
    "falcon": lambda: hf.FalconForCausalLM(hf.FalconConfig(**SMALL, **NAMED, alibi=False)),
    "gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**SMALL, **NAMED, num_key_value_heads=1, head_dim=4)),
    # Sliding windows shorter than the rows, in all layers and in every other one.
    "mistral": lambda: hf.MistralForCausalLM(
        hf.MistralConfig(**SMALL, **NAMED, num_key_value_heads=2, sliding_window=4)
    ),
    "gemma2": lambda: hf.Gemma2ForCausalLM(
        hf.Gemma2Config(**SMALL, **NAMED, num_key_value_heads=2, head_dim=4, sliding_window=4)
    ),
    "gemma3": lambda: hf.Gemma3ForCausalLM(
        hf.Gemma3TextConfig(
            **SMALL, **NAMED, num_key_value_heads=2, head_dim=4, sliding_window=4,
            layer_types=["sliding_attention", "full_attention"],
        )
    ),
    # The bias of these grows with the distance (alibi); Bloom takes no mask but one for the whole row.
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=SIZE, hidden_size=16, n_layer=2, n_head=4, **NAMED)),
    "falcon, alibi": lambda: hf.FalconForCausalLM(hf.FalconConfig(**SMALL, **NAMED, alibi=True)),
}  # fmt: skip
OTHERS = {
    "mamba": lambda: hf.MambaForCausalLM(
        hf.MambaConfig(vocab_size=SIZE, hidden_size=16, num_hidden_layers=2, state_size=4, **NAMED)
    ),
    "gpt-neo": lambda: hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(
            vocab_size=SIZE, hidden_size=16, num_layers=2, num_heads=4, window_size=4, max_position_embeddings=40,
            attention_types=[[["global", "local"], 1]], **NAMED,
        )
    ),
}  # fmt: skip


def make(family, seed=0, **changes):
    """A tiny model with sizeable weights, so that every token that is seen or not seen shows."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = (CACHED | OTHERS)[family]()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.copy_(torch.randn(parameter.shape) * 0.4)
    for name, value in changes.items():
        setattr(model.config, name, value)
    return model.eval()


def quiet(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(model, **options)


def fresh(model, row):
    out = model(input_ids=torch.tensor([row]), use_cache=False, output_hidden_states=True)
    return out.logits[0, -1], [layer[0, -1] for layer in out.hidden_states]


def check(session, model, layer, atol=1e-5):
    logits, states = session.logits(), session.hidden()
    for row in range(len(session)):
        expected, hidden = fresh(model, session.row(row))
        torch.testing.assert_close(logits[row].to(expected), expected, atol=atol * expected.abs().max(), rtol=0)
        torch.testing.assert_close(states[row], hidden[layer], atol=atol * hidden[layer].abs().max(), rtol=0)


def wander(lm, model, hidden, *, seed=1, steps=24, atol=1e-5):
    """A random walk of edits of a session, with a look at all rows now and then."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        session = lm.start([[1, 2, 3], [4], [5, 6, 7, 8, 9, 3, 4], [10, 1]], room=6, hidden=hidden)
        check(session, model, hidden.layer, atol)
        for step in range(steps):
            rows = (torch.rand(len(session), generator=generator) < 0.8) & (session.lengths < 40)
            session.append(torch.randint(SIZE, (len(session),), generator=generator), rows)
            if step % 4 == 0:
                session.rewind((torch.rand(len(session), generator=generator) * session.lengths * 0.4).long())
            if step % 3 == 1:  # sometimes several edits happen between two looks
                check(session, model, hidden.layer, atol)
            if step == steps // 2:
                session = session.fork(torch.tensor([2, 0, 0, 3, 1]))
        check(session, model, hidden.layer, atol)
    return session


# -- the cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["default", "eager"])
@pytest.mark.parametrize("family", CACHED)
def test_a_walk_of_edits_with_a_cache(family, attention):
    model = make(family)
    if attention == "eager":
        model.set_attn_implementation("eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lm = load(model)
    assert isinstance(lm, LanguageModel)
    layer = 2 if attention == "default" else 1
    session = wander(lm, model, Hidden(layer, normed=layer == 2))
    assert isinstance(session, HuggingFaceSession)


@pytest.mark.parametrize("family", OTHERS)
def test_families_without_such_a_cache_are_recomputed_with_a_warning(family):
    model = make(family)
    with pytest.warns(UserWarning, match="every token is computed from the whole row") as told:
        lm = load(model)
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert isinstance(wander(lm, model, Hidden(2, normed=True), steps=12), RecomputeSession)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(model)  # tried once for every network


def test_a_cache_that_goes_wrong_is_found_out():
    class Forgetful(hf.GPT2LMHeadModel):
        """Numbers positions by what it believes the cache holds, as models did before positions could be passed."""

        def forward(self, *args, position_ids=None, **kwargs):
            return super().forward(*args, **kwargs)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Forgetful(hf.GPT2Config(**GPT2, initializer_range=0.5)).eval()
    with pytest.warns(UserWarning, match="Forgetful: a cache whose rows are rewound differs from fresh runs"):
        lm = load(model)
    wander(lm, model, Hidden(1), steps=12)
    model = Forgetful(hf.GPT2Config(**GPT2)).eval()
    assert isinstance(load(model, check=False).start([[1]], room=3), HuggingFaceSession)
    assert isinstance(load(make("gpt-neo"), check=False).start([[1]], room=3), RecomputeSession)


def test_the_trial_leaves_the_model_as_it_was():
    model = make("gemma2")
    model.train()
    model.model.layers[0].eval()
    state = torch.get_rng_state()
    st.bridges.huggingface.HuggingFaceModel(model)
    assert model.config.sliding_window == 4
    assert model.training
    assert not model.model.layers[0].training
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.model.layers)
    assert not load(model).network.training


@pytest.mark.parametrize("dtype", ["bfloat16", torch.float64])
def test_other_precisions(dtype):
    model = make("llama")
    lm = load(model, dtype=dtype)
    exact = dtype == torch.float64
    wander(lm, model, Hidden(1), steps=12, atol=1e-12 if exact else 0.05)
    assert lm.start([[1, 2]], room=2).logits().dtype == (torch.float64 if exact else torch.float32)


def test_long_rotary_positions_are_recomputed_where_they_change():
    rope = dict(rope_type="longrope", short_factor=[1.0, 1.0], long_factor=[3.0, 9.0], rope_theta=1e4)
    limits = dict(max_position_embeddings=36, original_max_position_embeddings=12)
    config = hf.Phi3Config(**SMALL, **NAMED, **limits, rope_parameters=rope)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = hf.Phi3ForCausalLM(config).eval()
    lm = load(model)
    assert isinstance(lm.start([[1, 2, 3]], room=9), HuggingFaceSession)
    with pytest.warns(UserWarning, match="encodes positions anew in rows of more than 12 tokens"):
        session = wander(lm, model, Hidden(1))
    assert int(session.lengths.max()) > 12 >= int(session.lengths.min())
    session = lm.start([[1] * 11], room=1)
    session.append(torch.tensor([2]))
    session.logits()
    session.append(torch.tensor([2]))
    with pytest.raises(ArgumentError, match="start the session with room for it"):
        session.logits()


def test_the_cache_grows_and_rows_retire():
    model = make("llama")
    session = load(model).start([[1], [2, 3], [4], [5], [6]], room=1)
    final = torch.tensor([True, False, True, True, False])
    with torch.no_grad():
        for step in range(30):
            session.append(torch.full((5,), step % SIZE), ~final if step > 4 else None)
            session.logits(~final)
            session.retire(final)
        assert len(session._rows) == 2
        for row in (1, 4):
            torch.testing.assert_close(session.logits(~final)[row], fresh(model, session.row(row))[0])
    assert session.passes == 30


def test_rows_that_the_context_cuts_are_announced():
    lm = load(make("gpt2"), eos="none")
    with pytest.warns(UserWarning, match="reads at most 40 tokens, so that some rows end before the 50 new ones"):
        made = ancestral(lm, [[3, 4, 5], [6]], max_tokens=50)
    assert made.lengths.tolist() == [40, 40]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ancestral(lm, [[3, 4, 5], [6]], max_tokens=37)


def test_without_room_or_a_cache_nothing_is_kept():
    model = make("gpt2")
    assert isinstance(load(model).start([[1, 2], [3]], room=0), RecomputeSession)
    lm = load(model, cache=False)
    assert isinstance(wander(lm, model, Hidden(1), steps=12), RecomputeSession)
    options = dict(max_tokens=9, generator=3, top_p=0.9)
    assert ancestral(lm, [[1], [2, 3]], **options).rows == ancestral(load(model), [[1], [2, 3]], **options).rows


# -- hidden states ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "norm"), [("gpt2", "transformer.ln_f"), ("llama", "model.norm")])
def test_hidden_states_are_the_library_s(family, norm):
    model = make(family)
    lm = load(model)
    row = [1, 2, 3, 4]
    with torch.no_grad():
        _, states = fresh(model, row)
        for layer in range(lm.layers):
            torch.testing.assert_close(lm.start([row], room=1, hidden=Hidden(layer)).hidden()[0], states[layer])
        last = lm.start([row], room=1, hidden=Hidden(2, normed=True)).hidden()[0]
        torch.testing.assert_close(last, states[2])
        raw = lm.start([row], room=1, hidden=Hidden(2)).hidden()[0]
        torch.testing.assert_close(model.get_submodule(norm)(raw), states[2])


def test_hidden_states_that_do_not_exist():
    lm = load(make("gpt2"))
    with pytest.raises(ArgumentError, match="layer=3: must be a whole number from 0 to 2"):
        lm.start([[1]], room=1, hidden=Hidden(3))
    with pytest.raises(ArgumentError, match=r"only the last layer \(2\) goes through the final norm"):
        lm.start([[1]], room=1, hidden=Hidden(1, normed=True))
    mamba = quiet(make("mamba"))
    with pytest.raises(ArgumentError, match="only gives its last layer normed"), torch.no_grad():
        mamba.start([[1]], room=1, hidden=Hidden(2)).hidden()


# -- decoders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "bloom", "mamba"])
def test_greedy_is_the_library_s(family):
    model = make(family)
    lm = quiet(model)
    prompts = [[3, 4, 5], [6], [7, 8, 9, 10, 11]]
    made = greedy(lm, prompts, max_tokens=12)
    for row, prompt in enumerate(prompts):
        expected = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=12)[0].tolist()
        assert made.rows[row] == expected
    assert made.ended.tolist() == [row[-1] == 2 for row in made.rows]


def test_backtracking_sees_the_hidden_states_of_each_prefix():
    model = make("gpt-neox")
    lm = load(model, eos="none")
    direction = torch.randn(16, generator=torch.Generator().manual_seed(0))

    def judge(view):
        for row, length, state in zip(view.tokens.tolist(), view.lengths.tolist(), view.hidden, strict=True):
            expected = fresh(model, row[:length])[1][1]
            torch.testing.assert_close(state, expected, atol=1e-4, rtol=1e-4)
        return view.hidden @ direction > -1

    verifier = st.decoding.Predicate(judge, needs=Hidden(1))
    made = backtrack(lm, [[1, 2], [3], [4, 5, 6]], verifier, quota=3, stride=3, max_tokens=14, generator=0)
    assert made.backtracks.sum() > 2
    assert made.lengths.tolist() == [16, 15, 17]
    assert int(made.queries.max()) <= 14 + 9


def test_draws_follow_the_law_of_the_model():
    model = make("llama")
    made = ancestral(load(model, eos="none"), [[5, 6]] * 20_000, max_tokens=1, top_p=0.9, batch_size=5000, generator=0)
    with torch.no_grad():
        law = st.decoding.Truncation(top_p=0.9).probs(fresh(model, [5, 6])[0][None])[0]
    counts = torch.bincount(made.tokens[:, 2], minlength=SIZE) / 20_000
    assert 0.5 * (counts - law).abs().sum() < 0.02


def test_several_tokens_may_end_a_row():
    model = make("gpt2")
    model.generation_config.eos_token_id = [2, 7, 9]
    lm = load(model)
    assert (lm.eos, lm.other_ends) == (2, (7, 9))
    made = ancestral(lm, [[3, 4]] * 50, max_tokens=30, generator=0)
    ends = [row[-1] for row, ended in zip(made.rows, made.ended.tolist(), strict=True) if ended]
    assert set(ends) == {2, 7, 9}
    assert all(not {2, 7, 9} & set(row[2:-1]) for row in made.rows)


# -- loading ---------------------------------------------------------------------------------------------------------


def tokenizer(words=SIZE, **names):
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return hf.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="w0", **names)


def test_by_folder_and_from_text_to_text(tmp_path):
    make("llama").save_pretrained(tmp_path)
    tokenizer(eos_token="w2").save_pretrained(tmp_path)
    lm = st.bridges.huggingface.load(tmp_path)
    assert (lm.vocab_size, lm.eos, lm.longest, lm.layers) == (SIZE, 2, 2048, 2)
    made = ancestral(lm, ["w3 w4", "w5"], max_tokens=6)
    assert made.rows[0][:2] == [3, 4]
    words = [" ".join(f"w{token}" for token in row if token != 2) for row in made.completions]
    assert made.text == words
    other = load(str(tmp_path), dtype="float64")
    assert other.start([[1]], room=1).logits().dtype == torch.float64


def test_what_cannot_be_loaded_gets_one_clear_line(tmp_path):
    model = make("gpt2")
    bart = hf.BartConfig(vocab_size=SIZE, d_model=16, encoder_layers=1, decoder_layers=1)
    cases = [
        ("they do not belong together", lambda: load(model, tokenizer=tokenizer(SIZE + 1))),
        ("eos=23: must be a whole number from 0 to 22", lambda: load(model, eos=23)),
        ("eos='end': must be", lambda: load(model, eos="end")),
        ("encoder–decoder", lambda: load(hf.BartForConditionalGeneration(bart))),
        ("no language-model head", lambda: load(model.transformer)),
        ("is not causal", lambda: load(hf.BertLMHeadModel(hf.BertConfig(**SMALL)), eos=2)),
        ("dtype='int8': must be float32", lambda: load(model, dtype="int8")),
        ("device='gpu': must be cpu, cuda", lambda: load(model, device="gpu")),
        ("loaded without one; pass tokenizer=", lambda: greedy(load(model), ["text"], max_tokens=2)),
        ("reads at most 40", lambda: greedy(load(model), [[1] * 40], max_tokens=2)),
        ("token ids from 23 to 23", lambda: greedy(load(model), [[23]], max_tokens=2)),
        ("source=a Sequential: must be a model of transformers", lambda: load(torch.nn.Sequential(model))),
        ("no such folder", lambda: load(tmp_path / "nowhere")),
    ]
    for message, call in cases:
        with pytest.raises(ArgumentError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_damaged_weights():
    model = make("gpt2")
    model.transformer.ln_f.weight.data[3] = torch.nan
    with pytest.raises(ArgumentError, match="says NaN"):
        load(model)


def test_no_end_token():
    model = make("gpt2")
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    with pytest.raises(ArgumentError, match=r"pass eos=ID, or eos='none' to run to max_tokens"):
        load(model)
    assert load(model, tokenizer=tokenizer(eos_token="w4")).eos == 4
    made = ancestral(load(model, eos="none"), [[1]] * 8, max_tokens=50)
    assert made.lengths.tolist() == [40] * 8  # as long as the context is
    assert not made.ended.any()
