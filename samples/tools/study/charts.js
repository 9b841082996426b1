// Draws the report: for each table its question, words, charts, command and rows.
const style = getComputedStyle(document.documentElement);
const tint = name => style.getPropertyValue(name).trim();
const colors = {
  ideal: "#8a97a3", none: "#b5651d", pool: "#d08700", recompute: "#c0392b", sublinear: "#7d5ba6", sgc: "#a569bd",
  microbatch: "#2e8b57", sage: "#1f9e89", melon: "#d81b60", whole: "#5dade2", vdnn: "#8d6e63", capuchin: "#455a64",
  "pool+recompute": "#5dade2", "+slices": "#2e8b57", "+regions": "#0b6e99", "fusion off": "#8a97a3", swap: "#8d6e63", "swap+recompute": "#455a64", auto: "#0b6e99",
  "exact batch norm": "#0b6e99",
};
// Of what is no policy: none of them is auto's.
const spare = ["#d08700", "#2e8b57", "#7d5ba6", "#d81b60", "#1f9e89", "#c0392b", "#8a97a3"];
// "auto in 100%" and "most, auto" have the colour of auto.
const colorOf = (name, i) => colors[name] || colors[name.split(" in ")[0]] || colors[name.replace("most, ", "")] || spare[i % spare.length];
const labelOf = model => model.replace("1_1", " 1.1").replace("_", " ");

Chart.defaults.color = tint("--soft");
Chart.defaults.borderColor = tint("--line");
Chart.defaults.font.family = "system-ui, sans-serif";
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;

function element(kind, text, name) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

// One legend for all charts of a study.
function legend(into, names) {
  const line = element("div", undefined, "legend");
  names.forEach((name, i) => {
    const entry = element("span");
    const mark = element("i");
    mark.style.background = colorOf(name, i);
    entry.append(mark, name);
    line.append(entry);
  });
  into.append(line);
}

function canvas(into, title) {
  const box = element("section");
  const frame = element("div", undefined, "chart");
  const drawn = element("canvas");
  box.append(element("h3", title), frame);
  frame.append(drawn);
  into.append(box);
  return drawn;
}

function grid(into, wide) {
  const made = element("div", undefined, wide ? "charts wide" : "charts");
  into.append(made);
  return made;
}

const axis = (text, more) => ({ title: { display: true, text }, ...more });

// sets: [name, [{x, y}]]; a dash for the i-th where `dashed` says so.
function lines(into, title, sets, x, y, options = {}) {
  new Chart(canvas(into, title), {
    type: "scatter",
    data: { datasets: sets.map(([label, data, i, dash]) => ({
      label, data, showLine: true, borderColor: colorOf(label, i), backgroundColor: colorOf(label, i), borderWidth: label === "auto" ? 3 : 1.75,
      pointRadius: options.points === false ? 0 : label === "auto" ? 4 : 3, borderDash: dash || [], tension: 0, order: label === "auto" ? 0 : 1 })) },
    options: {
      plugins: { legend: { display: false }, tooltip: { callbacks: { label: c => `${c.dataset.label}: ${options.tip ? options.tip(c.parsed) : `${c.parsed.x}, ${c.parsed.y}`}` } } },
      scales: { x: axis(x, options.x), y: axis(y, options.y) },
    },
  });
}

function bars(into, title, labels, sets, y, options = {}) {
  new Chart(canvas(into, title), {
    type: "bar",
    data: { labels, datasets: sets.map(([label, data], i) => ({ label, data, backgroundColor: options.color ? options.color(i) : colorOf(label, i) })) },
    options: {
      plugins: { legend: { display: false }, tooltip: { callbacks: { label: c => `${c.dataset.label}: ${options.tip ? options.tip(c) : c.parsed.y}` } } },
      scales: { x: { title: { display: !!options.xTitle, text: options.xTitle } }, y: axis(y, options.y) },
    },
  });
}

const mark10 = { callback: v => [1, 2, 5].includes(Math.round(v / 10 ** Math.floor(Math.log10(v)))) ? v : "" };

