#!/usr/bin/env python3
"""Write the small models of this folder: operators of the .tflite format, with inputs and reference outputs.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python make.py [NAME...]

Each folder is a family of operators in one element type, laid out like the project's other models: model.tflite,
input_<i>.npy and output_<i>.npy, whose leading axis is the invocation. Every operator's result is an output whose
name says which operator it is. Outputs are those of LiteRT's reference kernels.
"""

import pathlib
import shutil
import sys

import flatbuffers
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tensorflow.lite.python import schema_py_generated as schema

FOLDER = pathlib.Path(__file__).resolve().parent
FAMILIES = {}

TYPES = {
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.float16): schema.TensorType.FLOAT16,
    np.dtype(np.int32): schema.TensorType.INT32,
    np.dtype(np.uint8): schema.TensorType.UINT8,
    np.dtype(np.int64): schema.TensorType.INT64,
    np.dtype(np.bool_): schema.TensorType.BOOL,
    np.dtype(np.int16): schema.TensorType.INT16,
    np.dtype(np.int8): schema.TensorType.INT8,
    np.dtype(np.uint32): schema.TensorType.UINT32,
    np.dtype(np.uint64): schema.TensorType.UINT64,
}

RELU, RELU1, RELU6, TANH = 1, 2, 3, 4
SAME, VALID = 0, 1


def family(function):
    FAMILIES[function.__name__] = function
    return function


def options(name, /, **fields):
    """An options table of the format with these fields, and its place in the union."""
    table = getattr(schema, name + "T")()
    for field, value in fields.items():
        assert hasattr(table, field), (name, field)
        setattr(table, field, value)
    return getattr(union_of(name), name), table


def union_of(name):
    """The union that has the options table of this name."""
    return schema.BuiltinOptions if hasattr(schema.BuiltinOptions, name) else schema.BuiltinOptions2


class Graph:
    """A model in the making: one subgraph, or more for control flow."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes = []
        self.model.subgraphs = []
        self.model.buffers = [schema.BufferT()]
        self.inputs = []
        self.begin()

    def begin(self):
        """Start another subgraph."""
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.graph.inputs, self.graph.outputs = [], []
        self.model.subgraphs.append(self.graph)

    def tensor(self, name, dtype, shape=None, quant=None, variable=False):
        tensor = schema.TensorT()
        tensor.name = name
        tensor.type = dtype if isinstance(dtype, int) else TYPES[np.dtype(dtype)]
        tensor.shape = None if shape is None else list(shape)
        tensor.isVariable = variable
        tensor.buffer = 0
        if quant is not None:
            scale, zero_point, *dimension = quant
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.atleast_1d(np.float32(scale)).tolist()
            tensor.quantization.zeroPoint = np.broadcast_to(zero_point, np.shape(np.atleast_1d(scale))).tolist()
            tensor.quantization.quantizedDimension = dimension[0] if dimension else 0
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def input(self, values, quant=None):
        """An input of the model with its values, the leading axis of which is the invocation."""
        values = np.asarray(values)
        index = self.tensor(f"input {len(self.inputs)}", values.dtype, values.shape[1:], quant)
        self.graph.inputs.append(index)
        self.inputs.append(values)
        return index

    def argument(self, dtype, shape, quant=None):
        """An input of a subgraph of control flow."""
        index = self.tensor("argument", dtype, shape, quant)
        self.graph.inputs.append(index)
        return index

    def floats(self, *shape, low=-2.0, high=2.0, calls=2):
        return self.input(self.random.uniform(low, high, (calls, *shape)).astype(np.float32))

    def integers(self, dtype, *shape, low=None, high=None, quant=None, calls=2):
        info = np.iinfo(dtype)
        low, high = info.min if low is None else low, info.max if high is None else high
        return self.input(self.random.integers(low, high + 1, (calls, *shape)).astype(dtype), quant)

    def booleans(self, *shape):
        return self.input(self.random.integers(0, 2, (2, *shape)).astype(bool))

    def constant(self, values, quant=None):
        values = np.asarray(values)
        index = self.tensor("constant", values.dtype, values.shape, quant)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(values.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        self.graph.tensors[index].buffer = len(self.model.buffers) - 1
        return index

    def weights(self, *shape, scale=0.5):
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def weights8(self, *shape, quant, dtype=np.int8, low=-127, high=127):
        return self.constant(self.random.integers(low, high + 1, shape).astype(dtype), quant)

    def bias32(self, count, quant, reach=2000):
        return self.constant(self.random.integers(-reach, reach, count).astype(np.int32), quant)

    def variable(self, dtype, *shape, quant=None):
        return self.tensor("state", dtype, shape, quant, variable=True)

    def op(self, operator, inputs, *outputs, with_options=None, version=1, label=None, intermediates=None, keep=False):
        """Add an operator. Outputs are (dtype, quant) pairs or dtypes; they become outputs of the model."""
        code = getattr(schema.BuiltinOperator, operator)
        kinds = [(c.builtinCode, c.version) for c in self.model.operatorCodes]
        if (code, version) not in kinds:
            entry = schema.OperatorCodeT()
            entry.deprecatedBuiltinCode, entry.builtinCode, entry.version = min(code, 127), code, version
            self.model.operatorCodes.append(entry)
            kinds.append((code, version))
        node = schema.OperatorT()
        node.opcodeIndex = kinds.index((code, version))
        node.inputs = list(inputs)
        if intermediates:
            node.intermediates = intermediates
        node.outputs = []
        for output in outputs:
            dtype, quant = output if isinstance(output, tuple) else (output, None)
            index = self.tensor(f"{operator} {label}" if label else operator, dtype, None, quant)
            node.outputs.append(index)
            if not keep:
                self.graph.outputs.append(index)
        if with_options:
            name = type(with_options[1]).__name__.removesuffix("T")
            if union_of(name) is schema.BuiltinOptions:
                node.builtinOptionsType, node.builtinOptions = with_options
            else:
                node.builtinOptions2Type, node.builtinOptions2 = with_options
        self.graph.operators.append(node)
        return node.outputs[0] if len(outputs) == 1 else node.outputs

    def handle(self, name):
        """A handle of the resource variable with this name."""
        which = options("VarHandleOptions", sharedName=name, container="")
        return self.op("VAR_HANDLE", [], schema.TensorType.RESOURCE, with_options=which, keep=True)

    def signature(self, key, graph, inputs, outputs):
        """Name a graph, and its inputs and outputs by pairs of a name and a tensor."""
        entry = schema.SignatureDefT()
        entry.signatureKey, entry.subgraphIndex = key, graph
        for field, pairs in (("inputs", inputs), ("outputs", outputs)):
            maps = []
            for name, tensor in pairs:
                maps.append(schema.TensorMapT())
                maps[-1].name, maps[-1].tensorIndex = name, tensor
            setattr(entry, field, maps)
        self.model.signatureDefs = [*(self.model.signatureDefs or []), entry]

    def pack(self):
        builder = flatbuffers.Builder(0)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def reference(model, inputs, resolver):
    """The outputs of all invocations by LiteRT's kernels, and the shapes of all tensors."""
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    outputs = [[] for _ in interpreter.get_output_details()]
    for call in range(len(inputs[0])):
        for detail, values in zip(details, inputs):
            interpreter.set_tensor(detail["index"], values[call])
        interpreter.invoke()
        for collected, detail in zip(outputs, interpreter.get_output_details()):
            collected.append(interpreter.get_tensor(detail["index"]).copy())
    shapes = {detail["index"]: detail["shape"].tolist() for detail in interpreter.get_tensor_details()}
    return [np.stack(collected) for collected in outputs], shapes


def write(name, function):
    graph = Graph(sum(name.encode()))
    function(graph)
    # The reference kernels lack some operators.
    has_reference = not name.endswith("_extension")
    kinds = OpResolverType
    resolver = kinds.BUILTIN_REF if has_reference else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    outputs, shapes = reference(graph.pack(), graph.inputs, resolver)
    # Converters write the shapes that the runtime finds; so does this, but for families about their absence.
    if not name.endswith("_unshaped"):
        main = graph.model.subgraphs[0]
        for operator in main.operators:
            for index in operator.outputs:
                main.tensors[index].shape = shapes[index]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    model = graph.pack()
    assert all((a == b).all() or np.isnan(a).any() for a, b in zip(reference(model, graph.inputs, resolver)[0], outputs))
    (folder / "model.tflite").write_bytes(model)
    for index, values in enumerate(graph.inputs):
        np.save(folder / f"input_{index}.npy", values)
    for index, values in enumerate(outputs):
        assert np.isfinite(values).all(), (name, index, graph.graph.outputs)
        np.save(folder / f"output_{index}.npy", values)
    print(name, len(graph.inputs), len(outputs), len(model))


F32, I32, I64, I8, U8, I16, F16 = np.float32, np.int32, np.int64, np.int8, np.uint8, np.int16, np.float16
U32, U64 = np.uint32, np.uint64


@family
def elementwise_float(g):
    x = g.floats(2, 3, 4)
    positive = g.floats(2, 3, 4, low=0.1, high=9.0)
    for operator in ("ABS", "NEG", "EXP", "SIN", "FLOOR", "SQUARE"):
        g.op(operator, [x], F32)
    for operator in ("LOG", "SQRT", "RSQRT"):
        g.op(operator, [positive], F32)


@family
def elementwise_extension(g):
    """Functions that NNAPI lacks."""
    x = g.floats(2, 3, 4, low=-4.0, high=4.0)
    for operator in ("COS", "ROUND", "SIGN"):
        g.op(operator, [x], F32)
    for approximate in (False, True):
        label = "approximate" if approximate else "exact"
        g.op("GELU", [x], F32, with_options=options("GeluOptions", approximate=approximate), label=label)
    for dtype, zero_points in ((I8, (-8, 12)), (U8, (120, 140))):
        y = g.integers(dtype, 2, 3, 4, quant=(0.05, zero_points[0]))
        out = (dtype, (0.03, zero_points[1]))
        g.op("GELU", [y], out, with_options=options("GeluOptions"), label=np.dtype(dtype).name)


