#!/usr/bin/env python3
"""A fleet that a signal ends leaves what was done: JSON and report with the rounds that closed, a line that says how many, a status that says interrupted.

    interrupted.py BIN    the folder of the programs
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 120
# With sanitizers: most of a round's time goes on the 3,000 examples of the test set, if they judge its model.
JUDGE = ["--validation", "60", "--judge", "validation"] if os.environ.get("DUNLIN_SHORT") else []


def check(is_right, text):
    if not is_right:
        raise AssertionError(text)


def run(fleet, folder, number, pattern, rounds):
    """Interrupted when its output has the pattern; exit status, output, JSON, report."""
    for name in ("run.json", "run.html"):
        (folder / name).unlink(missing_ok=True)
    command = [fleet, "--serve", "--clients", "6", "--cohort", "3", "--rounds", str(rounds), "--dataset", "synthetic", "--max-examples", "600", "--batch", "8", "--json", "run.json", "--report", "run.html", *JUDGE]
    out = folder / "out"
    with open(out, "wb") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file, env={**os.environ, "TMPDIR": str(folder)}, start_new_session=True)
    end = time.monotonic() + PATIENCE_S
    while pattern not in out.read_text():
        check(process.poll() is None and time.monotonic() < end, "%r never came: %s" % (pattern, out.read_text()))
        time.sleep(0.02)
    # As a terminal does it: to the whole group, which the server must not be in.
    os.killpg(process.pid, number)
    status = process.wait(timeout=PATIENCE_S)
    check((folder / "run.json").exists() and (folder / "run.html").exists(), "no results: " + out.read_text())
    return status, out.read_text(), json.loads((folder / "run.json").read_text()), (folder / "run.html").read_text()


def main():
    fleet = str(pathlib.Path(sys.argv[1]).resolve() / "dunlin-fleet")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number, word in ((signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")):
            status, out, result, report = run(fleet, folder, number, "round   3/100000", 100000)
            rounds = result["rounds"]
            check(status == 128 + number, "%s: the status is %d" % (word, status))
            check(result["interrupted"] is True and result["rounds_wanted"] == 100000, result)
            check([r["round"] for r in rounds] == list(range(1, len(rounds) + 1)) and len(rounds) >= 3, rounds)
            check("dunlin-fleet: interrupted by %s after %d of 100000 rounds" % (word, len(rounds)) in out, out)
            check("round %3d/100000" % len(rounds) in out, "the last round that closed is not printed: " + out)
            check(result["final_accuracy"] == rounds[-1]["accuracy"] and result["fleet"]["updates_accepted"] >= 3 * len(rounds), result)
            check('"interrupted":true' in report and "was interrupted after" in report, "the report says nothing of it")
            left = [path.name for path in folder.iterdir() if path.name not in ("out", "run.json", "run.html")]
            check(left == [], "%s: files are left: %s" % (word, left))
        # Before anything is done: no rounds, but still in order.
        status, out, result, report = run(fleet, folder, signal.SIGINT, "devices, ", 5)
        check(status == 130, "%d: %s" % (status, out))
        check("interrupted by SIGINT after %d of 5 rounds" % len(result["rounds"]) in out, out)
        # A run that ends by itself is none.
        done = subprocess.run([fleet, "--serve", "--clients", "2", "--cohort", "2", "--rounds", "1", "--dataset", "synthetic", "--max-examples", "60", "--json", "run.json"], cwd=folder, capture_output=True, text=True)
        check(done.returncode == 0 and "interrupted" not in json.loads((folder / "run.json").read_text()), done)
    print("interrupted.py: ok")


if __name__ == "__main__":
    main()
