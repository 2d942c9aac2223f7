"""Model-steps per second of stacked training against the usual ways, on the published topic setting.

    python benchmarks/training.py [--device cuda] [--models 64] [--seconds 10]

One run measures, on the same machine and the same data: stacks of models with N × N attention (paid from the selected
positions, which are all the loss reads) and with the type-level form; the same models one after another in eager
PyTorch, in both forms; and Hugging Face's BertForMaskedLM cut to one layer, one model at a time. Ratios are of
model-steps per second. Beside them: the floating-point rate that was achieved and the machine's rate on a large matrix
product. The stacks draw fresh data for every model as they go, the others reuse data drawn before.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map

from sandtable.models import FanIn, Tokens, Transformer
from sandtable.objectives import MaskedLM
from sandtable.training import Adam, Recipe, stream
from sandtable.worlds import TopicModel

WORLD = TopicModel(topics=10, words=10, dirichlet=0.1)
BATCH = 40


def model() -> Transformer:
    return Transformer(WORLD.vocab, embedding="one-hot", output=False, residual=False, initial={"*": FanIn()})


def stacked(form: str, models: int, device: str, seconds: float) -> tuple[float, float]:
    """(steady model-steps per second, peak memory in MB) of one stack, measured between progress reports."""
    ticks: list[tuple[float, int]] = []

    class Enough(Exception):
        pass

    def progress(step: int, steps: int, speed: float, loss: float) -> None:
        if device != "cpu":
            torch.cuda.synchronize()
        ticks.append((time.monotonic(), step))
        if len(ticks) > 2 and ticks[-1][0] - ticks[1][0] > seconds:
            raise Enough

    objective = MaskedLM(form=form)
    recipe = Recipe(model(), WORLD, objective, steps=10**6, batch_size=BATCH, optimizer=Adam(0.01), chunk=models)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(Enough):
        recipe.train(models, device=device, progress=progress)
    (t0, s0), (t1, s1) = ticks[1], ticks[-1]
    memory = torch.cuda.max_memory_allocated() / 2**20 if device != "cpu" else float("nan")
    return models * (s1 - s0) / (t1 - t0), memory


def one_by_one(step: Callable[[int], None], device: str, seconds: float, warm: int = 5) -> float:
    """Steps per second of a plain training loop."""
    for i in range(warm):
        step(i)
    if device != "cpu":
        torch.cuda.synchronize()
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        step(warm + done)
        done += 1
    if device != "cpu":
        torch.cuda.synchronize()
    return done / (time.monotonic() - began)


def data(device: str, form: str = "positions", steps: int = 64) -> list[dict]:
    batch = WORLD.sample(steps * BATCH, stream("data", 0)).fold(steps)
    drawn = MaskedLM(form=form).draw_block(batch, stream("noise", 0), range(steps))
    return [tree_map(lambda t, s=s: t[s].to(device), drawn) for s in range(steps)]


def eager(form: str, device: str, seconds: float) -> float:
    """Our Transformer as an ordinary module with torch.optim.Adam on data drawn before.

    With N × N attention it does what everyone does: outputs at all positions, the loss at the selected ones.
    """
    net = model().initialise(stream("init", 0)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    examples = data(device, form)
    objective = MaskedLM(form=form)
    columns = torch.arange(BATCH, device=device)[:, None] * WORLD.longest

    def everywhere(example: dict) -> torch.Tensor:
        ids, mask, rows = example["inputs"]
        logits = net(Tokens(ids, mask)).flatten(0, 1).index_select(0, (rows + columns).flatten())
        losses = F.cross_entropy(logits, example["target"].flatten(), reduction="none")
        return (losses * example["weight"].flatten()).sum()

    def by_type(example: dict) -> torch.Tensor:
        return objective.loss(lambda _, inputs: net(inputs), {}, example)[0]

    def step(i: int) -> None:
        example = examples[i % len(examples)]
        loss = everywhere(example) if form == "positions" else by_type(example)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return one_by_one(step, device, seconds)


def hugging_face(device: str, seconds: float) -> float:
    """BertForMaskedLM with one layer and one head, as wide as the vocabulary, on the same data."""
    from transformers import BertConfig, BertForMaskedLM

    size = WORLD.vocab_size + 3
    config = BertConfig(
        vocab_size=size, hidden_size=size, num_hidden_layers=1, num_attention_heads=1, intermediate_size=size,
        max_position_embeddings=256, attn_implementation="eager",
    )  # fmt: skip
    net = BertForMaskedLM(config).to(device).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.0)
    examples = data(device)
    for example in examples:
        ids, _, rows = example["inputs"]
        document, place = (example["weight"] > 0).nonzero(as_tuple=True)
        example["labels"] = torch.full_like(ids, -100)
        example["labels"][document, rows[document, place]] = example["target"][document, place]

    def step(i: int) -> None:
        example = examples[i % len(examples)]
        ids, mask, _ = example["inputs"]
        loss = net(input_ids=ids, attention_mask=mask.long(), labels=example["labels"]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return one_by_one(step, device, seconds)


def matmul_peak(device: str, size: int = 2048) -> float:
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    rate = one_by_one(lambda i: torch.mm(a, b), device, 2.0)
    return rate * 2 * size**3


def flops(form: str, *, everywhere: bool = False) -> float:
    """Multiply–adds ×2 of one model-step: forward products, and twice that for the backward pass."""
    size, longest = WORLD.vocab_size, WORLD.longest
    inputs = data("cpu", form, steps=1)[0]["inputs"]
    if form == "positions":  # projections are look-ups; scores and mixing are queries × N × V each
        queries = longest if everywhere else inputs.rows.shape[-1]
        return 3 * 2 * (2 * BATCH * queries * longest * size)
    return 3 * 2 * (2 * len(inputs.query) * size**2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    device, models, seconds = arguments.device, arguments.models, arguments.seconds
    name = torch.cuda.get_device_name() if device != "cpu" else f"{torch.get_num_threads()} CPU threads"
    peak = matmul_peak(device)
    plain, types = eager("positions", device, seconds), eager("types", device, seconds)
    bert = hugging_face(device, seconds)

    def line(label: str, speed: float, rate: float = float("nan"), memory: float = float("nan")) -> None:
        ratios = "".join(f"{speed / other:10.1f}" for other in (plain, types, bert))
        print(f"{label:44}{speed:14.1f}{ratios}{rate / 1e9:10.1f}{memory:8.0f}", flush=True)

    print(f"{name}, torch {torch.__version__}; float32 matmul 2048³: {peak / 1e9:.0f} GFLOP/s")
    columns = f"{'vs N×N':>10}{'vs types':>10}{'vs BERT':>10}{'GFLOP/s':>10}{'MB':>8}"
    print(f"{'':44}{'model-steps/s':>14}{columns}")
    line("eager PyTorch, one by one, N × N", plain, plain * flops("positions", everywhere=True))
    line("eager PyTorch, one by one, type-level", types, types * flops("types"))
    line("Hugging Face BERT, 1 layer, one by one", bert)
    for form, label in (("positions", "stacked, N × N attention"), ("types", "stacked, type-level attention")):
        for count in sorted({1, 8, models}):
            speed, memory = stacked(form, count, device, seconds)
            line(f"{label}, {count} models", speed, speed * flops(form), memory)


if __name__ == "__main__":
    main()
