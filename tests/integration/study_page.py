#!/usr/bin/env python3
"""The report of dunlin-study in a browser: its numbers, its words and its charts over tables made up here.

study_page.py BIN-FOLDER. The page is the program's own; the tables in it are replaced, so that what it must say is known:
values beyond an axis, measurements that scatter, one seed and two, a test set that is too small. Status 77 where there is no Chromium.
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
NAMES = ("chromium", "chromium-browser", "google-chrome")
NARROW = 400

# What the page says of itself, once it is drawn. Labels of ticks must lie on their canvas.
PROBE = """
<script>
const seen = { errors: window.wrong, calls: {}, charts: [], wide: [] };
const calls = CALLS;
for (const [name, text] of Object.entries(calls)) seen.calls[name] = (0, eval)(text);
for (const drawn of document.querySelectorAll(".chart canvas")) {
  const chart = Chart.getChart(drawn), pen = chart.ctx;
  const labels = [];
  for (const id of ["x", "y"]) {
    const scale = chart.scales[id];
    pen.font = "14px system-ui, sans-serif";
    for (const t of scale.ticks) {
      const half = pen.measureText(String(t.label)).width / 2, at = scale.getPixelForValue(t.value);
      labels.push({ axis: id, label: String(t.label), at, from: id === "x" ? at - half : scale.left, to: id === "x" ? at + half : scale.left + 2 * half });
    }
  }
  seen.charts.push({ title: drawn.getAttribute("aria-label"), width: chart.width, height: chart.height, labels,
    max: chart.scales.y.max, min: chart.scales.y.min, right: chart.chartArea.right,
    sets: chart.data.datasets.map(s => ({ label: s.label, isHelp: !!s.isHelp, color: s.borderColor, shape: (s.pointStyle || [])[0], data: s.data.map(({ real, ...p }) => p) })) });
}
document.body.style.width = "NARROWpx";
for (const e of document.querySelectorAll("main *")) {
  if (!e.closest(".scroll") && e.getBoundingClientRect().right > NARROW + 1 && !e.closest(".chart")) seen.wide.push(e.tagName + " " + e.className);
}
const whole = document.querySelector("main");
if (whole.scrollWidth > whole.clientWidth + 1) seen.wide.push(`all: ${whole.scrollWidth}`);
const out = document.createElement("pre");
out.id = "seen";
out.textContent = JSON.stringify(seen);
document.body.append(out);
</script>
</body>"""
CATCH = '<script>window.wrong = []; window.onerror = text => { window.wrong.push(String(text)); };</script>\n<script>'


def find_browser():
    return next((path for path in map(shutil.which, NAMES) if path), None)


def look(browser, folder, page, tables, calls, machine=None, named=()):
    """The page with other tables: what it shows as text, what the probe saw."""
    data = {"machine": {"version": "0", "cpu": "none", "cores": 1, "threads": 1, "costs": "roofline", "quick": False, "seed": 1,
                        **(machine or {})},
            "tables": [{"title": name, "question": "", "method": "", "command": "dunlin-study" + " --flag" * 40,
                        "columns": sorted(rows[0]) if rows else [],
                        "rows": rows, "name": name, **more} for name, rows, more in tables],
            "named": list(named)}
    text, n = re.subn(r"(?m)^<script>const study = .*;</script>$",
                      lambda _: "<script>const study = %s;</script>" % json.dumps(data).replace("<", "\\u003c"), page)
    if n != 1:
        sys.exit("study_page.py: the page has no place for its tables")
    text = text.replace("<script>", CATCH, 1)
    text = text.replace("</body>", PROBE.replace("CALLS", json.dumps(calls)).replace("NARROW", str(NARROW)))
    path = pathlib.Path(folder, "page.html")
    path.write_text(text)
    made = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", "--virtual-time-budget=4000",
                           "--user-data-dir=" + os.path.join(folder, "profile"), "--dump-dom", path.as_uri()],
                          capture_output=True, text=True, timeout=240, check=False).stdout
    found = re.search(r'<pre id="seen">(.*?)</pre>', made, re.DOTALL)
    if not found:
        sys.exit("study_page.py: the page did not come to its end: " + made[-300:])
    body = re.sub(r"(?s)<(script|style).*?</\1>|<pre id=.seen.*?</pre>", " ", made)
    words = html.unescape(re.sub(r"<[^>]*>", " ", body))
    return re.sub(r"\s+", " ", words), json.loads(html.unescape(found.group(1)))


def check(is_true, text):
    if not is_true:
        sys.exit("study_page.py: " + text)


def in_text(words, *texts):
    for text in texts:
        check(text in words, "the page does not say: %s; it says: %s" % (text, words[:6000]))


def not_in_text(words, *texts):
    for text in texts:
        at = words.find(text)
        check(at < 0, "the page says: ..." + words[max(0, at - 120):at + 120])


def curve_rows(outlier):
    points = [("sage", 80, 1.05), ("sage", 60, 1.10), ("melon", 80, 1.04), ("melon", 60, 1.12), ("pool", 100, 1.0), ("auto", 100, 1.0),
              ("auto", 60, 1.08), ("auto", 40, 1.2), ("vdnn", 70, outlier)]
    return [{"model": "lenet5", "policy": p, "budget_bytes": m << 20, "ideal_bytes": 100 << 20, "fits": 1, "needed_bytes": m << 20,
             "planned_bytes": m << 20, "predicted_ms": y, "ideal_ms": 1.0, "swap_bytes": 0, "swap_share": 0} for p, m, y in points]


def batch_rows():
    def row(policy, batch, price, ratio=None):
        is_any = batch == "any"
        return {"model": "lenet5", "budget_bytes": 1 << 20, "policy": policy, "max_batch": None if is_any else batch, "is_any": int(is_any),
                "ratio_predicted": None if is_any or not batch else price, "max_ratio": ratio, "price": price,
                "predicted_samples_per_s": 1000 / price if price else None}
    return [row("none", 0, None), row("pool", 10, 1.1), row("sage", 10000, 1.5), row("auto", "any", 4.0), row("auto within 1.3 x", 200, 1.25, 1.3)]


def step_rows(n, auto, sage):
    """Two policies with their median, least and most milliseconds."""
    return [{"model": "lenet5", "budget_bytes": 1 << 20, "batch": 16, "policy": policy, "fits": 1, "planned_bytes": 1, "predicted_ms": predicted,
             "predicted_samples_per_s": 1, "weights_hash": "a", "n_swapped": 0, "time_step_ms": ms[0], "time_cpu_ms": ms[0],
             "time_cpu_low_ms": ms[1], "time_cpu_high_ms": ms[2], "time_steps": n}
            for policy, predicted, ms in (("auto", 1.0, auto), ("sage", 2.0, sage))]


def learn_rows(seeds, tested, small, large, more=()):
    """Batch 8 without a planner and 64 with it, and `more` like that; the accuracy at the end of each seed."""
    return [{"model": "cnn_bn", "dataset": "made up", "variant": v, "policy": v.split()[0], "budget_bytes": 1 << 20, "batch": b, "lr": r,
             "seed": s, "epoch": e, "test_accuracy": ends[s - 1] * (0.6 + 0.2 * e), "test_examples": tested, "time_cpu_s": 1.0 * e,
             "time_train_s": 9.0 * e, "is_synthetic": 0}
            for v, b, r, ends in (("none in 60%", 8, 0.005, small), ("auto in 60%", 64, 0.02, large), *more) for s in seeds for e in (1, 2)]


def fleet_rows(seeds):
    return [{"model": "lenet5", "dataset": "made up", "partition": "iid", "algorithm": "fedavg", "batch_rule": rule, "batch": b, "lr": 0.04,
             "seed": s, "round": n, "accuracy": 0.2 * n, "target": 0.5, "is_reached": int(n >= needs), "wire_down_bytes": n, "wire_up_bytes": n,
             "time_wall_s": n, "is_synthetic": 0}
            for rule, b, needs in (("most, none", 4, 3), ("most, auto", 32, 2)) for s in seeds for n in (1, 2, 3)]


def unequal_rows(seeds):
    """Devices equal, with unequal data, and unequal in all; FedAvg and rounds that overlap."""
    return [{"model": "lenet5", "dataset": "made up", "condition": condition, "algorithm": algorithm, "seed": s, "round": n, "accuracy": end * n / 3,
             "sim_hours": hours * n, "late": 2 * n, "surplus": 0, "conditions": n, "failure": 0, "memory": 0, "is_synthetic": 0,
             **({"end": "finished", "assigned": 30, "worst_tenth": end / 2, "class_least": end - 0.1, "class_most": end} if n == 3 else {})}
            for condition, end, hours in (("none", 0.9, 1.0), ("data", 0.8, 1.0), ("all", 0.7, 2.0))
            for algorithm in ("fedavg", "buffered") if algorithm == "fedavg" or condition == "all" for s in seeds for n in (1, 2, 3)]


def claim_row(figure, paper, ours, word, unit="x", **more):
    low, high = more.pop("ranges", (ours, ours))
    return {"study": "melon", "figure": figure, "source": "abstract", "part": "curve", "statistic": "mean", "unit": unit, "paper": paper, "ours": ours,
            "ours_low": low, "ours_high": high, "cases": 0 if ours is None else 3, "cases_good": 1, "holds": word,
            "rule": "holds: at least 2; in part: above 1", "differs": "a desk, not a phone", **more}


def named_study():
    rows = [claim_row("batch that fits", 4.33, 5.0, "holds", statistic="up to", best_case="lenet5: batch 50, vdnn 10"),
            claim_row("work saved", 78.59, 49.3, "holds in part", "%", ranges=(40.0, 60.0)),
            claim_row("accuracy gained", None, -1.5, "does not hold", "points", statistic="each case"),
            claim_row("energy saved", 49.43, None, "not run here", "%"),
            claim_row("speed", 1.89, 2.0, "holds", time_ours=0.9, time_ours_low=0.8, time_ours_high=0.95, time_cases=3, time_cases_good=0,
                      time_holds="does not hold")]
    return {"name": "melon", "title": "Melon, figure by figure", "question": "?", "method": "!", "command": "dunlin-study melon" + " --flag" * 40,
            "columns": sorted(rows[0]), "rows": rows}


CALLS = {
    "clip": "clipAt([1, 1.02, 1.05, 1.08, 1.1, 1.2, 4.2])",
    "no_clip": "clipAt([1, 1.5, 2, 2.5, 3, 3.5, 4.2])",
    "few": "clipAt([1, 1, 9])",
    "told": "ratioOf({mid: 2, low: 1.9, high: 2.1, n: 3}, {mid: 1, low: 0.98, high: 1.02, n: 3})",
    "refused": "ratioOf({mid: 1.1, low: 1, high: 1.3, n: 3}, {mid: 1, low: 0.9, high: 1.05, n: 3})",
    "wide": "ratioOf({mid: 1.2, low: 1.15, high: 3, n: 3}, {mid: 1, low: 1, high: 1.02, n: 3})",
    "single": "ratioOf({mid: 9, low: 9, high: 9, n: 1}, {mid: 1, low: 1, high: 1, n: 1})",
    "error": "standardError(0.8, 400)",
    "ticks": "niceTicks(57, 104, true)",
    "line": "niceTicks(0, 1.2)",
    "zero": "axisAround(10, 80)",
    "cut": "axisAround(70, 80)",
    "one": "told([1.5], times)",
    "wait": "timing({time_cpu_ms: 5, time_cpu_low_ms: 4, time_cpu_high_ms: 6, time_steps: 3, time_swap_out_ms: 2, time_swap_in_ms: 1})",
}


def check_numbers(calls):
    check(calls["clip"] == {"limit": 1.2, "isClipped": True}, "an outlier is not cut off: %s" % calls["clip"])
    check(not calls["no_clip"]["isClipped"] and not calls["few"]["isClipped"], "values without an outlier are cut off")
    check(calls["told"]["isTold"] and abs(calls["told"]["value"] - 2) < 1e-9, "a ratio that is clear is refused")
    for name in ("refused", "wide", "single"):
        check(not calls[name]["isTold"], "a ratio that the repeats leave open is told: %s" % name)
    check(abs(calls["error"] - 0.02) < 1e-9, "the standard error of 80 %% of 400 is %s" % calls["error"])
    check(len(calls["ticks"]) >= 4 and min(calls["ticks"]) >= 57 and max(calls["ticks"]) <= 104, "ticks: %s" % calls["ticks"])
    check(calls["line"][0] == 0 and len(calls["line"]) >= 4, "ticks: %s" % calls["line"])
    check(calls["zero"]["min"] == 0 and not calls["zero"]["isCut"] and calls["cut"]["isCut"] and calls["cut"]["min"] > 60, "axes")
    check("median" not in calls["one"] and "one case" in calls["one"], "a median of one: " + calls["one"])
    check(calls["wait"] == {"mid": 8, "low": 7, "high": 9, "n": 3}, "waiting for a file: %s" % calls["wait"])


def check_page(seen, n_charts):
    check(not seen["errors"], "errors of the page: %s" % seen["errors"])
    check(len(seen["charts"]) == n_charts, "%d charts, not %d: %s" % (len(seen["charts"]), n_charts, [c["title"] for c in seen["charts"]]))
    check(not seen["wide"], "wider than %d pixels: %s" % (NARROW, seen["wide"][:5]))
    for chart in seen["charts"]:
        check(any(s["data"] for s in chart["sets"]), "nothing is drawn in " + chart["title"])
        for tick in chart["labels"]:
            check(tick["from"] >= -0.5 and tick["to"] <= chart["width"] + 0.5, "%s: the label %s is cut off" % (chart["title"], tick["label"]))


def check_two_seeds(words, seen):
    charts = {c["title"]: c for c in seen["charts"]}
    in_text(words, "Beyond the axis (wedges at its edge): vdnn 4.20 x at 70.0 MiB.", "The upright axis does not begin at 0",
            "Not even one example fits: none.", "any 4.00 x", "auto runs at 2.00 x its speed in the 1 case", "auto in 60%: batch 64, rate 0.02",
            "learns best, in every one of 2 seeds", "Band: the range of 2 seeds.", "one standard error of the test set (1000 examples)",
            "in fewer rounds than the 4 that fit without it, in every one of 2 seeds", "Left out: 1 of 7 parts of curve", "curve lenet5 melon",
            "over processor seconds", "after 15 minutes")
    check(charts["lenet5"]["max"] < 2, "the outlier sets the axis of the curve: %s" % charts["lenet5"]["max"])
    ticks = {t["label"]: t["at"] for t in charts["lenet5 in 1.00 MiB"]["labels"] if t["axis"] == "x"}
    check("any" in ticks and all(at < ticks["any"] for label, at in ticks.items() if label != "any"), "'any' is no field of its own: %s" % ticks)
    points = {s["label"]: s["data"] for s in charts["lenet5 in 1.00 MiB"]["sets"] if s["data"] and not s["isHelp"]}
    check(points["auto"][0]["x"] > 1.2 * points["sage"][0]["x"], "the point of 'any' stands beside a batch of 10000: %s" % points)
    learnt = charts["the batch each policy affords: over epochs"]
    last = next(s for s in learnt["sets"] if s["label"].startswith("auto"))["data"][-1]
    error = 100 * (0.79 * 0.21 / 1000) ** 0.5
    check(abs(last["y"] - 79) < 1e-6 and abs(last["highY"] - 79 - error) < 1e-6, "the standard error is not drawn: %s" % last)
    check(sum(s["isHelp"] for s in learnt["sets"]) == 4, "bands: %s" % [s["label"] for s in learnt["sets"]])


def main():
    browser = find_browser()
    if browser is None:
        print("study_page.py: skipped, Chromium is not installed")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([str(pathlib.Path(sys.argv[1], "dunlin-study")), "max-batch", "--quick", "--models", "lenet5", "--policies", "none",
                        "--data", "synthetic", "--out", folder], check=True, capture_output=True)
        page = pathlib.Path(folder, "report.html").read_text()
        clear = step_rows(3, (1.0, 0.99, 1.01), (2.0, 1.98, 2.02))
        words, seen = look(browser, folder, page, [
            ("max-batch", batch_rows(), {}), ("throughput", clear, {}), ("curve", curve_rows(4.2), {"n_parts": 7, "left_out": ["curve lenet5 melon"]}),
            ("convergence", learn_rows((1, 2), 1000, (0.6, 0.62), (0.78, 0.8)), {}), ("federated", fleet_rows((1, 2)), {})], CALLS,
            {"max_minutes": 15})
        check_numbers(seen["calls"])
        check_page(seen, 6)
        check_two_seeds(words, seen)
        noisy = step_rows(3, (1.0, 0.7, 1.3), (1.1, 0.8, 1.5))
        words, seen = look(browser, folder, page, [
            ("throughput", noisy, {}), ("curve", curve_rows(1.15), {}), ("convergence", learn_rows((1,), 1000, (0.6,), (0.8,)), {}),
            ("federated", fleet_rows((1,)), {})], {})
        check_page(seen, 5)
        in_text(words, "the measured ratio is refused: the steps scatter more than they differ", "one seed does not decide it", "One seed: no band")
        not_in_text(words, "in every", "median of 1", "Beyond the axis", "Left out", "undefined", "NaN")
        words, seen = look(browser, folder, page, [("heterogeneity", unequal_rows((1, 2)), {})], {})
        check_page(seen, 6)
        in_text(words, "FedAvg, unequal in data: 80.0 % at the end against 90.0 % of equal devices", "the worst tenth of devices has 40.0 % against 45.0 %",
                "cost FedAvg 6.7 points of accuracy over the last five rounds and 2.00 x (median of 2 cases", "30.0 % of the devices that had work drop out", "buffered, all unequal: 70.0 % (FedAvg 70.0 %)")
        not_in_text(words, "undefined", "NaN", "one seed does not decide it")
        # Beside them a row for each setting, and a paper's directions with a word for each.
        setting = {"condition": "hardware, data", "algorithm": "tiers", "runs": 3, "reached": 2, "target": 0.8, "mean_accuracy": 0.75, "sd_accuracy": 0.02,
                   "mean_worst_tenth": 0.5, "mean_round_to_target": 10.5, "mean_sim_hours_to_target": 1.25, "mean_assigned": 50, "mean_late": 10,
                   "mean_conditions": 5, "mean_failure": 0, "mean_memory": 1, "mean_devices_counted": 30}
        never = {**setting, "condition": "all", "runs": 1, "reached": 0, "sd_accuracy": None, "mean_round_to_target": None, "mean_sim_hours_to_target": None}
        words, seen = look(browser, folder, page, [("heterogeneity", unequal_rows((1,)), {"summary": [setting, never], "directions": [
            claim_row("accuracy lost", 9.2, 4.0, "holds in part", "points", statistic="up to", best_case="tiers"), claim_row("worst tenth", None, -0.6, "does not hold", "points")]})], {})
        check_page(seen, 6)
        in_text(words, "one seed does not decide it", "Of 2 figures, 1 holds in part, 1 does not hold", "up to 9.2 points", "Does not hold: worst tenth: -0.6 points.",
                "tiers hardware, data 75.0 % ± 2.0 50.0 % 10.5 2 of 3 runs 1.25 2 of 3 runs 50 20.0 % 10.0 % 0.0 % 2.0 % 30.0", "tiers all 75.0 % 50.0 % 0 of 1 run 0 of 1 run 50")
        not_in_text(words, "undefined", "NaN", "null")
        words, seen = look(browser, folder, page, [
            ("throughput", step_rows(1, (1.0, 1.0, 1.0), (9.0, 9.0, 9.0)), {}),
            ("convergence", learn_rows((1, 2), 20, (0.6, 0.61), (0.62, 0.63)), {})], {})
        in_text(words, "a single step says nothing", "the test set is too small to tell them apart")
        not_in_text(words, "in every", "learns best", "9.00 x")
        check_page(seen, 3)
        # Several batches of one policy are told apart, and the best of them stands beside the best of the others.
        missing = {**learn_rows((1,), 1000, (0.6,), (0.8,))[0], "variant": "none in 60%, batch 32", "batch": 0, "lr": 0, "test_accuracy": None}
        words, seen = look(browser, folder, page, [("convergence", [missing, *learn_rows((1, 2), 1000, (0.5, 0.52), (0.7, 0.72), [
            ("auto in 60%, batch 32", 32, 0.01, (0.8, 0.82))])], {})], {})
        in_text(words, "batch 32: that batch does not fit", "the batch that auto affords, 32, learns best, in every one of 2 seeds: 30.0 points more than 51.0 % with the 8 that none affords",
                "the largest is not the best: 81.0 % with 32, 71.0 % with 64", "auto in 60%, batch 32, rate 0.01")
        looks = {(s["color"], s["shape"]) for s in seen["charts"][0]["sets"] if not s["isHelp"]}
        check(len({color for color, _ in looks}) == 3 and len({shape for _, shape in looks}) == 3, "curves look alike: %s" % looks)
        # A paper's figures: by what was measured where something was; a part's files have the study's name.
        words, seen = look(browser, folder, page, [("curve", curve_rows(1.15), {}), ("curve", curve_rows(1.15), {"named": "melon"})], {
            "files": "[...document.querySelectorAll('a')].map(a => a.getAttribute('href')).filter(h => h.endsWith('.csv'))",
            "heads": "[...document.querySelectorAll('h2')].map(h => h.id)",
            "dots": "[...document.querySelectorAll('.claims td.word')].map(c => c.className)",
            "folded": "[...document.querySelectorAll('details')].filter(d => d.querySelector('.claims')).map(d => d.querySelector('summary').textContent)",
        }, named=[named_study()])
        check_page(seen, 2)
        in_text(words, "Of 5 figures, 1 holds, 1 holds in part, 2 do not hold, 1 not run here", "up to 4.33 x", "the best of 3 cases: lenet5: batch 50, vdnn 10",
                "49.3 % (40.0 % to 60.0 %)", "mean of 3 cases, 1 at the bar", "no number known", "Does not hold: accuracy gained: -1.5 points.",
                "Does not hold: speed: 0.90 x (0.80 x to 0.95 x) (measured) against 1.89 x.", "planned or counted; mean of 3 cases, 1 at the bar: holds",
                "a desk, not a phone", "melon: curve")
        not_in_text(words, "undefined", "NaN", "null")
        check(seen["calls"]["heads"] == ["curve", "melon", "melon_curve"], "sections: %s" % seen["calls"]["heads"])
        check(seen["calls"]["files"] == ["curve.csv", "melon_claims.csv", "melon_curve.csv"], "files: %s" % seen["calls"]["files"])
        check(seen["calls"]["dots"] == ["word w0", "word w1", "word w2", "word w2", "word w3"], "words: %s" % seen["calls"]["dots"])
        check(seen["calls"]["folded"] == ["1 figure not run here"], "folded: %s" % seen["calls"]["folded"])
    print("study_page.py: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
