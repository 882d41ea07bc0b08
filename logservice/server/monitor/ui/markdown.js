// Draws the Markdown of a runbook as elements: headings, paragraphs, lists, tables, code, links.
//
// It is the part of Markdown that docs/operations uses. What is not understood stays text. Links to
// other runbooks stay on this page; every other one is named and leads nowhere, because this page
// loads nothing from elsewhere.

import { link, make } from "./dom.js";

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]+)\)|\*([^*\s][^*]*)\*/g;

function inline(parent, text) {
  let done = 0;
  for (const found of text.matchAll(INLINE)) {
    parent.append(text.slice(done, found.index));
    done = found.index + found[0].length;
    if (found[1]) parent.append(make("code", found[1]));
    else if (found[2]) parent.append(make("b", found[2]));
    else if (found[3]) parent.append(target(found[3], found[4]));
    else parent.append(make("em", found[5]));
  }
  parent.append(text.slice(done));
  return parent;
}

function target(text, where) {
  const page = /^([\w-]+\.md)(#.*)?$/.exec(where);
  const words = text.replaceAll("`", "");
  if (page) return link(words, "runbook", page[1]);
  const found = make("span", words);
  if (!where.startsWith("#")) found.title = where;
  return found;
}

const LIST = /^(\s*)(?:[-*]|\d+\.)\s+(.*)$/;

// Lines of a list: items, whatever is indented below them belongs to them.
function listOf(lines) {
  const first = LIST.exec(lines[0]);
  const list = make(/^\s*\d/.test(lines[0]) ? "ol" : "ul");
  let item = [];
  const flush = () => {
    if (!item.length) return;
    const li = make("li");
    blocks(li, item);
    list.append(li);
    item = [];
  };
  for (const line of lines) {
    const found = LIST.exec(line);
    if (found && found[1].length === first[1].length) {
      flush();
      item = [found[2]];
    } else {
      item.push(line.replace(new RegExp(`^\\s{0,${first[1].length + 3}}`), ""));
    }
  }
  flush();
  return list;
}

function tableOf(lines) {
  const rows = lines.filter((line) => !/^\|[\s:|-]+\|?$/.test(line)).map((line) =>
    line.replace(/^\||\|\s*$/g, "").split(/(?<!\\)\|/).map((one) => one.trim().replaceAll("\\|", "|")));
  const frame = make("div", null, "scroll");
  const found = make("table", null, "plain");
  const body = make("tbody");
  rows.forEach((row, place) => {
    const tr = make("tr");
    for (const text of row) tr.append(inline(make(place ? "td" : "th"), text));
    if (place) body.append(tr);
    else {
      const head = make("thead");
      head.append(tr);
      found.append(head);
    }
  });
  found.append(body);
  frame.append(found);
  return frame;
}

function blocks(parent, lines) {
  let place = 0;
  const until = (ends) => {
    const first = place;
    while (place < lines.length && !ends(lines[place])) place += 1;
    return lines.slice(first, place);
  };
  while (place < lines.length) {
    const line = lines[place];
    if (!line.trim()) {
      place += 1;
    } else if (/^\s*```/.test(line)) {
      place += 1;
      const indent = /^\s*/.exec(line)[0].length;
      const code = until((one) => /^\s*```/.test(one)).map((one) => one.slice(Math.min(indent, /^\s*/.exec(one)[0].length)));
      place += 1;
      const block = make("pre");
      block.tabIndex = 0;
      block.append(make("code", code.join("\n")));
      parent.append(block);
    } else if (/^#{1,4} /.test(line)) {
      const [, level, text] = /^(#+) (.*)$/.exec(line);
      parent.append(inline(make(`h${Math.min(4, level.length + 1)}`), text));
      place += 1;
    } else if (line.startsWith("|")) {
      parent.append(tableOf(until((one) => !one.startsWith("|"))));
    } else if (LIST.test(line)) {
      parent.append(listOf(until((one) => one.trim() && !LIST.test(one) && !/^\s/.test(one))));
    } else {
      const words = until((one) => !one.trim() || /^\s*```|^\||^#{1,4} /.test(one) || LIST.test(one));
      parent.append(inline(make("p"), words.map((one) => one.trim()).join(" ")));
    }
  }
}

export function markdown(text) {
  const found = make("article", null, "runbook");
  blocks(found, text.split("\n"));
  return found;
}
