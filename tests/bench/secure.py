#!/usr/bin/env python3
"""What secure aggregation, int8 and noise of the devices cost in accuracy: MNIST by writer, a row a run.

secure.py PROGRAMS [CSV [ROUNDS [SIDE,...]]]: PROGRAMS has dunlin-fleet, DUNLIN_DATA the data sets. Rows that the CSV has are not run again,
so an interrupted series goes on where it was; ROUNDS in place of 12 is for a short try, into a CSV of its own. Every side has the same devices,
rounds, rate and seeds: 360 devices, 120 a round, LeNet-5, each device every third round at most. `none` has neither masks nor noise and
trains in float32, `int8` trains in adaptive-int8, `clip` has the bound on the update as well, `secagg` masks what `clip` sends, and
the others add discrete Gaussian or Skellam noise for that epsilon in all before the mask; Skellam noise in steps of a thousandth of the
bound, since a draw of finer ones takes longer. Noise is secret, so an accuracy differs from run to run as the noise does. `accuracy_mid` is
that in the middle of the rounds. Processor time is that of all devices and the server. The bound is about the
length of the longest updates: 0.3 in its place cost 20 points of accuracy by itself.
"""
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

import kept_rows

CLIENTS, COHORT, ROUNDS, APART, CLIP, DELTA = 360, 120, 12, 3, 1.0, "1e-5"
FLEET = ("--serve --clients %d --cohort %d --dataset mnist_writers --partition writers --model lenet5 --batch 16 --lr 0.1 --threads 2"
         " --max-examples 24000" % (CLIENTS, COHORT))
INT8 = ["--precision", "adaptive-int8"]
BOUND = ["--update-clip", str(CLIP)]
KEYS = "corrupt=0.05,dropout=0.1,least_devices=90"
COARSE = ",value_limit=1000"
SIDES = ("none", "int8", "clip", "secagg", "gaussian:8", "skellam:8", "gaussian:2", "skellam:2")
SEEDS = (1, 2, 3)
COLUMNS = ["side", "seed", "rounds", "accuracy_mid", "accuracy", "loss", "epsilon", "delta", "noise", "noise_scale", "value_limit",
           "least_honest", "devices", "wall_s", "processor_s", "commit"]


def flags_of(side):
    kind, _, epsilon = side.partition(":")
    if kind == "none":
        return []
    if kind == "int8":
        return INT8
    if kind == "clip":
        return INT8 + BOUND
    if kind == "secagg":
        return INT8 + BOUND + ["--secagg", "--secagg-keys", KEYS]
    keys = KEYS + (COARSE if kind == "skellam" else "")
    dp = "epsilon=%s,delta=%s,clip=%s,separation=%d,noise_by=distributed,noise_kind=%s" % (epsilon, DELTA, CLIP, APART, kind)
    return INT8 + ["--secagg", "--secagg-keys", keys, "--dp", dp]


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def commit():
    asked = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    return asked.stdout.strip()


def run(programs, side, seed, n_rounds):
    before = processor_s()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "result.json")
        command = [str(programs / "dunlin-fleet"), *FLEET.split(), "--rounds", str(n_rounds), "--seed", str(seed), "--json", str(out)]
        subprocess.run(command + flags_of(side), check=True, stdout=subprocess.DEVNULL)
        result = json.loads(out.read_text())
    rounds = result["rounds"]
    assert len(rounds) == n_rounds and not any(r["failed"] for r in rounds), "a round failed"
    row = {"side": side, "seed": seed, "rounds": n_rounds, "accuracy_mid": "%.4f" % rounds[n_rounds // 2 - 1]["accuracy"],
           "accuracy": "%.4f" % rounds[-1]["accuracy"], "loss": "%.4f" % rounds[-1]["loss"],
           "devices": sum(r["participants"] for r in rounds), "wall_s": "%.1f" % result["fleet"]["wall_s"],
           "processor_s": "%.1f" % (processor_s() - before), "commit": commit()}
    private = result["privacy"]
    if private is not None:
        row.update({key: private[key] for key in ("delta", "noise_scale", "value_limit", "least_honest")})
        row.update({"epsilon": "%.4f" % private["epsilon"], "noise": "%.5f" % private["noise"]})
    return row


def summary(rows):
    """Means and spreads over the seeds."""
    for side in SIDES:
        of = [r for r in rows if r["side"] == side]
        if of:
            values = [100 * float(r["accuracy"]) for r in of]
            print("%-12s %d seeds  %.2f %% (%.2f to %.2f)  epsilon %s  %.0f s of processor time" % (
                side, len(of), sum(values) / len(of), min(values), max(values), of[0]["epsilon"] or "none",
                sum(float(r["processor_s"]) for r in of)))


def main():
    programs = pathlib.Path(sys.argv[1])
    path = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent / "results" / "secure.csv")
    n_rounds = int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS
    only = sys.argv[4].split(",") if len(sys.argv) > 4 else SIDES
    found = kept_rows.read(path)
    done = {(row["side"], row["seed"]) for row in found}
    for seed in SEEDS:
        for side in SIDES:
            if (side, str(seed)) in done or side not in only:
                continue
            found.append({key: str(value) for key, value in run(programs, side, seed, n_rounds).items()})
            kept_rows.append(path, COLUMNS, found[-1])
            print(found[-1], flush=True)
    summary([{key: row.get(key, "") for key in COLUMNS} for row in found])


if __name__ == "__main__":
    main()
