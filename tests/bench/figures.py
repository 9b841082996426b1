#!/usr/bin/env python3
"""Measurements as data: runs commands, keeps their figures in results/figures.csv, and writes the READMEs' rows from it.

    figures.py measure BIN [ID...]   runs the commands of figures.json (all, or those named) and replaces their rows;
                                     DUNLIN_DATA names the folder with the real data sets, without it what needs one is skipped
    figures.py write                 fills the parts of README.md and tests/bench/FIGURES.md between "figures: NAME" and "end"
    figures.py check                 says which part is not what the data give (1), as the test `figures` does

A row of figures.csv is one figure: id, name, value, processor, commit, date, command. A row of a page is marked "(older)" if a
commit since then touched a layer that it depends on; `check` does not look at that mark, since every commit would change it.
`before` are commands without figures, run first, and a word TMP/NAME is a file in a folder of the measurement's own.
In figures.json `take` names a member of the command's JSON: a path with dots, `a/b` a quotient, `|mib`, `|kib`, `|mb`, `|us` (of ns) a unit.
results/torch.csv, by compare_torch.py, results/onnx_*.csv, by tests/models, results/own_images.csv, by own_images.py, and
results/predict.csv, by compare_predict.py, results/ablations.csv, by ablate.py, results/compress.csv, by compress.py,
results/integers.csv, by integers.py, results/neon.csv, by neon.py, results/storage_plans.csv, by storage_plans.py, results/storage_accuracy.csv, by storage_accuracy.py,
results/secure.csv, by secure.py, results/torch_curve.csv, by torch_curve.py, and results/secagg_thousand.csv, by secagg_thousand.py, are tables of their own; the parameters of the ready-made networks are those of
tests/golden/data/zoo.txt, which tests/golden/make_zoo.py writes. `beside` names a row of predict.csv, and {torch} is then how many times faster than PyTorch it is.
"""

import csv
import datetime
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

import integers_rows
import kept_rows
import neon
import storage_accuracy
import storage_plans

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLE = HERE / "results" / "figures.csv"
TORCH = HERE / "results" / "torch.csv"
NETWORKS = HERE / "results" / "onnx_networks.csv"
STEPS = HERE / "results" / "onnx_steps.csv"
DOZEN = HERE / "results" / "onnx_dozen.csv"
DOZEN_NEWER = HERE / "results" / "onnx_dozen_torch26.csv"
PUBLISHED = HERE / "results" / "onnx_published.csv"
ZOO = ROOT / "tests" / "golden" / "data" / "zoo.txt"
PREDICT = HERE / "results" / "predict.csv"
OWN_IMAGES = HERE / "results" / "own_images.csv"
ABLATIONS = HERE / "results" / "ablations.csv"
COMPRESS = HERE / "results" / "compress.csv"
INTEGERS = HERE / "results" / "integers.csv"
CURVE = HERE / "results" / "torch_curve.csv"
DIRECTIONS = HERE / "results" / "heterogeneity_directions.csv"
SECURE = HERE / "results" / "secure.csv"
THOUSAND = HERE / "results" / "secagg_thousand.csv"
COLUMNS = ["id", "name", "value", "processor", "commit", "date", "command"]
PAGES = [ROOT / "README.md", HERE / "FIGURES.md", ROOT / "trainer" / "README.md", ROOT / "trainer" / "INTEGERS.md",
         ROOT / "trainer" / "STORAGE.md", ROOT / "samples" / "README.md", ROOT / "sdk" / "SECAGG.md", ROOT / "server_mock" / "PRIVACY.md"]
UNITS = {"mib": 1048576.0, "kib": 1024.0, "mb": 1e6, "us": 1e3}
OLDER = " (older)"


def measurements():
    return json.loads((HERE / "figures.json").read_text())


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout.strip()


def rows():
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def processor():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    best = next((isa for isa, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in flags), "SSE2")
    return "%s, %s" % (found.group(1) if found else "unknown", best)


