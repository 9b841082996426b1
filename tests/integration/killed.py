"""Kills a simulation that keeps moments, over and over: killed.py N SEED FOLDER COMMAND...

COMMAND is a run with --state FOLDER. It is started N times, and ended by SIGKILL each time: half of the time at a random place after
it has come to another moment, half of the time while it is just keeping one; the fleet, or where there is one its server. What is left
is for the caller to start once more, and to look at. Prints a line a kill. What fails is printed, and the exit status is 1.
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

PATIENCE_S = 600  # for a state to come about; not for the speed of anything


def settled(folder):
    """The number of the last moment that is whole; 0: none."""
    try:
        return int((folder / "simulation.settled").read_text())
    except (FileNotFoundError, ValueError):
        return 0


def kept(folder):
    """The highest number of a moment that is being kept, or is."""
    numbers = [int(name[5:]) for name in os.listdir(folder) if re.fullmatch(r"kept-\d+", name)] if folder.is_dir() else []
    return max(numbers, default=0)


def stamp(folder):
    """When that was begun; None: never."""
    try:
        return (folder / f"kept-{kept(folder)}").stat().st_ino, (folder / f"kept-{kept(folder)}").stat().st_ctime_ns
    except FileNotFoundError:
        return None


def wait(reached, process):
    """Until reached(); ends the test if the run ends before, or nothing happens."""
    until = time.monotonic() + PATIENCE_S
    while not reached():
        if process.poll() is not None:
            sys.exit(f"killed.py: the run ended by itself: {process.returncode}, {process.stderr.read()}")
        if time.monotonic() > until:
            sys.exit(f"killed.py: no other moment within {PATIENCE_S} s")
        time.sleep(0.0005)


def victim_of(process, draw):
    """The fleet, or its server."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    server = children.read_text().split() if children.exists() else []
    return int(draw.choice(server + [str(process.pid)]))


def kill_once(folder, command, draw):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    before, begun = settled(folder), stamp(folder)
    if draw.random() < 0.5:
        wait(lambda: settled(folder) > before, process)
        time.sleep(draw.random() * 0.3)
        how = "after a moment"
    else:
        wait(lambda: kept(folder) > before and stamp(folder) not in (None, begun), process)
        time.sleep(draw.random() * 0.004)
        how = "while one is kept"
    victim = victim_of(process, draw)
    os.kill(victim, signal.SIGKILL)
    _, said = process.communicate()
    by_itself = victim == process.pid or process.returncode == 1 and len(said.splitlines()) == 1
    if not by_itself:
        sys.exit(f"killed.py: without its server a run ended with {process.returncode} and: {said}")
    print(f"{how}: the {'fleet' if victim == process.pid else 'server'}, moment {settled(folder)} is whole")


def main():
    n_kills, seed, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    draw = random.Random(seed)
    for _ in range(n_kills):
        kill_once(folder, sys.argv[4:], draw)
    if n_kills > 1 and kept(folder) == 0:
        sys.exit("killed.py: no moment was kept")


if __name__ == "__main__":
    main()
