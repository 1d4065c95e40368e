#!/usr/bin/env python3
"""Compares nnhal, through its driver by burst, with other runtimes in their own process, in interleaved rounds.

    python3 benches/compute.py --models DIR [--json FILE] [--docs DIR] [--filter RE] [--rounds N]

DIR holds .tflite files, or folders with a model.tflite each. The peers (ai-edge-litert, onnxruntime, openvino) are
installed from PyPI into a virtual environment under target/. For ONNX Runtime the models are converted, once, into
target/onnx by tf2onnx, which has another environment there; a .onnx file of the same name beside a model is used as it
is.

The programs are those of target/release: the command `nnhal`, and `litert-capi`, which calls LiteRT's C API in the
library of its wheel. Build them with `cargo build --release --bin nnhal --bin litert-capi`.

Inputs are those that input_0.npy and so on hold beside a model, of the first call, or zeros where there are no such
files: some runtimes leave out the products of zeros.

When a call begins, inputs lie where everyone reads them: in its tensors, or for nnhal in memory that it shares with the
driver. For nnhal they are written there anew before each call, as an application would. Nobody's results are copied
within the time.

Everyone is asked for one thread and for two; the ratio of a row compares figures of that row, that to LiteRT with the
faster of its two. A figure is the median over the rounds of the rounds' medians. The C API and ONNX Runtime have
figures only where they give what LiteRT's interpreter gives. Why a figure is missing stands in the conditions.
"""

import argparse
import functools
import json
import pathlib
import platform
import statistics
import sys
import textwrap

from compute import environments, in_process, models
from compute.commands import LiteRtC, Nnhal
from compute.onnx import OPSET, Converter, OnnxRuntime
from compute.plot import plot
from compute.report import RUNTIMES, page, row, show

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target"
LONGEST_REASON = 320


class Contest:
    """The runtimes, and which of them have no figure for which model."""

    def __init__(self, arguments):
        reference_of = functools.lru_cache(maxsize=1)(in_process.reference)
        converter = Converter(TARGET / "onnx-venv", TARGET / "onnx")
        self.rounds = arguments.rounds
        self.nnhal = Nnhal(arguments.nnhal)
        # In the order of their rounds. Each gives the milliseconds of a round, once it was called some times.
        self.runtimes = {
            "nnhal_ms": self.nnhal.start,
            "litert_xnnpack_ms": in_process.start_litert,
            "litert_c_ms": LiteRtC(arguments.litert, litert_library(), reference_of).start,
            "openvino_ms": in_process.start_openvino,
            "onnxruntime_ms": OnnxRuntime(converter, reference_of).start,
        }
        self.absent = {}

    def excuse(self, key, model, error):
        """Notes why a runtime has no figure for a model."""
        runtime = key.removesuffix("_ms")
        # Where a model lies on this machine is nobody's concern.
        text = str(error).replace(str(model.path), model.path.name)
        reason = textwrap.shorten(text, LONGEST_REASON, placeholder=" ...") or type(error).__name__
        self.absent.setdefault(runtime, {})[model.name] = reason
        print(f"  {runtime}: {reason}", file=sys.stderr)

    def contestants(self, model, threads):
        """What gives the time of a round, by column, of those that run the model; of nobody if nnhal does not."""
        found = {}
        for key, start in self.runtimes.items():
            try:
                found[key] = start(model, threads)
            except Exception as error:  # Peers have errors of many types; the reason is told.
                self.excuse(key, model, error)
            if "nnhal_ms" not in found:
                break
        return found

    def measure(self, model, threads):
        """A row, or None if nnhal does not run the model."""
        contestants = self.contestants(model, threads)
        if not contestants:
            return None
        rounds = [{key: time() for key, time in contestants.items()} for _ in range(self.rounds)]
        medians = {key: statistics.median(one[key] for one in rounds) for key in contestants}
        return row(model.name, threads, {key: medians.get(key) for key in RUNTIMES})

    def conditions(self):
        """What must be known to compare figures."""
        converter = ", ".join([*environments.CONVERTER, f"opset {OPSET}"])
        return {
            **self.nnhal.conditions,
            "system": platform.release(),
            "rounds": self.rounds,
            "python": platform.python_version(),
            **environments.versions(environments.PEERS),
            "onnx_converter": converter.replace("==", " "),
            "absent": self.absent,
        }


def litert_library():
    """The library in the wheel whose interpreter is measured, too."""
    import ai_edge_litert

    return pathlib.Path(ai_edge_litert.__file__).with_name("libLiteRt.so")


def write_docs(report, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compute.svg").write_text(plot(report["rows"]))
    (folder / "compute.md").write_text(shown(report))


def shown(report):
    return page(report, "compute.svg", in_process.ROUND_SECONDS, in_process.LEAST_CALLS)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--docs", type=pathlib.Path, metavar="DIR", help="write compute.md and compute.svg here")
    parser.add_argument("--filter", metavar="RE", help="only models whose name matches")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, a row for each")
    parser.add_argument("--nnhal", type=pathlib.Path, default=TARGET / "release" / "nnhal")
    parser.add_argument("--litert", type=pathlib.Path, default=TARGET / "release" / "litert-capi")
    parser.add_argument("--venv", type=pathlib.Path, default=TARGET / "bench-venv")
    arguments = parser.parse_args()
    for program in (arguments.nnhal, arguments.litert):
        if not program.exists():
            parser.error(f"{program} is not there: cargo build --release --bin nnhal --bin litert-capi")
    return arguments


def main():
    arguments = parse()
    environments.enter(arguments.venv.resolve())
    contest = Contest(arguments)
    rows = []
    for model in models.find(arguments.models, arguments.filter):
        for threads in map(int, arguments.threads.split(",")):
            print(f"{model.name}, {threads} threads", file=sys.stderr)
            measured = contest.measure(model, threads)
            if measured is not None:
                rows.append(measured)
                print(f"  nnhal / LiteRT {show(measured['ratio_litert'], 2)}", file=sys.stderr)
    report = {"conditions": contest.conditions(), "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.docs:
        write_docs(report, arguments.docs)
    sys.stdout.write(shown(report))


if __name__ == "__main__":
    main()
