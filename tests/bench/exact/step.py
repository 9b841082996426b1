"""A training step as the planner sees it, read from bench_exact's JSON, and what a schedule of it costs and keeps alive.

Values are what can be kept or dropped one by one: a tensor that one op writes; each part of a tensor made of parts (they
share one buffer); and "rigid" ones: what is not indexed by the batch, or is written more than once, lives in one piece and is never recomputed.
"""
import json

ALIGN = 64
MAP, REDUCE, FIXED = 1, 2, 4


def aligned(n):
    return (n + ALIGN - 1) // ALIGN * ALIGN


class Value:
    """One value; `buffer` is its outermost tensor, `writer` its op (None: rigid), `reads` and `touches` ops."""

    def __init__(self, number, buffer, name, writer):
        self.number, self.buffer, self.name, self.writer = number, buffer, name, writer
        self.is_rigid = writer is None


class Op:
    """One op with its only variant. Sets of values: what the map part reads and writes, what a first run touches."""

    def __init__(self, number, spec):
        variant = spec["variants"][0]
        assert len(spec["variants"]) == 1, "cases have one variant an op"
        self.number, self.name, self.parts = number, spec["name"], spec["parts"]
        self.may_redo = spec["may_redo"] and self.parts & MAP != 0
        self.accesses = variant["accesses"]
        self.cost = sum(variant["cost"])
        self.workspace = aligned(sum(variant["workspace"]))
        self.in_place = variant["in_place"]
        self.map_reads, self.map_writes, self.reads, self.writes = [], [], [], []
        self.redo_last = -1  # the last op before which its map part may run again
        self.share = None  # (value written, value read) that may lie on one place