def member(value, path):
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def take(document, rule):
    rule, _, unit = rule.partition("|")
    parts = [member(document, path) for path in rule.split("/")]
    value = parts[0] / parts[1] if len(parts) == 2 else parts[0]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value / UNITS[unit] if unit else value


def measure(folder, names):
    kept = rows()
    data = os.environ.get("DUNLIN_DATA")
    chosen = [one for one in measurements() if not names or one["id"] in names]
    unknown = set(names) - {one["id"] for one in chosen}
    if unknown:
        sys.exit("figures.py: figures.json has no %s" % ", ".join(sorted(unknown)))
    for one in chosen:
        made = []
        own = tempfile.TemporaryDirectory()
        for run in one["runs"]:
            if " DIR" in run["command"] and not data:
                print("%s: skipped, DUNLIN_DATA names no folder" % one["id"])
                made = None
                break
            for command in [*run.get("before", []), run["command"]]:
                words = [data if word == "DIR" else re.sub("^TMP/", own.name + "/", word) for word in shlex.split(command)]
                done = subprocess.run([str(folder / words[0]), *words[1:]], capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit("%s: %s: status %d: %s" % (one["id"], command, done.returncode, done.stderr.strip()[-300:]))
            document, _ = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("{"))
            for name, rule in run["take"].items():
                made.append(
                    {
                        "id": one["id"],
                        "name": name,
                        "value": take(document, rule),
                        "processor": processor(),
                        "commit": git("rev-parse", "--short", "HEAD"),
                        "date": datetime.date.today().isoformat(),
                        "command": "; ".join([*run.get("before", []), run["command"]]),
                    }
                )
        if made is None:
            continue
        kept = [row for row in kept if row["id"] != one["id"]] + made
        order = {known["id"]: i for i, known in enumerate(measurements())}
        kept.sort(key=lambda row: order.get(row["id"], len(order)))
        with TABLE.open("w", newline="") as file:  # after each, so that a series that is cut off is not lost
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)
        print("%s: %s" % (one["id"], says(one, kept)))


def number(text):
    try:
        return int(str(text))
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def says(one, table):
    values = {row["name"]: number(row["value"]) for row in table if row["id"] == one["id"]}
    if "same" in one:
        values["same"] = "yes" if len({values[name] for name in one["same"]}) == 1 else "NO"
    for row in predictions() if "beside" in one else []:
        if row["network"] == one["beside"]:
            values["torch"] = float(row["torch_ms"]) / float(row["ms"])
    return one["says"].format(**values)


