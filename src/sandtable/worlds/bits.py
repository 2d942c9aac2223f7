"""Random bits that are the same on every device: whole-number arithmetic from seeds that come from a CPU generator."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15
_CACHED = 2**15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


def bulk_seed(generator: torch.Generator) -> list[int]:
    """A seed for `bulk_generator`: one draw of `generator`."""
    high = torch.iinfo(torch.int64).max
    return torch.randint(high, (2,), generator=generator, device=generator.device).tolist()


def bulk_generator(seed: list[int] | torch.Generator) -> np.random.Generator:
    """A fast numpy generator, by default seeded by one draw of a torch generator, for millions of numbers at a time."""
    return np.random.Generator(np.random.SFC64(bulk_seed(seed) if isinstance(seed, torch.Generator) else seed))


def row_seeds(n: int, rng: np.random.Generator) -> Int[np.ndarray, " row"]:
    """A seed for each of `n` rows of random bits."""
    return rng.bit_generator.random_raw(n).view(np.int64)


def random_bits(seeds: Int[Tensor, " row"], count: int) -> Int[Tensor, "row count"]:
    """64 random bits, `count` times a row: the splitmix64 stream that starts at the row's seed (Steele et al. 2014).

    Number j of a row is a hash of seed + (j + 1) · step, so all of them are computed at once, to the same bits on every
    device: by numpy on the CPU, where unsigned shifts make it twice as fast, and by tensor operations elsewhere.
    """
    if seeds.device.type == "cpu":
        return torch.from_numpy(numpy_bits(seeds.numpy(), count))
    return tensor_bits(seeds, count)


def numpy_bits(seeds: Int[np.ndarray, " row"], count: int) -> Int[np.ndarray, "row count"]:
    """`random_bits` in numpy's unsigned arithmetic, as many rows at a time as stay in the cache."""
    bits = np.empty((len(seeds), count), dtype=np.int64)
    scratch = np.empty((_CACHED // max(count, 1) + 1, count), dtype=np.uint64)
    for start in range(0, len(seeds), len(scratch)):
        rows = slice(start, start + len(scratch))
        write_bits(seeds[rows], bits[rows], scratch)
    return bits


def write_bits(
    seeds: Int[np.ndarray, " row"], bits: Int[np.ndarray, "row count"], scratch: Int[np.ndarray, "rows count"]
) -> None:
    """`random_bits` into `bits`, with `scratch` of at least as many rows to compute in."""
    part, shifted = bits.view(np.uint64), scratch[: len(bits)]
    np.add(seeds.view(np.uint64)[:, None], _steps(bits.shape[1]), out=part)
    for shift, factor in _ROUNDS:
        part ^= np.right_shift(part, np.uint64(shift), out=shifted)
        if factor != 1:
            part *= np.uint64(factor)


def tensor_bits(seeds: Int[Tensor, " row"], count: int) -> Int[Tensor, "row count"]:
    """`random_bits` in tensors, whose whole numbers are signed: products wrap, shifts drag the sign along."""
    bits = seeds[:, None] + torch.arange(1, count + 1, device=seeds.device) * (_STEP - 2**64)
    for shift, factor in _ROUNDS:
        bits ^= (bits >> shift).bitwise_and_(2 ** (64 - shift) - 1)
        if factor != 1:
            bits *= factor - 2**64  # the same number modulo 2^64
    return bits


def _steps(count: int) -> np.ndarray:
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP)
