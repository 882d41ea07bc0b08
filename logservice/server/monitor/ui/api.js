// Asks the store that the page came from. Nothing else is ever asked.

// What makes one name look like another: controls, marks of direction, characters without width.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

export function plain(text) {
  return text.replace(UNSEEN, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);
}

export class Refused extends Error {
  constructor(status, message, reason = "", metadata = {}) {
    super(message);
    Object.assign(this, { status, reason, metadata });
  }
}

// Who this page speaks for, if somebody said so: kept in this window's memory and nowhere else.
let token = "";

export function speakFor(text) {
  token = text;
}

async function fetched(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  return fetch(`/api/v1/${path}`, { cache: "no-store", headers });
}

async function parsed(answer, revive) {
  const text = await answer.text();
  let body;
  try {
    body = JSON.parse(text, revive);
  } catch {
    throw new Refused(answer.status, `HTTP ${answer.status}`);
  }
  if (!answer.ok) throw new Refused(answer.status, body.error || `HTTP ${answer.status}`, body.reason, body.metadata);
  return body;
}

// A document; what could not be seen in its texts is written out.
export async function ask(path) {
  return parsed(await fetched(path), (_, value) => typeof value === "string" ? plain(value) : value);
}

// A document whose texts are kept as they are: records, and pages with lines.
export async function askAsIs(path) {
  return parsed(await fetched(path));
}

export const query = (values) => new URLSearchParams(values).toString();
