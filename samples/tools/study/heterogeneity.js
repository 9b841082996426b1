// Words and charts of the study of unequal devices.
const conditionsOf = rows => unique(rows, "condition");
// The last row of each run, and runs of a condition and a way to train.
const lastRows = rows => rows.filter(r => r.end === "finished");
const runsWith = (rows, condition, algorithm) => lastRows(rows).filter(r => r.condition === condition && r.algorithm === algorithm);
const meanOf = (rows, column) => { const v = rows.map(r => r[column]).filter(has); return v.length ? mean(v) : NaN; };
const droppedBy = ["late", "conditions", "failure", "memory"];
// A share of those that had work: too many by design (surplus) are no drop-outs.
const shareOf = (runs, causes) => mean(runs.map(r => causes.reduce((n, c) => n + (r[c] || 0), 0) / r.assigned));

// Of each seed that two settings, [condition, way to train], share: how many times as long the second takes to the highest accuracy that both reach.
function timesAsLong(rows, ...settings) {
  const [a, b] = settings.map(([c, w]) => rows.filter(r => r.condition === c && r.algorithm === w && has(r.accuracy)));
  return unique(a, "seed").filter(s => b.some(r => r.seed === s)).map(s => {
    const runs = [a, b].map(all => all.filter(r => r.seed === s)), target = Math.min(...runs.map(run => Math.max(...run.map(r => r.accuracy))));
    const [from, to] = runs.map(run => run.find(r => r.accuracy >= target).sim_hours);
    return to / from;
  }).filter(has);
}
// Accuracy over the last five rounds, since one alone scatters; the mean of a setting's seeds.
const lateAccuracy = (rows, condition, algorithm) => mean(runsOf(rows.filter(r => r.condition === condition && r.algorithm === algorithm)).map(run => mean(run.map(r => r.accuracy).slice(-5))));

words.heterogeneity = rows => {
  const said = [];
  const fed = c => runsWith(rows, c, "fedavg"), has_ = c => fed(c).length > 0;
  const points = (a, b, column) => 100 * (meanOf(a, column) - meanOf(b, column));
  if (has_("none")) {
    for (const c of conditionsOf(rows).filter(x => x !== "none" && has_(x))) {
      const longer = timesAsLong(rows, ["none", "fedavg"], [c, "fedavg"]);
      said.push([`FedAvg, unequal ${c === "all" ? "in all three" : `in ${c}`}: ${percent1(meanOf(fed(c), "accuracy"))} at the end against ${percent1(meanOf(fed("none"), "accuracy"))} of equal devices; the worst tenth of devices has ${percent1(meanOf(fed(c), "worst_tenth"))} against ${percent1(meanOf(fed("none"), "worst_tenth"))}; ${longer.length > 0 ? `the same accuracy takes ${told(longer, times)} the simulated time` : "the same accuracy is not reached"}; ${percent1(shareOf(fed(c), droppedBy))} of the devices that had work drop out.`]);
    }
  }
  if (has_("data") && has_("all")) {
    const lost = 100 * (lateAccuracy(rows, "data", "fedavg") - lateAccuracy(rows, "all", "fedavg")), longer = timesAsLong(rows, ["data", "fedavg"], ["all", "fedavg"]), several = fed("all").length > 1;
    said.push([`Unequal hardware and state on top of unequal data cost FedAvg ${lost.toFixed(1)} points of accuracy over the last five rounds${several ? "" : ` (${oneSeed})`}${longer.length > 0 ? ` and ${told(longer, times)} the time` : ""}; the study of 136,000 phones found up to 9.2 points and 2.32 x.`, lost <= 0]);
  }
  const base = runsWith(rows, "all", "fedavg");
  for (const a of unique(rows, "algorithm").filter(x => x !== "fedavg")) {
    const mine = runsWith(rows, "all", a);
    if (mine.length === 0 || base.length === 0) continue;
    const ratio = timesAsLong(rows, ["all", "fedavg"], ["all", a]);
    const gained = points(mine, base, "accuracy");
    said.push([`${a}, all unequal: ${percent1(meanOf(mine, "accuracy"))} (FedAvg ${percent1(meanOf(base, "accuracy"))}), worst tenth ${percent1(meanOf(mine, "worst_tenth"))} (${percent1(meanOf(base, "worst_tenth"))}), ${ratio.length > 0 ? `${told(ratio, times)} its simulated time to the accuracy that both reach` : "the accuracy that both reach is not reached by both"}; ${percent1(shareOf(mine, droppedBy))} drop out (${percent1(shareOf(base, droppedBy))}).`, gained < 0 && ratio.every(r => r > 1)]);
  }
  return said;
};

