"""Speed of drawing data: topic-model documents and their masks.

    python benchmarks/worlds.py [--device cuda] [--models 64] [--threads 2]

Documents per second of `TopicModel.sample` against a loop over documents in numpy; masked documents per second of
`MaskedLM.draw_block`; and model-steps per second of data for a stack of models, as training draws them. On a device
other than the CPU, its data are also checked to be the CPU's, bit for bit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from sandtable.objectives import MaskedLM
from sandtable.training.streams import Feed, Supply, stream
from sandtable.worlds import TopicModel

WORLD = TopicModel(topics=10, words=10, length=(100, 150), dirichlet=0.1)
FORMS = ("positions", "types", "documents")
BATCH, BLOCK = 40, 32


def best(work: Callable[[], object], device: str = "cpu", repeats: int = 9) -> float:
    """Least seconds of several runs: the machine may be busy with other things."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def loop(n: int) -> tuple[np.ndarray, ...]:
    """One document after another, as it is usually written, into the arrays that `sample` returns."""
    rng = np.random.default_rng(0)
    x, topic = np.zeros((2, n, WORLD.longest), dtype=np.int64)
    mask = np.zeros((n, WORLD.longest), dtype=bool)
    shares = np.zeros((n, WORLD.topics))
    for i in range(n):
        shares[i] = rng.dirichlet(np.full(WORLD.topics, WORLD.dirichlet))
        length = rng.integers(100, 151)
        topic[i, :length] = rng.choice(WORLD.topics, size=length, p=shares[i])
        x[i, :length] = 1 + topic[i, :length] * WORLD.words + rng.integers(0, WORLD.words, size=length)
        mask[i, :length] = True
    return x, topic, mask, shares


def same_bits(device: str) -> None:
    """The device draws what the CPU draws: words, latents and Examples in all forms, also where masks are redrawn."""
    worlds = (
        WORLD,
        TopicModel(10, 10, length=(2, 9), dirichlet=0.1),
        TopicModel(10, 7, present=3, overlap=0.3),
        TopicModel(100, 5, length=(2, 40), dirichlet=0.05),
    )
    for world in worlds:
        here, there = (world.sample(40 * 64, stream("data", 1), place) for place in ("cpu", device))
        pairs: list[tuple[str, Any, Any]] = [("x", here.x, there.x), ("mask", here.mask, there.mask)]
        pairs += [(name, here.latents[name], there.latents[name]) for name in here.latents]
        for form in FORMS:
            for hide in (False, True):
                law = MaskedLM(form=form, hide_selected=hide)
                blocks = [law.draw_block(b.fold(64), stream("noise", 1), range(64)) for b in (here, there)]
                leaves = zip(*(tree_leaves(block) for block in blocks), strict=True)
                pairs += [(f"{form}, leaf {i}", *leaf) for i, leaf in enumerate(leaves)]
        for name, a, b in pairs:
            assert b.device.type == torch.device(device).type, name
            assert a.dtype == b.dtype, name
            assert torch.equal(a, b.cpu()), f"{name} differs: {world}"
    for form in FORMS:  # several generators at once
        supply = Supply(WORLD, MaskedLM(form=form), BATCH)
        generators = [[(stream("data", i), stream("noise", i)) for i in range(50)] for _ in range(2)]
        together = supply.draw_each(0, BLOCK, generators[0], device)
        alone = [tree_leaves(supply.draw(0, BLOCK, *pair)) for pair in generators[1]]
        for drawn, *each in zip(tree_leaves(together), *alone, strict=True):
            assert torch.equal(drawn.cpu(), torch.stack(each, dim=1)), f"{form}: a stack's data differ"
    print(f"{device}: the same bits as on the CPU")


def feed_speed(form: str, device: str, models: int, blocks: int = 12) -> float:
    """Model-steps of data per second, drawn in the background as for training."""
    feed = Feed(
        Supply(WORLD, MaskedLM(form=form), BATCH),
        [(i, i) for i in range(models)],
        block=BLOCK,
        place=lambda tensor: tensor.to(device),
        device=device,
    )
    times = []
    for _ in feed.blocks(0, blocks * BLOCK):
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter())
    feed.close()
    return models * BLOCK * (len(times) - 3) / (times[-1] - times[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--documents", type=int, default=16_384)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    device, n = arguments.device, arguments.documents
    torch.set_num_threads(arguments.threads)
    if device != "cpu":
        same_bits(device)
    generator = torch.Generator().manual_seed(0)
    print(f"{device}, {torch.get_num_threads()} CPU threads; microseconds a document, documents per second")
    single = best(lambda: loop(1000), repeats=5) / 1000
    many = best(lambda: WORLD.sample(n, generator, device), device) / n
    print(f"{'numpy, one by one':28}{single * 1e6:8.2f}{1 / single:14.0f}")
    print(f"{f'TopicModel.sample({n})':28}{many * 1e6:8.2f}{1 / many:14.0f}   {single / many:.1f} times the loop")
    batch = WORLD.sample(BATCH * BLOCK, generator, device).fold(BLOCK)
    for form in FORMS:
        law = MaskedLM(form=form)
        spent = best(lambda law=law: law.draw_block(batch, generator, range(BLOCK)), device) / (BATCH * BLOCK)
        print(f"{f'masks, form={form!r}':28}{spent * 1e6:8.2f}{1 / spent:14.0f}")
    for form in FORMS:
        speed = feed_speed(form, device, arguments.models)
        print(f"data for {arguments.models} models, form={form!r}: {speed:.0f} model-steps per second", flush=True)


if __name__ == "__main__":
    main()
