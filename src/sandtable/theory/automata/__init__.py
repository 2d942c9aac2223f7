"""The algebra of finite automata: transition semigroups, permutation groups, holonomy."""

from sandtable.theory.automata.holonomy import Component, Holonomy, holonomy
from sandtable.theory.automata.image_sets import Action
from sandtable.theory.automata.permutations import PermutationGroup, derived_orders, derived_series
from sandtable.theory.automata.semigroup import Semigroup, semigroup

__all__ = [
    "Action",
    "Component",
    "Holonomy",
    "PermutationGroup",
    "Semigroup",
    "derived_orders",
    "derived_series",
    "holonomy",
    "semigroup",
]