def is_older(commit, layers):
    """Whether a commit after `commit` touched one of the layers; a commit that this clone does not have counts as older."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "log", "--oneline", "-1", "%s..HEAD" % commit, "--", *layers], capture_output=True, text=True
    )
    return done.returncode != 0 or done.stdout.strip() != ""


def figure_table(is_first, ids=None):
    """The rows of figures.csv, those of the first page, or those of some measurements."""
    table = rows()
    lines = ["| what | figure |", "|---|---|"] if is_first else ["| what | figure | command | measured |", "|---|---|---|---|"]
    for one in measurements():
        own = [row for row in table if row["id"] == one["id"]]
        if not own or (is_first and not one["first"]) or (ids and one["id"] not in ids):
            continue
        mark = OLDER if any(is_older(commit, one["layers"]) for commit in {row["commit"] for row in own}) else ""
        if is_first:
            lines.append("| %s | %s%s |" % (one["what"], says(one, table), mark))
        else:
            commands = "; ".join("`%s`" % command for command in dict.fromkeys(row["command"] for row in own))
            where = "%s, %s, %s" % (own[0]["processor"], own[0]["commit"], own[0]["date"])
            lines.append("| %s | %s | %s | %s%s |" % (one["what"], says(one, table), commands, where, mark))
    return lines


def torch_table(is_first):
    with TORCH.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| network | input | batch | ours | PyTorch | ratio | ours, MiB | PyTorch | ratio |", "|" + "---|" * 9]
    for row in table:
        if is_first and row["first"] != "yes":
            continue
        speed, memory = float(row["ours"]) / float(row["torch"]), float(row["ours_mib"]) / float(row["torch_mib"])
        lines.append(
            "| %s | %s | %s | %s | %s | **%.2f** | %s | %s | %.2f |"
            % (row["network"], row["input"], row["batch"], row["ours"], row["torch"], speed, row["ours_mib"], row["torch_mib"], memory)
        )
    one = table[0]
    mark = OLDER if is_older(one["commit"], ["trainer", "memory"]) else ""
    lines += ["", "%s, PyTorch %s, %s, %s%s; `%s`" % (one["processor"], one["version"], one["commit"], one["date"], mark, one["command"])]
    return lines


def made_by(table, layers):
    """The last line under a table: commit, date and command of its first row; the mark if any row is older."""
    mark = OLDER if any(is_older(commit, layers) for commit in {row["commit"] for row in table}) else ""
    return "%s, %s%s; `%s`" % (table[0]["commit"], table[0]["date"], mark, table[0]["command"])


def network_table():
    """Which of the networks that people train load, by kind; then which published files."""
    lines = ["| kind | load | do not |", "|---|---|---|"]
    under = []
    for path in (NETWORKS, PUBLISHED):
        with path.open(newline="") as file:
            table = list(csv.DictReader(file))
        kinds = {row["network"]: row["kind"] if path == NETWORKS else "published files" for row in table}
        for kind in dict.fromkeys(kinds.values()):
            own = [row for row in table if kinds[row["network"]] == kind]
            refused = [row["network"] for row in own if row["loads"] != "yes"]
            lines.append("| %s | %d of %d | %s |" % (kind, len(own) - len(refused), len(own), ", ".join(refused)))
        good = sum(row["loads"] == "yes" for row in table)
        under.append("%d of %d load; %s" % (good, len(table), made_by(table, ["trainer"])))
    return [*lines, "", *["%s%s" % (line, "" if line == under[-1] else "  ") for line in under]]


def steps_table():
    """How near to float64 a drawn dozen trains, and PyTorch's float32 beside it."""
    with STEPS.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| network | first losses | PyTorch | all losses | PyTorch | outputs | PyTorch | within |", "|" + "---|" * 8]
    names = ["first_loss_error", "loss_error", "output_error"]
    for row in table:
        cells = [row["network"]]
        for name in names:
            cells += [row[name], row[name + "_of_torch_float32"]]
        lines.append("| %s | %s |" % (" | ".join(cells), row["within"]))
    return [*lines, "", made_by(table, ["trainer"])]


def dozen_table(path):
    """Speed and memory of a fixed dozen beside PyTorch."""
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| network | input | batch | ours, ms | PyTorch | times as fast | ours, MiB | PyTorch | above weights | PyTorch | ratio |", "|" + "---|" * 11]
    for row in table:
        keys = ["network", "input", "batch", "ours_cpu_ms", "torch_cpu_ms", "speed", "ours_mib", "torch_mib", "ours_above_mib", "torch_above_mib"]
        lines.append("| %s | %s |" % (" | ".join("**%s**" % row[key] if key == "speed" else row[key] for key in keys), row["memory_above"]))
    who = "%s, PyTorch %s" % (table[0]["processor"], table[0]["version"])
    return [*lines, "", "%s, %s" % (who, made_by(table, ["trainer", "memory"]))]


def zoo_table():
    """The parameters of the ready-made networks, three networks a line."""
    cells = []
    for line in ZOO.read_text().splitlines():
        name, _, elements = line.split()[:3]
        cells += ["`%s`" % name, "{:,}".format(int(elements))]
    lines = ["| network | parameters | network | parameters | network | parameters |", "|" + "---|" * 6]
    for i in range(0, len(cells), 6):
        row = cells[i : i + 6]
        lines.append("| %s |" % " | ".join(row + [""] * (6 - len(row))))
    return lines


def predictions():
    with PREDICT.open(newline="") as file:
        return list(csv.DictReader(file))


