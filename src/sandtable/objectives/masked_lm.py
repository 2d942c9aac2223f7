"""Masked language modelling with the (p_m, p_c, p_r) scheme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils._pytree import tree_map

from sandtable.arguments import ArgumentError, one_of, typed
from sandtable.inputs import Bag, Documents, Selected
from sandtable.objectives.base import Apply, DrawsEach, Example, OneForward, Params
from sandtable.worlds import Batch, BertMasking, Expectation, Vocab
from sandtable.worlds.bits import bulk_generator, random_bits, row_seeds

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
    if kind == "squared":
        hit = logits.gather(-1, target[:, None])[:, 0]
        return (weight * (logits.square().sum(-1) + 1 - 2 * hit)).sum()
    return (weight * F.cross_entropy(logits, target, reduction="none")).sum()


@typed
@dataclass(frozen=True)
class MaskedLM(DrawsEach, OneForward):
    """L = E_X E_M (1/|M|) Σ_{j∈M} ℓ(f(X̃)_j, X_j), ℓ the cross-entropy or the squared distance (summed over outputs).

    Positions enter M with probability `select`; there the model sees the true word (`keep`), a random word (`random`)
    or [MASK]. `form` says how documents reach the model, all three exactly the same loss where they apply:

    - "positions": tokens in their places, for any model;
    - "types": counts of token types and one row per (document, visible token) — one layer without positions;
    - "documents": one row per document — the same with attention that ignores the query.

    `hide_selected` also hides the keys of all selected positions from attention, and M is then never the whole
    document. A mask with more positions than
    7 standard deviations above the mean is drawn again (probability below 1e-9).
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
        if self.hide_selected and self.select == 1:
            raise ArgumentError("select=1 with hide_selected=True: leaves no position to attend to")

    @property
    def masking(self) -> BertMasking:
        return BertMasking(self.select, self.keep, self.random)

    def draw_each(self, batch: Batch, generators: Sequence[torch.Generator], steps: range) -> Example:
        """One Example for every generator and step, on the device of `batch` but with the same bits on every device.

        `batch` has leading dimensions (generator, step, document), the Example (generator, step).
        """
        vocab, x = batch.vocab, batch.x
        if vocab is None or vocab.mask is None or x.is_floating_point():
            raise ArgumentError("MaskedLM: needs a world of tokens whose vocabulary has a mask token")
        real = torch.ones_like(x, dtype=torch.bool) if batch.mask is None else batch.mask
        per_generator = x.shape[1] * x.shape[2]
        seeds = torch.from_numpy(np.concatenate([row_seeds(per_generator, bulk_generator(g)) for g in generators]))
        masks = _Masks.draw(self, x.flatten(0, 1), real.flatten(0, 1), vocab, seeds.to(x.device))
        drawn = masks.by_position() if self.form == "positions" else masks.by_type(merge_all=self.form == "documents")
        return tree_map(lambda tensor: tensor.unflatten(0, x.shape[:2]), drawn)

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
        total = torch.zeros((), dtype=logits.dtype, device=logits.device)
        soft = 0
        if "soft" in example:
            soft = example["soft"].shape[-2]
            total = total + soft_loss(self.error, logits[:soft], example["soft"])
        if "target" in example:
            rows = logits.flatten(0, -2)[soft:]
            total = total + hard_loss(self.error, rows, example["target"].flatten(), example["weight"].flatten())
        return total, {}


