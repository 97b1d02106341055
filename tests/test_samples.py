"""The bundled models and data are there, are what the docs say, and cannot be spoilt by a caller."""

import numpy as np
import pytest

from mlinspect import samples


def test_seven_models_in_both_formats():
    assert samples.names() == [
        "digits_cnn.armnn",
        "digits_cnn.ms",
        "digits_cnn_fp16.ms",
        "digits_cnn_int8.ms",
        "digits_cnn_u8.armnn",
        "digits_cnn_wq4.ms",
        "digits_cnn_wq8.ms",
    ]
    assert [samples.path(name).stat().st_size for name in samples.names()] == [
        45788, 45456, 24576, 21072, 14656, 13056, 17608,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["nope.ms", "../__init__.py", "digits.npz", ""])
def test_only_sample_names_have_a_path(name):
    with pytest.raises(KeyError, match=r"digits_cnn\.ms"):
        samples.path(name)


def test_digits():
    images, labels, calibration = samples.digits()
    assert (images.shape, images.dtype, images.max()) == ((360, 8, 8), np.uint8, 16)
    assert (labels.shape, sorted(set(labels))) == ((360,), list(range(10)))
    assert (calibration.shape, calibration.dtype) == ((64, 8, 8), np.uint8)
    seen = {image.tobytes() for image in calibration}
    assert not any(image.tobytes() in seen for image in images)
    with pytest.raises(ValueError, match="read-only"):
        images[0] = 0


def test_expected_covers_every_model_and_classifies_well():
    answers, labels = samples.expected(), samples.digits().labels
    assert sorted(answers) == samples.names()
    right = {name: int((answer.argmax(1) == labels).sum()) for name, answer in answers.items()}
    assert right == {
        "digits_cnn.armnn": 345,
        "digits_cnn.ms": 345,
        "digits_cnn_fp16.ms": 345,
        "digits_cnn_int8.ms": 345,
        "digits_cnn_u8.armnn": 343,
        "digits_cnn_wq4.ms": 341,
        "digits_cnn_wq8.ms": 345,
    }
    assert answers["digits_cnn_u8.armnn"].dtype == np.uint8
