// Words and charts of what only the papers' studies have: hybrid (of sage) and measure (of emdl).
Object.assign(colors, { neither: "#7b8794", accumulation: "#2e8b57", checkpointing: "#c06fd0", both: "#d08700", "ghost auto": "#5dade2", pytorch: "#d81b60" });

const groupsOf = (rows, keys) => [...new Set(rows.map(r => JSON.stringify(keys.map(k => r[k]))))].map(JSON.parse);
// Of rows in one budget the fastest plan of some techniques.
const fastestOf = (rows, names) => rows.filter(r => r.fits && names.includes(r.technique)).reduce((a, b) => a && a.predicted_ms <= b.predicted_ms ? a : b, undefined);
const leastOf = (rows, names) => Math.min(...rows.filter(r => names.includes(r.technique)).map(r => r.needed_bytes));
const mixedWays = ["both", "sage"], sageWays = ["accumulation", "checkpointing", "both", "sage"];

// Every budget of every network, with what is in it.
const budgetsOf = rows => groupsOf(rows, ["model", "batch", "budget_bytes"]).map(([model, batch, budget]) => rows.filter(r => r.model === model && r.batch === batch && r.budget_bytes === budget));

// Speeds of one set of techniques beside another's, in each budget where both have a plan and not the same one.
function besides(rows, names, others) {
  const all = budgetsOf(rows).map(r => [fastestOf(r, names), fastestOf(r, others)]).filter(([a, b]) => a && b && a.predicted_ms !== b.predicted_ms);
  return all.map(([a, b]) => ({ a, b, predicted: b.predicted_ms / a.predicted_ms, measured: ratioOf(timing(b), timing(a)) }));
}

function sayBeside(said, rows, names, others, what, isOurs) {
  const all = besides(rows, names, others);
  if (all.length === 0) return;
  const told_ = all.filter(c => c.measured.isTold), ran = all.filter(c => timing(c.a) && timing(c.b));
  const slow = all.filter(c => c.predicted < 1);
  const measured = ran.length === 0 ? "" : told_.length > 0 ? `; measured ${told(told_.map(c => c.measured.value), times)}${told_.length < ran.length ? `, and in ${count(ran.length - told_.length, "case", "cases")} the steps scatter more than they differ` : ""}` : "; measured, the steps scatter more than they differ";
  said.push([`${what}: ${told(all.map(c => c.predicted), times)} the speed, predicted${measured}.`]);
  if (isOurs && slow.length > 0) {
    const worst = slow.reduce((x, y) => x.predicted < y.predicted ? x : y);
    said.push([`In ${slow.length} of ${count(all.length, "budget", "budgets")} auto is slower than the fastest of them: most for ${labelOf(worst.a.model)} in ${size(worst.a.budget_bytes)}, ${times(worst.predicted)} of ${worst.b.technique}${worst.b.is_ghost ? ", which has ghost statistics and other weights" : ""}.`, true]);
  }
}

words.hybrid = rows => {
  const said = [];
  for (const [model, batch] of groupsOf(rows, ["model", "batch"])) {
    const mine = rows.filter(r => r.model === model && r.batch === batch), first = mine[0];
    const parts = ["neither", "accumulation", "checkpointing", "both", "sage", "auto"].filter(t => mine.some(r => r.technique === t)).map(t => `${t} ${size(leastOf(mine, [t]))}`);
    const best = Math.min(...mine.map(r => r.needed_bytes));
    said.push([`${labelOf(model)}, batch ${batch}: with nothing shared a step takes ${size(first.none_bytes)}; the least is ${parts.join(", ")}; at best ${times(first.none_bytes / best)} less, and ${times((first.none_bytes - first.state_bytes) / (best - first.state_bytes))} without the ${size(first.state_bytes)} of weights and the optimiser's state.`]);
  }
  sayBeside(said, rows, mixedWays, ["checkpointing"], "Accumulation with checkpointing, beside checkpointing alone in the same budget");
  sayBeside(said, rows, mixedWays, ["accumulation"], "Beside accumulation alone");
  sayBeside(said, rows, ["auto"], sageWays, "auto, whose step is exact, beside the fastest of accumulation, checkpointing, both and Sage's choice", true);
  const tight = budgetsOf(rows), only = tight.filter(r => fastestOf(r, ["auto"]) && !fastestOf(r, sageWays)), lost = tight.filter(r => !fastestOf(r, ["auto"]) && fastestOf(r, sageWays));
  if (only.length > 0) said.push([`auto alone has a plan in ${count(only.length, "budget", "budgets")} of ${tight.length}.`]);
  if (lost.length > 0) said.push([`In ${count(lost.length, "budget", "budgets")} of ${tight.length} auto has no plan where one of Sage's ways has: ${lost.map(r => `${labelOf(r[0].model)} in ${size(r[0].budget_bytes)}`).join("; ")}.`, true]);
  return said;
};

