import { expect, it } from "vitest";
import { isolated, visible } from "@/lib/text";

it("shows control characters as signs, and keeps lines and tabs", () => {
  expect(visible("\u001b[31mred\u001b[0m\tand\nnext\u0000\u007f\u0085")).toBe(
    "\u241b[31mred\u241b[0m\tand\nnext\u2400\u2421\\u0085",
  );
});

it("escapes what would turn the direction of writing or hide", () => {
  expect(visible("a\u202eb\u2066c\u200fd\u200be\ufefff")).toBe("a\\u202eb\\u2066c\\u200fd\\u200be\\ufefff");
});

it("leaves every writing as it is", () => {
  for (const text of ["plain", "שלום עולם", "مرحبا", "日本語", "emoji 🚀", "<b>&amp;</b>"])
    expect(visible(text)).toBe(text);
});

it("ends the direction of a text where the text ends, whatever it holds", () => {
  expect(isolated("\u2069\u202eשלום")).toBe("\u2068\\u2069\\u202eשלום\u2069");
  expect(isolated("\u202eabc")).toBe("\\u202eabc");
});
