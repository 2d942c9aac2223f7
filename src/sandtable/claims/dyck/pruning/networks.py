"""One random network, two functions: what zeroing entries alone can do, and what two prunings may have in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import brentq
from torch import Tensor

from sandtable.claims.dyck.setting import wen
from sandtable.lab import Control, Evidence, Lab, Source, Table, agrees, bounded, claim, exceeds
from sandtable.lab.figures import curves, heatmaps
from sandtable.models import Transformer
from sandtable.theory import pruning
from sandtable.theory.pruning.linear import SELECTIONS

ERROR = 1e-3
"""ε of the theorem: the largest ‖f(X) − T(X)‖₁,₂ / ‖X‖₁,₂ that is let pass."""
APART = 0.3
"""How far two targets must be from each other, in the same units, for their prunings to count as different."""

# -- two targets from one network ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Of the targets; `C` is the C of LN_C. The network's follow from these and from `units`."""

    width: int = 4
    key_width: int = 3
    hidden: int = 8
    layers: int = 1
    C: float = 0.5


SMALL = Sizes(width=3, key_width=2, hidden=4)


@dataclass(frozen=True)
class Pruning:
    sizes: Sizes = Sizes()
    positions: int = 6
    inputs: int = 40
    units: int = 24
    select: str = "best"
    targets: str = "two"
    kept: str = "as they are"


@claim(
    id="dyck/pruning",
    statement=(
        "A random network with four layers for every layer of the target, entries uniform on (−1, 1), computes either "
        "of two Transformers at least 0.3 apart to within 1e-3, relative in the 1,2-norm, after nothing but setting "
        "entries to zero."
    ),
    source=wen("Theorem 2.2.3"),
    scales={"smoke": Pruning(sizes=SMALL, units=18, inputs=20), "desk": Pruning()},
    controls=(
        Control("eight products for every weight", {"units": 8}, ("relative error",)),
        Control("the same target twice", {"targets": "one"}, ("least distance of the prunings",)),
        Control("kept entries a trillionth larger", {"kept": "rescaled"}, ("entries neither own nor zero",)),
    ),
    seeds={"smoke": 1, "desk": 10},
)
def pruned(settings: Pruning, lab: Lab) -> Evidence:
    found = lab.measure(prunings, settings)
    return Evidence(
        [
            bounded("relative error", found["error"], ERROR, unit="pruning"),
            exceeds("least distance of the prunings", found["apart"].min(), APART, unit="network", deterministic=True),
            bounded("entries neither own nor zero", found["foreign"], 0.0, unit="pruning"),
        ],
        figures={"masks": lambda: _masks(settings, lab)},
        tables={
            "prunings": Table(
                ["network", "errors", "distance", "worst subset sum is off by", "share of entries kept"],
                [
                    [seed, ", ".join(f"{e:.2g}" for e in error), apart, residual.max(), kept.mean()]
                    for seed, error, apart, residual, kept in zip(
                        lab.seeds, *(found[key] for key in ("error", "apart", "residual", "kept")), strict=True
                    )
                ],
            ),
        },
    )


def prunings(lab: Lab, settings: Pruning) -> dict[str, np.ndarray]:
    """Per seed: a network, two targets, and how well each is met by entries of the network alone."""
    rows: dict[str, list] = {key: [] for key in ("error", "apart", "foreign", "residual", "kept")}
    for seed in lab.seeds:
        network, targets, x = drawn(settings, lab, seed)
        done = [_prune(settings, lab, network, target) for target in targets]
        models = [_rescaled(one.model) if settings.kept == "rescaled" else one.model for one in done]
        rows["error"].append([pruning.distance(*pair, x) for pair in zip(models, targets, strict=True)])
        rows["apart"].append(pruning.distance(models[0], models[1], x))
        rows["foreign"].append([_foreign(model, network) for model in models])
        rows["residual"].append([one.residual for one in done])
        total = sum(p.numel() for p in network.parameters())
        rows["kept"].append([sum(int(mask.sum()) for mask in one.masks.values()) / total for one in done])
    return {key: np.array(values, dtype=float) for key, values in rows.items()}


