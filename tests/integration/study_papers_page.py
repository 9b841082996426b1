#!/usr/bin/env python3
"""The report of dunlin-study in a browser: words and charts of what only the papers' studies have, over tables made up here.

study_papers_page.py BIN-FOLDER. Status 77 where there is no Chromium.
"""
import pathlib
import subprocess
import sys
import tempfile

import study_page

MIB = 1 << 20


def hybrid_rows(auto_ms):
    """One network in two budgets: the whole batch alone in the larger one, checkpointing and both in each of them."""
    def row(budget, technique, ms, needed, slices=0, ghost=0):
        fits = int(needed <= budget)
        return {"model": "cnn_bn", "image": 32, "batch": 32, "budget_bytes": budget * MIB, "budget_share": budget / 100, "technique": technique,
                "slice_asked": slices, "fits": fits, "needed_bytes": needed * MIB, "none_bytes": 420 * MIB, "state_bytes": 20 * MIB,
                **({"predicted_ms": ms, "predicted_samples_per_s": 32e3 / ms, "is_ghost": ghost} if fits else {})}
    return [row(b, *more) for b in (100, 50) for more in (("neither", 100.0, 90), ("checkpointing", 130.0, 50), ("both", 120.0, 40, 8, 1),
                                                           ("accumulation", 110.0, 60, 8, 1), ("auto", auto_ms, 40))]


def measure_rows(torch):
    """Batches 1 and 4 in 64 MiB: 10 and 30 ms a step with nothing shared, 8 and 20 by auto, PyTorch's times if it ran."""
    def row(batch, policy, ms, mib):
        their = {"torch_note": "python3 has no PyTorch with torchvision"} if torch is None else {
            "torch_step_ms": torch[batch], "torch_step_low_ms": torch[batch] * 0.99, "torch_step_high_ms": torch[batch] * 1.01, "torch_steps": 3,
            "torch_forward_ms": torch[batch] / 4, "torch_bytes": 40 * batch * MIB, "torch_fits": int(40 * batch <= 64), "torch_version": "9.9"}
        return {"model": "lenet5", "image": 28, "budget_bytes": 64 * MIB, "batch": batch, "policy": policy, "fits": int(mib <= 64),
                "needed_bytes": mib * MIB, "planned_bytes": mib * MIB, "time_cpu_ms": ms, "time_cpu_low_ms": ms * 0.99, "time_cpu_high_ms": ms * 1.01,
                "time_steps": 3, "time_forward_ms": ms / 5, **their}
    return [row(1, "none", 10.0, 30), row(1, "auto", 8.0, 10), row(4, "none", 30.0, 70), row(4, "auto", 20.0, 20)]


def precision_rows(seeds):
    """niti ends a point below float32 in half of its time, octo two points below in twice of it; the third round has the best accuracy."""
    return [{"setting": "federated", "model": "lenet5", "dataset": "made up", "precision": p, "seed": s, "round": n, "accuracy": end - 0.1 * (3 - n),
             "test_examples": 1000, "time_cpu_s": second * n, "operand_bytes": 8 * second * n, "is_synthetic": 0}
            for p, end, second in (("fp32", 0.9, 1.0), ("niti", 0.89, 0.5), ("octo", 0.88, 2.0)) for s in seeds for n in (1, 2, 3)]


def precision_steps():
    def row(model, p, ms, mib, **more):
        return {"table": "steps", "model": model, "batch": 16, "precision": p, "time_cpu_ms": ms, "time_cpu_low_ms": ms * 0.99, "time_cpu_high_ms": ms * 1.01,
                "time_steps": 3, "planned_bytes": mib * MIB, **more}
    refused = {"table": "steps", "model": "resnet18", "batch": 16, "precision": "niti", "refused": "no batch norm in integers"}
    return [row("lenet5", "fp32", 10.0, 40), row("lenet5", "niti", 5.0, 10), row("lenet5", "octo", 20.0, 20), row("resnet18", "fp32", 100.0, 80), refused,
            row("resnet18", "octo", 200.0, 40)]


