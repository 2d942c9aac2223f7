"""A statement as it was printed, beside the claim that holds."""

from __future__ import annotations

import dataclasses
from typing import Any

from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Claim


def printed(name: str, corrected: Claim, change: dict[str, Any], *, statement: str, where: str, erratum: str) -> Claim:
    """The corrected claim's own measurement with the printed form in its place, expected to be refuted."""
    return Claim(
        id=f"gmlm/printed-{name}",
        statement=statement,
        source=li2024(where),
        scales={scale: dataclasses.replace(settings, **change) for scale, settings in corrected.scales.items()},
        measure=corrected.measure,
        expected="refuted",
        erratum=erratum,
        corrected=corrected.id,
        seeds=corrected.seeds,
    )
