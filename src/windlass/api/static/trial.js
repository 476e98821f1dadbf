// "Try it": a form made from an operation, the same request as a curl line, and what the server answered.

import { code, el, indented } from "./dom.js";

const SHOWN_MAX = 200_000; // characters of an answer: more would freeze the page
const base = new URL(".", location.href);
let token = ""; // in memory only: it is gone with the page

export const setToken = (next) => { token = next.trim(); };

// A request of ours, with the token if there is one, else with the session's cookie.
export function ask(path, options = {}) {
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...options.headers };
  return fetch(new URL(path, base), { ...options, headers, credentials: token ? "omit" : "same-origin", cache: "no-store" });
}

export function trial(operation, schemas) {
  const fields = operation.parameters.map((parameter) => new Field(parameter, schemas));
  const body = operation.body && el("textarea", {
    rows: Math.min(20, operation.body.sample.split("\n").length + 1), spellcheck: "false", class: "body",
  }, operation.body.sample);
  const curl = code("The request as a curl command", "wraps");
  const read = () => request(operation, fields, body?.value);
  const refresh = () => curl.show(curlLine(operation, read()));
  const answer = el("div", { class: "answer", "aria-live": "polite" });
  const send = el("button", { type: "submit" }, "Send");
  const form = el("form", { class: "trial", on: { input: refresh } },
    fields.map((field) => field.element),
    body && el("label", { class: "field wide" }, el("span", {}, "body"), body),
    el("div", { class: "row" }, send));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (form.running) return form.running.abort();
    form.running = new AbortController();
    send.textContent = "Stop";
    await answered(operation, read(), answer, form.running.signal);
    form.running = null;
    send.textContent = "Send";
  });
  refresh();
  return el("div", { class: "side" }, el("div", { class: "stays" }, el("h3", {}, "Request"), curl.element, form, answer));
}

// One parameter of the path, the query or the head.
class Field {
  constructor(parameter, schemas) {
    this.name = parameter.name;
    this.place = parameter.in;
    this.required = parameter.required === true;
    const choice = schemas.choices(parameter.schema).find((one) => one.enum);
    const hint = choice ? "" : schemas.words(parameter.schema).split(",")[0];
    this.input = choice
      ? el("select", {}, el("option", { value: "" }, ""), choice.enum.map((one) => el("option", {}, String(one))))
      : el("input", { type: "text", placeholder: hint, autocomplete: "off", spellcheck: "false", required: this.required });
    if (this.required) this.input.value = parameter.example ?? "";
    this.element = el("label", { class: "field" },
      el("span", {}, this.name, el("small", {}, this.place === "query" ? "" : ` ${this.place}`)), this.input);
  }

  get value() {
    return this.input.value.trim();
  }
}

function request(operation, fields, body) {
  const given = (place) => fields.filter((field) => field.place === place && field.value !== "");
  let path = operation.path.slice(1);
  for (const field of fields.filter((one) => one.place === "path")) {
    path = path.replace(`{${field.name}}`, field.value ? encodeURIComponent(field.value) : `{${field.name}}`);
  }
  const query = given("query").map((field) => `${encodeURIComponent(field.name)}=${encodeURIComponent(field.value)}`);
  const headers = Object.fromEntries(given("header").map((field) => [field.name, field.value]));
  if (body) headers["Content-Type"] = operation.body.media;
  return { path: path + (query.length ? `?${query.join("&")}` : ""), method: operation.method, headers, body: body || undefined };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curlLine(operation, { path, method, headers, body }) {
  const url = new URL(path, base).href.replaceAll("%7B", "{").replaceAll("%7D", "}"); // what is to be filled in
  const flags = (operation.streams ? "-sSN" : "-sS") + (method === "GET" ? "" : ` -X ${method}`);
  const lines = [`curl ${flags} ${quoted(url)}`];
  if (operation.scope) lines.push('-H "Authorization: Bearer $WINDLASS_TOKEN"');
  for (const [name, value] of Object.entries(headers)) lines.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (body) lines.push(`-d ${quoted(body)}`);
  return lines.join(" \\\n  ");
}

async function answered(operation, asked, where, signal) {
  const began = performance.now();
  const head = el("p", { class: "status" }, "Sending…");
  where.replaceChildren(head);
  try {
    const answer = await ask(asked.path, { ...asked, signal });
    const took = `${Math.round(performance.now() - began)} ms`;
    const grade = answer.ok ? "good" : answer.status < 500 ? "poor" : "bad";
    head.replaceChildren(el("strong", { class: grade }, String(answer.status)), ` ${answer.statusText} · ${took}`);
    const headers = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    const shown = code("The body of the answer");
    where.append(el("details", {}, el("summary", {}, "Headers"), el("pre", { tabindex: 0, role: "region", "aria-label": "The headers of the answer" }, headers)), shown.element);
    await pour(answer, shown);
  } catch (error) {
    const said = signal.aborted ? "Stopped." : `No answer: ${error.message}`;
    if (where.contains(head) && head.textContent === "Sending…") head.textContent = said;
    else where.append(el("p", { class: "status" }, said));
  }
}

// Shows an answer as it comes, the last part of it if it is long.
async function pour(answer, shown) {
  const json = (answer.headers.get("content-type") ?? "").includes("json");
  const text = new TextDecoder();
  const reader = answer.body?.getReader();
  let all = "";
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true };
    if (done) break;
    all = (all + text.decode(value, { stream: true })).slice(-2 * SHOWN_MAX);
    if (!json) shown.show(all.slice(-SHOWN_MAX));
  }
  const whole = json && all.length < SHOWN_MAX ? indented(all) : all.slice(-SHOWN_MAX);
  shown.show(whole || "(no body)");
}
