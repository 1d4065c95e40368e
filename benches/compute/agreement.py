"""Whether two runtimes have computed the same model."""

# Of the greatest value of an output of floats: what other orders of summing and weights of float16 leave well below.
FLOAT_TOLERANCE = 1e-3
# Steps of an output of integers, on average. Single values may be more off: LiteRT's own kinds of kernels are, too.
MEAN_STEPS = 0.5


class Disagreement(Exception):
    """Outputs that are not those of LiteRT; the text says which and by how much."""


def check(wanted, given):
    """Compares the outputs of a model with those of LiteRT's interpreter."""
    if len(wanted) != len(given):
        raise Disagreement(f"it has {len(given)} outputs, with LiteRT {len(wanted)}")
    for number, (ours, theirs) in enumerate(zip(wanted, given)):
        check_output(number, ours, theirs)


def check_output(number, wanted, given):
    """Compares one output."""
    import numpy

    if wanted.shape != given.shape or wanted.dtype != given.dtype:
        kinds = [f"{array.dtype} {list(array.shape)}" for array in (given, wanted)]
        raise Disagreement(f"output {number} is {kinds[0]}, with LiteRT {kinds[1]}")
    off = numpy.abs(wanted.astype(numpy.float64) - given.astype(numpy.float64))
    if numpy.issubdtype(wanted.dtype, numpy.floating):
        # NaN is not within the tolerance, either.
        if not off.max() <= FLOAT_TOLERANCE * numpy.abs(wanted).max():
            raise Disagreement(f"output {number} is up to {off.max():.3g} off LiteRT's")
    elif off.mean() > MEAN_STEPS:
        raise Disagreement(f"output {number} is {off.mean():.2g} off LiteRT's on average, {off.max():.0f} at most")
    elif wanted.argmax() != given.argmax():
        raise Disagreement(f"output {number} has its greatest value at another place than LiteRT's")
