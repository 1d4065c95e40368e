"""Contestants that are programs of their own, started anew for each round."""

import functools
import json
import pathlib
import subprocess
import tempfile

from compute import agreement
from compute.in_process import ROUND_SECONDS

ROUND = ["--rounds", "1", "--round-ms", str(round(ROUND_SECONDS * 1000))]


class Failure(Exception):
    """A program that did not give a figure; the text is what it wrote."""


def report(command):
    """What a program prints, which is JSON."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(complaint(done.stderr))
    return json.loads(done.stdout)


def complaint(written):
    """What a program has written of its failure: its last line, behind what a library has logged as errors."""
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    errors = [line for line in lines[:-1] if line.startswith("ERROR")]
    return " ".join([*errors, *lines[-1:]])


def started(milliseconds):
    """What gives the milliseconds of a round, after one that does not count and shows whether there can be others."""
    milliseconds()
    return milliseconds


class Nnhal:
    """The command `nnhal`, which starts a driver of its own for each round."""

    def __init__(self, program):
        self.program = program
        self.conditions = {}

    def start(self, model, threads):
        """What gives the milliseconds of a round, of a model that it runs."""
        return started(functools.partial(self.milliseconds, model, threads))

    def milliseconds(self, model, threads):
        command = [self.program, "bench", "compute", str(model.path), "--json", "--threads", str(threads), *ROUND]
        found = report(command)
        self.conditions = self.conditions or found["conditions"]
        return found["rows"][0]["nnhal_ms"]


class LiteRtC:
    """LiteRT without Python: the library of its wheel, called by a program of ours."""

    def __init__(self, program, library, reference_of):
        self.program = program
        self.library = library
        self.reference_of = reference_of

    def start(self, model, threads):
        """What gives the milliseconds of a round, of a model that it runs."""
        return started(functools.partial(self.milliseconds, model, threads))

    def milliseconds(self, model, threads):
        """The time of a round that began with the outputs that the interpreter gives."""
        reference = self.reference_of(model)
        with tempfile.TemporaryDirectory() as name:
            inputs, outputs = (pathlib.Path(name, part) for part in ("inputs", "outputs"))
            for folder in (inputs, outputs):
                folder.mkdir()
            for number, value in reference.inputs.items():
                (inputs / f"{number}.bin").write_bytes(value.tobytes())
            command = [self.program, str(model.path), "--library", self.library, "--threads", str(threads), *ROUND]
            found = report([*command, "--inputs", inputs, "--outputs", outputs])
            given = [self.output(outputs, number, value) for number, value in reference.outputs.items()]
        agreement.check(list(reference.outputs.values()), given)
        return found["rows"][0]["litert_c_ms"]

    @staticmethod
    def output(folder, number, like):
        """An output as the program has written it."""
        import numpy

        values = numpy.frombuffer((folder / f"{number}.bin").read_bytes(), like.dtype)
        return values.reshape(like.shape) if values.size == like.size else values
