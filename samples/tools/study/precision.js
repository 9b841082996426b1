// Words and charts of the study of precisions: steps in a table of their own, then runs.
Object.assign(colors, { fp32: "#7b8794", niti: "#0b6e99", niti16: "#5dade2", "adaptive-int8": "#d81b60", "adaptive-fixed": "#d08700", octo: "#2e8b57", wageubn: "#7d5ba6", mls: "#c0392b" });

const isFloat = r => r.precision === "fp32";
const stepsOf = each => (each && each.steps || []);
const caseKeys = ["setting", "model", "dataset"];
const casesOf = rows => groupsOf(rows, caseKeys).map(([setting, model, dataset]) => ({ setting, model, dataset, rows: rows.filter(r => r.setting === setting && r.model === model && r.dataset === dataset) }));
// Of a precision's runs the last row of each seed, and the first at an accuracy.
const endsOf = (rows, precision) => runsOf(rows.filter(r => r.precision === precision && has(r.accuracy))).filter(run => run.length > 0).map(run => run[run.length - 1]);
const bestOf = run => Math.max(...run.map(r => r.accuracy).filter(has));

// Of each seed a column at the accuracy that both precisions reach: the other's over float32's.
function costRatios(rows, precision, column) {
  return unique(rows, "seed").map(seed => {
    const runs = ["fp32", precision].map(p => rows.filter(r => r.seed === seed && r.precision === p && has(r.accuracy)));
    if (runs.some(run => run.length === 0)) return NaN;
    const target = Math.min(...runs.map(bestOf)), at = runs.map(run => run.find(r => r.accuracy >= target));
    return has(at[0][column]) && has(at[1][column]) && at[0][column] > 0 ? at[1][column] / at[0][column] : NaN;
  }).filter(has);
}

// Steps of a precision, each with float32's of the same network and batch.
const besideFloat = (steps, precision) => steps.filter(r => r.precision === precision && has(r.time_cpu_ms)).map(r => [r, steps.find(b => isFloat(b) && b.model === r.model && b.batch === r.batch && has(b.time_cpu_ms))]).filter(([, b]) => b);

function saySteps(said, steps) {
  for (const precision of unique(steps, "precision").filter(p => p !== "fp32")) {
    const all = besideFloat(steps, precision);
    if (all.length === 0) continue;
    const sure = all.map(([r, b]) => ratioOf(timing(r), timing(b))).filter(r => r.isTold), open = all.length - sure.length;
    const memory = all.map(([r, b]) => r.planned_bytes / b.planned_bytes), joules = all.map(([r, b]) => r.energy_step_j / b.energy_step_j).filter(has);
    const time = sure.length > 0 ? `a step takes ${told(sure.map(r => r.value), times)} the time of float32's${open > 0 ? `, and in ${count(open, "case", "cases")} the steps scatter more than they differ` : ""}` : "the steps scatter more than they differ from float32's";
    said.push([`${precision}: ${time}; ${told(memory, times)} its memory${joules.length > 0 ? `; ${told(joules, times)} its energy` : ""}.`, sure.some(r => r.value > 1)]);
  }
  for (const why of unique(steps.filter(r => r.refused), "refused")) {
    const mine = steps.filter(r => r.refused === why);
    said.push([`${unique(mine, "precision").join(", ")} has no step of ${unique(mine, "model").map(labelOf).join(", ")}: ${why}.`]);
  }
  if (steps.some(r => has(r.time_cpu_ms)) && !steps.some(r => has(r.energy_step_j))) said.push(["This machine counts no energy: processor time and the bytes that operations read and write stand for it."]);
}

words.precision = (rows, each) => {
  const said = [];
  saySteps(said, stepsOf(each));
  for (const one of casesOf(rows)) {
    const base = endsOf(one.rows, "fp32"), of = list => meanOf(list, "accuracy");
    if (base.length === 0) continue;
    const parts = unique(one.rows, "precision").filter(p => p !== "fp32").map(p => {
      const mine = endsOf(one.rows, p);
      if (mine.length === 0) return { text: `${p} diverged`, isAgainst: true };
      const points = 100 * (of(mine) - of(base)), time = costRatios(one.rows, p, "time_cpu_s"), rounds = costRatios(one.rows, p, "round");
      const cost = [[rounds, "the rounds"], [time, "the processor time"]].filter(([v]) => v.length > 0).map(([v, what]) => `${times(median(v))} ${what}`);
      return { text: `${p} ${percent1(of(mine))} (${signed1(points)} points${cost.length > 0 ? `; ${cost.join(" and ")} to the accuracy that both reach` : ""})`, isAgainst: points < 0 };
    });
    const error = standardError(of(base), testSize(base[0]));
    said.push([`${labelOf(one.model)} on ${one.dataset}, ${one.setting}: float32 ends at ${percent1(of(base))}${spread(base.map(r => r.accuracy))}, ${parts.map(p => p.text).join(", ")}${base.length < 2 ? `; ${oneSeed}` : ""}${has(error) ? `; a standard error of the test set is ${(100 * error).toFixed(1)} points` : ""}.`, parts.length > 0 && parts.every(p => p.isAgainst)]);
  }
  return said;
};

