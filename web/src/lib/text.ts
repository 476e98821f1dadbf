/**
 * Texts of others, made safe to stand among ours. A control character is shown as a sign, so that a log with colours of a
 * terminal reads as what it is; a character that turns the direction of writing is shown as its escape, so that it cannot make
 * `"a", "b"` read as something else. Copies keep the text as it was.
 */

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

const sign = (char: string): string => {
  const code = char.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : `\\u${code.toString(16).padStart(4, "0")}`;
};

export const visible = (text: string): string => text.replace(UNSEEN, sign);

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** For texts that are put together without elements: titles, labels, messages. Its direction ends where it ends. */
export function isolated(text: string): string {
  const shown = visible(text);
  return RIGHT_TO_LEFT.test(shown) ? `\u2068${shown}\u2069` : shown;
}
