#!/usr/bin/env python3
"""Compares the planner's rematerialisation with an exact solver's, on the cases of bench_exact.

For each step and each budget between the least that any schedule needs and what the plain one needs: the time of the plan
over the optimum (or over the solver's bound where it ran out of time). Live bytes limit the optimum, packed bytes the plan,
so the comparison is a little unfair to the plan. Every schedule, the planner's and the solver's, is replayed on paper, and
its cost and live bytes must come out as said. The optimum keeps the graph's order of first runs, and redoes an op at most
once between two of them; --check proves on small steps, by another search, that this loses nothing there.

    exact.py                              all cases, 60 s for each solution
    exact.py --cases 'chain|mobile' --fractions 0.5 --seconds 20
    exact.py --check                      the program against a search over all states
    exact.py --known FILE                 keeps the solver's answers there, and asks it only what is not yet proven

Needs cbc (Debian: coinor-cbc) and a build of bench_exact (--program).
"""
import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import time

from milp import Program
from search import Search
from step import ALIGN, Step

HERE = os.path.dirname(os.path.abspath(__file__))
BAR = 1.05


def ask(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def plan(program, name, step, limit):
    """The planner's (cost, schedule), or (None, its least live limit)."""
    found = json.loads(ask(program, "--plan", name, str(step.persistent_bytes() + limit)))
    if "needed_bytes" in found:
        return None, found["needed_bytes"] - step.persistent_bytes()
    schedule = [(op, parts) for op, _, parts in found["steps"]]
    if step.replay(schedule) != (found["cost_ns"], found["live_bytes"]):
        sys.exit(f"{name}: the plan says {found['cost_ns']} ns, {found['live_bytes']} bytes; on paper {step.replay(schedule)}")
    return found["cost_ns"], schedule


class Solver:
    """cbc, and what it has said before: by the step and the limit."""

    def __init__(self, seconds, path):
        self.seconds, self.path, self.known = seconds, path, {}
        if path and os.path.exists(path):
            with open(path) as file:
                self.known = json.load(file)

    def _ask(self, step, limit, start):
        key = f"{step.key} {limit}"
        said = self.known.get(key)
        if said is None or (said["status"] == "limit" and said["seconds"] < self.seconds):
            program = Program(step, limit)
            status, schedule, bound = program.solve(self.seconds, start and program.chosen_in(start))
            if said and schedule and said["schedule"]:
                schedule = min(schedule, said["schedule"], key=lambda each: step.replay(each)[0])
            said = {"status": status, "schedule": schedule, "bound": max(bound, said["bound"] if said else 0),
                    "seconds": self.seconds}
            self.known[key] = said
            if self.path:
                with open(self.path + ".new", "w") as file:
                    json.dump(self.known, file)
                os.replace(self.path + ".new", self.path)
        return said["status"], said["schedule"], said["bound"]

    def best(self, step, limit, start):
        """(status, cost or None, bound, schedule) within a limit."""
        status, schedule, bound = self._ask(step, limit, start)
        cost = None
        if schedule is not None:
            cost, peak = step.replay(schedule)
            if peak > limit + ALIGN:
                sys.exit(f"the solver's schedule needs {peak} bytes of {limit}")
        return status, cost, bound, schedule

    def least(self, step):
        """The least live bytes found for any schedule, and whether that is proven."""
        status, schedule, _ = self._ask(step, None, None)
        return step.replay(schedule or step.plain_schedule())[1], status == "optimal"


def describe(step, schedule):
    """Where each redo runs: "conv1 (100 us) before conv4/grad"."""
    texts, has_run, pending = [], set(), []
    for number, _ in schedule:
        if number in has_run:
            pending.append(f"{step.ops[number].name} ({step.ops[number].cost // 1000} us)")
            continue
        has_run.add(number)
        if pending:
            texts.append(f"{', '.join(pending)} before {step.ops[number].name}")
        pending = []
    return "; ".join(texts) or "nothing"


def compare(options, solver, name, step, out):
    base, peak = step.replay(step.plain_schedule())
    plain_cost, _ = plan(options.program, name, step, 4 * peak)
    assert plain_cost == base, f"{name}: with room for all, the plan costs {plain_cost}, not {base}"
    least, is_proven = solver.least(step)
    _, planner_least = plan(options.program, name, step, 1)
    print(f"{name}: {len(step.ops)} ops, plain peak {peak} bytes, least {least / peak:.3f}{'' if is_proven else ' (found)'}, "
          f"planner's {planner_least / peak:.3f}", flush=True)
    for fraction in options.fractions:
        limit = int(least + fraction * (peak - least)) // ALIGN * ALIGN
        cost, found = plan(options.program, name, step, limit)
        start = time.monotonic()
        status, best, bound, schedule = solver.best(step, limit, found if cost else None)
        row = {"case": name, "ops": len(step.ops), "fraction": fraction, "limit": limit, "peak": peak, "base": base,
               "status": status, "optimum": best, "bound": bound, "plan": cost, "seconds": time.monotonic() - start,
               "ratio": None if cost is None else cost / (best if status == "optimal" else bound),
               "to_best": None if cost is None or best is None else cost / best,
               "is_proven": status == "optimal", "planner_least": planner_least, "least": least}
        row["plan_redoes"] = describe(step, found) if cost else f"no plan: needs {found} live bytes"
        row["best_redoes"] = describe(step, schedule) if schedule else ""
        out.append(row)
        print_row(row)


def print_row(row):
    def times(cost):
        return "      -" if cost is None else f"{cost / row['base']:7.4f}"
    ratio = "   none" if row["ratio"] is None else f"{row['ratio']:7.4f}"
    to_best = "" if row["is_proven"] or row["to_best"] is None else f", {row['to_best']:.4f} of the best found"
    print(f"  {row['fraction']:5.2f} = {row['limit'] / row['peak']:.3f} of the peak: plan {times(row['plan'])}, "
          f"best {times(row['optimum'])}, bound {times(row['bound'])}, ratio {ratio}{to_best}, "
          f"{row['status']} in {row['seconds']:.1f} s{'' if row['ratio'] and row['ratio'] <= BAR else '  <--'}", flush=True)


def summarize(rows):
    for title, kind in (("proven optimal", [r for r in rows if r["is_proven"]]),
                        ("against a bound", [r for r in rows if not r["is_proven"]]), ("all", rows)):
        ratios = [r["ratio"] for r in kind if r["ratio"] is not None]
        if kind:
            worst, median = (max(ratios), statistics.median(ratios)) if ratios else (0, 0)
            print(f"{title}: {len(kind)} budgets of {len({r['case'] for r in kind})} steps; ratio median {median:.4f}, worst "
                  f"{worst:.4f}; above {BAR}: {sum(x > BAR for x in ratios)}; no plan: {len(kind) - len(ratios)}")
    for row in sorted(rows, key=lambda r: -(r["ratio"] or 99)):
        if row["ratio"] is None or row["ratio"] > BAR:
            print(f"\n{row['case']} at {row['fraction']} ({row['limit']} live bytes): ratio {row['ratio'] or 0:.4f}, {row['status']}"
                  f"\n  plan: {row['plan_redoes']}\n  best: {row['best_redoes']}")


def check(options, solver, name, step):
    """The program's optimum against the search's."""
    _, peak = step.replay(step.plain_schedule())
    least, _ = solver.least(step)
    for fraction in options.fractions:
        limit = int(least + fraction * (peak - least)) // ALIGN * ALIGN
        searched = Search(step, limit).best_cost(options.states)
        status, best, _, _ = solver.best(step, limit, None)
        said = "too large" if searched == -1 else "same" if searched == best else f"SEARCH {searched}, PROGRAM {best}"
        print(f"{name} at {fraction}: {status}, {said}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(HERE, "../../../build/release/bin/bench_exact"))
    parser.add_argument("--cases", default="", help="a pattern")
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.75, 0.5, 0.25, 0.1],
                        help="budgets from the least (0) to the plain peak (1)")
    parser.add_argument("--seconds", type=int, default=60, help="for each solution")
    parser.add_argument("--known", help="a file for the solver's answers")
    parser.add_argument("--json", help="writes all rows there")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--states", type=int, default=400000, help="limit of --check's search")
    options = parser.parse_args()
    rows, solver = [], Solver(options.seconds, options.known)
    for name in ask(options.program, "--list").split():
        if not re.search(options.cases, name):
            continue
        text = ask(options.program, "--graph", name)
        step = Step(text)
        step.key = hashlib.sha256(text.encode()).hexdigest()[:16]
        if options.check:
            check(options, solver, name, step)
        else:
            compare(options, solver, name, step, rows)
    if rows:
        summarize(rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
