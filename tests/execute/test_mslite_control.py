"""MindSpore Lite's control flow: branches, loops and their limit, tensor lists; values of subgraphs in traces."""

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir


def node(index, op, inputs, outputs, graph=0, **attrs):
    return ir.Layer(index, f"n{index}", op, op.lower(), graph, attrs, inputs, outputs)


def model(graphs, layers, constants=None, layout="msl2_newest"):
    """A model of ``graphs`` [(inputs, outputs), ...] over float32 tensors and constants by id."""
    constants = constants or {}
    ids = {i for layer in layers for i in (*layer.inputs, *layer.outputs)}
    ids |= {i for ends in graphs for end in ends for i in end}
    tensors = {}
    for i in ids:
        array = np.asarray(constants[i]) if i in constants else None
        dtype, shape = ("float32", None) if array is None else (str(array.dtype), array.shape)
        role = "activation" if array is None else "constant"
        tensors[i] = ir.Tensor(i, f"t{i}", 0, role, dtype, dtype, shape, data=array)
    made = tuple(
        ir.Graph(
            g,
            f"g{g}",
            tuple(ir.Port(f"t{i}", i) for i in inputs),
            tuple(ir.Port(f"t{i}", i) for i in outputs),
            tuple(layer for layer in layers if layer.graph == g),
        )
        for g, (inputs, outputs) in enumerate(graphs)
    )
    return mi.Model(ir.Network("mslite", layout, "", made, tensors))


def counting_loop():
    """x, i = x + 1, i - 1 while i > 0, by tail calls as the real exporter writes them.

    Graph 1 tests and goes to 2 (work, then 1 again) or 3 (done).
    """
    layers = [
        node(0, "PartialFusion", (0, 1), (2,), sub_graph_index=1),
        node(1, "Call", (2,), (3, 4), is_tail_call=True),
        node(2, "Greater", (10, 50), (11,), 1),
        node(3, "PartialFusion", (9, 10), (12,), 1, sub_graph_index=2),
        node(4, "PartialFusion", (9, 10), (13,), 1, sub_graph_index=3),
        node(5, "Switch", (11, 12, 13), (14,), 1),
        node(6, "Call", (14,), (15, 16), 1, is_tail_call=True),
        node(7, "AddFusion", (20, 51), (22,), 2),
        node(8, "SubFusion", (21, 51), (23,), 2),
        node(9, "PartialFusion", (22, 23), (24,), 2, sub_graph_index=1),
        node(10, "Call", (24,), (25, 26), 2, is_tail_call=True),
        node(11, "MulFusion", (30, 52), (32,), 3),
    ]
    graphs = [((0, 1), (3,)), ((9, 10), (15, 16)), ((20, 21), (25, 26)), ((30, 31), (32, 31))]
    return model(graphs, layers, {50: np.float32([0]), 51: np.float32([1]), 52: np.float32([10])})


def test_a_long_loop_by_tail_calls():
    """Far deeper than Python's own stack."""
    (result,) = counting_loop().run([np.float32([3]), np.float32([5000])]).values()
    np.testing.assert_array_equal(result, np.float32([50030]))


def test_step_limit():
    loop = counting_loop()
    with pytest.raises(mi.ExecutionError, match="step_limit"):
        loop.run([np.float32([0]), np.float32([50])], step_limit=100)
    # 51 tests, 50 rounds, one exit
    (result,) = loop.run([np.float32([0]), np.float32([50])], step_limit=102).values()
    assert result[0] == 500


def test_an_endless_loop_ends():
    with pytest.raises(mi.ExecutionError, match="no end"):
        counting_loop().trace([np.float32([0]), np.float32([np.inf])], step_limit=1000)


def test_trace_holds_the_last_values_of_subgraphs():
    trace = counting_loop().trace([np.float32([3]), np.float32([4])])
    assert [float(trace[i][0]) for i in (20, 22, 10, 30, 32)] == [6, 7, 0, 7, 70]
    assert trace.stats.loc[22, "max"] == 7
    # every call on the way has the results of the last
    assert float(trace[3][0]) == float(trace[15][0]) == float(trace[25][0]) == 70


def test_outputs_inside_a_subgraph():
    """The exporter lists the last graph's outputs as the model's where the main graph ends in a call."""
    loop = counting_loop()
    assert float(loop.run([np.float32([3]), np.float32([2])], outputs=[32])["t32"][0]) == 50
    with pytest.raises(mi.ExecutionError, match="not taken"):
        loop.run([np.float32([3]), np.float32([0])], outputs=[22])


@pytest.mark.parametrize(("condition", "wanted"), [(True, 12.0), (False, -2.0)])
def test_branch_in_the_middle(condition, wanted):
    layers = [
        node(0, "PartialFusion", (1,), (2,), sub_graph_index=1),
        node(1, "PartialFusion", (1,), (3,), sub_graph_index=2),
        node(2, "Switch", (0, 2, 3), (4,)),
        node(3, "Call", (4,), (5,), is_tail_call=False),
        node(4, "AddFusion", (5, 20), (6,)),
        node(5, "MulFusion", (10, 20), (11,), 1),
        node(6, "Neg", (12,), (13,), 2),
    ]
    branch = model([((0, 1), (6,)), ((10,), (11,)), ((12,), (13,))], layers, {20: np.float32([2])})
    tensor = ir.Tensor(0, "t0", 0, "input", "bool", "Bool", (1,))
    branch = mi.Model(
        ir.Network("mslite", "msl2_newest", "", branch.network.graphs, branch.network.tensors | {0: tensor})
    )
    (result,) = branch.run([np.array([condition]), np.float32([5 if condition else 4])]).values()
    assert float(result[0]) == wanted