function drawSteps(into, steps) {
  const models = unique(steps, "model"), names = unique(steps, "precision");
  if (models.length === 0) return;
  into.append(element("h3", "A step"));
  const box = grid(into);
  for (const [model, batch] of groupsOf(steps, ["model", "batch"])) {
    const mine = steps.filter(r => r.model === model && r.batch === batch), row = p => mine.find(r => r.precision === p), title = `${labelOf(model)}, batch ${batch}`;
    const refused = names.filter(p => row(p) && row(p).refused);
    const points = (value, text, range) => names.map((p, k) => { const r = row(p), v = r ? value(r) : NaN; return { row: k, value: v, text: has(v) ? text(r) : r && r.refused ? "refused" : "", ...(has(v) && range && r.time_steps > 1 ? range(r) : {}) }; });
    dots(box, { title: `${title}: time`, names, x: "processor ms a step", least: 0, sets: [{ points: points(r => r.time_cpu_ms, r => `${plain(+r.time_cpu_ms.toPrecision(3))} ms`, r => ({ low: r.time_cpu_low_ms, high: r.time_cpu_high_ms })) }] });
    dots(box, { title: `${title}: memory`, names: names.filter(p => !refused.includes(p)), x: "MiB", least: 0, sets: [{ points: names.filter(p => !refused.includes(p)).map((p, k) => ({ row: k, value: row(p) ? row(p).planned_bytes / 1048576 : NaN, text: row(p) && has(row(p).planned_bytes) ? size(row(p).planned_bytes) : "" })) }] });
    if (mine.some(r => has(r.energy_step_j))) dots(box, { title: `${title}: energy`, names, x: "J a step", least: 0, sets: [{ points: points(r => r.energy_step_j, r => `${plain(+r.energy_step_j.toPrecision(3))} J`) }] });
  }
}

draw.precision = (into, rows, each) => {
  drawSteps(into, stepsOf(each));
  for (const one of casesOf(rows)) {
    const names = unique(one.rows, "precision");
    if (!one.rows.some(r => has(r.accuracy))) continue;
    into.append(element("h3", `${labelOf(one.model)} on ${one.dataset}, ${one.setting}`));
    legend(into, names);
    const box = grid(into), ends = names.map(p => endsOf(one.rows, p));
    for (const [x, text] of [["round", one.setting === "federated" ? "round" : "epochs"], ["time_cpu_s", "processor seconds"]]) {
      if (!one.rows.some(r => has(r[x]))) continue;
      plot(box, { title: `${labelOf(one.model)}, ${one.setting}: accuracy over ${text}`, x: text, y: "test accuracy, %", fromX: 0, most: 100, height: 360, unit: v => v.toFixed(1) + " %", unitX: v => `${plain(+v.toPrecision(3))} ${text}`,
        notes: [unique(one.rows, "seed").length > 1 ? `Means over ${unique(one.rows, "seed").length} seeds.` : "One seed: differences may be chance."],
        sets: names.map((name, i) => ({ name, i, points: unique(one.rows.filter(r => r.precision === name), "round").map(k => { const v = one.rows.filter(r => r.precision === name && r.round === k); return { x: meanOf(v, x), y: 100 * meanOf(v, "accuracy") }; }).filter(p => has(p.x) && has(p.y)) })) });
    }
    dots(box, { title: `${labelOf(one.model)}, ${one.setting}: accuracy at the end`, names, x: "test accuracy, %", most: 100, sets: [{ points: names.map((_, row) => {
      const v = ends[row].map(r => 100 * r.accuracy);
      return v.length > 0 ? { row, value: mean(v), low: v.length > 1 ? Math.min(...v) : undefined, high: v.length > 1 ? Math.max(...v) : undefined, text: mean(v).toFixed(1) + " %" } : { row, value: NaN, text: "diverged" };
    }) }] });
    const costs = [["time_cpu_s", "processor time"], ["operand_bytes", "bytes read and written"], ["wire_up_bytes", "bytes sent up"], ["energy_j", "energy"]].filter(([c]) => names.some(p => p !== "fp32" && costRatios(one.rows, p, c).length > 0)), others = names.filter(p => p !== "fp32");
    if (costs.length > 0) {
      const mine = place(box);
      shapeLegend(mine, costs.map(([, what]) => what));
      dots(mine, { title: `${labelOf(one.model)}, ${one.setting}: cost to the accuracy that both reach`, names: others, x: "times float32's", clip: true, least: 0, sets: costs.map(([c, what]) => ({ name: what, points: others.map((p, row) => { const v = costRatios(one.rows, p, c); return v.length > 0 ? { row, value: median(v), text: times(median(v)) } : { row, value: NaN, text: "" }; }) })) });
    }
  }
};
