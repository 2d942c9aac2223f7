"""Bounded Dyck languages: exact Transformers by construction, the balance condition, pruning.

`build` gives Transformers that know the next-token law (`constructions`, from the networks of `lookup`), `check`
compares any model with it (`checking`), `save` and `load` keep one (`files`); `residual`, `project` and
`approximate_balance_bounds` are about the condition on attention that all of them meet (`balance`);
`minimal_first_layer` makes the nets that are trained (`embeddings`), `law` and `baselines` hold closed forms.
"""

from sandtable.theory.dyck import baselines
from sandtable.theory.dyck.balance import (
    approximate_balance_bounds,
    constrained_queries,
    constraint_count,
    offsets,
    project,
    residual,
    symbol_count,
)
from sandtable.theory.dyck.checking import Checked, check, check_vocabulary, errors
from sandtable.theory.dyck.constructions import (
    ATTENTIONS,
    build,
    from_scores,
    least_width,
    misleading_scores,
    random_scores,
    second_layer,
    stack_basis,
    uniform_scores,
    with_scores,
    with_values,
)
from sandtable.theory.dyck.embeddings import minimal_first_layer, symbol_embedding
from sandtable.theory.dyck.files import Built, load, save
from sandtable.theory.dyck.law import (
    bayes_loss,
    bayes_losses,
    least_probability,
    stationary_bayes_loss,
    stationary_depths,
    top_distance,
)
from sandtable.theory.dyck.lookup import linear, lookup, network, place_of_one, selector

__all__ = [
    "ATTENTIONS",
    "Built",
    "Checked",
    "approximate_balance_bounds",
    "baselines",
    "bayes_loss",
    "bayes_losses",
    "build",
    "check",
    "check_vocabulary",
    "constrained_queries",
    "constraint_count",
    "errors",
    "from_scores",
    "least_probability",
    "least_width",
    "linear",
    "load",
    "lookup",
    "minimal_first_layer",
    "misleading_scores",
    "network",
    "offsets",
    "place_of_one",
    "project",
    "random_scores",
    "residual",
    "save",
    "second_layer",
    "selector",
    "stack_basis",
    "stationary_bayes_loss",
    "stationary_depths",
    "symbol_count",
    "symbol_embedding",
    "top_distance",
    "uniform_scores",
    "with_scores",
    "with_values",
]
