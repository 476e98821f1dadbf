import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { Body, picturesIn } from "@/screens/job/body";

afterEach(cleanup);

it("shows HTML as text", () => {
  const { container } = render(<Body text={'{"a":"<img src=x onerror=alert(1)><b>bold</b>"}'} what="payload" />);
  expect(container.querySelector("b, img")).toBeNull();
  expect(container.textContent).toContain("<img src=x onerror=alert(1)>");
});

it("keeps large numbers", () => {
  const { container } = render(<Body text='{"n":12345678901234567890}' what="payload" />);
  expect(container.textContent).toContain("12345678901234567890");
});

it("finds pictures, and none in what only looks like one", () => {
  expect(picturesIn(`{"image":"iVBORw0KGgo${"A".repeat(50)}"}`)).toEqual([
    `data:image/png;base64,iVBORw0KGgo${"A".repeat(50)}`,
  ]);
  expect(picturesIn('{"image":"iVBORw0KGgo<script>"}')).toEqual([]);
});
