// What the tables say, computed from them. Each function gives [text, isAgainst]: the second marks where Dunlin does not win.
const unique = (rows, key) => [...new Set(rows.map(r => r[key]))];
const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
const percent = x => (100 * x).toFixed(x < 0.1 ? 1 : 0) + " %";
const times = x => x.toFixed(2) + " x";
const size = n => {
  const units = ["B", "KiB", "MiB", "GiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 ? n.toFixed(0) : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)) + " " + units[i];
};
const median = values => { const v = [...values].sort((a, b) => a - b); return v.length ? (v[(v.length - 1) >> 1] + v[v.length >> 1]) / 2 : NaN; };
const geometric = values => Math.exp(mean(values.map(Math.log)));
const count = (n, one, many) => `${n} ${n === 1 ? one : many}`;
const rivals = ["pool", "recompute", "sublinear", "sgc", "microbatch", "sage", "melon"];
// They use a file, which auto does not: shown separately.
const swappers = ["vdnn", "capuchin"];
const spread = values => values.length < 2 ? "" : ` (${percent1(Math.min(...values))} to ${percent1(Math.max(...values))})`;
const reach = row => row.is_any ? Infinity : row.max_batch || 0;

// Rows of auto, each with those of another policy in the same situation.
function pairs(rows, policy, keys) {
  const name = r => keys.map(k => r[k]).join("|");
  const other = new Map(rows.filter(r => r.policy === policy).map(r => [name(r), r]));
  return rows.filter(r => r.policy === "auto" && other.has(name(r))).map(r => [r, other.get(name(r))]);
}

// Of one case, runs with the largest batch, with the planner and without: -1 if it is sooner at the target in every seed, 1 if later, else 0.
function compareRuns(rows, key) {
  const sign = unique(rows, "seed").map(seed => {
    const at = rule => { const hit = rows.find(r => r.seed === seed && r.batch_rule === rule && r.is_reached); return hit ? hit[key] : Infinity; };
    const a = at("most, auto"), b = at("most, none");
    return a === b ? 0 : a < b ? -1 : 1;
  });
  return sign.every(s => s < 0) ? -1 : sign.every(s => s > 0) ? 1 : 0;
}

// The answer over all cases, a data set with a split and an algorithm.
function verdict(rows) {
  const cases = new Map();
  for (const r of rows) cases.set([r.dataset, r.algorithm, r.partition].join(), [...(cases.get([r.dataset, r.algorithm, r.partition].join()) || []), r]);
  const batch = (part, rule) => (part.find(r => r.batch_rule === rule) || {}).batch;
  const open = [...cases.values()].filter(p => batch(p, "most, auto") && batch(p, "most, none") && batch(p, "most, auto") !== batch(p, "most, none"));
  if (open.length === 0) return null;
  const tell = key => { const all = open.map(p => compareRuns(p, key)); return [all.filter(x => x < 0).length, all.filter(x => x > 0).length, all.filter(x => x === 0).length]; };
  const [fewer, more, open_] = tell("round"), [less, longer, even] = tell("time_wall_s");
  return [`The answer: in ${count(open.length, "case", "cases")} (data set, split, algorithm) the planner affords a larger batch than fits without it. It reaches the target in fewer rounds in ${fewer} of them, in more in ${more}, and in ${open_} the seeds do not agree or neither is sooner; in less time in ${less}, in more in ${longer}, undecided in ${even} (seeds: ${unique(rows, "seed").length}; a case counts only if all of them agree).`, fewer <= open.length / 2];
}

const words = {
  "max-batch": rows => {
    const said = [];
    const any = rows.filter(r => r.policy === "auto" && r.is_any);
    const auto = rows.filter(r => r.policy === "auto");
    if (auto.length === 0) return said;
    if (any.length > 0) {
      said.push([`Slices make any batch fit for ${unique(any, "model").join(", ")} (auto; ${any.length} of ${auto.length} cases).`]);
    }
    const slow = auto.filter(r => r.ratio_predicted > 0);
    if (slow.length > 0) {
      said.push([`The largest batch is bought with time: there an example takes ${times(median(slow.map(r => r.ratio_predicted)))} what it takes in the ideal step of 32 (predicted, median of ${count(slow.length, "case", "cases")}; at most ${times(Math.max(...slow.map(r => r.ratio_predicted)))}).`, true]);
    }
    const dearer = [];
    for (const policy of ["none", ...rivals, ...swappers]) {
      const both = pairs(rows, policy, ["model", "budget_bytes"]);
      if (both.length === 0) continue;
      const called = swappers.includes(policy) ? `${policy}, which uses a file` : policy;
      const finite = both.filter(([a, b]) => isFinite(reach(a)) && reach(a) > 0 && reach(b) > 0);
      const alone = both.filter(([a, b]) => reach(a) > 0 && reach(b) === 0).length;
      const less = both.filter(([a, b]) => reach(a) < reach(b));
      const parts = [];
      if (finite.length > 0) parts.push(`${times(geometric(finite.map(([a, b]) => reach(a) / reach(b))))} the batch of ${called}, the geometric mean of ${count(finite.length, "case", "cases")} where both are bounded`);
      if (alone > 0) parts.push(`a batch in ${count(alone, "case", "cases")} where ${policy} does not fit one example`);
      if (parts.length > 0) said.push([`auto reaches ${parts.join("; ")}.`]);
      const costs = both.filter(([a, b]) => a.ratio_predicted > 0 && b.ratio_predicted > 0).map(([a, b]) => a.ratio_predicted / b.ratio_predicted);
      if (costs.length > 0 && geometric(costs) > 1.05 && policy !== "none") dearer.push(`${times(geometric(costs))} of ${policy}'s`);
      for (const [a, b] of less) said.push([`${policy} fits more than auto: ${a.model} in ${size(a.budget_bytes)}: ${b.is_any ? "any" : b.max_batch} against ${a.max_batch}.`, true]);
    }
    if (dearer.length > 0) said.push([`Those batches differ in price: at its own largest an example takes auto ${dearer.join(", ")} time at theirs (predicted, geometric means).`, true]);
    return said;
  },

  throughput: rows => {
    const said = [];
    const keys = ["model", "batch", "budget_bytes"];
    const beside = pairs(rows, "ideal", keys).filter(([a]) => a.fits);
    const tight = beside.filter(([a, b]) => b.planned_bytes > a.budget_bytes);
    const roomy = beside.filter(([a, b]) => b.planned_bytes <= a.budget_bytes);
    const rate = list => list.map(([a, b]) => a.time_samples_per_s / b.time_samples_per_s);
    if (roomy.length > 0) said.push([`Where the ideal step fits, auto runs at ${percent(median(rate(roomy)))} of its speed (median of ${roomy.length}; worst ${percent(Math.min(...rate(roomy)))}).`]);
    if (tight.length > 0) {
      const planned = tight.map(([a, b]) => a.predicted_samples_per_s / b.predicted_samples_per_s);
      said.push([`Where it does not fit, auto trains the batch all the same, at ${percent(median(rate(tight)))} of the speed of the ideal with unlimited memory (median of ${tight.length}; best ${percent(Math.max(...rate(tight)))}, worst ${percent(Math.min(...rate(tight)))}); predicted ${percent(median(planned))}.`]);
    }
    for (const policy of [...rivals, ...swappers]) {
      const both = pairs(rows, policy, keys);
      if (both.length === 0) continue;
      const ran = both.filter(([a, b]) => a.fits && b.fits && a.predicted_ms !== b.predicted_ms);
      const missed = both.filter(([a, b]) => a.fits && !b.fits).length;
      const parts = [];
      if (ran.length > 0) parts.push(`auto runs at ${times(geometric(ran.map(([a, b]) => a.time_samples_per_s / b.time_samples_per_s)))} its speed where the plans differ (${count(ran.length, "case", "cases")})`);
      if (missed > 0) parts.push(`it does not fit in ${count(missed, "case", "cases")} where auto does`);
      if (parts.length > 0) said.push([`${policy}: ${parts.join("; ")}.`]);
      const lost = ran.filter(([a, b]) => a.time_samples_per_s < 0.95 * b.time_samples_per_s);
      if (lost.length > 0) {
        const [a, b] = lost.reduce((x, y) => x[0].time_samples_per_s / x[1].time_samples_per_s < y[0].time_samples_per_s / y[1].time_samples_per_s ? x : y);
        said.push([`${policy} was measured faster than auto by more than 5 % in ${count(lost.length, "case", "cases")}; most for ${a.model} at batch ${a.batch}: ${b.time_samples_per_s.toFixed(1)} against ${a.time_samples_per_s.toFixed(1)} examples/s (predicted ${b.predicted_samples_per_s.toFixed(1)} and ${a.predicted_samples_per_s.toFixed(1)}).`, true]);
      }
    }
    for (const policy of swappers) {
      const mine = rows.filter(r => r.policy === policy && r.fits && r.n_swapped > 0);
      if (mine.length === 0) continue;
      const moved = mine.reduce((n, r) => n + r.swap_bytes / 2, 0);
      const out = moved / mine.reduce((t, r) => t + r.time_swap_out_ms, 0) / 1e3, back = moved / mine.reduce((t, r) => t + r.time_swap_in_ms, 0) / 1e3;
      const share = median(mine.map(r => (r.time_swap_out_ms + r.time_swap_in_ms) / r.time_step_ms));
      said.push([`${policy} swaps in ${count(mine.length, "case", "cases")}: up to ${size(Math.max(...mine.map(r => r.swap_bytes / 2)))} a step each way, at ${out.toFixed(0)} MB/s out and ${back.toFixed(0)} MB/s back on this machine's disk (plans reckon with --swap-speed, a phone's flash by default); that is ${percent(share)} of its step's time in the median. It waits for the file; an overlap could hide at most that.`]);
    }
    const groups = new Map();
    for (const r of rows.filter(x => x.fits && x.policy !== "none")) {
      const name = r.model + "|" + r.batch;
      groups.set(name, (groups.get(name) || new Set()).add(r.weights_hash));
    }
    const same = [...groups.values()].filter(s => s.size === 1).length;
    said.push([`The weights after the steps are the same to the bit under every policy in ${same} of ${count(groups.size, "case", "cases")} of model and batch ("none" runs the unfused network and differs by rounding).`, same !== groups.size]);
    return said;
  },

  curve: rows => {
    const said = [];
    for (const model of unique(rows, "model")) {
      const mine = rows.filter(r => r.model === model && r.fits && r.policy === "auto");
      if (mine.length === 0) continue;
      const lowest = mine.reduce((a, b) => a.planned_bytes < b.planned_bytes ? a : b);
      const others = rows.filter(r => r.model === model && r.fits && rivals.includes(r.policy));
      const least = policy => Math.min(...rows.filter(r => r.model === model && r.policy === policy).map(r => r.needed_bytes));
      const next = rivals.filter(p => rows.some(r => r.model === model && r.policy === p)).map(p => [p, least(p)]).sort((a, b) => a[1] - b[1])[0];
      const autoLeast = least("auto");
      const slow = lowest.predicted_ms / lowest.ideal_ms - 1;
      let text = `${model}: auto goes down to ${percent(autoLeast / lowest.ideal_bytes)} of the ideal's memory`;
      if (next) text += `; the lowest of the others is ${next[0]} with ${percent(next[1] / lowest.ideal_bytes)}`;
      text += `. Its lowest point here, ${percent(lowest.planned_bytes / lowest.ideal_bytes)}, takes ${slow > 0.0005 ? percent(slow) + " more time" : "no more time"} than the ideal.`;
      said.push([text]);
      if (next && next[1] < autoLeast) said.push([`${model}: ${next[0]} works with less than auto: ${size(next[1])} against ${size(autoLeast)}.`, true]);
      for (const p of swappers.filter(s => rows.some(r => r.model === model && r.policy === s))) {
        const with_file = least(p), mine_at = rows.filter(r => r.model === model && r.policy === p && r.fits);
        const low = mine_at.reduce((a, b) => a.planned_bytes < b.planned_bytes ? a : b, mine_at[0]);
        if (!low) continue;
        said.push([`${model}: ${p}, with a file, goes down to ${percent(with_file / lowest.ideal_bytes)}; its lowest point here takes ${percent(low.predicted_ms / low.ideal_ms - 1)} more time than the ideal, ${low.swap_bytes > 0 ? `and ${percent(low.swap_share)} of the step go to ${size(low.swap_bytes)} in and out` : "and swaps nothing"}.`]);
        if (with_file < autoLeast) said.push([`${model}: ${p} works with less memory than auto, having a file: ${size(with_file)} against ${size(autoLeast)}.`, true]);
        for (const o of mine_at) {
          const a = mine.find(r => r.budget_bytes === o.budget_bytes);
          if (a && o.predicted_ms < a.predicted_ms * 0.9999) said.push([`${model} in ${size(o.budget_bytes)}: ${p}, having a file, is predicted faster than auto: ${o.predicted_ms.toFixed(2)} against ${a.predicted_ms.toFixed(2)} ms.`, true]);
        }
      }
      const better = others.filter(o => mine.some(a => a.budget_bytes === o.budget_bytes && o.predicted_ms < a.predicted_ms * 0.9999));
      for (const o of better) {
        const a = mine.find(r => r.budget_bytes === o.budget_bytes);
        said.push([`${model} in ${size(o.budget_bytes)}: ${o.policy} has a plan that is predicted faster than auto's: ${o.predicted_ms.toFixed(2)} against ${a.predicted_ms.toFixed(2)} ms.`, true]);
      }
    }
    const both = rows.filter(r => r.fits && r.time_step_ms > 0 && r.predicted_ms > 0);
    if (both.length > 0) said.push([`Measured steps take ${times(median(both.map(r => r.time_step_ms / r.predicted_ms)))} the predicted time (median of ${both.length}; the roofline's constants are the same everywhere).`]);
    return said;
  },

  ablation: rows => {
    const said = [];
    for (const model of unique(rows, "model")) {
      for (const share of unique(rows.filter(r => r.model === model), "budget_share")) {
        const of = name => rows.find(r => r.model === model && r.budget_share === share && r.variant === name);
        const tell = r => !r ? "-" : r.fits ? `${(r.predicted_ms / r.ideal_ms).toFixed(3)} x` : `no plan (needs ${size(r.needed_bytes)})`;
        const all = of("+regions"), whole = of("pool+recompute"), off = of("fusion off");
        if (!all) continue;
        let text = `${model} in ${percent(share)} of the ideal's memory, time of the ideal's: pool: ${tell(of("pool"))}; recompute: ${tell(of("recompute"))}; both, searched: ${tell(whole)}; with slices: ${tell(of("+slices"))}; with regions: ${tell(all)}`;
        if (off && off.fits && all.fits) text += `; without fusion the step takes ${times(off.predicted_ms / all.predicted_ms)} the predicted time${off.time_step_ms && all.time_step_ms ? ` (measured ${times(off.time_step_ms / all.time_step_ms)})` : ""}`;
        else if (off) text += `; without fusion ${tell(off)}`;
        if (of("swap")) text += `. With a file: swapping alone ${tell(of("swap"))}, swapping or recomputing ${tell(of("swap+recompute"))}`;
        said.push([text + "."]);
        const hybrid = of("swap+recompute");
        if (hybrid && hybrid.fits && all.fits && hybrid.predicted_ms < all.predicted_ms * 0.9999) said.push([`${model}: with a file, the step is predicted faster than with all that auto does.`, true]);
        if (whole && whole.fits && all.fits && whole.predicted_ms <= all.predicted_ms * 1.0001 && of("+slices").predicted_ms <= all.predicted_ms * 1.0001) {
          said.push([`${model}: slices and regions add no speed at this budget; their least memory is ${percent(all.needed_bytes / whole.needed_bytes)} of that without them.`, true]);
        }
      }
    }
    return said;
  },

  adaptation: rows => {
    const said = [];
    const within = rows.filter(r => r.saved_share !== null && r.saved_share !== undefined);
    const differ = rows.filter(r => !r.same_weights).length;
    said.push([differ === 0 ? `In all ${rows.length} changes the weights end as without them, to the bit.` : `${differ} of ${rows.length} changes ended with other weights.`, differ > 0]);
    for (const [what, name] of [["halved", "taken away"], ["grown", "given back"]]) {
      const mine = within.filter(r => r.scenario.startsWith(what) && r.step === 1);
      if (mine.length > 0) {
        const shares = mine.map(r => Math.max(0, r.time_saved_share));
        said.push([`Memory ${name} in mid-step: ${percent(median(shares))} of what a restart would lose is saved (median of ${mine.length}; best ${percent(Math.max(...shares))}); the change itself takes ${median(mine.map(r => r.time_took_ms)).toFixed(1)} ms in the median.`]);
      }
    }
    const bad = within.filter(r => r.time_saved_share < 0.2);
    if (bad.length > 0) {
      said.push([`In ${bad.length} of ${within.length} changes within a step less than a fifth is saved: the new plan has no use for what the old one left (${unique(bad, "model").join(", ")}).`, true]);
    }
    return said;
  },

  convergence: rows => {
    const said = [];
    for (const model of unique(rows, "model")) {
      const mine = rows.filter(r => r.model === model);
      const lasts = unique(mine, "variant").map(v => {
        const all = mine.filter(r => r.variant === v);
        const ends = unique(all, "seed").map(s => all.filter(r => r.seed === s)).map(s => s[s.length - 1]).filter(r => r.test_accuracy >= 0 && r.test_accuracy !== null);
        return { v, batch: all[0].batch, isGhost: all[0].budget_bytes === 0, ends, accuracy: ends.length ? mean(ends.map(r => r.test_accuracy)) : NaN, time: ends.length ? mean(ends.map(r => r.time_train_s)) : NaN };
      });
      for (const l of lasts.filter(x => x.ends.length === 0)) said.push([`${model}, ${l.v}: ${l.batch === 0 ? "not even one example fits" : "it diverged"}.`]);
      const accuracies = l => l.ends.map(r => r.test_accuracy);
      const told = l => `${l.v} (batch ${l.batch}) ${percent1(l.accuracy)}${spread(accuracies(l))} after ${l.time.toFixed(1)} s`;
      const isApart = (a, b) => Math.min(...accuracies(a)) > Math.max(...accuracies(b));
      const affording = lasts.filter(l => !l.isGhost && l.ends.length > 0), ghosts = lasts.filter(l => l.isGhost && l.ends.length > 0);
      if (affording.length > 0) {
        said.push([`${model}, same number of epochs: ${affording.map(told).join("; ")}.`]);
        const auto = affording.find(l => l.v.startsWith("auto")), best = affording.reduce((a, b) => a.accuracy > b.accuracy ? a : b);
        if (auto && best.batch !== auto.batch) {
          said.push([isApart(best, auto) ? `${model}: the batch that auto affords does not learn best in these epochs: ${percent1(best.accuracy)} with batch ${best.batch} against ${percent1(auto.accuracy)} with ${auto.batch}, in every seed.`
            : `${model}: between batch ${best.batch} and the ${auto.batch} that auto affords the seeds do not decide.`, true]);
        } else if (auto) {
          const rest = affording.filter(l => l.batch !== auto.batch);
          said.push([rest.length > 0 && rest.every(l => isApart(auto, l)) ? `${model}: the batch that auto affords learns best, in every seed.` : `${model}: the batch that auto affords has the best mean, but the seeds overlap.`, !(rest.length > 0 && rest.every(l => isApart(auto, l)))]);
        }
        const goal = Math.min(...affording.map(l => l.accuracy));
        const sooner = affording.map(l => {
          const first = unique(mine, "seed").map(s => mine.find(r => r.variant === l.v && r.seed === s && r.test_accuracy >= goal)).filter(r => r);
          return first.length < l.ends.length ? `${l.v} not in every seed` : `${l.v} ${mean(first.map(r => r.epoch)).toFixed(1)} epochs, ${mean(first.map(r => r.time_train_s)).toFixed(1)} s`;
        });
        said.push([`${model}, to the ${percent1(goal)} that all come to: ${sooner.join("; ")}.`]);
      }
      const exact = ghosts.find(l => l.v.startsWith("exact"));
      if (exact) {
        said.push([`${model}, batch ${exact.batch}: ${ghosts.map(l => `${l.v} ${percent1(l.accuracy)}${spread(accuracies(l))}`).join(", ")}.`]);
        const ahead = ghosts.filter(l => l !== exact && l.accuracy > exact.accuracy);
        if (ahead.length > 0) said.push([`${model}: exact batch norm is not the most accurate here: ${ahead.map(l => `${l.v} ${isApart(l, exact) ? "is better in every seed" : "has the better mean, within the spread of the seeds"}`).join("; ")}.`, true]);
      }
    }
    return said;
  },

  federated: rows => {
    const said = [];
    const datasets = unique(rows, "dataset");
    const answer = verdict(rows);
    if (answer) said.push(answer);
    for (const [dataset, algorithm] of datasets.flatMap(d => unique(rows.filter(r => r.dataset === d), "algorithm").map(a => [d, a]))) {
      const part = rows.filter(r => r.dataset === dataset && r.algorithm === algorithm);
      const target = part[0].target, on = datasets.length > 1 ? `${dataset}, ` : "";
      for (const partition of unique(part, "partition")) {
        const mine = part.filter(r => r.partition === partition);
        const told = unique(mine, "batch_rule").map(rule => {
          const all = mine.filter(r => r.batch_rule === rule);
          const seeds = unique(all, "seed").map(s => all.filter(r => r.seed === s));
          const hits = seeds.map(s => s.find(r => r.is_reached)).filter(r => r);
          return { rule, batch: all[0].batch, n: seeds.length, hits, rounds: hits.length ? mean(hits.map(r => r.round)) : Infinity,
            bytes: hits.length ? mean(hits.map(r => r.wire_down_bytes + r.wire_up_bytes)) : NaN, time: hits.length ? mean(hits.map(r => r.time_wall_s)) : NaN,
            last: mean(seeds.map(s => s[s.length - 1].accuracy)) };
        });
        const text = t => t.hits.length === t.n ? `batch ${t.batch} (${t.rule}) in ${t.rounds.toFixed(1)} rounds, ${size(t.bytes)}, ${t.time.toFixed(1)} s` :
          `batch ${t.batch} (${t.rule}) in ${t.hits.length} of ${t.n} runs, ends at ${percent1(t.last)}`;
        said.push([`${on}${algorithm}, ${partition}, to ${percent(target)}: ${told.map(text).join("; ")}.`]);
        const most = told.find(t => t.rule === "most, auto"), none = told.find(t => t.rule === "most, none");
        if (most && none) {
          const better = [...told].sort((a, b) => a.rounds - b.rounds || b.last - a.last)[0];
          if (better.rule !== "most, auto") said.push([`There the largest batch is not the best: batch ${better.batch} is. Memory for a larger batch does not buy fewer rounds by itself.`, true]);
          const outcome = compareRuns(mine, "round");
          if (most.batch === none.batch) said.push([`Without a planner the budget holds the same batch of ${none.batch}.`]);
          else if (outcome < 0) said.push([`The planner's batch of ${most.batch} is there in fewer rounds than the ${none.batch} that fit without it, in every seed.`]);
          else if (outcome > 0) said.push([`The planner's largest batch of ${most.batch} takes more rounds than the ${none.batch} that fit without it, in every seed.`, true]);
          else said.push([`Between the planner's largest batch of ${most.batch} and the ${none.batch} that fit without it the seeds do not decide.`, true]);
        }
      }
    }
    return said;
  },
};
const percent1 = x => isFinite(x) ? (100 * x).toFixed(1) + " %" : "none";
