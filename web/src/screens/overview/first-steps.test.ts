import { expect, it } from "vitest";
import { demonstration } from "@/screens/overview/first-steps";

it("says how many jobs the demonstration has", () => {
  expect(demonstration()).toHaveLength(84);
});
