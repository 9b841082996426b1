// How the report draws: frames, legends, points with their spread, cut axes, values beyond an axis. What is drawn is figures.js's and charts.js's.
const style = getComputedStyle(document.documentElement);
const tint = name => style.getPropertyValue(name).trim();
const colors = {
  ideal: "#7b8794", none: "#b5651d", pool: "#e3b505", recompute: "#c0392b", sublinear: "#7d5ba6", sgc: "#c06fd0",
  microbatch: "#2e8b57", sage: "#1f9e89", melon: "#d81b60", whole: "#5dade2", vdnn: "#8d6e63", capuchin: "#455a64",
  "pool+recompute": "#3498db", "+slices": "#2e8b57", "+regions": "#0b6e99", "fusion off": "#7b8794", swap: "#8d6e63", "swap+recompute": "#455a64", auto: "#0b6e99",
  "exact batch norm": "#0b6e99",
};
// Of what is no policy: none of them is auto's.
const spare = ["#d08700", "#2e8b57", "#7d5ba6", "#d81b60", "#1f9e89", "#c0392b", "#7b8794"];
// "auto in 100%", "most, auto" and "auto within 1.3 x" have the colour of auto; what stands after a colon is no part of the name.
const baseOf = name => String(name).split(":")[0].split(" in ")[0].split(" within ")[0].replace("most, ", "");
const colorOf = (name, i) => colors[baseOf(name)] || spare[i % spare.length];
const shapes = ["circle", "rect", "triangle", "rectRot", "crossRot", "star", "cross"];
const shapeOf = (name, i) => baseOf(name) === "auto" ? (name.includes(" within ") ? "rectRot" : "circle") : shapes[1 + i % (shapes.length - 1)];
const labelOf = model => model.replace("1_1", " 1.1").replace("_", " ");
const isAuto = name => baseOf(name) === "auto";
// Names of one policy, by batch or rate: each after the first has a lighter shade of its colour, and a shape of its own.
const lighter = (color, k) => "#" + [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16)).map(v => Math.round(v + (255 - v) * Math.min(0.6, 0.3 * k)).toString(16).padStart(2, "0")).join("");
function looksOf(names) {
  const taken = new Set(names.map(shapeOf));
  return names.map((name, i) => {
    const color = colorOf(name, i), k = names.slice(0, i).filter((other, j) => colorOf(other, j) === color).length;
    const free = shapes.find(s => !taken.has(s)) || shapeOf(name, i), shape = k === 0 ? shapeOf(name, i) : free;
    taken.add(shape);
    return { color: lighter(color, k), shape };
  });
}

Chart.defaults.color = tint("--soft");
Chart.defaults.borderColor = tint("--line");
Chart.defaults.font.family = "system-ui, sans-serif";
Chart.defaults.font.size = 14;
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;

function element(kind, text, name) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function grid(into, wide) {
  const made = element("div", undefined, wide ? "charts wide" : "charts");
  into.append(made);
  return made;
}

// A place in a grid for a chart with a legend of its own.
function place(box) {
  const made = element("section");
  box.append(made);
  return made;
}

// One legend for all charts of a group: the mark as it is drawn, then the name.
function legend(into, names, shape = shapeOf, color = colorOf) {
  const line = element("div", undefined, "legend");
  names.forEach((name, i) => {
    const entry = element("span");
    const mark = element("canvas");
    mark.width = mark.height = 32;
    const pen = mark.getContext("2d");
    pen.fillStyle = pen.strokeStyle = color(name, i);
    pen.lineWidth = 4;
    Chart.helpers.drawPoint(pen, { pointStyle: shape(name, i), radius: 10, borderWidth: 4 }, 16, 16);
    entry.append(mark, isAuto(name) ? element("b", name) : name);
    line.append(entry);
  });
  into.append(line);
}

