#!/usr/bin/env python3
"""The report of dunlin-fleet in Chromium: `fleet_page.py FOLDER_OF_PROGRAMS`.

A plain run whose rounds overlap, so that it cannot be repeated, and a private one, whose server tells no counts, bytes, times and losses of devices: the page says so and draws no chart
without a value. Needs Chromium; 77 without it.
"""

import html
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from study_page import SKIPPED, find_browser  # noqa: E402

PROBE = """<script>
const shown = e => !e.closest("[hidden]");
const pre = document.createElement("pre");
pre.id = "seen";
pre.textContent = JSON.stringify({
  charts: Object.values(Chart.instances).filter(c => shown(c.canvas)).map(c => ({ id: c.canvas.id, sets: c.data.datasets.map(s => s.label),
    ticks: c.scales.y.ticks.map(t => t.label) })),
  notes: [...document.querySelectorAll(".note")].filter(shown).map(n => n.id),
  cells: [...document.querySelectorAll("#rounds tbody td")].map(c => c.textContent),
  figures: Object.fromEntries([...document.querySelectorAll(".figure")].map(f => [f.querySelector("span").textContent, f.querySelector("b").textContent])) });
document.body.append(pre);
</script></body>"""


def look(browser, folder, programs, *flags):
    page = pathlib.Path(folder, "page.html")
    said = subprocess.run([str(programs / "dunlin-fleet"), "--serve", "--clients", "8", "--cohort", "6", "--rounds", "2", "--max-examples", "320", *flags,
                    "--report", str(page), "--json", str(page.with_suffix(".json"))], check=True, capture_output=True, text=True, timeout=240).stdout
    page.write_text(page.read_text().replace("</body>", PROBE))
    made = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", "--virtual-time-budget=4000",
                           "--user-data-dir=" + os.path.join(folder, "profile"), "--dump-dom", page.as_uri()],
                          capture_output=True, text=True, timeout=240, check=False).stdout  # fmt: skip
    found = re.search(r'<pre id="seen">(.*?)</pre>', made, re.DOTALL)
    if not found:
        sys.exit("fleet_page.py: the page did not come to its end: " + made[-300:])
    is_told = "another run has other figures" in said
    seen = json.loads(html.unescape(found.group(1)))
    check(is_told == ("repeatable" in seen["notes"]) == ("--buffered" in flags), "whether it can be repeated: %s, %s" % (said, seen["notes"]))
    return seen, json.loads(page.with_suffix(".json").read_text())


def check(is_true, text):
    if not is_true:
        sys.exit("fleet_page.py: " + text)


def check_cells(seen):
    for cell in seen["cells"]:
        check(cell != "" and "NaN" not in cell and "undefined" not in cell, "a cell of the rounds says: '%s'" % cell)


def main():
    browser = find_browser()
    if browser is None:
        print("fleet_page.py: skipped, Chromium is not installed")
        return SKIPPED
    programs = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        seen, result = look(browser, folder, programs, "--buffered", "4")
        check_cells(seen)
        charts = {c["id"]: c for c in seen["charts"]}
        check(set(charts) == {"accuracy", "loss", "bytes", "memory"}, "charts: %s" % sorted(charts))
        for tick in charts["memory"]["ticks"] + charts["bytes"]["ticks"]:
            number = float(tick.split()[0])
            check(abs(number * 20 - round(number * 20)) < 1e-9, "a mark at no round number of bytes: " + tick)
        check(result["bytes_up"] > 0 and "MiB" in seen["figures"]["down and up in all"], "bytes: %s" % seen["figures"])
        seen, result = look(browser, folder, programs, "--dp", "1:0.5,delta=0.01,sampling=poisson")
        check_cells(seen)
        charts = {c["id"]: c for c in seen["charts"]}
        check(set(charts) == {"accuracy", "loss", "memory"} and charts["loss"]["sets"] == ["test loss"], "a private run draws: %s" % charts)
        check(seen["figures"]["down and up in all"] == "not told" and result["bytes_up"] is None, "a private run tells bytes: %s" % seen["figures"])
        check("0 B" not in seen["cells"] and "0.00 s" not in seen["cells"], "zero stands where nothing is told: %s" % seen["cells"])
    print("fleet_page.py: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