def drawn(settings: Pruning, lab: Lab, seed: int) -> tuple[Transformer, list[Transformer], Tensor]:
    """A network, two targets and inputs X with ‖X‖₁,₂ ≤ 1."""
    size, generator = settings.sizes, lab.generator(seed, "targets")
    make = partial(
        pruning.random_target, size.width, key_width=size.key_width, hidden=size.hidden, layers=size.layers, eps=size.C
    )
    targets = [make(generator=generator) for _ in range(2)]
    targets = targets if settings.targets == "two" else [targets[0], targets[0]]
    network = pruning.random_network(
        **pruning.sizes(targets[0], units=settings.units), eps=size.C, generator=lab.generator(seed, "network")
    )
    inputs = lab.generator(seed, "inputs")
    x = torch.randn(settings.inputs, settings.positions, size.width, generator=inputs, dtype=torch.float64)
    radius = torch.rand(settings.inputs, generator=inputs, dtype=torch.float64)
    return network, targets, x * (radius / pruning.norm12(x))[:, None, None]


def _prune(settings: Pruning, lab: Lab, network: Transformer, target: Transformer, **options) -> pruning.Pruned:
    return pruning.prune(network, target, units=settings.units, select=settings.select, progress=lab.say, **options)


def _rescaled(model: Transformer) -> Transformer:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 1e-12)
    return model


def _foreign(model: Transformer, network: Transformer) -> int:
    """How many entries are neither zero nor, bit by bit, the network's."""
    pairs = zip(model.parameters(), network.parameters(), strict=True)
    return sum(int((mine.ne(0) & mine.ne(own)).sum()) for mine, own in pairs)


def _masks(settings: Pruning, lab: Lab, shown: int = 16) -> Figure:
    """What two prunings keep of the first hidden units in a layer that computes, and in one that does nothing."""
    network, targets, _ = drawn(settings, lab, lab.seeds[0])
    done = [_prune(settings, lab, network, target).model for target in targets]
    middle, kept = 2 * settings.sizes.width, {}
    for layer, what in ((1, "computes"), (len(network.layers) - 1, "identity")):
        for name, model in zip("AB", done, strict=True):
            weight = model.get_parameter(f"blocks.{layer}.mlp.W_1").detach()
            kept[f"layer {layer + 1} ({what}), target {name}"] = weight[:shown, :middle].T.numpy()
    return heatmaps(
        kept,
        limit=1.0,
        rows=[str(i + 1) for i in range(middle)],
        columns=[str(i + 1) for i in range(shown)],
        title="What two prunings keep of one network: weights after the first hidden units",
        xlabel="hidden unit",
        ylabel="unit after",
    )


# -- a matrix in common ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shared(Pruning):
    chosen: tuple[int, ...] = (0, 1, 2, 3)
    second: str = "leaves the layer idle"


@claim(
    id="dyck/shared-matrix",
    statement=(
        "Choose any matrix of the random network: two prunings to different Transformers can agree on it entry by "
        "entry, so looking at it tells nothing about which of them is computed."
    ),
    source=wen("Corollary 2.2.3"),
    scales={
        "smoke": Shared(sizes=SMALL, units=18, inputs=10, chosen=(0, 2)),
        "desk": Shared(),
    },
    controls=(
        Control("the layer computes in one of the two", {"second": "computes"}, ("entries that differ",)),
        Control("eight products for every weight", {"units": 8}, ("relative error",)),
        Control("the same target twice", {"targets": "one"}, ("least distance of the prunings",)),
    ),
    seeds={"smoke": 1, "desk": 3},
)
def shared(settings: Shared, lab: Lab) -> Evidence:
    found = lab.measure(common, settings)
    rows = [
        [seed, layer + 1, *values]
        for seed, *per_seed in zip(lab.seeds, *(found[key] for key in ("differ", "kept", "apart")), strict=True)
        for layer, *values in zip(settings.chosen, *(row.tolist() for row in per_seed), strict=True)
    ]
    return Evidence(
        [
            bounded("entries that differ", found["differ"], 0.0, unit="layer"),
            bounded("relative error", found["error"], ERROR, unit="pruning"),
            exceeds("least distance of the prunings", found["apart"].min(), APART, unit="layer", deterministic=True),
        ],
        tables={
            "chosen layers": Table(
                ["network", "chosen layer", "entries that differ", "entries kept there", "distance"], rows
            )
        },
        notes=["All matrices of the chosen layer are compared: keys, queries, values and the four of the MLP."],
    )


