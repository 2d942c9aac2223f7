"""Encoder and decoder against Hugging Face's T5 and a plain computation; the cache against the whole; stacks."""

import math

import pytest
import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Attention

import sandtable as st
from sandtable.arguments import ArgumentError
from sandtable.inputs import EOS, LENGTH, PAD, RESERVED
from sandtable.models import Encoded, Pair, RelativeBias, Seq2Seq, Stack
from sandtable.models.seq2seq import PUBLISHED

WORDS = 9


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def small(seed=1, **options):
    """A random model in double precision, no parameter of which is at a special value."""
    make = dict(layers=2, heads=2, width=8, mlp=12, longest=24, longest_target=20, buckets=8, furthest=16)
    model = Seq2Seq(RESERVED + WORDS, **{**make, **options}).double()
    generator = rng(seed)
    for parameter in model.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64) + 0.1
    return model


def pair(rows=3, source=5, target=6, seed=2):
    """Sources and targets of several lengths, the first of each as long as there is room."""
    generator = rng(seed)
    ids = lambda n: torch.randint(RESERVED, RESERVED + WORDS, (rows, n), generator=generator)  # noqa: E731
    lengths = lambda n: torch.cat([torch.tensor([n]), torch.randint(1, n + 1, (rows - 1,), generator=generator)])  # noqa: E731
    seen = torch.arange(source) < lengths(source)[:, None]
    real = torch.arange(target) < lengths(target)[:, None]
    return Pair(ids(source).where(seen, PAD), seen, ids(target).where(real, PAD), real)


# -- against T5 ------------------------------------------------------------------------------------------------------


def as_t5(model):
    """The same weights in Hugging Face's T5; our [LENGTH] token is one of its source."""
    c = model.config
    head = c["head_width"] or c["width"] // c["heads"]
    config = transformers.T5Config(
        vocab_size=c["vocab"], d_model=c["width"], d_kv=head, d_ff=c["mlp"], num_layers=c["layers"],
        num_heads=c["heads"], relative_attention_num_buckets=c["buckets"], dropout_rate=0.0,
        relative_attention_max_distance=c["furthest"], feed_forward_proj="relu", tie_word_embeddings=True,
        decoder_start_token_id=PAD, pad_token_id=PAD, eos_token_id=EOS,
    )  # fmt: skip
    t5 = transformers.T5ForConditionalGeneration(config).double().eval()
    weights = {"shared.weight": model.embed.W_E, "lm_head.weight": model.embed.W_E}
    for side, blocks, bias, norm in (
        ("encoder", model.encoder, model.encoder_bias, model.ln_encoder),
        ("decoder", model.decoder, model.decoder_bias, model.ln_final),
    ):
        weights[f"{side}.embed_tokens.weight"] = model.embed.W_E
        weights[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = bias.W_B
        weights[f"{side}.final_layer_norm.weight"] = norm.w
        for i, block in enumerate(blocks):
            parts = [("SelfAttention", block.attn, block.ln1)]
            if side == "decoder":
                parts += [("EncDecAttention", block.cross, block.ln2)]
            for j, (name, attn, ln) in enumerate(parts):
                at = f"{side}.block.{i}.layer.{j}"
                weights[f"{at}.layer_norm.weight"] = ln.w
                for letter, weight in zip("qkv", (attn.W_Q, attn.W_K, attn.W_V), strict=True):
                    weights[f"{at}.{name}.{letter}.weight"] = weight.transpose(1, 2).flatten(0, 1)
                weights[f"{at}.{name}.o.weight"] = attn.W_O.flatten(0, 1).T
            at = f"{side}.block.{i}.layer.{len(parts)}"
            weights[f"{at}.layer_norm.weight"] = (block.ln2 if side == "encoder" else block.ln3).w
            weights[f"{at}.DenseReluDense.wi.weight"] = block.mlp.W_in.T
            weights[f"{at}.DenseReluDense.wo.weight"] = block.mlp.W_out.T
    t5.load_state_dict({name: weight.detach() for name, weight in weights.items()})
    return t5


@pytest.mark.parametrize("shape", [dict(), dict(heads=3, head_width=5, layers=1, buckets=32, furthest=128)])
def test_without_positional_attention_a_causal_model_is_t5(shape):
    model = small(causal=True, positional=False, **shape)
    t5, inputs = as_t5(model), pair(rows=4, source=19, target=20)
    start = torch.full((4, 1), LENGTH)
    seen = torch.cat([torch.ones_like(start), inputs.seen], 1).long()
    with torch.no_grad():
        logits, found = model(
            inputs, want=("hook_memory", "decoder.0.attn.hook_pattern", "decoder.0.cross.hook_pattern")
        )
        read = t5.encoder(input_ids=torch.cat([start, inputs.source], 1), attention_mask=seen).last_hidden_state
        theirs = t5(
            encoder_outputs=(read[:, 1:],),
            attention_mask=inputs.seen.long(),
            decoder_input_ids=inputs.target,
            decoder_attention_mask=inputs.real.long(),
        ).logits
    # T5 has its norms and softmaxes in single precision, whatever the weights are in.
    assert torch.allclose(found["hook_memory"][inputs.seen], read[:, 1:][inputs.seen], atol=1e-5)
    assert torch.allclose(logits[inputs.real], theirs[inputs.real], atol=1e-5)
    assert logits.std() > 0.1
    for name in ("attn", "cross"):
        pattern = found[f"decoder.0.{name}.hook_pattern"]
        assert torch.allclose(pattern.sum(-1), torch.ones(()).double())
    assert (found["decoder.0.cross.hook_pattern"].amax((1, 2))[~inputs.seen] == 0).all()
    assert (found["decoder.0.attn.hook_pattern"].triu(1) == 0).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 16), (12, 40)])
