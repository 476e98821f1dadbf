/** A payload or a result as text. Pictures in it are shown as pictures; nothing in it is ever read as HTML. */

import { useMemo } from "react";
import { formatCount } from "@/lib/format";
import { formatJson } from "@/lib/json";
import { visible } from "@/lib/text";
import { CopyButton } from "@/ui/copy";

const SHOWN_MAX = 200_000;
const IMAGE_MAX = 4_000_000;
/** The first bytes of the formats browsers show without running anything, in base64. SVG is left out: it can hold scripts. */
const IMAGES: [RegExp, string][] = [
  [/"(iVBORw0KGgo[A-Za-z0-9+/=]{40,})"/, "image/png"],
  [/"(\/9j\/[A-Za-z0-9+/=]{40,})"/, "image/jpeg"],
  [/"(R0lGOD[A-Za-z0-9+/=]{40,})"/, "image/gif"],
  [/"(UklGR[A-Za-z0-9+/=]{40,})"/, "image/webp"],
];

/** The pictures in a JSON text, as addresses an <img> takes. */
export function picturesIn(text: string): string[] {
  if (text.length > IMAGE_MAX) return [];
  return IMAGES.flatMap(([pattern, media]) => {
    const found = pattern.exec(text);
    return found ? [`data:${media};base64,${found[1]}`] : [];
  });
}

const PICTURE_SHOWN = 48;

/** The same text with the base64 of its pictures cut: the picture stands above it, and a copy has all. */
export function shortened(text: string): string {
  let found = text;
  for (const source of picturesIn(text)) {
    const base64 = source.slice(source.indexOf(",") + 1);
    found = found.replace(base64, `${base64.slice(0, PICTURE_SHOWN)}… (${formatCount(base64.length)} characters)`);
  }
  return found;
}

export function Body({ text, what }: { text: string | null; what: string }) {
  const shown = useMemo(() => (text === null ? "" : visible(formatJson(shortened(text).slice(0, SHOWN_MAX)))), [text]);
  const pictures = useMemo(() => (text === null ? [] : picturesIn(text)), [text]);
  if (text === null || text === "null") return <p className="px-4 py-4 text-muted">No {what}.</p>;
  return (
    <div className="relative">
      <span className="absolute top-2 right-3">
        <CopyButton text={text} label={`Copy the ${what}`} />
      </span>
      {pictures.map((source) => (
        <img
          key={source.slice(0, 60)}
          src={source}
          alt={`In the ${what}`}
          className="mx-4 mt-3 max-h-72 max-w-[80%] rounded border border-line"
        />
      ))}
      <pre
        className="max-h-96 overflow-auto whitespace-pre-wrap break-words px-4 py-3 pr-12 font-mono text-xs"
        dir="ltr"
        tabIndex={0}
      >
        {shown}
      </pre>
      {text.length > SHOWN_MAX && (
        <p className="px-4 pb-3 text-muted">The rest is left out here; copy has all of it.</p>
      )}
    </div>
  );
}
