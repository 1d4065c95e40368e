#!/usr/bin/env python3
"""Train the digit classifier and write everything else in this folder.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python make.py

The network learns from scikit-learn's bundled digits set (8x8 grey images of the digits 0 to 9). One hundred
images, ten of each digit, are held out: they are never seen in training or calibration, and are the data that
the demo and the tests classify. Expected outputs are those of LiteRT's reference kernels.

With the pinned requirements and one thread the result is the same from run to run on the same processor;
another processor's floating-point code may train slightly different weights, so the files are kept in the
repository and the tests use those.
"""

import os
import pathlib

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from sklearn.datasets import load_digits

FOLDER = pathlib.Path(__file__).resolve().parent
SEED = 20240229
HELD_OUT_PER_DIGIT = 10
EPOCHS = 60
BATCH = 32
SIZE_LIMIT = 200_000
ACCURACY_LIMIT = 0.95


def split_digits():
    """Scale the pixels from 0..16 to 0..1 and hold out ten random images of every digit, in mixed order."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., np.newaxis]
    labels = digits.target.astype(np.uint8)
    random = np.random.default_rng(SEED)
    order = random.permutation(len(labels))
    held_out = np.concatenate([order[labels[order] == d][:HELD_OUT_PER_DIGIT] for d in range(10)])
    held_out = random.permutation(held_out)
    train = np.setdiff1d(order, held_out)
    return (images[train], labels[train]), (images[held_out], labels[held_out])


def shifted(images, labels):
    """Add every training image moved by one pixel in each of the four directions, padded with background."""
    moved = [images]
    for rows, columns in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
        moved.append(padded[:, 1 - rows : 9 - rows, 1 - columns : 9 - columns, :])
    return np.concatenate(moved), np.tile(labels, len(moved))


def build_network(batch=None):
    """A convolution, a depthwise-separable convolution and a dense layer: the operations of a mobile network."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1), batch_size=batch, name="image"),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.DepthwiseConv2D(3, padding="same", activation="relu"),
            layers.Conv2D(32, 1, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Reshape((128,)),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax", name="digit"),
        ]
    )


def train(network, images, labels):
    network.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, EPOCHS * len(labels) // BATCH)),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    network.fit(images, labels, batch_size=BATCH, epochs=EPOCHS, verbose=2)


def converter_for(network):
    """A converter for a batch of exactly one image, so that every shape in the file is known."""
    single = build_network(batch=1)
    single.set_weights(network.get_weights())
    return tf.lite.TFLiteConverter.from_keras_model(single)


def convert(network, calibration):
    """The network as a float32 and as a fully int8 .tflite file."""
    as_float = converter_for(network).convert()
    converter = converter_for(network)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[np.newaxis]] for image in calibration)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    # NNAPI's FULLY_CONNECTED takes weights of one scale; its convolutions take one scale a channel.
    converter._experimental_disable_per_channel_quantization_for_dense_layers = True
    return as_float, converter.convert()


def reference_interpreter(model):
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    return interpreter


def quantised(images, interpreter):
    scale, zero_point = interpreter.get_input_details()[0]["quantization"]
    return np.clip(np.round(images / np.float32(scale)) + zero_point, -128, 127).astype(np.int8)


def classify_all(interpreter, inputs):
    """Run the images one by one; the result's leading axis is the invocation."""
    source = interpreter.get_input_details()[0]["index"]
    sink = interpreter.get_output_details()[0]["index"]
    outputs = []
    for image in inputs:
        interpreter.set_tensor(source, image)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(sink).copy())
    return np.stack(outputs)


def main():
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)

    (train_images, train_labels), (images, labels) = split_digits()
    network = build_network()
    train(network, *shifted(train_images, train_labels))
    as_float, as_int8 = convert(network, train_images[:500])
    assert len(as_float) + len(as_int8) < SIZE_LIMIT, "the two models are too large for the repository"

    # One image a call: the leading axis counts the calls.
    images = images[:, np.newaxis]
    float_reference, int8_reference = reference_interpreter(as_float), reference_interpreter(as_int8)
    runs = {
        "float": (float_reference, images),
        "int8": (int8_reference, quantised(images, int8_reference)),
    }
    (FOLDER / "digits_float.tflite").write_bytes(as_float)
    (FOLDER / "digits_int8.tflite").write_bytes(as_int8)
    np.save(FOLDER / "truth.npy", labels)
    (FOLDER / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
    for kind, (interpreter, inputs) in runs.items():
        outputs = classify_all(interpreter, inputs)
        right = int((outputs.reshape(len(labels), 10).argmax(axis=1) == labels).sum())
        print(f"{kind}: {right} of {len(labels)} held-out images right")
        assert right >= ACCURACY_LIMIT * len(labels), f"the {kind} model is not accurate enough"
        np.save(FOLDER / f"images_{kind}.npy", inputs)
        np.save(FOLDER / f"expected_{kind}.npy", outputs)


if __name__ == "__main__":
    main()
