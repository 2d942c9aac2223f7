"""The algebra of finite automata.

`semigroup` closes an automaton's maps (shortest words, idempotents, Green's classes, maximal subgroups); `holonomy`
decomposes it into a cascade of permutation-reset automata; `PermutationGroup` has orders by Schreier and Sims, derived
subgroups, normality; `prime_series`, `Extension` and the products take solvable groups apart and put them together.
"""

from sandtable.theory.automata.extensions import Extension
from sandtable.theory.automata.holonomy import Component, Holonomy, holonomy
from sandtable.theory.automata.image_sets import Action
from sandtable.theory.automata.permutations import PermutationGroup, derived_orders, derived_series
from sandtable.theory.automata.products import Semidirect, Wreath, direct_product, semidirect_product, wreath_product
from sandtable.theory.automata.semigroup import Semigroup, semigroup
from sandtable.theory.automata.series import PrimeStep, composition_factors, is_simple, normal_subgroups, prime_series
from sandtable.theory.automata.solvability import Obstacle, is_aperiodic, is_solvable, obstacle

__all__ = [
    "Action",
    "Component",
    "Extension",
    "Holonomy",
    "Obstacle",
    "PermutationGroup",
    "PrimeStep",
    "Semidirect",
    "Semigroup",
    "Wreath",
    "composition_factors",
    "derived_orders",
    "derived_series",
    "direct_product",
    "holonomy",
    "is_aperiodic",
    "is_simple",
    "is_solvable",
    "normal_subgroups",
    "obstacle",
    "prime_series",
    "semidirect_product",
    "semigroup",
    "wreath_product",
]
