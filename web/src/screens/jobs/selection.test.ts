import { expect, it } from "vitest";
import { NOTHING, toggle } from "@/screens/jobs/selection";

const idAt = (index: number) => (index < 10 ? `job-${index}` : undefined);

it("selects one row and drops it again", () => {
  const one = toggle(NOTHING, 2, idAt);
  expect([...one.ids]).toEqual(["job-2"]);
  expect([...toggle(one, 2, idAt).ids]).toEqual([]);
});

it("reaches with Shift in either direction", () => {
  const down = toggle(toggle(NOTHING, 2, idAt), 5, idAt, true);
  expect([...down.ids].sort()).toEqual(["job-2", "job-3", "job-4", "job-5"]);
  const up = toggle(toggle(NOTHING, 5, idAt), 3, idAt, true);
  expect([...up.ids].sort()).toEqual(["job-3", "job-4", "job-5"]);
});

it("drops a range when its first row was dropped", () => {
  const all = toggle(toggle(NOTHING, 0, idAt), 5, idAt, true);
  const less = toggle(toggle(all, 1, idAt), 3, idAt, true);
  expect([...less.ids].sort()).toEqual(["job-0", "job-4", "job-5"]);
});

it("leaves rows alone that are not there", () => {
  expect(toggle(NOTHING, 42, idAt)).toBe(NOTHING);
});
