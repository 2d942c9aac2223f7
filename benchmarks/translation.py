"""What a translation takes: a parallel refiner beside sequential models of its size, one source at a time.

    python benchmarks/translation.py [--size small|published] [--device cpu|cuda] [--lengths 8 16 32 64 128]
        [--steps 4] [--beams 1] [--repeats N] [--rows 1] [--dtype float32|bfloat16] [--graphs] [--peer]

Sources and targets of N tokens, random weights: what a pass costs does not hang on them. The refiner has the length
given, makes `--steps` passes and never stops early; the sequential models keep keys and values, write exactly N tokens
and wait for nothing between them. There are two of these: "sequential" has all that the refiner has, positional
attention too, hence exactly as many parameters; "plain" is T5 as published, without positional attention, smaller and
quicker. What a speed-up is worth is told by the plain one.

- `--beams 5`: the published setting. The refiner tries five lengths, N − 4 to N, and keeps the best; the sequential
  models keep five beams, all of N tokens.
- `--graphs` (CUDA): every pass as one CUDA graph, for all of them: no time for launching kernels from Python.
- `--peer`: also transformers' T5 of the plain model's size, by its own `generate` — is our baseline a quick one?

Milliseconds from a source on the device to its translation there: median and 99th percentile. The latter wants at least
100 repeats (`--repeats 100`): with fewer it is nearly the slowest run. All take turns, and the first runs are not
counted. Ratios are of medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sandtable.decoding import autoregress, beam_search, refine
from sandtable.inputs import EOS, PAD, RESERVED, allowed
from sandtable.models import Seq2Seq
from sandtable.models.seq2seq import PUBLISHED, Prepared

SIZES = {"published": PUBLISHED, "small": dict(vocab=2048, layers=2, heads=4, width=128, mlp=512)}
LENGTHS = (8, 16, 32, 64, 128)
Way = Callable[[], Tensor]


def models(size: str, longest: int, device: str, dtype: torch.dtype) -> dict[str, Seq2Seq]:
    options: dict[str, Any] = {"longest": longest, "longest_target": longest, **SIZES[size]}
    options |= {name: max(options[name], longest) for name in ("longest", "longest_target")}
    refiner = Seq2Seq(**options)
    made = {"refiner": refiner, "sequential": refiner.replace(causal=True)}
    made["plain"] = refiner.replace(causal=True, positional=False)
    return {name: model.to(device, dtype).eval().requires_grad_(False) for name, model in made.items()}


class Told(Seq2Seq):
    """A model that finds the lengths from `longest` downwards likeliest: random weights find any."""

    def __init__(self, model: Seq2Seq, longest: int) -> None:
        self.__dict__ = {**model.__dict__, "longest_told": longest}

    def encode(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        memory, scores = super().encode(*args, **options)
        place = torch.arange(scores.shape[1], device=scores.device, dtype=scores.dtype)
        return memory, (place - 1e9 * (place >= self.longest_told)).expand_as(scores)


def ways(nets: dict[str, Seq2Seq], source: Tensor, length: int, steps: int, beams: int = 1) -> dict[str, Way]:
    """From `source` to a target of `length` tokens, by the library's own decoders."""
    lengths = torch.full((len(source),), length, device=source.device)
    generator = torch.Generator().manual_seed(length)
    refiner = nets["refiner"] if beams == 1 else Told(nets["refiner"], length)
    tried: dict[str, Any] = {"lengths": lengths} if beams == 1 else {"beams": min(beams, length)}

    def refined() -> Tensor:
        out = refine(refiner, source, steps=steps, generator=generator, early_stop=False, **tried)
        assert out.decoder_passes.sum() == steps * len(source)
        return out.tokens

    def written(name: str) -> Tensor:
        if beams == 1:
            out = autoregress(nets[name], source, shortest=length, longest=length)
        else:
            out = beam_search(nets[name], source, beams=beams, lengths=lengths)
        assert out.decoder_passes.sum() == length * len(source)
        return out.tokens

    return {"refiner": refined, "sequential": lambda: written("sequential"), "plain": lambda: written("plain")}


# -- the same as CUDA graphs -----------------------------------------------------------------------------------------