def predict_table():
    table = predictions()
    lines = [
        "| network | input | ours, ms | PyTorch | ratio | ours, MiB | of it weights | two largest activations | beyond both | PyTorch, MiB |",
        "|" + "---|" * 10,
    ]
    for row in table:
        ours, torch = float(row["ms"]), float(row["torch_ms"])
        mib = {name[:-6]: float(row[name]) / UNITS["mib"] for name in row if name.endswith("_bytes")}
        lines.append(
            "| %s | %s | %s | %s | **%.2f** | %.1f | %.1f | %.1f | %.1f | %.1f |"
            % (row["network"], row["input"], row["ms"], row["torch_ms"], torch / ours, mib["planned"], mib["weights"],
               mib["two_activations"], mib["over"], mib["torch_growth"])
        )
    one = table[0]
    mark = OLDER if is_older(one["commit"], ["trainer", "memory"]) else ""
    same = "yes" if all(row["same_bits"] == "yes" for row in table) else "NO"
    lines += ["", "Outputs of the trainer to the bit: %s. %s, PyTorch %s, %s, %s%s; `%s`" % (
        same, one["processor"], one["version"], one["commit"], one["date"], mark, one["command"])]
    return lines


def own_images_table():
    """Accuracy of each side and seed, with the mean; then how long steps waited for their pictures."""
    with OWN_IMAGES.open(newline="") as file:
        table = list(csv.DictReader(file))
    accuracy = [row for row in table if row["what"] == "accuracy"]
    seeds = sorted({row["seed"] for row in accuracy})
    head = "| test accuracy | %s | mean |" % " | ".join("seed " + seed for seed in seeds)
    lines = [head, "|" + "---|" * (len(seeds) + 2)]
    for side, name in (("ours", "ours"), ("torch", "PyTorch")):
        found = {row["seed"]: float(row["test_accuracy"]) for row in accuracy if row["side"] == side}
        cells = ["%.2f %%" % (100 * found[seed]) if seed in found else "" for seed in seeds]
        mean = "%.2f %%" % (100 * sum(found.values()) / len(found)) if found else ""
        lines.append("| %s | %s | %s |" % (name, " | ".join(cells), mean))
    lines += ["", "| reading threads | step, ms | waited, share of the steps' time | pipeline, bytes |", "|" + "---|" * 4]
    for row in table:
        if row["what"] == "wait":
            waited = 100 * float(row["waited_share"])
            lines.append("| %s | %s | %.3f %% | %s |" % (row["threads"], row["step_ms"], waited, row["pipeline_bytes"]))
    one = accuracy[0]
    mark = OLDER if is_older(one["commit"], ["trainer", "memory"]) else ""
    lines += ["", "%s, %s%s; `%s`" % (one["processor"], one["date"], mark, one["command"])]
    return lines


def ablations_table():
    """What a step takes without each small optimisation, by processor; the interval of 95 % beside it."""
    if not ABLATIONS.exists():
        return ["(no row yet)"]
    with ABLATIONS.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| without | of | a step takes | 95 % | pairs | verdict | processor |", "|" + "---|" * 7]
    for row in table:
        network = row["command"].split("--model ")[1].split()[0]
        threads = "" if row["threads"] == "1" else ", %s threads" % row["threads"]
        mark = OLDER if is_older(row["commit"], ["trainer", "memory"]) else ""
        lines.append(
            "| `%s`: %s | %s%s | **%s** | %s to %s | %s | %s | %s, %s%s |"
            % (row["name"], row["what"], network, threads, row["change"], row["low"], row["high"], row["pairs"], row["verdict"],
               row["processor"], row["commit"], mark)
        )
    return lines