def check_precision(browser, folder, page):
    claims = [study_page.claim_row("accuracy lost to float32, LeNet: niti", 2.14, 1.0, "holds", "points"),
              study_page.claim_row("a batch takes up to 8.3 times less time", 8.3, None, "not run here", time_ours=2.0, time_ours_low=1.9,
                                   time_ours_high=2.1, time_cases=1, time_cases_good=0, time_holds="holds in part")]
    words, seen = study_page.look(browser, folder, page, [("precision", precision_rows((1, 2)), {"steps": precision_steps(), "claims": claims})], {
        "files": "[...document.querySelectorAll('a')].map(a => a.getAttribute('href')).filter(h => h.endsWith('.csv'))"})
    study_page.check_page(seen, 8)
    study_page.in_text(
        words, "niti: a step takes 0.50 x (one case) the time of float32's; 0.25 x (one case) its memory",
        "octo: a step takes 2.00 x (median of 2 cases; 2.00 x to 2.00 x) the time of float32's", "niti has no step of resnet18: no batch norm in integers.",
        "This machine counts no energy", "federated: float32 ends at 90.0 %", "niti 89.0 % (-1.0 points; 1.00 x the rounds and 0.50 x the processor time to the accuracy that both reach)",
        "octo 88.0 % (-2.0 points", "a standard error of the test set is 0.9 points", "The paper's figures beside ours", "Of 2 figures, 1 holds, 1 holds in part", "8.30 x")
    study_page.not_in_text(words, "undefined", "NaN", "Infinity", "one seed does not decide it")
    study_page.check(seen["calls"]["files"] == ["precision.csv", "precision_steps.csv", "precision_claims.csv"], "files: %s" % seen["calls"]["files"])
    charts = {c["title"]: c for c in seen["charts"]}
    cost = charts["lenet5, federated: cost to the accuracy that both reach"]["sets"]
    study_page.check([[p["x"] for p in s["data"]] for s in cost] == [[0.5, 2], [0.5, 2]], "costs: %s" % cost)
    over = next(s for s in charts["lenet5, federated: accuracy over round"]["sets"] if s["label"] == "niti")["data"]
    study_page.check([p["x"] for p in over] == [1, 2, 3] and abs(over[-1]["y"] - 89) < 1e-6, "rounds: %s" % over)
    words, seen = study_page.look(browser, folder, page, [("precision", precision_rows((1,)), {"steps": []}), ], {})
    study_page.check_page(seen, 4)
    study_page.in_text(words, "one seed does not decide it")
    # Steps alone: a run that had no time for more.
    words, seen = study_page.look(browser, folder, page, [("precision", [], {"steps": precision_steps()})], {})
    study_page.check_page(seen, 4)
    study_page.in_text(words, "niti: a step takes 0.50 x")
    study_page.not_in_text(words, "undefined", "NaN")


def main():
    browser = study_page.find_browser()
    if browser is None:
        print("study_papers_page.py: skipped, Chromium is not installed")
        return study_page.SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([str(pathlib.Path(sys.argv[1], "dunlin-study")), "max-batch", "--quick", "--models", "lenet5", "--policies", "none",
                        "--data", "synthetic", "--out", folder], check=True, capture_output=True)
        page = pathlib.Path(folder, "report.html").read_text()
        words, seen = study_page.look(browser, folder, page, [("hybrid", hybrid_rows(100.0), {}), ("measure", measure_rows({1: 16.0, 4: 80.0}), {})], {})
        study_page.check_page(seen, 5)
        study_page.in_text(
            words, "with nothing shared a step takes 420 MiB", "at best 10.50 x less, and 20.00 x without the 20.0 MiB",
            "beside checkpointing alone in the same budget: 1.08 x (median of 2 cases; 1.08 x to 1.08 x) the speed, predicted",
            "auto: a step takes 5.00 x (median of 2 cases; 5.00 x to 5.00 x) as long as an inference", "PyTorch: 4.00 x",
            "auto beside PyTorch 9.9: a step at 3.00 x (median of 2 cases; 2.00 x to 4.00 x) its speed",
            "PyTorch's process takes 6.00 x (median of 2 cases; 4.00 x to 8.00 x) the memory of the plan",
            "none fits 1; auto fits 4, the largest that was tried; PyTorch fits 1", "Slices by checkpointing")
        study_page.not_in_text(words, "undefined", "NaN", "Infinity", "is slower than the fastest of them", "columns are empty")
        charts = {c["title"]: c for c in seen["charts"]}
        memory = next(c for title, c in charts.items() if "memory of a step by batch" in title)
        lines = {s["label"]: [p["y"] for p in s["data"]] for s in memory["sets"] if not s["isHelp"]}
        study_page.check(lines == {"none": [30, 70], "auto": [10, 20], "pytorch": [40, 160]}, "memory by batch: %s" % lines)
        speeds = next(c for title, c in charts.items() if "examples a second by budget" in title)
        both = next(s for s in speeds["sets"] if s["label"] == "both")["data"]
        study_page.check([p["x"] for p in both] == [50, 100], "budgets of both: %s" % both)
        words, seen = study_page.look(browser, folder, page, [("hybrid", hybrid_rows(140.0), {}), ("measure", measure_rows(None), {})], {})
        study_page.check_page(seen, 5)
        study_page.in_text(words, "PyTorch's columns are empty in 2 of 2 cases: python3 has no PyTorch with torchvision",
                           "auto is slower than the fastest of them: most for cnn bn in 100 MiB", "0.79 x of accumulation, which has ghost statistics and other weights")
        study_page.not_in_text(words, "undefined", "NaN", "beside PyTorch")
        words, seen = study_page.look(browser, folder, page, [("measure", measure_rows({1: 4.0, 4: 80.0}), {})], {})
        study_page.in_text(words, "PyTorch is faster than auto in 1 case: lenet5 at batch 1, 2.00 x")
        check_precision(browser, folder, page)
    print("study_papers_page.py: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
