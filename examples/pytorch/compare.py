#!/usr/bin/python3
"""Small PyTorch models on NNAPI, compared with PyTorch's own results.

PyTorch's NNAPI backend opens libneuralnetworks.so by that name: put the folder of nnhal's library on LD_LIBRARY_PATH.
Debian and Ubuntu have a PyTorch with the backend as python3-torch.

    LD_LIBRARY_PATH=/usr/local/lib examples/pytorch/compare.py
"""

import sys

import torch
from torch import nn
from torch.backends._nnapi.prepare import convert_model_to_nnapi

# What 32-bit floats may differ by when they are summed in another order.
RELATIVE = 1e-5
ABSOLUTE = 1e-5


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
    difference = (actual - expected).abs()
    allowed = ABSOLUTE + RELATIVE * expected.abs()
    return (difference - allowed).max().item(), difference.max().item()


def main():
    torch.manual_seed(1)
    wrong = 0
    for name, model, inputs in models():
        beyond, largest = compare(model, inputs)
        verdict = "ok" if beyond <= 0 else "WRONG"
        wrong += beyond > 0
        print(f"{name:18} largest difference {largest:.2e}  {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