def test_buckets_are_those_of_t5(causal, buckets, furthest):
    bias = RelativeBias(2, buckets=buckets, furthest=furthest, causal=causal)
    distance = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(
        distance, bidirectional=not causal, num_buckets=buckets, max_distance=furthest
    )
    assert torch.equal(bias.bucket(distance), theirs)


# -- by hand ---------------------------------------------------------------------------------------------------------


def norm(x, weight):
    return x / (x.square().mean() + 1e-6).sqrt() * weight


def attend(part, queries, keys, values, bias):
    """One head, one query after another; bias[h][i][j] or None."""
    out = []
    for i, q in enumerate(queries):
        total = torch.zeros(part.W_O.shape[-1], dtype=torch.float64)
        for h in range(len(part.W_Q)):
            score = torch.stack([(q @ part.W_Q[h]) @ (k @ part.W_K[h]) for k in keys])
            score = score if bias is None else score + torch.stack([bias[h][i][j] for j in range(len(keys))])
            weight = score.exp() / score.exp().sum()
            total = total + sum(w * (v @ part.W_V[h]) @ part.W_O[h] for w, v in zip(weight, values, strict=True))
        out.append(total)
    return out


def mlp(part, x):
    return (x @ part.W_in).clamp(min=0) @ part.W_out


def biases(table, size, causal):
    """T5's bias of key j for query i, from Hugging Face's buckets; −∞ for what a causal decoder does not see."""
    c = table.config
    place = torch.arange(size)
    bucket = T5Attention._relative_position_bucket(
        place - place[:, None], bidirectional=not c["causal"], num_buckets=c["buckets"], max_distance=c["furthest"]
    )
    hidden = torch.where((place > place[:, None]) & causal, -math.inf, 0.0)
    return [
        [[table.W_B[bucket[i, j], h] + hidden[i, j] for j in range(size)] for i in range(size)]
        for h in range(c["heads"])
    ]