// Slices by checkpointing: what each cell's examples a second are, for every budget.
function sliceTable(into, rows) {
  const around = element("div", undefined, "scroll whole"), made = element("table", undefined, "prices"), head = made.createTHead().insertRow();
  const slices = unique(rows.filter(r => ["neither", "accumulation", "checkpointing", "both"].includes(r.technique)), "slice_asked").sort((a, b) => b - a);
  const order = [...slices.filter(s => s === 0), ...slices.filter(s => s > 0)];
  for (const text of ["network", "budget", "tensors recomputed", ...order.map(s => s === 0 ? "whole batch" : `slices of ${s}`)]) head.append(element("th", text));
  const body = made.createTBody();
  for (const mine of budgetsOf(rows)) {
    for (const [called, names] of [["no", ["neither", "accumulation"]], ["yes", ["checkpointing", "both"]]]) {
      const line = body.insertRow();
      for (const text of [`${labelOf(mine[0].model)}, batch ${mine[0].batch}`, size(mine[0].budget_bytes), called]) line.append(element("td", text, "text"));
      for (const s of order) {
        const r = mine.find(x => names.includes(x.technique) && x.slice_asked === s);
        const box = element("td", !r ? "" : r.fits ? plain(+r.predicted_samples_per_s.toPrecision(3)) : "-");
        if (r && r.fits) box.append(element("small", r.is_ghost ? "ghost" : "exact"));
        line.append(box);
      }
    }
  }
  into.append(element("h3", "Slices by checkpointing: examples a second, predicted"));
  around.append(made);
  into.append(around, element("p", "A dash: no plan in that budget. Ghost: batch norm over each slice alone, so the weights are not those of the exact step. Networks without batch norm are sliced with checkpointing by sage and auto alone.", "under"));
}

draw.hybrid = (into, rows) => {
  const names = unique(rows, "technique");
  legend(into, names);
  const box = grid(into);
  for (const [model, batch] of groupsOf(rows, ["model", "batch"])) {
    const mine = rows.filter(r => r.model === model && r.batch === batch);
    const isTimed = mine.some(r => rate(r));
    const sets = names.map((name, i) => ({ name, i, points: budgetsOf(mine).map(r => fastestOf(r, [name])).filter(r => r && (!isTimed || rate(r))).map(r => {
      const v = isTimed ? rate(r) : null;
      return { x: r.budget_bytes / 1048576, y: v ? v.mid : r.predicted_samples_per_s, low: v && v.n > 1 ? v.low : undefined, high: v && v.n > 1 ? v.high : undefined };
    }).sort((a, b) => a.x - b.x) }));
    const without = names.filter(n => mine.some(r => r.technique === n) && !mine.some(r => r.technique === n && r.fits));
    plot(box, { title: `${labelOf(model)}, batch ${batch}: examples a second by budget`, sets, x: "budget, MiB (log)", y: isTimed ? "examples per second of the processor" : "examples/s, predicted", isLogX: true, height: 360, unitX: v => `${v.toFixed(1)} MiB`, unit: v => plain(+v.toPrecision(3)),
      notes: without.length > 0 ? [`No plan in any of these budgets: ${without.join(", ")}.`] : [] });
    const ways = names.filter(name => mine.some(r => r.technique === name)), least = ways.map(name => leastOf(mine, [name]));
    dots(box, { title: `${labelOf(model)}, batch ${batch}: least memory`, names: ways, x: "MiB", sets: [{ points: ways.map((_, row) => ({ row, value: least[row] / 1048576, text: size(least[row]) })) }] });
  }
  sliceTable(into, rows);
};

