"""Running claims: measure, judge, hold against the controls, and keep a record of each as soon as it is finished."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import re
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from sandtable import __version__
from sandtable.arguments import ArgumentError, flag, nearest, one_of, resolve_device, typed, whole
from sandtable.lab.changes import Changes, changed, checked_changes, flat, variation
from sandtable.lab.claim import SCALES, Claim, Control
from sandtable.lab.evidence import Evidence
from sandtable.lab.keys import MARK, fingerprint, source_hash, sources_of
from sandtable.lab.laboratory import MOST_SEEDS, MOST_THREADS, Lab
from sandtable.lab.progress import Progress, as_progress
from sandtable.lab.ray import on_cluster, spread, spreader
from sandtable.lab.registry import card, find, several_files, shown
from sandtable.lab.store import Store, StoreError
from sandtable.lab.verdict import judge

# What `verify --json` prints of an outcome.
JSON_KEYS = ("claim", "scale", "expected", "verdict", "seeds", "seconds", "device", "version", "settings_hash")
JSON_KEYS += ("controls", "checks")
_SAME = ("settings_hash", "sources", "seeds", "device", "threads")
"""What of two records must be equal for their seconds to be those of the same work."""
_Result = TypeVar("_Result")
GRACE = 60.0
"""Seconds in which worker processes may end their step and save, once they are told to stop."""


class SettingError(ArgumentError):
    """A changed setting that a claim cannot work with."""


@dataclass(frozen=True)
class Outcome:
    """What came of one claim. `ok`: the verdict is the expected one and every control was refuted.

    `variation` is what was done otherwise than the claim declares; the record of such a run stands beside the declared.
    """

    claim: str
    scale: str
    expected: str
    verdict: str
    seeds: int
    seconds: float
    device: str
    settings_hash: str
    version: str = __version__
    controls: Sequence[Mapping[str, Any]] = ()
    checks: Sequence[Mapping[str, Any]] = ()
    messages: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    variation: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    trace: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict == self.expected and all(control["verdict"] == "refuted" for control in self.controls)

    def as_json(self) -> dict[str, Any]:
        return {key: plain(getattr(self, key)) for key in JSON_KEYS}


@dataclass(frozen=True)
class Plan:
    """How to run claims; plain data that can be sent to another process."""

    scale: str = "desk"
    seeds: int | None = None
    seed_base: int = 0
    device: str = "cpu"
    threads: int = 1
    store: str = "runs"
    fresh: bool = False
    files: tuple[str, ...] = ()
    changes: Changes = ()
    cluster: str = ""
    started: float = field(default_factory=time.time)

    def settings(self, claim: Claim) -> Any:
        """The claim's settings at this scale, with the changes that apply to it."""
        return changed(claim.scales[self.scale], self.changes)

    def seeds_of(self, claim: Claim) -> range:
        return range(self.seed_base, self.seed_base + (self.seeds or claim.seeds_at(self.scale)))

    def variation(self, claim: Claim) -> dict[str, str]:
        """What this does otherwise than the claim declares."""
        return variation(claim, self.scale, self.settings(claim), self.seeds_of(claim))

    def lab(self, claim: Claim, progress: Callable[[str], object] | None = None) -> Lab:
        return Lab(
            seeds=self.seeds_of(claim),
            scale=self.scale,
            device=self.device,
            threads=self.threads,
            store=Store(self.store),
            fresh=self.fresh,
            started=self.started,
            progress=progress,
            spread=spreader(self) if self.cluster else None,
        )


