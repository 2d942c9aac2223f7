"""The algebra of finite automata, and exact Transformers made from it.

An automaton reads T tokens one after the other; its algebra says how few layers a network needs to know all T states at
once. `algebra` looks at everything within its caps:

- `semigroup` closes the maps that words induce (shortest words, idempotents, Green's classes, maximal subgroups;
  `egg_boxes` draws up its D-classes), `holonomy` decomposes the automaton into a cascade of permutation-reset automata;
  `is_aperiodic`, `is_solvable` and `obstacle` judge it by that.
- `PermutationGroup` has orders by Schreier and Sims, derived subgroups, normality (`group_name` its usual name);
  `prime_series`, `Extension` and the products take solvable groups apart and put them together.

`compile` turns any automaton into a Transformer with every weight set, `depths` tells beforehand how many layers every
method needs, and `verify` holds any model against any automaton, on every input where they are few enough. Why no
constant depth is known for what is not solvable is in `barrington`: formulas as words over S_5. `closed_forms` are
numbers known without running anything, orders and chance levels; `coverage`, loaded when first used as it alone
needs scipy.stats, is what knowing parity by heart gives.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sandtable.theory.automata import barrington, closed_forms
from sandtable.theory.automata.algebra import Algebra, algebra
from sandtable.theory.automata.compile import METHODS, Compiled, Depth, NotThisWay, Sizes, compile, depths, shallowest
from sandtable.theory.automata.egg_box import EggBox, egg_boxes
from sandtable.theory.automata.extensions import Extension
from sandtable.theory.automata.holonomy import Component, Holonomy, holonomy
from sandtable.theory.automata.image_sets import Action
from sandtable.theory.automata.naming import group_name
from sandtable.theory.automata.permutations import PermutationGroup, derived_orders, derived_series
from sandtable.theory.automata.products import Semidirect, Wreath, direct_product, semidirect_product, wreath_product
from sandtable.theory.automata.semigroup import Semigroup, semigroup
from sandtable.theory.automata.series import PrimeStep, composition_factors, is_simple, normal_subgroups, prime_series
from sandtable.theory.automata.solvability import Obstacle, is_aperiodic, is_solvable, obstacle
from sandtable.theory.automata.verify import Verified, nasty, softness, verify

if TYPE_CHECKING:
    from sandtable.theory.automata import coverage

__all__ = [
    "METHODS",
    "Action",
    "Algebra",
    "Compiled",
    "Component",
    "Depth",
    "EggBox",
    "Extension",
    "Holonomy",
    "NotThisWay",
    "Obstacle",
    "PermutationGroup",
    "PrimeStep",
    "Semidirect",
    "Semigroup",
    "Sizes",
    "Verified",
    "Wreath",
    "algebra",
    "barrington",
    "closed_forms",
    "compile",
    "composition_factors",
    "coverage",
    "depths",
    "derived_orders",
    "derived_series",
    "direct_product",
    "egg_boxes",
    "group_name",
    "holonomy",
    "is_aperiodic",
    "is_simple",
    "is_solvable",
    "nasty",
    "normal_subgroups",
    "obstacle",
    "prime_series",
    "semidirect_product",
    "semigroup",
    "shallowest",
    "softness",
    "verify",
    "wreath_product",
]


def __getattr__(name: str) -> Any:
    if name == "coverage":
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
