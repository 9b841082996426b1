// Numbers from rows: what the words and the charts of the report are computed with. Nothing here draws.
const has = x => typeof x === "number" && isFinite(x);
const unique = (rows, key) => [...new Set(rows.map(r => r[key]))];
const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
const percent = x => (100 * x).toFixed(Math.abs(x) < 0.1 ? 1 : 0) + " %";
// With its sign, but no minus before a zero.
const signed1 = x => { const text = x.toFixed(1); return +text === 0 ? text.replace("-", "") : x > 0 ? "+" + text : text; };
const percent1 = x => isFinite(x) ? (100 * x).toFixed(1) + " %" : "none";
const times = x => (x < 100 ? x.toFixed(2) : x.toFixed(0)) + " x";
const size = n => {
  const units = ["B", "KiB", "MiB", "GiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 ? n.toFixed(0) : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)) + " " + units[i];
};
const median = values => { const v = [...values].sort((a, b) => a - b); return v.length ? (v[(v.length - 1) >> 1] + v[v.length >> 1]) / 2 : NaN; };
const geometric = values => Math.exp(mean(values.map(Math.log)));
const count = (n, one, many) => `${n} ${n === 1 ? one : many}`;
// "1.07 x (median of 5 cases)", and of a single one no median.
const told = (values, text) => values.length === 1 ? `${text(values[0])} (one case)` : `${text(median(values))} (median of ${values.length} cases; ${text(Math.min(...values))} to ${text(Math.max(...values))})`;
const spread = values => values.length < 2 ? "" : ` (${percent1(Math.min(...values))} to ${percent1(Math.max(...values))})`;
const oneSeed = "one seed does not decide it";

// Of the test set: of a share that was counted on n examples.
const standardError = (share, n) => has(share) && n > 0 ? Math.sqrt(share * (1 - share) / n) : NaN;
const testSize = row => row.test_examples;

// Where an axis ends so that outliers do not flatten the rest: values beyond Tukey's outer fence (the third quartile and three
// times the distance of the quartiles; Exploratory Data Analysis, 1977) are cut off if the others would have less than half of the axis.
function clipAt(values) {
  const v = values.filter(has).sort((a, b) => a - b);
  const low = v[0], high = v[v.length - 1];
  if (v.length < 5) return { limit: high, isClipped: false };
  const at = share => v[Math.min(v.length - 1, Math.round(share * (v.length - 1)))];
  const top = v.filter(x => x <= at(0.75) + 3 * (at(0.75) - at(0.25))).pop();
  if (top === high || top - low >= 0.5 * (high - low)) return { limit: high, isClipped: false };
  return { limit: Math.max(top, low + 0.1 * Math.abs(low)), isClipped: true };
}

// From a little below the lowest to a little above the highest, from zero unless that would leave the values less than half of the axis.
function axisAround(low, high, most = Infinity) {
  const isCut = low > 0 && high - low < 0.5 * high;
  const room = 0.06 * ((isCut ? high - low : high) || Math.abs(high) || 1);
  return { min: isCut ? Math.max(0, low - room) : Math.min(0, low - (low < 0 ? room : 0)), max: Math.min(most, high + room), isCut };
}

// Round numbers from low to high; at least three where the range has them.
function niceTicks(low, high, isLog = false) {
  const kept = list => list.map(v => +v.toPrecision(12)).filter(v => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9));
  if (isLog && low > 0) {
    for (const steps of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]]) {
      const all = [];
      for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) all.push(...steps.map(s => s * 10 ** p));
      if (kept(all).length >= 4) return kept(all);
    }
  }
  const rough = (high - low) / 6 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find(s => s * power >= rough);
  const all = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) all.push(k * step);
  return kept(all);
}

// What a step takes: processor time, and what it waited for the file where it swaps. Tables of an earlier version have one wall-clock time.
function timing(row) {
  const wait = (row.time_swap_out_ms || 0) + (row.time_swap_in_ms || 0);
  if (has(row.time_cpu_ms)) return { mid: row.time_cpu_ms + wait, low: row.time_cpu_low_ms + wait, high: row.time_cpu_high_ms + wait, n: row.time_steps };
  return has(row.time_step_ms) ? { mid: row.time_step_ms, low: row.time_step_ms, high: row.time_step_ms, n: 1 } : null;
}
const rate = row => {
  const t = timing(row), per = ms => 1e3 * row.batch / ms;
  return t ? { mid: per(t.mid), low: per(t.high), high: per(t.low), n: t.n } : null;
};

// One measurement over another. It is told only where the whole range that the repeats leave open is smaller than the effect.
function ratioOf(a, b) {
  if (!a || !b) return { isTold: false, value: NaN, low: NaN, high: NaN, why: "it was not measured" };
  const value = a.mid / b.mid, low = a.low / b.high, high = a.high / b.low;
  if (a.n < 2 || b.n < 2) return { isTold: false, value, low, high, why: "a single step says nothing" };
  const isTold = Math.log(high / low) < Math.abs(Math.log(value));
  return { isTold, value, low, high, why: `the steps scatter more than they differ: between ${times(low)} and ${times(high)}` };
}
const ratioText = r => r.isTold ? `${times(r.value)} (${times(r.low)} to ${times(r.high)})` : `not decided: ${r.why}`;

// Rows of auto, each with those of another policy in the same situation.
function pairs(rows, policy, keys) {
  const name = r => keys.map(k => r[k]).join("|");
  const other = new Map(rows.filter(r => r.policy === policy).map(r => [name(r), r]));
  return rows.filter(r => r.policy === "auto" && other.has(name(r))).map(r => [r, other.get(name(r))]);
}

// A curve of one policy, batch and rate; its runs differ in the seed alone.
function seriesOf(row, key) {
  const given = String(row[key]), batch = `batch ${row.batch}`;
  const name = given === String(row.batch) ? batch : !has(row.batch) || row.batch === 0 || given.endsWith(", " + batch) ? given : `${given}: ${batch}`;
  return name + (has(row.lr) && row.lr > 0 ? `, rate ${+row.lr.toPrecision(3)}` : "");
}
// Whether a row is of the study's own comparison of batch norms, which no budget bounds, and not of a batch that is asked for.
const isNormPart = (rows, row) => !(row.budget_bytes > 0) && rows.some(r => String(r.variant).startsWith("exact batch norm"));
// Of each seed its rows, in order.
const runsOf = rows => unique(rows, "seed").map(s => rows.filter(r => r.seed === s));
// The clock of training: processor time where a table has it.
const trainClock = rows => rows.some(r => has(r.time_cpu_s)) ? "time_cpu_s" : "time_train_s";
const clockName = column => column === "time_cpu_s" ? "processor seconds" : "seconds (wall clock)";