def common(lab: Lab, settings: Shared) -> dict[str, np.ndarray]:
    """Per seed and chosen layer: entries on which two prunings differ there, their errors and their distance."""
    rows: dict[str, list] = {key: [] for key in ("differ", "kept", "error", "apart")}
    for seed in lab.seeds:
        network, targets, x = drawn(settings, lab, seed)
        found = [_pair(settings, lab, network, targets, x, layer) for layer in settings.chosen]
        for key, values in zip(rows, zip(*found, strict=True), strict=True):
            rows[key].append(values)
    return {key: np.array(values, dtype=float) for key, values in rows.items()}


def _pair(
    settings: Shared, lab: Lab, network: Transformer, targets: list[Transformer], x: Tensor, layer: int
) -> tuple[int, int, list[float], float]:
    total = len(network.layers)
    # Every second layer from the chosen one on: so that it also lies between two that belong together.
    idle = [[(layer + shift + 2 * i) % total for i in range(total // 2)] for shift in (0, 1)]
    second = idle[1] if settings.second == "computes" else idle[0]
    done = [
        _prune(settings, lab, network, target, identity_layers=layers).model
        for target, layers in zip(targets, (idle[0], second), strict=True)
    ]
    one, two = ([p for name, p in m.named_parameters() if name.startswith(f"blocks.{layer}.")] for m in done)
    differ = sum(int((a != b).sum()) for a, b in zip(one, two, strict=True))
    errors = [pruning.distance(*pair, x) for pair in zip(done, targets, strict=True)]
    return differ, sum(int(a.ne(0).sum()) for a in one), errors, pruning.distance(done[0], done[1], x)


# -- four layers pruned to two ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stages:
    width: int = 4
    hidden: int = 8
    targets: int = 40
    inputs: int = 500
    units: int = 24
    outer: str = "linear"


@claim(
    id="dyck/two-layers-from-four",
    statement=(
        "A random ReLU network of four layers is pruned to any one of two layers with matrices of norm 1, by pruning "
        "its first two layers to the first matrix and its last two, without a ReLU at the end, to the second."
    ),
    source=wen("Lemma 2.2.6, corrected"),
    scales={"smoke": Stages(targets=3, units=20), "desk": Stages()},
    controls=(Control("eight products for every weight", {"units": 8}, ("relative error",)),),
)
def stages(settings: Stages, lab: Lab) -> Evidence:
    errors = {select: lab.measure(stage_errors, settings, select)["error"] for select in SELECTIONS}
    return Evidence(
        [bounded("relative error", errors["best"], ERROR, unit="target")],
        tables={
            "which products a weight may use": Table(
                ["products", "median error", "largest error"],
                [[select, float(np.median(found)), found.max()] for select, found in errors.items()],
            )
        },
        notes=[
            "Products: first are any of a weight's own units; largest those of largest absolute value; best as many "
            "positive and negative ones as make subset sums densest at the weight. A weight out of reach of all sums "
            "decides the largest error, and only the best leave none."
        ],
    )


def stage_errors(lab: Lab, settings: Stages, select: str) -> dict[str, np.ndarray]:
    """Per seed and target: the largest ‖f(x) − g(x)‖ / ‖x‖."""
    targets = range(settings.targets)
    rows = [[_stage_error(settings, lab.generator(seed, f"stages {i}"), select) for i in targets] for seed in lab.seeds]
    return {"error": np.array(rows)}


def _stage_error(settings: Stages, generator: torch.Generator, select: str) -> float:
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    m, w = settings.width, settings.hidden
    wide = (2 * settings.units + int(6 * (2 * settings.units) ** 0.5)) * max(m, w)
    shapes = ((m, wide), (wide, w), (w, wide), (wide, m))
    entries = [2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1 for shape in shapes]
    one, two = (w / torch.linalg.matrix_norm(w, 2) for w in (normal((m, w)), normal((w, m))))
    lower = pruning.prune_relu(entries[0], entries[1], one, units=settings.units, select=select)
    upper = pruning.prune_relu(entries[2], entries[3], two, units=settings.units, select=select, positive=True)
    kept = [e * mask for e, mask in zip(entries, (*lower[:2], *upper[:2]), strict=True)]
    x = normal((settings.inputs, m))
    found = ((x @ kept[0]).relu() @ kept[1]).relu()
    found = (found @ kept[2]).relu() @ kept[3]
    found = found if settings.outer == "linear" else found.relu()
    return float(((found - (x @ one).relu() @ two).norm(dim=1) / x.norm(dim=1)).max())


# -- subset sums -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sums:
    elements: tuple[int, ...] = (8, 12, 16, 20)
    judged: int = 16
    sets: int = 3000
    uses: str = "all elements"


@claim(
    id="dyck/subset-sums",
    statement=(
        "The distance from a weight in (−1, 1) to the nearest subset sum of n products of uniform entries is that to a "
        "Poisson process with the density of the sums, λ = 2ⁿ φ((t − μ)/s)/s: exponential with mean 1/(2λ), so that "
        "exp(−2λ · distance) is uniform."
    ),
    source=Source("Lueker", 1998, "random subset sums come exponentially near; the local form is our own"),
    scales={"smoke": Sums(sets=4000, elements=(8, 12, 16)), "desk": Sums(sets=10_000, elements=(8, 12, 16, 20, 24))},
    controls=(Control("one element never used", {"uses": "all but one"}, ("mean of exp(−2λ · distance)",)),),
)
def sums(settings: Sums, lab: Lab) -> Evidence:
    sizes = {n: settings.sets if n <= settings.judged else 200 for n in {*settings.elements, settings.judged}}
    found = {n: distances(lab, n, sets, settings.uses) for n, sets in sizes.items()}
    measured, expected = found[settings.judged]
    medians = [[n, np.median(found[n][0]), mixed_median(found[n][1]), found[n][0].max()] for n in settings.elements]
    return Evidence(
        [agrees("mean of exp(−2λ · distance)", np.exp(-measured / expected), 0.5, relative=0.08, unit="set")],
        figures={
            "distances": lambda: curves(
                settings.elements,
                {"median": [row[1] for row in medians]},
                predictions={"Poisson": [row[2] for row in medians]},
                log_y=True,
                xlabel="elements of a set",
                ylabel="distance of the nearest sum",
                title="How near subset sums come",
            )
        },
        tables={"distances": Table(["elements", "median", "predicted median", "largest"], medians)},
    )


def distances(lab: Lab, elements: int, sets: int, uses: str) -> tuple[np.ndarray, np.ndarray]:
    """Distances of random weights from their nearest sums, and the means that the density of sums predicts."""
    lab.say(f"{sets} sets of {elements}")
    generator = lab.generator(lab.seeds[0], f"sets of {elements}")
    factors = 2 * torch.rand(2, sets, elements, generator=generator, dtype=torch.float64) - 1
    weights = 2 * torch.rand(sets, generator=generator, dtype=torch.float64) - 1
    values = factors[0] * factors[1]
    expected = pruning.expected_residual(values, weights)
    used = values[:, 1:] if uses == "all but one" else values
    return pruning.nearest_subsets(used, weights)[1].numpy(), expected.numpy()


def mixed_median(means: np.ndarray) -> float:
    """The median of exponential distances with these means, each as likely as the other."""
    return cast(float, brentq(lambda d: np.exp(-d / means).mean() - 0.5, 0.0, 20 * np.median(means), xtol=1e-15))


CLAIMS = (pruned, shared, stages, sums)
