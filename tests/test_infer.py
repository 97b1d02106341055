"""Shapes that follow from an edit."""

import pytest

from mlinspect import InputError, build


def test_operands_that_a_concat_was_not_written_for_are_named():
    model = (
        build.armnn()
        .input("a", (1, 2, 3))
        .layer("Reshape", "flat", targetShape=(2, 3))
        .input("b", (5, 3))
        .layer("Concat", "both", "flat", "b", concatAxis=0)
        .output("y")
        .model()
    )
    assert model.outputs["shape"].tolist() == [(7, 3)]
    with pytest.raises(
        InputError, match=r"'both': viewOrigins .* do not fit operands of shapes \[\(1, 2, 3\), \(5, 3\)"
    ):
        model.without("flat")
