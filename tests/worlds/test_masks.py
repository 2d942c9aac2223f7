"""The mask law: its parameters, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.worlds import BertMasking


def test_the_default_is_bert():
    law = BertMasking()
    assert (law.select, law.keep, law.random) == (0.15, 0.1, 0.1)
    assert law.hide == pytest.approx(0.8)


@given(select=st.floats(1e-3, 1.0), keep=st.floats(0.0, 1.0), share=st.floats(0.0, 1.0))
def test_shares_of_a_selected_position_sum_to_one(select, keep, share):
    law = BertMasking(select, keep, share * (1 - keep))
    assert law.keep + law.random + law.hide == pytest.approx(1.0)
    assert law.hide >= -1e-12


@pytest.mark.parametrize("name", ["select", "keep", "random"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, "half", None, True])
def test_every_probability_is_checked(name, value):
    with pytest.raises(ArgumentError, match=name) as caught:
        BertMasking(**{name: value})
    assert "\n" not in str(caught.value)


def test_probabilities_that_sum_past_one():
    with pytest.raises(ArgumentError, match=r"keep \+ random = 1\.2"):
        BertMasking(0.15, 0.6, 0.6)


def test_a_law_that_never_selects():
    with pytest.raises(ArgumentError, match="select=0"):
        BertMasking(0.0)
