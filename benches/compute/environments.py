"""Virtual environments: one with the peers, and one with what converts models for ONNX Runtime."""

import os
import pathlib
import subprocess
import sys
import venv

# LiteRT's C API is declared for this version in benches/litert/src/functions.rs.
PEERS = ["numpy==2.4.6", "ai-edge-litert==2.3.0", "onnxruntime==1.32.0", "openvino==2026.4.1"]
# They want other versions of libraries than the peers, and much room.
CONVERTER = ["tensorflow-cpu==2.21.0", "tf2onnx==1.17.0"]


def python_of(folder, packages):
    """The Python of a virtual environment with these packages, which is made or completed if need be."""
    python = folder / "bin" / "python"
    installed = folder / "packages.txt"
    wanted = "\n".join(packages) + "\n"
    if installed.exists() and installed.read_text() == wanted:
        return python
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True, stdout=sys.stderr)
    # Written last, so that an installation that broke off is taken up again.
    installed.write_text(wanted)
    return python


def enter(folder):
    """Runs the program again inside the environment of the peers, if it is not there already."""
    if pathlib.Path(sys.prefix) == folder:
        return
    python = python_of(folder, PEERS)
    os.execv(python, [str(python), *sys.argv])


def versions(packages):
    """What is installed of these packages here, by name."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in (package.partition("==")[0] for package in packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
