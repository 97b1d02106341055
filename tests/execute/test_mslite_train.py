"""MindSpore Lite's training operators: gradients by finite differences, optimisers by their formulas, a whole step."""

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir

F = np.float32
RNG = np.random.default_rng(7)


def model(op, arrays, outputs=1, **attrs):
    """One layer; every operand is an input."""
    count = len(arrays)
    layer = ir.Layer(0, "layer", op, op.lower(), 0, attrs, tuple(range(count)), tuple(range(count, count + outputs)))
    dtypes = [str(np.asarray(array).dtype) for array in arrays] + ["float32"] * outputs
    tensors = {i: ir.Tensor(i, f"t{i}", 0, "activation", dtype, dtype, None) for i, dtype in enumerate(dtypes)}
    ports = [ir.Port(f"t{i}", i) for i in range(count + outputs)]
    graph = ir.Graph(0, "", tuple(ports[:count]), tuple(ports[count:]), (layer,))
    return mi.Model(ir.Network("mslite", "msl2_newest", "", (graph,), tensors))


def run(op, *arrays, outputs=1, mode="vendor", **attrs):
    results = list(model(op, arrays, outputs, **attrs).run(list(arrays), mode=mode).values())
    return results if outputs > 1 else results[0]


def slope(f, x, dy, step=1e-3):
    """d sum(f(x) * dy) / dx, by differences in double."""
    x = x.astype(np.float64)
    grad = np.empty_like(x)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        grad[i] = ((f(up) - f(down)) * dy).sum() / (2 * step)
    return grad


