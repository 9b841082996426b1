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
  note.textContent = `This run was to begin nothing new after ${limits || "its limit"}. Left out: ${short.map(t => `${t.left_out.length} of ${t.n_parts} parts of ${t.name}`).join("; ")}. The words and charts are of the rest.`;
  note.hidden = false;
}
function leftOut(into, each) {
  if (!each.left_out || each.left_out.length === 0) return;
  const more = element("details");
  more.append(element("summary", `Left out for want of time: ${each.left_out.length} of ${each.n_parts} parts`), element("p", each.left_out.join("; ") + "."));
  into.append(more);
}
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
  for (const [text, isAgainst] of each.rows.length > 0 ? words[each.name](each.rows) : []) list.append(element("li", text, isAgainst ? "against" : undefined));
  part.append(list);
  if (each.rows.length > 0) draw[each.name](part, each.rows);
  leftOut(part, each);
  part.append(element("pre", each.command));
  const files = element("p", "All rows: ", "under");
  const whole = element("a", `${each.name}.csv`);
  whole.href = `${each.name}.csv`;
  files.append(whole);
  // Tables beside the rows: a file each.
  for (const more of Object.keys(each).filter(k => Array.isArray(each[k]) && !["columns", "rows", "left_out"].includes(k))) {
    const other = element("a", `${each.name}_${more}.csv`);
    other.href = other.textContent;
    files.append(", ", other);
  }
  part.append(files);
  table(part, each.columns, each.rows);
}
