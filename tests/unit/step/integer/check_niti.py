"""Holds steps of a trainer in integers against NITI in numpy: check_niti.py LAYERS SHAPE BATCHES BITS STAGE GROWTH PREFIX

LAYERS is a chain, conv:CHANNELS:KERNEL:PADDING, relu, pool (2 x 2) and dense:OUTPUTS with commas; SHAPE the input's, CxHxW;
BATCHES the examples of each step; BITS the bits of the largest update, each for STAGE steps and the last for all that follow;
GROWTH doubles a range when more than one weight in so many is at its ends (0: never). PREFIX.w has the weights that the steps
begin with, in order, PREFIX.x and PREFIX.l the examples of all steps and their labels, PREFIX.y the weights after each step,
all of them float32. After each step every weight must be the same float.

Written from the papers alone: Wang et al., NITI (arXiv 2009.13108) for the arithmetic, Xu et al., Mandheling (MobiCom 2022) for
scales that are fixed before a batch, and trainer/INTEGERS.md for what they leave open. Whole batches at once; nothing is cut.
"""
import sys

import numpy as np

SIGN_BITS = 7
LEAST_LARGEST = 48
CALIBRATED = 32


def bits_of(largest):
    """ceil(log2(largest)), and 0 of 0."""
    return max(int(largest) - 1, 0).bit_length() if largest > 0 else 0


def limited(v):
    return np.clip(v, -127, 127)


def round_shift(v, shift):
    half = 1 << (shift - 1) if shift > 0 else 0
    return limited(np.sign(v) * ((np.abs(v) + half) >> max(shift, 0)))


