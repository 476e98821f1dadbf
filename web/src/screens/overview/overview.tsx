import { Empty, Page } from "@/ui/page";

export function Overview() {
  return (
    <Page title="Overview">
      <Empty title="Under construction" />
    </Page>
  );
}
