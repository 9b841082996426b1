#!/usr/bin/env python3
"""What private rounds cost, by a second, slow program: make_privacy.py FOLDER writes privacy_*.csv there.

It shares no formula with server_mock/src/privacy but the definitions. Moments are integrals by Gauss and Legendre at 50
digits, of the integrand as it stands. Epsilon of composed rounds is not found on a grid of losses: delta is the inverse
Laplace transform of the moments, (1 / 2 pi i) times the integral of exp(n K(t) - t epsilon) / (t (t + 1)) along a line with a
real part above 0, with K(t) the logarithm of E[e^(t loss)] by the trapezoidal rule (as Zhu, Dong, Wang 2022 compose, by
characteristic functions). Takes some minutes; needs python3-mpmath.
"""

import cmath
import math
import pathlib
import sys

from mpmath import mp, mpf

mp.dps = 50
DIGITS = 20


def text(value):
    return mp.nstr(mpf(value), DIGITS)


def rdp_sampled(noise, rate, order):
    """The order's cost of one round; noise, rate and order as texts."""
    s, q, a = mpf(noise), mpf(rate), mpf(order)
    step = min(s, s * s) / 2
    points = [-18 * s]
    while points[-1] < a + 18 * s:
        points.append(points[-1] + step)

    def integrand(z):
        ratio = 1 - q + q * mp.exp((2 * z - 1) / (2 * s * s))
        return mp.exp(-z * z / (2 * s * s)) * ratio**a

    total = mpf(0)
    nodes = mp_nodes(24)
    for low, high in zip(points, points[1:]):
        half = (high - low) / 2
        middle = (high + low) / 2
        total += half * sum(w * integrand(middle + half * x) for x, w in nodes)
    return mp.log(total / (s * mp.sqrt(2 * mp.pi))) / (a - 1)


NODES = {}


def mp_nodes(n):
    """Gauss and Legendre's, by Newton's method."""
    if n not in NODES:
        rows = []
        for i in range(n):
            x = mp.cos(mp.pi * (i + mpf(3) / 4) / (n + mpf(1) / 2))
            for _ in range(8):
                p0, p1 = mpf(1), x
                for k in range(2, n + 1):
                    p0, p1 = p1, ((2 * k - 1) * x * p1 - (k - 1) * p0) / k
                slope = n * (x * p1 - p0) / (x * x - 1)
                x -= p1 / slope
            rows.append((x, 2 / ((1 - x * x) * slope**2)))
        NODES[n] = rows
    return NODES[n]


def rdp_discrete(variance, shift, rate, order):
    """The larger direction, from sums of the two distributions themselves."""
    v, d, q, a = mpf(variance), int(shift), mpf(rate), mpf(order)
    reach = int(mp.ceil(18 * mp.sqrt(v)))
    xs = range(-reach - int(mp.ceil(abs(a) * d)), reach + int(mp.ceil(a * d)) + 1)
    weights = {x: mp.exp(-mpf(x) ** 2 / (2 * v)) for x in range(xs[0] - d, xs[-1] + 1)}
    total = sum(weights.values())
    more = less = mpf(0)
    for x in xs:
        without = weights[x] / total
        with_one = (1 - q) * without + q * weights[x - d] / total
        more += with_one**a * without ** (1 - a)
        less += without**a * with_one ** (1 - a)
    return mp.log(max(more, less)) / (a - 1)


def rdp_fixed(noise, share, order):
    """Theorem 9 of Wang, Balle, Kasiviswanathan 2019, as it is printed, without an end to the loss."""
    z, g, a = mpf(noise), mpf(share), int(order)

    def plain(j):
        return mpf(j) * 4 / (2 * z * z)

    total = 1 + g**2 * mp.binomial(a, 2) * min(4 * (mp.exp(plain(2)) - 1), mp.exp(plain(2)) * 2)
    for j in range(3, a + 1):
        total += g**j * mp.binomial(a, j) * mp.exp((j - 1) * plain(j)) * 2
    return min(mp.log(total) / (a - 1), plain(a))


def gaussian_epsilon(mu, delta):
    """The root of Balle and Wang's delta."""
    m, d = mpf(mu), mpf(delta)

    def value(e):
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)

    low, high = mpf(0), mpf(1)
    while value(high) > d:
        high *= 2
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) > d else (low, middle)
    return high


def log_moments(noise, rate, direction, powers):
    """K of one round at each complex power."""
    s, q = float(noise), float(rate)
    sign = 1 if direction == "remove" else -1
    top = 1 + max(p.real for p in powers)
    h = min(s, s * s) / 24
    first = -14 * s - (top if sign < 0 else 0)
    n = int(((top + 28 * s) + (top if sign < 0 else 0)) / h)
    rows = []
    for k in range(n):
        z = first + k * h
        x = (2 * z - 1) / (2 * s * s)
        loss = math.log1p(q * math.expm1(x)) if x < 30 else math.log(q) + x + math.log1p((1 - q) / q * math.exp(-x))
        log_mass = -z * z / (2 * s * s) - math.log(s * math.sqrt(2 * math.pi)) + math.log(h)
        rows.append((sign * loss, log_mass + (loss if sign > 0 else 0)))
    out = []
    for p in powers:
        scale = max(p.real * loss + log_mass for loss, log_mass in rows)
        total = 0
        for loss, log_mass in rows:
            size = p.real * loss + log_mass - scale
            if size > -60:
                total += cmath.exp(complex(size, p.imag * loss))
        out.append(cmath.log(total) + scale)
    return out


