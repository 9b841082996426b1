// What the tables say, computed from them. Each function gives [text, isAgainst]: the second marks where Dunlin does not win.
const rivals = ["pool", "recompute", "sublinear", "sgc", "microbatch", "sage", "melon"];
// They use a file, which auto does not: shown separately.
const swappers = ["vdnn", "capuchin"];
const reach = row => row.is_any ? Infinity : row.max_batch || 0;

// Of one case, runs with the largest batch, with the planner and without: -1 if it is sooner at the target in every seed, 1 if later, else 0, as with one seed.
function compareRuns(rows, key) {
  const seeds = unique(rows, "seed");
  if (seeds.length < 2) return 0;
  const sign = seeds.map(seed => {
    const at = rule => { const hit = rows.find(r => r.seed === seed && r.batch_rule === rule && r.is_reached); return hit ? hit[key] : Infinity; };
    const a = at("most, auto"), b = at("most, none");
    return a === b ? 0 : a < b ? -1 : 1;
  });
  return sign.every(s => s < 0) ? -1 : sign.every(s => s > 0) ? 1 : 0;
}

// The answer over all cases, a data set with a split and an algorithm.
function verdict(rows) {
  const cases = new Map();
  const nameOf = r => [r.model, r.dataset, r.algorithm, r.partition].join();
  for (const r of rows) cases.set(nameOf(r), [...(cases.get(nameOf(r)) || []), r]);
  const batch = (part, rule) => (part.find(r => r.batch_rule === rule) || {}).batch;
  const open = [...cases.values()].filter(p => batch(p, "most, auto") && batch(p, "most, none") && batch(p, "most, auto") !== batch(p, "most, none"));
  if (open.length === 0) return null;
  const tell = key => { const all = open.map(p => compareRuns(p, key)); return [all.filter(x => x < 0).length, all.filter(x => x > 0).length, all.filter(x => x === 0).length]; };
  const [fewer, more, open_] = tell("round"), [less, longer, even] = tell(fleetClock(rows));
  if (unique(rows, "seed").length < 2) return [`In ${count(open.length, "case", "cases")} (network, data set, split, algorithm) the planner affords a larger batch than fits without it; whether it is sooner at the target ${oneSeed}.`, true];
  return [`The answer: in ${count(open.length, "case", "cases")} (network, data set, split, algorithm) the planner affords a larger batch than fits without it. It reaches the target in fewer rounds in ${fewer} of them, in more in ${more}, and in ${open_} the seeds do not agree or neither is sooner; in less time in ${less}, in more in ${longer}, undecided in ${even} (seeds: ${unique(rows, "seed").length}; a case counts only if all of them agree).`, fewer <= open.length / 2];
}

// Measured speeds of auto beside the ideal: those that the repeats tell apart, and how many they do not.
function ofIdeal(list) {
  const all = list.map(([a, b]) => ratioOf(rate(a), rate(b))), sure = all.filter(r => r.isTold), open = all.filter(r => !r.isTold);
  const parts = sure.length > 0 ? [`${told(sure.map(r => r.value), percent)}`] : [];
  if (open.length > 0) {
    const wide = Math.max(...open.map(r => r.high / r.low - 1).filter(has));
    parts.push(`refused in ${count(open.length, "case", "cases")}, where ${open.every(r => r.why.startsWith("a single")) ? "a single step says nothing" : `the steps scatter more than they differ (the repeats leave up to ${percent(wide)} open)`}`);
  }
  return parts.join("; ");
}

// Until a target is reached the wall's clock counts where the processor's is known at the end of a run alone.
const fleetClock = rows => rows.every(r => has(r.time_cpu_s) || !has(r.accuracy)) ? "time_cpu_s" : "time_wall_s";

// The accuracy that runs aim at: the study's target, or without one the highest that every run comes to.
function goalOf(rows) {
  const runs = [...new Set(rows.map(r => seriesOf(r, "batch_rule")))].flatMap(n => runsOf(rows.filter(r => seriesOf(r, "batch_rule") === n))).filter(run => run.some(r => has(r.accuracy)));
  if (runs.length === 0) return NaN;
  return rows[0].target > 0 ? rows[0].target : Math.min(...runs.map(run => Math.max(...run.map(r => r.accuracy).filter(has))));
}

