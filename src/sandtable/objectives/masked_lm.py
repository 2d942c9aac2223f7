"""Masked language modelling with the (p_m, p_c, p_r) scheme."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of
from sandtable.inputs import Bag, Documents, Tokens
from sandtable.objectives.base import Apply, Example, OneForward, Params
from sandtable.worlds import Batch, BertMasking, Expectation
from sandtable.worlds.base import bulk_generator

LOSSES = ("cross-entropy", "squared")
FORMS = ("positions", "types", "documents")


def soft_loss(kind: str, logits: Float[Tensor, "row vocab"], target: Float[Tensor, "row vocab"]) -> Tensor:
    """Σ_r Σ_w target[r, w] · ℓ(logits[r], e_w): rows with a weighted distribution of targets."""
    weight = target.sum(-1)
    if kind == "squared":
        return (weight * (logits.square().sum(-1) + 1)).sum() - 2 * (target * logits).sum()
    return (weight * logits.logsumexp(-1)).sum() - (target * logits).sum()


def hard_loss(
    kind: str, logits: Float[Tensor, "row vocab"], target: Int[Tensor, " row"], weight: Float[Tensor, " row"]
) -> Tensor:
    """Σ_r weight[r] · ℓ(logits[r], e_target[r]); ℓ is ‖f − e_w‖² or −log softmax(f)_w."""
    hit = logits.gather(-1, target[:, None])[:, 0]
    whole = logits.square().sum(-1) + 1 - hit if kind == "squared" else logits.logsumexp(-1)
    return (weight * (whole - hit)).sum()


@dataclass(frozen=True)
class MaskedLM(OneForward):
    """L = E_X E_M (1/|M|) Σ_{j∈M} ℓ(f(X̃)_j, X_j), ℓ the cross-entropy or the squared distance (summed over outputs).

    Positions enter M with probability `select`; there the model sees the true word (`keep`), a random word (`random`)
    or [MASK]. `form` says how documents reach the model, all three exactly the same loss where they apply:

    - "positions": tokens in their places, for any model;
    - "types": counts of token types and one row per (document, visible token) — one layer without positions;
    - "documents": one row per document — the same with attention that ignores the query.

    `hide_selected` also hides the keys of all selected positions from attention. A batch whose mask selects more
    positions than fit in 7 standard deviations above the mean is drawn again (probability below 1e-11).
    """

    select: float = 0.15
    keep: float = 0.1
    random: float = 0.1
    error: str = "cross-entropy"
    form: str = "positions"
    hide_selected: bool = False

    def __post_init__(self) -> None:
        BertMasking(self.select, self.keep, self.random)
        one_of("error", self.error, LOSSES)
        one_of("form", self.form, FORMS)

    @property
    def masking(self) -> BertMasking:
        return BertMasking(self.select, self.keep, self.random)

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        block = self.draw_block(batch.fold(1), generator, range(step, step + 1))
        return torch.utils._pytree.tree_map(lambda tensor: tensor[0], block)

    def draw_block(self, batch: Batch, generator: torch.Generator, steps: range) -> Example:
        """One Example for every step; `batch` has leading dimensions (step, document)."""
        vocab = batch.vocab
        if vocab is None or vocab.mask is None or batch.x.is_floating_point():
            raise ArgumentError("MaskedLM: needs a world of tokens whose vocabulary has a mask token")
        shape = batch.x.shape
        x = batch.x.reshape(-1, shape[-1]).numpy()
        real = np.ones(x.shape, dtype=bool) if batch.mask is None else batch.mask.reshape(x.shape).numpy()
        masks = _Masks.draw(self.masking, x, real, shape[0], len(vocab), vocab.mask, bulk_generator(generator))
        keys = real
        if self.hide_selected:
            keys = real.copy()
            keys.reshape(-1)[masks.index] = False
        if self.form == "positions":
            return masks.by_position(keys, shape)
        return masks.by_type(keys, shape, merge_all=self.form == "documents")

    def expect(self, expectation: Expectation) -> Example:
        """The infinite-document limit: a document is its word distribution P, its masked version a P + noise."""
        vocab, words = expectation.batch.vocab, expectation.batch.x
        if vocab is None or vocab.mask is None or not words.is_floating_point():
            raise ArgumentError("MaskedLM: an expectation must be over word distributions with a mask token")
        if self.form == "positions":
            raise ArgumentError("form='positions': an infinite document has no positions; use 'types' or 'documents'")
        uniform = torch.ones_like(words[0])
        uniform[vocab.mask] = 0
        uniform /= uniform.sum()
        mask = torch.zeros_like(uniform)
        mask[vocab.mask] = 1
        seen = words
        if not self.hide_selected:
            shown = self.keep * words + self.random * uniform + self.masking.hide * mask
            seen = (1 - self.select) * words + self.select * shown
        soft = expectation.weights[:, None] * words
        if self.form == "documents":
            return {"inputs": Documents(seen), "soft": soft}
        # Row (document, q): the joint weight of "true word w, shown q".
        diagonal = torch.eye(len(vocab), dtype=words.dtype)
        shows = self.keep * diagonal + self.random * uniform[:, None] + self.masking.hide * mask[:, None]
        joint = soft[:, None, :] * shows
        rows = torch.arange(len(words)).repeat_interleave(len(vocab))
        queries = torch.arange(len(vocab)).repeat(len(words))
        return {"inputs": Bag(seen, rows, queries), "soft": joint.flatten(0, 1)}

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        logits = apply(params, example["inputs"])
        if self.form == "positions":
            logits = logits.flatten(0, 1).index_select(0, example["row"])
        total = torch.zeros((), dtype=logits.dtype, device=logits.device)
        soft = 0
        if "soft" in example:
            soft = example["soft"].shape[-2]
            total = total + soft_loss(self.error, logits[:soft], example["soft"])
        if "target" in example:
            total = total + hard_loss(self.error, logits[soft:], example["target"], example["weight"])
        return total, {}


@dataclass
class _Masks:
    """Masks for several steps of documents: flat `index` of the selected positions and what is `shown` there."""

    x: np.ndarray
    visible: np.ndarray
    index: np.ndarray
    shown: np.ndarray
    size: np.ndarray  # selected positions of every document
    room: tuple[int, int]  # rows a step may need: for all selected positions, for those that show a word
    vocab: int
    mask: int

    @classmethod
    def draw(cls, law: BertMasking, x, real, steps: int, vocab: int, mask: int, rng: np.random.Generator) -> _Masks:
        if not real.any(axis=1).all():
            raise ArgumentError("MaskedLM: a document without words has nothing to predict")
        documents = len(x) // steps
        room = _room(documents, x.shape[1], law)
        chosen = np.zeros(x.shape, dtype=bool)
        again = np.ones(len(x), dtype=bool)
        while again.any():
            chosen[again] = _select(rng, real[again], law.select)
            index = np.flatnonzero(chosen)
            size = np.bincount(index // x.shape[1], minlength=len(x))
            kind = rng.random(len(index))
            shows = np.bincount(index[kind < law.keep + law.random] // x.shape[1], minlength=len(x))
            over = (size.reshape(steps, -1).sum(1) > room[0]) | (shows.reshape(steps, -1).sum(1) > room[1])
            again = (size == 0) | np.repeat(over, documents)
        word = rng.integers(0, vocab - 1, len(index))
        word += word >= mask
        true = x.reshape(-1)[index]
        shown = np.where(kind < law.keep, true, np.where(kind < law.keep + law.random, word, mask))
        visible = x.copy()
        visible.reshape(-1)[index] = shown
        return cls(x, visible, index, shown, size, room, vocab, mask)

    @property
    def weight(self) -> np.ndarray:
        """1 / (documents of the step × |M|) for every selected position."""
        document = self.index // self.x.shape[1]
        return (1.0 / self.size[document]).astype(np.float32)

    def by_position(self, keys: np.ndarray, shape: torch.Size) -> Example:
        steps, documents, longest = shape
        per_step = documents * longest
        place = _pack(self.index // per_step, steps, self.room[0])
        out = _rows(steps, self.room[0])
        true = self.x.reshape(-1)[self.index]
        for name, values in (
            ("row", self.index % per_step),
            ("target", true),
            ("weight", self.weight / documents),
        ):
            out[name].reshape(-1)[place] = values
        return {
            "inputs": Tokens(torch.from_numpy(self.visible.reshape(shape)), torch.from_numpy(keys.reshape(shape))),
            **{name: torch.from_numpy(values) for name, values in out.items()},
        }

    def by_type(self, keys: np.ndarray, shape: torch.Size, *, merge_all: bool) -> Example:
        steps, documents, longest = shape
        V = self.vocab
        flat = np.arange(len(self.x))[:, None] * V + self.visible
        counts = np.bincount(flat[keys], minlength=len(self.x) * V).astype(np.float32)
        document = self.index // longest
        true = self.x.reshape(-1)[self.index]
        weight = self.weight / documents
        merged = np.ones(len(self.index), dtype=bool) if merge_all else self.shown == self.mask
        cells = document[merged] * V + true[merged]
        soft = np.bincount(cells, weights=weight[merged], minlength=len(self.x) * V).astype(np.float32)
        example = {"soft": torch.from_numpy(soft.reshape(steps, documents, V))}
        counts = torch.from_numpy(counts.reshape(steps, documents, V))
        if merge_all:
            return {"inputs": Documents(counts), **example}
        shows = ~merged
        place = _pack(document[shows] // documents, steps, self.room[1])
        out = _rows(steps, self.room[1])
        for name, values in (
            ("row", document[shows] % documents),
            ("query", self.shown[shows]),
            ("target", true[shows]),
            ("weight", weight[shows]),
        ):
            out[name].reshape(-1)[place] = values
        own = np.broadcast_to(np.arange(documents), (steps, documents))
        rows = np.concatenate([own, out["row"]], axis=1)
        query = np.concatenate([np.full((steps, documents), self.mask), out["query"]], axis=1)
        return {
            "inputs": Bag(counts, torch.from_numpy(rows), torch.from_numpy(query)),
            "target": torch.from_numpy(out["target"]),
            "weight": torch.from_numpy(out["weight"]),
            **example,
        }


def _select(rng: np.random.Generator, real: np.ndarray, probability: float) -> np.ndarray:
    threshold = min(int(probability * 2.0**32), 2**32 - 1)
    bits = rng.integers(0, 2**32, real.shape, dtype=np.uint32)
    return (bits < np.uint32(threshold)) & real if probability < 1 else real.copy()


def _room(documents: int, longest: int, law: BertMasking) -> tuple[int, int]:
    """Rows that hold all selected positions, and those of them that show a word, of all but 1e-11 of the batches."""
    p, some = law.select, 1 - (1 - law.select) ** longest
    mean = longest * p / some  # of |M| given that M is not empty
    variance = (longest * p * (1 - p) + (longest * p) ** 2) / some - mean**2
    rooms = []
    for share in (1.0, 1 - law.hide):
        spread = math.sqrt(documents * (mean * share * (1 - share) + variance * share**2))
        rooms.append(min(documents * longest, math.ceil(documents * mean * share + 7 * spread + 3)))
    return rooms[0], rooms[1]


def _pack(step: np.ndarray, steps: int, room: int) -> np.ndarray:
    """Where each row goes in a flat (steps, room) table, rows of a step side by side; `step` is sorted."""
    first = np.searchsorted(step, np.arange(steps))
    return step * room + np.arange(len(step)) - first[step]


def _rows(steps: int, room: int) -> dict[str, np.ndarray]:
    names = {"row": np.int64, "query": np.int64, "target": np.int64, "weight": np.float32}
    return {name: np.zeros((steps, room), dtype=dtype) for name, dtype in names.items()}