def compress_table():
    """Fleets that compress beside one that does not: means over the seeds, with the least and the greatest difference of a seed."""
    with COMPRESS.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| data | `--compress` | accuracy | last five rounds | fewer bytes up | down |", "|" + "---|" * 6]
    for dataset, side in dict.fromkeys((row["dataset"], row["compress"]) for row in table):
        ours = [row for row in table if (row["dataset"], row["compress"]) == (dataset, side)]
        plain = {row["seed"]: row for row in table if (row["dataset"], row["compress"]) == (dataset, "none")}
        cells = []
        for name in ("accuracy", "accuracy_5"):
            changes = [100 * (float(row[name]) - float(plain[row["seed"]][name])) for row in ours]
            mean = 100 * sum(float(row[name]) for row in ours) / len(ours)
            change = " (%+.2f; %+.2f to %+.2f)" % (sum(changes) / len(changes), min(changes), max(changes))
            cells.append("%.2f %%%s" % (mean, "" if side == "none" else change))
        for name in ("bytes_up", "bytes_down"):
            times = sum(float(plain[row["seed"]][name]) for row in ours) / sum(float(row[name]) for row in ours)
            cells.append("" if times < 1.01 else "%.1f x" % times)
        lines.append("| %s | %s | %s |" % (dataset, side if side == "none" else "`%s`" % side, " | ".join(cells)))
    return lines


def integers_table(is_products=False):
    """Each precision beside float32 with the same recipe, and float32 beside PyTorch's: means over the seeds, and each seed's points."""
    table = [row for row in kept_rows.read(INTEGERS) if (row["series"] in integers_rows.PRODUCTS) == is_products]
    if not table:
        return ["(no row yet)"]
    lines = ["| what | examples | epochs or rounds | beside float32 | float32 | it | points below float32, each seed | bar | commit |",
             "|" + "---|" * 9]  # fmt: skip
    for series, epochs, examples, precision in dict.fromkeys(tuple(row[name] for name in ("series", "epochs", "examples", "precision"))
                                                             for row in table):  # fmt: skip
        both = integers_rows.pairs(table, series, epochs, examples, precision)
        if precision == "fp32" or not both:
            continue
        below = [floats - accuracy for _, floats, accuracy in both]
        mean = [sum(one[i] for one in both) / len(both) for i in (1, 2)]
        used = sorted({row["commit"] for row in table if (row["series"], row["precision"]) == (series, precision)})
        mark = OLDER if any(is_older(commit, ["trainer"]) for commit in used) else ""
        lines.append("| %s | %s | %s | %s | %.2f %% | %.2f %% | **%.2f** (%s) | %s | %s%s |" % (
            integers_rows.NAMES[series], examples, epochs, "PyTorch's float32" if precision == "torch" else "`%s`" % precision, mean[0],
            mean[1], sum(below) / len(below), ", ".join("%.2f" % one for one in below), integers_rows.bar_of(series, precision),
            ", ".join(used), mark))  # fmt: skip
    return lines


def secure_table():
    """Accuracy of fleets with masks and noise: means over the seeds, the least and the greatest beside."""
    if not SECURE.exists():
        return ["(not measured yet)"]
    with SECURE.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| side | epsilon | noise | scale | accuracy | seeds | processor time a round |", "|" + "---|" * 7]
    for side in dict.fromkeys(row["side"] for row in table):
        own = [row for row in table if row["side"] == side]
        values = [100 * float(row["accuracy"]) for row in own]
        spent = sum(float(row["processor_s"]) for row in own) / sum(int(row["rounds"]) for row in own)
        private = [own[0]["epsilon"][:4], own[0]["noise"][:5], own[0]["noise_scale"]] if own[0]["epsilon"] else ["", "", ""]
        lines.append("| `%s` | %s | %.2f %% (%.2f to %.2f) | %d | %.1f s |" % (
            side, " | ".join(private), sum(values) / len(values), min(values), max(values), len(own), spent))
    return lines


def thousand_table():
    """Rounds with many devices of which some leave."""
    if not THOUSAND.exists():
        return ["(not measured yet)"]
    with THOUSAND.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| devices | neighbours | threshold | in the sum | clock | processor time | unmasking | up in steps | down | load |", "|" + "---|" * 10]
    for row in table:
        lines.append("| %s | %s | %s | %s | %s s | %s s | %s s | %.1f MiB | %.1f MiB | %s, %s |" % (
            row["devices"], row["neighbours"], row["threshold"], row["in_sum"], row["wall_s"], row["processor_s"], row["unmask_s"],
            int(row["bytes_up"]) / UNITS["mib"], int(row["bytes_down"]) / UNITS["mib"], row["load"], row["commit"]))
    return lines


