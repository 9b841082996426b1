// The charts of each study, from its rows.
const draw = {
  "max-batch": (into, rows) => {
    const policies = unique(rows, "policy");
        into.append(element("p", "Each point is the largest batch of a policy, with its price beside it (time of an example over that in the ideal step of 32); right of the dashed line any batch fits. The line joins what auto affords at several prices.", "soft"));
    legend(into, policies);
    const box = grid(into);
    for (const model of unique(rows, "model")) {
      const mine = rows.filter(r => r.model === model), list = unique(mine, "budget_bytes").sort((a, b) => a - b);
      for (const budget of list.length > 2 ? [list[0], list[list.length - 1]] : list) {
        const here = mine.filter(r => r.budget_bytes === budget);
        const speed = r => has(r.predicted_samples_per_s) ? r.predicted_samples_per_s : NaN;
        const at = r => r.is_any ? "any" : r.max_batch;
        const sets = policies.map((p, i) => ({ name: p, i, isLine: false, points: here.filter(r => r.policy === p && (r.is_any || r.max_batch > 0)).map(r =>
          ({ x: at(r), y: speed(r), text: has(r.price) ? times(r.price) : "" })) }));
        const joined = here.filter(r => isAuto(r.policy) && (r.is_any || r.max_batch > 0)).sort((a, b) => (a.is_any ? Infinity : a.max_batch) - (b.is_any ? Infinity : b.max_batch));
        if (joined.length > 1) sets.push({ name: "auto", i: 0, isHelp: true, isLine: true, paint: colorOf("auto"), points: joined.filter(r => !r.is_any).map(r => ({ x: at(r), y: speed(r) })) });
        const none = here.filter(r => !r.is_any && !r.max_batch).map(r => r.policy), open = here.filter(r => (r.is_any || r.max_batch > 0) && !has(r.price));
        plot(box, { title: `${labelOf(model)} in ${size(budget)}`, sets, x: "largest batch (log)", y: "examples/s, predicted", isLogX: true, unitX: v => `batch ${v}`, unit: v => plain(+v.toPrecision(3)),
          notes: [...(none.length > 0 ? [`Not even one example fits: ${none.join(", ")}.`] : []), ...(open.length > 0 ? [`No plan was found at that batch, so it has no price and no point: ${open.map(r => `${r.policy} ${at(r)}`).join(", ")}.`] : [])] });
      }
    }
    prices(into, rows, policies);
  },
  throughput: (into, rows) => {
    const policies = unique(rows, "policy"), batches = unique(rows, "batch");
    const set = r => { const v = r && r.fits ? rate(r) : null; return v ? { value: v.mid, low: v.n > 1 ? v.low : undefined, high: v.n > 1 ? v.high : undefined, text: plain(+v.mid.toPrecision(3)) } : { value: NaN, text: r ? "no plan" : "" }; };
    if (batches.length <= 2) shapeLegend(into, batches.map(b => `batch ${b}`));
    else legend(into, policies);
    const box = grid(into);
    for (const [model, budget] of unique(rows, "model").flatMap(m => unique(rows.filter(r => r.model === m), "budget_bytes").map(b => [m, b]))) {
      const mine = rows.filter(r => r.model === model && r.budget_bytes === budget), title = `${labelOf(model)}, budget ${size(budget)}`;
      if (batches.length <= 2) {
        dots(box, { title, names: policies, x: "examples per second of the processor", sets: batches.map(b => ({ name: `batch ${b}`, points: policies.map((p, row) =>
          ({ row, ...set(mine.find(r => r.policy === p && r.batch === b)) })) })) });
      } else {
        plot(box, { title, x: "batch (log)", y: "examples per second of the processor", isLogX: true, unitX: v => `batch ${v}`, height: 360, sets: policies.map((p, i) => ({ name: p, i, points: mine.filter(r => r.policy === p && r.fits && rate(r)).map(r => {
          const v = rate(r);
          return { x: r.batch, y: v.mid, low: v.n > 1 ? v.low : undefined, high: v.n > 1 ? v.high : undefined };
        }) })) });
      }
    }
  },
  curve: (into, rows) => {
    const policies = unique(rows, "policy");
    legend(into, policies);
    const box = grid(into);
    for (const model of unique(rows, "model")) {
      const mine = rows.filter(r => r.model === model && r.fits);
      // One point a plan: several budgets may have the same.
      const points = list => [...new Map(list.map(r => [`${r.planned_bytes} ${r.predicted_ms}`, { x: r.planned_bytes / 1048576, y: r.predicted_ms / r.ideal_ms }])).values()].sort((a, b) => a.x - b.x);
      if (mine.length === 0) continue;
      plot(box, { title: labelOf(model), x: "memory of the step, MiB (log)", y: "time, of the ideal's", isLogX: true, clip: true, height: 360, unit: times, unitX: v => `${v.toFixed(1)} MiB`,
        sets: policies.map((p, i) => ({ name: p, i, points: points(mine.filter(r => r.policy === p)) })) });
    }
  },
  ablation: (into, rows) => {
    const variants = unique(rows, "variant");
    const box = grid(into);
    for (const [model, share] of unique(rows, "model").flatMap(m => unique(rows.filter(r => r.model === m), "budget_share").map(s => [m, s]))) {
      const mine = rows.filter(r => r.model === model && r.budget_share === share);
      const points = (value, text) => variants.map((v, row) => { const r = mine.find(x => x.variant === v); return r ? { row, value: value(r), text: text(r) } : { row, value: NaN, text: "" }; });
      const slow = r => r.fits ? r.predicted_ms / r.ideal_ms : NaN, least = r => r.needed_bytes / (r.budget_bytes / r.budget_share) * 100;
      dots(box, { title: `${labelOf(model)}: time of a step in ${percent(share)} of the ideal's memory`, names: variants, x: "time, of the ideal's (predicted)", clip: true, least: 1, sets: [{ points: points(slow, r => r.fits ? slow(r).toFixed(3) + " x" : "no plan") }] });
      dots(box, { title: `${labelOf(model)}: least memory for batch 32`, names: variants, x: "% of the ideal's memory", clip: true, sets: [{ points: points(least, r => least(r).toFixed(1) + " %") }] });
    }
  },
  adaptation: (into, rows) => {
    const models = unique(rows, "model");
    const single = rows.filter(r => !r.scenario.startsWith("trace") && r.step === 1);
    const names = unique(single, "scenario");
    if (models.length > 1) shapeLegend(into, models.map(labelOf), true);
    const box = grid(into);
    const each = f => models.map(m => ({ name: labelOf(m), points: names.map((s, row) => { const r = single.find(x => x.model === m && x.scenario === s); return { row, ...(r ? f(r) : { value: NaN }) }; }) }));
    dots(box, { title: "Share of the step's work that is not lost (a restart: 0)", names, x: "% saved", most: 100, bySet: models.length > 1, sets: each(r =>
      has(r.time_saved_share) ? { value: 100 * Math.max(0, r.time_saved_share), text: percent(Math.max(0, r.time_saved_share)) } : { value: NaN, text: "not within the step" }) });
    dots(box, { title: "How long the change takes", names, x: "ms on the wall's clock (log)", isLog: true, bySet: models.length > 1, sets: each(r =>
      has(r.time_took_ms) && r.time_took_ms > 0 ? { value: r.time_took_ms, low: r.time_runs > 1 ? Math.max(r.time_took_low_ms, 1e-3) : undefined, high: r.time_runs > 1 ? r.time_took_high_ms : undefined, text: `${plain(+r.time_took_ms.toPrecision(2))} ms` } : { value: NaN }) });
    dots(box, { title: "Bytes moved in memory by the change", names, x: "MiB", bySet: models.length > 1, sets: each(r => ({ value: r.moved_bytes / 1048576, text: size(r.moved_bytes) })) });
    for (const trace of unique(rows.filter(r => r.scenario.startsWith("trace")), "scenario")) {
      const sets = models.map((m, i) => {
        const mine = rows.filter(r => r.scenario === trace && r.model === m);
        return { name: labelOf(m), i, shape: shapes[i % shapes.length], points: mine.flatMap((r, k) => {
          const x = r.step + r.percent / 100, part = bytes => 100 * bytes / mine[0].from_bytes;
          return [{ x, y: part(r.from_bytes) }, { x, y: part(r.to_bytes) }, ...(k === mine.length - 1 ? [{ x: x + 0.5, y: part(r.to_bytes) }] : [])];
        }) };
      });
      plot(box, { title: `Budget, ${trace}`, sets, x: "step", y: "% of the first", fromX: 0, unit: v => v.toFixed(0) + " %" });
    }
  },
  convergence: (into, rows) => {
    for (const [model, dataset] of unique(rows, "model").flatMap(m => unique(rows.filter(r => r.model === m), "dataset").map(d => [m, d]))) {
      const mine = rows.filter(r => r.model === model && r.dataset === dataset && has(r.test_accuracy));
      if (mine.length === 0) continue;
      into.append(element("h3", `${labelOf(model)} on ${dataset}`));
      for (const [part, what] of [[mine.filter(r => !isNormPart(mine, r)), mine.some(r => r.budget_bytes > 0) ? "the batch each policy affords" : "each batch"], [mine.filter(r => isNormPart(mine, r)), "batch norm, exact and ghost"]]) {
        if (part.length > 0) curves(into, part, "variant", "test_accuracy", what, [["epoch", "epochs"], [trainClock(part), clockName(trainClock(part))]]);
      }
    }
  },
  federated: (into, rows) => {
    const on = unique(rows, "model").length > 1;
    for (const [model, dataset, algorithm] of [...new Set(rows.map(r => JSON.stringify([r.model, r.dataset, r.algorithm])))].map(JSON.parse)) {
      const part = rows.filter(r => r.model === model && r.dataset === dataset && r.algorithm === algorithm);
      into.append(element("h3", `${algorithm} on ${dataset}${on ? `, ${labelOf(model)}` : ""}`));
      for (const partition of unique(part, "partition")) {
        curves(into, part.filter(r => r.partition === partition), "batch_rule", "accuracy", partition, [["round", "round"]]);
      }
    }
  },
};

