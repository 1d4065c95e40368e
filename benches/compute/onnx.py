"""ONNX Runtime, with models that are converted once."""

import hashlib
import os
import subprocess

from compute import agreement
from compute.environments import CONVERTER, python_of
from compute.in_process import Running

OPSET = 17


class Unconverted(Exception):
    """A model that the converter cannot convert; the text is the converter's."""


class Converter:
    """tf2onnx, in an environment of its own."""

    def __init__(self, environment, folder):
        self.environment = environment
        self.folder = folder
        self.failures = {}

    def file(self, model):
        """The model as an .onnx file: one of the same name that lies beside it, or one converted now or earlier."""
        beside = model.path.with_suffix(".onnx")
        if beside.exists():
            return beside
        file = self.folder / f"{model.name}-{self.key(model)}.onnx"
        if model.name in self.failures:
            raise self.failures[model.name]
        if not file.exists():
            try:
                self.convert(model, file)
            except Unconverted as error:
                self.failures[model.name] = error
                raise
        return file

    def key(self, model):
        """What tells conversions apart: the model's bytes, and what converts them."""
        of = hashlib.sha256(model.path.read_bytes())
        of.update(" ".join([*CONVERTER, str(OPSET)]).encode())
        return of.hexdigest()[:16]

    def convert(self, model, file):
        python = python_of(self.environment, CONVERTER)
        self.folder.mkdir(parents=True, exist_ok=True)
        # A conversion that breaks off leaves nothing that looks like a whole one.
        draft = file.with_suffix(".draft")
        arguments = ["--opset", str(OPSET), "--tflite", str(model.path), "--output", str(draft)]
        quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            [python, "-m", "tf2onnx.convert", *arguments], capture_output=True, text=True, env=quiet
        )
        if done.returncode != 0 or not draft.exists():
            lines = done.stderr.strip().splitlines()
            raise Unconverted(f"tf2onnx cannot convert it: {lines[-1].strip() if lines else 'it says nothing'}")
        draft.rename(file)


class OnnxRuntime:
    """ONNX Runtime with what a converter makes of a model."""

    DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(int8)": "int8"}

    def __init__(self, converter, reference_of):
        self.converter = converter
        self.reference_of = reference_of

    def start(self, model, threads):
        """What gives the milliseconds of a round, of a model that gives what LiteRT gives."""
        session = self.session(str(self.converter.file(model)), threads)
        binding = session.io_binding()
        held = self.bind_inputs(session, binding, model)
        for entry in session.get_outputs():
            binding.bind_output(entry.name)
        session.run_with_iobinding(binding)
        agreement.check(list(self.reference_of(model).outputs.values()), binding.copy_outputs_to_cpu())
        # From now on results go where the first ones are.
        for entry, value in zip(session.get_outputs(), binding.get_outputs()):
            binding.bind_ortvalue_output(entry.name, value)
        return Running(lambda: session.run_with_iobinding(binding), held).started()

    def bind_inputs(self, session, binding, model):
        """Binds the inputs, and returns what must live as long as the binding."""
        import onnxruntime as ort

        inputs = session.get_inputs()
        values = []
        for number, entry in enumerate(inputs):
            given = model.value((number, len(inputs)), entry.shape, self.DTYPES[entry.type])
            values.append(ort.OrtValue.ortvalue_from_numpy(given))
            binding.bind_ortvalue_input(entry.name, values[-1])
        return values

    @staticmethod
    def session(file, threads):
        """A session in which extents that the model leaves open are 1, as for the other runtimes."""
        import onnxruntime as ort

        providers = ["CPUExecutionProvider"]
        entries = ort.InferenceSession(file, providers=providers).get_inputs()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        for extent in {extent for entry in entries for extent in entry.shape if isinstance(extent, str)}:
            options.add_free_dimension_override_by_name(extent, 1)
        return ort.InferenceSession(file, options, providers=providers)