def random(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype(F)


ACTIVATIONS = {
    "RELU": lambda x: np.maximum(x, 0),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "LEAKY_RELU": lambda x: np.where(x > 0, x, 0.3 * x),
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
    "HSWISH": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "HSIGMOID": lambda x: np.clip(x + 3, 0, 6) / 6,
    "ELU": lambda x: np.where(x > 0, x, 0.3 * np.expm1(x)),
    "SOFTPLUS": lambda x: np.log1p(np.exp(x)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_gradients(name):
    x, dy = random(30, low=-4, high=8), random(30)
    known = ACTIVATIONS[name](x).astype(F) if name in ("SIGMOID", "TANH") else x
    got = run("ActivationGrad", dy, known, activation_type=name, alpha=0.3, mode="float")
    np.testing.assert_allclose(got, slope(ACTIVATIONS[name], x, dy), atol=2e-3)


def test_the_runtime_takes_expm1_for_exp_in_the_gradient_of_elu():
    x, dy = F([-1, 2]), F([3, 4])
    got = run("ActivationGrad", dy, x, activation_type="ELU", alpha=0.5)
    np.testing.assert_allclose(got, [0.5 * np.expm1(-1) * 3, 4], rtol=1e-6)


def test_gradients_of_powers_and_of_dropout():
    x, dy = random(6, low=0.5), random(6)
    got = run("PowerGrad", dy, x, power=3.0, scale=2.0, shift=1.0)
    np.testing.assert_allclose(got, slope(lambda v: (2 * v + 1) ** 3, x, dy), rtol=1e-3)
    mask = F([1, 0, 1, 1, 0, 1])
    np.testing.assert_allclose(run("DropoutGrad", dy, mask, keep_prob=0.25), dy * mask * 4, rtol=1e-6)


def test_grouped_convolutions_have_no_gradient_by_their_input():
    attrs = {"stride": (1, 1), "dilation": (1, 1), "pad_mode": "PAD", "pad_list": (0, 0, 0, 0), "group": 2}
    with pytest.raises(mi.UnsupportedError, match="grouped convolution"):
        run("Conv2DBackpropInputFusion", random(1, 2, 2, 2), random(2, 1, 1, 1), np.int32([1, 2, 2, 2]), **attrs)


def test_gradient_of_average_pooling():
    x, dy = random(1, 2, 4, 1), F([2, 4]).reshape(1, 1, 2, 1)
    attrs = {"kernel_size": (2, 2), "strides": (2, 2), "pad_mode": "PAD", "pad_list": (0, 0, 0, 0)}
    got = run("AvgPoolGrad", x, dy, dy, **attrs)
    np.testing.assert_allclose(got[0, :, :, 0], [[0.5, 0.5, 1, 1]] * 2)


def test_unknown_activation_gradient_is_an_error():
    with pytest.raises(mi.UnsupportedError, match="SELU"):
        run("ActivationGrad", random(3), random(3), activation_type="SELU", alpha=0.0)


@pytest.mark.parametrize(
    ("op", "function", "operands"),
    [
        ("AbsGrad", np.abs, lambda x, y, dy: (x, dy)),
        ("LogGrad", np.log, lambda x, y, dy: (dy, x)),
        ("SqrtGrad", np.sqrt, lambda x, y, dy: (y, dy)),
        ("RsqrtGrad", lambda x: 1 / np.sqrt(x), lambda x, y, dy: (y, dy)),
        ("NegGrad", np.negative, lambda x, y, dy: (dy,)),
    ],
)
def test_unary_gradients(op, function, operands):
    x, dy = random(20, low=0.5, high=3), random(20)
    got = run(op, *operands(x, function(x).astype(F), dy))
    np.testing.assert_allclose(got, slope(function, x, dy), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "function"),
    [("AddGrad", np.add), ("SubGrad", np.subtract), ("MulGrad", np.multiply), ("DivGrad", np.divide)],
)
@pytest.mark.parametrize("shape", [(3, 4), (4,), (3, 1), (1,)])
def test_binary_gradients_sum_over_what_was_broadcast(op, function, shape):
    a, b, dy = random(3, 4), random(*shape, low=0.5), random(3, 4)
    da, db = run(op, dy, a, b, outputs=2)
    np.testing.assert_allclose(da, slope(lambda v: function(v, b), a, dy), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(db, slope(lambda v: function(a, v), b, dy), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("op", "function"), [("MaximumGrad", np.maximum), ("MinimumGrad", np.minimum)])
def test_gradients_of_extremes(op, function):
    a, b, dy = random(3, 4), random(4), random(3, 4)
    da, db = run(op, a, b, dy, outputs=2)
    np.testing.assert_allclose(da, slope(lambda v: function(v, b), a, dy), atol=1e-3)
    np.testing.assert_allclose(db, slope(lambda v: function(a, v), b, dy), atol=1e-3)


def test_softmax_cross_entropy_and_its_gradient():
    logits, labels = random(3, 5), np.eye(5, dtype=F)[[1, 4, 0]]

    def loss(v):
        return -(labels * (v - np.log(np.exp(v).sum(-1, keepdims=True)))).sum(-1, keepdims=True)

    value, grad = run("SoftmaxCrossEntropyWithLogits", logits, labels, outputs=2)
    np.testing.assert_allclose(value, loss(logits), rtol=1e-5)
    np.testing.assert_allclose(grad, slope(loss, logits, np.ones((3, 1))), atol=1e-3)
    mean = run("SparseSoftmaxCrossEntropyWithLogits", logits, np.int32([1, 4, 0]), is_grad=False)
    np.testing.assert_allclose(mean, [loss(logits).mean()], rtol=1e-5)
    sparse = run("SparseSoftmaxCrossEntropyWithLogits", logits, np.int32([1, 4, 0]), is_grad=True)
    np.testing.assert_allclose(sparse, grad / 3, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reduction", ["MEAN", "REDUCTION_SUM"])
def test_binary_cross_entropy_and_its_gradient(reduction):
    x, y, weight = random(2, 4, low=0.1, high=0.9), random(2, 4, low=0, high=1), random(2, 4, low=0.5)
    reduce = np.mean if reduction == "MEAN" else np.sum

    def loss(v):
        return np.array([reduce(-weight * (y * np.log(v) + (1 - y) * np.log(1 - v)))])

    np.testing.assert_allclose(run("BinaryCrossEntropy", x, y, weight, reduction=reduction), loss(x), rtol=1e-5)
    by_element = run("BinaryCrossEntropy", x, y, weight, reduction="NONE")
    np.testing.assert_allclose([reduce(by_element)], loss(x), rtol=1e-5)
    grad = run("BinaryCrossEntropyGrad", x, y, F([2]), weight, reduction=reduction)
    np.testing.assert_allclose(grad, slope(loss, x, np.array([2.0])), rtol=1e-2, atol=1e-3)


def test_smooth_l1_and_sigmoid_losses():
    x, y, dy = random(12), random(12), random(12)

    def l1(v):
        far = np.abs(v - y)
        return np.where(far < 0.5, far * far, far - 0.25)

    np.testing.assert_allclose(run("SmoothL1Loss", x, y, beta=0.5), l1(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run("SmoothL1LossGrad", x, y, dy, beta=0.5), slope(l1, x, dy), atol=1e-3)

    def sigmoid(v):
        return -(y * np.log(1 / (1 + np.exp(-v))) + (1 - y) * np.log(1 - 1 / (1 + np.exp(-v))))

    np.testing.assert_allclose(run("SigmoidCrossEntropyWithLogits", x, y), sigmoid(x), rtol=1e-4, atol=1e-5)
    grad = run("SigmoidCrossEntropyWithLogitsGrad", x, y, dy)
    np.testing.assert_allclose(grad, slope(sigmoid, x, dy), atol=1e-3)


def test_layer_norm_gradient():
    x, dy, gamma = random(3, 6), random(3, 6), random(6)

    def norm(v, scale=gamma):
        return scale * (v - v.mean(-1, keepdims=True)) / v.std(-1, keepdims=True)

    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    attrs = {"begin_norm_axis": 1, "begin_params_axis": 1}
    dx, dgamma, dbeta = run("LayerNormGrad", x, dy, variance, mean, gamma, outputs=3, **attrs)
    np.testing.assert_allclose(dx, slope(norm, x, dy), atol=5e-3)
    np.testing.assert_allclose(dgamma, slope(lambda g: norm(x, g), gamma, dy), atol=5e-3)
    np.testing.assert_allclose(dbeta, dy.sum(0), rtol=1e-5)


def test_slice_and_bias_gradients():
    dy = random(2, 2)
    got = run("StridedSliceGrad", dy, np.int32([4, 5]), np.int32([0, 1]), np.int32([4, 5]), np.int32([2, 3]))
    want = np.zeros((4, 5), F)
    want[0:4:2, 1:5:3] = dy
    np.testing.assert_array_equal(got, want)
    y = random(2, 3, 4)
    np.testing.assert_allclose(run("BiasAddGrad", y), y.sum((0, 1), keepdims=True), rtol=1e-5)


def stepped(op, operands, changed, **attrs):
    """What a layer makes of its operands."""
    session = model(op, operands, **attrs).session(list(operands))
    session.finish()
    return [session[i] for i in changed]


@pytest.mark.parametrize("nesterov", [False, True])
def test_adam_by_its_formula(nesterov):
    weight, m, gradient = random(5), random(5), random(5)
    v = random(5, low=0.1, high=1)
    power1, power2, rate, beta1, beta2, epsilon = (F([n]) for n in (0.81, 0.998, 0.01, 0.9, 0.999, 1e-8))
    operands = (weight, m, v, power1, power2, rate, beta1, beta2, epsilon, gradient)
    new_weight, new_m, new_v = stepped("Adam", operands, (0, 1, 2), use_nesterov=nesterov)
    want_m, want_v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
    ahead = 0.9 * want_m + 0.1 * gradient if nesterov else want_m
    step = 0.01 * np.sqrt(1 - 0.998) / (1 - 0.81) * ahead / (np.sqrt(want_v) + 1e-8)
    np.testing.assert_allclose(new_m, want_m, rtol=1e-5)
    np.testing.assert_allclose(new_v, want_v, rtol=1e-5)
    np.testing.assert_allclose(new_weight, weight - step, rtol=1e-4)


def test_adam_with_weight_decay_by_its_formula():
    weight, m, gradient = random(5), random(5), random(5)
    v = random(5, low=0.1, high=1)
    scalars = (F([n]) for n in (0.01, 0.9, 0.999, 1e-8, 0.1))  # rate, beta1, beta2, epsilon, decay
    (new_weight,) = stepped("AdamWeightDecay", (weight, m, v, *scalars, gradient), (0,))
    change = (0.9 * m + 0.1 * gradient) / np.sqrt(0.999 * v + 0.001 * gradient**2)
    np.testing.assert_allclose(new_weight, weight - 0.01 * (change + 0.1 * weight), rtol=1e-4)


def test_sgd_at_its_first_step_and_without_momentum():
    weight, sums, gradient = random(5), random(5), random(5)
    attrs = {"nesterov": False, "dampening": 0.25, "weight_decay": 0.0}
    first = (weight, gradient, F([0.1]), sums, F([0.9]), F([1]))
    new_weight, new_sums, state = stepped("SGD", first, (0, 3, 5), **attrs)
    np.testing.assert_array_equal(new_sums, gradient)  # the gradient itself, not dampened
    np.testing.assert_allclose(new_weight, weight - 0.1 * gradient, rtol=1e-5)
    assert state.tolist() == [0]
    (new_weight,) = stepped("SGD", (weight, gradient, F([0.1]), sums, F([0]), F([0])), (0,), **attrs)
    np.testing.assert_allclose(new_weight, weight - 0.1 * gradient, rtol=1e-5)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_and_sgd_by_their_formulas(nesterov):
    weight, sums, gradient = random(5), random(5), random(5)
    operands = (weight, sums, F([0.1]), gradient, F([0.9]))
    new_weight, new_sums = stepped("ApplyMomentum", operands, (0, 1), use_nesterov=nesterov)
    want = 0.9 * sums + gradient
    np.testing.assert_allclose(new_sums, want, rtol=1e-5)
    np.testing.assert_allclose(new_weight, weight - 0.1 * (0.9 * want + gradient if nesterov else want), rtol=1e-4)
    operands = (weight, gradient, F([0.1]), sums, F([0.9]), F([0]))
    attrs = {"nesterov": nesterov, "dampening": 0.25, "weight_decay": 0.01}
    new_weight, new_sums = stepped("SGD", operands, (0, 3), **attrs)
    slope_ = gradient + 0.01 * weight
    want = 0.9 * sums + 0.75 * slope_
    np.testing.assert_allclose(new_sums, want, rtol=1e-4)
    np.testing.assert_allclose(new_weight, weight - 0.1 * (0.9 * want + slope_ if nesterov else want), rtol=1e-3)


def test_assignments():
    assert stepped("Assign", (F([1, 2]), F([3, 4])), (0,))[0].tolist() == [3, 4]
    assert stepped("AssignAdd", (F([1, 2]), F([3, 4])), (0,))[0].tolist() == [4, 6]


@pytest.mark.parametrize(
    ("name", "loss", "pairs"),
    [
        (
            "lenet_train",
            "ReduceMean-op113",
            {"fc3.bias": 29, "fc2.weight": 59, "conv2.weight": 88, "conv1.weight": 100},
        ),
        ("conv_train_model", "ReduceMean-op61", {"layer.weight": 27, "bias": 19}),
    ],
)
def test_a_real_files_gradients_are_slopes_of_its_loss(models, name, loss, pairs):
    opened = mi.open(models / f"{name}.ms")
    rng = np.random.default_rng(1)
    tensors = opened.network.tensors
    feeds = [rng.uniform(0, 1, tensors[p.tensor].shape).astype(F) for p in opened.network.graphs[0].inputs]
    if name == "conv_train_model":
        feeds[1] = np.eye(160, dtype=F)[[3, 5, 7, 9]]  # labels
    goal = next(t.index for t in tensors.values() if t.name.endswith(loss))
    grads = dict(zip(pairs, opened.run(feeds, outputs=list(pairs.values())).values(), strict=True))
    for weight, grad in grads.items():
        stored = opened.weights[weight]
        want = float(np.linalg.norm(grad))  # the slope in the gradient's own direction
        direction = grad.reshape(stored.shape) / F(want)
        values = []
        for step in (3e-3, -3e-3):
            session = opened.session(feeds)
            session.patch(weight, stored + F(step) * direction)
            session.run_to(next(layer.index for layer in session.layers if goal in layer.outputs))
            values.append(float(session[goal].reshape(-1)[0]))
        assert (values[0] - values[1]) / 6e-3 == pytest.approx(want, rel=0.1)


def test_a_step_of_a_real_file_changes_its_weights(models):
    """The first Adam step moves every weight by about the learning rate."""
    opened = mi.open(models / "lenet_train.ms")
    rng = np.random.default_rng(2)
    tensors = opened.network.tensors
    session = opened.session(
        [rng.uniform(0, 1, tensors[p.tensor].shape).astype(F) for p in opened.network.graphs[0].inputs]
    )
    before = opened.weights["fc3.weight"].copy()
    session.finish()
    moved = np.abs(session["fc3.weight"] - before)
    rate = float(opened.weights["learning_rate"].reshape(-1)[0])
    assert 0 < moved.max() < 20 * rate
    np.testing.assert_array_equal(opened.weights["fc3.weight"], before)  # the file's own stay