// --- measure ---

const besideTorch = r => ratioOf(has(r.torch_step_ms) ? { mid: r.torch_step_ms, low: r.torch_step_low_ms, high: r.torch_step_high_ms, n: r.torch_steps } : null, timing(r));
const ofPolicy = (rows, policy) => rows.filter(r => r.policy === policy);
// PyTorch's figures stand in the rows of each policy and budget: of each network and batch once.
const onceEach = rows => groupsOf(rows, ["model", "batch"]).map(([m, b]) => rows.find(r => r.model === m && r.batch === b));
const stepsOver = (rows, step, forward) => rows.filter(r => has(r[step]) && has(r[forward])).map(r => r[step] / r[forward]);

function sayTorch(said, rows) {
  const empty = onceEach(rows).filter(r => !has(r.torch_step_ms)), notes = unique(empty, "torch_note").filter(n => n);
  if (empty.length > 0) {
    said.push([`PyTorch's columns are empty in ${empty.length} of ${count(onceEach(rows).length, "case", "cases")}${notes.length > 0 ? `: ${notes.join("; ")}` : ""}.`]);
  }
  for (const policy of unique(rows, "policy")) {
    const ran = ofPolicy(rows, policy).filter(r => r.fits && has(r.torch_step_ms)), all = ran.map(r => [r, besideTorch(r)]), sure = all.filter(([, t]) => t.isTold);
    if (all.length === 0) continue;
    const slow = sure.filter(([, t]) => t.value < 1), less = ran.map(r => r.torch_bytes / r.planned_bytes);
    said.push([`${policy} beside PyTorch ${ran[0].torch_version}: a step at ${sure.length > 0 ? `${told(sure.map(([, t]) => t.value), times)} its speed` : "a speed that the repeats do not tell apart"}${sure.length > 0 && sure.length < all.length ? `, not decided in ${all.length - sure.length}` : ""}; PyTorch's process takes ${told(less, times)} the memory of the plan.`]);
    if (slow.length > 0) said.push([`PyTorch is faster than ${policy} in ${count(slow.length, "case", "cases")}: ${slow.map(([r, t]) => `${labelOf(r.model)} at batch ${r.batch}, ${times(1 / t.value)}`).join("; ")}.`, isAuto(policy)]);
    const more = ran.filter(r => r.torch_bytes < r.planned_bytes);
    if (more.length > 0) said.push([`PyTorch takes less memory than ${policy} in ${count(more.length, "case", "cases")}: ${more.map(r => `${labelOf(r.model)} at batch ${r.batch}, ${size(r.torch_bytes)} against ${size(r.planned_bytes)}`).join("; ")}.`, isAuto(policy)]);
  }
}

words.measure = rows => {
  const said = [];
  for (const policy of unique(rows, "policy")) {
    const mine = ofPolicy(rows, policy), ratios = stepsOver(mine, "time_cpu_ms", "time_forward_ms");
    if (ratios.length > 0) said.push([`${policy}: a step takes ${told(ratios, times)} as long as an inference (its operations are about three times as many).`]);
  }
  const theirs = stepsOver(onceEach(rows), "torch_step_ms", "torch_forward_ms");
  if (theirs.length > 0) said.push([`PyTorch: ${told(theirs, times)}.`]);
  sayTorch(said, rows);
  for (const [model, budget] of groupsOf(rows, ["model", "budget_bytes"])) {
    const mine = rows.filter(r => r.model === model && r.budget_bytes === budget), most = unique(mine, "batch").length;
    const last = (list, fits) => { const all = list.filter(fits).map(r => r.batch); return all.length === 0 ? "fits no batch" : `fits ${Math.max(...all)}${all.length === most ? ", the largest that was tried" : ""}`; };
    const parts = unique(mine, "policy").map(p => `${p} ${last(ofPolicy(mine, p), r => r.fits)}`);
    if (mine.some(r => has(r.torch_bytes))) parts.push(`PyTorch ${last(onceEach(mine), r => r.torch_fits)}`);
    said.push([`${labelOf(model)} in ${size(budget)}: ${parts.join("; ")}, of the batches here.`]);
  }
  return said;
};

