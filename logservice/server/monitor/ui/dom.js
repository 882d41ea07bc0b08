// Elements. Everything foreign (names, holders, messages) enters the document as text, never as markup.

export const $ = (id) => document.getElementById(id);

export function make(tag, text, ...classes) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  for (const name of classes) if (name) element.classList.add(name);
  return element;
}

export function put(parent, children) {
  parent.replaceChildren(...children);
}

export function cell(label, content, ...classes) {
  const td = make("td", null, ...classes);
  td.dataset.label = label;
  td.append(content);
  return td;
}

export const pill = (text, level) => make("span", text, "pill", level);

// A link into this page: `#/store/NAME`.
export function link(text, view, argument) {
  const found = make("a", text);
  found.href = `#/${view}${argument === undefined ? "" : `/${encodeURIComponent(argument)}`}`;
  return found;
}

// Names and values in columns; rows are [label, value].
export function facts(rows) {
  const list = make("dl", null, "facts");
  for (const [label, value, title] of rows) {
    const item = make("div");
    const shown = make("dd");
    shown.append(value === "" || value === null || value === undefined ? "–" : value);
    if (title) item.title = title;
    item.append(make("dt", label), shown);
    list.append(item);
  }
  return list;
}

// A part of a view, with a heading; `note` stands beside it.
export function part(title, content, note) {
  const found = make("section");
  const heading = make("h2", title);
  if (note) heading.append(" ", make("span", note, "quiet"));
  found.append(heading, ...[content].flat());
  return found;
}

// A table of `columns` ({label, num, wide}) and rows of contents; `empty` is said without rows.
// Narrow windows show a row as a card, so every cell knows its label.
export function table(columns, rows, empty) {
  const frame = make("div", null, "scroll");
  const found = make("table");
  const head = make("tr");
  for (const one of columns) head.append(make("th", one.label, one.num && "num"));
  const thead = make("thead");
  thead.append(head);
  const body = make("tbody");
  for (const row of rows) {
    const tr = make("tr");
    row.forEach((content, place) => {
      const { label, num, wide } = columns[place];
      const nothing = content === "" || content === null || content === undefined;
      // A column without a name says only what is remarkable.
      const shown = !nothing ? content : label ? "–" : "";
      tr.append(cell(label, shown, num && "num", wide && "wide", nothing && !label && "nothing"));
    });
    body.append(tr);
  }
  if (!rows.length) {
    const none = make("td", empty || "none", "empty", "wide");
    none.colSpan = columns.length;
    const tr = make("tr");
    tr.append(none);
    body.append(tr);
  }
  if (rows.length) found.append(thead);
  found.append(body);
  frame.append(found);
  return frame;
}

// How far something is, from 0 to 1; `text` says it in words.
export function progress(share, text) {
  const found = make("div", null, "progress");
  found.setAttribute("role", "progressbar");
  found.setAttribute("aria-valuenow", Math.round(100 * share));
  found.setAttribute("aria-valuemin", 0);
  found.setAttribute("aria-valuemax", 100);
  found.setAttribute("aria-label", text);
  const filled = make("i");
  filled.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  found.append(filled);
  const both = make("div", null, "measured");
  both.append(found, make("span", text));
  return both;
}

// Text in which `what stands in backquotes` is code, and a runbook's name there a link to it.
export function withCode(text, tag = "p", ...classes) {
  const found = make(tag, null, ...classes);
  text.split(/`([^`]+)`/).forEach((piece, place) => {
    const [, runbook] = piece.match(/^(?:docs\/operations\/)?([a-z0-9-]+\.md)$/) || [];
    found.append(place % 2 === 0 ? piece : runbook ? link(runbook, "runbook", runbook) : make("code", piece));
  });
  return found;
}

export function button(text, act) {
  const found = make("button", text);
  found.type = "button";
  found.addEventListener("click", act);
  return found;
}

// Two buttons that lead through pages; hidden while there is one page only.
export function pager(label, back, onward) {
  const nav = make("nav", null, "pages", "single");
  nav.setAttribute("aria-label", label);
  const previous = button("Previous", back);
  const next = button("Next", onward);
  nav.append(previous, next);
  return {
    nav,
    show(hasPrevious, hasNext) {
      previous.disabled = !hasPrevious;
      next.disabled = !hasNext;
      nav.classList.toggle("single", !hasPrevious && !hasNext);
    },
  };
}
