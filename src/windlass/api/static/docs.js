// The page: openapi.json drawn as a list of endpoints, each of which opens to its fields, answers and a form.

import { el, prose } from "./dom.js";
import { Schemas } from "./schema.js";
import { ask, setToken, trial } from "./trial.js";

const main = document.getElementById("main");
const contents = document.getElementById("contents");
const search = document.getElementById("search");

// Reading the document. ---------------------------------------------------------------------------------------------

function operations(document, schemas) {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([method]) => ["get", "post", "put", "patch", "delete"].includes(method))
      .map(([method, said]) => operation(path, method, said, item, schemas)));
}

function operation(path, method, said, item, schemas) {
  const parameters = [...(item.parameters ?? []), ...(said.parameters ?? [])].map((one) => schemas.resolve(one));
  const streams = Object.values(said.responses ?? {}).some((answer) => answer.content?.["text/event-stream"]);
  const scope = (said.security ?? []).flatMap((way) => Object.values(way).flat())[0] ?? said["x-scope"] ?? null;
  return {
    path, method: method.toUpperCase(), said, parameters, streams, scope,
    tag: said.tags?.[0] ?? "other",
    summary: said.summary ?? "",
    anchor: said.operationId ?? `${method}${path.replaceAll(/[^A-Za-z0-9]+/g, "-")}`,
    body: bodyOf(said.requestBody, schemas),
  };
}

function bodyOf(said, schemas) {
  if (!said) return null;
  const [media, content] = Object.entries(said.content)[0];
  const given = content.example ?? Object.values(content.examples ?? {})[0]?.value;
  const value = given ?? schemas.example(content.schema);
  return { media, schema: content.schema, required: said.required === true, sample: JSON.stringify(value, null, 2) };
}

// Drawing it. -------------------------------------------------------------------------------------------------------

const method = (name) => el("span", { class: `method ${name.toLowerCase()}` }, name);

// A path that may break after each slash, and nowhere else.
const path = (text) => el("code", { class: "path" },
  text.split(/(\/|\{\w+\})/).flatMap((part) =>
    part === "/" ? ["/", el("wbr")] : [part.startsWith("{") ? el("i", {}, part) : part]));

function endpoint(operation, schemas) {
  const details = el("details", { class: "endpoint", id: operation.anchor },
    el("summary", {}, method(operation.method), path(operation.path),
      el("span", { class: "summary" }, operation.summary),
      el("span", { class: operation.scope ? "scope" : "scope open" }, operation.scope ?? "open")));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(inside(operation, schemas));
  });
  return details;
}

function inside(operation, schemas) {
  const about = el("div", { class: "about" });
  if (operation.said.description) about.append(el("p", {}, prose(operation.said.description)));
  if (operation.parameters.length) about.append(el("h3", {}, "Parameters"), parameterTable(operation.parameters, schemas));
  if (operation.body) {
    about.append(el("h3", {}, "Body", el("small", {}, ` ${operation.body.media}${operation.body.required ? "" : ", may be left out"}`)),
      schemas.table(operation.body.schema));
  }
  about.append(el("h3", {}, "Answers"), answers(operation.said.responses ?? {}, schemas));
  return el("div", { class: "inside" }, about, trial(operation, schemas));
}

function parameterTable(parameters, schemas) {
  const object = {
    properties: Object.fromEntries(parameters.map((one) =>
      [one.name, { description: one.description, ...present(schemas.resolve(one.schema)) }])),
    required: parameters.filter((one) => one.required).map((one) => one.name),
  };
  return schemas.table({ type: "object", ...object });
}

// A parameter is there or it is not: null cannot be said in a URL.
function present(schema) {
  return schema.anyOf ? { ...schema, anyOf: schema.anyOf.filter((one) => one.type !== "null") } : schema;
}

function answers(responses, schemas) {
  return el("ul", { class: "answers" }, Object.entries(responses).map(([status, said]) => {
    const answer = schemas.resolve(said);
    const [media, content] = Object.entries(answer.content ?? {})[0] ?? [];
    const grade = status < "300" ? "good" : status < "500" ? "poor" : "bad";
    const head = [el("strong", { class: grade }, status), " ", prose(answer.description ?? "")];
    if (status >= "400" || !content?.schema || !schemas.object(content.schema)) {
      return el("li", {}, head, media && status < "400" ? el("small", {}, ` ${media}`) : null);
    }
    const more = el("details", {}, el("summary", {}, head, el("small", {}, ` ${schemas.words(content.schema)}`)));
    more.addEventListener("toggle", () => more.append(schemas.table(content.schema)), { once: true });
    return el("li", {}, more);
  }));
}