// Whether the runs of one curve all end above those of another, by more than twice the standard error of the test set. One seed never tells.
function whyNot(a, b) {
  const ends = l => l.ends.map(r => r.test_accuracy);
  if (a.ends.length < 2 || b.ends.length < 2) return oneSeed;
  if (Math.min(...ends(a)) <= Math.max(...ends(b))) return "the seeds overlap";
  const error = Math.hypot(a.error, b.error);
  return has(error) && a.accuracy - b.accuracy < 2 * error ? `the test set is too small to tell them apart (two standard errors are ${percent1(2 * error)})` : "";
}
const isApart = (a, b) => whyNot(a, b) === "";

// The batch that auto affords beside the best of the others: the best of each, where one policy has several.
function againstBest(on, affording) {
  const of = affording.filter(l => l.policy === "auto" || l.name.startsWith("auto")), isFree = affording.every(l => l.isFree);
  if (of.length === 0) return [];
  const better = (a, b) => a.accuracy > b.accuracy ? a : b;
  const auto = of.reduce(better), others = affording.filter(l => !of.includes(l) && l.batch !== auto.batch), said = [];
  if (others.length > 0) {
    const best = others.reduce(better), isAhead = auto.accuracy >= best.accuracy, [first, second] = isAhead ? [auto, best] : [best, auto], why = whyNot(first, second);
    const points = `${(100 * (first.accuracy - second.accuracy)).toFixed(1)} points more than ${percent1(second.accuracy)} with ${isAhead ? `the ${best.batch} that ${best.policy || best.name} affords` : `the ${auto.batch} that auto affords`}`;
    const time = has(auto.time) && best.time > 0 ? `, after ${times(first.time / second.time)} the time` : "";
    if (why !== "") said.push([`${on}: ${isAhead ? `the batch that auto affords, ${auto.batch}, ends ahead` : `batch ${best.batch} ends ahead of the ${auto.batch} that auto affords`}, but ${why} (beside batch ${second.batch}).`, true]);
    else if (isAhead) said.push([`${on}: the batch that auto affords, ${auto.batch}, learns best, in every one of ${auto.ends.length} seeds: ${points}${time}.`]);
    else said.push([`${on}: the batch that auto affords does not learn best in these epochs: with batch ${best.batch} ${points}, in every one of ${best.ends.length} seeds${time}.`, true]);
  }
  const most = of.reduce((a, b) => a.batch > b.batch ? a : b);
  if (most !== auto) said.push([`${on}: of the batches ${isFree ? "tried" : "that auto affords"} the largest is not the best: ${percent1(auto.accuracy)} with ${auto.batch}, ${percent1(most.accuracy)} with ${most.batch}${isApart(auto, most) ? "" : ` (${whyNot(auto, most)})`}.`, true]);
  return said;
}

// Statistics of a part of the batch beside those of the whole, at the same batch.
function againstGhosts(on, ended) {
  const said = [];
  for (const ghost of ended.filter(l => l.ghost > 0)) {
    const same = ended.filter(l => !(l.ghost > 0) && l.batch === ghost.batch);
    if (same.length === 0) continue;
    const exact = same.find(l => l.policy === "auto") || same[0], isAhead = exact.accuracy >= ghost.accuracy, [first, second] = isAhead ? [exact, ghost] : [ghost, exact], why = whyNot(first, second);
    said.push([`${on}, batch ${ghost.batch}: ${isAhead ? "exact batch norm" : `statistics of ${ghost.ghost} examples each`} ${why === "" ? `ends ${(100 * (first.accuracy - second.accuracy)).toFixed(1)} points above ${isAhead ? `statistics of ${ghost.ghost} examples each` : "exact batch norm"}, in every one of ${first.ends.length} seeds` : `ends ahead, but ${why}`} (${percent1(exact.accuracy)} exact, ${percent1(ghost.accuracy)} ghost).`, !isAhead || why !== ""]);
  }
  return said;
}

