#!/usr/bin/env python3
"""Draws results/memory_time.svg from results/figures.csv and results/torch.csv: what a step of MobileNetV2 takes in memory and in time.

    chart.py          needs python3-matplotlib (Debian)
"""

import csv
import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("chart.py: this python has no matplotlib (Debian: python3-matplotlib, /usr/bin/python3)")

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "dunlin"  # the same file at every run
from matplotlib import pyplot  # noqa: E402

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
LINE, TEXT = "#1f5f8b", "#333333"


def main():
    with (RESULTS / "figures.csv").open(newline="") as file:
        values = {row["name"]: float(row["value"]) for row in csv.DictReader(file) if row["id"] == "mobilenet_v2_memory"}
    with (RESULTS / "torch.csv").open(newline="") as file:
        torch = [row for row in csv.DictReader(file) if (row["network"], row["input"], row["batch"]) == ("mobilenet_v2", "224", "32")]
    points = [(values["whole_bytes"], 1.0)]
    points += [(float(name[len("ratio_") :]), value) for name, value in values.items() if name.startswith("ratio_")]
    points.sort()
    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    axes.plot(*zip(*points), "o-", color=LINE, label="Dunlin, the same weights at every point")
    for bytes_mib, ratio in points:
        axes.annotate("%.0f" % bytes_mib, (bytes_mib, ratio), textcoords="offset points", xytext=(4, 7), color=LINE, fontsize=9)
    axes.axvline(values["none_bytes"], color=TEXT, linestyle=":")
    along = {"rotation": 90, "ha": "right", "va": "center", "fontsize": 9}
    axes.text(values["none_bytes"] * 0.98, 1.5, "no memory shared: %.0f" % values["none_bytes"], color=TEXT, **along)
    if torch:
        axes.axvline(float(torch[0]["torch_mib"]), color="#b5542a", linestyle="--")
        label = "PyTorch %s, measured: %.0f" % (torch[0]["version"], float(torch[0]["torch_mib"]))
        axes.text(float(torch[0]["torch_mib"]) * 0.98, 1.5, label, color="#b5542a", **along)
    axes.set_xscale("log")
    ticks = [100, 200, 500, 1000, 2000, 5000]
    axes.set_xticks(ticks)
    axes.set_xticklabels(["%d" % tick for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(80, 6000)
    axes.set_ylim(0.9, 2.2)
    axes.set_xlabel("memory of a training step, MiB (logarithmic)")
    axes.set_ylabel("time, predicted, x the fastest")
    axes.set_title("MobileNetV2, 224 x 224, batch 32, exact batch norm", fontsize=11, color=TEXT)
    axes.legend(loc="upper left", frameon=False, fontsize=9, bbox_to_anchor=(0.25, 0.95))
    axes.grid(True, alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(RESULTS / "memory_time.svg", metadata={"Date": None})


main()
