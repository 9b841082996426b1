// Words and charts of the study of unequal devices.
const conditionsOf = rows => unique(rows, "condition");
// The last row of each run, and runs of a condition and a way to train.
const lastRows = rows => rows.filter(r => r.end === "finished");
const runsWith = (rows, condition, algorithm) => lastRows(rows).filter(r => r.condition === condition && r.algorithm === algorithm);
const meanOf = (rows, column) => { const v = rows.map(r => r[column]).filter(has); return v.length ? mean(v) : NaN; };
const droppedBy = ["late", "conditions", "failure", "memory"];
// A share of those that had work: too many by design (surplus) are no drop-outs.
const shareOf = (runs, causes) => mean(runs.map(r => causes.reduce((n, c) => n + (r[c] || 0), 0) / r.assigned));

// Hours of simulated time to an accuracy, of each seed; NaN where it is not reached.
function hoursTo(rows, condition, algorithm, target) {
  const mine = rows.filter(r => r.condition === condition && r.algorithm === algorithm);
  return runsOf(mine).map(run => { const hit = run.find(r => r.accuracy >= target); return hit ? hit.sim_hours : NaN; });
}
// The accuracy that every run of some settings reaches.
const commonAccuracy = (rows, pairs_) => Math.min(...pairs_.flatMap(([c, a]) => runsOf(rows.filter(r => r.condition === c && r.algorithm === a)).map(run => Math.max(...run.map(r => r.accuracy).filter(has)))));

function timeBeside(rows, from, to, algorithm) {
  const target = commonAccuracy(rows, [[from, algorithm], [to, algorithm]]);
  const a = hoursTo(rows, from, algorithm, target), b = hoursTo(rows, to, algorithm, target);
  return a.map((h, i) => b[i] / h).filter(has);
}

words.heterogeneity = rows => {
  const said = [];
  const fed = c => runsWith(rows, c, "fedavg"), has_ = c => fed(c).length > 0;
  const points = (a, b, column) => 100 * (meanOf(a, column) - meanOf(b, column));
  if (has_("none")) {
    for (const c of conditionsOf(rows).filter(x => x !== "none" && has_(x))) {
      const longer = timeBeside(rows, "none", c, "fedavg");
      said.push([`FedAvg, unequal ${c === "all" ? "in all three" : `in ${c}`}: ${percent1(meanOf(fed(c), "accuracy"))} at the end against ${percent1(meanOf(fed("none"), "accuracy"))} of equal devices; the worst tenth of devices has ${percent1(meanOf(fed(c), "worst_tenth"))} against ${percent1(meanOf(fed("none"), "worst_tenth"))}; ${longer.length > 0 ? `the same accuracy takes ${told(longer, times)} the simulated time` : "the same accuracy is not reached"}; ${percent1(shareOf(fed(c), droppedBy))} of the devices that had work drop out.`]);
    }
  }
  if (has_("data") && has_("all")) {
    const lost = points(fed("data"), fed("all"), "accuracy"), longer = timeBeside(rows, "data", "all", "fedavg"), several = fed("all").length > 1;
    said.push([`Unequal hardware and state on top of unequal data cost FedAvg ${lost.toFixed(1)} points of accuracy${several ? "" : ` (${oneSeed})`}${longer.length > 0 ? ` and ${told(longer, times)} the time` : ""}; the study of 136,000 phones found up to 9.2 points and 2.32 x.`, lost <= 0]);
  }
  const base = runsWith(rows, "all", "fedavg");
  for (const a of unique(rows, "algorithm").filter(x => x !== "fedavg")) {
    const mine = runsWith(rows, "all", a);
    if (mine.length === 0 || base.length === 0) continue;
    const target = commonAccuracy(rows, [["all", "fedavg"], ["all", a]]);
    const ratio = hoursTo(rows, "all", a, target).map((h, i) => h / hoursTo(rows, "all", "fedavg", target)[i]).filter(has);
    const gained = points(mine, base, "accuracy");
    said.push([`${a}, all unequal: ${percent1(meanOf(mine, "accuracy"))} (FedAvg ${percent1(meanOf(base, "accuracy"))}), worst tenth ${percent1(meanOf(mine, "worst_tenth"))} (${percent1(meanOf(base, "worst_tenth"))}), ${ratio.length > 0 ? `${told(ratio, times)} its simulated time to the accuracy that both reach` : "the accuracy that both reach is not reached by both"}; ${percent1(shareOf(mine, droppedBy))} drop out (${percent1(shareOf(base, droppedBy))}).`, gained < 0 && ratio.every(r => r > 1)]);
  }
  return said;
};

// Means over seeds, round by round.
const meanCurve = rows => unique(rows, "round").map(k => { const v = rows.filter(r => r.round === k); return { x: meanOf(v, "sim_hours"), y: 100 * meanOf(v, "accuracy") }; }).filter(p => has(p.x) && has(p.y));

draw.heterogeneity = (into, rows) => {
  const charts = [["FedAvg: which devices are unequal", "condition", rows.filter(r => r.algorithm === "fedavg")], ["All unequal: how they train", "algorithm", rows.filter(r => r.condition === "all")]];
  for (const [title, key, mine] of charts.filter(([, , m]) => m.length > 0)) {
    const names = unique(mine, key);
    into.append(element("h3", title));
    legend(into, names);
    const box = grid(into);
    plot(box, { title: "Accuracy over simulated time", sets: names.map((name, i) => ({ name, i, isLine: true, points: meanCurve(mine.filter(r => r[key] === name)) })), x: "simulated hours", y: "test accuracy, %", height: 360, unit: v => v.toFixed(1) + " %", unitX: v => `${v.toFixed(2)} h` });
    const ends = name => lastRows(mine).filter(r => r[key] === name);
    const range = (name, column, scale) => { const v = ends(name).map(r => scale * r[column]).filter(has); return v.length ? { value: mean(v), low: v.length > 1 ? Math.min(...v) : undefined, high: v.length > 1 ? Math.max(...v) : undefined, text: mean(v).toFixed(1) + " %" } : { value: NaN, text: "" }; };
    shapeLegend(box, ["of the test set", "worst tenth of devices", "least class of devices"]);
    dots(box, { title: "Accuracy at the end", names, x: "%", most: 100, sets: [["of the test set", "accuracy"], ["worst tenth of devices", "worst_tenth"], ["least class of devices", "class_least"]].map(([name, column]) => ({ name, points: names.map((n, row) => ({ row, ...range(n, column, 100) })) })) });
    shapeLegend(box, droppedBy);
    dots(box, { title: "Drop-outs, of devices that had work", names, x: "%", sets: droppedBy.map(cause => ({ name: cause, points: names.map((n, row) => { const v = ends(n); const share = v.length ? 100 * shareOf(v, [cause]) : NaN; return { row, value: share, text: has(share) ? share.toFixed(1) + " %" : "" }; }) })) });
  }
};
