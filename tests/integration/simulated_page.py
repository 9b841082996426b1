#!/usr/bin/env python3
"""The server's page while unequal devices are simulated: `simulated_page.py FOLDER_OF_PROGRAMS`.

Its classes, hours and accuracies are those of /v1/status, which are those of the run's file; they go on while the run does, at 1280 and at 400
pixels. Needs Chromium; 77 without it.
"""

import json
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import browser  # noqa: E402

PATIENCE_S = 120
CLASSES = ["2019-slowest", "2019-slow", "2019-middle", "2019-fast", "2019-fastest"]
CELLS = "return [...document.querySelectorAll('#classes tbody tr')].map(r => Object.fromEntries([...r.cells].map(c => [c.dataset.label, c.textContent])))"
HEAT = "return [...document.querySelectorAll('#hours rect.heat')].map(c => [c.dataset.row, Number(c.dataset.x), Number(c.dataset.n)])"
WIDE = "return [document.documentElement.scrollWidth, innerWidth]"


def check(is_right, text):
    if not is_right:
        raise AssertionError(text)


class Run:
    def __init__(self, programs):
        self.fleet = pathlib.Path(programs).resolve() / "dunlin-fleet"
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.running = None
        self.call("--make-devices", "120:phones2019", "--devices", "devices", "--seed", "2")
        self.call("--measure-costs", "costs", "--dataset", "synthetic", "--max-examples", "600", "--batch", "8")
        (self.folder / "out").touch()

    def call(self, *flags):
        subprocess.run([self.fleet, *flags], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def flags(self, rounds):
        return ["--serve", "--devices", "devices", "--costs", "costs", "--dataset", "synthetic", "--max-examples", "600", "--batch", "8", "--cohort", "4", "--over-select", "1.5",
                "--deadline", "600", "--rounds", str(rounds), "--lr", "0.05", "--windows", "600000:1200000", "--threads", "1", "--validation", "40", "--judge", "validation"]

    def start(self, rounds):
        with open(self.folder / "out", "wb") as out:
            self.running = subprocess.Popen([self.fleet, *self.flags(rounds), "--state", "state"], cwd=self.folder, stdout=out)

    def url(self):
        return "https://127.0.0.1:%s" % (self.folder / "state/port").read_text().strip()

    def status(self):
        context = ssl.create_default_context(cafile=str(self.folder / "state/server/ca.pem"))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        with opener.open(self.url() + "/v1/status", timeout=30) as answer:
            return json.load(answer)

    def wait(self, is_true, what):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            check(self.running.poll() is None, "the fleet has ended before " + what)
            if is_true():
                return
            time.sleep(0.2)
        raise AssertionError("nothing of %s within %d s" % (what, PATIENCE_S))

    def close(self):
        if self.running is not None and self.running.poll() is None:
            self.running.kill()
            self.running.wait()
        shutil.rmtree(self.folder, ignore_errors=True)  # the server ends by itself, maybe a little later


def has_begun(run):
    if not (run.folder / "state/simulated.json").exists():
        return False
    told = run.status()["simulated"]
    return told is not None and told["accuracy_round"] is not None and sum(c["accepted"] for c in told["classes"]) >= 8


def look_at_status(told):
    """What holds of every moment of a run."""
    check([c["name"] for c in told["classes"]] == CLASSES, told["classes"])
    check(sum(c["devices"] for c in told["classes"]) == 120 and told["period_s"] == 86400 and told["hours"] > 0, told)
    for one in told["classes"]:
        at_work = one["assigned"] - one["accepted"] - sum(one["dropped_by"].values())
        check(at_work >= 0 and sum(one["accepted_by_hour"]) == one["accepted"], one)
        check(0 <= one["accuracy"] <= 1 and 0 < one["accuracy_examples"] <= 256, one)
        check(one["devices"] > 0 and (one["bytes_up"] > 0 or one["accepted"] == 0), one)
    check(len(told["by_hour"]) == 24 and sum(h["accepted"] for h in told["by_hour"]) == sum(c["accepted"] for c in told["classes"]), told["by_hour"])
    check(0 < len(told["rounds"]) <= 40 and all(r["energy_j"] >= 0 for r in told["rounds"]), told["rounds"])


def look(window, run):
    check(window.wait("document.querySelectorAll('#classes tbody tr').length === 5", 60), "no classes on the page: %s" % window.complaints())
    run.running.send_signal(signal.SIGSTOP)  # the server goes on answering, and what it answers stays
    try:
        told = run.status()["simulated"]
        look_at_status(told)
        wanted = [[c["name"], x, n] for c in told["classes"] for x, n in enumerate(c["accepted_by_hour"])]
        check(window.wait("(() => { %s })().some(c => c[0] === 'ready')" % HEAT), "no hours")
        end = time.monotonic() + 20
        while [c for c in window.run(HEAT) if c[0] != "ready"] != wanted and time.monotonic() < end:
            time.sleep(0.5)
        heat = window.run(HEAT)
        check([c for c in heat if c[0] != "ready"] == wanted, "hours: %s, wanted %s" % (heat, wanted))
        check([c[2] for c in heat if c[0] == "ready"] == [h["ready"] for h in told["by_hour"]], heat)
        for cells, one in zip(window.run(CELLS), told["classes"]):
            check(cells["class"] == one["name"] and cells["counted"] == str(one["accepted"]) and abs(float(cells["accuracy"].split()[0]) - 100 * one["accuracy"]) < 0.006, (cells, one))
            check(cells["why not counted"] == (", ".join("%s %d" % e for e in one["dropped_by"].items()) or "–"), (cells, one))
        text = window.run("return document.getElementById('main').innerText")
        check("simulated time" in text and "of the model of round %d" % told["accuracy_round"] in text and "NaN" not in text and "undefined" not in text, text)
        wide, width = window.run(WIDE)
        check(wide <= width, "%d pixels wide in a window of %d" % (wide, width))
        window.run("document.querySelector('#hours svg').focus()")
        for key in ("\ue014", "\ue015", "\ue014"):
            window.call("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]})
        read = window.run("return document.querySelector('#hours .read').textContent")
        check(read == "hour 1, 2019-slowest: %d updates" % told["classes"][0]["accepted_by_hour"][1], "arrow keys read out %r" % read)
        check(window.complaints() == [], window.complaints())
    finally:
        run.running.send_signal(signal.SIGCONT)
    return sum(c["accepted"] for c in told["classes"])


def main():
    why = browser.missing()
    if why is not None:
        print("simulated_page.py: skipped: %s" % why)
        return 77
    run = Run(sys.argv[1])
    windows = []
    try:
        run.start(rounds=100000)
        run.wait(lambda: has_begun(run), "the first classes")
        check(run.url() in (run.folder / "out").read_text(), "the fleet does not say where its page is")
        windows = [browser.Browser(1280, 900), browser.Browser(400, 800, dark=True)]
        seen = []
        for window in windows:
            window.open(run.url() + "/")
            seen.append(look(window, run))
        run.wait(lambda: sum(c["accepted"] for c in run.status()["simulated"]["classes"]) > seen[0], "what came after the first look")
    finally:
        for window in windows:
            window.close()
        run.close()
    print("simulated_page.py: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
