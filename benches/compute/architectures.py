#!/usr/bin/env python3
"""Write models of well-known architectures with random weights, each with an input and LiteRT's outputs.

    python3 benches/compute/architectures.py DIR [NAME...]

NAME is an architecture (`ViTTiny`) or an architecture in a form (`ViTTiny-int8`). The forms are float, float16
(weights), int8 (weights, activations, inputs and outputs) and int16x8 (activations of 16 bits, weights of 8). Without a
name all are written. Each is a folder: model.tflite, input_<i>.npy and output_<i>.npy, whose leading axis is the
invocation.

TensorFlow makes and converts the models. LiteRT computes the outputs, floats with XNNPACK and integers without.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType

SAMPLES = 2
# The tokens that an encoder of text knows, as many as BERT's.
VOCABULARY = 30522

IMAGES = [
    "MobileNetV3Small",
    "EfficientNetV2B0",
    "NASNetMobile",
    "DenseNet121",
    "ResNet50V2",
    "InceptionV3",
    "Xception",
    "ConvNeXtTiny",
]
FORMS = ["float", "float16", "int8", "int16x8"]


class Positions(tf.keras.layers.Layer):
    """Adds a learned vector to each place of a sequence."""

    def build(self, shape):
        self.vectors = self.add_weight(shape=shape[1:], initializer="random_normal")

    def call(self, sequence):
        return sequence + self.vectors


def encoder(sequence, layers, width, heads, first_normalised):
    """Layers of self-attention and a feed-forward network, which normalise before or after each of the two."""
    keras = tf.keras.layers

    def attention(value):
        return keras.MultiHeadAttention(heads, width // heads)(value, value)

    def feed_forward(value):
        return keras.Dense(width)(keras.Dense(4 * width, activation="gelu")(value))

    for _ in range(layers):
        for part in (attention, feed_forward):
            if first_normalised:
                sequence = sequence + part(keras.LayerNormalization()(sequence))
            else:
                sequence = keras.LayerNormalization()(sequence + part(sequence))
    return sequence


def mini_lm():
    """An encoder of text: 6 layers, 384 wide, 12 heads, 128 tokens."""
    tokens = tf.keras.Input([128], 1, dtype=tf.int32)
    sequence = Positions()(tf.keras.layers.Embedding(VOCABULARY, 384)(tokens))
    sequence = tf.keras.layers.LayerNormalization()(sequence)
    return tf.keras.Model(tokens, encoder(sequence, 6, 384, 12, False))


def whisper_tiny():
    """An encoder of 30 seconds of audio: 4 layers, 384 wide, 6 heads, 1500 places."""
    spectrogram = tf.keras.Input([3000, 80], 1)
    sequence = tf.keras.layers.Conv1D(384, 3, padding="same", activation="gelu")(spectrogram)
    sequence = tf.keras.layers.Conv1D(384, 3, 2, padding="same", activation="gelu")(sequence)
    sequence = encoder(Positions()(sequence), 4, 384, 6, True)
    return tf.keras.Model(spectrogram, tf.keras.layers.LayerNormalization()(sequence))


def vit_tiny():
    """A classifier of images: patches of 16 x 16, 12 layers, 192 wide, 3 heads."""
    image = tf.keras.Input([224, 224, 3], 1)
    patches = tf.keras.layers.Conv2D(192, 16, 16)(image)
    sequence = Positions()(tf.keras.layers.Reshape([196, 192])(patches))
    sequence = tf.keras.layers.LayerNormalization()(encoder(sequence, 12, 192, 3, True))
    mean = tf.keras.layers.GlobalAveragePooling1D()(sequence)
    return tf.keras.Model(image, tf.keras.layers.Dense(1000)(mean))


def image_model(name):
    application = getattr(tf.keras.applications, name)
    model = application(weights=None, input_tensor=tf.keras.Input(application_size(name), 1))
    # Normalisation by what one input gives: else activations of random weights vanish layer by layer.
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(sample(model, np.random.default_rng(3)), training=True)
    return model


def application_size(name):
    extent = 299 if name in ("InceptionV3", "Xception") else 224
    return [extent, extent, 3]


ARCHITECTURES = {name: lambda name=name: image_model(name) for name in IMAGES}
ARCHITECTURES |= {"MiniLM": mini_lm, "WhisperTiny": whisper_tiny, "ViTTiny": vit_tiny}


def sample(model, random):
    (given,) = model.inputs
    if given.dtype == "int32":
        return random.integers(0, VOCABULARY, given.shape, dtype=np.int32)
    return random.uniform(-1, 1, given.shape).astype(np.float32)


def convert(model, form):
    """The .tflite file of a model in this form."""
    random = np.random.default_rng(1)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if form != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if form in ("int8", "int16x8"):
        samples = [[sample(model, random)] for _ in range(SAMPLES)]
        converter.representative_dataset = lambda: samples
        eight = form == "int8"
        sets = tf.lite.OpsSet
        converter.target_spec.supported_ops = [
            sets.TFLITE_BUILTINS_INT8
            if eight
            else sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8,
            sets.TFLITE_BUILTINS,
        ]
        edge = tf.int8 if eight else tf.int16
        if model.inputs[0].dtype != "int32":
            converter.inference_input_type = edge
        converter.inference_output_type = edge
    return converter.convert()


def outputs_of(file, given, form):
    """LiteRT's outputs for an input, and the input as the file takes it."""
    resolver = OpResolverType.AUTO if form in ("float", "float16") else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=file, num_threads=2, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    (details,) = interpreter.get_input_details()
    if details["dtype"] != given.dtype:
        scale, zero_point = details["quantization"]
        limits = np.iinfo(details["dtype"])
        given = np.clip(np.round(given / scale) + zero_point, limits.min, limits.max).astype(details["dtype"])
    interpreter.set_tensor(details["index"], given)
    interpreter.invoke()
    return given, [interpreter.get_tensor(output["index"]) for output in interpreter.get_output_details()]


def write(folder, file, given, outputs):
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "input_0.npy", given[np.newaxis])
    for number, output in enumerate(outputs):
        np.save(folder / f"output_{number}.npy", output[np.newaxis])
    (folder / "model.tflite").write_bytes(file)


def main():
    directory, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for name, make in ARCHITECTURES.items():
        forms = [form for form in FORMS if not names or name in names or f"{name}-{form}" in names]
        if not forms:
            continue
        tf.keras.utils.set_random_seed(0)
        model = make()
        given = sample(model, np.random.default_rng(2))
        for form in forms:
            file = convert(model, form)
            try:
                expected = outputs_of(file, given, form)
            except (RuntimeError, ValueError) as error:
                print(f"{name}-{form}: LiteRT computes nothing: {error}", flush=True)
                continue
            write(directory / f"{name}-{form}", file, *expected)
            print(f"{name}-{form}: {len(file)} bytes", flush=True)


if __name__ == "__main__":
    main()