const cell = value => /[",\n]/.test(value) ? `"${value.replace(/"/g, '""')}"` : value;
const csvOf = rows => rows.map(r => r.map(v => cell(v === null || v === undefined || Number.isNaN(v) ? "" : String(v))).join(",")).join("\n") + "\n";

// A frame with the chart's title, a link to its numbers, and notes below; gives the canvas.
function frame(into, title, rows, notes, height) {
  const box = element("section");
  const head = element("h3", title + " ");
  const link = element("a", "CSV", "csv");
  link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(csvOf(rows));
  link.download = title.toLowerCase().replace(/[^a-z0-9.]+/g, "-").replace(/^-|-$/g, "") + ".csv";
  head.append(link);
  const area = element("div", undefined, "chart");
  if (height) area.style.height = height + "px";
  const drawn = element("canvas");
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", title);
  area.append(drawn);
  box.append(head, area);
  for (const note of notes) box.append(element("p", note, "under"));
  into.append(box);
  return drawn;
}

// What a chart has beyond Chart.js's own: the ends of what repeats left open, texts at points, zigzags where an axis is cut,
// and a field of its own for "any". `extra` is {cut: {x, y}, any}, points are {x, y, lowX, highX, lowY, highY, text}.
const marks = extra => ({
  id: "marks",
  afterDatasetsDraw(chart) {
    const pen = chart.ctx, area = chart.chartArea, { x, y } = chart.scales;
    pen.save();
    const taken = [];
    chart.data.datasets.forEach((set, s) => set.data.forEach((p, k) => {
      const at = chart.getDatasetMeta(s).data[k];
      if (!at || at.skip || set.isHelp) return;
      taken.push([at.x - 6, at.y - 6, at.x + 6, at.y + 6]);
      pen.strokeStyle = set.borderColor;
      pen.lineWidth = 1.5;
      const stroke = (x0, y0, x1, y1) => { pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, y1); pen.stroke(); };
      const bound = (v, a, b) => Math.min(Math.max(v, a), b);
      if (has(p.lowX)) {
        const a = bound(x.getPixelForValue(p.lowX), area.left, area.right), b = bound(x.getPixelForValue(p.highX), area.left, area.right);
        stroke(a, at.y, b, at.y); stroke(a, at.y - 4, a, at.y + 4); stroke(b, at.y - 4, b, at.y + 4);
      }
      if (has(p.lowY)) {
        const a = bound(y.getPixelForValue(p.lowY), area.top, area.bottom), b = bound(y.getPixelForValue(p.highY), area.top, area.bottom);
        stroke(at.x, a, at.x, b); stroke(at.x - 9, a, at.x + 9, a); stroke(at.x - 9, b, at.x + 9, b);
      }
    }));
    chart.data.datasets.forEach((set, s) => set.data.forEach((p, k) => {
      const at = chart.getDatasetMeta(s).data[k];
      if (!at || !p.text) return;
      pen.font = `${isAuto(set.label) || p.isBold ? "600 " : ""}13px ${Chart.defaults.font.family}`;
      pen.fillStyle = tint("--ink");
      pen.textBaseline = "middle";
      const wide = pen.measureText(p.text).width, right = has(p.highX) ? Math.max(at.x, x.getPixelForValue(p.highX)) : at.x, left = has(p.lowX) ? Math.min(at.x, x.getPixelForValue(p.lowX)) : at.x;
      const places = [[right + 9, at.y], [left - 9 - wide, at.y], ...(extra.free ? [[at.x - wide / 2, at.y - 14], [at.x - wide / 2, at.y + 14]] : [])];
      const free = places.find(([tx, ty]) => tx >= (extra.free ? area.left + 2 : 2) && tx + wide <= chart.width - 2 && ty > area.top - 10 && ty < area.bottom + (extra.free ? -4 : 10) && (!extra.free ||
        !taken.some(([x0, y0, x1, y1]) => tx < x1 && tx + wide > x0 && ty - 7 < y1 && ty + 7 > y0)));
      if (!free) return;
      pen.fillText(p.text, free[0], free[1]);
      taken.push([free[0], free[1] - 7, free[0] + wide, free[1] + 7]);
    }));
    pen.strokeStyle = tint("--ink");
    pen.lineWidth = 1.5;
    const zigzag = (x0, y0, isDown) => {
      pen.beginPath();
      [0, 4, -4, 4, -4, 0].forEach((d, i) => isDown ? pen[i ? "lineTo" : "moveTo"](x0 + d, y0 - i * 4) : pen[i ? "lineTo" : "moveTo"](x0 + i * 4, y0 + d));
      pen.stroke();
    };
    if (extra.cut && extra.cut.x) zigzag(area.left + 3, area.bottom, false);
    if (extra.cut && extra.cut.y) zigzag(area.left, area.bottom - 3, true);
    if (extra.any) {
      const edge = x.getPixelForValue(extra.any);
      pen.setLineDash([5, 4]);
      pen.beginPath(); pen.moveTo(edge, area.top); pen.lineTo(edge, area.bottom); pen.stroke();
    }
    pen.restore();
  },
});

const wedge = { right: 90, up: 0 };
const axis = (text, range, ticks, more = {}) => ({ title: { display: true, text, font: { size: 14 } }, ...range, ...more,
  afterBuildTicks: a => { a.ticks = ticks(a).map(value => ({ value })); } });
const plain = v => Math.abs(v) >= 1e5 ? v.toExponential(0) : String(+v.toPrecision(6));
const cutNote = (which, from) => `The ${which} axis does not begin at 0, but at ${plain(+from.toPrecision(3))}.`;

/*
 * Named lines, in each of them points: o = {title, names, sets: [{name, points: [{row, value, low, high, text}]}], x, isLog, least,
 * clip, missing}. `row` is an index into names; the sets of a chart have shapes, the names have colours (or the sets: bySet). A value
 * beyond the axis is a wedge at its edge with its value.
 */
function dots(into, o) {
  const all = o.sets.flatMap(s => s.points).filter(p => has(p.value));
  const values = all.map(p => p.value);
  if (values.length === 0) return;
  const { limit, isClipped } = o.clip ? clipAt(values) : { limit: Math.max(...values, ...all.map(p => p.high).filter(has)), isClipped: false };
  const low = Math.min(o.least === undefined ? Infinity : o.least, ...values, ...all.map(p => p.low).filter(has));
  const range = o.isLog ? { min: low / 1.3, max: limit * 1.3, isCut: false } : o.most ? { min: 0, max: o.most, isCut: false } : axisAround(low, limit);
  const beyond = [], notes = [];
  const datasets = o.sets.map((s, i) => ({
    label: s.name || "", showLine: false,
    data: s.points.filter(p => has(p.value) || p.text).map(p => {
      const out = isClipped && p.value > limit;
      if (out) beyond.push(`${o.names[p.row]}${o.sets.length > 1 ? `, ${s.name}` : ""} ${p.text}`);
      return { x: has(p.value) ? (out ? range.max : p.value) : range.min, y: p.row + (o.sets.length > 1 ? (i / (o.sets.length - 1) - 0.5) * 0.52 : 0),
        lowX: out ? undefined : p.low, highX: out ? undefined : p.high, text: p.text, out, isMissing: !has(p.value), isBold: isAuto(o.names[p.row]), row: p.row };
    }),
  }));
  for (const [i, set] of datasets.entries()) {
    const paint = set.data.map(p => o.bySet ? colorOf(set.label, i) : colorOf(o.names[p.row], p.row));
    Object.assign(set, { backgroundColor: paint, borderColor: tint("--soft"), pointBorderColor: paint, borderWidth: 1.5,
      pointStyle: set.data.map(p => p.out ? "triangle" : shapes[i % shapes.length]), pointRotation: set.data.map(p => p.out ? wedge.right : 0),
      pointRadius: set.data.map(p => p.isMissing ? 0 : p.out ? 8 : 6), pointHoverRadius: 7, clip: false });
  }
  if (isClipped) notes.push(`Beyond the axis (wedges at its edge): ${beyond.join("; ")}.`);
  if (range.isCut) notes.push(cutNote("lower", range.min));
  const room = Math.max(52, ...all.map(p => 7.8 * String(p.text || "").length + 16));
  const table = [["name", "set", "value", "low", "high"], ...o.sets.flatMap(s => s.points.map(p => [o.names[p.row], s.name || "", p.value, p.low, p.high]))];
  new Chart(frame(into, o.title, table, notes, 74 + o.names.length * Math.max(26, 18 * o.sets.length + 6)), {
    type: "scatter",
    data: { datasets },
    options: {
      layout: { padding: { right: room, top: 6 } },
      plugins: { legend: { display: false }, tooltip: { callbacks: { label: c => `${o.names[c.raw.row]}${c.dataset.label ? `, ${c.dataset.label}` : ""}: ${c.raw.text || c.parsed.x}` } } },
      scales: {
        x: axis(o.x, { min: range.min, max: range.max, type: o.isLog ? "logarithmic" : "linear" }, a => niceTicks(a.min, a.max, o.isLog), { ticks: { callback: plain, autoSkip: true, maxRotation: 0 } }),
        y: { min: -0.5, max: o.names.length - 0.5, reverse: true, grid: { color: tint("--line") }, afterBuildTicks: a => { a.ticks = o.names.map((_, value) => ({ value })); },
          ticks: { autoSkip: false, callback: v => o.names[v], color: c => isAuto(o.names[c.tick ? c.tick.value : -1] || "") ? tint("--ink") : tint("--soft"), font: c => ({ size: 14, weight: isAuto(o.names[c.tick ? c.tick.value : -1] || "") ? "600" : "400" }) } },
      },
    },
    plugins: [marks({ cut: { x: range.isCut } })],
  });
}

/*
 * Lines or points over two numbers: o = {title, sets: [{name, i, points: [{x, y, low, high, text}], isLine}], x, y, isLogX, clip, any,
 * unit}. Values of y beyond the axis are wedges at its edge, and are named below. `any`: points whose x is "any" stand in a field
 * of their own at the right.
 */
function plot(into, o) {
  const all = o.sets.flatMap(s => s.points);
  const ys = all.map(p => p.y).filter(has);
  if (ys.length === 0) return;
  const unit = o.unit || (v => plain(v));
  const { limit, isClipped } = o.clip ? clipAt(ys) : { limit: Math.max(...ys, ...all.map(p => p.high).filter(has)), isClipped: false };
  const range = axisAround(Math.min(...ys, ...all.map(p => p.low).filter(has)), limit, o.most);
  const xs = all.map(p => p.x).filter(has), leastX = xs.length ? Math.min(...xs) : 1, mostX = xs.length ? Math.max(...xs) : 1;
  const isAny = all.some(p => p.x === "any"), edge = Math.max(2, mostX) * 1.5;
  // The field of "any" has about a third of the axis.
  const reach = isAny ? edge * Math.max(4, edge / leastX) ** 0.45 : o.isLogX ? mostX * 1.15 : mostX + 0.02 * (mostX - leastX || mostX || 1);
  const start = o.isLogX ? leastX / 1.15 : o.fromX === undefined ? leastX - 0.02 * (mostX - leastX) : o.fromX;
  const beyond = [], notes = [], far = Math.sqrt(edge * reach);
  const datasets = o.sets.map(s => {
    const paint = s.paint || colorOf(s.name, s.i), shape = s.shape || shapeOf(s.name, s.i);
    const data = s.points.filter(p => has(p.y)).map(p => {
      const out = isClipped && p.y > limit;
      if (out) beyond.push(`${s.name} ${unit(p.y)} at ${o.unitX ? o.unitX(p.x) : p.x}`);
      return { x: p.x === "any" ? edge * (reach / edge) ** ((s.i + 1) / (Math.max(...o.sets.map(t => t.i)) + 2)) : p.x, y: out ? range.max : p.y, lowY: out ? undefined : p.low, highY: out ? undefined : p.high, text: out ? unit(p.y) : p.text, out, real: p };
    });
    if (s.isHelp) return { label: "", data, isHelp: true, showLine: true, borderColor: s.paint, borderWidth: s.isLine ? 2 : 0, pointRadius: 0, order: 2, backgroundColor: s.paint + "30", fill: s.fill, tension: 0 };
    return { label: s.name, data, showLine: s.isLine !== false, borderColor: paint, backgroundColor: paint, borderWidth: isAuto(s.name) ? 3.5 : 2, borderDash: s.dash || [], tension: 0, clip: false,
      order: isAuto(s.name) ? 0 : 1, pointStyle: data.map(p => p.out ? "triangle" : shape), pointRadius: data.map(p => p.out ? 8 : p.real.isBare ? 0 : isAuto(s.name) ? 6 : 5)};
  });
  if (isClipped) notes.push(`Beyond the axis (wedges at its edge): ${beyond.join("; ")}.`);
  if (range.isCut) notes.push(cutNote("upright", range.min));
  notes.push(...(o.notes || []));
  const table = [["series", o.x, o.y, "low", "high", "text"], ...o.sets.filter(s => !s.isHelp).flatMap(s => s.points.map(p => [s.name, p.x, p.y, p.low, p.high, p.text]))];
  new Chart(frame(into, o.title, table, notes, o.height), {
    type: "scatter",
    data: { datasets },
    options: {
      layout: { padding: { right: 24, top: 14 } },
      plugins: { legend: { display: false }, tooltip: { filter: c => c.dataset.label !== "", callbacks: { label: c => `${c.dataset.label}: ${o.unitX ? o.unitX(c.raw.real.x) : plain(c.parsed.x)}, ${unit(c.raw.real.y)}` } } },
      scales: {
        x: axis(o.x, { min: start, max: reach, type: o.isLogX ? "logarithmic" : "linear" }, a => [...niceTicks(a.min, isAny ? edge : a.max, o.isLogX), ...(isAny ? [far] : [])],
          { ticks: { callback: v => isAny && v === far ? "any" : o.tickX ? o.tickX(v) : plain(v), maxRotation: 0, autoSkip: false, font: c => ({ size: 14, weight: isAny && c.tick && c.tick.value === far ? "700" : "400" }) } }),
        y: axis(o.y, { min: range.min, max: range.max }, a => niceTicks(a.min, a.max), { ticks: { callback: v => unit(v) } }),
      },
    },
    plugins: [marks({ cut: { y: range.isCut }, any: isAny ? edge : 0, free: true })],
  });
}

/*
 * Means over the seeds with their range as a band, and at the end of each curve the standard error of the test set. A long curve has
 * about ten marks. `looks`: of the names.
 */
function band(into, title, rows, names, x, text, key, y, looks = looksOf(names)) {
  const sets = [], known = [];
  let most = 0;
  names.forEach((name, i) => {
    const runs = runsOf(rows.filter(r => seriesOf(r, key) === name && has(r[y]) && has(r[x])));
    if (runs.length === 0) return;
    const n = Math.min(...runs.map(s => s.length)), at = k => runs.map(s => s[k]);
    const points = f => [...Array(n).keys()].map(k => ({ x: mean(at(k).map(r => r[x])), y: 100 * f(at(k).map(r => r[y])) }));
    const middle = points(mean), last = middle[n - 1], tested = testSize(runs[0][n - 1]);
    most = Math.max(most, runs.length);
    if (has(tested)) {
      const error = 100 * standardError(last.y / 100, tested);
      last.low = last.y - error;
      last.high = last.y + error;
      known.push(tested);
    }
    const every = Math.ceil(n / 10);
    middle.forEach((p, k) => { p.isBare = (n - 1 - k) % every !== 0; });
    sets.push({ name, i, points: middle, paint: looks[i].color, shape: looks[i].shape });
    if (runs.length > 1) {
      const help = { name: "", i, isHelp: true, paint: looks[i].color };
      sets.push({ ...help, points: points(v => Math.max(...v)), fill: "+1" }, { ...help, points: points(v => Math.min(...v)) });
    }
  });
  const notes = [most > 1 ? `Band: the range of ${most} seeds.` : "One seed: no band, and differences may be chance.",
    known.length > 0 ? `Bar at the end: one standard error of the test set (${unique(known.map(n => ({ n })), "n").join(", ")} examples) to either side.` : "The table does not say how large the test set is: no standard error is drawn."];
  plot(into, { title, sets, x: text, y: "test accuracy, %", fromX: 0, tickX: x === "operand_bytes" ? v => plain(v / 1e9) : undefined, notes, most: 100 });
}
