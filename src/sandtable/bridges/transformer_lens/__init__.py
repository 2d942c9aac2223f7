"""Models of ours inside TransformerLens: its configuration, its weights by its names, its own model where installed."""

from sandtable.bridges.transformer_lens.convert import Lens, lens
from sandtable.bridges.transformer_lens.package import to_transformer_lens

__all__ = ["Lens", "lens", "to_transformer_lens"]
