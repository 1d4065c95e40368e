"""Peers that run in this process."""

import dataclasses
import statistics
import time
import typing

ROUND_SECONDS = 0.2
LEAST_CALLS = 5
WARM_UP = 3


@dataclasses.dataclass
class Running:
    """A model that is ready, with its inputs in place."""

    call: typing.Callable
    # What the runtime uses and does not keep alive by itself.
    held: typing.Any = None

    def started(self):
        """What gives the milliseconds of a round, after some calls that do not count."""
        for _ in range(WARM_UP):
            self.call()
        return self.milliseconds

    def milliseconds(self):
        """The median call of a round."""
        times = []
        start = time.perf_counter()
        while len(times) < LEAST_CALLS or time.perf_counter() - start < ROUND_SECONDS:
            before = time.perf_counter()
            self.call()
            times.append(time.perf_counter() - before)
        return statistics.median(times) * 1000


@dataclasses.dataclass(frozen=True)
class Reference:
    """A model's first call by LiteRT's interpreter: inputs and outputs by the tensors' numbers in the model file, in
    the model's order."""

    inputs: dict
    outputs: dict


def interpreter(model, threads):
    """LiteRT's interpreter with its inputs in place, and these by the tensors' numbers."""
    from ai_edge_litert.interpreter import Interpreter

    made = Interpreter(str(model.path), num_threads=threads)
    made.allocate_tensors()
    details = made.get_input_details()
    inputs = {}
    for number, detail in enumerate(details):
        place = (number, len(details))
        given = model.value(place, detail["shape"], detail["dtype"], detail["quantization"][1])
        made.set_tensor(detail["index"], given)
        inputs[detail["index"]] = given
    return made, inputs


def reference(model):
    """What LiteRT's interpreter does in its first call."""
    made, inputs = interpreter(model, 1)
    made.invoke()
    numbers = [detail["index"] for detail in made.get_output_details()]
    return Reference(inputs, {number: made.get_tensor(number) for number in numbers})


def start_litert(model, threads):
    made, _ = interpreter(model, threads)
    return Running(made.invoke).started()


def start_openvino(model, threads):
    import numpy
    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    read = core.read_model(str(model.path))
    if read.is_dynamic():
        shapes = {port: port.get_partial_shape() for port in read.inputs}
        fixed = {port: [1 if extent.is_dynamic else extent for extent in shape] for port, shape in shapes.items()}
        read.reshape(fixed)
    compiled = core.compile_model(read, "CPU", config)
    request = compiled.create_infer_request()
    count = len(compiled.inputs)
    for index, port in enumerate(compiled.inputs):
        dtype = numpy.dtype(port.get_element_type().to_dtype())
        request.set_input_tensor(index, ov.Tensor(model.value((index, count), port.get_shape(), dtype)))
    return Running(request.infer).started()