// Columns that tell what training cost, where a table has them: a chart of the accuracy over each.
const costs = [["energy_j", "joules"], ["operand_bytes", "10^9 bytes moved through memory"]];

// A curve for each policy, batch and rate, over each of `over` and over what training cost.
function curves(into, rows, key, y, what, over) {
  const names = [...new Set(rows.map(r => seriesOf(r, key)))], looks = looksOf(names);
  legend(into, names, (name, i) => looks[i].shape, (name, i) => looks[i].color);
  const box = grid(into);
  const more = costs.filter(([c]) => rows.some(r => r[c] > 0)).slice(0, 2);
  for (const [x, text] of [...over, ...more]) band(box, over.length + more.length > 1 ? `${what}: over ${text}` : what, rows, names, x, text, key, y, looks);
}

// Sets of one chart have shapes; the names on its axis have colours, or the sets where `isColored`.
const shapeLegend = (into, names, isColored) => legend(into, names, (name, i) => shapes[i % shapes.length], isColored ? colorOf : () => tint("--soft"));

// Every largest batch and its price, for all budgets.
function prices(into, rows, policies) {
  const around = element("div", undefined, "scroll whole");
  const made = element("table", undefined, "prices");
  const head = made.createTHead().insertRow();
  for (const c of ["network", "budget", ...policies]) head.append(element("th", c));
  const body = made.createTBody();
  for (const [model, budget] of unique(rows, "model").flatMap(m => unique(rows.filter(r => r.model === m), "budget_bytes").map(b => [m, b]))) {
    const line = body.insertRow();
    for (const text of [labelOf(model), size(budget)]) line.append(element("td", text, "text"));
    for (const p of policies) {
      const r = rows.find(x => x.model === model && x.budget_bytes === budget && x.policy === p);
      const batch = element("td", !r ? "" : r.is_any ? "any" : r.max_batch || "-", isAuto(p) ? "own" : undefined);
      if (r && has(r.price)) batch.append(element("small", times(r.price)));
      line.append(batch);
    }
  }
  into.append(element("h3", "All largest batches, and the price of each"));
  around.append(made);
  into.append(around);
}