// Means over seeds, round by round.
const meanCurve = rows => unique(rows, "round").map(k => { const v = rows.filter(r => r.round === k); return { x: meanOf(v, "sim_hours"), y: 100 * meanOf(v, "accuracy") }; }).filter(p => has(p.x) && has(p.y));

// A row for each way to train and each condition: means over seeds, of what the table "summary" has.
function unequalTable(into, summary) {
  const around = element("div", undefined, "scroll whole"), made = element("table", undefined, "prices"), head = made.createTHead().insertRow();
  const target = percent1(summary[0].target);
  for (const text of ["way to train", "unequal", "accuracy", "worst tenth", `rounds to ${target}`, `hours to ${target}`, "devices with work", ...droppedBy, "devices that counted"]) head.append(element("th", text));
  const body = made.createTBody();
  const some = (value, say) => has(value) ? say(value) : "";
  for (const r of summary) {
    const line = body.insertRow();
    const cell = (text, below) => { const c = element("td", text); if (below) c.append(element("small", below)); line.append(c); };
    for (const text of [r.algorithm, r.condition]) line.append(element("td", text, "text"));
    cell(some(r.mean_accuracy, percent1), has(r.sd_accuracy) ? `± ${(100 * r.sd_accuracy).toFixed(1)}` : "");
    cell(some(r.mean_worst_tenth, percent1));
    const part = r.reached < r.runs ? `${r.reached} of ${count(r.runs, "run", "runs")}` : "";
    cell(some(r.mean_round_to_target, v => v.toFixed(1)), part);
    cell(some(r.mean_sim_hours_to_target, v => v.toFixed(2)), part);
    cell(some(r.mean_assigned, v => v.toFixed(0)));
    for (const c of droppedBy) cell(some(r["mean_" + c], v => percent1(v / r.mean_assigned)));
    cell(some(r.mean_devices_counted, v => v.toFixed(1)));
  }
  around.append(made);
  into.append(element("h3", "Every way to train, by what is unequal"), around);
  into.append(element("p", "Means over seeds, and their standard deviation; rounds and simulated hours to the accuracy that every run reaches; drop-outs by cause as shares of the devices that had work.", "under"));
}

draw.heterogeneity = (into, rows, each) => {
  if (each && each.summary && each.summary.length > 0) unequalTable(into, each.summary);
  const charts = [["FedAvg: which devices are unequal", "condition", rows.filter(r => r.algorithm === "fedavg")], ["All unequal: how they train", "algorithm", rows.filter(r => r.condition === "all")]];
  for (const [title, key, mine] of charts.filter(([, , m]) => m.length > 0)) {
    const names = unique(mine, key);
    into.append(element("h3", title));
    legend(into, names);
    const box = grid(into);
    plot(box, { title: "Accuracy over simulated time", sets: names.map((name, i) => ({ name, i, isLine: true, points: meanCurve(mine.filter(r => r[key] === name)) })), x: "simulated hours", y: "test accuracy, %", height: 360, unit: v => v.toFixed(1) + " %", unitX: v => `${v.toFixed(2)} h` });
    const ends = name => lastRows(mine).filter(r => r[key] === name);
    const range = (name, column, scale) => { const v = ends(name).map(r => scale * r[column]).filter(has); return v.length ? { value: mean(v), low: v.length > 1 ? Math.min(...v) : undefined, high: v.length > 1 ? Math.max(...v) : undefined, text: mean(v).toFixed(1) + " %" } : { value: NaN, text: "" }; };
    const end = place(box), gone = place(box);
    shapeLegend(end, ["of the test set", "worst tenth of devices", "least class of devices"]);
    dots(end, { title: "Accuracy at the end", names, x: "%", most: 100, sets: [["of the test set", "accuracy"], ["worst tenth of devices", "worst_tenth"], ["least class of devices", "class_least"]].map(([name, column]) => ({ name, points: names.map((n, row) => ({ row, ...range(n, column, 100) })) })) });
    shapeLegend(gone, droppedBy);
    dots(gone, { title: "Drop-outs, of devices that had work", names, x: "%", sets: droppedBy.map(cause => ({ name: cause, points: names.map((n, row) => { const v = ends(n); const share = v.length ? 100 * shareOf(v, [cause]) : NaN; return { row, value: share, text: has(share) ? share.toFixed(1) + " %" : "" }; }) })) });
  }
};
