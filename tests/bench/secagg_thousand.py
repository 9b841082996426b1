#!/usr/bin/env python3
"""A round of a thousand devices with secure aggregation, LeNet-5 and 30 % that leave, over HTTPS: what it takes, in figures.

secagg_thousand.py PROGRAMS [DEVICES [THREADS [CSV]]]: PROGRAMS has dunlin-fleet. Each device trains on two glyphs, so nearly all of the
time is that of the protocol. Prints JSON: who came to each step and who had left, seconds by the clock and of processor time (devices and
server together), of each step and of the unmasking, the most memory of a process, bytes, and the load of the machine.
Ends with 1 if there is no sum or another number left than should. Times of steps are so long that a machine with other work has a sum, too.
A row goes into the CSV that is named; `figures.py write` makes a table of results/secagg_thousand.csv.
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import kept_rows

LEAVE, CORRUPT = 0.3, 0.05
COLUMNS = ["devices", "threads", "neighbours", "threshold", "in_sum", "wall_s", "processor_s", "unmask_s", "peak_kib", "bytes_down", "bytes_up",
           "all_bytes_up", "load", "commit"]


def keep(path, figures):
    """Adds a row to the table, or begins one."""
    place = pathlib.Path(__file__).parent
    asked = subprocess.run(["git", "-C", str(place), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    row = dict(figures, in_sum=figures["steps"]["mask"][0], commit=asked.stdout.strip())
    kept_rows.append(path, COLUMNS, {name: row[name] for name in COLUMNS if name in row})


def main():
    programs = pathlib.Path(sys.argv[1])
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    threads = sys.argv[3] if len(sys.argv) > 3 else "2"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "result.json")
        command = [str(programs / "dunlin-fleet"), "--serve", "--clients", str(n), "--cohort", str(n), "--rounds", "1", "--dataset", "synthetic",
                   "--max-examples", str(2 * n), "--model", "lenet5", "--batch", "8", "--lr", "0.05", "--seed", "1", "--threads", threads,
                   "--deadline", "14400", "--json", str(out), "--secagg", "--secagg-leave", str(LEAVE), "--secagg-keys",
                   "dropout=%g,corrupt=%g,least_devices=%d,step_s=2800" % (LEAVE, CORRUPT, n * 6 // 10)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.loads(out.read_text())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    one = result["rounds"][0]
    steps = one["secagg"]["steps"]
    figures = {"devices": n, "threads": int(threads), "neighbours": result["secagg"]["neighbours"], "threshold": result["secagg"]["threshold"],
               "steps": {name: [step["devices"], step["dropped"], round(step["wall_s"], 1)] for name, step in steps.items()}, "sum": one["secagg"]["sum"],
               "wall_s": round(result["fleet"]["wall_s"], 1), "processor_s": round(used.ru_utime + used.ru_stime, 1),
               "unmask_s": round(one["secagg"]["unmask_s"], 2), "peak_kib": used.ru_maxrss, "bytes_down": one["secagg"]["bytes_down"],
               "bytes_up": one["secagg"]["bytes_up"], "all_bytes_up": result["bytes_up"], "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(figures))
    if len(sys.argv) > 4:
        keep(pathlib.Path(sys.argv[4]), figures)
    is_as_asked = steps["share"]["devices"] == n and steps["mask"]["dropped"] == round(LEAVE * n)
    return 0 if one["secagg"]["sum"] and not one["failed"] and is_as_asked else 1


if __name__ == "__main__":
    sys.exit(main())
