#!/usr/bin/env python3
"""Makes data/steps_NAME.golden: what ten steps of SGD make of each ready-made network in PyTorch, in float64.

Run as `python3 make_nets.py [NAME...]` in this folder; needs PyTorch and torchvision (Debian: python3-torchvision).
Neither weights nor examples are stored: both sides compute them, as below and in steps.c. Of the weights afterwards a
sketch of a few numbers for each parameter is kept, from which a distance between two networks can be told.

Arrays of a file (the format is make_golden.py's):
  net/setup   int32: image, channels, batch, classes, vocabulary (0: images), salt of the examples
  net/lr      float64
  net/loss    float64: losses of the ten steps in float64
  net/loss.error  float64: the largest difference of these in PyTorch's float32
  net/error   float64: distance of PyTorch's float32 from float64, of all trained parameters together and of all running
              statistics together
  net/sketch  float64, for each parameter: N_SIGNS sums of its elements under random signs in float64, its 2-norm, the
              distance of PyTorch's float32, how far the steps have moved it (2-norms)

PyTorch's float32 is not one number: where an activation lies within rounding of zero, ReLU's gradient is there in one run
and not in the next, and deep networks with batch norm of a few pixels blow the difference up. So it is run several times
in ways that change nothing but the rounding (VARIANTS), and its distance is the largest. Small networks without batch
norm are given examples (a salt) with which no activation comes that near to zero: their steps are exact to 1e-7.
Learning rates are so small that rounding does not grow from step to step; "moved" is what the distances compare with.
Dropout is off on both sides: generators differ.

Random numbers: mix() is SplitMix64's output function (Steele, Lea, Flood 2014), a counter-based generator. Number i of
stream s is mix(mix(s + 1) + (i + 1) * GOLDEN), modulo 2^64; as a float its highest 24 bits give a multiple of 2^-23 in
[-1, 1). Stream p is parameter p's first values, 100000 + p its signs (bit k of the number is the sign of sketch k: 1 is
+), 200000 + salt the examples, 300000 + salt the labels.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

from make_golden import File
from make_zoo import NETWORKS, Gpt

N_STEPS = 10
N_SIGNS = 8
MOMENTUM = 0.9
CHUNK = 1 << 22
GOLDEN = 0x9E3779B97F4A7C15
SIGNS, EXAMPLES, LABELS = 100000, 200000, 300000
NEAR = 2e-6  # of the root mean square of a layer's activations
# Each batch turned round by so many examples; channels last; oneDNN.
VARIANTS = ((0, False, True), (1, True, True), (2, False, False), (3, False, True))


def mix(x):
    with np.errstate(over="ignore"):
        x = np.asarray(x, dtype=np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def numbers(stream, first, n):
    with np.errstate(over="ignore"):
        key = mix(np.array([stream + 1], dtype=np.uint64))
        return mix(key + np.arange(first + 1, first + n + 1, dtype=np.uint64) * np.uint64(GOLDEN))


def floats(stream, n):
    out = np.empty(n, dtype=np.float32)
    for first in range(0, n, CHUNK):
        part = numbers(stream, first, min(CHUNK, n - first))
        steps = (part >> np.uint64(40)).astype(np.int64) - (1 << 23)
        out[first:first + len(part)] = steps.astype(np.float32) * np.float32(2.0 ** -23)
    return out


def first_values(index, name, shape):
    """Weights uniform with He's variance; scales and variances about 1; biases, shifts and means about 0."""
    values = floats(index, math.prod(shape))
    if len(shape) > 1:
        bound = np.float32(math.sqrt(6.0 / math.prod(shape[1:])))
        return (bound * values).reshape(shape)
    if name.endswith("bias") or name.endswith("running_mean"):
        return values * np.float32(0.125)
    return np.float32(1.0) + values * np.float32(0.25)


def project(index, array):
    """N_SIGNS sums of a flat float64 array under random signs."""
    sums = np.zeros(N_SIGNS)
    for first in range(0, len(array), CHUNK):
        part = array[first:first + CHUNK]
        bits = numbers(SIGNS + index, first, len(part))
        total = part.sum()
        for k in range(N_SIGNS):
            plus = (bits >> np.uint64(k)) & np.uint64(1) != 0
            sums[k] += 2.0 * part[plus].sum() - total
    return sums


def entries(model):
    return [(key, value) for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")]


def loss_of(outputs, labels):
    """Auxiliary heads count 0.3, as torchvision trains them."""
    if isinstance(outputs, tuple):
        return loss_of(outputs[0], labels) + 0.3 * sum(loss_of(y, labels) for y in outputs[1:])
    return F.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def train(model, dtype, setup, lr, variant=VARIANTS[0]):
    """Ten steps of one batch each; returns the losses and all entries."""
    image, channels, batch, classes, vocabulary, salt = setup
    order, is_last, is_onednn = variant
    for index, (key, value) in enumerate(entries(model)):
        value.copy_(torch.from_numpy(first_values(index, key, tuple(value.shape))))
    model.to(dtype).train()
    n = N_STEPS * batch
    if vocabulary > 0:
        tokens = numbers(EXAMPLES + salt, 0, n * image) % np.uint64(vocabulary)
        x = torch.from_numpy(tokens.astype(np.int64).reshape(n, image))
    else:
        x = torch.from_numpy(floats(EXAMPLES + salt, n * channels * image * image))
        x = x.reshape(n, channels, image, image).to(dtype)
    if is_last and vocabulary == 0:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    n_labels = image if isinstance(model, Gpt) else 1  # of an example: the next token of each
    labels = torch.from_numpy((numbers(LABELS + salt, 0, n * n_labels) % np.uint64(classes)).astype(np.int64))
    labels = labels.reshape(n, n_labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)
    losses = []
    with torch.backends.mkldnn.flags(enabled=is_onednn):
        for step in range(N_STEPS):
            part = step * batch + (torch.arange(batch) + order) % batch
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model(x[part]), labels[part])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return np.array(losses), [(key, value.detach().double().contiguous().numpy().reshape(-1))
                              for key, value in entries(model)]