def by_hand(model, source, target):
    """Logits of one unpadded pair, and the scores of lengths, in plain vectors."""
    x = [model.embed.W_E[t] for t in (LENGTH, *source)]
    if model.W_source is not None:
        x = [x[0], *(v + model.W_source[i] for i, v in enumerate(x[1:]))]
    bias = biases(model.encoder_bias, len(x), False)
    for block in model.encoder:
        inner = [norm(v, block.ln1.w) for v in x]
        x = [v + a for v, a in zip(x, attend(block.attn, inner, inner, inner, bias), strict=True)]
        x = [v + mlp(block.mlp, norm(v, block.ln2.w)) for v in x]
    x = [norm(v, model.ln_encoder.w) for v in x]
    length, memory = x[0] @ model.W_L.T, x[1:]
    x = [model.embed.W_E[t] for t in target]
    bias = biases(model.decoder_bias, len(x), model.causal)
    for block in model.decoder:
        inner = [norm(v, block.ln1.w) for v in x]
        x = [v + a for v, a in zip(x, attend(block.attn, inner, inner, inner, bias), strict=True)]
        if block.positional is not None:
            place = [norm(v, block.ln_pos.w) for v in model.W_pos[: len(x)]]
            x = [v + a for v, a in zip(x, attend(block.positional, place, place, x, bias), strict=True)]
        inner = [norm(v, block.ln2.w) for v in x]
        x = [v + a for v, a in zip(x, attend(block.cross, inner, memory, memory, None), strict=True)]
        x = [v + mlp(block.mlp, norm(v, block.ln3.w)) for v in x]
    return torch.stack([norm(v, model.ln_final.w) @ model.embed.W_E.T / model.width**0.5 for v in x]), length


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", [dict(positional=False), dict(), dict(source_positions=True)], ids=str)
def test_padded_batches_give_what_plain_vectors_give_row_by_row(causal, positions):
    model, inputs = small(causal=causal, **positions), pair()
    with torch.no_grad():
        logits, found = model(inputs, want=("hook_length",))
        for row in range(3):
            source, target = inputs.source[row][inputs.seen[row]], inputs.target[row][inputs.real[row]]
            expected, length = by_hand(model, source.tolist(), target.tolist())
            assert torch.allclose(logits[row][inputs.real[row]], expected, atol=1e-10)
            assert torch.allclose(found["hook_length"][row], length, atol=1e-10)
            # no padding, no masks
            assert torch.allclose(model(Pair(source[None], None, target[None]))[0], expected, atol=1e-10)
        memory, _ = model.encode(inputs.source, inputs.seen)
        assert torch.equal(model(Encoded(memory, inputs.seen, inputs.target, inputs.real)), logits)


def test_published_size():
    model = Seq2Seq(**PUBLISHED)
    assert sum(parameter.numel() for parameter in model.parameters()) == 66_997_760
    without = Seq2Seq(**PUBLISHED, positional=False)
    assert sum(p.numel() for p in without.parameters()) == 66_997_760 - 6 * (4 * 512**2 + 512) - 256 * 512


def test_logits_and_scores_of_lengths_start_with_variance_one():
    model = Seq2Seq(200, width=64, heads=4, layers=2)
    with torch.no_grad():
        logits, found = model(
            Pair(*(torch.randint(4, 200, (32, 10), generator=rng()) if i % 2 == 0 else None for i in range(3))),
            want=("hook_length",),
        )
    assert logits.std() == pytest.approx(1.0, rel=0.1)
    assert found["hook_length"].std() == pytest.approx(1.0, rel=0.2)
    again = model.replace().initialise(rng(0))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


# -- one token after another -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("positional", [False, True])
def test_going_on_is_reading_the_whole(positional):
    model, inputs = small(causal=True, positional=positional), pair(rows=4, target=9)
    with torch.no_grad():
        memory, _ = model.encode(inputs.source, inputs.seen)
        whole = model(Encoded(memory, inputs.seen, inputs.target))
        progress = model.start(memory, inputs.seen, 9)
        for place in range(9):
            logits, progress = model.extend(inputs.target[:, place], progress)
            assert torch.allclose(logits, whole[:, place], atol=1e-10)
        with pytest.raises(ArgumentError, match="10 tokens"):
            model.extend(inputs.target[:, 0], progress)


@pytest.mark.parametrize("same_source", [False, True])
def test_rows_may_be_forked_and_dropped(same_source):
    model, inputs = small(causal=True), pair(rows=4)
    if same_source:
        inputs = Pair(inputs.source[:1].expand(4, -1), None, inputs.target)
    index = torch.tensor([2, 0, 2]) if not same_source else torch.tensor([3, 3, 0, 1])
    with torch.no_grad():
        memory, _ = model.encode(inputs.source, inputs.seen)
        progress, tokens = model.start(memory, inputs.seen), inputs.target[:, :3]
        for place in range(3):
            _, progress = model.extend(tokens[:, place], progress)
        progress, tokens = progress.take(index, same_source=same_source), tokens[index]
        new = torch.arange(RESERVED, RESERVED + len(index))
        logits, _ = model.extend(new, progress)
        seen = None if inputs.seen is None else inputs.seen[index]
        whole = model(Encoded(memory[index], seen, torch.cat([tokens, new[:, None]], 1)))
    assert torch.allclose(logits, whole[:, -1], atol=1e-10)


