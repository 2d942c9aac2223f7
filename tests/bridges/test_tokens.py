"""Token corpora against plain Python counting and the tokenizers' own encodings."""

import gc
import json
from collections import Counter

import numpy as np
import pytest
import torch

import sandtable
from sandtable.arguments import ArgumentError
from sandtable.bridges import corpus, tokens
from sandtable.bridges.tokens import TextWorld, TokenCorpus
from sandtable.lab.keys import describe, fingerprint
from sandtable.models import Transformer
from sandtable.objectives import MaskedLM

TOPICS = {
    "sea": ["ship", "sail", "harbour", "wave", "tide", "anchor", "captain", "storm", "island", "fisher"],
    "kitchen": ["bread", "butter", "oven", "flour", "sugar", "recipe", "spoon", "pepper", "onion", "garlic"],
    "law": ["court", "judge", "lawyer", "verdict", "trial", "witness", "appeal", "statute", "crime", "jury"],
}


def texts(n=120, seed=0):
    """Documents of 5 to 60 words of one topic each."""
    rng = np.random.default_rng(seed)
    topics = list(TOPICS.values())
    return [" ".join(rng.choice(topics[i % 3], size=rng.integers(5, 61))) + "." for i in range(n)]


@pytest.fixture(scope="module")
def tokenizer():
    return tokens.train_tokenizer(texts(), vocab=200)


@pytest.fixture(scope="module")
def tokenized(tokenizer, tmp_path_factory):
    return tokens.tokenize(texts(), tokenizer, folder=tmp_path_factory.mktemp("tokens"))


def test_tokenizer_is_berts_kind_and_deterministic(tokenizer):
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id) == (0, 4)
    assert tokens.train_tokenizer(texts(), vocab=200).get_vocab() == tokenizer.get_vocab()
    words = {word for topic in TOPICS.values() for word in topic}
    assert words <= set(tokenizer.get_vocab())
    with_ends = tokenizer("Captain")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(with_ends) == ["[CLS]", "captain", "[SEP]"]
    assert tokenizer.decode(with_ends, skip_special_tokens=True) == "captain"


def test_tokenizer_keeps_case_if_asked():
    cased = tokens.train_tokenizer(["Paris paris"] * 5, vocab=60, lowercase=False)
    assert {"Paris", "paris"} <= set(cased.get_vocab())


def test_tokenizer_of_nothing():
    with pytest.raises(ArgumentError, match="empty corpus"):
        tokens.train_tokenizer([])
    with pytest.raises(ArgumentError, match="vocab=3"):
        tokens.train_tokenizer(texts(), vocab=3)


