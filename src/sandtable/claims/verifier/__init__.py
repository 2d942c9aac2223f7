"""Claims on generation with a process verifier (Botta et al. 2025): query complexity, backtracking, task suites."""

from sandtable.claims.verifier import code, dyck, exact, hidden, slips

CLAIMS = (
    *exact.CLAIMS,
    *hidden.CLAIMS,
    *slips.CLAIMS,
    *dyck.CLAIMS,
    *code.CLAIMS,
)
