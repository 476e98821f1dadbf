// Elements made of text nodes only: nothing that comes from the server is ever read as markup.

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Prose in which `this` is code.
export function prose(text) {
  return String(text).split("`").map((part, n) => (n % 2 ? el("code", {}, part) : part));
}

// A block of code with a button that copies it. `show` says what is in it.
export function code(label, kind = "") {
  const pre = el("pre", { tabindex: 0, class: kind, role: "region", "aria-label": label });
  const copy = el("button", { type: "button", class: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre); // no clipboard without https: select it instead
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  return { element: el("div", { class: "code" }, pre, copy), show: (next) => { pre.textContent = next; } };
}

// JSON text with line ends and indentation, digit for digit: parsing it would round numbers above 2^53.
export function indented(text) {
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  let out = "";
  const line = () => "\n" + "  ".repeat(depth);
  tokens.forEach((token, n) => {
    const next = tokens[n + 1];
    if (token === "{" || token === "[") {
      depth += 1;
      out += token;
      if (next !== "}" && next !== "]") out += line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      out += (tokens[n - 1] === "{" || tokens[n - 1] === "[" ? "" : line()) + token;
    } else {
      out += token === "," ? token + line() : token === ":" ? ": " : token;
    }
  });
  return out;
}
