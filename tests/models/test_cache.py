"""Going on from a cache gives what reading the whole row gives: against `forward` and against Hugging Face."""

import itertools

import pytest
import torch
from test_transformer import as_gpt2, as_llama, drawn, rng, same

from sandtable.arguments import ArgumentError
from sandtable.models import Block, Cache, SoftmaxAttention, Transformer, UniformAttention


def small(**options):
    make = dict(
        layers=2, heads=2, width=8, mlp=6, norm="pre", biases=True, causal=True, positions="learned", longest=24
    )
    return drawn(Transformer(11, **{**make, **options}))


def read(model, ids, length):
    """Prefill of right-padded prompts: the cache and the logits at the last real token of every row."""
    cache = Cache(model, *ids.shape)
    places = torch.arange(ids.shape[1]).expand_as(ids)
    return cache, model.extend(ids, places, cache, at=length - 1)


def walk(model, whole, *, steps=30, most=20, seed=0):
    """Ragged rows go on and rewind, each by its own amount, with other tokens each time; `whole(row)` is the truth."""
    generator = rng(seed)
    length = torch.tensor([3, 6, 1, 5])
    ids = torch.randint(model.size, (4, 40), generator=generator)
    cache, logits = read(model, ids[:, :6], length)
    for _ in range(steps):
        for row in range(4):
            with torch.no_grad():
                yield logits[row], whole(ids[row : row + 1, : length[row]])[0, -1]
        back = torch.randint(0, 4, (4,), generator=generator) * (torch.rand(4, generator=generator) < 0.4)
        length = (length - back).clamp(min=0, max=most - 1)
        new = torch.randint(model.size, (4, 1), generator=generator)
        ids.scatter_(1, length[:, None], new)
        logits = model.extend(new, length[:, None], cache)[:, 0]
        length = length + 1


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(attention="uniform"),
        dict(norm_kind="rms", mlp_kind="gated", positions="rotary", biases=False),
        dict(positions=None, longest=None, norm="post", mlp=None),
        dict(positions="sinusoidal", embedding_norm=True, tied=False, head_bias=True),
        dict(
            embedding="one-hot", width=None, heads=1, positions=None, longest=None, norm=None, residual=False, layers=1
        ),
        dict(embedding="one-hot", width=None, heads=1, output=False, biases=False, mlp=None, attention="uniform"),
    ],
    ids=["plain", "uniform", "llama", "no-positions", "sinusoidal", "one-hot", "theory"],
)
def test_rows_that_go_on_and_rewind_are_as_if_read_whole(options):
    model = small(**options)
    for ours, whole in walk(model, model):
        same(ours, whole, 1e-12 * max(1.0, float(whole.abs().max())))


@pytest.mark.parametrize(("load", "most", "atol"), [(as_gpt2, 9, 1e-10), (as_llama, 24, 1e-5)])
def test_hugging_face_token_by_token_and_rewound(load, most, atol):
    theirs, ours = load()
    for logits, whole in walk(ours, lambda ids: theirs(ids).logits, most=most):
        same(logits, whole, atol)


def test_many_tokens_at_once_and_every_activation():
    model = small()
    ids = torch.randint(11, (3, 12), generator=rng(4))
    want = [name for name in model.hook_names() if "attn" not in name and name != "hook_pos_embed"]
    logits, found = model(ids, want=want)
    cache = Cache(model, 3, 2)
    for first, last in itertools.pairwise((0, 1, 5, 6, 12)):
        places = torch.arange(first, last).expand(3, -1)
        ours, mine = model.extend(ids[:, first:last], places, cache, want=(*want, "blocks.1.attn.hook_pattern"))
        same(ours, logits[:, first:last], 1e-12)
        for name in want:
            same(mine[name], found[name][:, first:last], 1e-12)
        assert mine["blocks.1.attn.hook_pattern"].shape == (3, 2, last - first, last)
    with pytest.raises(ArgumentError, match=r"did you mean 'blocks\.0.hook_resid_post'"):
        model.extend(ids, torch.arange(12).expand(3, -1), cache, want=("blocks.0.hook_resid_pst",))


