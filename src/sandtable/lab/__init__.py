"""What a claim is and how it is judged: evidence, statistics, verdicts, the store, the report.

`claim` ties settings at their scales, a source and controls to a function that returns `Evidence`: checks such as
`agrees`, `exceeds` or `orders`, each with its unit and its interval. The `Lab` gives that function its seeds, its
generators, and models and measurements, from the `Store` where they are known. `verify` runs claims and their controls
in this process, in several, or over Ray; `judge` makes verdicts of checks, `write_report` one page of all verdicts.
`figures` is the one style of every figure. Claims themselves are found by entry points, never imported from here.

Heavy names are loaded when they are first used: `sandtable list` must not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sandtable.lab.claim import SCALES, Claim, Control, Source, claim, printed

if TYPE_CHECKING:
    from sandtable.lab import figures
    from sandtable.lab.evidence import (
        Check,
        Evidence,
        Table,
        agrees,
        below,
        bounded,
        exact,
        exceeds,
        law,
        orders,
        passing,
        proportion,
        statistic,
    )
    from sandtable.lab.keys import describe, fingerprint, source_hash
    from sandtable.lab.laboratory import Lab
    from sandtable.lab.registry import load
    from sandtable.lab.report import write_report
    from sandtable.lab.run import Outcome, verify
    from sandtable.lab.store import Store
    from sandtable.lab.verdict import Judgement, judge

_HOMES = {
    "evidence": (
        "Check",
        "Evidence",
        "Table",
        "agrees",
        "below",
        "bounded",
        "exact",
        "exceeds",
        "law",
        "orders",
        "passing",
        "proportion",
        "statistic",
    ),
    "keys": ("describe", "fingerprint", "source_hash"),
    "laboratory": ("Lab",),
    "registry": ("load",),
    "report": ("write_report",),
    "run": ("Outcome", "verify"),
    "store": ("Store",),
    "verdict": ("Judgement", "judge"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "SCALES",
    "Check",
    "Claim",
    "Control",
    "Evidence",
    "Judgement",
    "Lab",
    "Outcome",
    "Source",
    "Store",
    "Table",
    "agrees",
    "below",
    "bounded",
    "claim",
    "describe",
    "exact",
    "exceeds",
    "figures",
    "fingerprint",
    "judge",
    "law",
    "load",
    "orders",
    "passing",
    "printed",
    "proportion",
    "source_hash",
    "statistic",
    "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "figures":  # a module, and what draws
        return importlib.import_module(f"{__name__}.figures")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
