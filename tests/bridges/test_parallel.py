"""Parallel text from files and data sets: aligned, tokenised without loss, trained on and translated."""

import gzip

import numpy as np
import pytest
import torch

import sandtable as st
from sandtable.arguments import ArgumentError
from sandtable.bridges import parallel
from sandtable.bridges.parallel import Pairs, ParallelText, load, read_dataset, read_files, train_bpe
from sandtable.inputs import EOS, LENGTH, MASK, PAD, RESERVED
from sandtable.lab.keys import describe

NUMBERS = ("eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht")
ENGLISH = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def sentences(n=60, seed=0):
    rng = np.random.default_rng(seed)
    picks = [rng.integers(8, size=rng.integers(1, 5)) for _ in range(n)]
    return [" ".join(NUMBERS[i] for i in p) for p in picks], [" ".join(ENGLISH[i] for i in p) for p in picks]


@pytest.fixture
def files(tmp_path):
    def write(left, right, suffix=".txt"):
        paths = [tmp_path / f"{side}{suffix}" for side in ("de", "en")]
        for path, lines in zip(paths, (left, right), strict=True):
            with (gzip.open if suffix.endswith("gz") else open)(path, "wt", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
        return paths

    return write


@pytest.fixture(scope="module")
def numbers():
    left, right = sentences()
    return load(Pairs("numbers", lambda: iter(zip(left, right, strict=True))), vocab=320)


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".txt", ".gz"])
def test_lines_stay_together_and_blank_ones_go(files, suffix):
    left = ["Guten  Tag!", "", "nur\tso", "übrig", "  "]
    right = ["Hello!", "nothing there", "just so", " ", "or there"]
    pairs = read_files(*files(left, right, suffix))
    assert list(pairs) == [("Guten Tag!", "Hello!"), ("nur so", "just so")]
    assert list(pairs) == list(pairs)
    assert list(read_files(*files(left, right, suffix), limit=1)) == [("Guten Tag!", "Hello!")]


