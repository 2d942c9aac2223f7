"""Masked language models that generate: what masks learn, how their chains mix, and what parallel decoding costs.

After Li, Kirchmeyer, Mehta, Qin, Dadachev, Papineni, Kumar & Risteski (2024), corrected where the text errs.

- `fisher`: the information in a mask law, and the variance of what it estimates;
- `estimation`: the estimators themselves, hundreds of fits in one computation;
- `chains`: block dynamics as matrices — Dirichlet forms, Poincaré constants, stationary laws, total correlation;
- `tensorisation`: the constant that turns an error of conditionals into one of the joint law;
- `finite_sample`: the bound on what n sequences and m masks teach;
- `clique`: modes, hitting times and stuck chains of the clique model;
- `magnetisation`: two samplers of a clique of any size, as chains of its number of spins up;
- `kernels`: the Transformer that realises any positive product kernel;
- `dialects`: how often words drawn all at once agree.
"""

from sandtable.theory.gmlm import (
    chains,
    clique,
    dialects,
    estimation,
    finite_sample,
    fisher,
    kernels,
    magnetisation,
    tensorisation,
)

__all__ = [
    "chains",
    "clique",
    "dialects",
    "estimation",
    "finite_sample",
    "fisher",
    "kernels",
    "magnetisation",
    "tensorisation",
]
