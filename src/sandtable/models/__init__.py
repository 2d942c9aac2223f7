"""Small networks built from nameable, freezable parts."""

from sandtable.inputs import Bag, Documents, Inputs, Selected, Tokens
from sandtable.models.attention import Attention, RotaryAttention, SoftmaxAttention, UniformAttention
from sandtable.models.blocks import MLP, Block, GatedMLP, LayerNorm, RMSNorm
from sandtable.models.cache import Cache
from sandtable.models.initial import Constant, FanIn, Identity, Initial, Normal
from sandtable.models.positions import LearnedPositions, Rotary, SinusoidalPositions
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
    "GatedMLP",
    "Identity",
    "Initial",
    "Inputs",
    "LayerNorm",
    "LearnedPositions",
    "Normal",
    "RMSNorm",
    "Rotary",
    "RotaryAttention",
    "Selected",
    "SinusoidalPositions",
    "SoftmaxAttention",
    "Stack",
    "Tokens",
    "Transformer",
    "UniformAttention",
    "match_names",
]
