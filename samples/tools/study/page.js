// The page: what each study asks, its words, its charts, its command and its rows; what was left out.
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
// What the limits left no time for: named at the head, and at each study.
const short = study.tables.filter(t => t.left_out && t.left_out.length > 0);
if (short.length > 0) {
  const limits = [host.max_minutes ? `${host.max_minutes} minutes` : "", host.max_processor_minutes ? `${host.max_processor_minutes} minutes of processor time` : ""].filter(x => x).join(" or ");
  const note = document.getElementById("short");
  note.textContent = `This run was to begin nothing new after ${limits || "its limit"}. Left out: ${short.map(t => `${t.left_out.length} of ${t.n_parts} parts of ${t.named ? `${t.named}, ` : ""}${t.name}`).join("; ")}. The words and charts are of the rest.`;
  note.hidden = false;
}
function leftOut(into, each) {
  if (!each.left_out || each.left_out.length === 0) return;
  const more = element("details");
  more.append(element("summary", `Left out for want of time: ${each.left_out.length} of ${each.n_parts} parts`), element("p", each.left_out.join("; ") + "."));
  into.append(more);
}
// Its place on the page and its files: a part of a named study has that one's name before its own.
const fileOf = each => each.named ? `${each.named}_${each.name}` : each.name;
function begin(each, title) {
  const link = element("a", title);
  link.href = "#" + fileOf(each);
  document.getElementById("contents").append(link);
  const part = element("section");
  const head = element("h2", title);
  head.id = fileOf(each);
  part.append(head, element("p", each.question), element("p", each.method, "soft"));
  document.getElementById("studies").append(part);
  return part;
}
function say(part, said) {
  const list = element("ul", undefined, "words");
  for (const [text, isAgainst] of said) list.append(element("li", text, isAgainst ? "against" : undefined));
  part.append(list);
}
function fileLink(into, name) {
  const link = element("a", name);
  link.href = name;
  into.append(link);
}
function addStudy(each) {
  const part = begin(each, each.named ? `${each.named}: ${each.title}` : each.title);
  if (each.rows.some(r => r.is_synthetic)) {
    part.append(element("p", "The data here are synthetic: drawn by a program. They say nothing about the world.", "note"));
  }
  const isThere = each.rows.length > 0 || (each.steps || []).length > 0;
  say(part, isThere ? words[each.name](each.rows, each) : []);
  const figures = each.claims || each.directions;
  if (isThere && figures) {
    part.append(element("h3", "The paper's figures beside ours"));
    say(part, claimWords(figures));
    claimTable(part, figures);
  }
  if (isThere) draw[each.name](part, each.rows, each);
  leftOut(part, each);
  part.append(element("pre", each.command));
  const files = element("p", "All rows: ", "under");
  fileLink(files, `${fileOf(each)}.csv`);
  // Tables beside the rows: a file each.
  for (const more of Object.keys(each).filter(k => Array.isArray(each[k]) && !["columns", "rows", "left_out"].includes(k))) {
    files.append(", ");
    fileLink(files, `${fileOf(each)}_${more}.csv`);
  }
  part.append(files);
  table(part, each.columns, each.rows);
}
// A paper's figures, then the parts that they come from.
function addNamed(each) {
  const part = begin(each, each.title);
  say(part, claimWords(each.rows));
  claimTable(part, each.rows);
  part.append(element("pre", each.command));
  const files = element("p", "All rows: ", "under");
  fileLink(files, `${each.name}_claims.csv`);
  part.append(files);
  table(part, each.columns, each.rows);
}
const named = study.named || [];
for (const each of study.tables.filter(t => !t.named)) addStudy(each);
for (const name of [...new Set([...named.map(n => n.name), ...study.tables.map(t => t.named).filter(n => n)])]) {
  for (const each of named.filter(n => n.name === name)) addNamed(each);
  for (const each of study.tables.filter(t => t.named === name)) addStudy(each);
}
