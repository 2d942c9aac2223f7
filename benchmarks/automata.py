"""Speed of the automata line: running, algebra, compiling and checking, growth, training, guard rails.

    python benchmarks/automata.py [--device cuda] [--threads 2] [--seconds 4] [--clock wall]
                                  [--only running algebra checking growth training guards]

One run prints, on the same machine:
- tokens per second of `Automaton.simulate` on Grid_9 and other automata, in batches of several shapes, against loops
  over single tokens in Python, through lists, through numpy arrays and through torch tensors;
- the time to close the semigroups of Dyck_{4,2} with its trap (1,245 maps) and of S_6 on six points (720), against a
  closure of tuples in a Python set; and to decompose 1,000 random automata of five states;
- the time to compile, and sequences per second that `verify` judges, exhaustively and from every start state;
- how compile time, depth and weights grow with the length T and with the number of states;
- model-steps per second of a small GPT-like net in a stack of 32 against one by one and against an eager loop;
- what happens to a semigroup that is larger than its cap.

Running and training go to `--device`. On a machine that is busy take `--threads 1 --clock cpu`, which counts the time
that the processor spent on this program: what a quiet machine would take.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sandtable.arguments import ArgumentError
from sandtable.models import Transformer
from sandtable.objectives import EveryState
from sandtable.theory.automata import closed_forms, compile, holonomy, semigroup, verify
from sandtable.training import Adam, Recipe, stream
from sandtable.worlds.automata import Automaton, dyck, fixture, from_permutations, grid

PARTS = ("running", "algebra", "checking", "growth", "training", "guards")
STACK, BATCH, LENGTH = 32, 16, 14
WIDE = 46


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = CLOCKS["wall"]


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """Least seconds of several runs, after one to warm up: the machine may be busy with other things."""
    times = []
    for _ in range(repeats + 1):
        began = clock()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(clock() - began)
    return min(times[1:])


def heading(name: str, *columns: str) -> None:
    print(f"{name:{WIDE}}" + "".join(f"{column:>14}" for column in columns))


def line(name: str, *values: float | str) -> None:
    shown = (value if isinstance(value, str) else f"{value:,.{1 if value < 1000 else 0}f}" for value in values)
    print(f"{name:{WIDE}}" + "".join(f"{value:>14}" for value in shown), flush=True)


# -- running ---------------------------------------------------------------------------------------------------------


def token_by_token(automaton: Automaton, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """q ← table[q][σ], one token after the other: lists are the fastest that Python has."""
    table, found = automaton.table, []
    for row in rows:
        q, states = automaton.start, []
        for token in row:
            q = table[q][token]
            states.append(q)
        found.append(states)
    return found


def in_arrays(automaton: Automaton, rows: np.ndarray | Tensor, table: np.ndarray | Tensor) -> np.ndarray | Tensor:
    """The same loop where inputs, states and table are arrays of numpy or of torch, as data loaders have them."""
    found = rows + 0
    for i in range(len(rows)):
        q = automaton.start
        for t in range(rows.shape[1]):
            q = table[q, rows[i, t]]
            found[i, t] = q
    return found


def running(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for name in ("GRID9", "S5", "DYCK"):
        heading(f"running {name}", "M tokens/s", "vs lists", "vs numpy", "vs torch")
        automaton = fixture(name)
        few = torch.randint(automaton.n_tokens, (1000, 100), generator=generator)
        some, table = few[:20], automaton.tensor()
        right = automaton.simulate(few)
        listed = few.tolist()
        assert right.tolist() == token_by_token(automaton, listed)
        assert torch.equal(torch.as_tensor(in_arrays(automaton, some.numpy(), table.numpy())), right[:20])
        assert torch.equal(torch.as_tensor(in_arrays(automaton, some, table)), right[:20])
        slow = {
            "lists": best(lambda a=automaton, rows=listed: token_by_token(a, rows)) / few.numel(),
            "numpy": best(lambda a=automaton, x=some, t=table: in_arrays(a, x.numpy(), t.numpy())) / some.numel(),
            "torch": best(lambda a=automaton, x=some, t=table: in_arrays(a, x, t)) / some.numel(),
        }
        for way, each in slow.items():
            line(f"token by token, {way}", f"{1e-6 / each:.2f}")
        shapes = [(1000, 100), (20_000, 100), *[(100, 10_000), (1, 1_000_000)] * (name == "GRID9")]
        shapes += [(1_000_000, 100)] * (device != "cpu")
        for rows, length in shapes:
            x = torch.randint(automaton.n_tokens, (rows, length), generator=generator).to(device)
            fast = best(lambda a=automaton, x=x: a.simulate(x), repeats=10) / x.numel()
            line(f"simulate, {rows:,} × {length:,}", 1e-6 / fast, *(each / fast for each in slow.values()))


# -- algebra ---------------------------------------------------------------------------------------------------------


def closed_in_a_set(automaton: Automaton) -> int:
    """How many maps words induce, tuples in a set."""
    maps = automaton.maps
    seen, frontier = set(maps), list(dict.fromkeys(maps))
    while frontier:
        new = [tuple(token[q] for q in image) for image in frontier for token in maps]
        frontier = [image for image in dict.fromkeys(new) if image not in seen]
        seen.update(frontier)
    return len(seen)


def random_automata(count: int, states: int, tokens: int) -> list[Automaton]:
    rng = np.random.default_rng(0)
    tables = rng.integers(states, size=(count, states, tokens)).tolist()
    return [Automaton(tuple(tuple(row) for row in table)) for table in tables]


def algebra() -> None:
    heading("algebra", "maps", "ms", "vs a set")
    six = from_permutations([(1, 2, 3, 4, 5, 0), (1, 0, 2, 3, 4, 5)])
    for name, automaton, expected in (
        ("semigroup of Dyck_{4,2} and its trap", dyck(4, 2), closed_forms.dyck_order(4, 2)),
        ("semigroup of S_6 on six points", six, 720),
        ("semigroup of Grid_9", grid(9), closed_forms.grid_order(9)),
        ("all maps on six points", from_table_of_all(6), 6**6),
    ):
        assert semigroup(automaton).order == closed_in_a_set(automaton) == expected
        fast = best(lambda a=automaton: semigroup(a))
        slow = best(lambda a=automaton: closed_in_a_set(a), repeats=2)
        line(name, f"{expected:,}", 1e3 * fast, slow / fast)
    many = random_automata(1000, 5, 2)
    spent = best(lambda: [holonomy(a) for a in many], repeats=1)
    levels = [len(holonomy(a).levels) for a in many]
    line("holonomy of 1,000 random automata, 5 states", "", 1e3 * spent)
    print(f"  {1000 * spent / len(many):.2f} ms each; {min(levels)} to {max(levels)} levels")


def from_table_of_all(n: int) -> Automaton:
    """A cycle, a swap and a merger of two points: they generate all maps on n points."""
    cycle, swap = [(i + 1) % n for i in range(n)], [1, 0, *range(2, n)]
    return Automaton(tuple(zip(cycle, swap, [0, 0, *range(2, n)], strict=True)))


# -- compiling and checking ------------------------------------------------------------------------------------------


def checking() -> None:
    heading("compile, then check every input", "method", "compile, ms", "sequences", "sequences/s")
    lengths = {"PARITY": 12, "FLIPFLOP": 8, "GRID4": 11, "D8": 11, "Q8": 6, "ABAB": 12, "A5-POINTS": 8}
    for name, length in lengths.items():
        automaton = fixture(name)
        built = best(lambda a=automaton, t=length: compile(a, t), repeats=3)
        compiled = compile(automaton, length)
        began = clock()
        found = verify(compiled)
        spent = clock() - began
        assert found.exact
        assert found.exhaustive
        line(f"{name}, T = {length}", compiled.method, 1e3 * built, f"{found.inputs:,}", found.inputs / spent)


# -- growth ----------------------------------------------------------------------------------------------------------


def grown(name: str, automaton: Automaton, length: int, method: str) -> None:
    spent = best(lambda: compile(automaton, length, method=method), repeats=2)
    found = compile(automaton, length, method=method).sizes
    line(name, str(found.depth), str(found.width), f"{found.mlp_width:,}", f"{found.parameters:,}", 1e3 * spent)


def growth() -> None:
    heading("growth", "layers", "width", "MLP width", "parameters", "compile, ms")
    for length in (100, 1_000, 10_000, 100_000):
        grown(f"PARITY, counter, T = {length:,}", fixture("PARITY"), length, "counter")
    for name, method in (("S4", "cocycle"), ("GRID9", "grid"), ("ABAB", "krohn-rhodes"), ("A5-POINTS", "log")):
        for length in (25, 50, 100, 200, 400):
            grown(f"{name}, {method}, T = {length}", fixture(name), length, method)
    for n in (4, 8, 16, 32):
        grown(f"Grid_{n}, grid, T = 100", grid(n), 100, "grid")
    for n in (3, 4, 6, 8):
        grown(f"Grid_{n}, krohn-rhodes, T = 100", grid(n), 100, "krohn-rhodes")
    for n in (4, 8, 16, 32):
        grown(f"random, {n} states, log, T = 100", random_automata(1, n, 2)[0], 100, "log")


# -- training --------------------------------------------------------------------------------------------------------


def small_net() -> Transformer:
    return Transformer(
        2, layers=2, heads=4, width=32, mlp=64, norm="pre", causal=True, tied=False, outputs=2, biases=True,
        head_bias=True, positions="sinusoidal", longest=LENGTH,
    )  # fmt: skip


def stacked(models: int, device: str, seconds: float) -> float:
    """Steady model-steps per second of one stack, measured between progress reports."""
    ticks: list[tuple[float, int]] = []

    class Enough(Exception):
        pass

    def progress(step: int, steps: int, speed: float, loss: float) -> None:
        if device != "cpu":
            torch.cuda.synchronize()
        ticks.append((clock(), step))
        if len(ticks) > 2 and ticks[-1][0] - ticks[1][0] > seconds:
            raise Enough

    world = Automaton(fixture("PARITY").table, length=LENGTH)
    recipe = Recipe(small_net(), world, EveryState(), steps=10**6, batch_size=BATCH, optimizer=Adam(1e-3), chunk=models)
    with contextlib.suppress(Enough):
        recipe.train(models, device=device, progress=progress)
    (t0, s0), (t1, s1) = ticks[1], ticks[-1]
    return models * (s1 - s0) / (t1 - t0)


def eager(device: str, seconds: float, warm: int = 5) -> float:
    """Steps per second of one ordinary module with torch.optim.Adam, on 64 batches drawn before."""
    net = small_net().initialise(stream("init", 0)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    objective, world = EveryState(), Automaton(fixture("PARITY").table, length=LENGTH)
    block = objective.draw_block(world.sample(64 * BATCH, stream("data", 0)).fold(64), stream("noise", 0), range(64))
    examples = [tree_map(lambda t, s=s: t[s].to(device), block) for s in range(64)]

    def apply(_: object, inputs: Tensor) -> Tensor:
        return net(inputs)

    def step(i: int) -> None:
        optimizer.zero_grad()
        objective.loss(apply, {}, examples[i % 64])[0].backward()
        optimizer.step()

    done, began = -warm, 0.0
    while done <= 0 or clock() - began < seconds:
        if done == 0:
            began = clock()
        step(warm + done)
        done += 1
    if device != "cpu":
        torch.cuda.synchronize()
    return done / (clock() - began)


def training(device: str, seconds: float) -> None:
    heading(f"training, parity, T = {LENGTH}, batch {BATCH}", "model-steps/s", "vs eager")
    alone = eager(device, seconds)
    line("eager PyTorch, one by one", alone, "1")
    for models in (1, 8, STACK):
        speed = stacked(models, device, seconds)
        line(f"stacks of {models}" if models > 1 else "fit, one by one", speed, speed / alone)


# -- guard rails -----------------------------------------------------------------------------------------------------


def guards() -> None:
    print("guard rails")
    for automaton, cap in ((fixture("DYCK48"), 10_000), (from_table_of_all(8), 100_000), (fixture("S5"), 100)):
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, clock()
        try:
            semigroup(automaton, cap=cap)
        except ArgumentError as error:
            spent = clock() - began
            more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            print(f"  {error} ({spent:.2f} s, {max(more, 0):.0f} MB more)")
        else:
            raise AssertionError(f"{automaton.name}: the cap of {cap} did not stop it")


def main() -> None:
    global clock
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    arguments = parser.parse_args()
    clock = CLOCKS[arguments.clock]
    torch.set_num_threads(arguments.threads)
    name = torch.cuda.get_device_name() if arguments.device != "cpu" else "CPU"
    print(f"{name}, {torch.get_num_threads()} CPU threads, torch {torch.__version__}, {arguments.clock} time")
    parts: dict[str, Callable[[], None]] = dict(
        running=lambda: running(arguments.device), algebra=algebra, checking=checking, growth=growth,
        training=lambda: training(arguments.device, arguments.seconds), guards=guards,
    )  # fmt: skip
    for part, work in parts.items():
        if part in arguments.only:
            work()


if __name__ == "__main__":
    main()