def curve_table():
    """Test accuracy of the same recipe in both programs after some of its epochs: means and deviations over the seeds."""
    with CURVE.open(newline="") as file:
        table = list(csv.DictReader(file))
    epochs = sorted({int(row["epoch"]) for row in table})
    told = [epoch for epoch in epochs if epoch % 5 == 0 or epoch == epochs[-1]]
    lines = ["| program | seeds | %s |" % " | ".join("epoch %d" % epoch for epoch in told), "|" + "---|" * (2 + len(told))]
    for program in dict.fromkeys(row["program"] for row in table):
        own = [[100 * float(row["accuracy"]) for row in table if (row["program"], row["epoch"]) == (program, str(epoch))] for epoch in told]
        cells = ["%.1f %% ± %.1f" % (statistics.mean(one), statistics.stdev(one)) for one in own]
        lines.append("| %s | %d | %s |" % (program, len(own[0]), " | ".join(cells)))
    return lines


def directions_table():
    """What unequal devices cost in `dunlin-study heterogeneity`, beside the WWW'21 study."""
    with DIRECTIONS.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| what | WWW'21 | here | from the lowest to the highest seed | ways of training at the figure, or above 0 with every seed | |", "|" + "---|" * 6]
    for row in table:
        values = ["%.2f" % float(row[name]) for name in ("ours", "ours_low", "ours_high")]
        paper = "%s %s" % (row["paper"], row["unit"]) if row["paper"] else ""
        lines.append("| %s | %s | %s %s | %s to %s | %s of %s | %s |" % (
            row["figure"], paper, values[0], row["unit"], *values[1:], row["cases_good"], row["cases"], row["holds"]))
    return lines


PARTS = {
    "directions": directions_table,
    "curve": curve_table,
    "secagg": lambda: figure_table(False, ["secagg", "secagg_noise"]),
    "secagg thousand": thousand_table,
    "secure": secure_table,
    "ablations": ablations_table,
    "compress": compress_table,
    "integers": integers_table,
    "products": lambda: integers_table(is_products=True),
    "neon": neon.table,
    "storage plans": storage_plans.table,
    "storage bars": storage_plans.bars_table,
    "storage accuracy": storage_accuracy.table,
    "own images": own_images_table,
    "first": lambda: figure_table(True),
    "all": lambda: figure_table(False),
    "torch first": lambda: torch_table(True),
    "torch": lambda: torch_table(False),
    "networks": network_table,
    "steps": steps_table,
    "dozen": lambda: dozen_table(DOZEN),
    "dozen newer": lambda: dozen_table(DOZEN_NEWER),
    "zoo": zoo_table,
    "predict": predict_table,
}


def filled(text):
    def part(match):
        return "%s\n%s\n%s" % (match.group(1), "\n".join(PARTS[match.group(2)]()), match.group(3))

    return re.sub(r"(<!-- figures: ([a-z ]+) -->)\n.*?(<!-- end -->)", part, text, flags=re.S)


def main():
    if sys.argv[1:2] == ["measure"] and len(sys.argv) > 2:
        measure(pathlib.Path(sys.argv[2]), sys.argv[3:])
    elif sys.argv[1:] == ["write"]:
        for page in PAGES:
            page.write_text(filled(page.read_text()))
    elif sys.argv[1:] == ["check"]:
        bad = [page for page in PAGES if filled(page.read_text()).replace(OLDER, "") != page.read_text().replace(OLDER, "")]
        for page in bad:
            print("%s is not what the results give; run tests/bench/figures.py write" % page.relative_to(ROOT))
        return 1 if bad else 0
    else:
        print(__doc__.strip())
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