class Steps:
    """One token after another in buffers of fixed size: what a graph can hold. `step` writes the next token."""

    def __init__(self, model: Seq2Seq, prepared: Prepared, rows: int, length: int) -> None:
        self.model, self.prepared, self.length = model, prepared, length
        self.tokens = torch.full((rows, length), PAD, device=prepared.bias.device)
        self.word, self.place = self.tokens[:, 0].clone(), torch.zeros(1, dtype=torch.long, device=self.tokens.device)
        shape = (rows, length, *prepared.layers[0].keys.shape[2:])
        self.kept = [[prepared.bias.new_zeros(shape) for _ in range(3)] for _ in model.layers]

    def begin(self) -> None:
        self.word.fill_(PAD)
        self.place.zero_()

    def step(self) -> None:
        bias = self.prepared.bias.index_select(-2, self.place)  # −∞ for all places behind this one
        x = F.embedding(self.word[:, None], self.model.embed.W_E)
        for block, held, kept in zip(self.model.layers, self.prepared.layers, self.kept, strict=True):
            inner = block.ln1(x)
            for buffer, new in zip(kept, (block.attn.keys(inner), block.attn.values(inner)), strict=False):
                buffer.index_copy_(1, self.place, new)
            x = x + block.attn.mix(block.attn.pattern(inner, kept[0], bias, _silent), kept[1])
            if block.positional is not None:
                kept[2].index_copy_(1, self.place, block.positional.values(x))
                x = x + block.positional.mix(held.positional.index_select(-2, self.place), kept[2])
            pattern = block.cross.pattern(block.ln2(x), held.keys, self.prepared.source, _silent)
            x = x + block.cross.mix(pattern, held.values)
            x = x + block.mlp(block.ln3(x), _silent)
        logits = allowed(self.model._head(x, _silent)[:, 0])
        logits[:, EOS] = logits[:, EOS].where(self.place == self.length - 1, -torch.inf)
        self.word.copy_(logits.argmax(-1))
        self.tokens.index_copy_(1, self.place, self.word[:, None])
        self.place.add_(1).remainder_(self.length)


def _silent(name: str, tensor: Tensor) -> Tensor:
    return tensor


def graphed(nets: dict[str, Seq2Seq], source: Tensor, length: int, steps: int) -> dict[str, Way]:
    """The same ways with encoder and decoder passes as CUDA graphs; on a CPU, in the same buffers without graphs."""
    found: dict[str, Way] = {}
    for name, model in nets.items():
        held: dict[str, Any] = {}

        def read(model: Seq2Seq = model, held: dict[str, Any] = held) -> None:
            prepared = model.prepare(model.encode(source)[0], None, length)
            if held:
                for mine, new in zip(_tensors(held["prepared"]), _tensors(prepared), strict=True):
                    mine.copy_(new)
            else:
                held["prepared"] = prepared

        read()
        encode = _graph(read, source.device)
        if name == "refiner":
            place = torch.arange(length, device=source.device)
            words = torch.randint(RESERVED, model.size, source.shape, generator=torch.Generator().manual_seed(length))
            begin = torch.where(place < length - 1, words.to(source.device), EOS)
            state = begin.clone()

            def once(model: Seq2Seq = model, held: dict[str, Any] = held, state: Tensor = state) -> None:
                state.copy_(allowed(model.write(state, held["prepared"])).argmax(-1))

            again = _graph(once, source.device)

            def refined(
                encode: Any = encode, again: Any = again, state: Tensor = state, begin: Tensor = begin
            ) -> Tensor:
                encode()
                state.copy_(begin)
                for _ in range(steps):
                    again()
                return state

            found[name] = refined
        else:
            writer = Steps(model, held["prepared"], len(source), length)
            again = _graph(writer.step, source.device)

            def written(encode: Any = encode, again: Any = again, writer: Steps = writer) -> Tensor:
                encode()
                writer.begin()
                for _ in range(length):
                    again()
                return writer.tokens

            found[name] = written
    return found


def _tensors(prepared: Prepared) -> list[Tensor]:
    return [t for held in prepared.layers for t in held if t is not None] + [prepared.bias]


def _graph(function: Callable[[], None], device: torch.device) -> Callable[[], object]:
    """`function` as a graph that is replayed; where there is no CUDA, itself."""
    if device.type != "cuda":
        return function
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return lambda kept=function: graph.replay()  # what the graph reads and writes lives as long as `function`


# -- transformers ----------------------------------------------------------------------------------------------------