@family
def bits_extension(g):
    """The bits of elements as those of other types, and shifted."""
    x, y, scalar = g.floats(2, 3), g.integers(I8, 3, 4), g.floats()
    g.op("BITCAST", [x], I32, label="float to int32")
    g.op("BITCAST", [x], I16, label="float to int16")
    g.op("BITCAST", [x], U8, label="float to uint8")
    g.op("BITCAST", [scalar], I8, label="scalar to int8")
    g.op("BITCAST", [y], I32, label="int8 to int32")
    g.op("BITCAST", [g.integers(I16, 5)], U8, label="int16 to uint8")
    for dtype in (I8, I16, I32):
        z, bits = g.integers(dtype, 2, 8), g.integers(dtype, 2, 8, low=0, high=7)
        g.op("STABLEHLO_SHIFT_LEFT", [z, bits], dtype, label=np.dtype(dtype).name,
             with_options=options("StablehloShiftLeftOptions"))
        g.op("STABLEHLO_AND", [z, bits], dtype, label=np.dtype(dtype).name)
    g.op("STABLEHLO_AND", [g.booleans(9), g.booleans(9)], bool)


@family
def arithmetic_int64(g):
    """Integers beyond 32 bits, and such as differ in their upper bits only."""
    x = g.integers(I64, 2, 3, low=-(1 << 40), high=1 << 40)
    y = g.input(np.int64([[1, -3, 1 << 33], [1 << 20, 7, -(1 << 34)]]))
    near = g.input(np.int64([[1, (1 << 32) + 1, 1], [5, 5, -(1 << 32)]]))
    far = g.input(np.int64([[(1 << 32) + 1, 1, 1], [5, (1 << 33) + 5, 0]]))
    for operator in ("ADD", "SUB", "MUL"):
        for activation, label in ((0, None), (RELU, "relu"), (RELU6, "relu6")):
            which = options(operator.capitalize() + "Options", fusedActivationFunction=activation)
            g.op(operator, [x, y], I64, with_options=which, label=label)
    for operator in ("MAXIMUM", "MINIMUM"):
        g.op(operator, [near, far], I64, with_options=options("MaximumMinimumOptions"))
    g.op("FLOOR_MOD", [x, y], I64)
    g.op("NEG", [x], I64)
    for operator in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        g.op(operator, [near, far], bool)
    axis = g.constant(np.int32([1]))
    for operator in ("SUM", "REDUCE_MAX", "REDUCE_MIN", "MEAN"):
        g.op(operator, [x, axis], I64, with_options=options("ReducerOptions"))
    g.op("REDUCE_PROD", [y, g.constant(np.int32([0]))], I64, with_options=options("ReducerOptions"))
    g.op("CUMSUM", [x, g.constant(np.int32(1))], I64, with_options=options("CumsumOptions"))
    g.op("TOPK_V2", [far, g.constant(np.int32(2))], I64, I32, with_options=options("TopKV2Options"))
    g.op("SELECT_V2", [g.booleans(3), near, far], I64, with_options=options("SelectV2Options"))
    reals = g.input(np.float32([[1e12, -3.7, 2.5e9], [-1e10, 0.0, 7.9]]))
    g.op("CAST", [reals], I64, with_options=options("CastOptions", inDataType=0, outDataType=4), label="from float")
    small = g.integers(I32, 3)
    g.op("CAST", [small], I64, with_options=options("CastOptions", inDataType=2, outDataType=4), label="from int32")
    for dtype, code in ((F32, 0), (I32, 2), (U8, 3), (bool, 6), (I16, 7), (I8, 9)):
        g.op("CAST", [x], dtype, with_options=options("CastOptions", inDataType=4, outDataType=code),
             label=f"to {np.dtype(dtype).name}")


@family
def moved_int64(g):
    """Integers beyond 32 bits where they are only moved, by indices and lists of 64 bits."""
    x = g.integers(I64, 2, 3, low=-(1 << 50), high=1 << 50)
    value, ids = g.constant(np.int64(-(7 << 40))), g.input(np.int64([[2, 0], [1, 1]]))
    g.op("RESHAPE", [x, g.constant(np.int32([3, 2]))], I64, with_options=options("ReshapeOptions"))
    g.op("TRANSPOSE", [x, g.constant(np.int32([1, 0]))], I64, with_options=options("TransposeOptions"))
    g.op("CONCATENATION", [x, x], I64, with_options=options("ConcatenationOptions", axis=1))
    g.op("EXPAND_DIMS", [x, g.constant(np.int64(1))], I64, with_options=options("ExpandDimsOptions"))
    g.op("SLICE", [x, g.input(np.int64([[0, 1], [1, 0]])), g.constant(np.int64([1, 2]))], I64)
    g.op("PAD", [x, g.input(np.int64([[[1, 0], [0, 2]], [[0, 1], [1, 1]]]))], I64)
    g.op("PADV2", [x, g.constant(np.int64([[0, 1], [1, 0]])), value], I64)
    g.op("PACK", [x, x], I64, with_options=options("PackOptions", valuesCount=2))
    g.op("SPLIT", [g.constant(np.int32(1)), x], I64, I64, I64, with_options=options("SplitOptions", numSplits=3))
    g.op("TILE", [x, g.input(np.int64([[1, 2], [1, 2]]))], I64)
    g.op("GATHER", [x, ids], I64, with_options=options("GatherOptions", axis=1))
    g.op("GATHER_ND", [x, g.input(np.int64([[[1, 2]], [[0, 0]]]))], I64)
    g.op("REVERSE_V2", [x, g.constant(np.int32([1]))], I64)
    g.op("FILL", [g.constant(np.int64([2, 1])), value], I64)
    g.op("BROADCAST_TO", [x, g.input(np.int64([[2, 2, 3], [2, 2, 3]]))], I64, version=2,
         with_options=options("BroadcastToOptions"))
    g.op("ONE_HOT", [ids, g.constant(np.int32(3)), value, g.constant(np.int64(1 << 33))], I64,
         with_options=options("OneHotOptions", axis=-1))
    g.op("DYNAMIC_UPDATE_SLICE", [x, g.constant(np.int64([[9 << 40]])), g.input(np.int64([[1, 2], [9, -9]]))], I64)
    where = g.op("SHAPE", [x], I64, with_options=options("ShapeOptions", outType=4), keep=True)
    g.op("ADD", [where, g.input(np.int64([[1 << 40, 1], [2, 3]]))], I64, with_options=options("AddOptions"))


@family
def found_int64(g):
    """Indices of 64 bits as results, and computed with further on."""
    x = g.floats(2, 3)
    last = g.constant(np.int64(1))
    g.op("ARG_MAX", [x, last], I64, with_options=options("ArgMaxOptions", outputType=4))
    worst = g.op("ARG_MIN", [x, last], I64, with_options=options("ArgMinOptions", outputType=4), keep=True)
    far = g.op("ADD", [worst, g.constant(np.int64([1 << 32, 3 << 33]))], I64, with_options=options("AddOptions"))
    near = g.op("FLOOR_MOD", [far, g.constant(np.int64([3]))], I64, keep=True)
    g.op("GATHER", [g.weights(3, 2), near], F32, with_options=options("GatherOptions"))
    g.op("CAST", [far], F32, with_options=options("CastOptions", inDataType=4, outDataType=0))
    y = g.input(np.int64([[5 << 40, 1, 5 << 40, 0], [7, 7, 1 << 32, 0]]))
    g.op("WHERE", [y], I64)
    g.op("UNIQUE", [y], I64, I64, with_options=options("UniqueOptions", idxOutType=4))
    limits = [g.input(np.int64([0, 1 << 40])), g.input(np.int64([6, (1 << 40) + 5])), g.input(np.int64([2, 2]))]
    g.op("RANGE", limits, I64, with_options=options("RangeOptions"))


@family
def fake_quantization(g):
    x = g.floats(4, 5, low=-3.0, high=3.0)
    for low, high, bits in ((-1.0, 2.0, 8), (-0.3, 2.6, 4), (0.5, 2.5, 16), (-2.0, -1.0, 3)):
        g.op("FAKE_QUANT", [x], F32, label=f"{low} to {high} in {bits} bits",
             with_options=options("FakeQuantOptions", min=low, max=high, numBits=bits))


@family
def dilation(g):
    """Room between elements, and around them."""
    x, y = g.floats(2, 3, 2), g.integers(I8, 2, 4, quant=(0.5, 3))
    g.op("DILATE", [x, g.constant(np.int32([2, 1, 3])), g.constant(F32(1.5))], F32, with_options=options("DilateOptions"))
    g.op("DILATE", [y, g.constant(np.int32([1, 2])), g.constant(I8(3), (0.5, 3))], (I8, (0.5, 3)),
         with_options=options("DilateOptions"))
    value = g.constant(F32(-1.0))
    for low, high, interior in (([1, 0, 2], [0, 1, 0], [0, 0, 0]), ([1, -1, 0], [-1, 2, 0], [2, 1, 0])):
        g.op("STABLEHLO_PAD", [x, value], F32, label=f"{low} {high} {interior}",
             with_options=options("StablehloPadOptions", edgePaddingLow=low, edgePaddingHigh=high,
                                  interiorPadding=interior))


@family
def broadcast_arguments(g):
    """Dimensions that come at execution, and constant ones."""
    x, y = g.input(np.int32([[4, 1, 3], [1, 2, 1]])), g.input(np.int32([[5, 1], [2, 6]]))
    g.op("BROADCAST_ARGS", [x, y], I32)
    g.op("BROADCAST_ARGS", [g.constant(np.int32([1, 3])), g.constant(np.int32([2, 1, 1]))], I32, label="constant")