const draw = {
  "max-batch": (into, rows) => {
    const policies = unique(rows, "policy");
    legend(into, policies);
    const box = grid(into);
    const most = 2 * Math.max(64, ...rows.map(r => r.max_batch || 0));
    for (const model of unique(rows, "model")) {
      const mine = rows.filter(r => r.model === model);
      const budgets = unique(mine, "budget_bytes");
      bars(box, labelOf(model), budgets.map(size), policies.map(p => [p, budgets.map(b => {
        const row = mine.find(r => r.policy === p && r.budget_bytes === b);
        return !row ? null : row.is_any ? most : row.max_batch || null;
      })]), "largest batch (log)", { xTitle: "budget", y: { type: "logarithmic", min: 1, max: most, ticks: { callback: v => v === most ? "any" : mark10.callback(v) } },
        tip: c => c.parsed.y === most ? "any" : c.parsed.y });
    }
  },
  throughput: (into, rows) => {
    const policies = unique(rows, "policy");
    legend(into, policies);
    const box = grid(into);
    for (const model of unique(rows, "model")) {
      const mine = rows.filter(r => r.model === model);
      const batches = unique(mine, "batch");
      bars(box, `${labelOf(model)}, budget ${size(mine[0].budget_bytes)}`, batches, policies.map(p => [p, batches.map(b => {
        const row = mine.find(r => r.policy === p && r.batch === b);
        return row && row.fits ? row.time_samples_per_s : null;
      })]), "examples/s", { xTitle: "batch", y: { beginAtZero: true }, tip: c => c.parsed.y.toFixed(1) });
    }
  },
  curve: (into, rows) => {
    const policies = unique(rows, "policy");
    legend(into, policies);
    const box = grid(into);
    for (const model of unique(rows, "model")) {
      const mine = rows.filter(r => r.model === model && r.fits);
      if (mine.length === 0) continue;
      lines(box, labelOf(model), policies.map((p, i) => [p, mine.filter(r => r.policy === p).map(r =>
        ({ x: r.planned_bytes / 1048576, y: r.predicted_ms / r.ideal_ms })).sort((a, b) => a.x - b.x), i]),
        "memory of the step, MiB (log)", "time, of the ideal's", { x: { type: "logarithmic", ticks: mark10 },
          y: { min: 0.95, ticks: { callback: v => v.toFixed(2) }, suggestedMax: 1.5, max: Math.min(3, 0.1 + Math.max(...mine.map(r => r.predicted_ms / r.ideal_ms))) }, tip: p => `${p.x.toFixed(1)} MiB, ${p.y.toFixed(3)} x` });
    }
  },
  ablation: (into, rows) => {
    const variants = unique(rows, "variant");
    legend(into, variants);
    const box = grid(into);
    for (const share of unique(rows, "budget_share")) {
      const mine = rows.filter(r => r.budget_share === share);
      const models = unique(mine, "model");
      const cells = key => variants.map(v => [v, models.map(m => {
        const row = mine.find(r => r.variant === v && r.model === m);
        return row ? key(row) : null;
      })]);
      bars(box, `Step of batch 32 in ${percent(share)} of the ideal's memory`, models.map(labelOf),
        cells(r => r.fits ? r.predicted_ms / r.ideal_ms : null), "time, of the ideal's", { y: { min: 0.9 }, tip: c => c.parsed.y.toFixed(3) + " x" });
      bars(box, "Least memory for batch 32", models.map(labelOf),
        cells(r => r.needed_bytes / (r.budget_bytes / r.budget_share) * 100), "% of the ideal's", { y: { min: 0 }, tip: c => c.parsed.y.toFixed(1) + " %" });
    }
  },
  adaptation: (into, rows) => {
    const models = unique(rows, "model");
    legend(into, models);
    const box = grid(into, true);
    const single = rows.filter(r => !r.scenario.startsWith("trace") && r.step === 1);
    const scenarios = unique(single, "scenario");
    bars(box, "Share of the step's work that is not lost (a restart: 0)", scenarios, models.map(m => [m, scenarios.map(s => {
      const row = single.find(r => r.model === m && r.scenario === s);
      return row && row.time_saved_share !== null && row.time_saved_share !== undefined ? 100 * Math.max(0, row.time_saved_share) : null;
    })]), "% saved", { y: { min: 0, max: 100 }, tip: c => c.parsed.y.toFixed(1) + " %" });
    for (const trace of unique(rows.filter(r => r.scenario.startsWith("trace")), "scenario")) {
      const sets = models.map((m, i) => {
        const mine = rows.filter(r => r.scenario === trace && r.model === m);
        const points = mine.flatMap((r, k) => {
          const x = r.step + r.percent / 100;
          return [{ x, y: 100 * r.from_bytes / mine[0].from_bytes }, { x, y: 100 * r.to_bytes / mine[0].from_bytes },
            ...(k === mine.length - 1 ? [{ x: x + 0.5, y: 100 * r.to_bytes / mine[0].from_bytes }] : [])];
        });
        return [m, points, i];
      });
      lines(box, `Budget, ${trace} (made up)`, sets, "step", "% of the first", { y: { min: 0, max: 110 }, tip: p => `step ${p.x.toFixed(2)}: ${p.y.toFixed(0)} %` });
    }
  },
  convergence: (into, rows) => {
    for (const model of unique(rows, "model")) {
      const mine = rows.filter(r => r.model === model && r.test_accuracy !== null && r.test_accuracy !== undefined);
      if (mine.length === 0) continue;
      const affording = mine.filter(r => r.budget_bytes > 0), ghosts = mine.filter(r => r.budget_bytes === 0);
      into.append(element("h3", `${labelOf(model)} on ${mine[0].dataset}`));
      for (const [part, what] of [[affording, "the batch each policy affords"], [ghosts, "batch norm, exact and ghost"]]) {
        if (part.length === 0) continue;
        const variants = unique(part, "variant");
        legend(into, variants);
        const box = grid(into);
        for (const [x, text] of [["epoch", "epochs"], ["time_train_s", "seconds of training"]]) {
          band(box, `${what}: over ${text}`, part, variants, x, text);
        }
      }
    }
  },
  federated: (into, rows) => {
    for (const [dataset, algorithm] of unique(rows, "dataset").flatMap(d => unique(rows.filter(r => r.dataset === d), "algorithm").map(a => [d, a]))) {
      const part = rows.filter(r => r.dataset === dataset && r.algorithm === algorithm);
      const rules = unique(part, "batch_rule");
      into.append(element("h3", `${algorithm} on ${dataset}`));
      legend(into, rules);
      const box = grid(into);
      for (const partition of unique(part, "partition")) {
        const mine = part.filter(r => r.partition === partition);
        band(box, `${partition}`, mine, rules, "round", "round", "batch_rule", "accuracy");
      }
    }
  },
};

