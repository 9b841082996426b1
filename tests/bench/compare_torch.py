#!/usr/bin/env python3
"""Trains the same networks with ours (bench_step) and with PyTorch (torch_step.py), in turn, and prints both.

Each row runs ours, PyTorch, ours, PyTorch ... as processes of their own on the same cores. A ratio is the median over the
rounds of ours / PyTorch within the round. PyTorch runs in the strongest form we know: channels_last (LeNet-5: the faster
nchw), OpenBLAS with the widest kernels that the processor has, and an allocator that keeps its memory and uses huge pages.
Memory is each process's own high-water mark above its start, the examples included.

    compare_torch.py --set issue --bars            the whole table, one thread and two
    compare_torch.py --quick                       a few small rows
    compare_torch.py --rows mobilenet_v2 --threads 1 --json out.json

Needs python3-torch, python3-torchvision and libopenblas0-pthread (Debian), and a release build of bench_step.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TUNABLES = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736"
MIB = 1024.0 * 1024.0

# model, image (0: no image), batch, least speed against PyTorch, most memory against PyTorch (None: no bar)
ISSUE = [
    ("mobilenet_v2", 224, 8, 2.5, 0.40), ("mobilenet_v2", 224, 32, 2.2, 1 / 3),
    ("mobilenet_v1", 224, 8, 1.8, None), ("mobilenet_v1", 224, 32, 1.6, None),
    ("squeezenet1_1", 224, 8, 1.6, None), ("squeezenet1_1", 224, 32, 1.6, None),
    ("resnet50", 224, 8, 1.4, 0.65), ("resnet50", 224, 32, 1.25, 0.65),
    ("densenet121", 224, 8, 1.4, 1 / 3),
    ("mobilenet_v1", 32, 32, 1.8, None), ("mobilenet_v1", 32, 128, 1.8, None),
    ("mobilenet_v2", 32, 32, 1.8, None), ("mobilenet_v2", 32, 128, 1.8, None),
    ("resnet18", 32, 32, 1.4, None), ("resnet18", 32, 128, 1.4, None),
    ("resnet50", 32, 32, 1.4, None), ("resnet50", 32, 128, 1.4, None),
    ("bert_small", 0, 8, 1.3, None), ("lenet5", 28, 32, 2.5, None),
]
QUICK = [("lenet5", 28, 32), ("mobilenet_v2", 32, 32), ("mobilenet_v2", 224, 8)]
OWN_SCALING = 1.8  # two threads against our own one


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=["issue", "quick"], default="issue")
    parser.add_argument("--quick", action="store_true", help="the same as --set quick")
    parser.add_argument("--rows", default="", help="only rows whose MODEL-IMAGE-bBATCH matches this expression")
    parser.add_argument("--threads", default="1,2", help="which numbers of threads (1,2)")
    parser.add_argument("--core", type=int, default=1, help="for one thread; several take the first ones (1)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15.0, help="of timed steps a process, about")
    parser.add_argument("--steps", type=int, default=200, help="at most, a process")
    parser.add_argument("--bars", action="store_true", help="the bar beside each ratio, and what misses it")
    parser.add_argument("--program", default=os.path.join(HERE, "../../build/release/bin/bench_step"))
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has PyTorch")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--markdown", action="store_true", help="the table once more at the end, for the README")
    parser.add_argument("--our-flags", default="", help="further flags of bench_step, as \"--isa avx2\"")
    return parser.parse_args()


def blas_core():
    """OpenBLAS takes a processor younger than itself for a very old one, which is five times slower: it is told what to use."""
    with open("/proc/cpuinfo") as info:
        flags = set(" ".join(re.findall(r"^flags\s*:(.*)$", info.read(), re.MULTILINE)).split())
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return {"OPENBLAS_CORETYPE": "SkylakeX"}
    return {"OPENBLAS_CORETYPE": "Haswell"} if {"avx2", "fma"} <= flags else {}


def run(command, environment):
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["ended with status %d" % done.returncode]
        return None, lines[-1]
    return json.loads(done.stdout.strip().splitlines()[-1]), ""


def both(args, model, image, batch, threads):
    """One round: ours, then PyTorch. Returns two dictionaries, or a text that says what failed."""
    cores = str(args.core) if threads == 1 else "0-%d" % (threads - 1)
    pin = ["taskset", "-c", cores]
    sizes = ["--model", model, "--batch", str(batch), "--threads", str(threads), "--steps", str(args.steps),
             "--max-seconds", str(args.seconds)]
    sizes += ["--image", str(image)] if image else []
    ours, text = run([*pin, args.program, *sizes, "--json", *args.our_flags.split()], dict(os.environ))
    if ours is None:
        return None, text
    environment = dict(os.environ, **blas_core())  # whatever the caller's says
    environment.update(GLIBC_TUNABLES=TUNABLES, OPENBLAS_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
    layout = ["--format", "nchw" if model == "lenet5" else "nhwc"]
    theirs, text = run([*pin, args.python, os.path.join(HERE, "torch_step.py"), *sizes, *layout], environment)
    return (None, text) if theirs is None else ((ours, theirs), "")


def measure(args, row, threads):
    model, image, batch, speed_bar, memory_bar = row
    rounds = []
    for _ in range(args.rounds):
        pair, text = both(args, model, image, batch, threads)
        if pair is None:
            return {"model": model, "image": image, "batch": batch, "threads": threads, "failed": text}
        rounds.append(pair)

    def median(peer, key):
        return statistics.median(pair[peer][key] for pair in rounds)

    our_bytes = max(ours["growth_bytes"] + ours["source_bytes"] for ours, _ in rounds)
    their_bytes = max(theirs["growth_bytes"] for _, theirs in rounds)
    return {
        "model": model, "image": image, "batch": batch, "threads": threads, "isa": rounds[0][0]["isa"],
        "our_sps": median(0, "sps"), "torch_sps": median(1, "sps"),
        "speed": statistics.median(ours["sps"] / theirs["sps"] for ours, theirs in rounds),
        "cpu_speed": statistics.median(ours["cpu_sps"] / theirs["cpu_sps"] for ours, theirs in rounds),
        "our_mib": our_bytes / MIB, "torch_mib": their_bytes / MIB, "memory": our_bytes / their_bytes,
        "our_report_mib": rounds[0][0]["peak_bytes"] / MIB,
        "hidden_mib": (max(o["growth_bytes"] for o, _ in rounds) - rounds[0][0]["peak_bytes"]) / MIB,
        "speed_bar": speed_bar, "memory_bar": memory_bar, "rounds": rounds,
    }


HEADER = ("model          image  batch  thr |    ours  PyTorch  ratio%s  (cpu) |   MiB: ours  PyTorch  ratio%s")


def show(result, own_single, with_bars):
    name = "%-14s %5s  %5d  %3d |" % (result["model"], result["image"] or "-", result["batch"], result["threads"])
    if "failed" in result:
        print(name, "not measured:", result["failed"], flush=True)
        return []
    missed = []
    bar = memory_bar = ""
    if with_bars:
        bar = " >= %.2f" % result["speed_bar"]
        memory_bar = " <= %.2f" % result["memory_bar"] if result["memory_bar"] else ""
        if result["speed"] < result["speed_bar"]:
            missed.append("speed")
        if result["memory_bar"] and result["memory"] > result["memory_bar"]:
            missed.append("memory")
        if abs(result["hidden_mib"]) > 4.0:
            missed.append("hidden memory %+.1f MiB" % result["hidden_mib"])
    line = "%s %7.4g  %7.4g  %5.2f%s (%5.2f) |  %10.1f  %7.1f  %5.3f%s" % (
        name, result["our_sps"], result["torch_sps"], result["speed"], bar, result["cpu_speed"], result["our_mib"],
        result["torch_mib"], result["memory"], memory_bar)
    if own_single:
        scaling = result["our_sps"] / own_single
        result["scaling"] = scaling
        line += "  %.2f x our one thread" % scaling
        if with_bars and scaling < OWN_SCALING:
            missed.append("scaling")
    print(line + ("   MISSED: " + ", ".join(missed) if missed else ""), flush=True)
    return missed


def show_markdown(results):
    print("\n| network | input | batch | threads | ours, samples/s | PyTorch | ratio | ours, MiB | PyTorch | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for result in results:
        if "failed" in result:
            continue
        cells = [result["model"], result["image"] or "128 tokens", result["batch"], result["threads"],
                 "%.4g" % result["our_sps"], "%.4g" % result["torch_sps"], "**%.2f**" % result["speed"],
                 "%.4g" % result["our_mib"], "%.4g" % result["torch_mib"], "%.2f" % result["memory"]]
        print("| " + " | ".join(str(cell) for cell in cells) + " |")


def main():
    args = parse()
    if not os.path.exists(args.program):
        sys.exit("compare_torch.py: no %s: cmake --preset release && cmake --build build/release --target bench_step"
                 % args.program)
    is_quick = args.quick or args.set == "quick"
    rows = [row for row in ISSUE if not is_quick or row[:3] in QUICK]
    rows = [row for row in rows if re.search(args.rows, "%s-%d-b%d" % row[:3])]
    if not rows:
        sys.exit("compare_torch.py: no row matches \"%s\"" % args.rows)
    print(HEADER % ("        " if args.bars else "", ""), flush=True)
    results, singles, n_missed = [], {}, 0
    for threads in [int(text) for text in args.threads.split(",")]:
        for row in rows:
            result = measure(args, row, threads)
            n_missed += len(show(result, singles.get(row[:3]) if threads == 2 else None, args.bars))
            if threads == 1:
                singles[row[:3]] = result.get("our_sps")
            results.append(result)
            if args.json:
                with open(args.json, "w") as out:
                    json.dump(results, out, indent=1)
    if args.bars:
        print("%d bars missed" % n_missed)
    if args.markdown:
        show_markdown(results)


if __name__ == "__main__":
    main()