def peer(size: str, source: Tensor, length: int, beams: int, dtype: torch.dtype, made: dict[str, Any]) -> Way:
    """transformers' T5 of the plain model's size, greedily or with beams, by `generate`."""
    import transformers

    if "t5" not in made:
        c = SIZES[size]
        config = transformers.T5Config(
            vocab_size=c["vocab"], d_model=c["width"], d_kv=c["width"] // c["heads"], d_ff=c["mlp"],
            num_layers=c["layers"], num_heads=c["heads"], decoder_start_token_id=PAD, pad_token_id=PAD,
            eos_token_id=EOS,
        )  # fmt: skip
        made["t5"] = transformers.T5ForConditionalGeneration(config).to(source.device, dtype).eval()
    options = dict(
        min_new_tokens=length, max_new_tokens=length, do_sample=False, attention_mask=torch.ones_like(source),
        num_beams=beams,
    )  # fmt: skip
    return lambda: made["t5"].generate(source, **options)


# -- timing ----------------------------------------------------------------------------------------------------------


def timed(ways: dict[str, Way], repeats: int, device: str) -> dict[str, np.ndarray]:
    """Milliseconds of every way, in turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 2):
        for name, way in ways.items():
            _wait(device)
            began = time.perf_counter()
            way()
            _wait(device)
            if turn > 1:
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: np.array(values) for name, values in times.items()}


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--peer", action="store_true")
    chosen = parser.parse_args()
    if chosen.beams > 1 and chosen.graphs:
        parser.error("--graphs: holds one hypothesis; not with --beams")
    on_cpu = chosen.device == "cpu"
    repeats = chosen.repeats or ((20 if chosen.size == "small" else 5) if on_cpu else 100)
    dtype = getattr(torch, chosen.dtype)
    nets = models(chosen.size, max(chosen.lengths), chosen.device, dtype)
    where = f"{torch.get_num_threads()} threads" if on_cpu else torch.cuda.get_device_name(chosen.device)
    print(f"{where}, {chosen.dtype}, {chosen.rows} source(s) at a time")
    print(f"{chosen.steps} steps, {chosen.beams} beam(s) and lengths, {repeats} repeats")
    for name, net in nets.items():
        print(f"{name}: {sum(parameter.numel() for parameter in net.parameters()):,} parameters")
    header = f"{'N':>5}{'passes':>8}" + "".join(f"{name + ', ms':>17}{'99 %':>10}" for name in nets)
    header += f"{'sequential/refiner':>20}{'99 %':>8}{'plain/refiner':>15}{'99 %':>8}"
    print(header + (f"{'T5 generate, ms':>17}{'/ plain':>9}" if chosen.peer else ""))
    made: dict[str, Any] = {}
    for kind in ("library", *(["graphs"] if chosen.graphs else [])):
        if kind == "graphs":
            print("every pass a CUDA graph" if not on_cpu else "buffers of fixed size (no CUDA graphs on a CPU)")
        for length in chosen.lengths:
            generator = torch.Generator().manual_seed(length)
            shape = (chosen.rows, length)
            source = torch.randint(RESERVED, nets["refiner"].size, shape, generator=generator).to(chosen.device)
            with torch.inference_mode():
                own = ways(nets, source, length, chosen.steps, chosen.beams)
                if kind == "graphs":
                    library, own = own, graphed(nets, source, length, chosen.steps)
                    check(own, library, dtype)
                if chosen.peer and kind == "library":  # it launches its kernels one by one in any case
                    own["T5"] = peer(chosen.size, source, length, chosen.beams, dtype, made)
                show(length, timed(own, repeats, chosen.device), chosen.steps)


def check(graphs: dict[str, Way], library: dict[str, Way], dtype: torch.dtype) -> None:
    """Both ways write the same, up to ties; in bfloat16, where sums differ more, this is not asked."""
    for name in graphs if dtype == torch.float32 else ():
        ours, theirs = graphs[name](), library[name]()
        share = float((ours == theirs)[theirs != PAD].double().mean())
        if share < 1:
            print(f"  ({name}: {share:.0%} of tokens as without graphs)")


def show(length: int, times: dict[str, np.ndarray], steps: int) -> None:
    median = {name: float(np.median(values)) for name, values in times.items()}
    slow = {name: float(np.quantile(values, 0.99)) for name, values in times.items()}
    line = f"{length:5}{length / steps:8g}"
    line += "".join(f"{median[name]:17.3f}{slow[name]:10.3f}" for name in ("refiner", "sequential", "plain"))
    for name, width in (("sequential", 20), ("plain", 15)):
        line += f"{median[name] / median['refiner']:{width}.2f}{slow[name] / slow['refiner']:8.2f}"
    if "T5" in times:
        line += f"{median['T5']:17.3f}{median['T5'] / median['plain']:9.2f}"
    print(line, flush=True)


if __name__ == "__main__":
    main()