# -- activations, bad input ------------------------------------------------------------------------------------------


def test_every_activation_that_is_named_can_be_had():
    model, inputs = small(), pair()
    names = model.hook_names()
    assert {"hook_memory", "hook_length", "hook_normalized", "encoder.1.attn.hook_pattern"} <= set(names)
    assert {f"decoder.1.{part}.hook_pattern" for part in ("attn", "positional", "cross")} <= set(names)
    _, found = model(inputs, want=names)
    assert set(found) == set(names)
    pattern = found["decoder.1.cross.hook_pattern"]
    assert pattern.shape == (3, 2, 6, 5)
    with pytest.raises(ArgumentError, match=r"did you mean 'decoder\.1\.cross\.hook_pattern'"):
        model(inputs, want=("decoder.1.cross.hook_patern",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(vocab=4), "vocab=4: must be a whole number ≥ 5"),
        (dict(heads=5), "heads=5: must divide the width 48"),
        (dict(longest=10, longest_target=11), "longest_target=11: must be a whole number from 1 to 10"),
        (dict(buckets=10), "buckets=10: must be a multiple of 4"),
        (dict(furthest=32), "furthest=32: must be larger"),
        (dict(layers=0), "layers=0"),
        (dict(initial={"decoder.7.*": st.models.Constant(1.0)}), "decoder.7"),
    ],
)
def test_bad_settings_get_one_line(options, message):
    with pytest.raises(ArgumentError, match=message):
        Seq2Seq(**{"vocab": 9, **options})


def test_what_a_model_cannot_do():
    model = small()
    with pytest.raises(ArgumentError, match="causal=True"):
        model.start(torch.zeros(1, 2, 8).double())
    with pytest.raises(ArgumentError, match="25 positions: this model was built for at most longest=24"):
        model(Pair(torch.tensor([[4]]), None, torch.full((1, 25), 4)))
    with pytest.raises(ArgumentError, match="did you mean 'causal'"):
        model.replace(casual=True)
    assert model.replace(causal=True).causal
    assert model.describe()["config"]["width"] == 8


# -- stacks ----------------------------------------------------------------------------------------------------------


def test_a_stack_is_its_models():
    models, inputs = [small(seed) for seed in (1, 2, 3)], pair()
    stacked = Stack.of(*models)(inputs, want=("decoder.0.positional.hook_pattern",))
    for i, model in enumerate(models):
        logits, found = model(inputs, want=("decoder.0.positional.hook_pattern",))
        assert torch.allclose(stacked[0][i], logits, atol=1e-12)
        assert torch.allclose(
            *(x["decoder.0.positional.hook_pattern"] for x in (found, {n: v[i] for n, v in stacked[1].items()}))
        )


@pytest.mark.parametrize("causal", [False, True])
def test_training_stacked_is_training_one_by_one_and_fits_can_be_kept(causal, tmp_path):
    world = st.worlds.DropTask(symbols=6, length=3)
    model = Seq2Seq(world.vocab, layers=1, heads=2, width=8, longest=8, longest_target=4, causal=causal)
    objective = st.objectives.TeacherForcing() if causal else st.objectives.Refinement()
    options = dict(steps=4, batch_size=5, dtype="float64")
    stacked = st.fit(model, world, objective, seeds=2, chunk=2, **options)
    single = st.training.fit_single(model, world, objective, seeds=2, **options)
    for name, value in stacked.models.params.items():
        assert torch.allclose(value, single.models.params[name], atol=1e-9), name
    assert set(stacked.history) == ({"loss"} if causal else {"loss", "stage 1", "stage 2", "length"})
    stacked.save(tmp_path)
    loaded = st.training.Fit.load(tmp_path, stacked.recipe)
    batch = world.sample(3, rng())
    inputs = Pair(batch.given.x, None, batch.x, batch.mask)
    assert torch.equal(loaded[1](inputs), stacked[1](inputs))
    more = stacked.resume(steps=6)
    assert torch.equal(
        more.models["embed.W_E"],
        st.fit(model, world, objective, seeds=2, chunk=2, **{**options, "steps": 6}).models["embed.W_E"],
    )