@family
def windows(g):
    x, y = g.floats(2, 5, 4), g.integers(I32, 4, 4, low=-9, high=9)
    lists = [g.constant(np.int64(values)) for values in ([1, 2, 3], [1, 2, 1], [1, 2, 1])]
    for code in (1, 2, 3, 4):
        start = g.constant(F32(0.5))
        g.op("REDUCE_WINDOW", [x, start, *lists], F32, label=f"{code}",
             with_options=options("ReduceWindowOptions", reduceFunction=code))
    flags = g.booleans(5)
    for code in (5, 6):
        lists = [g.constant(np.int64(values)) for values in ([2], [1], [2])]
        g.op("REDUCE_WINDOW", [flags, g.constant(np.bool_(code == 5)), *lists], bool, label=f"{code}",
             with_options=options("ReduceWindowOptions", reduceFunction=code))
    bodies = ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")
    for graph, body in enumerate(bodies, 1):
        g.op("STABLEHLO_REDUCE_WINDOW", [y, g.constant(I32(1))], I32, label=body,
             with_options=options("StablehloReduceWindowOptions", windowDimensions=[2, 2], windowStrides=[1, 2],
                                  baseDilations=[2, 1], windowDilations=[1, 1], padding=[1, 0, 0, 1],
                                  bodySubgraphIndex=graph))
    main = g.graph
    for body in bodies:
        g.begin()
        g.op(body, [g.argument(I32, []), g.argument(I32, [])], I32)
    g.graph = main


@family
def regions(g):
    """Regions that corners name, some of which reach outside, gathered and scattered."""
    x, y = g.floats(4, 5, 3), g.integers(I32, 4, 5, low=-9, high=9)
    corners = g.input(np.int32([[[0, 1], [3, -2], [9, 2]], [[1, 4], [2, 2], [-1, 0]]]))
    rows = g.input(np.int32([[3, 1], [0, 7]]))

    def gather(source, indices, shape, label, **fields):
        output = g.op("STABLEHLO_GATHER", [source, indices], I32 if source == y else F32, label=label,
                      with_options=options("StablehloGatherOptions", indexVectorDim=1, **fields))
        # The kernel wants to know the rank.
        g.graph.tensors[output].shape = shape

    gather(x, corners, [3, 2, 2, 3], "boxes", offsetDims=[1, 2, 3], collapsedSliceDims=[], startIndexMap=[0, 1],
           sliceSizes=[2, 2, 3])
    gather(x, corners, [2, 3], "columns", offsetDims=[0], collapsedSliceDims=[0, 1], startIndexMap=[0, 1],
           sliceSizes=[1, 1, 2])
    gather(y, rows, [2, 5], "rows", offsetDims=[1], collapsedSliceDims=[0], startIndexMap=[0], sliceSizes=[1, 5])
    updates = g.integers(I32, 3, 2, 2, low=-9, high=9)
    bodies = ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", None)
    for graph, body in enumerate(bodies, 1):
        g.op("STABLEHLO_SCATTER", [y, corners, updates], I32, label=body or "replaced",
             with_options=options("StablehloScatterOptions", updateWindowDims=[1, 2], insertedWindowDims=[],
                                  scatterDimsToOperandDims=[0, 1], indexVectorDim=1,
                                  updateComputationSubgraphIndex=graph))
    main = g.graph
    for body in bodies:
        g.begin()
        old, new = g.argument(I32, []), g.argument(I32, [])
        if body:
            g.op(body, [old, new], I32)
        else:
            g.graph.outputs.append(new)
    g.graph = main


@family
def case_extension(g):
    """One of two branches; every index but 0 is that of the second."""
    index, x = g.input(np.int32([0, 1, 7, -1])), g.floats(2, 3, calls=4)
    g.op("STABLEHLO_CASE", [index, x], F32, with_options=options("StablehloCaseOptions", branchSubgraphIndices=[1, 2]))
    main = g.graph
    for operator in ("NEG", "EXP"):
        g.begin()
        g.op(operator, [g.argument(F32, [2, 3])], F32)
        g.graph.tensors[-1].shape = [2, 3]
    g.graph = main


@family
def case_halves_extension(g):
    """One of five branches; LiteRT takes every graph of the file for one."""
    index, x = g.input(np.int32([0, 1, 2, 3, 4, 5, 100, -1, -100])), g.floats(2, 3, calls=9)
    which = options("StablehloCaseOptions", branchSubgraphIndices=[3, 2, 1, 4, 5])
    g.op("STABLEHLO_CASE", [index, x], F32, with_options=which)
    main = g.graph
    for operator in ("NEG", "EXP", "ABS", "SIN", "FLOOR"):
        g.begin()
        g.op(operator, [g.argument(F32, [2, 3])], F32)
        g.graph.tensors[-1].shape = [2, 3]
    g.graph = main


@family
def random_extension(g):
    """Numbers that go on from one call to the next, but begin anew in a composite and in branches."""
    shape, logits = g.input(np.int32([[2, 3]] * 3)), g.floats(2, 3, calls=3)

    def seeded(seed, seed2):
        return options("RandomOptions", seed=seed, seed2=seed2)

    for operator in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
        g.op(operator, [g.constant(np.int32([2, 3]))], F32, with_options=seeded(1, 2))
        g.op(operator, [g.constant(np.int32([9]))], F32, with_options=seeded(-5, 2**40 + 7), label="of nine")
        g.op(operator, [shape], F32, with_options=seeded(0, 3), label="at execution")
        g.op(operator, [g.constant(np.zeros([0], I32))], F32, with_options=seeded(3, 0), label="of one")
    for dtype in (I32, I64):
        g.op("MULTINOMIAL", [logits, g.constant(np.int32(5))], dtype, with_options=seeded(2**33 + 1, -1),
             label=np.dtype(dtype).name)
    which = options("StableHLOCompositeOptions", name="test.random", decompositionSubgraphIndex=1, compositeAttributes=[])
    for label in ("once", "twice"):
        g.op("STABLEHLO_COMPOSITE", [logits], F32, with_options=which, label=label)
    which = options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=1)
    g.op("IF", [g.input(np.array([True, False, True])), logits], F32, with_options=which)
    main = g.graph
    g.begin()
    x = g.argument(F32, [2, 3])
    noise = g.op("RANDOM_UNIFORM", [g.constant(np.int32([2, 3]))], F32, with_options=seeded(4, 5), keep=True)
    g.op("ADD", [x, noise], F32, with_options=options("AddOptions"))
    for tensor in (noise, noise + 1):
        g.graph.tensors[tensor].shape = [2, 3]
    g.graph = main


@family
def random_bits_extension(g):
    """States that the caller carries on, one near the end of its counter, and a constant one."""
    two = g.input(np.array([[7, 8], [2**63 + 5, 2**64 - 1], [2**40, 2**32 - 1]], U64))
    three = g.input(np.array([[7, 8, 9], [2**63 + 5, 2**64 - 2, 3], [2**40, 2**32 - 1, 2**64 - 1]], U64))
    fixed = g.constant(np.array([3, 2**35], U64))
    default, philox, threefry = 0, 1, 2
    for state, algorithm, dtype, shape in (
        (two, default, I32, [2, 3]), (two, philox, U32, [5]), (two, threefry, U64, [3]), (two, threefry, U32, [3]),
        (three, default, U64, [2, 3]), (three, philox, I32, [4]), (fixed, philox, U32, [4, 2]),
    ):
        which = options("StablehloRngBitGeneratorOptions", algorithm=algorithm)
        after, bits = g.op("STABLEHLO_RNG_BIT_GENERATOR", [state], U64, dtype, with_options=which,
                           label=f"{algorithm} of {state} as {np.dtype(dtype).name}")
        g.graph.tensors[after].shape = [3 if state == three else 2]
        g.graph.tensors[bits].shape = shape
    which = options("BitcastOptions")
    words = g.op("BITCAST", [two], U32, with_options=which, label="to halves")
    g.op("BITCAST", [words], U64, with_options=which, label="to wholes")
    g.op("BITCAST", [words], I32, with_options=which, label="to signed")
    g.op("BITCAST", [g.floats(2, 3, calls=3)], U32, with_options=which, label="of floats")


@family
def composites(g):
    """Composites, one of which has another in its graph, and passes a constant on."""
    x, y = g.floats(2, 3), g.floats(2, 3)
    inner = options("StableHLOCompositeOptions", name="test.inner", decompositionSubgraphIndex=2, compositeAttributes=[])
    outer = options("StableHLOCompositeOptions", name="test.outer", decompositionSubgraphIndex=1, compositeAttributes=[])
    g.op("STABLEHLO_COMPOSITE", [x, y], F32, F32, with_options=outer)
    total = g.op("STABLEHLO_ADD", [x, y], F32, keep=True)
    g.op("STABLEHLO_COMPOSITE", [total, g.constant(np.int32([1, 0]))], F32, with_options=inner, label="again")
    for operator in ("STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM"):
        g.op(operator, [x, y], F32)
    main = g.graph
    g.begin()
    a, b = g.argument(F32, [2, 3]), g.argument(F32, [2, 3])
    product = g.op("STABLEHLO_MULTIPLY", [a, b], F32, keep=True)
    g.op("STABLEHLO_COMPOSITE", [product, g.constant(np.int32([1, 0]))], F32, with_options=inner)
    g.op("NEG", [a], F32)
    g.begin()
    a, axes = g.argument(F32, [2, 3]), g.argument(I32, [2])
    turned = g.op("TRANSPOSE", [a, axes], F32, with_options=options("TransposeOptions"), keep=True)
    g.op("RELU", [turned], F32)
    g.graph = main
    for graph in g.model.subgraphs[1:]:
        for tensor in graph.tensors:
            tensor.shape = tensor.shape or [2, 3]