class Step:
    def __init__(self, text):
        spec = json.loads(text)
        self.tensors = spec["tensors"]
        self.ops = [Op(i, op) for i, op in enumerate(spec["ops"])]
        self.values = []
        self.buffer_bytes = {}
        self._find_roots()
        self._find_values()
        self._find_uses()
        self._find_redos()
        self._find_shares()

    # --- from accesses to values ---

    def _find_roots(self):
        self.above = []  # of each tensor: itself, its parent, ... its root
        self.has_parts = {t[3] for t in self.tensors if t[3] >= 0}
        for t in range(len(self.tensors)):
            above = [t]
            while self.tensors[above[-1]][3] >= 0:
                above.append(self.tensors[above[-1]][3])
            self.above.append(above)
        self.root = [above[-1] for above in self.above]

    def is_persistent(self, tensor):
        return self.tensors[self.root[tensor]][5] != 0

    def _overlap(self, a, b):
        """Parts of one tensor are apart unless one lies within the other."""
        return a in self.above[b] or b in self.above[a]

    def _find_values(self):
        writes = {}  # root: [(op, tensor)]
        touched = []
        for op in self.ops:
            for tensor, mode, _ in op.accesses:
                root = self.root[tensor]
                if self.is_persistent(tensor):
                    continue
                if root not in touched:
                    touched.append(root)
                if mode in "wua":
                    writes.setdefault(root, []).append((op.number, tensor, mode))
        self.of_root = {}
        for root in touched:
            mine = writes.get(root, [])
            is_batched = self.tensors[root][1] != 0
            is_apart = all(not self._overlap(a[1], b[1]) for i, a in enumerate(mine) for b in mine[:i])
            reads_own = any(m == "r" and any(self._overlap(t, w[1]) and w[0] == op.number for w in mine)
                            for op in self.ops for t, m, _ in op.accesses if self.root[t] == root)
            self.buffer_bytes[root] = aligned(self.tensors[root][1] + self.tensors[root][2])
            pieces = []
            if is_batched and is_apart and not reads_own:
                pieces = [(number, tensor) for number, tensor, _ in mine]
            for number, tensor in pieces or [(None, root)]:
                value = Value(len(self.values), root, self.tensors[tensor][0], number)
                value.tensor = tensor
                self.values.append(value)
                self.of_root.setdefault(root, []).append(value)

    def _find_uses(self):
        for op in self.ops:
            for tensor, mode, parts in op.accesses:
                for value in self.of_root.get(self.root[tensor], []):
                    if not self._overlap(tensor, value.tensor):
                        continue
                    if not value.is_rigid and mode == "r" and value.writer > op.number:
                        continue
                    is_write = not value.is_rigid and mode != "r"
                    if is_write and value.writer != op.number:
                        continue
                    for wanted, reads, writes in ((MAP, op.map_reads, op.map_writes), (7, op.reads, op.writes)):
                        into = writes if is_write else reads
                        if parts & wanted and value not in into:
                            into.append(value)
        for value in self.values:
            value.touches = [op.number for op in self.ops if value in op.reads or value in op.writes]
            value.uses = [op.number for op in self.ops if value in op.reads]

    def _changed(self, tensor, first, last):
        """Whether an op in (first, last) changes a tensor that has no versions of its own."""
        return any(mode != "r" and self._overlap(t, tensor)
                   for op in self.ops[first + 1:last] for t, mode, _ in op.accesses)

    def _find_redos(self):
        n = len(self.ops)
        for op in reversed(self.ops):
            # What the map part writes must be versions of their own: a rigid value among them forbids recomputation.
            own = [t for t, mode, parts in op.accesses if mode == "w" and parts & MAP]
            rigid = any(v.is_rigid for t in own for v in self.of_root.get(self.root[t], []))
            if not op.may_redo or rigid or not op.map_writes:
                continue
            last = 0
            for value in op.map_writes:
                for use in value.uses:
                    last = max(last, use, self.ops[use].redo_last if value in self.ops[use].map_reads else 0)
            for tensor, mode, parts in op.accesses:
                if mode != "r" or not parts & MAP:
                    continue
                frozen = self.is_persistent(tensor) or any(v.is_rigid for v in self.of_root[self.root[tensor]])
                while frozen and last > op.number and self._changed(tensor, op.number, last):
                    last -= 1
            op.redo_last = min(last, n - 1)

    def _find_shares(self):
        for op in self.ops:
            write, read = op.in_place
            if write < 0:
                continue
            (out, _, out_parts), (old, _, old_parts) = op.accesses[write], op.accesses[read]
            plain = all(self.tensors[t][3] < 0 and t not in self.has_parts and not self.is_persistent(t)
                        for t in (out, old))
            once = sum(t == old for t, _, _ in op.accesses) == 1
            if plain and once and out != old and self.tensors[out][1:3] == self.tensors[old][1:3]:
                fresh, dying = self.of_root[out][0], self.of_root[old][0]
                if fresh.is_rigid and fresh.touches[0] != op.number or dying.touches[0] == op.number:
                    continue
                op.share = (fresh, dying, out_parts & old_parts)

    def can_share(self, op, parts):
        return op.share is not None and op.share[2] & parts != 0

    def can_redo(self, op, before):
        """Whether op's map part may run again just before the first run of op `before`."""
        return op.number + 1 < before <= op.redo_last

    def persistent_bytes(self):
        return sum(aligned(t[2]) for t in self.tensors if t[5] != 0)

    def base_cost(self):
        return sum(op.cost for op in self.ops)

    # --- simulating a schedule ---

    def replay(self, schedule):
        """(cost, greatest sum of live bytes) of a list of (op, parts); raises ValueError for a read of what is not there."""
        made, lives, has_run = {}, {}, set()  # value: step; value: list of [first, last]
        for k, (number, parts) in enumerate(schedule):
            op = self.ops[number]
            is_first = number not in has_run
            if parts != op.parts and (is_first or parts != MAP):
                raise ValueError(f"step {k}: {op.name} runs parts {parts}")
            has_run.add(number)
            for value in (op.reads if is_first else op.map_reads):
                if value.is_rigid:
                    lives.setdefault(value, [[k, k]])[0][1] = k
                elif value not in made:
                    raise ValueError(f"step {k}: {op.name} reads {value.name}, which is not there")
                else:
                    lives[value][-1][1] = k
            for value in (op.writes if is_first else op.map_writes):
                made[value] = k
                lives.setdefault(value, []).append([k, k])
        if len(has_run) != len(self.ops):
            raise ValueError("not every op runs")
        return sum(self.ops[number].cost for number, _ in schedule), self._peak(schedule, lives)

    def _peak(self, schedule, lives):
        n = len(schedule)
        sums = [0] * n
        ends = {value: {last for _, last in spans} for value, spans in lives.items()}
        starts = {value: {first for first, _ in spans} for value, spans in lives.items()}
        for root, values in self.of_root.items():
            steps = {k for v in values for first, last in lives.get(v, []) for k in range(first, last + 1)}
            for k in steps:
                sums[k] += self.buffer_bytes[root]
        has_run = set()
        for k, (number, parts) in enumerate(schedule):
            op = self.ops[number]
            sums[k] += op.workspace
            if self.can_share(op, parts):
                fresh, dying, _ = op.share
                if k in ends[dying] and k not in starts[dying] and k in starts[fresh]:
                    sums[k] -= self.buffer_bytes[fresh.buffer]
            has_run.add(number)
        return max(sums)

    def plain_schedule(self):
        return [(op.number, op.parts) for op in self.ops]
