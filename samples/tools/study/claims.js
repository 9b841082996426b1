// A paper's figures beside ours: the words at the head, and a row for each. What stands in a row is claims.c's; nothing is computed anew.
const told_as = { x: times, "%": v => v.toFixed(1) + " %", points: v => v.toFixed(1) + " points", ms: v => plain(+v.toPrecision(3)) + " ms" };
const inUnit = (value, unit) => (told_as[unit] || (v => `${plain(+v.toPrecision(3))} ${unit}`))(value);
const wordOf = r => r.time_holds || r.holds;
const kinds_of_words = ["holds", "holds in part", "does not hold", "not run here"];

// "2.10 x (1.80 x to 2.40 x)", and of a single value no range.
function valueText(row, before) {
  const value = row[before + "ours"], low = row[before + "ours_low"], high = row[before + "ours_high"];
  if (!has(value)) return "";
  const text = inUnit(value, row.unit), least = has(low) ? inUnit(low, row.unit) : text, most = has(high) ? inUnit(high, row.unit) : text;
  return least === text && most === text ? text : `${text} (${least} to ${most})`;
}
const caseText = (row, before) => row[before + "best_case"] ? `: ${row[before + "best_case"]}` : "";

// What came out here: as measured, and as planned or counted; each with its word where the two differ.
function oursOf(row) {
  const lines = [], differ = row.time_holds && row.holds !== "not run here" && row.time_holds !== row.holds;
  if (row.time_holds) lines.push(["measured", valueText(row, "time_"), row.time_cases, row.time_cases_good, caseText(row, "time_"), differ ? row.time_holds : ""]);
  if (has(row.ours)) lines.push([row.time_holds ? "planned or counted" : "", valueText(row, ""), row.cases, row.cases_good, caseText(row, ""), differ ? row.holds : ""]);
  return lines;
}

function claimWords(rows) {
  const n = word => rows.filter(r => wordOf(r) === word).length;
  const several = { holds: "hold", "holds in part": "hold in part", "does not hold": "do not hold", "not run here": "not run here" };
  const said = [[`Of ${count(rows.length, "figure", "figures")}, ${kinds_of_words.filter(w => n(w) > 0).map(w => count(n(w), w, several[w])).join(", ")}; by what was measured, where something was, else by what was planned or counted.`]];
  for (const r of rows.filter(x => wordOf(x) === "does not hold")) {
    const [how, value] = oursOf(r)[0];
    said.push([`Does not hold: ${r.figure}: ${value}${how ? ` (${how})` : ""}${has(r.paper) ? ` against ${inUnit(r.paper, r.unit)}` : ""}.`, true]);
  }
  return said;
}

// Those that were run; the others one beside the other where they can be opened, unless they are all.
function claimTable(into, rows) {
  const others = rows.filter(r => wordOf(r) === "not run here");
  if (others.length === 0 || others.length === rows.length) return claimRows(into, rows);
  claimRows(into, rows.filter(r => !others.includes(r)));
  const more = element("details");
  more.append(element("summary", `${count(others.length, "figure", "figures")} not run here`));
  claimRows(more, others);
  into.append(more);
}

function claimRows(into, rows) {
  const made = element("table", undefined, "claims");
  const head = made.createTHead().insertRow();
  for (const c of ["figure", "the paper", "here", "", "what differs, and the rule"]) head.append(element("th", c));
  const body = made.createTBody();
  for (const r of rows) {
    const line = body.insertRow();
    const cell = (label, ...parts) => { const c = line.insertCell(); c.dataset.label = label; c.append(...parts); return c; };
    const small = text => element("small", text);
    cell("", r.figure, small(`${r.part ? `part ${r.part}; ` : ""}${r.source}`)).className = "figure";
    cell("the paper", has(r.paper) ? `${r.statistic === "mean" ? "" : r.statistic === "up to" ? "up to " : ""}${inUnit(r.paper, r.unit)}` : "no number known");
    const ours = oursOf(r);
    const here = cell("here", ...(ours.length === 0 ? ["nothing"] : []));
    for (const [how, value, cases, good, best, word] of ours) {
      here.append(element("span", value), small(`${how ? how + "; " : ""}${r.statistic === "up to" ? `the best of ${count(cases, "case", "cases")}${best}` : `${cases > 1 ? `mean of ${cases} cases` : "one case"}, ${good} at the bar`}${word ? `: ${word}` : ""}`));
    }
    cell("", element("b", wordOf(r))).className = "word w" + kinds_of_words.indexOf(wordOf(r));
    cell("", small(r.differs), small(r.rule)).className = "differs";
  }
  const around = element("div", undefined, "figures"); // its width decides the layout
  around.append(made);
  into.append(around);
}