@family
def spectra(g):
    x = g.floats(2, 3, 6)
    for rows, columns in ((4, 8), (2, 4), (1, 16)):
        lengths = g.constant(np.int32([rows, columns]))
        y = g.op("RFFT2D", [x, lengths], schema.TensorType.COMPLEX64, with_options=options("Rfft2dOptions"),
                 label=f"{rows} {columns}")
        for operator in ("REAL", "IMAG", "COMPLEX_ABS"):
            g.op(operator, [y], F32, label=f"{rows} {columns}")


@family
def resource_variables(g):
    """A sum that is carried on, a variable that is assigned and read again, one that never changes."""
    x = g.floats(2, 3, calls=4)
    g.op("CALL_ONCE", [], with_options=options("CallOnceOptions", initSubgraphIndex=1))
    total, last, fixed = (g.handle(name) for name in ("total", "last", "fixed"))
    before = g.op("READ_VARIABLE", [total], F32, with_options=options("ReadVariableOptions"))
    after = g.op("ADD", [before, x], F32, with_options=options("AddOptions"))
    g.op("ASSIGN_VARIABLE", [total, after], with_options=options("AssignVariableOptions"))
    g.op("READ_VARIABLE", [last], F32, with_options=options("ReadVariableOptions"), label="as it was")
    g.op("ASSIGN_VARIABLE", [last, x], with_options=options("AssignVariableOptions"))
    again = g.op("READ_VARIABLE", [last], F32, with_options=options("ReadVariableOptions"), keep=True)
    scale = g.op("READ_VARIABLE", [fixed], F32, with_options=options("ReadVariableOptions"), keep=True)
    g.op("MUL", [again, scale], F32, with_options=options("MulOptions"))
    main = g.graph
    g.begin()
    for name, value in (("total", 1.5), ("last", -2.0), ("fixed", 3.0)):
        value = g.constant(np.full((2, 3), value, F32))
        g.op("ASSIGN_VARIABLE", [g.handle(name), value], with_options=options("AssignVariableOptions"))
    g.graph = main


@family
def signatures(g):
    """Two graphs with signatures, "double" and "sum", of inputs with an open extent."""
    x = g.floats(2, 3)
    double = g.op("ADD", [x, x], F32, with_options=options("AddOptions"))
    g.graph.tensors[x].shapeSignature = g.graph.tensors[double].shapeSignature = [-1, 3]
    g.signature("double", 0, [("x", x)], [("twice", double)])
    main = g.graph
    g.begin()
    a, b = g.argument(F32, [2, 3]), g.argument(F32, [1, 3])
    total = g.op("ADD", [a, b], F32, with_options=options("AddOptions"))
    g.graph.tensors[a].shapeSignature = [-1, 3]
    g.graph.tensors[total].shape = [2, 3]
    g.signature("sum", 1, [("a", a), ("b", b)], [("total", total)])
    g.graph = main


@family
def arithmetic_float(g):
    x, y = g.floats(2, 3, 4, low=-3), g.floats(3, 1, low=1.0, high=3.0)
    for operator in ("ADD", "SUB", "MUL", "DIV"):
        name = operator.capitalize() + "Options"
        g.op(operator, [x, y], F32, with_options=options(name))
        g.op(operator, [x, y], F32, with_options=options(name, fusedActivationFunction=RELU1), label="relu1")
    g.op("ADD", [x, y], F32, with_options=options("AddOptions", fusedActivationFunction=RELU6), label="relu6")
    for operator in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"):
        g.op(operator, [x, y], F32)
    base = g.floats(2, 3, low=0.2, high=3.0)
    g.op("POW", [base, g.constant(np.float32([[0.5, 2.0, -1.5]]))], F32)
    g.op("ADD_N", [base, base, base], F32)


@family
def arithmetic_int32(g):
    x, y = g.integers(I32, 2, 3, low=-9, high=9), g.integers(I32, 1, 3, low=1, high=9)
    for operator in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"):
        g.op(operator, [x, y], I32)
    g.op("NEG", [x], I32)


def arithmetic_quant8(g, dtype, zero_points):
    zx, zy, zo = zero_points
    x = g.integers(dtype, 2, 3, 4, quant=(0.02, zx))
    y = g.integers(dtype, 3, 1, quant=(0.01, zy))
    out = (dtype, (0.03, zo))
    g.op("ADD", [x, y], out, with_options=options("AddOptions"), version=2)
    g.op("ADD", [x, y], out, with_options=options("AddOptions", fusedActivationFunction=RELU), version=2, label="relu")
    g.op("SUB", [x, y], out, with_options=options("SubOptions"), version=2)
    g.op("MUL", [x, y], out, with_options=options("MulOptions"), version=2)
    fine = (dtype, (0.0001, zo))
    g.op("MUL", [x, y], fine, with_options=options("MulOptions"), version=2, label="to a finer scale")
    g.op("SQUARED_DIFFERENCE", [x, y], out, version=2) if dtype == I8 else None
    same = g.integers(dtype, 3, 1, quant=(0.02, zx))
    g.op("MAXIMUM", [x, same], (dtype, (0.02, zx)), version=2)
    g.op("MINIMUM", [x, same], (dtype, (0.02, zx)), version=2)


@family
def arithmetic_uint8(g):
    arithmetic_quant8(g, U8, (120, 100, 140))
    x = g.integers(U8, 2, 3, low=130, high=255, quant=(0.02, 128))
    y = g.integers(U8, 2, 3, low=160, high=255, quant=(0.01, 100))
    g.op("DIV", [x, y], (U8, (0.02, 50)), with_options=options("DivOptions"), version=2)


@family
def arithmetic_int8(g):
    arithmetic_quant8(g, I8, (-8, -28, 12))


@family
def activations_float(g):
    x = g.floats(2, 3, 4, low=-8.0, high=8.0)
    for operator in ("RELU", "RELU_N1_TO_1", "RELU6", "RELU_0_TO_1", "LOGISTIC", "TANH", "HARD_SWISH"):
        g.op(operator, [x], F32)
    g.op("PRELU", [x, g.weights(1, 1, 4)], F32)
    g.op("LEAKY_RELU", [x], F32, with_options=options("LeakyReluOptions", alpha=0.1))


def activations_quant8(g, dtype, zero_point, fixed):
    x = g.integers(dtype, 2, 3, 4, quant=(0.05, zero_point))
    other = (dtype, (0.03, zero_point - 40))
    for operator in ("RELU", "RELU6"):
        g.op(operator, [x], (dtype, (0.05, zero_point)), version=2)
        g.op(operator, [x], other, version=2, label="to another scale")
    g.op("LOGISTIC", [x], (dtype, (1 / 256, fixed[0])), version=2)
    g.op("TANH", [x], (dtype, (1 / 128, fixed[1])), version=2)
    g.op("HARD_SWISH", [x], other)
    alpha = g.constant(g.random.integers(0, 100, (1, 1, 4)).astype(dtype), (0.02, 10))
    g.op("PRELU", [x, alpha], other)
    g.op("LEAKY_RELU", [x], other, with_options=options("LeakyReluOptions", alpha=0.1), version=2)


@family
def activations_uint8(g):
    activations_quant8(g, U8, 120, (0, 128))


@family
def activations_int8(g):
    activations_quant8(g, I8, -8, (-128, 0))


@family
def comparison(g):
    x, y = g.floats(2, 3), g.floats(1, 3)
    i, j = g.integers(I32, 2, 3, low=0, high=2), g.integers(I32, 2, 3, low=0, high=2)
    b, c = g.booleans(2, 3), g.booleans(2, 3)
    for operator in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        g.op(operator, [x, y], bool)
        g.op(operator, [i, j], bool, label="int32")
    g.op("EQUAL", [b, c], bool, version=2, label="bool")
    g.op("LOGICAL_AND", [b, c], bool)
    g.op("LOGICAL_OR", [b, c], bool)
    g.op("LOGICAL_NOT", [b], bool)
    z = g.floats(2, 3)
    g.op("SELECT", [b, x, z], F32)
    g.op("SELECT", [b, i, j], I32, label="int32")
    g.op("SELECT_V2", [b, y, g.constant(np.float32(7.0))], F32, label="of a row and a scalar")


@family
def convolutions_float(g):
    x = g.floats(2, 7, 6, 4)
    conv = lambda **f: options("Conv2DOptions", strideW=1, strideH=1, **f)
    g.op("CONV_2D", [x, g.weights(3, 3, 2, 4), g.weights(3)], F32, with_options=conv(padding=SAME))
    g.op(
        "CONV_2D", [x, g.weights(3, 3, 2, 4), g.weights(3)], F32,
        with_options=options("Conv2DOptions", padding=VALID, strideW=2, strideH=1, fusedActivationFunction=RELU6),
        label="valid, strides, relu6",
    )
    g.op(
        "CONV_2D", [x, g.weights(3, 3, 2, 4), g.weights(3)], F32,
        with_options=conv(padding=SAME, dilationWFactor=2, dilationHFactor=3), version=2, label="dilated",
    )
    g.op("CONV_2D", [x, g.weights(6, 3, 3, 2), g.weights(6)], F32, with_options=conv(padding=SAME), version=6,
         label="in groups")
    depthwise = lambda **f: options("DepthwiseConv2DOptions", strideW=1, strideH=1, **f)
    g.op("DEPTHWISE_CONV_2D", [x, g.weights(1, 3, 3, 4), g.weights(4)], F32,
         with_options=depthwise(padding=SAME, depthMultiplier=1))
    g.op("DEPTHWISE_CONV_2D", [x, g.weights(1, 3, 2, 8), g.weights(8)], F32,
         with_options=depthwise(padding=VALID, depthMultiplier=2, fusedActivationFunction=RELU), label="multiplied")
    g.op("DEPTHWISE_CONV_2D", [x, g.weights(1, 3, 2, 4), g.weights(4)], F32,
         with_options=depthwise(padding=SAME, depthMultiplier=1, dilationWFactor=2, dilationHFactor=2), version=2,
         label="dilated")
    transpose = options("TransposeConvOptions", padding=SAME, strideW=2, strideH=3)
    shape = g.constant(np.int32([2, 21, 12, 3]))
    g.op("TRANSPOSE_CONV", [shape, g.weights(3, 3, 2, 4), x], F32, with_options=transpose)
    transpose = options("TransposeConvOptions", padding=VALID, strideW=2, strideH=2)
    shape = g.constant(np.int32([2, 15, 13, 3]))
    g.op("TRANSPOSE_CONV", [shape, g.weights(3, 3, 3, 4), x, g.weights(3)], F32, with_options=transpose, version=3,
         label="valid, bias")