@typed
def verify(
    claims: Sequence[Claim],
    *,
    scale: str = "desk",
    seeds: int | None = None,
    seed_base: int = 0,
    device: str = "cpu",
    store: Store | Path | str | None = None,
    fresh: bool | datetime = False,
    jobs: int = 1,
    threads: int | None = None,
    on: str | None = None,
    files: Path | str | Sequence[Path | str] = (),
    changes: Mapping[str, Any] | None = None,
    progress: Progress | Callable[[int, int], object] | bool = False,
) -> list[Outcome]:
    """Run, judge and record `claims`, in their order. A claim that lacks `scale` is skipped by name on stderr.

    `changes` replaces settings in all claims that have them, such as the model; "size.mlp" is one inside another. A
    run that differs from what the claim declares in settings or seeds is recorded beside the declared one. With `jobs`
    > 1 the claims are spread over that many processes of `threads` threads each; they must then come from entry points
    or `files`. With `fresh` everything is computed again; with a moment in its place what is older than that.
    `on` "ray" or "ray://host:port" spreads claims and their seeds over a Ray cluster in the same way. `progress=True`
    counts claims on stderr; a function of (finished, claims) does what it likes; a `Progress` is told everything.
    """
    progress = as_progress(progress)
    one_of("scale", scale, SCALES)
    whole("jobs", jobs)
    fresh = fresh if isinstance(fresh, datetime) else flag("fresh", fresh)
    folder = store if isinstance(store, Store) else Store(store)
    plan = Plan(
        scale=scale,
        seeds=None if seeds is None else whole("seeds", seeds, most=MOST_SEEDS),
        seed_base=whole("seed_base", seed_base, least=0),
        device=resolve_device(device) if on is None else on_cluster(on, device, jobs),
        threads=whole("threads", threads, most=MOST_THREADS)
        if threads is not None
        else 1
        if on
        else default_threads(jobs),
        store=str(folder.root),
        fresh=fresh is not False,
        started=_moment(fresh) if isinstance(fresh, datetime) else time.time(),
        files=tuple(map(str, several_files(files))),
        changes=checked_changes(claims, scale, changes or {}),
    )
    folder.require_writable()
    if lacking := [item.id for item in claims if scale not in item.scales]:
        progress.say(f"skipped, for want of a {scale} scale: {', '.join(lacking)}")
    chosen = [item for item in claims if scale in item.scales]
    progress.begins(len(chosen))
    if on is not None and chosen:
        return spread(chosen, plan, on, progress)
    if jobs > 1 and len(chosen) > 1:
        return _spread(chosen, plan, min(jobs, len(chosen)), progress)
    before = torch.get_num_threads()
    torch.set_num_threads(plan.threads)
    source_hash(*(item.measure for item in chosen))  # keys speak of the sources as they were loaded
    outcomes = []
    try:
        for item in chosen:
            outcomes.append(run_claim(item, plan, progress))
            progress.done(outcomes[-1])
    finally:
        torch.set_num_threads(before)
    return outcomes


def _moment(fresh: datetime) -> float:
    """Seconds since 1970 of a moment that has been."""
    try:
        seconds = fresh.timestamp()
    except (ValueError, OverflowError, OSError):  # years that no clock of this machine shows
        seconds = -math.inf if fresh.year < 1970 else math.inf
    if seconds > time.time():
        raise ArgumentError(f"fresh={fresh}: must be a moment in the past")
    return seconds