@dataclass
class _Masks:
    """Masks for several steps of documents, x of shape (step, document, position), on the device of x.

    All arithmetic is in whole numbers, and floats are looked up or multiplied once, so that devices agree to the bit.
    """

    x: Tensor
    keys: Tensor  # positions that attention may see
    index: Tensor  # flat, of the chosen positions
    document: Tensor  # they are in
    true: Tensor  # words there
    shown: Tensor  # what the model sees there
    size: Tensor  # chosen positions of every document
    room: tuple[int, int]  # rows for the chosen positions of a document, and for those of a step that show a word
    vocab: int
    mask: int

    @classmethod
    def draw(cls, law: MaskedLM, x: Tensor, real: Tensor, vocab: Vocab, seeds: Tensor) -> _Masks:
        """Masks with 1 ≤ |M|, and with `hide_selected` also |M| < words, in every document."""
        steps, documents, longest = x.shape
        words = real.sum(-1) if law.hide_selected else None
        if words is not None and bool((words == 1).any()):
            raise ArgumentError("hide_selected=True: a document of one word has no other word to attend to")
        room = _room(documents, longest, law.masking)
        # The high 31 bits, from −2^30 up, say whether a position is chosen and what it shows; the low 32 a random word.
        shares = (1.0, law.keep + law.random, law.keep)
        select, shows, keep = (round(law.select * share * 2**31) - 2**30 for share in shares)
        bits = random_bits(seeds, longest).reshape(x.shape)
        while True:
            chosen = (bits <= (select << 33) - 1) & real
            index = _indices(chosen)
            document = index // longest
            drawn = bits.flatten().index_select(0, index)
            high = drawn >> 33
            size = torch.zeros_like(seeds).scatter_add_(0, document, torch.ones_like(index)).reshape(steps, -1)
            shown = torch.zeros_like(seeds).scatter_add_(0, document, (high < shows).long()).reshape(steps, -1)
            again = (size == 0) | (size > room[0]) | (shown.sum(1) > room[1])[:, None]
            if words is not None:
                again |= size == words
            rows = _indices(again)
            if not len(rows):
                break
            if not bool(real.reshape(-1, longest)[rows].any(1).all()):
                raise ArgumentError("MaskedLM: a document without words has nothing to predict")
            seeds[rows] = random_bits(seeds[rows], longest + 1)[:, -1]
            bits.view(-1, longest)[rows] = random_bits(seeds[rows], longest)
        assert vocab.mask is not None
        true = x.flatten().index_select(0, index)
        word = ((drawn & (2**32 - 1)) * (len(vocab) - 1)) >> 32
        word += word >= vocab.mask
        shown = torch.where(high < keep, true, torch.where(high < shows, word, vocab.mask))
        keys = real if words is None else real & ~chosen
        return cls(x, keys, index, document, true, shown, size.flatten(), room, len(vocab), vocab.mask)

    @property
    def visible(self) -> Tensor:
        out = self.x.clone(memory_format=torch.contiguous_format)
        out.view(-1).scatter_(0, self.index, self.shown)
        return out

    @property
    def weight(self) -> Tensor:
        """1 / (documents of the step × |M|) for every document, from a table: devices divide differently."""
        _, documents, longest = self.x.shape
        table = 1.0 / (documents * torch.arange(longest + 1, dtype=torch.float64).clamp_min(1))
        return table.float().to(self.x.device).index_select(0, self.size)

    def by_position(self) -> Example:
        steps, documents, longest = self.x.shape
        packed = _pack(
            self.document,
            (steps * documents, self.room[0]),
            row=self.index % longest,
            target=self.true,
            weight=self.weight.index_select(0, self.document),
        )
        packed = {name: table.unflatten(0, (steps, documents)) for name, table in packed.items()}
        return {"inputs": Selected(self.visible, self.keys, packed.pop("row")), **packed}

    def by_type(self, *, merge_all: bool) -> Example:
        steps, documents, _ = self.x.shape
        # Sums of ones are exact in float32, in any order.
        counts = torch.zeros(steps, documents, self.vocab, device=self.x.device)
        counts.scatter_add_(2, self.visible, self.keys.float())
        weight = self.weight
        merged = torch.ones_like(self.true, dtype=torch.bool) if merge_all else self.shown == self.mask
        soft = torch.zeros_like(counts)
        soft.view(-1).scatter_add_(0, self.document * self.vocab + self.true, merged.float())
        soft *= weight.reshape(steps, documents, 1)
        if merge_all:
            return {"inputs": Documents(counts), "soft": soft}
        shows = _indices(~merged)
        document = self.document.index_select(0, shows)
        packed = _pack(
            document // documents,
            (steps, self.room[1]),
            row=document % documents,
            query=self.shown.index_select(0, shows),
            target=self.true.index_select(0, shows),
            weight=weight.index_select(0, document),
        )
        own = torch.arange(documents, device=counts.device).expand(steps, documents)
        rows = torch.cat([own, packed.pop("row")], dim=1)
        query = torch.cat([torch.full_like(own, self.mask), packed.pop("query")], dim=1)
        return {"inputs": Bag(counts, rows, query), **packed, "soft": soft}


def _indices(chosen: Tensor) -> Tensor:
    """Flat indices of the True entries; numpy finds them four times faster on the CPU."""
    if chosen.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(chosen.numpy()))
    return chosen.flatten().nonzero()[:, 0]


def _pack(step: Tensor, shape: tuple[int, int], **columns: Tensor) -> dict[str, Tensor]:
    """Tables of `shape` (steps, room) with the rows of a step side by side and zeros behind; `step` is sorted."""
    first = torch.searchsorted(step, torch.arange(shape[0], device=step.device))
    place = torch.arange(len(step), device=step.device) - first.index_select(0, step) + step * shape[1]
    tables = {name: values.new_zeros(shape) for name, values in columns.items()}
    for name, values in columns.items():
        tables[name].view(-1).scatter_(0, place, values)
    return tables


def _room(documents: int, longest: int, law: BertMasking) -> tuple[int, int]:
    """Rows for the selected positions of a document, and for those of a whole step that show a word.

    Seven standard deviations above the mean: more are needed with a probability below 1e-9, and are then drawn again.
    """
    p, some = law.select, 1 - (1 - law.select) ** longest
    if some < 1e-4:
        raise ArgumentError(f"select={p:g}: fewer than one document in 10,000 would have a position to predict")
    mean = longest * p / some  # of |M| given that M is not empty
    variance = (longest * p * (1 - p) + (longest * p) ** 2) / some - mean**2
    rooms = []
    for number, share in ((1, 1.0), (documents, 1 - law.hide)):
        spread = math.sqrt(number * (mean * share * (1 - share) + variance * share**2))
        rooms.append(min(number * longest, math.ceil(number * mean * share + 7 * spread + 3)))
    return rooms[0], rooms[1]
