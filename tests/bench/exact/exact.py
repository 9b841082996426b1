#!/usr/bin/env python3
"""Compares the planner's rematerialisation with the optimum, on the cases of bench_exact.

For each step and each budget between the least that any schedule needs and what the plain one needs: the time of the plan
over the optimum. Live bytes limit the optimum, packed bytes the plan, so the comparison is a little unfair to the plan. Every
schedule, the planner's and the solver's, is simulated, and its cost and live bytes must be those stated. The optimum
keeps the graph's order of first runs, and is free in all else. It is found by exact_states (A*); where that runs out of
states, and with --cbc, an integer program is solved by cbc, whose schedules also keep the graph's order among what runs again
between two first runs, once each. Where both are asked the program's optimum must be no less than the other's. --check compares
both with another search on small steps. The least bytes are the integer program's.

    exact.py                              all cases
    exact.py --cases 'chain|mobile' --fractions 0.5 --cbc --seconds 20
    exact.py --check                      both against a search over all states
    exact.py --known FILE                 keeps cbc's answers there, and asks it only what is not yet proven

Needs cbc (Debian: coinor-cbc) and a build of bench_exact and exact_states (--program names the first; the other lies beside it).
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
        sys.exit(f"{name}: the plan says {found['cost_ns']} ns, {found['live_bytes']} bytes; the simulation {step.replay(schedule)}")
    return found["cost_ns"], schedule


class Solver:
    """exact_states and cbc, and what cbc has said before: by the step and the limit."""

    def __init__(self, options):
        self.seconds, self.path, self.known = options.seconds, options.known, {}
        self.states, self.asks_both = options.states, options.cbc
        self.program = os.path.join(os.path.dirname(options.program), "exact_states")
        path = self.path
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
        """(status, cost or None, bound, schedule) within a limit; `start`: a schedule that keeps it, or None."""
        upper = step.replay(start)[0] if start else 100 * step.base_cost()
        is_done, schedule, bound = Search(step, limit).best_below(self.program, upper + 1, self.states)
        if is_done:
            other = self._ask(step, limit, start)[1] if self.asks_both else None
            if other is not None and step.replay(other)[0] < bound:
                sys.exit(f"cbc's schedule takes {step.replay(other)[0]} ns, the least is said to be {bound}")
            return "optimal", *self._checked(step, limit, schedule)
        cost, _, schedule = self._checked(step, limit, self._ask(step, limit, start)[1])
        return "limit", cost, bound, schedule

    @staticmethod
    def _checked(step, limit, schedule):
        """(cost, cost, schedule), from paper."""
        if schedule is None:
            return None, 0, None
        cost, peak = step.replay(schedule)
        if peak > limit + ALIGN:
            sys.exit(f"the solver's schedule needs {peak} bytes of {limit}")
        return cost, cost, schedule

    def ordered_cost(self, step, limit):
        """The integer program's optimum, or None where it is not proven."""
        status, schedule, _ = self._ask(step, limit, None)
        return step.replay(schedule)[0] if status == "optimal" else None

    def least(self, step):
        """The least live bytes found for any schedule, and whether that is proven."""
        status, schedule, _ = self._ask(step, None, None)
        return step.replay(schedule or step.plain_schedule())[1], status == "optimal"


def describe(step, schedule):
    """Where each recomputed op runs: "conv1 (100 us) before conv4/grad"."""
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
        searched = Search(step, limit).best_cost(options.check_states)
        status, best, _, _ = solver.best(step, limit, None)
        said = "too large" if searched == -1 else "same" if searched == best else f"SEARCH {searched}, exact_states {best}"
        ordered = solver.ordered_cost(step, limit)
        said += "" if ordered is None or ordered == best else f", in the graph's order {ordered}"
        print(f"{name} at {fraction}: {status}, {said}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(HERE, "../../../build/release/bin/bench_exact"))
    parser.add_argument("--cases", default="", help="a pattern")
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.75, 0.5, 0.25, 0.1],
                        help="budgets from the least (0) to the plain peak (1)")
    parser.add_argument("--states", type=int, default=12_000_000, help="limit of exact_states (60 bytes each)")
    parser.add_argument("--cbc", action="store_true", help="asks cbc as well, for each solution")
    parser.add_argument("--seconds", type=int, default=60, help="for each of cbc's solutions")
    parser.add_argument("--known", help="a file for cbc's answers")
    parser.add_argument("--json", help="writes all rows there")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--check-states", type=int, default=400000, help="limit of --check's search")
    options = parser.parse_args()
    rows, solver = [], Solver(options)
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
