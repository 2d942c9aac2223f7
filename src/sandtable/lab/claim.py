"""What a claim is: one checkable statement of the literature, its settings, its measurement and its controls."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sandtable.arguments import ArgumentError, nearest, one_of, typed, whole

if TYPE_CHECKING:
    from sandtable.lab.evidence import Evidence
    from sandtable.lab.laboratory import Lab

SCALES = ("smoke", "desk", "paper")
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Source:
    """Where a statement was printed: authors, year, and the theorem, table or figure."""

    authors: str
    year: int
    where: str

    def __post_init__(self) -> None:
        _sentence("authors", self.authors)
        whole("year", self.year, least=1900)
        _sentence("where", self.where)

    def __str__(self) -> str:
        return f"{self.authors} {self.year}, {self.where}"


@dataclass(frozen=True, eq=False)
class Control:
    """The claim measured again with `change` made to its settings: every check named in `refutes` must then fail."""

    name: str
    change: Mapping[str, Any]
    refutes: tuple[str, ...]

    def __post_init__(self) -> None:
        _sentence("control name", self.name)
        if not isinstance(self.change, Mapping) or not self.change:
            raise ArgumentError(f"change={self.change!r} of control {self.name!r}: must name at least one setting")
        if not isinstance(self.refutes, tuple | list) or not self.refutes:
            raise ArgumentError(f"refutes={self.refutes!r} of control {self.name!r}: must be a tuple of check names")
        object.__setattr__(self, "change", MappingProxyType(dict(self.change)))
        object.__setattr__(self, "refutes", tuple(self.refutes))


@dataclass(frozen=True, eq=False)
class Claim:
    """One statement, its source, its settings per scale and the function `measure(settings, lab) -> Evidence`.

    A printed statement found wrong has `expected="refuted"`, an `erratum` that says what is wrong, and the id of the
    `corrected` claim, which holds on the same measurement. `no_smoke` says why a claim has no smoke scale.
    """

    id: str
    statement: str
    source: Source
    scales: Mapping[str, Any]
    measure: Callable[[Any, Lab], Evidence]
    controls: tuple[Control, ...] = ()
    expected: str = "holds"
    erratum: str | None = None
    corrected: str | None = None
    tour: bool = False
    seeds: Mapping[str, int] | int = 1
    no_smoke: str | None = None

    def __post_init__(self) -> None:
        _id("id", self.id)
        where = f"of claim {self.id}"
        _sentence(f"statement {where}", self.statement)
        if not isinstance(self.source, Source):
            raise ArgumentError(f"source={self.source!r} {where}: must be a Source")
        one_of(f"expected {where}", self.expected, ("holds", "refuted"))
        if not callable(self.measure):
            raise ArgumentError(f"measure={self.measure!r} {where}: must be a function (settings, lab) -> Evidence")
        self._check_scales(where)
        self._check_seeds(where)
        self._check_controls(where)
        self._check_erratum(where)

    def __call__(self, settings: Any, lab: Lab) -> Evidence:
        return self.measure(settings, lab)

    def seeds_at(self, scale: str) -> int:
        """How many seeds the claim asks for at `scale`."""
        return self.seeds if isinstance(self.seeds, int) else self.seeds[scale]

    def _check_scales(self, where: str) -> None:
        if not isinstance(self.scales, Mapping) or "desk" not in self.scales:
            raise ArgumentError(f"scales={self.scales!r} {where}: must map at least 'desk' to settings")
        for scale, settings in self.scales.items():
            one_of(f"scale {where}", scale, SCALES)
            params = getattr(settings, "__dataclass_params__", None)
            if params is None or isinstance(settings, type) or not params.frozen:
                raise ArgumentError(
                    f"scales[{scale!r}]={settings!r} {where}: must be an instance of a frozen dataclass"
                )
        if len({type(settings) for settings in self.scales.values()}) > 1:
            raise ArgumentError(f"scales {where}: all settings must be of one class")
        object.__setattr__(self, "scales", MappingProxyType({s: self.scales[s] for s in SCALES if s in self.scales}))

        if self.no_smoke is not None:
            _sentence(f"no_smoke {where}", self.no_smoke)
            if "smoke" in self.scales:
                raise ArgumentError(f"no_smoke={self.no_smoke!r} {where}: only where there is no smoke scale")

    def _check_seeds(self, where: str) -> None:
        if isinstance(self.seeds, Mapping):
            for scale in self.scales:
                if scale not in self.seeds:
                    raise ArgumentError(f"seeds={dict(self.seeds)!r} {where}: must name scale {scale!r} too")
                whole(f"seeds[{scale!r}] {where}", self.seeds[scale])
            object.__setattr__(self, "seeds", MappingProxyType(dict(self.seeds)))
        else:
            whole(f"seeds {where}", self.seeds)

    def _check_controls(self, where: str) -> None:
        if isinstance(self.controls, Control) or not all(isinstance(c, Control) for c in self.controls):
            raise ArgumentError(f"controls={self.controls!r} {where}: must be a tuple of Control")
        object.__setattr__(self, "controls", tuple(self.controls))
        names = [control.name for control in self.controls]
        if len(set(names)) < len(names):
            raise ArgumentError(f"controls {where}: names must differ, got {', '.join(names)}")
        fields = [field.name for field in dataclasses.fields(self.scales["desk"]) if field.init]
        for control in self.controls:
            for name in control.change:
                if name not in fields:
                    raise ArgumentError(
                        f"change of control {control.name!r} {where}: no setting {name!r}{nearest(name, fields)}"
                    )
            for settings in self.scales.values():
                dataclasses.replace(settings, **control.change)

    def _check_erratum(self, where: str) -> None:
        if self.expected == "holds":
            if self.erratum is not None or self.corrected is not None:
                raise ArgumentError(f"erratum and corrected {where}: only for expected='refuted'")
            return
        _sentence(f"erratum {where}", self.erratum)
        _id(f"corrected {where}", self.corrected)


def claim(**fields: Any) -> Callable[[Callable[[Any, Lab], Evidence]], Claim]:
    """Decorator: `@claim(id=…, statement=…, …)` above `def name(settings, lab)` makes the claim called `name`."""

    def bind(measure: Callable[[Any, Lab], Evidence]) -> Claim:
        return Claim(measure=measure, **fields)

    return bind


@typed
def printed(name: str, corrected: Claim, change: dict[str, Any], *, statement: str, where: str, erratum: str) -> Claim:
    """A statement as it was printed: the corrected claim's own measurement with the printed form in its place.

    It is called "line/printed-name" and expected to be refuted.
    """
    known = [field.name for field in dataclasses.fields(corrected.scales["desk"])]
    for setting in change:
        one_of("change", setting, known)
    return Claim(
        id=f"{corrected.id.partition('/')[0]}/printed-{name}",
        statement=statement,
        source=dataclasses.replace(corrected.source, where=where),
        scales={scale: dataclasses.replace(settings, **change) for scale, settings in corrected.scales.items()},
        measure=corrected.measure,
        expected="refuted",
        erratum=erratum,
        corrected=corrected.id,
        seeds=corrected.seeds,
    )


def _id(name: str, value: Any) -> None:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ArgumentError(f"{name}={value!r}: must look like 'line/kebab-name'")


def _sentence(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"{name}={value!r}: must be a non-empty text")