def test_while_of_files_before_1_5():
    """``While`` names the graphs; its operands go round."""
    layers = [
        node(0, "While", (0, 1), (2, 3), cond_subgraph_index=1, body_subgraph_index=2),
        node(1, "Less", (11, 50), (12,), 1),
        node(2, "MulFusion", (20, 20), (22,), 2),
        node(3, "AddFusion", (21, 51), (23,), 2),
    ]
    graphs = [((0, 1), (2, 3)), ((10, 11), (12,)), ((20, 21), (22, 23))]
    loop = model(graphs, layers, {50: np.float32([3]), 51: np.float32([1])}, "msl2_r1_3")
    results = list(loop.run([np.float32([2]), np.float32([0])]).values())
    assert [float(result[0]) for result in results] == [256, 3]
    with pytest.raises(mi.ExecutionError, match="step_limit"):
        loop.run([np.float32([2]), np.float32([0])], step_limit=2)


@pytest.mark.parametrize(("condition", "wanted"), [(1.0, 9.0), (0.0, -3.0)])
def test_dead_branches_of_files_before_1_5(condition, wanted):
    """Switch gave its operands to one half of its outputs, Merge took what was alive; a graph ran without a call."""
    layers = [
        node(0, "Switch", (0, 1), (2, 3)),
        node(1, "PartialFusion", (2,), (4,), sub_graph_index=1),
        node(2, "Neg", (3,), (5,)),
        node(3, "Merge", (4, 5), (6,)),
        node(4, "Square", (10,), (11,), 1),
    ]
    branch = model([((0, 1), (6,)), ((10,), (11,))], layers, layout="msl2_r1_2")
    (result,) = branch.run([np.float32([condition]), np.float32([3])]).values()
    assert float(result[0]) == wanted


def test_switch_layer_chooses_by_number():
    layers = [
        node(0, "PartialFusion", (1,), (2,), sub_graph_index=1),
        node(1, "PartialFusion", (1,), (3,), sub_graph_index=2),
        node(2, "SwitchLayer", (20, 2, 3), (4,)),
        node(3, "Call", (4,), (5,)),
        node(4, "Square", (10,), (11,), 1),
        node(5, "Neg", (12,), (13,), 2),
    ]
    graphs = [((1,), (5,)), ((10,), (11,)), ((12,), (13,))]
    for number, wanted in ((0, 9), (1, -3), (-1, -3)):
        (result,) = model(graphs, layers, {20: np.int32([number])}).run(np.float32([3])).values()
        assert float(result[0]) == wanted


def test_calling_what_is_no_subgraph():
    with pytest.raises(mi.ExecutionError, match="no subgraph"):
        model([((0,), (1,)), ((), ())], [node(0, "Call", (0,), (1,))]).run(np.float32([1]))


def test_tensor_lists():
    """Reserved elements that were never set are zeros of the others' shape; a changed list leaves the old as it was."""
    layers = [
        node(0, "TensorListReserve", (20, 21), (1,), element_dtype=43),
        node(1, "TensorListSetItem", (1, 22, 0), (2,), element_dtype=43),
        node(2, "TensorListStack", (2, 20), (3,), element_dtype=43, num_elements=-1),
        node(3, "TensorListGetItem", (1, 22, 20), (4,), element_dtype=43),
        node(4, "TensorListFromTensor", (3, 20), (5,), element_dtype=43),
        node(5, "TensorListGetItem", (5, 22, 20), (6,), element_dtype=43),
    ]
    constants = {20: np.int32([2]), 21: np.int32([3]), 22: np.int32([1])}
    lists = model([((0,), (3, 4, 6))], layers, constants)
    stacked, old, item = lists.run(np.float32([7, 8])).values()
    np.testing.assert_array_equal(stacked, [[0, 0], [7, 8], [0, 0]])
    np.testing.assert_array_equal(old, [0, 0])
    np.testing.assert_array_equal(item, [7, 8])


def test_tensor_arrays_are_written_in_place():
    """Elements that were never set are zeros of the declared shape; a write beyond the end makes the array longer."""
    layers = [
        node(0, "TensorArray", (20,), (1,), element_shape=(2,), data_type=43),
        node(1, "TensorArrayRead", (1, 21), (2,)),
        node(2, "TensorArrayWrite", (1, 22, 0), (3,)),
        node(3, "TensorArrayRead", (1, 22, 3), (4,)),
    ]
    arrays = model([((0,), (2, 3, 4))], layers, {20: np.int32([1]), 21: np.int32([0]), 22: np.int32([3])})
    unset, _, written = arrays.run(np.float32([7, 8])).values()
    assert (unset.tolist(), written.tolist()) == ([0, 0], [7, 8])