@family
def convolutions_uint8(g):
    x = g.integers(U8, 1, 6, 5, 4, quant=(0.02, 128))
    filter_ = lambda *shape: g.weights8(*shape, quant=(0.01, 120), dtype=U8, low=0, high=255)
    out = (U8, (0.1, 110))
    conv = options("Conv2DOptions", padding=SAME, strideW=1, strideH=1)
    g.op("CONV_2D", [x, filter_(3, 3, 3, 4), g.bias32(3, (0.0002, 0))], out, with_options=conv)
    conv = options("Conv2DOptions", padding=VALID, strideW=2, strideH=2, fusedActivationFunction=RELU6)
    g.op("CONV_2D", [x, filter_(3, 2, 2, 4), g.bias32(3, (0.0002, 0))], out, with_options=conv, label="relu6")
    depthwise = options("DepthwiseConv2DOptions", padding=SAME, strideW=1, strideH=1, depthMultiplier=1)
    g.op("DEPTHWISE_CONV_2D", [x, filter_(1, 3, 3, 4), g.bias32(4, (0.0002, 0))], out, with_options=depthwise)
    transpose = options("TransposeConvOptions", padding=SAME, strideW=2, strideH=2)
    shape = g.constant(np.int32([1, 12, 10, 3]))
    g.op("TRANSPOSE_CONV", [shape, filter_(3, 3, 3, 4), x], out, with_options=transpose)


@family
def convolutions_int8(g):
    x = g.integers(I8, 1, 6, 5, 4, quant=(0.02, -3))
    scales = np.float32([0.01, 0.02, 0.005, 0.015])
    out = (I8, (0.1, 5))
    conv = options("Conv2DOptions", padding=SAME, strideW=1, strideH=1)
    g.op("CONV_2D", [x, g.weights8(4, 3, 3, 4, quant=(scales, 0, 0)), g.bias32(4, (scales * np.float32(0.02), 0))],
         out, with_options=conv, version=3)
    g.op("CONV_2D", [x, g.weights8(3, 3, 3, 4, quant=(0.01, 0)), g.bias32(3, (0.0002, 0))], out, with_options=conv,
         version=3, label="one scale")
    depthwise = options("DepthwiseConv2DOptions", padding=SAME, strideW=1, strideH=1, depthMultiplier=1,
                        fusedActivationFunction=RELU)
    g.op("DEPTHWISE_CONV_2D",
         [x, g.weights8(1, 3, 3, 4, quant=(scales, 0, 3)), g.bias32(4, (scales * np.float32(0.02), 0))],
         out, with_options=depthwise, version=3)
    transpose = options("TransposeConvOptions", padding=SAME, strideW=2, strideH=2)
    shape = g.constant(np.int32([1, 12, 10, 4]))
    g.op("TRANSPOSE_CONV", [shape, g.weights8(4, 3, 3, 4, quant=(scales, 0, 0)), x], out, with_options=transpose,
         version=2)


@family
def convolutions_hybrid(g):
    x = g.floats(2, 6, 5, 4)
    zero = g.input(np.zeros((2, 1, 3, 3, 4), F32))
    scales = np.float32([0.01, 0.02, 0.005, 0.015])
    conv = options("Conv2DOptions", padding=SAME, strideW=1, strideH=1, fusedActivationFunction=RELU)
    g.op("CONV_2D", [x, g.weights8(3, 3, 3, 4, quant=(0.01, 0)), g.weights(3)], F32, with_options=conv, version=2)
    g.op("CONV_2D", [x, g.weights8(4, 3, 3, 4, quant=(scales, 0, 0)), g.weights(4)], F32, with_options=conv, version=5,
         label="a scale a channel")
    g.op("CONV_2D", [zero, g.weights8(4, 3, 3, 4, quant=(scales, 0, 0)), g.weights(4)], F32, with_options=conv,
         version=5, label="of zeros")
    g.op("CONV_2D", [zero, g.weights8(3, 3, 3, 4, quant=(0.01, 0)), g.weights(3)], F32, with_options=conv, version=2,
         label="of zeros, one scale")
    depthwise = options("DepthwiseConv2DOptions", padding=SAME, strideW=1, strideH=1, depthMultiplier=1)
    g.op("DEPTHWISE_CONV_2D", [x, g.weights8(1, 3, 3, 4, quant=(scales, 0, 3)), g.weights(4)], F32,
         with_options=depthwise, version=6)


@family
def dense_float(g):
    fc = lambda **f: options("FullyConnectedOptions", **f)
    x, y = g.floats(2, 3, 4), g.floats(2, 8)
    g.op("FULLY_CONNECTED", [y, g.weights(5, 8), g.weights(5)], F32, with_options=fc(fusedActivationFunction=RELU))
    g.op("FULLY_CONNECTED", [y, g.weights(5, 8), -1], F32, with_options=fc(), version=6, label="without bias")
    g.op("FULLY_CONNECTED", [x, g.weights(5, 4), g.weights(5)], F32, with_options=fc(keepNumDims=True), version=2,
         label="keeping dimensions")
    g.op("FULLY_CONNECTED", [x, g.weights(5, 8), g.weights(5)], F32, with_options=fc(), label="flattening")
    g.op("FULLY_CONNECTED", [x, g.weights(5, 12), -1], F32, with_options=fc(fusedActivationFunction=RELU1), version=6,
         label="flattening, relu1")


@family
def dense_uint8(g):
    x = g.integers(U8, 2, 8, quant=(0.02, 128))
    weights = g.weights8(5, 8, quant=(0.01, 120), dtype=U8, low=0, high=255)
    g.op("FULLY_CONNECTED", [x, weights, g.bias32(5, (0.0002, 0))], (U8, (0.05, 100)),
         with_options=options("FullyConnectedOptions"))


@family
def dense_int8(g):
    x, y = g.integers(I8, 2, 8, quant=(0.02, -3)), g.integers(I8, 2, 3, 8, quant=(0.02, -3))
    fc = lambda **f: options("FullyConnectedOptions", **f)
    out = (I8, (0.05, 4))
    weights = lambda: g.weights8(5, 8, quant=(0.01, 0))
    g.op("FULLY_CONNECTED", [x, weights(), g.bias32(5, (0.0002, 0))], out, with_options=fc(), version=4)
    g.op("FULLY_CONNECTED", [y, weights(), g.bias32(5, (0.0002, 0))], out, with_options=fc(keepNumDims=True),
         version=5, label="keeping dimensions")
    scales = np.float32([0.01, 0.02, 0.005, 0.015, 0.01])
    channels = lambda: g.weights8(5, 8, quant=(scales, 0, 0))
    bias = lambda: g.bias32(5, (scales * np.float32(0.02), 0))
    g.op("FULLY_CONNECTED", [x, channels(), bias()], out, with_options=fc(fusedActivationFunction=RELU), version=12,
         label="a scale a channel")
    g.op("FULLY_CONNECTED", [y, channels(), -1], out, with_options=fc(keepNumDims=True), version=12,
         label="a scale a channel, keeping dimensions")


@family
def dense_hybrid(g):
    x, y = g.floats(2, 8), g.floats(2, 3, 8)
    fc = lambda **f: options("FullyConnectedOptions", **f)
    weights = lambda: g.weights8(5, 8, quant=(0.01, 0))
    g.op("FULLY_CONNECTED", [x, weights(), g.weights(5)], F32, with_options=fc(fusedActivationFunction=RELU),
         version=3)
    g.op("FULLY_CONNECTED", [x, weights(), -1], F32, with_options=fc(asymmetricQuantizeInputs=True), version=9,
         label="asymmetric")
    g.op("FULLY_CONNECTED", [y, weights(), g.weights(5)], F32,
         with_options=fc(asymmetricQuantizeInputs=True, keepNumDims=True), version=9, label="keeping dimensions")


def pools(g, x, out):
    pool = lambda **f: options("Pool2DOptions", **f)
    kinds = ["AVERAGE_POOL_2D", "MAX_POOL_2D"] + (["L2_POOL_2D"] if out == F32 else [])
    for operator in kinds:
        version = 1 if out == F32 else 2
        version = 1 if operator == "L2_POOL_2D" else version
        g.op(operator, [x], out, version=version,
             with_options=pool(padding=SAME, strideW=2, strideH=1, filterWidth=3, filterHeight=2))
        g.op(operator, [x], out, version=version, label="valid, relu6",
             with_options=pool(padding=VALID, strideW=1, strideH=2, filterWidth=2, filterHeight=3,
                               fusedActivationFunction=RELU6))


@family
def pools_float(g):
    pools(g, g.floats(2, 7, 6, 3), F32)


@family
def pools_uint8(g):
    pools(g, g.integers(U8, 2, 7, 6, 3, quant=(0.1, 110)), (U8, (0.1, 110)))


