"""Rematerialisation as a mixed-integer program, solved by cbc.

After Checkmate (Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization", MLSys 2020, section
4): first runs keep the graph's order; in the stage before each first run every op may run its map part again once, in the
graph's order. Retention is written as in MOCCASIN (Bartan et al., ICML 2023): not by values and steps but by the gaps
between the slots that touch a value, so that only the redos are binary: for given redos the least residency is 0 or 1 by
itself.
"""
import os
import re
import subprocess
import tempfile

from step import MAP


class Program:
    """The rows for one step and one limit on live bytes."""

    def __init__(self, step, limit_bytes):
        """Without a limit the least one is looked for, whatever it costs."""
        self.step = step
        self.limit = limit_bytes or step.replay(step.plain_schedule())[1]
        self.is_least = limit_bytes is None
        self.rows, self.ones, self.between = [], set(), set()
        self.joined = {}
        self._make_slots()
        self._make_touches()
        self._make_rows()

    # --- slots ---

    def _make_slots(self):
        """A slot is (op, stage): a first run if they are the same, else a recomputation before the first run of `stage`."""
        self.slots = []
        for stage in range(len(self.step.ops)):
            self.slots += [(op.number, stage) for op in self.step.ops[:stage] if self.step.can_redo(op, stage)]
            self.slots.append((stage, stage))

    def _x(self, slot):
        number, stage = self.slots[slot]
        return None if number == stage else f"x_{number}_{stage}"

    def _touched(self, slot):
        number, stage = self.slots[slot]
        op = self.step.ops[number]
        return (op.reads, op.writes) if number == stage else (op.map_reads, op.map_writes)

    def _make_touches(self):
        self.touches = {value: [] for value in self.step.values}  # [(slot, whether it makes the value)]
        for slot in range(len(self.slots)):
            reads, writes = self._touched(slot)
            for value in reads:
                self.touches[value].append((slot, not self.touches[value]))
            for value in writes:
                self.touches[value].append((slot, True))
        self.index = {value: {slot: k for k, (slot, _) in enumerate(touches)}
                      for value, touches in self.touches.items()}

    # --- residency ---

    def _y(self, value, k):
        """Residency at touch k."""
        return f"y_{value.number}_{k}"

    def _before(self, value, k):
        """Residency between touches k - 1 and k, or None past the last."""
        if k >= len(self.touches[value]):
            return None
        return f"c_{value.number}_{k}" if self.touches[value][k][1] else self._y(value, k)

    def _alive(self, value, slot, next_touch):
        if slot in self.index[value]:
            return self._y(value, self.index[value][slot])
        return None if next_touch == 0 else self._before(value, next_touch)

    def _row(self, terms, limit):
        """Sum of (factor, variable) <= limit."""
        self.rows.append((terms, limit))

    def _add_residency(self, value):
        for k, (slot, is_made) in enumerate(self.touches[value]):
            x, y = self._x(slot), self._y(value, k)
            self.between.add(y)
            if x is None:
                self.ones.add(y)
            else:
                self._row([(1, x), (-1, y)], 0)
            if k == 0:
                continue
            previous = self._y(value, k - 1)
            if not is_made:
                self._row([(1, y), (-1, previous)], 0)
                continue
            carried = self._before(value, k)
            self.between.add(carried)
            self._row([(1, carried), (-1, previous)], 0)
            self._row([(1, y), (-1, carried), (-1, x)], 0)

    def _buffer(self, parts):
        """One variable for a buffer that is there while any of its parts is."""
        key = tuple(sorted(set(parts)))
        if len(key) == 1:
            return key[0]
        if key not in self.joined:
            self.joined[key] = f"b_{len(self.joined)}"
            self.between.add(self.joined[key])
            for part in key:
                self._row([(1, part), (-1, self.joined[key])], 0)
        return self.joined[key]

    def _make_rows(self):
        step = self.step
        for value in step.values:
            self._add_residency(value)
        done = {value: 0 for value in step.values}  # touches up to here
        for slot, (number, stage) in enumerate(self.slots):
            op, x = step.ops[number], self._x(slot)
            terms, limit = [], self.limit
            for root, values in step.of_root.items():
                alive = [self._alive(value, slot, done[value]) for value in values]
                alive = [name for name in alive if name is not None]
                if alive:
                    terms.append((step.buffer_bytes[root], self._buffer(alive)))
            if op.workspace != 0 and x is not None:
                terms.append((op.workspace, x))
            limit -= op.workspace if x is None else 0
            if step.can_share(op, op.parts if x is None else MAP):
                self._add_share(terms, op, x, slot)
            self._row(terms, limit)
            for value in step.values:
                done[value] += slot in self.index[value]
        if not self.is_least:
            self._add_needless()
            self._add_late()

    def _add_share(self, terms, op, x, slot):
        """An output on the place of the input that dies here."""
        fresh, dying, _ = op.share
        shared = f"q_{slot}"
        self.between.add(shared)
        if x is not None:
            self._row([(1, shared), (-1, x)], 0)
        after = self._before(dying, self.index[dying][slot] + 1)
        if after is not None:
            self._row([(1, shared), (1, after)], 1)
        terms.append((-self.step.buffer_bytes[fresh.buffer], shared))

    # --- rows that no best schedule misses ---

    def _add_needless(self):
        """What is whole and resident is not recomputed."""
        for slot, (number, stage) in enumerate(self.slots):
            if number != stage:
                writes = self.step.ops[number].map_writes
                there = [(1, self._before(value, self.index[value][slot])) for value in writes]
                self._row(there + [(1, self._x(slot))], len(writes))

    def _add_late(self):
        """
        A recomputation whose output is not read before the next stage, and whose inputs are there then, runs in the
        next stage as well: the output is alive for a shorter time, the inputs are there anyway. Only without workspace,
        which would move too.
        """
        at = {slot: k for k, slot in enumerate(self.slots)}
        for slot, (number, stage) in enumerate(self.slots):
            op, later = self.step.ops[number], at.get((number, stage + 1))
            if number == stage or op.workspace != 0 or later is None:
                continue
            users = [k for k in range(slot + 1, later) if any(v in op.map_writes for v in self._touched(k)[0])]
            if all(self._x(k) is not None for k in users):
                inputs = [(1, self._y(value, self.index[value][later])) for value in op.map_reads]
                self._row(inputs + [(1, self._x(slot))] + [(-1, self._x(k)) for k in users], len(inputs))

    # --- the solver ---

    def binaries(self):
        return [self._x(slot) for slot in range(len(self.slots)) if self._x(slot) is not None]

    def _cost(self, name):
        return self.step.ops[int(name.split("_")[1])].cost / self.step.base_cost() * 1000

    def write(self, path):
        binaries = self.binaries()
        with open(path, "w") as file:
            file.write("Minimize\n obj: ")
            costs = ["1000 least"] if self.is_least else [f"{self._cost(x):.9g} {x}" for x in binaries]
            file.write("\n + ".join(costs) + "\nSubject To\n")
            for i, (terms, limit) in enumerate(self.rows):
                is_bytes = any(abs(factor) > 1 for factor, _ in terms)
                scale = 1000 / self.limit if is_bytes else 1
                left = "\n ".join(f"{factor * scale:+.12g} {name}" for factor, name in terms)
                if is_bytes and self.is_least:
                    left, limit = left + "\n - 1000 least", limit - self.limit
                if terms:
                    file.write(f" r{i}: {left} <= {limit * scale:.12g}\n")
            file.write("Bounds\n" + "".join(f" {name} = 1\n" for name in sorted(self.ones)))
            file.write("".join(f" 0 <= {name} <= 1\n" for name in sorted(self.between) if name[0] in "bq"))
            free = [name for name in sorted(self.between - self.ones) if name[0] in "yc"]
            file.write("Binaries\n" + "\n".join(f" {name}" for name in binaries + free) + "\nEnd\n")

    def schedule_of(self, chosen):
        return [(number, self.step.ops[number].parts if number == stage else MAP)
                for slot, (number, stage) in enumerate(self.slots)
                if number == stage or self._x(slot) in chosen]

    def chosen_in(self, schedule):
        """The redos of a schedule as variables, or None if it is not of this form."""
        chosen, has_run = set(), set()
        pending = []
        for number, _ in schedule:
            if number in has_run:
                pending.append(number)
                continue
            for redo in pending:
                name = f"x_{redo}_{number}"
                if name in chosen or not self.step.can_redo(self.step.ops[redo], number):
                    return None
                chosen.add(name)
            pending = []
            has_run.add(number)
        return chosen if not pending and sorted(has_run) == [op.number for op in self.step.ops] else None

    def solve(self, seconds, start=None):
        """
        (status, schedule or None, lower bound of the cost in ns); status: optimal, limit, infeasible. `start`: what
        chosen_in() said of a schedule that fits.
        """
        if not self.binaries():
            plain = self.step.plain_schedule()
            fits = self.step.replay(plain)[1] <= self.limit
            return "optimal" if fits else "infeasible", plain if fits else None, self.step.base_cost()
        with tempfile.TemporaryDirectory() as folder:
            model, found, first = (os.path.join(folder, name) for name in ("step.lp", "found", "first"))
            self.write(model)
            command = ["cbc", model, "-sec", str(seconds), "-timeMode", "cpu", "-ratioGap", "0"]
            if start is not None:
                with open(first, "w") as file:
                    file.write("Stopped on time - objective value 0\n")
                    for i, x in enumerate(self.binaries()):
                        file.write(f"{i} {x} {int(x in start)} 0\n")
                command += ["-mipstart", first]
            done = subprocess.run(command + ["-solve", "-solution", found], capture_output=True, text=True, check=True)
            with open(found) as file:
                return self._read(done.stdout, file.readline(), [line.replace("**", "").split() for line in file])

    def _read(self, log, head, lines):
        """From cbc's log and solution: a head, then lines of (row, name, value, reduced cost)."""
        chosen = {line[1] for line in lines if line[1].startswith("x_") and float(line[2]) > 0.5}
        base = self.step.base_cost()
        if "nfeasible" in head:
            return "infeasible", None, base
        if "Optimal" in head:
            schedule = self.schedule_of(chosen)
            return "optimal", schedule, self.step.replay(schedule)[0]
        bounds = re.findall(r"Lower bound:\s+(\S+)", log)
        has_found = "No feasible solution found" not in log and "no integer solution" not in head
        bound = float(bounds[-1]) / 1000 if bounds else 0
        return "limit", self.schedule_of(chosen) if has_found else None, base * (1 + max(bound, 0))