// Means over the seeds, with their range as a band.
function band(into, title, rows, names, x, text, key = "variant", y = "test_accuracy") {
  const sets = [];
  names.forEach((name, i) => {
    const mine = rows.filter(r => r[key] === name);
    const seeds = unique(mine, "seed").map(s => mine.filter(r => r.seed === s));
    const n = Math.min(...seeds.map(s => s.length));
    const at = k => seeds.map(s => s[k]);
    const points = f => [...Array(n).keys()].map(k => ({ x: mean(at(k).map(r => r[x])), y: 100 * f(at(k).map(r => r[y])) }));
    const paint = colorOf(name, i);
    sets.push({ label: name, data: points(mean), showLine: true, borderColor: paint, backgroundColor: paint, borderWidth: 2, pointRadius: 2 });
    if (seeds.length > 1) {
      sets.push({ label: "", data: points(v => Math.max(...v)), showLine: true, borderWidth: 0, pointRadius: 0, backgroundColor: paint + "26", fill: "+1" });
      sets.push({ label: "", data: points(v => Math.min(...v)), showLine: true, borderWidth: 0, pointRadius: 0, backgroundColor: paint + "26" });
    }
  });
  new Chart(canvas(into, title), {
    type: "scatter",
    data: { datasets: sets },
    options: {
      plugins: { legend: { display: false }, tooltip: { filter: c => c.dataset.label !== "", callbacks: { label: c => `${c.dataset.label}: ${c.parsed.y.toFixed(1)} %` } } },
      scales: { x: axis(text, { beginAtZero: true }), y: axis("test accuracy, %") },
    },
  });
}

function table(into, columns, rows) {
  const more = element("details");
  more.append(element("summary", `${rows.length} rows`));
  const frame = element("div", undefined, "scroll");
  const made = element("table");
  const head = made.createTHead().insertRow();
  for (const c of columns) head.append(element("th", c));
  more.addEventListener("toggle", () => {
    if (made.tBodies.length > 0) return;
    const body = made.createTBody();
    for (const r of rows) {
      const row = body.insertRow();
      for (const c of columns) {
        const cell = row.insertCell();
        const value = r[c];
        cell.textContent = value === null || value === undefined ? "" : value;
        if (typeof value === "string") cell.className = "text";
      }
    }
  });
  frame.append(made);
  more.append(frame);
  into.append(more);
}

const host = study.machine;
document.getElementById("machine").textContent =
  `Dunlin ${host.version}; ${host.cpu}, ${host.cores} cores, ${host.threads} thread(s) a trainer; ${host.costs} costs; seed ${host.seed}${host.dataset ? `; data: ${host.data} (${host.dataset})` : ""}`;
document.getElementById("quick").hidden = !host.quick;
for (const each of study.tables) {
  const link = element("a", each.title);
  link.href = "#" + each.name;
  document.getElementById("contents").append(link);
  const part = element("section");
  const title = element("h2", each.title);
  title.id = each.name;
  part.append(title, element("p", each.question), element("p", each.method, "soft"));
  document.getElementById("studies").append(part);
  if (each.rows.some(r => r.is_synthetic)) {
    part.append(element("p", "The data here are synthetic: drawn by a program. They say nothing about the world.", "note"));
  }
  const list = element("ul", undefined, "words");
  for (const [text, isAgainst] of words[each.name](each.rows)) list.append(element("li", text, isAgainst ? "against" : undefined));
  part.append(list);
  draw[each.name](part, each.rows);
  part.append(element("pre", each.command));
  table(part, each.columns, each.rows);
}
