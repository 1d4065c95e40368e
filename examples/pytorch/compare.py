#!/usr/bin/python3
"""Small PyTorch models on NNAPI, compared with PyTorch's own results.

PyTorch's NNAPI backend opens libneuralnetworks.so by that name: put the folder of nnhal's library on LD_LIBRARY_PATH.
Debian and Ubuntu have a PyTorch with the backend as python3-torch. The models have every kind of operation that its
converter knows, in 32-bit floats and in 8 bits.

    LD_LIBRARY_PATH=/usr/local/lib examples/pytorch/compare.py
"""

import sys

import torch
from torch import nn
from torch.backends._nnapi.prepare import convert_model_to_nnapi

# What 32-bit floats may differ by when they are summed in another order.
RELATIVE = 1e-5
ABSOLUTE = 1e-5
# What 8-bit results may differ by, in steps: NNAPI and PyTorch round halves each in its own way.
STEPS = 1


class Elementwise(nn.Module):
    """Arithmetic of two inputs with broadcasting."""

    def forward(self, x, y):
        return torch.relu(x + y) * torch.sigmoid(x - y)


class Branches(nn.Module):
    """Two convolutions of one input, joined along the channels."""

    def __init__(self):
        super().__init__()
        self.narrow = nn.Conv2d(3, 4, 1)
        self.wide = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return torch.cat([self.narrow(x), self.wide(x)], 1)


class Shapes(nn.Module):
    """What changes shapes alone."""

    def forward(self, x):
        x = x.unsqueeze(1).reshape(2, 3, 4)
        return torch.cat([x[:, 1:, :], x[:, :2, :].detach()], 2).flatten(1)


class Quotient(nn.Module):
    """The arithmetic that the others have not."""

    def forward(self, x, y):
        return torch.log_softmax(x / y, 1).mean(1, keepdim=True) - x


class Residual(nn.Module):
    """A sum of two ways through, which quantisation turns into one operation."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.sum = torch.nn.quantized.FloatFunctional()

    def forward(self, x):
        x = self.first(x)
        return self.sum.add_relu(self.second(x), x)


class Scaled(nn.Module):
    """A product and a sum of 8-bit values."""

    def __init__(self):
        super().__init__()
        self.functions = torch.nn.quantized.FloatFunctional()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.functions.mul(self.linear(x), x)


def quantized(model, inputs):
    """The model in 8 bits, as PyTorch makes it from a few runs, with its inputs in 8 bits."""
    model = torch.quantization.QuantWrapper(model).eval()
    model.qconfig = torch.quantization.default_qconfig
    fused = [
        [f"{name}.{at}", f"{name}.{at + 1}"]
        for name, sequence in model.named_modules()
        if isinstance(sequence, nn.Sequential)
        for at in range(len(sequence) - 1)
        if isinstance(sequence[at], nn.Conv2d) and isinstance(sequence[at + 1], nn.ReLU)
    ]
    if fused:
        torch.quantization.fuse_modules(model, fused, inplace=True)
    torch.quantization.prepare(model, inplace=True)
    for _ in range(4):
        model(*(torch.rand_like(each) * 2 - 1 for each in inputs))
    torch.quantization.convert(model, inplace=True)
    scale, zero_point = model.quant.scale.item(), model.quant.zero_point.item()
    steps = [torch.quantize_per_tensor(each, scale, zero_point, torch.quint8) for each in inputs]
    return model.module, steps


def nhwc(tensor):
    """Marks an image as one whose channels come last in memory, which is NNAPI's own layout."""
    tensor = tensor.contiguous(memory_format=torch.channels_last)
    tensor.nnapi_nhwc = True
    return tensor


def models():
    """Names, models and inputs."""
    image = torch.rand(1, 3, 16, 16)
    yield "elementwise", Elementwise(), [torch.randn(2, 5), torch.randn(2, 5)]
    yield "broadcast", Elementwise(), [torch.randn(2, 5), torch.randn(1, 5)]
    yield "linear", nn.Linear(8, 3), [torch.randn(4, 8)]
    yield "perceptron", nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU6(), nn.Linear(32, 5), nn.Softmax(dim=1)
    ), [torch.randn(2, 8)]
    yield "convolution", nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU()), [nhwc(image)]
    yield "depthwise", nn.Sequential(
        nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.Conv2d(3, 8, 1), nn.ReLU6()
    ), [nhwc(image)]
    yield "pooling", nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2)), [nhwc(image)]
    yield "branches", Branches(), [nhwc(image)]
    yield "image classifier", nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 32, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    ), [nhwc(image)]
    yield "shapes", Shapes(), [torch.randn(2, 12)]
    yield "quotient", Quotient(), [torch.randn(2, 5), torch.rand(2, 5) + 1]
    yield "limits", nn.Sequential(nn.Hardtanh(), nn.PReLU(init=0.3)), [torch.randn(3, 7)]
    yield "upsampling", nn.Sequential(nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=2)), [nhwc(image)]
    there_and_back = [torch.nn.quantized.Quantize(0.05, 128, torch.quint8), torch.nn.quantized.DeQuantize()]
    yield "to 8 bits", nn.Sequential(*there_and_back), [nhwc(torch.randn(1, 3, 4, 4))]
    small = torch.rand(1, 3, 8, 8)
    for name, model, inputs in [
        ("8-bit linear", nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), [torch.rand(3, 8)]),
        ("8-bit convolution", nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU()), [small]),
        ("8-bit depthwise", nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.Conv2d(3, 8, 1)), [small]),
        ("8-bit transposed", nn.ConvTranspose2d(3, 4, 2, stride=2), [small]),
        ("8-bit residual", Residual(), [small]),
        ("8-bit product", Scaled(), [torch.rand(3, 8)]),
    ]:
        model, inputs = quantized(model, inputs)
        yield name, model, [nhwc(each) if each.dim() == 4 else each for each in inputs]


def compare(model, inputs):
    """The largest difference of NNAPI's results from PyTorch's, beyond what is allowed, and its own size."""
    model.eval()
    with torch.no_grad():
        expected = model(*inputs)
        traced = torch.jit.trace(model, inputs)
        on_nnapi = convert_model_to_nnapi(traced, inputs)
        # Twice, since a new execution is made for each call.
        for _ in range(2):
            actual = on_nnapi(*inputs)
    if expected.is_quantized:
        # Less than the next step, whatever rounding the scale itself takes part in.
        allowed = (STEPS + 0.5) * expected.q_scale()
        actual, expected = actual.dequantize(), expected.dequantize()
    else:
        allowed = ABSOLUTE + RELATIVE * expected.abs()
    difference = (actual - expected).abs()
    return (difference - allowed).max().item(), difference.max().item()


def main():
    torch.manual_seed(1)
    torch.backends.quantized.engine = "qnnpack"
    wrong = 0
    for name, model, inputs in models():
        beyond, largest = compare(model, inputs)
        verdict = "ok" if beyond <= 0 else "WRONG"
        wrong += beyond > 0
        print(f"{name:18} largest difference {largest:.2e}  {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
