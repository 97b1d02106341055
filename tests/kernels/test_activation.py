import math

import numpy as np
import pytest

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.activation import ACTIVATIONS, FAST, NNACL, PRECISE, activate, prelu

F = np.float32
X = np.concatenate([np.linspace(-9, 9, 1001), [0.0, -0.0, 3, -3, 100, -100, 1e-30]]).astype(F)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# name, a, b, the function in double
CASES = [
    ("abs", 0, 0, abs),
    ("bounded_relu", 6, 0, lambda x: min(max(x, 0), 6)),
    ("bounded_relu", 1, -1, lambda x: min(max(x, -1), 1)),
    ("elu", 0.8, 0, lambda x: x if x >= 0 else F(0.8) * math.expm1(x)),
    ("gelu", 0, 0, lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),
    ("gelu_tanh", 0, 0, lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ("hard_shrink", 0.5, 0, lambda x: x if abs(x) > 0.5 else 0),
    ("hard_sigmoid", 0, 0, lambda x: min(max(x + 3, 0), 6) / 6),
    ("hard_swish", 0, 0, lambda x: x * min(max(x + 3, 0), 6) / 6),
    ("leaky_relu", 0.1, 0, lambda x: x if x > 0 else F(0.1) * F(x)),
    ("leaky_relu", 2.5, 0, lambda x: x if x > 0 else 2.5 * x),
    ("leaky_relu", -0.5, 0, lambda x: x if x > 0 else -0.5 * x),
    ("linear", 0.5, 2, lambda x: 0.5 * x + 2),
    ("relu", 0, 0, lambda x: max(x, 0)),
    ("selu", 0, 0, lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x))),
    ("sigmoid", 0, 0, sigmoid),
    ("sign", 0, 0, lambda x: (x > 0) - (x < 0)),
    ("soft_relu", 0, 0, lambda x: math.log1p(math.exp(x)) if x < 80 else math.inf),
    ("soft_shrink", 0.5, 0, lambda x: x - 0.5 if x > 0.5 else x + 0.5 if x < -0.5 else 0),
    ("soft_sign", 0, 0, lambda x: x / (1 + abs(x))),
    ("softplus", 0, 0, lambda x: math.log1p(math.exp(x)) if x < 80 else math.inf),
    ("sqrt", 0, 0, lambda x: math.sqrt(x) if x >= 0 else math.nan),
    ("square", 0, 0, lambda x: x * x),
    ("swish", 0, 0, lambda x: x * sigmoid(x)),
    ("tanh", 1.5, 0.7, lambda x: F(1.5) * math.tanh(F(0.7) * F(x))),
    ("threshold_relu", 0.5, 0, lambda x: x if x > 0.5 else 0),
]


def test_every_activation_has_a_definition_here():
    assert {case[0] for case in CASES} == set(ACTIVATIONS)


@pytest.mark.parametrize("elementary", [FAST, PRECISE, NNACL], ids=["fast", "precise", "nnacl"])
@pytest.mark.parametrize(("name", "a", "b", "definition"), CASES)
def test_follows_its_definition(name, a, b, definition, elementary):
    with np.errstate(all="raise"):
        got = activate(X, name, a, b, elementary)
    want = np.array([definition(x) for x in X.tolist()], float)
    # 1 + tanh and log(1 + exp) cancel in float32, as they do in the runtimes
    exact = {FAST: 2e-7, PRECISE: 2e-7, NNACL: 2e-4}[elementary]
    assert np.array_equal(np.isnan(got), np.isnan(want))
    kept = np.isfinite(want)  # exp overflows above 88, but for nnacl's
    assert (np.abs(got[kept] - want[kept]) <= exact * np.maximum(1, np.abs(want[kept]))).all()


@pytest.mark.parametrize(("name", "a", "b", "definition"), CASES)
def test_in_place_and_across_blocks_give_the_same(name, a, b, definition):
    x = np.resize(X, (7, 11, 1000))
    want = activate(x, name, a, b)
    assert np.array_equal(want.ravel()[: X.size], activate(X, name, a, b), equal_nan=True)
    given = x.copy()
    assert activate(given, name, a, b, out=given) is given
    assert np.array_equal(given, want, equal_nan=True)
    assert np.array_equal(activate(x.transpose(1, 2, 0), name, a, b), want.transpose(1, 2, 0), equal_nan=True)


def test_nan_and_signed_zero_as_std_max():
    nan = F([np.nan])
    assert activate(nan, "relu").tolist() == [0]
    assert activate(nan, "bounded_relu", 6, -2).tolist() == [-2]
    for name in ("sigmoid", "tanh", "leaky_relu", "elu", "hard_swish", "swish", "square"):
        assert np.isnan(activate(nan, name, 1, 1)).all(), name
    assert not np.signbit(activate(F([-0.0]), "relu")).any()
    assert activate(F([np.inf, -np.inf]), "leaky_relu", 0.1).tolist() == [np.inf, -np.inf]
    assert activate(F([-np.inf]), "threshold_relu", 1).tolist() == [0]
    assert activate(F([200, -200]), "sigmoid").tolist() == [1, 0]


def test_refusals():
    with pytest.raises(UnsupportedError, match="no activation is called 'mish'"):
        activate(X, "mish")
    with pytest.raises(ValueError, match="contiguous"):
        activate(np.zeros((2, 3), F), "relu", out=np.zeros((3, 2), F).T)


@pytest.mark.parametrize("slope", [[0.25, -1, 3], [0.25, np.nan, np.inf]])
def test_prelu(slope):
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(F)
    got = prelu(x, F(slope))
    for c, s in enumerate(F(slope)):
        want = [s * v if v < 0 else v for v in x[..., c].ravel()]
        assert np.array_equal(got[..., c].ravel(), F(want), equal_nan=True)