@family
def pools_int8(g):
    pools(g, g.integers(I8, 2, 7, 6, 3, quant=(0.1, -10)), (I8, (0.1, -10)))


@family
def normalization_float(g):
    x = g.floats(2, 3, 5)
    g.op("SOFTMAX", [x], F32, with_options=options("SoftmaxOptions", beta=0.7))
    g.op("LOG_SOFTMAX", [x], F32)
    g.op("L2_NORMALIZATION", [x], F32, with_options=options("L2NormOptions"))
    image = g.floats(1, 2, 3, 6)
    # The reference kernel leaves out the last channel of the radius; here there is none so far away.
    lrn = options("LocalResponseNormalizationOptions", radius=6, bias=1.0, alpha=0.3, beta=0.5)
    g.op("LOCAL_RESPONSE_NORMALIZATION", [image], F32, with_options=lrn)


@family
def normalization_uint8(g):
    x = g.integers(U8, 2, 5, quant=(0.05, 120))
    g.op("SOFTMAX", [x], (U8, (1 / 256, 0)), with_options=options("SoftmaxOptions", beta=1.0))
    g.op("L2_NORMALIZATION", [x], (U8, (1 / 128, 128)), with_options=options("L2NormOptions"))


@family
def normalization_int8(g):
    x = g.integers(I8, 2, 5, quant=(0.05, -8))
    g.op("SOFTMAX", [x], (I8, (1 / 256, -128)), with_options=options("SoftmaxOptions", beta=1.0), version=2)
    g.op("L2_NORMALIZATION", [x], (I8, (1 / 128, 0)), with_options=options("L2NormOptions"), version=2)
    g.op("LOG_SOFTMAX", [x], (I8, (16 / 256, 127)), version=2)


@family
def reductions(g):
    x, b = g.floats(2, 3, 4), g.booleans(2, 3)
    axes = g.constant(np.int32([1, -1]))
    keep, drop = options("ReducerOptions", keepDims=True), options("ReducerOptions", keepDims=False)
    for operator in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        g.op(operator, [x, axes], F32, with_options=keep)
        g.op(operator, [x, axes], F32, with_options=drop, label="dropping axes")
        g.op(operator, [x, g.constant(np.int32(0))], F32, with_options=drop, label="over one axis")
    for operator in ("REDUCE_ANY", "REDUCE_ALL"):
        g.op(operator, [b, g.constant(np.int32([1]))], bool, with_options=drop)
    g.op("ARG_MAX", [x, g.constant(np.int32(1))], I64, with_options=options("ArgMaxOptions", outputType=4))
    g.op("ARG_MAX", [x, g.constant(np.int32(-1))], I32, with_options=options("ArgMaxOptions", outputType=2),
         label="int32")
    g.op("ARG_MIN", [x, g.constant(np.int64(2))], I32, with_options=options("ArgMinOptions", outputType=2))


def reductions_quant8(g, dtype, zero_point):
    x = g.integers(dtype, 2, 5, 4, 3, quant=(0.05, zero_point))
    keep, drop = options("ReducerOptions", keepDims=True), options("ReducerOptions", keepDims=False)
    same, other = (dtype, (0.05, zero_point)), (dtype, (0.031, zero_point + 7))
    plane, all_ = g.constant(np.int32([1, 2])), g.constant(np.int32([0, 1, 2, 3]))
    g.op("MEAN", [x, plane], other, with_options=keep, version=2, label="to another scale")
    g.op("MEAN", [x, g.constant(np.int32([-1]))], other, with_options=drop, version=2, label="of channels")
    g.op("MEAN", [x, all_], other, with_options=drop, version=2, label="of everything")
    if dtype == U8:  # The reference kernel's sums of int8 are off by 128 steps.
        g.op("SUM", [x, g.constant(np.int32([3]))], (dtype, (0.2, zero_point)), with_options=drop, version=2)
    g.op("REDUCE_MAX", [x, plane], same, with_options=keep, version=2)
    g.op("REDUCE_MIN", [x, plane], same, with_options=drop, version=2)
    g.op("ARG_MAX", [x, g.constant(np.int32(3))], I32, with_options=options("ArgMaxOptions", outputType=2), version=2)


@family
def reductions_uint8(g):
    reductions_quant8(g, U8, 120)


@family
def reductions_int8(g):
    reductions_quant8(g, I8, -8)


def shapes(g, x, out):
    version = 1 if out in (F32, I32) else 2
    g.op("RESHAPE", [x, g.constant(np.int32([-1, 4]))], out)
    g.op("RESHAPE", [x], out, with_options=options("ReshapeOptions", newShape=[3, 8]), label="by options")
    g.op("SQUEEZE", [x], out)
    g.op("SQUEEZE", [x], out, with_options=options("SqueezeOptions", squeezeDims=[-1]), label="one axis")
    g.op("EXPAND_DIMS", [g.op("RESHAPE", [x, g.constant(np.int32([6, 4]))], out), g.constant(np.int32(-2))], out)
    g.op("TRANSPOSE", [x, g.constant(np.int32([2, 0, 1, 3]))], out, version=version)
    g.op("TILE", [x, g.constant(np.int32([1, 2, 1, 3]))], out)
    g.op("PAD", [x, g.constant(np.int32([[0, 1], [2, 0], [0, 0], [1, 1]]))], out, version=version)
    g.op("SLICE", [x, g.constant(np.int32([0, 1, 0, 0])), g.constant(np.int32([1, -1, 2, 1]))], out, version=version)
    first, second = g.op("SPLIT", [g.constant(np.int32(1)), x], out, out, with_options=options("SplitOptions", numSplits=2),
                         version=version)
    join = options("ConcatenationOptions", axis=-2)
    g.op("CONCATENATION", [first, second, first], out, with_options=join, version=version)
    image = g.op("RESHAPE", [x, g.constant(np.int32([1, 2, 3, 4]))], out, label="to an image")
    wide = g.op("TILE", [image, g.constant(np.int32([1, 2, 2, 1]))], out, label="of an image")
    g.op("DEPTH_TO_SPACE", [wide], out, with_options=options("DepthToSpaceOptions", blockSize=2), version=1)
    g.op("SPACE_TO_DEPTH", [wide], out, with_options=options("SpaceToDepthOptions", blockSize=2), version=version)
    block, crops = g.constant(np.int32([2, 3])), g.constant(np.int32([[0, 0], [0, 0]]))
    batches = g.op("SPACE_TO_BATCH_ND", [wide, block, crops], out, version=version)
    g.op("BATCH_TO_SPACE_ND", [batches, block, crops], out, version=version)
    g.op("BATCH_TO_SPACE_ND", [batches, block, g.constant(np.int32([[1, 0], [2, 1]]))], out, version=version,
         label="cropped")
    g.op("GATHER", [x, g.constant(np.int32([2, 0]))], out, with_options=options("GatherOptions", axis=2), version=1)
    g.op("GATHER", [x, g.constant(np.int32(1))], out, with_options=options("GatherOptions", axis=1),
         label="a scalar")
    strided = lambda **f: options("StridedSliceOptions", **f)
    bound = lambda *values: g.constant(np.int32(values))
    g.op("STRIDED_SLICE", [x, bound(0, 1, -1, 0), bound(1, 9, -4, 1), bound(1, 2, -1, 1)], out, version=version,
         with_options=strided(endMask=0b0100))
    g.op("STRIDED_SLICE", [x, bound(0, -1, 1), bound(1, 0, 3), bound(1, 1, 1)], out, version=version,
         with_options=strided(shrinkAxisMask=0b010), label="shrinking")
    g.op("STRIDED_SLICE", [x, bound(0, 0, 0), bound(0, 2, 0), bound(1, 1, 1)], out, version=version,
         with_options=strided(ellipsisMask=0b001, shrinkAxisMask=0b100), label="after an ellipsis")
    if out in (F32, I32):
        g.op("STRIDED_SLICE", [first, bound(0, 0), bound(1, 0), bound(1, 1)], out, version=version,
             with_options=strided(newAxisMask=0b10, shrinkAxisMask=0b01), label="with a new axis")
    parts = g.op("SPLIT_V", [x, g.constant(np.int32([1, -1])), g.constant(np.int32(2))], out, out,
                 with_options=options("SplitVOptions", numSplits=2), version=version)
    rows = g.op("UNPACK", [g.op("RESHAPE", [x, g.constant(np.int32([2, 3, 4]))], out, label="to a cube")], out, out, out,
                with_options=options("UnpackOptions", num=3, axis=1), version=version)
    g.op("PACK", rows, out, with_options=options("PackOptions", valuesCount=3, axis=-1), version=version)
    return parts


@family
def shapes_float(g):
    x = g.floats(1, 6, 4, 1)
    shapes(g, x, F32)
    g.op("PADV2", [x, g.constant(np.int32([[0, 0], [1, 0], [0, 2], [0, 0]])), g.constant(np.float32(1.5))], F32)
    g.op("REVERSE_V2", [x, g.constant(np.int32([2]))], F32)
    g.op("BROADCAST_TO", [x, g.constant(np.int32([2, 3, 6, 4, 1][1:]))], F32, version=2)
    vector = g.floats(3)
    g.op("BROADCAST_TO", [vector, g.constant(np.int32([2, 3]))], F32, version=2, label="of a vector")
    g.op("ZEROS_LIKE", [x], F32)


@family
def shapes_int8(g):
    x = g.integers(I8, 1, 6, 4, 1, quant=(0.1, 7))
    shapes(g, x, (I8, (0.1, 7)))
    value = g.constant(np.int8(50), (0.1, 7))
    g.op("PADV2", [x, g.constant(np.int32([[0, 0], [1, 0], [0, 2], [0, 0]])), value], (I8, (0.1, 7)), version=2)


