"""What a decoder asks about a prefix: predicates, acceptors, values, probes."""

from sandtable.decoding.verifiers.base import Predicate, Verifier, View, as_verifier
from sandtable.decoding.verifiers.probe import ProbeVerifier, hidden_states
from sandtable.decoding.verifiers.simple import Accepts, Noisy, Random

__all__ = [
    "Accepts",
    "Noisy",
    "Predicate",
    "ProbeVerifier",
    "Random",
    "Verifier",
    "View",
    "as_verifier",
    "hidden_states",
]
