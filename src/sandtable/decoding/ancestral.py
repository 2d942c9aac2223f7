"""Sampling from the model's own law, token by token."""

from __future__ import annotations

from sandtable.decoding.driver import Call, decoder
from sandtable.decoding.generation import Generation


@decoder(verifier=False)
def ancestral(call: Call) -> Generation:
    """x_t ~ p(· | x_<t), truncated by `temperature`, `top_k` and `top_p`, until ⟨eos⟩ or `max_tokens`."""
    active = call.everyone & (call.ends > call.session.lengths)
    while bool(active.any()):
        call.append(call.next_token(active), active)
        active = active & ~call.over()
        call.session.retire(~active)
    return call.result()


@decoder(verifier=False)
def greedy(call: Call) -> Generation:
    """x_t = argmax p(· | x_<t), until ⟨eos⟩ or `max_tokens`."""
    active = call.everyone & (call.ends > call.session.lengths)
    while bool(active.any()):
        call.append(call.next_token(active, active), active, "argmax")
        active = active & ~call.over()
        call.session.retire(~active)
    return call.result()
