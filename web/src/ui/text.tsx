import { visible } from "@/lib/text";

/** A text of others within a line of ours: shown as it is, and unable to turn what stands beside it. */
export function Text({ children }: { children: string | null | undefined }) {
  return <bdi>{visible(children ?? "")}</bdi>;
}
