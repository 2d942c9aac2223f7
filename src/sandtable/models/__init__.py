"""Small networks built from nameable, freezable parts."""

from sandtable.inputs import Bag, Documents, Inputs, Selected, Tokens
from sandtable.models.attention import Attention, SoftmaxAttention, UniformAttention
from sandtable.models.blocks import MLP, Block, LayerNorm
from sandtable.models.cache import Cache
from sandtable.models.initial import Constant, FanIn, Identity, Initial, Normal
from sandtable.models.positions import LearnedPositions, SinusoidalPositions
from sandtable.models.stack import Stack
from sandtable.models.transformer import Transformer, match_names

__all__ = [
    "MLP",
    "Attention",
    "Bag",
    "Block",
    "Cache",
    "Constant",
    "Documents",
    "FanIn",
    "Identity",
    "Initial",
    "Inputs",
    "LayerNorm",
    "LearnedPositions",
    "Normal",
    "Selected",
    "SinusoidalPositions",
    "SoftmaxAttention",
    "Stack",
    "Tokens",
    "Transformer",
    "UniformAttention",
    "match_names",
]
