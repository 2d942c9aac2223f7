"""What the sources print on pruning and what does not hold, each beside a claim that does."""

from __future__ import annotations

from sandtable.claims.dyck.pruning.bounds import directions, helpers, multiplexed
from sandtable.claims.dyck.pruning.networks import stages
from sandtable.lab import printed

CLAIMS = (
    printed(
        "composition",
        helpers,
        {"composition": "printed"},
        statement="Approximations of two maps compose to one within (λ₂ + ε₁)(λ₁ + ε₂) − λ₁λ₂.",
        where="Lemma 2.2.5",
        erratum=(
            "The λ's are crossed. With λ = 2, ½ and ε = 0.01, 0.1 the printed bound is 0.071, and linear maps differ "
            "by 0.206 = (λ₁ + ε₁)(λ₂ + ε₂) − λ₁λ₂."
        ),
    ),
    printed(
        "direction-ratio",
        directions,
        {"ratio": "printed"},
        statement="From ‖r‖ = R_ε r₀ on, R_ε = 4r₀/ε + 1, the directions of a + r and b + r differ by at most ε.",
        where="proof of Theorem 2.2.2, R_ε as a multiple of r₀",
        erratum=(
            "Directions do not depend on the unit of length, so neither can R_ε: it is 2/ε. The printed one is too "
            "small for r₀ < ½ − ε/4 (ε = 0.2, r₀ = 0.05: R_ε = 2, and directions differ by 1), and loose above."
        ),
    ),
    printed(
        "multiplexer",
        multiplexed,
        {"spacing": 1.0, "biases": "summed"},
        statement="K networks with one hidden layer are one, with pre-activations M apart and all output biases added.",
        where="Lemma 2.2.19",
        erratum=(
            "Only the bias of f_k belongs to f_k; and ReLU(u + M) − ReLU(u) is M + u, not M, where u < 0, so that the "
            "network before the chosen one leaks. Offsets of 2M and a staircase in k repair both."
        ),
    ),
    printed(
        "outer-relu",
        stages,
        {"outer": "ReLU"},
        statement="The second stage of the pruned four-layer network, ReLU included, is near the second matrix.",
        where="Lemma 2.2.6",
        erratum="With a ReLU at the end the network has no negative outputs; the last layer must be linear.",
    ),
)
