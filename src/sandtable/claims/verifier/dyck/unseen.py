"""Prompts that neither generator nor verifier has seen: errors left, how tokens are redone, and what errors remain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from sandtable.claims.verifier.dyck import setting
from sandtable.claims.verifier.dyck.setting import GREEDY, PLAIN, PUBLISHED, WORLD, Method, Trained
from sandtable.claims.verifier.sources import botta
from sandtable.lab import Claim, Control, Evidence, Lab, Table, below, claim, exceeds, printed, proportion
from sandtable.lab.figures import comparison, frontier
from sandtable.worlds.dyck import DyckError

TEN_THOUSAND = 10_000
TWICE = 2.0
"""How many times as much the trained verifier must spare for its price as one that knows nothing."""
ERRORS_PUBLISHED = {
    (0.9, 0): (240.0, 5.177),
    (0.9, 4): (179.4, 1.020),
    (1.0, 0): (461.8, 8.304),
    (1.0, 4): (200.0, 3.225),
}


@dataclass(frozen=True)
class Unseen:
    trained: Trained = field(default_factory=Trained)
    prompts: int = 10_000
    repeats: int = 3
    quota: int = 4
    stride: int = 4
    verifier: str = "probe"


def completed(lab: Lab, trained: Trained, method: Method, prompts: int, repeats: int) -> dict[str, np.ndarray]:
    """Fresh prompts of 25 to 31 brackets, completed `repeats` times: kind of the first error, quota left, costs."""
    names = ("kind", "left", "queries", "backtracks")
    out = {name: np.zeros((len(lab.seeds), repeats, prompts), dtype=np.int16) for name in names}
    for place, (seed, lm, judge) in enumerate(setting.judges(lab, trained, method.verifier)):
        rows = WORLD.prompts(prompts, lab.generator(seed, "unseen prompts"), p=setting.SHIFTED)
        for again in range(repeats):
            made = setting.decode(lm, rows, method, judge, _numbers(lab, seed, again))
            out["kind"][place, again] = WORLD.first_error(made.tokens, made.lengths).kind
            out["left"][place, again] = made.extras.get("quota_left", torch.zeros(prompts))
            out["queries"][place, again], out["backtracks"][place, again] = made.queries, made.backtracks
    return out


def _numbers(lab: Lab, seed: int, again: int) -> torch.Generator:
    return lab.generator(seed, f"completions of unseen prompts, {again}")


@dataclass(frozen=True)
class Arm:
    """Share of wrong completions of every prompt of every model, and the queries per completion."""

    errors: np.ndarray
    queries: float

    @property
    def rate(self) -> float:
        """Errors in 10,000 prompts."""
        return TEN_THOUSAND * float(self.errors.mean())

    @property
    def deviation(self) -> float:
        """Standard error of the rate, over prompts within models."""
        within = self.errors.var(axis=1, ddof=1) / self.errors.shape[1]
        return TEN_THOUSAND * float(np.sqrt(within.sum())) / len(self.errors)


def _arms(lab: Lab, settings: Unseen, methods: dict[str, Method]) -> dict[str, Arm]:
    arms = {}
    for name, method in methods.items():
        if method.quota == 0:
            method = replace(PLAIN, top_p=method.top_p)
        found = lab.measure(completed, settings.trained, method, settings.prompts, settings.repeats)
        arms[name] = Arm((found["kind"] > 0).mean(1), float(found["queries"].mean()))
    return arms


def _spared(some: Arm, other: Arm, base: Arm, share: float = 0.0) -> np.ndarray:
    """(1 − share)·error of `some` − error of `other`, in units of the model's own rate of errors in `base`.

    Its mean over prompts is how much larger than `share` the reduction of errors is, every model counting alike.
    """
    rates = base.errors.mean(axis=1, keepdims=True).clip(min=1 / base.errors.shape[1])
    return (((1 - share) * some.errors - other.errors) / rates).ravel()


def _rows(arms: dict[str, Arm], published: dict[str, tuple[float, float]], base: Arm) -> Table:
    columns = ["method", "errors in 10,000", "standard error", "published", "published s.e.",
               "change, mean over models", "queries per completion"]  # fmt: skip
    rows = [
        [name, arm.rate, arm.deviation, *published.get(name, ("", "")), -_spared(base, arm, base).mean(), arm.queries]
        for name, arm in arms.items()
    ]
    return Table(columns, rows)


def _plane(arms: dict[str, Arm], title: str):
    """Errors against queries, one point a method."""
    points = {name: [("", arm.queries, arm.rate, arm.deviation)] for name, arm in arms.items()}
    return frontier(points, xlabel="queries per completion", ylabel="errors in 10,000 prompts", title=title)


# -- table 3.3 -------------------------------------------------------------------------------------------------------


REDUCTIONS = ("reduction beyond 10 % at 0.9", "reduction beyond 25 % at 1.0")
OVER_RANDOM = "fewer errors than with a random verifier"
PER_QUERY = "errors spared per query added, over twice those by a random verifier"


@claim(
    id="verifier/dyck-unseen",
    statement=(
        "On unseen prompts, which stay as they are, Algorithm 1 with Q=B=4 and a linear verifier leaves at least 10 % "
        "fewer errors than nucleus sampling with 0.9, and at least 25 % fewer than plain sampling. With nucleus 0.9 it "
        "leaves fewer than with a verifier that answers at random, and spares over twice as many for every query added."
    ),
    source=botta("Dyck, unseen prompts (thesis, Table 3.3)"),
    scales={"desk": Unseen(), "paper": Unseen(trained=PUBLISHED, repeats=5)},
    controls=(
        Control(
            "no quota", {"quota": 0}, ("reduction beyond 10 % at 0.9", "reduction beyond 25 % at 1.0", OVER_RANDOM)
        ),
        Control("random verifier", {"verifier": "another random"}, (PER_QUERY,)),
    ),
    seeds=setting.MODELS,
)
def dyck_unseen(settings: Unseen, lab: Lab) -> Evidence:
    method = Method(settings.quota, settings.stride, verifier=settings.verifier)
    blind = Method(verifier="random")
    arms = _arms(
        lab,
        settings,
        {
            "nucleus 0.9": PLAIN,
            "nucleus 0.9, backtracking": method,
            "plain 1.0": replace(PLAIN, top_p=1.0),
            "plain 1.0, backtracking": replace(method, top_p=1.0),
            "greedy": GREEDY,
            "nucleus 0.9, published code": replace(method, redo="released-counter"),
            "nucleus 0.9, prompt erasable": replace(method, protect_prompt=False),
            "nucleus 0.9, random verifier": blind,
            "plain 1.0, random verifier": replace(blind, top_p=1.0),
            "nucleus 0.9, perfect verifier": replace(method, verifier="truth"),
        },
    )
    plain = {0.9: arms["nucleus 0.9"], 1.0: arms["plain 1.0"]}
    backtracking = {0.9: arms["nucleus 0.9, backtracking"], 1.0: arms["plain 1.0, backtracking"]}
    base, redone, chance = plain[0.9], backtracking[0.9], arms["nucleus 0.9, random verifier"]
    published = dict(zip(arms, ERRORS_PUBLISHED.values(), strict=False))
    return Evidence(
        [
            *(
                exceeds(
                    name,
                    _spared(plain[top_p], backtracking[top_p], plain[top_p], share),
                    0.0,
                    unit="prompt",
                )
                for name, top_p, share in zip(REDUCTIONS, (0.9, 1.0), (0.10, 0.25), strict=True)
            ),
            exceeds(OVER_RANDOM, _spared(chance, redone, base), 0.0, unit="prompt"),
            exceeds(PER_QUERY, _price(redone, base) - TWICE * _price(chance, base), 0.0, unit="prompt"),
        ],
        figures={"errors": lambda: _plane(arms, "Errors on unseen prompts, and what they cost")},
        tables={"errors": _rows(arms, published, base)},
        notes=[
            *(
                f"Top-p {top_p}: {_spared(plain[top_p], backtracking[top_p], plain[top_p]).mean():.0%} fewer errors, "
                f"mean over models (published: {published})."
                for top_p, published in ((0.9, "25 %"), (1.0, "57 %"))
            ),
            f"Of the errors of nucleus 0.9, every query added spares {_price(redone, base).mean():.1%} with the "
            f"trained verifier, {_price(chance, base).mean():.1%} with a random one.",
            "Greedy completion needs no verifier and leaves about as few errors, and backtracking with a random "
            "verifier, whose redone tokens are greedy too, passes the first two checks as well: most of the gain is "
            "that of being greedier.",
        ],
    )


def _price(arm: Arm, base: Arm) -> np.ndarray:
    """Errors spared, in units of the model's own rate of errors in `base`, per query added to a completion."""
    return _spared(base, arm, base) / max(arm.queries - base.queries, 1.0)


