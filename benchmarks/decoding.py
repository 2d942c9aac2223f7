"""Speed of decoding from Hugging Face models, each way beside its alternative in one run.

    python benchmarks/decoding.py [ancestral] [backtrack] [anew] [vgb] [growth] [--device cpu] [--quick]

- ancestral: sampling against the library's own `generate`, same model, same law, same number of tokens.
- backtrack: backtracking (quota 4, stride 4) under a linear probe of hidden states against plain sampling, per queried
  token.
- anew: the same against backtracking that computes every prefix anew.
- vgb: steps per second of the walk that remembers the nodes it was at, and of one that does not.
- growth: milliseconds per step as batch, length and vocabulary grow.

Models have random weights: GPT-2 small (124 M) and one of Llama's shape (16 M). Ours and theirs take turns, and what is
printed are medians; the first run of each is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers

from sandtable.bridges.huggingface import HuggingFaceModel, load
from sandtable.decoding import Hidden, Predicate, ancestral, backtrack, vgb
from sandtable.decoding.verifiers.probe import ProbeVerifier, hidden_states
from sandtable.probes.classifier import Classifier

PROMPT = 16
LAW = dict(temperature=0.9, top_p=0.95)
REJECTED = 0.01
"""The share of prefixes that the probe turns down, so that quotas last for most of a row."""


def gpt2() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(eos_token_id=None, bos_token_id=None))


def llama(vocab: int = 32_000) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=256, num_hidden_layers=10, num_attention_heads=8, num_key_value_heads=8,
        intermediate_size=688, tie_word_embeddings=True, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


MODELS: dict[str, Callable[[], Any]] = {"GPT-2 small": gpt2, "Llama 16 M": llama}


class Bench:
    """What is asked for on the command line, and how to time things under it."""

    def __init__(self, device: str, dtype: str, quick: bool, repeats: int) -> None:
        self.device, self.dtype, self.quick, self.repeats = device, dtype, quick, repeats

    def load(self, make: Callable[[], Any], **options: Any) -> HuggingFaceModel:
        torch.manual_seed(0)
        return load(make(), device=self.device, dtype=self.dtype, eos="none", **options)

    def prompts(self, lm: HuggingFaceModel, rows: int, length: int = PROMPT) -> torch.Tensor:
        return torch.randint(lm.vocab_size, (rows, length), generator=torch.Generator().manual_seed(0))

    def seconds(self, *ways: Callable[[], Any], repeats: int | None = None) -> list[list[float]]:
        """Seconds of every way, in turns: of way i in run j."""
        times: list[list[float]] = [[] for _ in ways]
        for turn in range((self.repeats if repeats is None else repeats) + 1):
            for way, taken in zip(ways, times, strict=True):
                began = time.perf_counter()
                way()
                if self.device != "cpu":
                    torch.cuda.synchronize()
                if turn:
                    taken.append(time.perf_counter() - began)
        return times


def ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def sampling(bench: Bench, lm: HuggingFaceModel, rows: int, tokens: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """(ours, generate) on the same prompts."""
    prompts = bench.prompts(lm, rows).to(lm.device)
    mask = torch.ones_like(prompts)

    def theirs() -> torch.Tensor:
        made = lm.network.generate(
            prompts, attention_mask=mask, do_sample=True, max_new_tokens=tokens, top_k=0, pad_token_id=0, **LAW
        )
        assert made.shape == (rows, PROMPT + tokens)
        return made

    return lambda: ancestral(lm, prompts, max_tokens=tokens, **LAW), theirs


def ancestral_speed(bench: Bench) -> None:
    print(f"{'sampling':14}{'batch':>6}{'ours, ms/token':>16}{'generate':>10}{'ours / generate':>17}")
    for name, make in MODELS.items():
        lm = bench.load(make)
        for rows in (1, 32):
            tokens = (16 if rows > 1 else 32) if bench.quick else (32 if rows > 1 and bench.device == "cpu" else 128)
            ours, theirs = bench.seconds(*sampling(bench, lm, rows, tokens))
            each = [1e3 * statistics.median(t) / tokens / rows for t in (ours, theirs)]
            print(f"{name:14}{rows:6}{each[0]:16.3f}{each[1]:10.3f}{ratio(ours, theirs):17.2f}", flush=True)


def probe(bench: Bench, lm: HuggingFaceModel, length: int) -> ProbeVerifier:
    """A linear probe with random weights, halfway up the model, that turns down a few prefixes."""
    hidden, seen = Hidden(lm.layers // 2), []

    def look(view: Any) -> list[bool]:
        seen.append(view.hidden.float().cpu())
        return [True] * len(view)

    made = backtrack(lm, bench.prompts(lm, 2), Predicate(look, needs=hidden), quota=1, max_tokens=length, **LAW)
    states = torch.cat(seen)
    classifier = Classifier(states.shape[1]).initialise(torch.Generator().manual_seed(0)).requires_grad_(False)
    classifier.mean, classifier.scale = states.mean(0), states.std(0).clamp(min=1e-6)
    logits = classifier(states)
    classifier.get_parameter("layers.0.bias")[1] -= (logits[:, 1] - logits[:, 0]).quantile(REJECTED)
    row = torch.tensor(made.rows[0][:8])
    return ProbeVerifier(classifier, hidden, row, hidden_states(lm, [row], hidden)[0])


def backtrack_speed(bench: Bench) -> None:
    print(f"{'backtracking':14}{'batch':>6}{'length':>8}{'queries':>9}{'backtracks':>12}{'/ sampling, per query':>23}")
    length = 96 if bench.quick else 384
    for name, make in MODELS.items():
        lm = bench.load(make)
        verifier = probe(bench, lm, length)
        for rows in (1, 8):
            prompts, made = bench.prompts(lm, rows), []
            plain, guided = bench.seconds(
                lambda: ancestral(lm, prompts, max_tokens=length, **LAW),  # noqa: B023
                lambda: made.append(backtrack(lm, prompts, verifier, max_tokens=length, **LAW)),  # noqa: B023
            )
            queries = int(made[-1].queries.sum())
            price = ratio(guided, plain) * rows * length / queries
            print(f"{name:14}{rows:6}{length:8}{queries:9}{int(made[-1].backtracks.sum()):12}{price:23.2f}", flush=True)


def anew_speed(bench: Bench) -> None:
    for name, make in MODELS.items() if bench.device != "cpu" else [("Llama 16 M", llama)]:
        lm = bench.load(make)
        without = load(lm.network, eos="none", cache=False)
        verifier = probe(bench, lm, 96)
        for rows in (1, 4):
            for length in (96,) if bench.quick else (96, 384):
                prompts = bench.prompts(lm, rows)
                kept, anew = bench.seconds(
                    lambda: backtrack(lm, prompts, verifier, max_tokens=length, **LAW),  # noqa: B023
                    lambda: backtrack(without, prompts, verifier, max_tokens=length, **LAW),  # noqa: B023
                    repeats=1,
                )
                what = f"{name}, batch {rows}, {length} tokens, every prefix anew"
                print(f"{what:60} {ratio(anew, kept):6.1f} times as long", flush=True)


def vgb_speed(bench: Bench) -> None:
    lm = bench.load(llama)
    prompts, made = bench.prompts(lm, 8), []
    verifier = Predicate(lambda view: 0.5 + (view.tokens.sum(1) % 97) / 194, is_value=True)
    steps = 100 if bench.quick else 400

    def walk(remember: bool) -> Any:
        made.append(
            vgb(
                lm, prompts, verifier, max_tokens=24, steps=steps, returns="last", max_restarts=0, children="top_k",
                k=16, bound=1.0, cache=remember, **LAW,
            )
        )  # fmt: skip
        return made[-1]

    kept, forgot = bench.seconds(lambda: walk(True), lambda: walk(False), repeats=2)
    for name, times, walked in (("remembers", kept, made[-2]), ("forgets", forgot, made[-1])):
        speed = int(walked.extras["steps"].sum()) / statistics.median(times)
        print(f"VGB that {name:10} {speed:8.0f} steps/s, {int(walked.queries.sum()):6} queries", flush=True)
    print(f"remembering is {ratio(forgot, kept):.1f} times as fast")


def growth(bench: Bench) -> None:
    small, many = (16, (1, 4, 16, 64)) if bench.quick else (32, (1, 2, 4, 8, 16, 32, 64, 128))
    lm = bench.load(llama)
    print("Llama 16 M, milliseconds per step, ours and generate's")
    for rows in many:
        ours, theirs = bench.seconds(*sampling(bench, lm, rows, small), repeats=2)
        _line(f"batch {rows}", ours, theirs, small)
    for length in (64, 256) if bench.quick else (64, 128, 256, 512, 1024):
        ours, theirs = bench.seconds(*sampling(bench, lm, 4, length), repeats=1)
        _line(f"length {length}, batch 4", ours, theirs, length)
    for vocab in (1_000, 32_000) if bench.quick else (1_000, 8_000, 32_000, 128_000):
        wide = bench.load(lambda: llama(vocab))  # noqa: B023
        ours, theirs = bench.seconds(*sampling(bench, wide, 8, small), repeats=2)
        _line(f"vocabulary {vocab}, batch 8", ours, theirs, small)


def _line(what: str, ours: list[float], theirs: list[float], steps: int) -> None:
    each = [1e3 * statistics.median(t) / steps for t in (ours, theirs)]
    print(f"  {what:28}{each[0]:10.2f}{each[1]:10.2f}{ratio(ours, theirs):8.2f}", flush=True)


PARTS: dict[str, Callable[[Bench], None]] = {
    "ancestral": ancestral_speed,
    "backtrack": backtrack_speed,
    "anew": anew_speed,
    "vgb": vgb_speed,
    "growth": growth,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="shorter rows, two repeats")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {unknown.pop()!r}: must be {', '.join(PARTS)}")
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    bench = Bench(options.device, options.dtype, options.quick, 2 if options.quick else options.repeats)
    print(
        f"{options.device}, {options.dtype}, {torch.get_num_threads()} threads, torch {torch.__version__}", flush=True
    )
    for part in options.parts or PARTS:
        PARTS[part](bench)


if __name__ == "__main__":
    main()