def default_threads(jobs: int) -> int:
    """All of torch's threads for one job; an equal share of the cores for several."""
    return torch.get_num_threads() if jobs == 1 else max(1, (os.cpu_count() or 1) // jobs)


def run_claim(claim: Claim, plan: Plan, progress: Progress | None = None) -> Outcome:
    """Measure and judge one claim with its controls, and write its record into the store."""
    progress = progress or Progress()
    began = time.perf_counter()
    lab = plan.lab(claim, lambda text: progress.doing(f"{claim.id} · {text}"))
    progress.doing(claim.id)
    trial = _Trial(claim, plan, lab, progress)
    trial.run()
    outcome = Outcome(
        claim=claim.id,
        scale=plan.scale,
        expected=claim.expected,
        verdict=trial.verdict,
        seeds=len(lab.seeds),
        seconds=round(time.perf_counter() - began, 3),
        device=lab.device,
        settings_hash=fingerprint(trial.settings)[:16],
        controls=trial.controls,
        checks=trial.checks,
        messages=trial.messages,
        targets=plain(trial.targets),
        variation=plan.variation(claim),
        notes=trial.notes,
        trace=trial.trace,
    )
    _write_record(outcome, trial, plan)
    return outcome


class _Trial:
    """One claim under examination: what is known of it so far."""

    def __init__(self, claim: Claim, plan: Plan, lab: Lab, progress: Progress) -> None:
        self.claim, self.lab, self.progress = claim, lab, progress
        self.settings = plan.settings(claim)
        self.changes = [f"--set {name}={value}" for name, value in plan.changes if name in flat(self.settings)]
        self.verdict = "error"
        self.checks: list[dict[str, Any]] = []
        self.controls: list[dict[str, Any]] = []
        self.messages: dict[str, str] = {}
        self.targets: dict[str, tuple[float, float]] = {}
        self.notes: list[str] = []
        self.tables: dict[str, Any] = {}
        self.figures: dict[str, str] = {}
        self.trace = ""

    def run(self) -> None:
        evidence = self._attempt("", self._evidence)
        judgement = evidence and self._attempt("", lambda: judge(evidence.checks))
        if not evidence or not judgement:
            return
        self.checks = [plain(result.as_json()) for result in judgement.results]
        self.messages = {result.check.name: result.message for result in judgement.results}
        self.targets = {check.name: check.target for check in evidence.checks}
        self.notes.extend(evidence.notes)
        self.tables = {name: {"columns": list(t.columns), "rows": plain(t.rows)} for name, t in evidence.tables.items()}
        self._draw(evidence)
        if uncovered := self._uncovered():
            self.notes.append(f"no control refutes the check {', '.join(map(repr, uncovered))}: every check needs one")
            return
        self.verdict = judgement.verdict
        for control in self.claim.controls:
            self.progress.doing(f"{self.claim.id} · control: {control.name}")
            verdict = self._attempt(f"control {control.name!r}: ", lambda control=control: self._control(control))
            self.controls.append({"name": control.name, "verdict": verdict or "error"})
        if self.claim.expected == "holds":
            self._shift(evidence)

    def _evidence(self) -> Evidence:
        try:
            return self._measure(self.settings)
        except StoreError:
            raise
        except ArgumentError as error:
            if self.changes:  # the mistake is in the call, and no verdict on the claim
                raise SettingError(f"{self.claim.id} with {' '.join(self.changes)}: {error}") from error
            raise

    def _measure(self, settings: Any) -> Evidence:
        evidence = self.claim.measure(settings, self.lab)
        if not isinstance(evidence, Evidence):
            raise TypeError(f"the function of {self.claim.id} must return Evidence, got {type(evidence).__name__}")
        return evidence

    def _uncovered(self) -> list[str]:
        """Checks of a claim expected to hold that no control could refute: nothing shows that they can fail."""
        named = {name for control in self.claim.controls for name in control.refutes}
        names = [check["name"] for check in self.checks]
        return [name for name in names if name not in named and self.claim.expected == "holds"]

    def _control(self, control: Control) -> str:
        """Refuted when every check that the control names is; else the named verdict farthest from it."""
        evidence = self._measure(dataclasses.replace(self.settings, **control.change))
        found = {check.name: check for check in evidence.checks}
        for name in control.refutes:
            if name not in found:
                raise ArgumentError(f"there is no check {name!r} to refute{nearest(name, list(found))}")
        verdicts = [result.verdict for result in judge([found[name] for name in control.refutes]).results]
        return next((verdict for verdict in ("holds", "inconclusive") if verdict in verdicts), "refuted")

    def _shift(self, evidence: Evidence) -> None:
        """A tolerance that a prediction off by ±20 % would also pass says nothing; so that must be refuted."""
        for check in evidence.checks:
            if check.shift is not None:
                size = f"{100 * check.shift:.3g}%" if check.predicted else f"{check.shift:.3g}"
                for sign, mark in ((1, "+"), (-1, "−")):
                    verdict = judge([check.shifted(sign)]).verdict
                    self.controls.append({"name": f"prediction {mark}{size} [{check.name}]", "verdict": verdict})

    def _draw(self, evidence: Evidence) -> None:
        for name, draw in evidence.figures.items():
            text = self._attempt(f"figure {name!r}: ", lambda draw=draw: _svg(draw))
            if text is not None:
                self.figures[name] = text

    def _attempt(self, what: str, work: Callable[[], _Result]) -> _Result | None:
        """A claim is foreign code: whatever it raises is its own result and must not lose those of the others."""
        try:
            return work()
        except (StoreError, SettingError):
            raise
        except Exception as error:
            self.notes.append(f"{what}{type(error).__name__}: {error}")
            self.trace = traceback.format_exc()
            return None


def _write_record(outcome: Outcome, trial: _Trial, plan: Plan) -> None:
    """Keep the outcome, with all that the report shows, among the store's verdicts, its figures beside it."""
    claim, lab, about = trial.claim, trial.lab, card(trial.claim)
    place = lab.store.verdict(claim.id, lab.scale, outcome.variation)
    figures = {
        name: f"{place.stem}-{re.sub('[^a-z0-9]+', '-', name.lower())}-{fingerprint(text)[:MARK]}.svg"
        for name, text in trial.figures.items()
    }
    record = outcome.as_json() | {
        "ok": outcome.ok,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(claim, lab, plan.changes),
        "module": claim.measure.__module__,
        "sources": sources_of(claim.measure.__module__),
        "seed_base": lab.seeds[0],
        "declared_seeds": claim.seeds_at(lab.scale),
        "threads": lab.threads,
        "settings": shown(trial.settings),
        "variation": dict(outcome.variation),
        "messages": dict(outcome.messages),
        "targets": dict(outcome.targets),
        "notes": list(outcome.notes),
        "traceback": outcome.trace,
        "tables": trial.tables,
        "figures": [{"name": name, "file": file} for name, file in figures.items()],
    }
    record |= {key: about[key] for key in ("statement", "source", "erratum", "corrected", "tour")}
    with lab.store.lock(place):
        record["seconds"] = max(outcome.seconds, _seconds_before(record, lab, place))
        for name, text in trial.figures.items():
            lab.store.write_text(place.with_name(figures[name]), text)
        lab.store.write_json(place, record)
        for file in place.parent.glob(f"{place.stem}-*.svg"):
            if file.name not in figures.values():
                file.unlink(missing_ok=True)


def _seconds_before(record: Mapping[str, Any], lab: Lab, place: Path) -> float:
    """What the same took when it was recorded before: a run that finds its measurements in the store takes no time."""
    before = lab.store.read_json(place) if lab.counts(place) else None
    same = before is not None and all(before.get(key) == record[key] for key in _SAME)
    return before["seconds"] if before is not None and same else 0.0


def command(claim: Claim, lab: Lab, changes: Sequence[tuple[str, Any]] = ()) -> str:
    """The command line that runs this again."""
    words = ["sandtable", "verify", claim.id, "--scale", lab.scale, "--seeds", str(len(lab.seeds))]
    words += ["--seed-base", str(lab.seeds[0])] if lab.seeds[0] else []
    words += ["--device", lab.device, "--threads", str(lab.threads), *lab.store.words()]
    for name, value in changes:
        words += ["--set", f"{name}={value}"]
    if claim.measure.__module__.startswith("claims_from_"):
        words += ["--from", str(sys.modules[claim.measure.__module__].__file__)]
    return shlex.join(words)


def plain(value: Any) -> Any:
    """`value` as JSON: arrays become lists, numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _svg(draw: Callable[[], Any]) -> str:
    from sandtable.lab.figures import svg  # matplotlib takes a while to load, and many claims draw nothing

    return svg(draw())


def _spread(claims: Sequence[Claim], plan: Plan, jobs: int, progress: Progress) -> list[Outcome]:
    """The claims over `jobs` processes. A process that dies takes down those not finished, never those recorded."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    found: dict[str, Outcome] = {}
    try:
        with _deaf():
            waiting = {pool.submit(_work, item.id, plan): item for item in claims}
        for future in as_completed(waiting):
            item = waiting[future]
            try:
                found[item.id] = future.result()
            except BrokenProcessPool:
                found[item.id] = lost(item, plan, DIED)
            progress.done(found[item.id])
            progress.doing(f"{len(found)} of {len(claims)} claims finished, {jobs} at a time")
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        _stop(set(multiprocessing.active_children()) - others)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return [found[item.id] for item in claims]


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes started here never hear Ctrl-C, which a terminal sends to all: the one that started them tells them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(children: Collection[BaseProcess]) -> None:
    """Ask processes to end, and end those that do not."""
    until = time.monotonic() + GRACE
    try:
        for child in children:
            child.terminate()
        for child in children:
            child.join(max(0.0, until - time.monotonic()))
    finally:
        for child in children:
            child.kill()


def _work(name: str, plan: Plan) -> Outcome:
    """One claim in a process of its own, which keeps a checkpoint of its training when it is told to end."""
    torch.set_num_threads(plan.threads)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        (item,) = find([name], plan.files)
        return run_claim(item, plan)
    except KeyboardInterrupt:
        os._exit(1)  # the pool would give this process the next claim
    finally:
        signal.signal(signal.SIGTERM, before)


DIED = "a worker process died, most often for want of memory: use fewer --jobs"


def lost(claim: Claim, plan: Plan, why: str) -> Outcome:
    """What is left to say of a claim whose process is gone."""
    return Outcome(
        claim=claim.id,
        scale=plan.scale,
        expected=claim.expected,
        verdict="error",
        seeds=plan.seeds or claim.seeds_at(plan.scale),
        seconds=0.0,
        device=plan.device,
        settings_hash=fingerprint(plan.settings(claim))[:16],
        variation=plan.variation(claim),
        notes=(why,),
    )