# -- table 3.16 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Redo(Unseen):
    against: str = "sampling"
    printed: bool = False


REDO_PUBLISHED = {
    "no backtracking": ERRORS_PUBLISHED[0.9, 0],
    "redone by argmax": ERRORS_PUBLISHED[0.9, 4],
    "sampled again": (245.8, 8.658),
}


@claim(
    id="verifier/dyck-redo",
    statement=(
        "On unseen prompts, which stay as they are, backtracking with a linear verifier leaves fewer errors when "
        "erased tokens are redone by argmax than when they are sampled again, and then still fewer than nucleus "
        "sampling without backtracking."
    ),
    source=botta("Dyck, ablation of argmax (thesis, Table 3.16)"),
    scales={"desk": Redo(), "paper": Redo(trained=PUBLISHED, repeats=5)},
    controls=(
        Control("perfect verifier", {"verifier": "truth"}, ("fewer errors by argmax",)),
        Control(
            "greedy completion in place of sampling",
            {"against": "greedy"},
            ("fewer errors sampled again than without backtracking",),
        ),
    ),
    seeds=setting.MODELS,
)
def dyck_redo(settings: Redo, lab: Lab) -> Evidence:
    method = Method(settings.quota, settings.stride, verifier=settings.verifier)
    arms = _arms(
        lab,
        settings,
        {
            "no backtracking": PLAIN,
            "redone by argmax": method,
            "sampled again": replace(method, redo="sample"),
            "redone by argmax, perfect verifier": replace(method, verifier="truth"),
            "sampled again, perfect verifier": replace(method, verifier="truth", redo="sample"),
            "greedy": GREEDY,
        },
    )
    base, again = arms["no backtracking"], arms["sampled again"]
    against = base if settings.against == "sampling" else arms["greedy"]
    spared = _spared(against, again, against)
    checks = [exceeds("fewer errors by argmax", _spared(again, arms["redone by argmax"], base), 0.0, unit="prompt")]
    if settings.printed:
        checks.append(below("no fewer errors sampled again than without backtracking", spared, 0.0, unit="prompt"))
    else:
        checks.append(exceeds("fewer errors sampled again than without backtracking", spared, 0.0, unit="prompt"))
    return Evidence(
        checks,
        figures={"errors": lambda: _plane(arms, "Erased tokens redone by argmax, or sampled again")},
        tables={"errors": _rows(arms, REDO_PUBLISHED, base)},
        notes=[
            f"Sampled again, errors change by {-_spared(base, again, base).mean():+.0%}, mean over models "
            "(published: +2 %).",
            "With a perfect verifier the order turns round: argmax repeats its own mistake until the quota is gone.",
        ],
    )