def test_blocks_of_different_width():
    blocks = [
        Block(SoftmaxAttention(6, heads=3, head_width=4, out_width=10, causal=True), residual=False),
        Block(UniformAttention(10, heads=2, causal=True), norm="pre"),
    ]
    model = drawn(Transformer(6, embedding="one-hot", tied=False, blocks=blocks))
    for ours, whole in walk(model, model):
        same(ours, whole, 1e-12 * max(1.0, float(whole.abs().max())))


def test_rows_are_forked_dropped_and_reordered():
    model = small()
    ids = torch.randint(11, (3, 7), generator=rng(1))
    cache, _ = read(model, ids, torch.tensor([7, 4, 5]))
    rows, length = torch.tensor([2, 0, 2, 2]), torch.tensor([5, 7, 5, 3])
    fork = cache.take(rows)
    new = torch.tensor([[1], [2], [3], [4]])
    logits = model.extend(new, length[:, None], fork)[:, 0]
    for row in range(4):
        kept = ids[rows[row], : length[row]]
        same(logits[row], model(torch.cat([kept, new[row]])[None])[0, -1], 1e-12)
    # The rows it was taken from have not moved.
    same(
        model.extend(new[:3], torch.tensor([[7], [4], [5]]), cache)[0, 0],
        model(torch.cat([ids[0], new[0]])[None])[0, -1],
    )
    assert cache.take(torch.tensor([], dtype=torch.long)).rows == 0


def test_growing_keeps_what_was_read_and_doubles():
    model = small(positions=None, longest=None)
    ids = torch.randint(11, (2, 40), generator=rng(2))
    cache, whole, sizes = Cache(model, 2, 1), model(ids), []
    for i in range(40):
        same(model.extend(ids[:, i : i + 1], torch.full((2, 1), i), cache)[:, 0], whole[:, i], 1e-12)
        sizes.append(cache.capacity)
    assert sorted(set(sizes)) == [1, 2, 4, 8, 16, 32, 64]
    bounded = Cache(small(), 2, 100)
    assert bounded.capacity == 24
    bounded = Cache(small(), 2, 20)
    bounded.grow(21)
    assert bounded.capacity == 24


def test_other_precisions_and_inference_mode():
    model = small().float()
    ids = torch.randint(11, (2, 5), generator=rng(3))
    with torch.inference_mode():
        cache, logits = read(model, ids, torch.tensor([5, 5]))
        fork = cache.take(torch.tensor([1, 0]))
        fork.grow(9)
    assert logits.dtype == cache.values[0].dtype == torch.float32
    again = model.extend(ids[:, 4:], torch.full((2, 1), 4), cache)
    assert not again.requires_grad
    same(again[:, 0], logits, 1e-5)
    same(model.extend(ids.flip(0)[:, 4:], torch.full((2, 1), 4), fork)[:, 0], logits.flip(0), 1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m, c: small(causal=False).extend(*token(0), c), "only a causal model"),
        (lambda m, c: m.extend(*token(24), c), r"positions from 24 to 24: must be from 0 to 23 \(longest=24\)"),
        (lambda m, c: m.extend(*token(-1), c), "positions from -1 to -1"),
        (lambda m, c: m.extend(token(0)[0], torch.zeros(2, dtype=torch.long), c), r"positions of shape \(2,\)"),
        (lambda m, c: m.extend(*token(0), Cache(m, 3, 4)), "ids with 2 rows: the cache has 3"),
        (
            lambda m, c: m.extend(*token(0), c, at=torch.tensor([0, 1])),
            r"at=\[0, 1\]: must name one of the 1 new tokens",
        ),
        (lambda m, c: c.take(torch.tensor([0, 2])), "index from 0 to 2: the cache has 2 rows"),
        (lambda m, c: c.take(torch.tensor([True, False])), "must be a list of row numbers"),
        (lambda m, c: Cache(m, 2, 0), "capacity=0"),
        (lambda m, c: Cache(m, -1, 4), "rows=-1"),
    ],
)
def test_what_is_refused(call, said):
    model = small()
    with pytest.raises(ArgumentError, match=said) as caught:
        call(model, Cache(model, 2, 4))
    assert "\n" not in str(caught.value)


def token(position):
    return torch.zeros(2, 1, dtype=torch.long), torch.full((2, 1), position)
