/** JSON as text. Payloads are shown number for number: JSON.parse would turn 12345678901234567890 into 12345678901234567000. */

const SPACE = /\s/;

/** The end of the JSON value that begins at `start`: the index behind it. */
function valueEnd(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const char = text[at] as string;
    if (char === '"') at = stringEnd(text, at) - 1;
    else if (char === "{" || char === "[") depth++;
    else if (char === "}" || char === "]") {
      if (depth === 0) return at;
      if (--depth === 0) return at + 1;
      continue;
    } else if (depth === 0 && (char === "," || SPACE.test(char))) return at;
    if (depth === 0 && char === '"') return at + 1;
  }
  return text.length;
}

function stringEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === '"') return at + 1;
  }
  return text.length;
}

/** The text of one field of a JSON object, as it was sent; null where there is none. */
export function rawField(text: string, name: string): string | null {
  let at = text.indexOf("{") + 1;
  while (at > 0 && at < text.length) {
    while (at < text.length && (SPACE.test(text[at] as string) || text[at] === ",")) at++;
    if (text[at] !== '"') return null;
    const keyEnd = stringEnd(text, at);
    const key = JSON.parse(text.slice(at, keyEnd)) as string;
    at = text.indexOf(":", keyEnd) + 1;
    while (SPACE.test(text[at] ?? "")) at++;
    const end = valueEnd(text, at);
    if (key === name) return text.slice(at, end);
    at = end;
  }
  return null;
}

/** Indent JSON without reading its numbers. */
export function formatJson(text: string): string {
  let out = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (let at = 0; at < text.length; at++) {
    const char = text[at] as string;
    if (char === '"') {
      const end = stringEnd(text, at);
      out += text.slice(at, end);
      at = end - 1;
    } else if (char === "{" || char === "[") {
      const close = char === "{" ? "}" : "]";
      let next = at + 1;
      while (SPACE.test(text[next] ?? "")) next++;
      if (text[next] === close) {
        out += char + close;
        at = next;
      } else {
        depth++;
        out += char + line();
      }
    } else if (char === "}" || char === "]") {
      depth = Math.max(0, depth - 1);
      out += line() + char;
    } else if (char === ",") out += char + line();
    else if (char === ":") out += ": ";
    else if (!SPACE.test(char)) out += char;
  }
  return out;
}
