"""What a token sees in a Hugging Face model, as far as its configuration tells."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

FULL, SLIDING = "full_attention", "sliding_attention"
Mask = Float[Tensor, "row 1 new slot"]

# Settings by which families say, each in its own words, that a token does not see all that came before it; and those
# with such a name that say nothing of the kind, or that `sight_of` understands.
_SHORT = re.compile(r"window|chunk|block_size|index_topk|local_attention|attention_types|state_size|d_state|linear_")
_UNDERSTOOD = {"sliding_window", "max_window_layers", "sliding_window_pattern", "chunk_size_feed_forward"}


@dataclass(frozen=True)
class Sight:
    """How far back the layers of each kind see: everything (None), or a window of so many tokens, their own included.

    `unclear` names what makes a family one of another kind; `steady` is the longest row whose positions are encoded
    alike whatever the length of the row.
    """

    windows: Mapping[str, int | None]
    unclear: str | None = None
    steady: float = math.inf

    @property
    def full(self) -> bool:
        return set(self.windows.values()) == {None}

    def mask(self, positions: Int[Tensor, "row new"], used: int, dtype: torch.dtype) -> Mask | dict[str, Mask]:
        """Added to the attention scores: 0 for the slots that a token sees, the least number elsewhere."""
        slots = torch.arange(used, device=positions.device)
        at = positions[:, None, :, None]
        seen = slots <= at
        zero = torch.zeros((), dtype=dtype, device=positions.device)
        least = torch.finfo(dtype).min
        masks = {
            kind: torch.where(seen if window is None else seen & (slots > at - window), zero, least)
            for kind, window in self.windows.items()
        }
        return masks if len(masks) > 1 else next(iter(masks.values()))


def sight_of(config: Any) -> Sight:
    """What the configuration of a causal model says about the sight of its tokens."""
    config = config.get_text_config(decoder=True)
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    kinds = set(kinds or [FULL if window is None else SLIDING])
    unclear = next(iter(sorted(kinds - {FULL, SLIDING})), None) or next(
        (
            name
            for name, value in config.to_dict().items()
            if _SHORT.search(name) and name.lstrip("_") not in _UNDERSTOOD and value
        ),
        None,
    )
    windows = {kind: window if kind == SLIDING else None for kind in sorted(kinds)}
    return Sight(windows, unclear, _steady(config))


def _steady(config: Any) -> float:
    """Rotary frequencies of the dynamic and the long kind change once a row is longer than this."""
    found = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in found.values() if isinstance(value, dict)] or [found]
    limits = [
        each.get("original_max_position_embeddings") or getattr(config, "max_position_embeddings", 0)
        for each in nested
        if each.get("rope_type", "default") == "longrope" or "dynamic" in each.get("rope_type", "default")
    ]
    return min(limits, default=math.inf)
