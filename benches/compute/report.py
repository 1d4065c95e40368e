"""The report: rows and conditions, and the page that shows them."""

import math
import statistics

# The columns, by what they are called in the rows.
RUNTIMES = {
    "nnhal_ms": "nnhal",
    "litert_xnnpack_ms": "LiteRT (Python)",
    "litert_c_ms": "LiteRT (C)",
    "openvino_ms": "OpenVINO",
    "onnxruntime_ms": "ONNX Runtime",
}
LITERT = ["litert_xnnpack_ms", "litert_c_ms"]

HOW = """\
# Compute times

How long models take on nnhal and on other runtimes, measured in one run by
`python3 benches/compute.py --models DIR --docs docs`, which makes this page and its plot. The head of that script says
how to do the same on another machine.

![Ratios to LiteRT]({plot})

## What is measured

A figure is the time of one call in milliseconds, from the call until the results are there: the median over the rounds
of the rounds' medians. Everyone has a round in turn, of {seconds} s and {calls} calls at least, so that what else the
machine does meets all alike. Each is told to compute with the row's number of threads.

- nnhal computes in the process of its driver, to which the request goes by burst, and back. A driver is started for
  each round.
- LiteRT computes in the caller's process, with XNNPACK. It is called in two ways. One is the interpreter of its Python
  package. The other is the C API of the library in that package, called by a program without Python, which is started
  for each round.
- OpenVINO reads the same .tflite files. Extents that a model leaves open are 1, here and for ONNX Runtime.
- ONNX Runtime computes what tf2onnx makes of them.

Inputs are those that lie beside a model, or zeros. They are in place before a call, and nobody's results are copied.
ONNX Runtime and the C API have a figure only where they give what LiteRT's interpreter gives. Floats must be within a
thousandth of the output's greatest value. Integers must be within half a step on average, with the greatest value at
the same place. OpenVINO is not held to that. Where the processor has instructions for bfloat16, it computes floats with
them; nnhal and LiteRT do not.

## How to read it

`nnhal / LiteRT` compares with the faster of the two ways to call LiteRT, `nnhal / best` with the fastest of all others.
Below 1, nnhal is faster. Times change with the machine and with what else it does. Ratios are of figures of one row,
which were measured in turn. Two runs show what of a difference is chance. A dash is a runtime without a figure; the
last section says why.
"""


def row(model, threads, figures):
    """A row of figures by column, each None where there is none."""
    ours = figures["nnhal_ms"]
    theirs = {key: figures[key] for key in RUNTIMES if key != "nnhal_ms" and figures[key] is not None}
    litert = [theirs[key] for key in LITERT if key in theirs]
    return {
        "model": model,
        "threads": threads,
        **figures,
        "ratio_litert": ours / min(litert) if litert else None,
        "ratio_best": ours / min(theirs.values()) if theirs else None,
    }


def show(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def times(rows):
    """The rows as a table, and what they come to."""
    lines = [
        f"| model | threads | {' | '.join(RUNTIMES.values())} | nnhal / LiteRT | nnhal / best |",
        f"|---|---:|{'---:|' * len(RUNTIMES)}---:|---:|",
    ]
    for one in rows:
        cells = [show(one[key]) for key in RUNTIMES] + [show(one[key], 2) for key in ("ratio_litert", "ratio_best")]
        lines.append(f"| {one['model']} | {one['threads']} | {' | '.join(cells)} |")
    return [*lines, "", *means(rows)]


def means(rows):
    """The geometric means of the ratios, by number of threads."""
    lines = []
    for threads in sorted({one["threads"] for one in rows}):
        of_threads = [one for one in rows if one["threads"] == threads]
        for key, name in (("ratio_litert", "nnhal / LiteRT"), ("ratio_best", "nnhal / best")):
            ratios = [one[key] for one in of_threads if one[key] is not None]
            if ratios:
                mean = f"{geometric_mean(ratios):.2f}, the geometric mean of {len(ratios)}"
                lines.append(f"- {name} with {threads} {'thread' if threads == 1 else 'threads'}: {mean}.")
    return lines


def missing(absent):
    """Who has no figure for what, and why."""
    lines = []
    for runtime, reasons in absent.items():
        lines += [f"- {RUNTIMES[runtime + '_ms']}, `{model}`: {reason}" for model, reason in reasons.items()]
    return lines or ["None."]


def page(report, plot, seconds, calls):
    """The report in Markdown, with a link to its plot."""
    conditions = {key: value for key, value in report["conditions"].items() if key != "absent"}
    lines = [
        HOW.format(plot=plot, seconds=seconds, calls=calls),
        "## Conditions",
        "",
        *(f"- {key}: {value}" for key, value in conditions.items()),
        "",
        "## Times",
        "",
        *times(report["rows"]),
        "",
        "## Figures that are missing",
        "",
        *missing(report["conditions"]["absent"]),
    ]
    return "\n".join(lines) + "\n"
