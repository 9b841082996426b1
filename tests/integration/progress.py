#!/usr/bin/env python3
"""The progress line of the programs, on a pseudo-terminal: what it says, how often, and that it is gone at the end.

    progress.py BIN    the folder of the programs

Nothing depends on how fast the machine is: each case runs until its line has been seen, and is then interrupted, and a file
that is read too quickly for a line is made larger.
"""
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

MOST_A_SECOND = 5
PATIENCE_S = 120
RATE = r", [\d.e+]+/s, [\d.]+ (s|min|h) left"
failures = []


def complain(text):
    failures.append(text)
    print("FAILED: " + text)


def screen_after(text):
    """The last row of a terminal that got the text: a carriage return goes back, what follows overwrites."""
    row, column = [], 0
    for char in text:
        if char == "\n":
            row, column = [], 0
        elif char == "\r":
            column = 0
        else:
            row[column:column + 1] = char
            column += 1
    return "".join(row).rstrip()


class Run:
    """A program whose standard error is a terminal; its standard output is a file, or that terminal too."""

    def __init__(self, folder, command, out_is_terminal=False, columns=200):
        self.command = command
        self.text = ""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.began = time.monotonic()
        out = slave if out_is_terminal else open(folder / "out", "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=slave, cwd=folder)
        os.close(slave)

    def read(self):
        """More of what the terminal got; False at its end."""
        if not select.select([self.master], [], [], PATIENCE_S)[0]:
            return False
        try:
            more = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            return False
        self.text += more.decode()
        self.ended = time.monotonic()
        return bool(more)

    def until(self, pattern):
        """Whether the pattern came before the program's end."""
        while not re.search(pattern, self.text):
            if not self.read() or self.ended > self.began + PATIENCE_S:
                return False
        return True

    def end(self, number=signal.SIGINT):
        if number is not None:
            self.process.send_signal(number)
        while self.read():
            pass
        os.close(self.master)
        return self.process.wait()

    def check(self, has_rest):
        """Of a program that ended by itself: not too often, and nothing of the line is left but its own messages."""
        n_lines = len(re.findall(r"\r(?=\S)", self.text.replace("\r\n", "\n")))
        if n_lines > MOST_A_SECOND * (self.ended - self.began):
            complain("%s: %d lines in %.1f s" % (self.command, n_lines, self.ended - self.began))
        rest = screen_after(self.text.replace("\r\n", "\n"))
        if rest and not has_rest:
            complain("%s: the terminal ends with %r" % (self.command, rest))


def case(folder, name, command, pattern, number=signal.SIGINT, checks=True):
    run = Run(folder, command)
    is_there = run.until(pattern)
    run.end(number)
    if not is_there:
        complain("%s: no %r in %r" % (name, pattern, run.text[-500:]))
    elif checks:
        run.check(False)
    print("%s: %s" % (name, "seen" if is_there else "MISSING"))
    return is_there


def reading(folder, train):
    """A table that is large enough for a line."""
    block = "".join("%d,%d,%d,%d\n" % (i % 7, i * i % 11, i % 13, i % 3) for i in range(10000))
    for megabytes in (16, 64, 256, 1024):
        with open(folder / "big.csv", "w") as out:
            for _ in range(megabytes * 1000000 // len(block)):
                out.write(block)
        run = Run(folder, [train, "--model", "har_mlp", "--dataset", "csv:big.csv", "--steps", "1"])
        is_there = run.until(r"reading csv:big.csv +[\d.]+ %  [\d.]+ of [\d.]+ MB, [\d.]+ MB/s, [\d.]+ (s|min) left")
        run.end(signal.SIGKILL)
        if is_there:
            break
    (folder / "big.csv").unlink()
    print("reading: %s" % ("seen" if is_there else "MISSING"))
    if not is_there:
        complain("reading a table of 1 GB has no line")


def resumed(folder, small):
    """The total is what the run still has to go: whole epochs, the last batch of each with what is left, less what is done."""
    first = [*small, "--epochs", "1000000", "--steps", "70", "--checkpoint", "a.ckpt"]
    done = subprocess.run(first, cwd=folder, capture_output=True, text=True)
    n = int(re.search(r": (\d+) examples", done.stdout).group(1))
    run = Run(folder, [*small, "--epochs", "1000000", "--resume", "a.ckpt"])
    if not run.until(r"of (\d+) examples,"):
        complain("resumed: no line: %r, after %r" % (run.text, done.stderr))
    elif int(re.search(r"of (\d+) examples,", run.text).group(1)) != 1000000 * n - 70 * 8:
        complain("resumed: %d examples, 70 steps of 8 done: %r" % (n, run.text[:200]))
    run.end(signal.SIGKILL)
    print("resumed: looked at")


def silent(folder, train):
    """No line in a pipe, nor beside results on the terminal."""
    small = [train, "--model", "lenet5", "--writers", "12", "--steps", "800", "--seed", "1"]
    done = subprocess.run(small, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0 or done.stderr or "\r" in done.stdout:
        complain("in a pipe: status %d, %r" % (done.returncode, done.stderr[:200]))
    run = Run(folder, [*small, "--json", "-"], out_is_terminal=True)
    run.end(None)
    if re.search(r"\r(?!\n)", run.text):
        complain("--json -: a line on the terminal: %r" % run.text[:200])
    print("silent: looked at")


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    train, fleet, study = (str(programs / name) for name in ("dunlin-train", "dunlin-fleet", "dunlin-study"))
    small = [train, "--model", "lenet5", "--writers", "12", "--batch", "8", "--seed", "3"]
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError as error:
        print("skipped: this system gives no pseudo-terminal: %s" % error)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ.pop("DUNLIN_DATA", None)
        # Interrupted training ends with a message of its own, after the line was wiped.
        training = Run(folder, [*small, "--epochs", "1000000"])
        if not training.until(r"training +[\d.]+ %  \d+ of \d+ examples" + RATE + r"  loss [\d.]+"):
            complain("training: no line: %r" % training.text)
        if training.end() != 1 or not screen_after(training.text.replace("\r\n", "\n")) == "":
            complain("training: the terminal ends with %r" % training.text[-200:])
        if not re.search(r"\r +\rdunlin-train: [^\r]*stopped on request", training.text):
            complain("training: the line was not wiped before the message: %r" % training.text[-300:])
        training.check(True)
        narrow = Run(folder, [*small, "--epochs", "1000000"], columns=30)
        if not narrow.until(r"\rtraining [^\r]*\r") or max(map(len, re.split(r"[\r\n]+", narrow.text))) > 29:
            complain("a narrow terminal: %r" % narrow.text[:300])
        narrow.end(signal.SIGKILL)
        case(folder, "evaluating", [*small, "--epochs", "1000000", "--eval", "--eval-every", "1"],
             r"training +[\d.]+ %  \d+ of \d+ examples" + RATE + r"  evaluating, \d+ of \d+")
        case(folder, "hashing", [train, "--model", "lenet5", "--dataset", "random", "--max-examples", "100000000", "--json", "a.json"],
             r"hashing the examples +[\d.]+ %  \d+ of \d+ examples" + RATE, signal.SIGKILL, False)
        case(folder, "pricing", [train, "--model", "mobilenet_v2", "--image", "224", "--what-fits"],
             r"looking for the largest batches, \d+ s", signal.SIGKILL, False)
        resumed(folder, small)
        reading(folder, train)
        silent(folder, train)
        if os.path.exists(fleet):
            case(folder, "fleet", [fleet, "--serve", "--clients", "6", "--cohort", "3", "--rounds", "100000", "--batch", "8"],
                 r"federation +[\d.]+ %  \d+ of \d+ rounds" + RATE + r"  round \d+: \d+ of 3 updates", checks=False)
            case(folder, "enrolling", [fleet, "--serve", "--clients", "2000", "--cohort", "3", "--rounds", "1000", "--dataset", "synthetic", "--max-examples", "4000", "--batch", "1"],
                 r"enrolling +[\d.]+ %  \d+ of 2000 devices" + RATE, checks=False)
        if os.path.exists(study):
            case(folder, "study", [study, "max-batch", "--quick", "--out", "."],
                 r"study +[\d.]+ %  \d+ of \d+ units of work" + RATE, signal.SIGKILL, False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
