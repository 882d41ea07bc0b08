// What is said where a right is needed and the request does not have it: records, and grants.

import { speakFor } from "./api.js";
import { button, make, withCode } from "./dom.js";

// What to show for `error`; null for one that is no matter of rights. `again` asks once more.
export function whoAsks(error, what, again) {
  if (![401, 403].includes(error.status)) return null;
  const found = make("section", null, "stack");
  if (error.metadata.who === "plaintext") {
    found.append(
      make("p", `${what} are not shown here: this cluster speaks plaintext, so nobody can say who they are.`, "alarm", "warn"),
      withCode(what === "Records"
        ? "They are shown in a browser on the store's own machine, without a proxy: `console.md`. From elsewhere they need certificates (`certificates.md`) and `tls = true` in `[admin]` of each store."
        : "In plaintext everybody may do everything, so there is no access list to show. It begins with certificates: `certificates.md`."),
    );
    return found;
  }
  found.append(make("p", error.status === 403 ? error.message : `${what} are shown to who may see them, and this request does not say whose it is. ${error.message}`, "alarm", "warn"));
  found.append(withCode(error.status === 403
    ? "An administrator can grant it: `logctl acl grant IDENTITY shard/ID read` for the records of a log, `logctl acl grant IDENTITY cluster admin` for the access list."
    : "Open this page with a client's certificate (the store's configuration has `tls = true` in `[admin]`), or give a token, if the store takes them (`tokens.md`). A token is kept in this window's memory and nowhere else."));
  found.append(tokenField(again));
  return found;
}

function tokenField(again) {
  const bar = make("div", null, "bar");
  const field = make("input");
  field.type = "password";
  field.autocomplete = "off";
  field.placeholder = "token";
  field.setAttribute("aria-label", "Token");
  const use = () => {
    speakFor(field.value.trim());
    field.value = "";
    again();
  };
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") use(); });
  bar.append(field, button("Use this token", use));
  return bar;
}