def pseudo_shift(v, shift):
    """Up if the upper half of what is shifted away is more than the lower one."""
    if shift <= 0:
        return limited(v)
    size = np.abs(v)
    rest = size & ((1 << shift) - 1)
    lower = (rest & ((1 << shift // 2) - 1)) << (shift % 2)
    return limited(np.sign(v) * ((size >> shift) + (rest >> shift // 2 > lower)))


class Scale:
    def __init__(self):
        self.e, self.is_known, self.largest, self.sum = 0, False, 0, 0

    def begin(self):
        self.largest = 0

    def settle(self, v, e, calibrates):
        """Sums of exponent e, rounded to this scale, which a calibration raises first."""
        largest = int(np.abs(v).max())
        needed = e + max(bits_of(largest) - SIGN_BITS, 0)
        if calibrates and (not self.is_known or needed > self.e):
            self.e, self.is_known = needed, True
        self.sum, self.largest = e, max(self.largest, largest)
        return round_shift(v, self.e - e)

    def move(self):
        needed = self.sum + max(bits_of(self.largest) - SIGN_BITS, 0)
        if needed > self.e:
            self.e = needed
        elif 0 < self.largest < LEAST_LARGEST << (self.e - self.sum):
            self.e -= 1


class Parameter:
    def __init__(self, values):
        largest = float(np.abs(values).max())
        self.e = int(np.ceil(np.log2(largest))) - SIGN_BITS if largest > 0 else -10
        scaled = values.astype(np.float64) * 2.0 ** -self.e
        self.q = limited((np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int64))
        self.n_grown = 0

    def update(self, gradient, bits, growth):
        have = bits_of(np.abs(gradient).max())
        if have > 0:
            self.q = limited(self.q - pseudo_shift(gradient, have - (bits - self.n_grown)))
        if growth > 0 and np.count_nonzero(np.abs(self.q) == 127) * growth > self.q.size:
            self.q = np.rint(self.q / 2).astype(np.int64)
            self.e += 1
            self.n_grown += 1

    def floats(self):
        return (self.q * 2.0 ** self.e).astype(np.float32).ravel()


class Layer:
    def __init__(self, text, shape):
        self.kind, *numbers = text.split(":")
        self.numbers = [int(n) for n in numbers]
        self.shape = shape
        self.weights = self.bias = None
        self.y, self.dx = Scale(), Scale()
        if self.kind == "conv":
            out, k, pad = self.numbers
            self.out = (out, shape[1] + 2 * pad - k + 1, shape[2] + 2 * pad - k + 1)
            self.weight_shape = (out, shape[0], k, k)
        elif self.kind == "dense":
            self.out = (self.numbers[0], 1, 1)
            self.weight_shape = (self.numbers[0], int(np.prod(shape)))
        else:
            self.out = shape if self.kind == "relu" else (shape[0], shape[1] // 2, shape[2] // 2)
        self.is_linear = self.kind in ("conv", "dense")

    def take(self, values):
        """The parameters, from the front of `values`; what is left of them."""
        if not self.is_linear:
            return values
        n, n_bias = int(np.prod(self.weight_shape)), self.weight_shape[0]
        self.weights = Parameter(values[:n].reshape(self.weight_shape))
        self.bias = Parameter(values[n:n + n_bias])
        return values[n + n_bias:]

    def columns(self, x):
        """(N, C, H, W) to (N, places, C * k * k)."""
        _, k, pad = self.numbers
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        view = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(2, 3))
        return view.transpose(0, 2, 3, 1, 4, 5).reshape(len(x), -1, x.shape[1] * k * k)

    def aligned_bias(self, e):
        up = self.bias.e - e
        return self.bias.q << min(up, 16) if up >= 0 else round_shift(self.bias.q, -up)

    def winners(self, x):
        """Of each window of 2 x 2 the place of the first largest, as one of four."""
        c, h, w = self.out
        parts = x[:, :, :2 * h, :2 * w].reshape(len(x), c, h, 2, w, 2).transpose(0, 1, 2, 4, 3, 5)
        return parts.reshape(len(x), c, h, w, 4)

    def forward(self, x, e, calibrates):
        self.x = x
        if self.kind == "relu":
            self.act = np.maximum(x, 0)
        elif self.kind == "pool":
            self.act = self.winners(x).max(axis=4)
        else:
            rows = self.columns(x) if self.kind == "conv" else x.reshape(len(x), 1, -1)
            sums = rows @ self.weights.q.reshape(self.weight_shape[0], -1).T
            sums = sums + self.aligned_bias(e + self.weights.e)
            sums = sums.transpose(0, 2, 1).reshape(len(x), *self.out)
            self.act = self.y.settle(sums, e + self.weights.e, calibrates)
            e = self.y.e
        return self.act, e

    def backward(self, dy, e, is_first, calibrates):
        n = len(dy)
        if self.kind == "relu":
            return np.where(self.act > 0, dy, 0), e
        if self.kind == "pool":
            chosen = np.arange(4) == self.winners(self.x).argmax(axis=4)[..., None]
            c, h, w = self.out
            parts = (chosen * dy.reshape(n, c, h, w)[..., None]).reshape(n, c, h, w, 2, 2)
            dx = np.zeros_like(self.x)
            dx[:, :, :2 * h, :2 * w] = parts.transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)
            return dx, e
        places = dy.reshape(n, self.weight_shape[0], -1)
        rows = self.columns(self.x) if self.kind == "conv" else self.x.reshape(n, 1, -1)
        self.weights.gradient = np.einsum("nop,npk->ok", places, rows).reshape(self.weight_shape)
        self.bias.gradient = places.sum(axis=(0, 2))
        if is_first:
            return None, e
        flat = places.transpose(0, 2, 1) @ self.weights.q.reshape(self.weight_shape[0], -1)
        dx = flat.reshape(self.x.shape) if self.kind == "dense" else self.spread(flat)
        return self.dx.settle(dx, e + self.weights.e, calibrates), self.dx.e

    def spread(self, columns):
        """What columns() has read, added up where it lay."""
        _, k, pad = self.numbers
        c, h, w = self.shape
        columns = columns.reshape(len(columns), self.out[1], self.out[2], c, k, k)
        dx = np.zeros((len(columns), c, h + 2 * pad, w + 2 * pad), np.int64)
        for i in range(k):
            for j in range(k):
                dx[:, :, i:i + self.out[1], j:j + self.out[2]] += columns[..., i, j].transpose(0, 3, 1, 2)
        return dx[:, :, pad:pad + h, pad:pad + w]


def loss_error(logits, e, labels):
    """Of each example: shares of 2^11, less those of the label, in four bits fewer."""
    q = logits.reshape(len(logits), -1)
    if e > -7:
        t = np.sign(q) * (np.abs(q) * 47274 // 32768)  # log2(e) in 15 bits, toward zero
        t = t * (1 << e) if e >= 0 else np.sign(t) * (np.abs(t) >> -e)
        t = t - t.max(axis=1, keepdims=True) + 10
        weights = np.where(t > 0, (np.int64(1) << np.maximum(t, 0)) - 1, 0)
    else:
        low = max(e, -14)
        weights = (1 << (1 - 2 * low)) + q * (1 << (1 - low)) + q * q  # the first terms of exp's series
    shares = weights * 2048 // weights.sum(axis=1, keepdims=True)
    shares[np.arange(len(q)), labels] -= shares.sum(axis=1)
    return pseudo_shift(shares, 4)


class Network:
    def __init__(self, layers, shape, weights):
        self.x, self.layers, self.is_calibrated = Scale(), [], False
        for text in layers:
            layer = Layer(text, shape)
            weights = layer.take(weights)
            shape = layer.out
            self.layers.append(layer)
        assert len(weights) == 0, "%d weights are left" % len(weights)
        self.linear = [layer for layer in self.layers if layer.is_linear]

    def run(self, x, labels, calibrates):
        largest = float(np.abs(x).max())
        if calibrates and largest > 0:
            needed = int(np.ceil(np.log2(largest))) - SIGN_BITS
            if not self.x.is_known or needed > self.x.e:
                self.x.e, self.x.is_known = needed, True
        scaled = x.astype(np.float64) * 2.0 ** -self.x.e
        q = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int64)
        self.x.sum, self.x.largest = self.x.e, max(self.x.largest, int(np.abs(q).max()))
        value, e = limited(q), self.x.e
        for layer in self.layers:
            value, e = layer.forward(value, e, calibrates)
        error, e = loss_error(value, e, labels), 0
        for i in reversed(range(len(self.layers))):
            error, e = self.layers[i].backward(error, e, i == 0, calibrates)

    def step(self, x, labels, bits, growth):
        for i in range(0 if self.is_calibrated else min(len(x), CALIBRATED)):
            self.run(x[i:i + 1], labels[i:i + 1], True)
        self.is_calibrated = True
        scales = [self.x] + [layer.y for layer in self.linear] + [layer.dx for layer in self.linear if layer is not self.layers[0]]
        for scale in scales:
            scale.begin()
        self.run(x, labels, False)
        for layer in self.linear:
            for parameter in (layer.weights, layer.bias):
                parameter.update(parameter.gradient, bits, growth)
        for scale in scales:
            scale.move()
        e = self.x.e
        for layer in self.linear:
            layer.y.e = e = max(layer.y.e, e + layer.weights.e)
        e = 0
        for layer in reversed(self.linear):
            if layer is not self.layers[0]:
                layer.dx.e = e = max(layer.dx.e, e + layer.weights.e)

    def floats(self):
        return np.concatenate([one.floats() for layer in self.linear for one in (layer.weights, layer.bias)])


def main():
    layers, shape, batches, bits, stage, growth, prefix = sys.argv[1:]
    shape = tuple(int(n) for n in shape.split("x"))
    batches = [int(n) for n in batches.split(",")]
    bits = [int(n) for n in bits.split(",")]
    first, x, labels, wanted = (np.fromfile("%s.%s" % (prefix, ending), "<f4") for ending in "wxly")
    network = Network(layers.split(","), shape, first)
    x = x.reshape(-1, *shape)
    wanted = wanted.reshape(len(batches), -1)
    at = 0
    for step, n in enumerate(batches):
        network.step(x[at:at + n], labels[at:at + n].astype(np.int64), bits[min(step // int(stage), len(bits) - 1)], int(growth))
        at += n
        ours = network.floats()
        different = np.flatnonzero(ours.view(np.uint32) != (wanted[step] + 0.0).view(np.uint32))
        if len(different) > 0:
            i = different[0]
            print("step %d: %d of %d weights differ, the first is %d: %r in numpy, %r" %
                  (step, len(different), len(ours), i, ours[i], wanted[step][i]))
            sys.exit(1)
    if np.array_equal(network.floats(), Network(layers.split(","), shape, first).floats()):
        print("no weight has moved in %d steps" % len(batches))
        sys.exit(1)
    print("%d steps, %d weights: the same bits; ranges doubled %d times" %
          (len(batches), len(first), sum(one.n_grown for layer in network.linear for one in (layer.weights, layer.bias))))


if __name__ == "__main__":
    main()