def composed_epsilon(kinds, delta, direction):
    """kinds: (noise, rate, rounds) each."""

    def moment(powers):
        sums = [0] * len(powers)
        for noise, rate, n in kinds:
            for i, value in enumerate(log_moments(noise, rate, direction, powers)):
                sums[i] += int(n) * value
        return sums

    delta = float(delta)
    grid = [complex(2 ** (k / 4), 0) for k in range(-8, 30)]
    bounds = [
        (k.real + p.real * math.log(p.real) - (1 + p.real) * math.log1p(p.real) - math.log(delta)) / p.real
        for p, k in zip(grid, moment(grid))
    ]
    power = grid[bounds.index(min(bounds))].real
    near = moment([complex(power * (1 + e), 0) for e in (-1e-3, 0, 1e-3)])
    deviation = math.sqrt(max((near[0] + near[2] - 2 * near[1]).real, 1e-300)) / (power * 1e-3)
    h = min(2 * math.pi / (60 * deviation), 2 * math.pi * power / 45)
    reach = 8 / deviation
    while (moment([complex(power, reach)])[0] - near[1]).real > -31:
        reach *= 1.3
    line = [complex(power, h * (k + 0.5)) for k in range(int(reach / h) + 1)]
    values = moment(line)

    def delta_of(e):
        total = sum((cmath.exp(v - p * e) / (p * (p + 1))).real for p, v in zip(line, values))
        return total * h / math.pi

    tail = abs(cmath.exp(values[-1] - values[0]))
    assert tail < 1e-12, f"the line is too short: {tail}"
    low, high = 0.0, min(bounds)
    if delta_of(0.0) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


def write(folder, name, head, rows):
    (folder / f"privacy_{name}.csv").write_text(head + "\n" + "".join(",".join(row) + "\n" for row in rows))


def write_orders(folder):
    rows = []
    for noise in ("0.3", "0.8", "1.1", "5", "40"):
        for rate in ("1e-6", "0.001", "0.05", "0.6"):
            for order in ("1.25", "2", "2.7", "10.9", "17"):
                rows.append((noise, rate, order, text(rdp_sampled(noise, rate, order))))
    for noise, rate, order in (("0.8", "0.01", "64"), ("1.1", "0.001", "128"), ("2", "0.02", "512"), ("0.05", "0.1", "3.3")):
        rows.append((noise, rate, order, text(rdp_sampled(noise, rate, order))))
    write(folder, "sampled", "noise,rate,order,rdp", rows)
    rows = []
    for variance, shift in (("0.3", "1"), ("1", "1"), ("2.5", "3"), ("30", "2"), ("400", "7")):
        for rate in ("1", "0.01", "0.3"):
            for order in ("1.25", "2", "3.7", "12"):
                rows.append((variance, shift, rate, order, text(rdp_discrete(variance, shift, rate, order))))
    write(folder, "discrete", "variance,shift,rate,order,rdp", rows)
    rows = []
    for noise in ("0.7", "2", "6", "30"):
        for share in ("0.001", "0.05", "1"):
            for order in ("2", "3", "11", "64", "512"):
                rows.append((noise, share, order, text(rdp_fixed(noise, share, order))))
    write(folder, "fixed", "noise,share,order,rdp", rows)
    rows = []
    for mu in ("0.01", "0.3", "1", "4", "20"):
        for delta in ("1e-3", "1e-6", "1e-12", "1e-25"):
            rows.append((mu, delta, text(gaussian_epsilon(mu, delta))))
    write(folder, "gaussian", "mu,delta,epsilon", rows)


def write_composed(folder):
    rows = []
    cases = [
        ("1e-5", [("1.1", "0.01", "1000")]),
        ("1e-6", [("1.0", "0.01", "1500")]),
        ("1e-6", [("1.0", "0.05", "1500")]),
        ("1e-8", [("0.8", "0.001", "10000")]),
        ("1e-10", [("5", "0.02", "10000")]),
        ("1e-6", [("0.7", "0.0001", "10000")]),
        ("1e-5", [("0.9", "0.3", "30")]),
        ("1e-9", [("3", "0.5", "100")]),
        ("1e-20", [("2", "0.1", "200")]),
        ("1e-5", [("20", "0.9", "400")]),
        ("1e-6", [("1.1", "0.01", "500"), ("2", "0.1", "100"), ("8", "1", "10")]),
    ]
    for delta, kinds in cases:
        both = [composed_epsilon(kinds, delta, d) for d in ("remove", "add")]
        rows.append((delta, ";".join(":".join(kind) for kind in kinds), *(f"{value:.12g}" for value in both)))
        print(rows[-1], flush=True)
    write(folder, "composed", "delta,noise:rate:rounds;...,remove,add", rows)


def main():
    folder = pathlib.Path(sys.argv[1])
    write_composed(folder)
    write_orders(folder)


if __name__ == "__main__":
    main()