// Rates that were tuned and are the last of their list: a longer list may have a better one.
function atEdges(on, rows, key) {
  const names = [...new Set(rows.filter(r => r.rate_is_edge).map(r => seriesOf(r, key)))];
  return names.length === 0 ? [] : [[`${on}: the best rate lies at an end of its list, and a longer list may have a better one, for ${names.join("; ")}.`, true]];
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
      const prices = slow.map(r => r.ratio_predicted);
      if (Math.max(...prices) > 1.05) said.push([`The largest batch is bought with time: there an example takes, of what it takes in the ideal step of 32, ${told(prices, times)} (predicted).`, true]);
      else said.push([`At its largest batch an example takes, of what it takes in the ideal step of 32, ${told(prices, times)} (predicted).`]);
    }
    const whole = any.filter(r => has(r.price));
    if (whole.length > 0) said.push([`Where any batch fits, an example of a very large one takes ${told(whole.map(r => r.price), times)} (predicted).`, Math.max(...whole.map(r => r.price)) > 1.05]);
    for (const policy of unique(rows, "policy").filter(p => p.startsWith("auto within "))) {
      const mine = rows.filter(r => r.policy === policy && reach(r) > 0);
      const beside = mine.map(r => [r, rows.find(x => x.policy === "none" && x.model === r.model && x.budget_bytes === r.budget_bytes)]).filter(([, b]) => b);
      const both = beside.filter(([a, b]) => reach(b) > 0 && isFinite(reach(a)) && isFinite(reach(b))), alone = beside.filter(([, b]) => reach(b) === 0).length;
      const parts = [];
      if (both.length > 0) parts.push(`${times(geometric(both.map(([a, b]) => reach(a) / reach(b))))} the batch that fits with no memory shared, the geometric mean of ${count(both.length, "case", "cases")} where both are bounded`);
      if (alone > 0) parts.push(`a batch in ${count(alone, "case", "cases")} where not one example fits with no memory shared`);
      if (parts.length > 0) said.push([`${policy} of the fastest time per example in that budget: ${parts.join("; ")}; an example takes ${told(mine.filter(r => has(r.price)).map(r => r.price), times)} of the ideal's.`]);
    }
    const costly = [];
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
      if (costs.length > 0 && geometric(costs) > 1.05 && policy !== "none") costly.push(`${times(geometric(costs))} of ${policy}'s`);
      for (const [a, b] of less) said.push([`${policy} fits more than auto: ${a.model} in ${size(a.budget_bytes)}: ${b.is_any ? "any" : b.max_batch} against ${a.max_batch}.`, true]);
    }
    if (costly.length > 0) said.push([`Those batches differ in price: at its own largest an example takes auto ${costly.join(", ")} time at theirs (predicted, geometric means).`, true]);
    return said;
  },

  throughput: rows => {
    const said = [];
    const keys = ["model", "batch", "budget_bytes"];
    const beside = pairs(rows, "ideal", keys).filter(([a]) => a.fits);
    const tight = beside.filter(([a, b]) => b.planned_bytes > a.budget_bytes);
    const roomy = beside.filter(([a, b]) => b.planned_bytes <= a.budget_bytes);
    if (roomy.length > 0) said.push([`Where the ideal step fits, auto's speed: ${ofIdeal(roomy)}.`]);
    if (tight.length > 0) {
      const planned = tight.map(([a, b]) => a.predicted_samples_per_s / b.predicted_samples_per_s);
      said.push([`Where it does not fit, auto trains the batch all the same; its speed, of the ideal's with unlimited memory: predicted ${told(planned, percent)}; measured ${ofIdeal(tight)}.`]);
    }
    for (const policy of [...rivals, ...swappers]) {
      const both = pairs(rows, policy, keys);
      if (both.length === 0) continue;
      const ran = both.filter(([a, b]) => a.fits && b.fits && a.predicted_ms !== b.predicted_ms).map(([a, b]) => [a, b, ratioOf(rate(a), rate(b))]);
      const sure = ran.filter(([, , r]) => r.isTold), open = ran.length - sure.length;
      const missed = both.filter(([a, b]) => a.fits && !b.fits).length;
      const parts = [];
      if (sure.length > 0) parts.push(`auto runs at ${times(geometric(sure.map(([, , r]) => r.value)))} its speed in the ${count(sure.length, "case", "cases")} where the plans differ and the measurements tell them apart`);
      if (open > 0) parts.push(`in ${count(open, "case", "cases")} with different plans the measured ratio is refused: ${ran.every(([, , r]) => r.why.startsWith("a single")) ? "a single step says nothing" : "the steps scatter more than they differ"}`);
      if (missed > 0) parts.push(`it does not fit in ${count(missed, "case", "cases")} where auto does`);
      if (parts.length > 0) said.push([`${policy}: ${parts.join("; ")}.`]);
      const lost = sure.filter(([, , r]) => r.value < 0.95);
      if (lost.length > 0) {
        const [a, b] = lost.reduce((x, y) => x[2].value < y[2].value ? x : y);
        said.push([`${policy} was measured faster than auto by more than 5 % in ${count(lost.length, "case", "cases")}; most for ${a.model} at batch ${a.batch}: ${rate(b).mid.toFixed(1)} against ${rate(a).mid.toFixed(1)} examples per second of the processor (predicted ${b.predicted_samples_per_s.toFixed(1)} and ${a.predicted_samples_per_s.toFixed(1)}).`, true]);
      }
    }
    for (const policy of swappers) {
      const mine = rows.filter(r => r.policy === policy && r.fits && r.n_swapped > 0);
      if (mine.length === 0) continue;
      const moved = mine.reduce((n, r) => n + r.swap_bytes / 2, 0);
      const out = moved / mine.reduce((t, r) => t + r.time_swap_out_ms, 0) / 1e3, back = moved / mine.reduce((t, r) => t + r.time_swap_in_ms, 0) / 1e3;
      const share = mine.map(r => (r.time_swap_out_ms + r.time_swap_in_ms) / timing(r).mid);
      said.push([`${policy} swaps in ${count(mine.length, "case", "cases")}: up to ${size(Math.max(...mine.map(r => r.swap_bytes / 2)))} a step each way, at ${out.toFixed(0)} MB/s out and ${back.toFixed(0)} MB/s back on this machine's disk (plans reckon with --swap-speed, a phone's flash by default); of its step's time that is ${told(share, percent)}. It waits for the file; an overlap could hide at most that.`]);
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
    const both = rows.filter(r => r.fits && timing(r) && timing(r).n > 1 && !swappers.includes(r.policy));
    if (both.length > 0) said.push([`Measured steps take, of the predicted time, ${told(both.map(r => timing(r).mid / r.predicted_ms), times)} (processor time; the roofline's constants are the same everywhere).`]);
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
        if (off && off.fits && all.fits) text += `; without fusion the step takes ${times(off.predicted_ms / all.predicted_ms)} the predicted time${timing(off) && timing(all) ? ` (measured: ${ratioText(ratioOf(timing(off), timing(all)))})` : ""}`;
        else if (off) text += `; without fusion ${tell(off)}`;
        if (of("swap")) text += `. With a file: swapping alone ${tell(of("swap"))}, swapping or recomputing ${tell(of("swap+recompute"))}`;
        said.push([text + "."]);
        if (off && off.needed_bytes < all.needed_bytes) said.push([`${model}: without fusion the least memory is lower: ${size(off.needed_bytes)} against ${size(all.needed_bytes)} with it.`, true]);
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
        const took = mine.map(r => r.time_took_ms), once = mine.every(r => !(r.time_runs > 1));
        said.push([`Memory ${name} in mid-step, of what a restart would lose this is saved: ${told(shares, percent)}; the change itself takes ${told(took, x => x.toFixed(1) + " ms")}${once ? ", measured once" : ""}.`]);
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
    for (const [model, dataset] of unique(rows, "model").flatMap(m => unique(rows.filter(r => r.model === m), "dataset").map(d => [m, d]))) {
      const mine = rows.filter(r => r.model === model && r.dataset === dataset);
      const clock = trainClock(mine), unit = clock === "time_cpu_s" ? "s of the processor" : "s", on = unique(rows, "dataset").length > unique(rows, "model").length ? `${model} on ${dataset}` : model;
      const lasts = [...new Set(mine.map(r => seriesOf(r, "variant")))].map(v => {
        const all = mine.filter(r => seriesOf(r, "variant") === v);
        const ends = runsOf(all).map(s => s[s.length - 1]).filter(r => has(r.test_accuracy));
        const accuracy = ends.length ? mean(ends.map(r => r.test_accuracy)) : NaN;
        return { v, batch: all[0].batch, policy: all[0].policy, name: all[0].variant, isGhost: isNormPart(mine, all[0]), ghost: all[0].ghost, isFree: !(all[0].budget_bytes > 0), ends, accuracy, error: ends.length ? standardError(accuracy, testSize(ends[0])) : NaN, time: ends.length ? mean(ends.map(r => r[clock])) : NaN };
      });
      for (const l of lasts.filter(x => x.ends.length === 0)) said.push([`${on}, ${l.v}: ${l.batch > 0 ? "it diverged" : /, batch \d+$/.test(l.name) ? "that batch does not fit" : "not even one example fits"}.`]);
      const text = l => `${l.v}: ${percent1(l.accuracy)}${spread(l.ends.map(r => r.test_accuracy))}${has(l.time) ? ` after ${l.time.toFixed(1)} ${unit}` : ""}`;
      const affording = lasts.filter(l => !l.isGhost && l.ends.length > 0), ghosts = lasts.filter(l => l.isGhost && l.ends.length > 0);
      if (affording.length > 0) {
        const n = Math.max(...affording.map(l => l.ends.length)), known = affording.map(l => l.error).filter(has);
        said.push([`${on}, same number of epochs, ${n === 1 ? "one seed" : `${n} seeds (range)`}${known.length > 0 ? `, one standard error of the test set ${percent1(Math.max(...known))}` : ""}: ${affording.map(text).join("; ")}.`]);
        said.push(...againstBest(on, affording.filter(l => !(l.ghost > 0))), ...againstGhosts(on, affording), ...atEdges(on, mine, "variant"));
        const goal = Math.min(...affording.map(l => l.accuracy));
        const sooner = affording.map(l => {
          const first = runsOf(mine.filter(r => seriesOf(r, "variant") === l.v)).map(s => s.find(r => r.test_accuracy >= goal)).filter(r => r);
          return first.length < l.ends.length ? `${l.v}: in ${first.length} of ${count(l.ends.length, "seed", "seeds")}` : `${l.v}: ${mean(first.map(r => r.epoch)).toFixed(1)} epochs${has(first[0][clock]) ? `, ${mean(first.map(r => r[clock])).toFixed(1)} ${unit}` : ""}`;
        });
        said.push([`${on}, to the ${percent1(goal)} that all come to in the mean: ${sooner.join("; ")}.`]);
      }
      const exact = ghosts.find(l => l.name.startsWith("exact"));
      if (exact) {
        said.push([`${on}, batch norm: ${ghosts.map(text).join("; ")}.`]);
        const ahead = ghosts.filter(l => l !== exact && l.accuracy > exact.accuracy);
        if (ahead.length > 0) said.push([`${on}: exact batch norm is not the most accurate here: ${ahead.map(l => `${l.name} ${isApart(l, exact) ? "is better in every seed" : `has the better ${l.ends.length < 2 ? "run" : "mean"}, but ${whyNot(l, exact)}`}`).join("; ")}.`, true]);
      }
    }
    return said;
  },

  federated: rows => {
    const said = [];
    const answer = verdict(rows), clock = fleetClock(rows);
    if (answer) said.push(answer);
    const cases = [...new Set(rows.map(r => JSON.stringify([r.model, r.dataset, r.algorithm, r.partition])))].map(JSON.parse);
    for (const [model, dataset, algorithm, partition] of cases) {
      const mine = rows.filter(r => r.model === model && r.dataset === dataset && r.algorithm === algorithm && r.partition === partition);
      const seeds = unique(mine, "seed").length, goal = goalOf(mine), isGiven = mine[0].target > 0;
      const on = `${unique(rows, "model").length > 1 ? `${model}, ` : ""}${unique(rows, "dataset").length > 1 ? `${dataset}, ` : ""}`;
      const each = [...new Set(mine.map(r => seriesOf(r, "batch_rule")))].map(name => {
        const runs = runsOf(mine.filter(r => seriesOf(r, "batch_rule") === name));
        const hits = runs.map(s => s.find(r => r.accuracy >= goal)).filter(r => r);
        const bytes = hits.map(r => r.wire_down_bytes + r.wire_up_bytes).filter(has), time = hits.map(r => r[clock]).filter(has);
        const first = runs[0][0], ends = runs.map(s => s[s.length - 1]).filter(r => has(r.accuracy)).map(r => ({ ...r, test_accuracy: r.accuracy })), accuracy = ends.length ? mean(ends.map(r => r.accuracy)) : NaN;
        return { name, rule: first.batch_rule, policy: first.policy, ghost: first.ghost, isFree: !(first.budget_bytes > 0), batch: first.batch, ran: ends.length > 0, ends, accuracy, error: ends.length ? standardError(accuracy, testSize(ends[0])) : NaN, n: runs.length, hits, rounds: hits.length ? mean(hits.map(r => r.round)) : Infinity, bytes, spent: time, time: ends.length ? mean(ends.map(r => r[ends.every(e => has(e.time_cpu_s)) ? "time_cpu_s" : clock])) : NaN, last: mean(runs.map(s => s[s.length - 1].accuracy)) };
      });
      const text = t => t.hits.length === t.n ? `${t.name} in ${t.rounds.toFixed(t.n > 1 ? 1 : 0)} rounds${t.bytes.length ? `, ${size(mean(t.bytes))}` : ""}${t.spent.length ? `, ${mean(t.spent).toFixed(1)} s` : ""}` :
        `${t.name} in ${t.hits.length} of ${count(t.n, "run", "runs")}, ends at ${percent1(t.last)}`;
      for (const t of each.filter(x => !x.ran)) said.push([`${on}${algorithm}, ${partition}, ${t.name}: ${t.batch > 0 ? "its devices could not train" : "that batch does not fit"}.`]);
      if (!has(goal)) continue;
      said.push([`${on}${algorithm}, ${partition}, to ${isGiven ? percent(goal) : `the ${percent1(goal)} that every run comes to`}, ${count(seeds, "seed", "seeds")}: ${each.filter(t => t.ran).map(text).join("; ")}.`]);
      said.push(...atEdges(`${on}${algorithm}, ${partition}`, mine, "batch_rule"));
      if (!mine.some(r => r.batch_rule.startsWith("most, "))) {
        said.push(...againstBest(`${on}${algorithm}, ${partition}`, each.filter(t => t.ran && !(t.ghost > 0))), ...againstGhosts(`${on}${algorithm}, ${partition}`, each.filter(t => t.ran)));
      }
      const most = each.find(t => t.rule === "most, auto"), none = each.find(t => t.rule === "most, none");
      if (!most || !none) continue;
      const better = [...each].sort((a, b) => a.rounds - b.rounds || b.last - a.last)[0];
      if (better.rule !== "most, auto") said.push([`There the largest batch is not the best: batch ${better.batch} is${seeds < 2 ? ", in the one seed there is" : ""}. Memory for a larger batch does not buy fewer rounds by itself.`, true]);
      const outcome = compareRuns(mine, "round");
      const beside = `the ${none.batch} that fit without it`;
      if (most.batch === none.batch) said.push([`Without a planner the budget holds the same batch of ${none.batch}.`]);
      else if (outcome < 0) said.push([`The planner's batch of ${most.batch} is there in fewer rounds than ${beside}, in every one of ${seeds} seeds.`]);
      else if (outcome > 0) said.push([`The planner's largest batch of ${most.batch} takes more rounds than ${beside}, in every one of ${seeds} seeds.`, true]);
      else said.push([`Between the planner's largest batch of ${most.batch} and ${beside} ${seeds < 2 ? oneSeed : "the seeds do not decide"}.`, true]);
    }
    return said;
  },
};
