"""Small networks built from nameable, freezable parts.

`Transformer` is a list of blocks; attention, MLP, norm and positions are objects of their own, and blocks may differ.
Names follow TransformerLens (`W_Q`, `blocks.0.attn.W_V`, `hook_pattern`); `model(x, want=[…])` returns named
activations beside the output. `Stack` holds many models of one shape and runs them in one computation; `Seq2Seq` and
`LSTM` stack as well. Initial laws (`Normal`, `FanIn`, …) are given by parameter name.
"""

from sandtable.inputs import Bag, Documents, Encoded, Inputs, Pair, Selected, Tokens
from sandtable.models.activations import ActivationCache, Edit
from sandtable.models.attention import AlibiAttention, Attention, RotaryAttention, SoftmaxAttention, UniformAttention
from sandtable.models.blocks import MLP, Block, DeepMLP, GatedMLP, LayerNorm, RMSNorm, UnitNorm
from sandtable.models.cache import Cache
from sandtable.models.initial import Constant, FanIn, Identity, Initial, Normal, Uniform
from sandtable.models.lstm import LSTM
from sandtable.models.partial import PartialBlock
from sandtable.models.positions import LearnedPositions, LinearPositions, Rotary, SinusoidalPositions
from sandtable.models.relative import MultiHead, RelativeBias
from sandtable.models.seq2seq import Seq2Seq
from sandtable.models.stack import Stack
from sandtable.models.transformer import Transformer, match_names

__all__ = [
    "LSTM",
    "MLP",
    "ActivationCache",
    "AlibiAttention",
    "Attention",
    "Bag",
    "Block",
    "Cache",
    "Constant",
    "DeepMLP",
    "Documents",
    "Edit",
    "Encoded",
    "FanIn",
    "GatedMLP",
    "Identity",
    "Initial",
    "Inputs",
    "LayerNorm",
    "LearnedPositions",
    "LinearPositions",
    "MultiHead",
    "Normal",
    "Pair",
    "PartialBlock",
    "RMSNorm",
    "RelativeBias",
    "Rotary",
    "RotaryAttention",
    "Selected",
    "Seq2Seq",
    "SinusoidalPositions",
    "SoftmaxAttention",
    "Stack",
    "Tokens",
    "Transformer",
    "Uniform",
    "UniformAttention",
    "UnitNorm",
    "match_names",
]