function intro(document) {
  const state = el("p", { class: "who", role: "status" });
  const input = el("input", {
    id: "token", type: "password", autocomplete: "off", spellcheck: "false", placeholder: "Paste a token", "aria-describedby": "token-about",
  });
  const use = async (event) => {
    event?.preventDefault();
    setToken(input.value);
    state.textContent = await whoAmI(Boolean(input.value.trim()));
  };
  use();
  return el("section", { class: "intro", id: "top" },
    el("h1", {}, document.info.title, el("span", { class: "version" }, document.info.version)),
    (document.info.description ?? "").split(/\n{2,}/).filter(Boolean).map((part) => el("p", { class: "lead" }, prose(part))),
    el("form", { class: "token", on: { submit: use, change: use } },
      el("label", { for: "token" }, "Token"), input, el("button", { type: "submit", class: "quiet" }, "Use")),
    el("p", { class: "note", id: "token-about" },
      "Requests from this page carry the token, or your session if you logged in by a link. The token stays in this page's memory. ",
      "Make one with ", el("code", {}, "windlass token create --scope read,submit --ttl 1h"), "."),
    state,
    el("p", { class: "note" }, "The same as a document: ", el("a", { href: "openapi.json" }, "openapi.json")));
}

async function whoAmI(hasToken) {
  try {
    const answer = await ask("v1/auth/me");
    if (!answer.ok) return hasToken ? "This token is not accepted." : "Not logged in.";
    const me = await answer.json();
    return `You are ${me.subject}, with the scope${me.scopes.length > 1 ? "s" : ""} ${me.scopes.join(", ")}.`;
  } catch {
    return "The server does not answer.";
  }
}

function draw(document) {
  const schemas = new Schemas(document);
  const groups = new Map();
  for (const tag of document.tags ?? []) groups.set(tag.name, { about: tag.description, all: [] });
  for (const one of operations(document, schemas)) {
    if (!groups.has(one.tag)) groups.set(one.tag, { about: "", all: [] });
    groups.get(one.tag).all.push(one);
  }
  const sections = [];
  for (const [tag, { about, all }] of groups) {
    if (!all.length) continue;
    sections.push(el("section", { class: "group", "aria-label": tag },
      el("h2", {}, tag), about ? el("p", { class: "note" }, prose(about)) : null,
      all.map((one) => endpoint(one, schemas))));
    contents.append(el("div", { class: "group" }, el("h2", {}, tag), el("ul", {}, all.map((one) =>
      el("li", {}, el("a", { href: `#${one.anchor}`, title: one.summary }, method(one.method), path(one.path)))))));
  }
  main.replaceChildren(intro(document), ...sections, el("p", { id: "nothing", class: "note", hidden: true }, "No endpoint is like that."));
}

// Finding one's way. ------------------------------------------------------------------------------------------------

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (element) => words.every((word) => element.textContent.toLowerCase().includes(word));
  let found = 0;
  for (const each of main.querySelectorAll(".endpoint")) {
    const there = fits(each.firstElementChild);
    each.hidden = !there;
    contents.querySelector(`a[href="#${CSS.escape(each.id)}"]`).parentElement.hidden = !there;
    found += there ? 1 : 0;
  }
  for (const group of document.querySelectorAll(".group")) {
    group.hidden = !group.querySelector(":scope > .endpoint:not([hidden]), :scope > ul > li:not([hidden])");
  }
  document.getElementById("nothing").hidden = found > 0;
}

function follow() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") {
    target.open = true;
    target.firstElementChild.focus({ preventScroll: true });
  }
  target?.scrollIntoView();
}

function themes() {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* storage is forbidden: then it is as the system says */ }
  const show = () => {
    const now = chosen ?? (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = now;
    button.textContent = now === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${now === "dark" ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", chosen); } catch { /* then only until the page is left */ }
    show();
  });
  dark.addEventListener("change", show);
  show();
}

document.addEventListener("keydown", (event) => {
  const writing = ["INPUT", "TEXTAREA", "SELECT"].includes(document.activeElement?.tagName);
  if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && document.activeElement === search) {
    search.value = "";
    filter();
  }
});

themes();
try {
  const answer = await fetch("openapi.json");
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  draw(await answer.json());
  search.addEventListener("input", filter);
  addEventListener("hashchange", follow);
  follow();
} catch (error) {
  main.replaceChildren(el("p", { role: "alert" }, `The description of the API could not be read: ${error.message}`));
}