def test_an_error_of_the_corpus_comes_through(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("good words here\n" * 20)
    (tmp_path / "b.txt").write_bytes(b"bad\0words")
    source = corpus.load(tmp_path, separator="line", least_words=1)
    with pytest.raises(ArgumentError, match="binary"):
        tokens.train_tokenizer(source)
    with pytest.raises(ArgumentError, match="binary"):
        tokens.tokenize(source, tokenizer, folder=tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_documents_are_the_tokenizers_encodings(tokenized, tokenizer):
    assert len(tokenized) == 120
    for i in (0, 1, 77, 119):
        assert tokenized.document(i).tolist() == tokenizer(texts()[i], add_special_tokens=False)["input_ids"]
    assert tokenized.vocab_size == len(tokenizer)
    assert tokenized.words == tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    assert tokenized.special == set(range(5))
    assert tokenized.ids.dtype == np.int32
    assert tokenized.offsets.dtype == np.int64
    with pytest.raises(ArgumentError, match="i=120"):
        tokenized.document(120)


@pytest.mark.parametrize("size", [1, 7, 120, 4096])
def test_counts_in_chunks(tokenized, size):
    chunks = list(tokenized.count_chunks(size))
    assert [c.shape[0] for c in chunks[:-1]] == [size] * (len(chunks) - 1)
    dense = np.concatenate([c.toarray() for c in chunks])
    assert np.array_equal(dense, tokenized.counts().toarray())
    for i in range(len(tokenized)):
        expected = Counter(tokenized.document(i).tolist())
        assert {j: dense[i, j] for j in np.flatnonzero(dense[i])} == expected


def test_batches_cut_and_pad(tokenized):
    rows = []
    for ids, mask in tokenized.batches(longest=30, size=50):
        assert ids.dtype == torch.int64
        assert mask.sum(1).max() == ids.shape[1] <= 30
        assert (ids[~mask] == tokenized.pad_id).all()
        rows += [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    assert rows == [tokenized.document(i)[:30].tolist() for i in range(len(tokenized))]


def test_longest_cuts_and_progress_counts(tokenizer):
    calls = []
    cut = tokens.tokenize(texts(600), tokenizer, longest=10, progress=lambda *numbers: calls.append(numbers))
    lengths = np.diff(cut.offsets)
    full = [len(row) for row in tokenizer(texts(600), add_special_tokens=False)["input_ids"]]
    assert lengths.tolist() == [min(10, n) for n in full]
    assert calls[-1] == (600, lengths.sum())
    assert len(calls) == 3


def test_temporary_folder_goes_with_the_object(tokenizer):
    made = tokens.tokenize(texts(), tokenizer)
    folder = made.folder
    assert folder.is_dir()
    del made
    gc.collect()
    assert not folder.exists()


def test_open_gives_the_same_and_writing_again_replaces(tmp_path, tokenizer):
    first = tokens.tokenize(texts(), tokenizer, folder=tmp_path)
    again = TokenCorpus.open(tmp_path)
    assert again.digest == first.digest
    assert np.array_equal(again.ids, first.ids)
    assert np.array_equal(again.offsets, first.offsets)
    assert (again.words, again.special, again.mask_id) == (first.words, first.special, first.mask_id)
    (tmp_path / "ids-of-mine.bin").write_bytes(b"kept")
    other = tokens.tokenize(texts(seed=1), tokenizer, folder=tmp_path)
    assert TokenCorpus.open(tmp_path).digest == other.digest != first.digest
    assert len(list(tmp_path.iterdir())) == 4
    assert first.document(0).tolist() == tokenizer(texts()[0], add_special_tokens=False)["input_ids"]


def test_digest_is_of_the_content(tmp_path, tokenizer):
    one, two = (tokens.tokenize(texts(), tokenizer, folder=tmp_path / name) for name in "ab")
    assert one.digest == two.digest
    joined = tokens.tokenize([" ".join(texts())], tokenizer)
    assert np.array_equal(joined.ids, one.ids)
    assert joined.digest != one.digest


def damage(kind):
    def change(folder):
        file = next(folder.glob(f"{kind}*"))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    return change


def edit(**changes):
    def change(folder):
        meta = json.loads((folder / "tokens.json").read_text())
        (folder / "tokens.json").write_text(json.dumps(meta | changes))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage("ids"), "checksum"),
        (damage("offsets"), "checksum"),
        (lambda folder: next(folder.glob("ids*")).unlink(), "missing"),
        (lambda folder: (folder / "tokens.json").unlink(), "not a token corpus, tokens.json is missing"),
        (lambda folder: (folder / "tokens.json").write_text("{"), "damaged"),
        (lambda folder: (folder / "tokens.json").write_text("[]"), "damaged"),
        (edit(format=99), "format 99"),
        (edit(tokens=5), "checksum"),
    ],
)
def test_damaged_folders(tmp_path, tokenizer, change, message):
    tokens.tokenize(texts(), tokenizer, folder=tmp_path)
    change(tmp_path)
    with pytest.raises(ArgumentError, match=message) as caught:
        TokenCorpus.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_folder_that_is_a_file(tmp_path, tokenizer):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArgumentError, match="cannot be written"):
        tokens.tokenize(texts(), tokenizer, folder=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_nothing_to_tokenize(tokenizer):
    with pytest.raises(ArgumentError, match="empty corpus"):
        tokens.tokenize(["", "  "], tokenizer)


def test_python_tokenizer_without_mask_token():
    from transformers import ByT5Tokenizer

    made = tokens.tokenize(["ab", "", "xyz"], ByT5Tokenizer())
    assert [made.document(i).tolist() for i in range(2)] == [[ord(c) + 3 for c in word] for word in ("ab", "xyz")]
    assert made.mask_id is None
    with pytest.raises(ArgumentError, match="no mask token") as caught:
        TextWorld(made)
    assert "\n" not in str(caught.value)
    batch = TextWorld(made, length=2, masked=False).sample(4, torch.Generator())
    with pytest.raises(ArgumentError, match="mask token"):
        MaskedLM().draw(batch, torch.Generator(), 0)


# -- the world -------------------------------------------------------------------------------------------------------


def test_windows_are_pieces_of_documents(tokenized):
    world = TextWorld(tokenized, length=25)
    batch = world.sample(300, torch.Generator().manual_seed(1))
    assert batch.mask is not None
    for row, real, i, start in zip(batch.x, batch.mask, *batch.latents.values(), strict=True):
        document = tokenized.document(int(i))
        assert row[real].tolist() == document[start : start + 25].tolist()
        assert real.sum() == min(25, len(document))
    assert not batch.mask.all()
    assert (batch.x[~batch.mask] == tokenized.pad_id).all()


def test_law_of_windows(tokenizer):
    """Two documents, 3 and 6 words, windows of 4: probabilities 3/9, and 6/9 shared by three starts."""
    made = tokens.tokenize(["bread oven flour", "ship sail wave tide anchor storm"], tokenizer)
    assert np.diff(made.offsets).tolist() == [3, 6]
    batch = TextWorld(made, length=4).sample(20_000, torch.Generator().manual_seed(0))
    counts = Counter(zip(batch.latents["document"].tolist(), batch.latents["start"].tolist(), strict=True))
    expected = {(0, 0): 3 / 9, (1, 0): 2 / 9, (1, 1): 2 / 9, (1, 2): 2 / 9}
    assert counts.keys() == expected.keys()
    assert sum(abs(counts[k] / 20_000 - p) for k, p in expected.items()) / 2 < 0.02


def test_sample_each_is_sampling_one_by_one(tokenized):
    world = TextWorld(tokenized, length=20)
    both = world.sample_each(5, [torch.Generator().manual_seed(s) for s in (3, 4)])
    assert isinstance(world, sandtable.worlds.SamplesEach)
    for i, s in enumerate((3, 4)):
        one = world.sample(5, torch.Generator().manual_seed(s))
        assert torch.equal(both.x[5 * i : 5 * i + 5], one.x)
        assert torch.equal(both.latents["document"][5 * i : 5 * i + 5], one.latents["document"])
    assert len(world.sample(0, torch.Generator())) == 0


def test_store_key(tokenized, tmp_path, tokenizer):
    world = TextWorld(tokenized, length=20)
    same = TextWorld(tokens.tokenize(texts(), tokenizer, folder=tmp_path), length=20)
    assert fingerprint(world) == fingerprint(same)
    assert str(tokenized.folder) not in json.dumps(describe(world))
    others = [TextWorld(tokenized, length=21), TextWorld(tokens.tokenize(texts(seed=2), tokenizer), length=20)]
    assert len({fingerprint(w) for w in [world, *others]}) == 3


def test_fit_learns_from_text(tokenized):
    world = TextWorld(tokenized, length=24)
    model = Transformer(world.vocab, layers=2, heads=2, width=16, positions="learned", longest=24)
    fit = sandtable.fit(model, world, MaskedLM(), steps=60, batch_size=16, seeds=2, chunk=2)
    losses = sandtable.evaluate(fit.models, world, MaskedLM(), batches=4, batch_size=32)
    untrained = sandtable.fit(model, world, MaskedLM(), steps=0, batch_size=16, seeds=2, chunk=2)
    before = sandtable.evaluate(untrained.models, world, MaskedLM(), batches=4, batch_size=32)
    assert (torch.as_tensor(losses) < torch.as_tensor(before) - 0.3).all()
