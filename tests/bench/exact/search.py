"""The exact optimum of small steps, with no form given to the schedule but that first runs keep the graph's order: by
exact_states (A*, a program), or here by Dijkstra over what is in memory, slowly, to check both that program and the form that
milp.py gives to schedules. They share only the reading of the graph.
"""
import heapq
import json
import subprocess

from step import MAP


class Search:
    def __init__(self, step, limit_bytes):
        self.step, self.limit = step, limit_bytes
        self.bit = {value: 1 << value.number for value in step.values}
        self.parts_of = [(step.buffer_bytes[root], sum(self.bit[v] for v in values))
                         for root, values in step.of_root.items()]
        self.wanted = [self._wanted_from(stage) for stage in range(len(step.ops) + 1)]

    def _mask(self, values):
        return sum(self.bit[value] for value in values)

    def _wanted_from(self, stage):
        """Values that a first run from here on, or a recomputation before one, may still read."""
        redos = [op for op in self.step.ops if op.redo_last >= stage]
        return self._mask({v for op in self.step.ops[stage:] for v in op.reads} | {v for op in redos for v in op.map_reads})

    def _bytes(self, held):
        return sum(size for size, mask in self.parts_of if held & mask)

    def _runs(self, held, op, parts, reads, writes):
        """What is held after the op, for each way to run it within the limit."""
        if held & reads != reads:
            return
        during = held | writes
        need = self._bytes(during) + op.workspace
        if need <= self.limit:
            yield during
        if self.step.can_share(op, parts):
            fresh, dying, _ = op.share
            if writes & self.bit[fresh] and need - self.step.buffer_bytes[fresh.buffer] <= self.limit:
                yield during & ~self.bit[dying]

    def _next(self, stage, held):
        """(cost, stage, held) one move on."""
        ops = self.step.ops
        left = held
        while left:
            low = left & -left
            left ^= low
            yield 0, stage, held ^ low
        op = ops[stage]
        for after in self._runs(held, op, op.parts, self._mask(op.reads) & ~self._new(op), self._mask(op.writes) | self._new(op)):
            yield op.cost, stage + 1, after
        for op in ops[:stage]:
            if op.may_redo and stage <= op.redo_last:
                for after in self._runs(held, op, MAP, self._mask(op.map_reads), self._mask(op.map_writes)):
                    yield op.cost, stage, after

    def _new(self, op):
        """Rigid values that the op is the first to touch."""
        return self._mask(v for v in op.reads if v.is_rigid and v.touches[0] == op.number)

    def best_cost(self, max_states):
        """The optimum in ns, None if nothing fits, or -1 past so many states."""
        best = {(0, 0): 0}
        queue = [(0, 0, 0)]
        while queue:
            cost, stage, held = heapq.heappop(queue)
            stage = -stage
            if stage == len(self.step.ops):
                return cost
            if best[(stage, held)] < cost:
                continue
            for more, to, after in self._next(stage, held):
                key = (to, after & self.wanted[to])
                if best.get(key, cost + more + 1) > cost + more:
                    best[key] = cost + more
                    heapq.heappush(queue, (cost + more, -to, key[1]))
            if len(best) > max_states:
                return -1
        return None

    # --- the same by exact_states ---

    @staticmethod
    def _words(mask):
        return f"{mask & (1 << 64) - 1} {mask >> 64}"

    def _text(self, upper_cost, max_states):
        """The step as exact_states.c reads it."""
        step, none = self.step, (1 << 32) - 1
        lines = [f"{self.limit} {upper_cost} {max_states}", f"{len(step.values)} {len(step.ops)} {len(self.parts_of)}"]
        lines += [f"{size} {self._words(mask)}" for size, mask in self.parts_of]
        lines.append(" ".join(str(none if v.is_rigid or step.ops[v.writer].redo_last < 0 else v.writer) for v in step.values))
        for op in step.ops:
            fresh, dying, _ = op.share or (None, None, None)
            share = (fresh.number, dying.number, step.buffer_bytes[fresh.buffer]) if op.share else (0, 0, 0)
            new = self._new(op)
            sets = (self._mask(op.reads) & ~new, self._mask(op.writes) | new, self._mask(op.map_reads), self._mask(op.map_writes))
            numbers = (op.cost, op.workspace, op.redo_last + 1, int(step.can_share(op, op.parts)), int(step.can_share(op, MAP)), *share)
            lines.append(" ".join(map(str, numbers)) + " " + " ".join(map(self._words, sets)))
        lines += [self._words(mask) for mask in self.wanted]
        return "\n".join(lines) + "\n"

    def best_below(self, program, upper_cost, max_states):
        """
        (whether it went to the end, a schedule that costs less than `upper_cost` or None, a bound of what does). At the end
        the schedule is the best of all, and if there is none nothing costs less than `upper_cost`.
        """
        done = subprocess.run([program], input=self._text(upper_cost, max_states), capture_output=True, text=True, check=True)
        said = json.loads(done.stdout)
        if said["cost"] < 0:
            return said["is_complete"], None, upper_cost if said["is_complete"] else said["bound"]
        schedule, has_run = [], set()
        for number in said["backwards"][::-1]:
            schedule.append((number, MAP if number in has_run else self.step.ops[number].parts))
            has_run.add(number)
        return True, schedule, said["cost"]