def without_dropout(network):
    model = network()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return model


def choose_salt(network, setup, lr):
    """The salt, if it is to be looked for the first with which no input of a ReLU comes near zero, and its run."""
    near = []

    def watch(_module, inputs):
        x = inputs[0].detach()
        near.append(int((x.abs() < NEAR * x.square().mean().sqrt()).sum()))

    for salt in [setup[5]] if setup[5] >= 0 else range(1000):
        model = without_dropout(network)
        for part in model.modules():
            if isinstance(part, torch.nn.ReLU):
                part.register_forward_pre_hook(watch)
        salted = (*setup[:5], salt)
        near.clear()
        exact = train(model, torch.float64, salted, lr)
        if sum(near) == 0 or salted == setup:
            return salted, exact
    raise SystemExit("no salt keeps the activations away from zero")


def make(name, network, setup, lr):
    """network() makes a fresh model; setup as in the file, salt chosen here."""
    setup, (exact_losses, exact) = choose_salt(network, setup, lr)
    shapes = [tuple(value.shape) for _, value in entries(network())]
    is_statistic = np.array(["running_" in key for key, _ in exact])
    sketch = np.zeros((len(exact), N_SIGNS + 3))
    for index, (key, value) in enumerate(exact):
        start = first_values(index, key, shapes[index]).reshape(-1)
        sketch[index, :N_SIGNS] = project(index, value)
        sketch[index, N_SIGNS] = np.linalg.norm(value)
        sketch[index, N_SIGNS + 2] = np.linalg.norm(value - start)
    loss_error, error = 0.0, np.zeros(2)
    for variant in VARIANTS:
        losses, rough = train(without_dropout(network), torch.float32, setup, lr, variant)
        off = np.array([np.linalg.norm(other - value) for (_, value), (_, other) in zip(exact, rough)])
        sketch[:, N_SIGNS + 1] = np.maximum(sketch[:, N_SIGNS + 1], off)
        whole = [np.linalg.norm(off[~is_statistic]), np.linalg.norm(off[is_statistic])]
        print(f"  {variant}: off by {whole[0]:.3g}, {whole[1]:.3g}", flush=True)
        error = np.maximum(error, whole)
        loss_error = max(loss_error, np.abs(losses - exact_losses).max())
    file = File(f"data/steps_{name}.golden")
    file.add("net/setup", np.array(setup), np.int32)
    file.add("net/lr", np.array([lr]), np.float64)
    file.add("net/loss", exact_losses, np.float64)
    file.add("net/loss.error", np.array([loss_error]), np.float64)
    file.add("net/error", error, np.float64)
    file.add("net/sketch", sketch, np.float64)
    file.write()
    moved = np.linalg.norm(sketch[~is_statistic, N_SIGNS + 2])
    print(f"{name}: salt {setup[5]}, losses {exact_losses[0]:.3f} to {exact_losses[-1]:.3f}, float32 is off by "
          f"{error[0]:.3g} of {moved:.3g} moved", flush=True)


# image, channels, batch, classes, vocabulary, salt (-1: looked for); learning rate.
SETUPS = {
    "lenet5": ((28, 1, 4, 10, 0, -1), 0.01),
    "mobilenet_v1": ((64, 3, 4, 10, 0, 0), 1e-6),
    "mobilenet_v2": ((64, 3, 4, 10, 0, 0), 1e-6),
    "resnet18": ((64, 3, 4, 10, 0, 0), 1e-4),
    "resnet50": ((64, 3, 4, 10, 0, 0), 1e-7),
    "densenet121": ((64, 3, 4, 10, 0, 0), 1e-6),
    "vgg16": ((32, 3, 4, 10, 0, 0), 1e-5),
    "squeezenet1_1": ((32, 3, 4, 10, 0, -1), 1e-3),
    # Its auxiliary heads pool 6 x 6 pixels to 4 x 4.
    "googlenet_aux": ((96, 3, 4, 10, 0, 0), 1e-6),
    "vit_tiny": ((64, 3, 4, 10, 0, 0), 1e-4),
    "bert_small": ((16, 1, 4, 10, 100, 0), 1e-3),
    # So few words that some are padding, which is word 0.
    "bert_tiny": ((16, 1, 4, 10, 9, 0), 1e-2),
    "gpt_tiny": ((16, 1, 4, 1100, 1100, 0), 1e-3),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or SETUPS:
        setup, lr = SETUPS[chosen]
        options = {"num_classes": setup[3]}
        if setup[4] > 0:
            options |= {"sequence": setup[0], "vocabulary": setup[4]}
        elif chosen.startswith("vit_"):
            options["image"] = setup[0]
        make(chosen, lambda: NETWORKS[chosen](**options), setup, lr)
