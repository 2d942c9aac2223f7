"""What a decoder asks about a prefix: predicates, acceptors, values, probes."""

from sandtable.decoding.verifiers.base import Predicate, Verifier, View, as_verifier
from sandtable.decoding.verifiers.expected import EnumeratedValue, MonteCarloValue
from sandtable.decoding.verifiers.probe import ProbeVerifier, hidden_states
from sandtable.decoding.verifiers.simple import Accepts, Noisy, Random
from sandtable.decoding.verifiers.text import Reward
from sandtable.decoding.verifiers.values import Floor, ScaledNoise, ValueTable

__all__ = [
    "Accepts",
    "EnumeratedValue",
    "Floor",
    "MonteCarloValue",
    "Noisy",
    "Predicate",
    "ProbeVerifier",
    "Random",
    "Reward",
    "ScaledNoise",
    "ValueTable",
    "Verifier",
    "View",
    "as_verifier",
    "hidden_states",
]