def test_data_sets_with_records_within_records(tmp_path):
    import datasets

    left, right = sentences(5)
    rows = [{"translation": {"de": a, "en": b}, "id": i} for i, (a, b) in enumerate(zip(left, right, strict=True))]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "nested"))
    assert list(read_dataset(tmp_path / "nested", "translation.de", "translation.en")) == list(
        zip(left, right, strict=True)
    )
    flat = datasets.Dataset.from_dict({"a.b": left, "c": right})
    datasets.DatasetDict(train=flat, test=flat.select([1])).save_to_disk(str(tmp_path / "flat"))
    assert list(read_dataset(tmp_path / "flat", "a.b", "c", split="test")) == [(left[1], right[1])]
    for source, message in (
        ("translation.fr", "field='fr': not in data set"),
        ("translations.de", "field='de': not in data set"),
        ("id", "must be text"),
        ("text", "field='text': not in data set .*, whose fields are translation, id"),
    ):
        with pytest.raises(ArgumentError, match=message):
            list(read_dataset(tmp_path / "nested", source, "translation.en"))
    with pytest.raises(ArgumentError, match="split='dev': must be one of train, test"):
        read_dataset(tmp_path / "flat", "a.b", "c", split="dev")
    with pytest.raises(ArgumentError, match="no path or reachable data set"):
        read_dataset(str(tmp_path / "none"), "a", "b")


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (["a", "b", "c"], ["a", "b"], r"en\.txt' ends after 2 lines, but '.*de\.txt' goes on: must be pairs"),
        (["a"], ["a", "b"], r"de\.txt' ends after 1 lines"),
        ([], [], "empty, there is no pair of sentences"),
        (["", " "], ["", "x"], "empty, there is no pair of sentences"),
        (["a" * 2**20], ["b"], "line 1 has more than 1,048,576 characters"),
        (["a\0"], ["b"], "a binary file"),
    ],
)
def test_bad_files_get_one_line(files, left, right, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        load(read_files(*files(left, right)))
    assert "\n" not in str(caught.value)


def test_other_mistakes_get_one_line(tmp_path, numbers):
    pairs = Pairs("one", lambda: iter([("ein Satz", "a sentence")]))
    word = st.bridges.tokens.train_tokenizer(["a sentence of some words"] * 3, vocab=40)
    word.save_pretrained(tmp_path / "foreign")
    for make, message in (
        (lambda: read_files(tmp_path / "no.de", tmp_path / "no.en"), r"no\.de': no such file"),
        (lambda: Pairs("x", lambda: iter([]), limit=0), "limit=0"),
        (lambda: load(pairs, vocab=100), "vocab=100: must be a whole number ≥ 260"),
        (lambda: load(pairs, longest=1), "longest=1"),
        (lambda: load(pairs, vocab=260, longest=3), "longest=3, ratio=None: leaves none of 1 pairs; the shortest has"),
        (lambda: load(pairs, vocab=260, ratio=0.5), "ratio=0.5"),
        (lambda: load(pairs, tokenizer=tmp_path / "foreign"), "does not begin with ⟨pad⟩"),
        (lambda: ParallelText.open(tmp_path), "holds no parallel text"),
        (lambda: numbers.split(len(numbers)), f"held={len(numbers)}: must be a whole number from 1 to"),
        (lambda: numbers.encode(["eins", "  "]), "text 1: is empty"),
        (lambda: numbers.encode([]), "is empty"),
        (lambda: numbers.sample(0, torch.Generator()), "n=0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            make()


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_special_tokens_come_first_and_no_text_is_lost(numbers):
    assert numbers.vocab.tokens[:RESERVED] == ("⟨pad⟩", "⟨eos⟩", "⟨mask⟩", "⟨length⟩")
    assert (PAD, EOS, MASK, LENGTH) == (0, 1, 2, 3)
    assert len(numbers.vocab) <= 320
    assert numbers.vocab.mask == MASK
    texts = ["fünf sechs", "Nie gesehen: 你好 ☃ — «x» ?", "a , b .", "⟨eos⟩ and ⟨mask⟩ inside", "do n't 's"]
    ids, seen = numbers.encode(texts)
    assert numbers.decode(ids) == texts
    assert (ids[~seen] == PAD).all()
    assert (ids[seen] >= RESERVED).all()
    pairs = load(Pairs("special", lambda: iter([("a ⟨eos⟩ b", "⟨pad⟩ ⟨length⟩")])), vocab=260)
    batch = pairs.batch()
    assert (batch.given.x >= RESERVED).all()
    assert pairs.decode(batch.x) == ["⟨pad⟩ ⟨length⟩"]


def test_training_a_tokenizer_twice_gives_the_same():
    left, right = sentences(200)
    first, second = (train_bpe(left + right, vocab=300).get_vocab() for _ in range(2))
    assert first == second
    assert len(first) > 280  # merges were learnt


def test_batches_hold_whole_pairs(numbers):
    left, right = sentences()
    batch = numbers.batch()
    assert len(batch) == len(numbers) == 60
    assert numbers.decode(batch.given.x) == left
    assert numbers.decode(batch.x) == right
    n = batch.mask.sum(1)
    assert (batch.x.gather(1, n[:, None] - 1) == EOS).all()
    assert ((batch.x == EOS).sum(1) == 1).all()
    assert (batch.x[~batch.mask] == PAD).all()
    assert batch.mask.any(0).all()
    assert batch.given.mask.any(0).all()
    assert torch.equal(batch.latents["length"], n)
    some = numbers.sample(500, torch.Generator().manual_seed(0))
    assert torch.equal(some.x, batch.x[some.latents["pair"]])
    assert torch.equal(some.given.x, batch.given.x[some.latents["pair"]])
    assert len(some.latents["pair"].unique()) > 50
    assert numbers.decode(numbers.batch([3, 1]).x) == [right[3], right[1]]


def test_long_and_unequal_pairs_are_left_out(files):
    left = ["a b c", "a b c d e f g h", "a", "a b c d e f"]
    right = ["a b c", "a b", "a b c d", "a b c d e f"]
    paths = files(left, right)
    one = load(read_files(*paths), vocab=260)  # bytes: a token for every letter and blank
    n = [2 * len(text.split()) for text in left]
    assert one.batch().given.mask.sum(1).tolist() == n
    assert one.dropped == 0
    short = load(read_files(*paths), vocab=260, longest=8)
    assert short.decode(short.batch().given.x) == ["a b c"]
    short = load(read_files(*paths), vocab=260, longest=9)
    assert short.decode(short.batch().given.x) == ["a b c", "a"]
    assert short.dropped == 2
    assert short.longest_target == 9
    alike = load(read_files(*paths), vocab=260, ratio=2)
    assert alike.decode(alike.batch().x) == ["a b c", "a b c d e f"]


def test_parts_kept_aside_and_kept_on_disk(tmp_path):
    left, right = sentences()
    pairs = Pairs("numbers", lambda: iter(zip(left, right, strict=True)))
    whole = load(pairs, vocab=300, folder=tmp_path / "pairs")
    here, there = whole.split(10, seed=1)
    assert (len(here), len(there)) == (50, 10)
    assert not set(here.rows) & set(there.rows)
    again = ParallelText.open(tmp_path / "pairs")
    assert torch.equal(again.batch().x, whole.batch().x)
    assert describe(again) == describe(whole) != describe(here)
    other = load(pairs, tokenizer=tmp_path / "pairs" / "tokenizer")
    assert describe(other) == describe(whole)
    folder = other.source.folder
    assert folder.is_dir()
    del other
    assert not folder.parent.exists()


# -- training and translating ----------------------------------------------------------------------------------------


def test_a_refiner_is_trained_and_translates(numbers):
    here, there = numbers.split(8)
    size = max(numbers.longest_source, numbers.longest_target)
    model = st.models.Seq2Seq(numbers.vocab, layers=1, heads=2, width=16, longest=size + 1, longest_target=size)
    fit = st.fit(model, here, st.objectives.Refinement(), steps=3, batch_size=8, chunk=1)
    assert fit.losses.shape == (1, 3)
    batch = there.batch()
    out = st.decoding.translate(
        st.decoding.refine, fit[0], batch.given.x, seen=batch.given.mask, generator=0, batch_size=3
    )
    texts = there.decode(out.tokens)
    assert len(texts) == 8
    assert 0 <= st.decoding.bleu(texts, there.decode(batch.x)).score < 100
    assert st.decoding.bleu(there.decode(batch.x), there.decode(batch.x)).score == pytest.approx(100)


def test_the_room_offers_it():
    assert st.bridges.parallel is parallel