@family
def shapes_uint8(g):
    x = g.integers(U8, 1, 6, 4, 1, quant=(0.1, 99))
    shapes(g, x, (U8, (0.1, 99)))
    other = g.integers(U8, 1, 6, 4, 1, quant=(0.2, 80))
    join = options("ConcatenationOptions", axis=3)
    g.op("CONCATENATION", [x, other], (U8, (0.2, 90)), with_options=join, label="of two scales")


@family
def shapes_int32(g):
    x = g.integers(I32, 2, 6, low=-99, high=99)
    g.op("EXPAND_DIMS", [x, g.constant(np.int32(1))], I32)
    g.op("TILE", [x, g.constant(np.int32([2, 1]))], I32)
    g.op("SLICE", [x, g.constant(np.int64([0, 1])), g.constant(np.int64([2, 3]))], I32)
    g.op("SPLIT", [g.constant(np.int32(1)), x], I32, I32, with_options=options("SplitOptions", numSplits=2))
    g.op("GATHER", [x, g.constant(np.int32([1, 1, 0]))], I32, with_options=options("GatherOptions", axis=0))
    g.op("SELECT_V2", [g.op("GREATER", [x, g.constant(np.int32(0))], bool), x, g.constant(np.int32(5))], I32)


@family
def images(g):
    x = g.floats(1, 4, 5, 2)
    q = g.integers(U8, 1, 4, 5, 2, quant=(0.1, 99))
    s = g.integers(I8, 1, 4, 5, 2, quant=(0.1, -9))
    size = g.constant(np.int32([7, 3]))
    for operator, name in (("RESIZE_BILINEAR", "ResizeBilinearOptions"),
                           ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions")):
        for label, fields in (("", {}), ("aligned", {"alignCorners": True}), ("centred", {"halfPixelCenters": True})):
            version = 3
            g.op(operator, [x, size], F32, with_options=options(name, **fields), version=version, label=label)
            g.op(operator, [q, size], (U8, (0.1, 99)), with_options=options(name, **fields), version=version,
                 label=label + " uint8")
            g.op(operator, [s, size], (I8, (0.1, -9)), with_options=options(name, **fields), version=version,
                 label=label + " int8")


@family
def lookups(g):
    rows, table = g.integers(I32, 3, low=0, high=4), g.weights(5, 2, 2)
    g.op("EMBEDDING_LOOKUP", [rows, table], F32)
    keys = g.constant(np.int32([1, 3, 4, 7, 9]))
    wanted = g.integers(I32, 4, low=0, high=9)
    g.op("HASHTABLE_LOOKUP", [wanted, keys, g.weights(5, 3)], F32, U8)
    g.op("GATHER", [g.floats(5, 3), rows], F32, with_options=options("GatherOptions", axis=0), label="at execution")
    x = g.floats(2, 6)
    g.op("TOPK_V2", [x, g.constant(np.int32(3))], F32, I32)
    g.op("FILL", [g.constant(np.int32([2, 3])), g.constant(np.float32(1.25))], F32)
    hash_ = g.constant(np.float32([[0.123, 0.456], [-0.321, -0.654], [1.234, 5.678]]))
    data = g.integers(I32, 5, low=0, high=99)
    g.op("LSH_PROJECTION", [hash_, data], I32, with_options=options("LSHProjectionOptions", type=1))
    g.op("LSH_PROJECTION", [hash_, data, g.weights(5)], I32, with_options=options("LSHProjectionOptions", type=2),
         label="dense")


@family
def conversions(g):
    x, i, b = g.floats(2, 3, low=-50, high=50), g.integers(I32, 2, 3, low=-99, high=99), g.booleans(2, 3)
    u, s = g.integers(U8, 2, 3), g.integers(I8, 2, 3)
    types = {F32: 0, I32: 2, U8: 3, I64: 4, np.dtype(bool): 6, I8: 9}

    def cast(source, target):
        g.op("CAST", [source], target, label=f"to {np.dtype(target).name} from tensor {source}")

    for source, targets in ((x, (I32, I64, bool)), (i, (F32, I64, bool)), (b, (F32, I32)), (u, (F32, I32)), (s, (F32,))):
        for target in targets:
            cast(source, target)
    for dtype, zero_point in ((U8, 120), (I8, -8)):
        q = g.op("QUANTIZE", [x], (dtype, (0.3, zero_point)), version=1)
        g.op("DEQUANTIZE", [q], F32, version=2)
        for scale, target, zero in ((0.3, U8, 100), (0.3, I8, -20), (0.17, I8, 3), (0.51, U8, 140)):
            g.op("QUANTIZE", [q], (target, (scale, zero)), version=2, label=f"from {np.dtype(dtype).name}")
    half = g.constant(g.random.standard_normal((2, 3)).astype(F16))
    wide = g.op("DEQUANTIZE", [half], F32, version=3, label="float16")
    g.op("ADD", [x, wide], F32, with_options=options("AddOptions"))


def lstm_weights(g, make, inputs, units, outputs, cifg, peephole, projection):
    gates = 3 if cifg else 4
    absent = [-1] if cifg else []
    weights = absent + [make(units, inputs) for _ in range(gates)]
    weights += absent + [make(units, outputs) for _ in range(gates)]
    if peephole:
        weights += absent + [g.weights(units) for _ in range(gates - 1)]
    else:
        weights += [-1, -1, -1]
    weights += absent + [g.weights(units) for _ in range(gates)]
    weights += [make(outputs, units), g.weights(outputs)] if projection else [-1, -1]
    return weights


def lstm(g, inputs, units, outputs, cifg=False, peephole=False, projection=False, normalized=False, clip=0.0):
    x = g.floats(2, inputs, calls=3)
    weights = lstm_weights(g, g.weights, inputs, units, outputs, cifg, peephole, projection)
    state = [g.variable(F32, 2, outputs), g.variable(F32, 2, units)]
    norms = []
    if normalized:
        norms = ([-1] if cifg else []) + [g.weights(units) for _ in range(3 if cifg else 4)]
    with_options = options("LSTMOptions", fusedActivationFunction=TANH, cellClip=clip, projClip=clip)
    g.op("LSTM", [x, *weights, *state, *norms], F32, with_options=with_options, version=2 if normalized else 1,
         label=f"cifg {cifg}, peephole {peephole}, projection {projection}, normalized {normalized}")


@family
def lstm_float(g):
    lstm(g, 4, 5, 5)
    lstm(g, 4, 5, 3, peephole=True, projection=True, clip=0.9)
    lstm(g, 4, 5, 5, cifg=True, peephole=True)
    lstm(g, 4, 5, 3, projection=True, normalized=True)
    lstm(g, 4, 5, 5, cifg=True, normalized=True)


@family
def recurrent_float(g):
    x = g.floats(2, 4, calls=3)
    rnn = options("RNNOptions", fusedActivationFunction=RELU)
    g.op("RNN", [x, g.weights(5, 4), g.weights(5, 5), g.weights(5), g.variable(F32, 2, 5)], F32, with_options=rnn)
    svdf = options("SVDFOptions", rank=2, fusedActivationFunction=RELU)
    g.op("SVDF", [x, g.weights(6, 4), g.weights(6, 7), g.weights(3), g.variable(F32, 2, 42)], F32, with_options=svdf)
    g.op("SVDF", [x, g.weights(6, 4), g.weights(6, 7), -1, g.variable(F32, 2, 42)], F32, with_options=svdf,
         label="without bias")


@family
def sequences_float(g):
    for time_major in (True, False):
        x = g.floats(*((3, 2, 4) if time_major else (2, 3, 4)), calls=3)
        label = "time major" if time_major else "batch major"
        weights = lstm_weights(g, g.weights, 4, 5, 3, False, True, True)
        state = [g.variable(F32, 2, 3), g.variable(F32, 2, 5)]
        g.op("UNIDIRECTIONAL_SEQUENCE_LSTM", [x, *weights, *state], F32, label=label,
             with_options=options("UnidirectionalSequenceLSTMOptions", fusedActivationFunction=TANH, timeMajor=time_major))
        g.op("UNIDIRECTIONAL_SEQUENCE_RNN",
             [x, g.weights(5, 4), g.weights(5, 5), g.weights(5), g.variable(F32, 2, 5)], F32, label=label,
             with_options=options("SequenceRNNOptions", fusedActivationFunction=RELU6, timeMajor=time_major))


@family
def lstm_uint8(g):
    x = g.integers(U8, 2, 3, quant=(1 / 128, 128), calls=3)
    previous, state = g.variable(U8, 2, 4, quant=(1 / 128, 128)), g.variable(I16, 2, 4, quant=(16 / 32768, 0))
    weights = g.weights8(16, 7, quant=(0.01, 125), dtype=U8, low=60, high=190)
    bias = g.bias32(16, (0.01 / 128, 0))
    results = g.op("LSTM", [x, previous, weights, bias, state], (U8, (1 / 128, 128)), (I16, (16 / 32768, 0)),
                   (U8, (1 / 128, 128)), (I16, (8 / 32768, 0)), version=2, keep=True,
                   with_options=options("LSTMOptions", fusedActivationFunction=TANH, kernelType=1))
    # The others are the kernel's scratch memory.
    g.graph.outputs += results[:2]


def lstm_int8_case(g, normalized, projection):
    inputs, units, outputs = 4, 5, 3 if projection else 5
    x = g.integers(I8, 2, inputs, quant=(0.02, 5), calls=3)
    hidden, output = (0.01, -4), (0.012, 3) if projection else (0.01, -4)
    weight = lambda *shape: g.weights8(*shape, quant=(0.004, 0))
    weights = [weight(units, inputs) for _ in range(4)] + [weight(units, outputs) for _ in range(4)] + [-1] * 3
    bias_scale = 2.0**-10 * 0.0005 if normalized else 0.004 * 0.02
    weights += [g.bias32(units, (bias_scale, 0)) for _ in range(4)]
    if projection:
        weights += [weight(outputs, units), g.bias32(outputs, (0.004 * hidden[0], 0), reach=100)]
    else:
        weights += [-1, -1]
    state = [g.variable(I8, 2, outputs, quant=output), g.variable(I16, 2, units, quant=(2.0**-11, 0))]
    norm = lambda: g.constant(g.random.integers(500, 3000, units).astype(I16), (0.0005, 0))
    norms = [norm() for _ in range(4)] if normalized else [-1] * 4
    scale = 0.003
    intermediates = [g.tensor("gate", I16, [0], (scale, 0)) for _ in range(4)] + [g.tensor("hidden", I8, [0], hidden)]
    g.op("LSTM", [x, *weights, *state, *norms], (I8, output), version=2, intermediates=intermediates,
         label=f"normalized {normalized}, projection {projection}",
         with_options=options("LSTMOptions", fusedActivationFunction=TANH, cellClip=3.0))


@family
def lstm_int8(g):
    lstm_int8_case(g, normalized=False, projection=False)
    lstm_int8_case(g, normalized=False, projection=True)
    lstm_int8_case(g, normalized=True, projection=True)
    lstm_int8_case(g, normalized=True, projection=False)


def sequence_int8_case(g, time_major, parts):
    """A layer with these parts: own input gate, peepholes, normalization, projection."""
    inputs, units, outputs = 4, 5, 3 if "projection" in parts else 5
    x = g.integers(I8, *((3, 2, inputs) if time_major else (2, 3, inputs)), quant=(0.02, 5), calls=3)
    hidden, output = (0.01, -4), (0.012, 3) if "projection" in parts else (0.01, -4)
    weight = lambda *shape: g.weights8(*shape, quant=(0.004, 0))
    wide = lambda scale: g.constant(g.random.integers(500, 3000, units).astype(I16), (scale, 0))
    first = 0 if "input gate" in parts else 1
    gates = lambda make, count=4: [-1] * first + [make() for _ in range(count - first)]
    weights = gates(lambda: weight(units, inputs)) + gates(lambda: weight(units, outputs))
    weights += gates(lambda: wide(0.0003), 3) if "peepholes" in parts else [-1] * 3
    bias_scale = 2.0**-10 * 0.0005 if "normalization" in parts else 0.004 * 0.02
    weights += gates(lambda: g.bias32(units, (bias_scale, 0)))
    if "projection" in parts:
        weights += [weight(outputs, units), g.bias32(outputs, (0.004 * hidden[0], 0), reach=100)]
    else:
        weights += [-1, -1]
    state = [g.variable(I8, 2, outputs, quant=output), g.variable(I16, 2, units, quant=(2.0**-11, 0))]
    norms = gates(lambda: wide(0.0005)) if "normalization" in parts else [-1] * 4
    intermediates = [g.tensor("gate", I16, [0], (0.003, 0)) for _ in range(4)] + [g.tensor("hidden", I8, [0], hidden)]
    fields = {"fusedActivationFunction": TANH, "cellClip": 3.0, "projClip": 0.5, "timeMajor": time_major}
    g.op("UNIDIRECTIONAL_SEQUENCE_LSTM", [x, *weights, *state, *norms], (I8, output), intermediates=intermediates,
         label=f"{'time' if time_major else 'batch'} major, {', '.join(parts) or 'plain'}",
         with_options=options("UnidirectionalSequenceLSTMOptions", **fields))


@family
def sequences_int8(g):
    sequence_int8_case(g, False, [])
    sequence_int8_case(g, True, ["input gate"])
    sequence_int8_case(g, False, ["input gate", "peepholes", "normalization"])
    for time_major in (False, True):
        sequence_int8_case(g, time_major, ["input gate", "peepholes", "projection"])
    sequence_int8_case(g, True, ["peepholes", "normalization", "projection"])


@family
def svdf_int8(g):
    x = g.integers(I8, 2, 4, quant=(0.05, -7), calls=5)
    for rank, has_bias in ((1, True), (2, False)):
        time = g.constant(g.random.integers(-20000, 20000, (6, 5)).astype(I16), (0.0001, 0))
        bias = g.bias32(6 // rank, (4e-7, 0), reach=200000) if has_bias else -1
        state = g.variable(I16, 2, 30, quant=(0.004, 0))
        g.op("SVDF", [x, g.weights8(6, 4, quant=(0.009, 0)), time, bias, state], (I8, (0.1, -100)), version=3,
             label=f"rank {rank}", with_options=options("SVDFOptions", rank=rank, fusedActivationFunction=RELU))


@family
def conversions_int16(g):
    x = g.integers(I16, 50, quant=(0.0005, 0))
    for dtype, quant in ((I8, (0.06, -128)), (I16, (0.0007, 0)), (I16, (0.0003, 0)), (I32, (7e-7, 0))):
        g.op("QUANTIZE", [x], (dtype, quant), label=f"to {np.dtype(dtype)} in steps of {quant[0]}")
    y = g.integers(I8, 10, 5, quant=(0.05, -5))
    g.op("QUANTIZE", [y], (I16, (0.0007, 0)), label="from int8", version=2)
    shares = g.op("SOFTMAX", [y], (I16, (2.0**-16, -32768)), with_options=options("SoftmaxOptions", beta=1.0),
                  version=2, keep=True)
    g.op("QUANTIZE", [shares], (I32, (1 / 32767, 0)), label="of 16-bit shares")
    g.op("QUANTIZE", [shares], (I8, (2.0**-8, -128)), label="of 16-bit shares to int8")


@family
def lstm_hybrid(g):
    """Small enough steps that quantizing the input makes no difference: the layer is mapped in floats."""
    x = g.input(g.random.integers(-127, 128, (3, 2, 4)).astype(F32) / 64)
    rnn = options("RNNOptions", fusedActivationFunction=RELU)
    recurrent = g.constant(np.zeros((5, 5), I8), (0.01, 0))
    g.op("RNN", [x, g.weights8(5, 4, quant=(0.01, 0)), recurrent, g.weights(5), g.variable(F32, 2, 5)], F32,
         with_options=rnn, version=2)


@family
def shape_arithmetic(g):
    """What a converter makes of a flattening with an open batch: everything but the RESHAPE is constant."""
    x = g.floats(2, 3, 4)
    shape = g.op("SHAPE", [x], I32, with_options=options("ShapeOptions", outType=2), keep=True)
    one = g.constant(np.int32([1]))
    batch = g.op("STRIDED_SLICE", [shape, g.constant(np.int32([0])), one, one], I32, keep=True,
                 with_options=options("StridedSliceOptions", shrinkAxisMask=1))
    rest = g.op("STRIDED_SLICE", [shape, one, g.constant(np.int32([0])), one], I32, keep=True,
                with_options=options("StridedSliceOptions", endMask=1))
    product = g.op("REDUCE_PROD", [rest, g.constant(np.int32([0]))], I32, keep=True,
                   with_options=options("ReducerOptions"))
    flat = g.op("PACK", [batch, product], I32, keep=True, with_options=options("PackOptions", valuesCount=2))
    g.op("RESHAPE", [x, flat], F32)
    doubled = g.op("MUL", [batch, g.constant(np.int32(2))], I32, keep=True, with_options=options("MulOptions"))
    half = g.op("PACK", [doubled, g.constant(np.int32(-1))], I32, keep=True,
                with_options=options("PackOptions", valuesCount=2))
    g.op("RESHAPE", [x, half], F32, label="of double height")
    g.op("SHAPE", [x], I64, with_options=options("ShapeOptions", outType=4))
    g.op("RANK", [x], I32)


@family
def graph_unshaped(g):
    """Shapes that only the operators tell."""
    x = g.floats(1, 6, 6, 2)
    conv = options("Conv2DOptions", padding=SAME, strideW=2, strideH=2)
    y = g.op("CONV_2D", [x, g.weights(4, 3, 3, 2), g.weights(4)], F32, with_options=conv, keep=True)
    y = g.op("RESHAPE", [y, g.constant(np.int32([1, -1]))], F32, keep=True)
    g.op("FULLY_CONNECTED", [y, g.weights(3, 36), g.weights(3)], F32, with_options=options("FullyConnectedOptions"))


@family
def graph_outputs(g):
    """Outputs that are inputs, constants, or outputs already."""
    x = g.floats(2, 3)
    y = g.op("NEG", [x], F32)
    g.graph.outputs += [x, g.constant(np.float32([1.0, 2.0])), y]


@family
def control_flow(g):
    flag = g.input(np.array([True, False]))
    x = g.floats(2, 3)
    main = g.graph
    g.op("IF", [flag, x], F32, with_options=options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2))
    limit = g.constant(np.int32(0))
    g.op("WHILE", [limit, x], I32, F32, with_options=options("WhileOptions", condSubgraphIndex=3, bodySubgraphIndex=4))

    def branch(build):
        g.begin()
        build()

    def doubled():
        a = g.argument(F32, [2, 3])
        g.op("ADD", [a, a], F32, with_options=options("AddOptions"))

    def same():
        g.graph.outputs.append(g.argument(F32, [2, 3]))

    def below():
        count = g.argument(I32, [])
        g.argument(F32, [2, 3])
        g.op("LESS", [count, g.constant(np.int32(3))], bool)

    def step():
        count, a = g.argument(I32, []), g.argument(F32, [2, 3])
        g.op("ADD", [count, g.constant(np.int32(1))], I32, with_options=options("AddOptions"))
        g.op("MUL", [a, g.constant(np.float32(-1.5))], F32, with_options=options("MulOptions"))

    for build in (doubled, same, below, step):
        branch(build)
    g.graph = main


def main():
    for name in sys.argv[1:] or FAMILIES:
        write(name, FAMILIES[name])


if __name__ == "__main__":
    main()