draw.measure = (into, rows) => {
  const policies = unique(rows, "policy"), hasTorch = rows.some(r => has(r.torch_step_ms)), names = [...policies, ...(hasTorch ? ["pytorch"] : [])];
  legend(into, names);
  const box = grid(into);
  for (const model of unique(rows, "model")) {
    const mine = rows.filter(r => r.model === model), budgets = unique(mine, "budget_bytes");
    const listed = name => name === "pytorch" ? onceEach(mine) : groupsOf(ofPolicy(mine, name), ["batch"]).map(([b]) => ofPolicy(mine, name).find(r => r.batch === b && r.fits) || ofPolicy(mine, name).find(r => r.batch === b));
    const bytes = (r, name) => name === "pytorch" ? r.torch_bytes : r.fits ? r.planned_bytes : r.needed_bytes;
    const points = (name, y, low, high) => ({ name, i: names.indexOf(name), points: listed(name).filter(r => has(y(r))).map(r => ({ x: r.batch, y: y(r), low: low && low(r), high: high && high(r) })) });
    const each = r => 1 / r.batch;
    const title = `${labelOf(model)}, ${mine[0].image ? `${mine[0].image} pixels` : "tokens"}`;
    const ends = [Math.min(...mine.map(r => r.batch)), Math.max(...mine.map(r => r.batch))];
    plot(box, { title: `${title}: memory of a step by batch`, x: "batch (log)", y: "MiB", isLogX: true, unitX: v => `batch ${v}`, unit: v => plain(+v.toPrecision(4)),
      sets: [...names.map(n => points(n, r => bytes(r, n) / 1048576)), ...budgets.map(b => ({ name: "", i: 0, isHelp: true, isLine: true, paint: tint("--soft"), points: ends.map(x => ({ x, y: b / 1048576 })) }))],
      notes: [`The level line: the budget, ${budgets.map(size).join(", ")}. Where a plan does not fit, what it needs.`] });
    plot(box, { title: `${title}: a step's time for each example`, x: "batch (log)", y: "processor ms an example", isLogX: true, unitX: v => `batch ${v}`, unit: v => plain(+v.toPrecision(3)),
      sets: names.map(n => n === "pytorch" ? points(n, r => r.torch_step_ms * each(r), r => r.torch_step_low_ms * each(r), r => r.torch_step_high_ms * each(r))
        : points(n, r => has(r.time_cpu_ms) ? r.time_cpu_ms * each(r) : NaN, r => r.time_cpu_low_ms * each(r), r => r.time_cpu_high_ms * each(r))) });
  }
  const batch = Math.min(...rows.map(r => r.batch)), at = rows.filter(r => r.batch === batch), models = unique(rows, "model");
  const over = (r, step, forward) => has(r && r[step]) && has(r[forward]) ? { value: r[step] / r[forward], text: times(r[step] / r[forward]) } : { value: NaN, text: "" };
  shapeLegend(into, names, true);
  const wide = grid(into, true);
  dots(wide, { title: `A step over an inference, at batch ${batch}`, names: models.map(labelOf), x: "times an inference", bySet: true, least: 0,
    sets: names.map(n => ({ name: n, points: models.map((m, row) => ({ row, ...(n === "pytorch" ? over(at.find(r => r.model === m), "torch_step_ms", "torch_forward_ms") : over(at.find(r => r.model === m && r.policy === n && r.fits), "time_cpu_ms", "time_forward_ms")) })) })) });
};
