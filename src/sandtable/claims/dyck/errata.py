"""What the sources print on balance and exact models and what does not hold, each beside a claim that does.

Left out, because nothing can be measured: letters used twice, "row" for "column" in Definition 2.2.6, dimensions that
forget the start token, 𝒞·(…) for 𝒞 + (…), Lemma 2.2.20's [I, −I]ᵀ (which has the wrong shape to be multiplied), and
strings that print differently in two copies of one text. Nor are slips claims that name what does not exist, or not
what is meant, so that the corrected form is the only one that can be computed:

- the necessity proof has ã_2 with W_V X_{:,N+1} for W_V X_{:,i}, ends with e(τ_{2j+1,d}) for the closer e(τ_{2j,d}),
  and asks P⊥ W_V e ≠ 0 of t ∈ [k], though closers need it too (t ∈ [2k]);
- Theorem 2.2.2 lets d' be 0, which takes closers of depth −1, and d be 1, where no bracket is open to be closed: d'
  runs from 1 to D and d from 2;
- S is defined with the query τ_{2j,d}, and Q, P and the proof take τ_{2j,d−1}; eq. 2.80 has an opener of depth d' − 1;
  Q takes i ∈ [k] and is called with 2j; t' minimises a vector where its norm is meant, and Corollary 2.2.2 has P_{d,i}
  for P_{d,j}.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, zip_longest
from typing import Any

import torch

from sandtable.claims.dyck import necessity
from sandtable.claims.dyck.setting import DEPTH, PAIRS, SIZE, TYPES, WORLD, layer_of, wen
from sandtable.lab import Claim, Control, Evidence, Lab, Table, bounded, claim, exact, exceeds, printed
from sandtable.models.attention import silent
from sandtable.probes.dyck.balance import least_outputs
from sandtable.theory import dyck as theory
from sandtable.worlds import DyckPrefixes

# -- symbols ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Indices:
    depth_of: str = "pair"
    closers: str = "depth 1 to D − 1"
    direction: str = "(t − 1)D + d"


@claim(
    id="dyck/symbols",
    statement=(
        "Numbered by type and by the depth of their pair, all 2kD brackets have an index of their own, the balance "
        "condition names only brackets that exist when closers range over depths 1 to D − 1, and the kD directions of "
        "the stack are b_{(t−1)D+d}."
    ),
    source=wen("eqs. 2.47 and 2.55 and the proof of Theorem 2.2.1, indices corrected"),
    scales={"smoke": Indices(), "desk": Indices()},
    controls=(
        Control("depth after the token", {"depth_of": "token"}, ("different indices", "different one-hot vectors")),
        Control(
            "closers of depth 1 to D", {"closers": "depth 1 to D"}, ("brackets that do not exist, or are left out",)
        ),
        Control("types from one on", {"direction": "tD + d"}, ("places of the stack's directions",)),
    ),
)
def symbols(settings: Indices, lab: Lab) -> Evidence:
    different, rows, wanted, missing, places, directions = [], [], [], [], [], []
    for types, depth in product((1, 2, 3), (1, 2, 4)):
        size: dict[str, Any] = dict(types=types, depth=depth)
        world, pairs = DyckPrefixes(**size), types * depth
        row = world.reference[None]  # all types at all depths
        token, after = row[0, 1:], world.brackets.trace(row).depth[0, 1:]
        closes = world.brackets.closes(token)
        # Printed as (t − 1)D + d with openers 2i − 1 and closers 2i: order the types so, 0-based.
        by_token = (2 * (token % types) + closes.long()) * depth + after
        index = by_token if settings.depth_of == "token" else world.symbols(row)[0, 1:]
        different.append(len(index.unique()))
        rows.append(len(theory.symbol_embedding("E1", **size)[world.symbols(row)[0, 1:]].unique(dim=0)))
        wanted.append(2 * pairs)
        leaves = world.symbols(row)[0, 1:][closes & (after > 0)].tolist()
        asked = theory.constrained_queries(**size).tolist()
        if settings.closers == "depth 1 to D":  # what leaves depth D would be a closer of depth D + 1
            asked += [pairs + (t + 1) * depth + pairs for t in range(types)]
        missing.append(len(set(asked) - set(leaves)) + len(set(leaves) - set(asked)))
        basis = theory.stack_basis(pairs)
        values = theory.second_layer(theory.build("uniform", **size), **size)[1][:pairs]
        written = values[:, 2 * pairs + 1 :][:, : basis.shape[1]] @ basis.T
        directions += [int(place) if written[i, place] > 0.5 else -1 for i, place in enumerate(written.argmax(1))]
        skipped = 0 if settings.direction == "tD + d" else 1
        places += [(t - skipped) * depth + d for t, d in product(range(1, types + 1), range(1, depth + 1))]
    return Evidence(
        [
            exact("different indices", different, wanted, unit="world"),
            exact("different one-hot vectors", rows, different, unit="world"),
            bounded("brackets that do not exist, or are left out", missing, 0.0, unit="world"),
            exact("places of the stack's directions", places, directions, unit="direction"),
        ]
    )


# -- what cancels ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cancels:
    models: int = 10
    first: str = "key"


@claim(
    id="dyck/pairs-cancel",
    statement=(
        "In every exact model here, what opener and closer of a pair add to the attention output of a closer that "
        "leaves a bracket open sums to zero: U(opener → query) + U(closer → query) = 0, keys first."
    ),
    source=wen("Theorem 2.2.1, the vector form of its proof; definition of u (eq. 2.48)"),
    scales={"smoke": Cancels(), "desk": Cancels(models=100)},
    controls=(Control("arguments exchanged", {"first": "query"}, ("‖S‖ / P",)),),
)
def cancels(settings: Cancels, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "scores")
    ratios = []
    for _ in range(settings.models):
        layer = layer_of(theory.from_scores(theory.random_scores(generator, **SIZE), **SIZE))
        queries = theory.constrained_queries(**SIZE)
        top = layer.scores[:, queries].amax(0)
        floor = least_outputs(layer, **SIZE)
        for column, query in enumerate(queries.tolist()):
            if settings.first == "key":
                weight = (layer.scores[:, query] - top[column]).exp()
                parts = weight[:, None] * layer.values
            else:  # u(query, key) takes the value of the query, and scores with the two exchanged
                weight = (layer.scores[query] - top[column]).exp()
                parts = weight[:, None] * layer.values[query]
            sums = (parts[:PAIRS] + parts[PAIRS : 2 * PAIRS]).norm(dim=1)
            ratios += (sums / floor[column]).tolist()
    return Evidence([bounded("‖S‖ / P", ratios, 1e-9, unit="index")])


# -- helper networks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Helpers:
    trials: int = 50
    extra: float = 0.0
    gap: str = "kept"


@claim(
    id="dyck/helper-networks",
    statement=(
        "Small ReLU networks compute tables, selection x_y, the place of a single entry and linear maps exactly."
    ),
    source=wen("Lemmas 2.2.15, 2.2.17, 2.2.18 and 2.2.20, corrected"),
    scales={"smoke": Helpers(trials=20), "desk": Helpers(trials=200)},
    controls=(
        Control("M added to the place", {"extra": 10.0}, ("place of one",)),
        Control("points moved by their gap", {"gap": "moved"}, ("table", "selection", "linear map")),
    ),
)
def helpers(settings: Helpers, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "points")
    errors: dict[str, list[float]] = {"table": [], "selection": [], "place of one": [], "linear map": []}
    moved = 0.3 * (settings.gap == "moved")
    for trial in range(settings.trials):
        points = torch.randn(9, 5, generator=generator).double()
        values = torch.randn(9, 3, generator=generator).double()
        table = theory.lookup(points, values, directions=500, seed=trial)
        errors["table"].append(float((table(points + moved, silent) - values).abs().max()))
        x = 10 * torch.rand(6, 6, generator=generator).double()
        y = torch.arange(1, 7).double()
        found = theory.selector(6, 10.0)(torch.cat([x + moved, y[:, None]], 1), silent)[:, 0]
        errors["selection"].append(float((found - x.diagonal()).abs().max()))
        single = torch.diag(10 + torch.rand(6, generator=generator).double() + 0.1)
        place = theory.place_of_one(6, 10.0)(single, silent)[:, 0] + settings.extra
        errors["place of one"].append(float((place - y).abs().max()))
        weight = torch.randn(5, 4, generator=generator).double()
        errors["linear map"].append(
            float((theory.linear(weight)(points + moved, silent) - points @ weight).abs().max())
        )
    return Evidence([bounded(name, found, 1e-9, unit="network") for name, found in errors.items()])


# -- the loss of the approximate theorem -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    length: int = 8
    loss: str = "excess"
    closers: float = 1.0


@claim(
    id="dyck/excess-loss",
    statement=(
        "Exact models have excess squared loss below (q(1−q)/k²)^N, as the approximate-balance theorem asks; the loss "
        "itself cannot be smaller than the Bayes floor, about one half."
    ),
    source=wen("Theorem 2.2.2, hypothesis on the loss, corrected"),
    scales={"smoke": Loss(length=7), "desk": Loss()},
    controls=(Control("values of closers a percent smaller", {"closers": 0.99}, ("loss over (q(1−q)/k²)^N",)),),
)
def excess(settings: Loss, lab: Lab) -> Evidence:
    world = DyckPrefixes(**SIZE, length=settings.length)
    support = world.support()
    x = support.batch.x
    law = world.next_token_law(x)[:, :-1, : 2 * TYPES]
    found, rows = [], []
    for name in theory.ATTENTIONS:
        model = theory.build(name)
        values = theory.second_layer(model, **SIZE)[1]
        values[PAIRS:-1] *= settings.closers
        out = theory.with_values(model, values, **SIZE)(x)[:, :-1]
        above = (out - law).square().sum(-1).mean(1) @ support.weights
        floor = (1 - law.square().sum(-1)).mean(1) @ support.weights
        loss = above if settings.loss == "excess" else above + floor
        bound = (world.q * (1 - world.q) / TYPES**2) ** settings.length
        found.append(float(loss / bound))
        rows.append([name, float(above), float(floor), bound])
    return Evidence(
        [bounded("loss over (q(1−q)/k²)^N", found, 1.0, unit="model")],
        tables={"losses": Table(["attention", "excess", "Bayes floor", "(q(1−q)/k²)^N"], rows)},
    )


# -- where the stack is written --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    length: int = 8
    place: str = "apart"
    openers: float = 1.0


@claim(
    id="dyck/stack-is-read-off",
    statement=(
        "With the directions of the stack in coordinates where embeddings vanish, the stream after attention and "
        "residual has weight zero on every bracket that is not open, and a positive one on every bracket that is."
    ),
    source=wen("Theorem 2.2.1, proof of sufficiency, corrected"),
    scales={"smoke": Reading(length=6), "desk": Reading()},
    controls=(
        Control("directions among the embeddings", {"place": "among"}, ("weight off the stack",)),
        Control("openers without values", {"openers": 0.0}, ("weight on the stack",)),
    ),
)
def read_off(settings: Reading, lab: Lab) -> Evidence:
    world = DyckPrefixes(**SIZE, length=settings.length)
    x = world.support().batch.x
    n, basis, name = theory.symbol_count(**SIZE), theory.stack_basis(PAIRS), "blocks.1.hook_resid_mid"
    on, off = [], []
    for attention in theory.ATTENTIONS:
        model = theory.build(attention, **SIZE)
        values = theory.second_layer(model, **SIZE)[1]
        values[:PAIRS] *= settings.openers
        stream = theory.with_values(model, values, **SIZE)(x, want=(name,))[1][name]
        start = n if settings.place == "apart" else 0
        weights = stream[..., start : start + basis.shape[1]] @ basis[1:].T
        signed = torch.cat([torch.eye(PAIRS), -torch.eye(PAIRS), torch.zeros(1, PAIRS)])
        open_now = signed[world.symbols(x)].cumsum(1) > 0.5
        asked = world.brackets.closes(x) & (world.brackets.trace(x).depth > 0)
        off.append(weights[asked][~open_now[asked]].abs().amax())
        on.append(weights[asked][open_now[asked]].amin())
    return Evidence(
        [
            bounded("weight off the stack", off, 1e-9, unit="model"),
            exceeds("weight on the stack", float(min(on)), 1e-9, deterministic=True),
        ]
    )


# -- prefix and distances --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prefix:
    text: str = "[[[[]]]](((())))"


@claim(
    id="dyck/reference-prefix",
    statement="`[[[[]]]](((())))` is in Dyck_{2,4} and holds every type of bracket at every depth once.",
    source=wen("section 2.2.3.2, the prefix on which attention is compared, corrected"),
    scales={"smoke": Prefix(), "desk": Prefix()},
    controls=(
        Control(
            "one bracket deeper",
            {"text": "[[[[]]]]((((())))"},
            ("too deep", "symbols that occur", "brackets of the world's own prefix that differ"),
        ),
    ),
)
def reference(settings: Prefix, lab: Lab) -> Evidence:
    own = "".join(WORLD.vocab.tokens[token] for token in WORLD.reference[1:].tolist())
    row = torch.tensor([[WORLD.bos, *("[(])".index(piece) for piece in settings.text)]])
    depth = WORLD.brackets.trace(row).depth
    counts = [0.0] * (2 * PAIRS)
    for token, after in zip(row[0, 1:].tolist(), depth[0, 1:].tolist(), strict=True):
        c = after if token < TYPES else after + 1
        if c <= DEPTH:
            counts[token * DEPTH + c - 1] += 1
    return Evidence(
        [
            bounded("too deep", (depth - DEPTH).clamp(min=0).numpy(), 0.0, unit="bracket"),
            exact("symbols that occur", counts, 1.0, unit="symbol"),
            exact("brackets of the world's own prefix that differ", _differ(own, settings.text), 0, unit="prefix"),
        ]
    )


def _differ(one: str, other: str) -> int:
    """Places at which two texts are not the same."""
    return sum(a != b for a, b in zip_longest(one, other))


@dataclass(frozen=True)
class Distances:
    depth: int = 4
    tv: str = "half of L1"
    types: str = "differ"


@claim(
    id="dyck/law-distances",
    statement=(
        "Laws after prefixes with the same last token and depth but another type to close are √2(1−q) apart in L2, "
        "2(1−q) in L1, and 1−q in total variation, which is half of L1."
    ),
    source=wen("proof of Theorem 2.2.2, distances corrected"),
    scales={"smoke": Distances(), "desk": Distances()},
    controls=(Control("the same type to close", {"types": "same"}, ("L2", "L1", "total variation")),),
)
def distances(settings: Distances, lab: Lab) -> Evidence:
    found: dict[str, list[float]] = {"L2": [], "L1": [], "total variation": []}
    gaps = []
    for q in (0.2, 0.5, 0.8):
        world = DyckPrefixes(types=2, depth=settings.depth, q=q)
        other = 1 if settings.types == "differ" else 0
        rows = torch.tensor([[4, 0, 0, 2], [4, other, 0, 2]])
        one, two = world.next_token_law(rows)[:, -1]
        found["L2"].append(float((one - two).norm()))
        found["L1"].append(float((one - two).abs().sum()))
        # the most that the two laws can disagree on any event
        found["total variation"].append(float((one - two).clamp(min=0).sum()))
        gaps.append(1 - q)
    tv = [2 * gap if settings.tv == "L1" else gap for gap in gaps]
    close: Any = dict(atol=1e-12, unit="law")
    return Evidence(
        [
            exact("L2", found["L2"], [2**0.5 * gap for gap in gaps], **close),
            exact("L1", found["L1"], [2 * gap for gap in gaps], **close),
            exact("total variation", found["total variation"], tv, **close),
        ]
    )


@dataclass(frozen=True)
class Told:
    cases: tuple[tuple[int, int, float, int], ...] = ((2, 4, 0.5, 8), (3, 2, 0.3, 6), (2, 3, 0.8, 7))
    known: str = "type and depth"
    side: str = "openers"


@claim(
    id="dyck/openers-tell-the-law",
    statement="After an opener the next-token law is a function of its type and its depth, not of its depth alone.",
    source=wen("Theorem 2.2.1, proof of sufficiency, corrected"),
    scales={"smoke": Told(), "desk": Told()},
    controls=(
        Control("the depth alone", {"known": "depth"}, ("laws that differ",)),
        Control("after closers", {"side": "closers"}, ("laws that differ",)),
    ),
)
def told(settings: Told, lab: Lab) -> Evidence:
    spreads = []
    for types, depth, q, length in settings.cases:
        world = DyckPrefixes(types=types, depth=depth, q=q, length=length)
        x = world.support().batch.x
        law, after = world.next_token_law(x).flatten(0, 1), world.brackets.trace(x).depth.flatten()
        token = x.flatten()
        asked = (world.brackets.opens if settings.side == "openers" else world.brackets.closes)(token) & (after > 0)
        kind = token * (settings.known == "type and depth")
        for group in (kind * (depth + 1) + after)[asked].unique().tolist():
            laws = law[asked & (kind * (depth + 1) + after == group)]
            spreads.append(float((laws.amax(0) - laws.amin(0)).max()))
    return Evidence([bounded("laws that differ", spreads, 1e-12, unit="symbol")])


# -- independence ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Independence:
    embedding: str = "E1"


@claim(
    id="dyck/independence",
    statement=(
        "One-hot pairs, independent over all types and depths together, let uniform attention tell the stacks [( and "
        "([ apart."
    ),
    source=wen("Theorem 2.2.1, the hypothesis on embeddings, corrected"),
    scales={"smoke": Independence(), "desk": Independence()},
    controls=(
        Control("types and depths added", {"embedding": "E2"}, ("distance of sums",)),
        Control("a type and an angle", {"embedding": "E3"}, ("distance of sums", "rank of all symbols")),
    ),
)
def independence(settings: Independence, lab: Lab) -> Evidence:
    table = theory.symbol_embedding(settings.embedding, **SIZE).double()
    rows = torch.tensor([[4, 0, 1, 0, 2], [4, 1, 0, 0, 2]])  # ⟨bos⟩ [([] and ⟨bos⟩ ([[]
    one, two = table[WORLD.symbols(rows)].sum(1)
    return Evidence(
        [
            exceeds("distance of sums", float((one - two).norm()), 0.0, deterministic=True),
            exact("rank of all symbols", int(torch.linalg.matrix_rank(table)), 2 * PAIRS + 1),
        ]
    )


@dataclass(frozen=True)
class DepthByDepth(Independence):
    embedding: str = "E2"


def _depth_by_depth(settings: Independence, lab: Lab) -> Evidence:
    table = theory.symbol_embedding(settings.embedding, **SIZE).double()
    levels = torch.arange(2 * PAIRS) % DEPTH
    ranks = [int(torch.linalg.matrix_rank(table[torch.cat([levels == c, torch.tensor([True])])])) for c in range(DEPTH)]
    (apart, _) = independence(settings, lab).checks
    return Evidence([exact("rank at every depth", ranks, 2 * TYPES + 1, unit="depth"), apart])


# -- as printed ------------------------------------------------------------------------------------------------------


PRINTED = (
    printed(
        "index-collision",
        symbols,
        {"depth_of": "token"},
        statement="(t − 1)D + d, d the depth after the token, numbers all brackets.",
        where="eq. 2.55",
        erratum=(
            "A closer that leaves depth 0 shares its index with the previous type's opener at depth D; use the depth "
            "of the pair."
        ),
    ),
    printed(
        "depth-range",
        symbols,
        {"closers": "depth 1 to D"},
        statement="The balance condition ranges over closers of depths 1 to D.",
        where="eq. 2.47",
        erratum="No closer leaves depth D; the depths are 1 to D − 1.",
    ),
    printed(
        "stack-directions",
        symbols,
        {"direction": "tD + d"},
        statement="The directions of the stack are b_{tD+d} for types t ∈ [k] and depths d ∈ [D].",
        where="Theorem 2.2.1, proof of sufficiency",
        erratum="There are kD directions, and tD + d runs to (k + 1)D; (t − 1)D + d is meant.",
    ),
    printed(
        "openers-tell",
        told,
        {"known": "depth"},
        statement="After an opener (t odd) the next-token law is determined by its depth d.",
        where="Theorem 2.2.1, proof of sufficiency",
        erratum="It is determined by type and depth: the closer that may follow is that of the opener's own type.",
    ),
    printed(
        "swapped-arguments",
        cancels,
        {"first": "query"},
        statement="Pairs cancel when u takes the query first and the key second.",
        where="eqs. 2.49–2.53 and the proof of Theorem 2.2.2",
        erratum="u is defined with the key first. Exchanged, both terms are positive multiples of the query's value.",
    ),
    printed(
        "place-of-one",
        helpers,
        {"extra": 10.0},
        statement="Σ_i i·(ReLU(x_i) − ReLU(x_i − M))/M + M gives the place of the entry above M.",
        where="Lemma 2.2.18",
        erratum="The + M is too much: with M = 10 place 3 becomes 13.",
    ),
    printed(
        "loss",
        excess,
        {"loss": "raw"},
        statement="Models can have squared loss below (q(1−q)/k²)^N.",
        where="Theorem 2.2.2",
        erratum="Against one-hot targets the loss has a floor of about 0.5; the theorem is about the excess over it.",
    ),
    printed(
        "residual-leak",
        read_off,
        {"place": "among"},
        statement="Projecting LN(attention) + x on the stack's directions gives 0 for brackets that are not open.",
        where="Theorem 2.2.1, proof of sufficiency",
        erratum="The last token's own embedding is not orthogonal to these directions; keep the two apart.",
    ),
    printed(
        "prefix",
        reference,
        {"text": "[[[[]]]]((((())))"},
        statement="`[[[[]]]]((((())))` is a prefix in Dyck_{2,4} of all types and depths.",
        where="section 2.2.3.2, the prefix as printed",
        erratum="It opens five brackets at once; `[[[[]]]](((())))` is meant.",
    ),
    printed(
        "total-variation",
        distances,
        {"tv": "L1"},
        statement="The total variation between two laws is their L1 distance.",
        where="proof of Theorem 2.2.2",
        erratum="It is half of it.",
    ),
    printed(
        "baseline-rows",
        necessity.baseline,
        {"causal": False},
        statement="The random baseline 2.85 is that of matrices with rows uniform on the simplex over all positions.",
        where="section 2.2.3.2, footnote on the random baseline",
        erratum="Such matrices differ by 2(N−1)/(N+1), below 2; 2.85 is that of causal patterns.",
    ),
)

DEPTHWISE = Claim(
    id="dyck/printed-independence",
    statement="Embeddings that are independent at every depth let uniform attention tell the stacks [( and ([ apart.",
    source=wen("Theorem 2.2.1, the hypothesis on embeddings"),
    scales={"smoke": DepthByDepth(), "desk": DepthByDepth()},
    measure=_depth_by_depth,
    expected="refuted",
    erratum=(
        "o_type ⊕ o_depth is independent at every depth, and its sums forget which type stood at which; the proof uses "
        "that all 2kD + 1 vectors are."
    ),
    corrected=independence.id,
)

CLAIMS = (symbols, cancels, helpers, excess, read_off, reference, distances, told, independence, *PRINTED, DEPTHWISE)