dyck_redo_printed = printed(
    "dyck-redo",
    dyck_redo,
    {"printed": True},
    statement=(
        "On unseen prompts backtracking with a linear verifier leaves fewer errors when erased tokens are redone by "
        "argmax, and without that no fewer than nucleus sampling without backtracking."
    ),
    where="Dyck, ablation of argmax (thesis, Table 3.16: 245.8 errors against 240.0)",
    erratum=(
        "Sampling erased tokens again helps too, only less. At the published size it spares 59 % of the errors in "
        "10,000 prompts (83.5 to 34.4), with models of two layers a sixth."
    ),
)


# -- figure 3.2: what remains ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Residual(Unseen):
    repeats: int = 1
    top_p: float = setting.TOP_P
    redo: str = "released-counter"


def wrong_tokens(lab: Lab, trained: Trained, method: Method, prompts: int, shown: int) -> dict[str, np.ndarray]:
    """Of the first `shown` wrong completions: the wrong token, the likeliest one, and the generator's odds on both."""
    names, size = ("token", "likeliest", "odds", "best", "left"), (len(lab.seeds), shown)
    out: dict[str, np.ndarray] = {name: np.full(size, np.nan) for name in names}
    out["prefix"] = np.full((*size, setting.READ), -1.0)
    for place, (seed, lm, judge) in enumerate(setting.judges(lab, trained, method.verifier)):
        rows = WORLD.prompts(prompts, lab.generator(seed, "unseen prompts"), p=setting.SHIFTED)
        made = setting.decode(lm, rows, method, judge, _numbers(lab, seed, 0))
        error = WORLD.first_error(made.tokens, made.lengths)
        at = (error.kind > 0).nonzero()[:shown, 0]
        if not len(at):
            continue
        tokens, position = made.tokens[at], error.position[at]
        with torch.no_grad():
            law = lm.network(tokens.to(lm.device)).softmax(-1).cpu()[torch.arange(len(at)), position - 1]
        token = tokens.gather(1, position[:, None])
        here = (place, slice(len(at)))
        out["token"][here], out["odds"][here] = token[:, 0], law.gather(1, token)[:, 0]
        out["likeliest"][here], out["best"][here] = law.argmax(-1), law.max(-1).values
        out["left"][here] = made.extras.get("quota_left", torch.zeros(len(made)))[at]
        for row, (number, end) in enumerate(zip(tokens, position, strict=True)):
            out["prefix"][place, row, :end] = number[:end]
    return out


