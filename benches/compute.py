#!/usr/bin/env python3
"""Compares nnhal, through its driver by burst, with other runtimes in their own process, in interleaved rounds.

    python3 benches/compute.py --models DIR [--json FILE] [--docs DIR] [--filter RE] [--rounds N]

DIR holds .tflite files, or folders with a model.tflite each. The peers (ai-edge-litert, onnxruntime, openvino) are
installed from PyPI into a virtual environment under target/. ONNX Runtime takes part in models beside which a .onnx
file of the same name lies. The command `nnhal` is taken from target/release; build it with
`cargo build --release --bin nnhal`.

Inputs are those that input_0.npy and so on hold beside a model, of the first call, or zeros where there are no such files:
some runtimes leave out the products of zeros.

When a call begins, inputs lie where everyone reads them: in its tensors, or for nnhal in memory that it shares with the driver.
For nnhal they are written there anew before each call, as an application would. Nobody's results are copied within the time.

Everyone is asked for one thread and for two; the ratio of a row compares figures of that row. A figure is the median over the rounds of the rounds' medians.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ["numpy", "ai-edge-litert", "onnxruntime", "openvino"]
ROUND_SECONDS = 0.2
LEAST_CALLS = 5
WARM_UP = 3


def enter_environment(folder):
    """Runs this script again inside the virtual environment, made if there is none."""
    python = folder / "bin" / "python"
    if pathlib.Path(sys.prefix) == folder:
        return
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True)
    os.execv(python, [str(python), *sys.argv])


def find_models(folder, pattern):
    """Names and paths of the models in a folder."""
    found = {}
    for path in sorted(folder.rglob("*.tflite")):
        name = path.parent.name if path.stem == "model" else path.stem
        if pattern is None or re.search(pattern, name):
            found[name] = path
    return found


def timed(call):
    """Milliseconds of the median call of a round."""
    times = []
    start = time.perf_counter()
    while len(times) < LEAST_CALLS or time.perf_counter() - start < ROUND_SECONDS:
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1000


def value(path, place, shape, dtype, zero_point=0):
    """What an input is given, of which `place` tells the number and how many there are: the same as `nnhal bench compute`
    gives it."""
    import numpy

    index, count = place
    shape = [extent if extent > 0 else 1 for extent in shape]
    files = [path.with_name(f"input_{number}.npy") for number in range(count)]
    if not all(file.exists() for file in files):
        return numpy.full(shape, zero_point, dtype=dtype)
    file = files[index]
    given = numpy.load(file)
    if given.dtype != dtype:
        raise ValueError(f"{file} holds {given.dtype}, the model takes {dtype}")
    return given.reshape([-1, *shape])[0]


def litert(path, threads):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    for number, detail in enumerate(details):
        given = value(path, (number, len(details)), detail["shape"], detail["dtype"], detail["quantization"][1])
        interpreter.set_tensor(detail["index"], given)
    return interpreter.invoke


def openvino(path, threads):
    import numpy
    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    compiled = core.compile_model(core.read_model(str(path)), "CPU", config)
    request = compiled.create_infer_request()
    for index, port in enumerate(compiled.inputs):
        dtype = numpy.dtype(port.get_element_type().to_dtype())
        request.set_input_tensor(index, ov.Tensor(value(path, (index, len(compiled.inputs)), port.get_shape(), dtype)))
    return request.infer


def onnxruntime(path, threads):
    import numpy
    import onnxruntime as ort

    file = path.with_suffix(".onnx")
    if not file.exists():
        raise FileNotFoundError(file)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    dtypes = {"tensor(float)": numpy.float32, "tensor(uint8)": numpy.uint8, "tensor(int8)": numpy.int8}
    inputs = session.get_inputs()
    feed = {}
    for number, entry in enumerate(inputs):
        shape = [extent if isinstance(extent, int) else 1 for extent in entry.shape]
        feed[entry.name] = value(path, (number, len(inputs)), shape, dtypes[entry.type])
    return lambda: session.run(None, feed)


RUNTIMES = {"litert_xnnpack_ms": litert, "openvino_ms": openvino, "onnxruntime_ms": onnxruntime}


class Nnhal:
    """The command, which starts a driver of its own for each round."""

    def __init__(self, command):
        self.command = command
        self.conditions = None

    def milliseconds(self, path, threads):
        arguments = ["bench", "compute", str(path), "--json", "--rounds", "1", "--threads", str(threads)]
        arguments += ["--round-ms", str(round(ROUND_SECONDS * 1000))]
        done = subprocess.run([self.command, *arguments], check=True, capture_output=True, text=True)
        report = json.loads(done.stdout)
        self.conditions = self.conditions or report["conditions"]
        return report["rows"][0]["nnhal_ms"]


def measure(name, path, threads, nnhal, rounds):
    """One row, or None if nnhal does not run the model."""
    calls = {}
    for key, start in RUNTIMES.items():
        try:
            calls[key] = start(path, threads)
            for _ in range(WARM_UP):
                calls[key]()
        except Exception as error:  # A peer that cannot run a model has no figure; the reason is told.
            calls.pop(key, None)
            print(f"  {key.removesuffix('_ms')}: {type(error).__name__}", file=sys.stderr)
    figures = {"nnhal_ms": [], **{key: [] for key in RUNTIMES}}
    for _ in range(rounds):
        try:
            figures["nnhal_ms"].append(nnhal.milliseconds(path, threads))
        except subprocess.CalledProcessError as error:
            print(f"  nnhal: {error.stderr.strip()}", file=sys.stderr)
            return None
        for key, call in calls.items():
            figures[key].append(timed(call))
    row = {"model": name, "threads": threads}
    row |= {key: statistics.median(times) if times else None for key, times in figures.items()}
    ours, theirs = row["nnhal_ms"], [row[key] for key in RUNTIMES if row[key] is not None]
    row["ratio_litert"] = ours / row["litert_xnnpack_ms"] if row["litert_xnnpack_ms"] else None
    row["ratio_best"] = ours / min(theirs) if theirs else None
    return row


def show(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def table(report):
    """The rows in Markdown."""
    conditions = ", ".join(f"{key}: {value}" for key, value in report["conditions"].items())
    lines = [
        "# Compute times",
        "",
        "Made by `benches/compute.py`. Milliseconds; nnhal through its driver by burst, the others",
        "in their own process. Below 1, nnhal is faster.",
        "",
        conditions,
        "",
        "| model | threads | nnhal | LiteRT + XNNPACK | OpenVINO | ONNX Runtime | nnhal / LiteRT | nnhal / best |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in report["rows"]:
        figures = [show(row[key]) for key in ("nnhal_ms", *RUNTIMES)]
        ratios = [show(row[key], 2) for key in ("ratio_litert", "ratio_best")]
        lines.append(f"| {row['model']} | {row['threads']} | {' | '.join(figures + ratios)} |")
    for threads in sorted({row["threads"] for row in report["rows"]}):
        rows = [row for row in report["rows"] if row["threads"] == threads]
        ratios = [row["ratio_litert"] for row in rows if row["ratio_litert"]]
        if ratios:
            mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
            lines += ["", f"Geometric mean of nnhal / LiteRT, {threads} threads: {mean:.2f}."]
    return "\n".join(lines) + "\n"


def plot(report):
    """The ratios to LiteRT with one thread as an SVG of bars."""
    rows = [row for row in report["rows"] if row["ratio_litert"] and row["threads"] == 1]
    line, left, scale = 22, 330, 180
    height = 60 + line * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="{height}" font-family="sans-serif" '
        'font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="22" font-size="15">Time of nnhal through its driver / LiteRT + XNNPACK in process, '
        "one thread</text>",
    ]
    for number, row in enumerate(rows):
        y = 40 + line * number
        ratio = row["ratio_litert"]
        width = min(ratio, 3.4) * scale
        colour = "#2a7f62" if ratio <= 1 else "#b5651d"
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{row["model"]}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="16" fill="{colour}"/>')
        parts.append(f'<text x="{left + width + 5:.1f}" y="{y + 13}">{ratio:.2f}</text>')
    parts.append(
        f'<line x1="{left + scale}" x2="{left + scale}" y1="34" y2="{height - 14}" stroke="black" '
        'stroke-dasharray="4 3"/>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--docs", type=pathlib.Path, metavar="DIR", help="write compute.md and compute.svg here")
    parser.add_argument("--filter", metavar="RE", help="only models whose name matches")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, a row for each")
    parser.add_argument("--nnhal", type=pathlib.Path, default=ROOT / "target" / "release" / "nnhal")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "target" / "bench-venv")
    arguments = parser.parse_args()
    enter_environment(arguments.venv.resolve())
    nnhal = Nnhal(arguments.nnhal)
    rows = []
    for name, path in find_models(arguments.models, arguments.filter).items():
        for threads in map(int, arguments.threads.split(",")):
            print(f"{name}, {threads} threads", file=sys.stderr)
            row = measure(name, path, threads, nnhal, arguments.rounds)
            if row is not None:
                rows.append(row)
                print(f"  nnhal / LiteRT {show(row['ratio_litert'], 2)}", file=sys.stderr)
    from importlib.metadata import PackageNotFoundError, version

    conditions = {**(nnhal.conditions or {}), "system": platform.release(), "rounds": arguments.rounds}
    for peer in PEERS:
        try:
            conditions[peer] = version(peer)
        except PackageNotFoundError:
            conditions[peer] = "not installed"
    report = {"conditions": conditions, "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.docs:
        arguments.docs.mkdir(parents=True, exist_ok=True)
        (arguments.docs / "compute.md").write_text(table(report))
        (arguments.docs / "compute.svg").write_text(plot(report))
    sys.stdout.write(table(report))


if __name__ == "__main__":
    main()
