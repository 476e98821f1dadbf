import { Empty, Page } from "@/ui/page";

export function Jobs() {
  return (
    <Page title="Jobs">
      <Empty title="Under construction" />
    </Page>
  );
}