@claim(
    id="verifier/dyck-residual-errors",
    statement=(
        "Of the errors that backtracking with Q=B=4, redone tokens verified, leaves on unseen prompts, at least 90 % "
        "are closing brackets of the wrong type, and at least 90 % happen with the quota used up."
    ),
    source=botta("Dyck, error analysis (thesis, Figure 3.2 and Section 3.2.1.8)"),
    scales={"desk": Residual(), "paper": Residual(trained=PUBLISHED, repeats=5)},
    controls=(
        Control("plain sampling", {"quota": 0, "top_p": 1.0}, ("wrong closing bracket",)),
        Control("redone tokens not verified, as printed", {"redo": "argmax"}, ("quota used up",)),
    ),
    seeds=setting.MODELS,
)
def dyck_residual_errors(settings: Residual, lab: Lab) -> Evidence:
    method = Method(
        settings.quota, settings.stride, top_p=settings.top_p, verifier=settings.verifier, redo=settings.redo
    )
    found = lab.measure(completed, settings.trained, method, settings.prompts, settings.repeats)
    wrong = found["kind"] > 0
    kinds = np.bincount(found["kind"][wrong], minlength=len(DyckError))
    total = int(wrong.sum())
    used_up = int((found["left"][wrong] == 0).sum())
    tokens = lab.measure(wrong_tokens, settings.trained, method, settings.prompts, 200)
    seen = np.isfinite(tokens["token"])
    surest = float(np.mean(tokens["token"][seen] == tokens["likeliest"][seen])) if seen.any() else np.nan
    names = [kind.name for kind in DyckError][1:]
    return Evidence(
        [
            proportion(
                "wrong closing bracket",
                int(kinds[DyckError.INCORRECT_CLOSING_BRACKET]),
                max(total, 1),
                at_least=0.9,
                unit="error",
            ),
            proportion("quota used up", used_up, max(total, 1), at_least=0.9, unit="error"),
        ],
        figures={
            "kinds": lambda: comparison(
                [
                    (name.lower().replace("_", " "), share, share, share, published)
                    for name, share, published in zip(names, kinds[1:] / max(total, 1), _KINDS_PUBLISHED, strict=True)
                ],
                xlabel="share of the errors that remain (dashed: published)",
                title="What is still wrong after backtracking",
            )
        },
        tables={
            "kinds": Table(
                ["error", "count", "share", "published share"],
                [
                    [name, int(count), count / max(total, 1), published]
                    for name, count, published in zip(names, kinds[1:], _KINDS_PUBLISHED, strict=True)
                ],
            ),
            "errors": _shown(tokens),
        },
        notes=[
            f"{total} errors remain, {used_up} of them with the quota used up (published: 225 of 225).",
            f"In {surest:.0%} of those looked at, the wrong token is the generator's likeliest: greedy completion "
            "would make the same mistake.",
        ],
    )


_KINDS_PUBLISHED = (0.0, 3 / 225, 0.0, 0.0, 0.0, 222 / 225)


def _shown(tokens: dict[str, np.ndarray], rows: int = 12) -> Table:
    """A few errors, one model after another."""
    names = WORLD.vocab.tokens
    lines = []
    for place, row in sorted(zip(*np.isfinite(tokens["token"]).nonzero(), strict=True), key=lambda at: at[::-1])[:rows]:
        prefix = "".join(names[int(t)] for t in tokens["prefix"][place, row] if t >= 0 and t < WORLD.bos)
        wrong, best = (names[int(tokens[name][place, row])] for name in ("token", "likeliest"))
        odds, most, left = (float(tokens[name][place, row]) for name in ("odds", "best", "left"))
        lines.append([prefix, wrong, round(odds, 3), best, round(most, 3), int(left)])
    return Table(["prefix", "wrong token", "its probability", "likeliest", "its probability", "quota left"], lines)


CLAIMS: tuple[Claim, ...] = (dyck_unseen, dyck_redo, dyck_redo_printed, dyck_residual_errors)
