"""Models, and what their inputs are given."""

import dataclasses
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class Model:
    """A .tflite file, and what it is called in the report."""

    name: str
    path: pathlib.Path

    def value(self, place, shape, dtype, zero_point=0):
        """What an input is given, of which `place` tells the number and how many there are: the same as
        `nnhal bench compute` gives it."""
        import numpy

        index, count = place
        shape = [extent if extent > 0 else 1 for extent in shape]
        files = [self.path.with_name(f"input_{number}.npy") for number in range(count)]
        if not all(file.exists() for file in files):
            return numpy.full(shape, zero_point, dtype=dtype)
        file = files[index]
        given = numpy.load(file)
        if given.dtype != dtype:
            raise ValueError(f"{file} holds {given.dtype}, the model takes {dtype}")
        # Peers use the memory as it is.
        return numpy.ascontiguousarray(given.reshape([-1, *shape])[0])


def find(folder, pattern):
    """The models in a folder whose name matches. It is that of the file, or of its folder if the file is
    `model.tflite`."""
    found = {}
    for path in sorted(folder.rglob("*.tflite")):
        name = path.parent.name if path.stem == "model" else path.stem
        if pattern is None or re.search(pattern, name):
            found[name] = Model(name, path)
    return list(found.values())
