import { Empty, Page } from "@/ui/page";

export function Settings() {
  return (
    <Page title="Settings">
      <Empty title="Under construction" />
    </Page>
  );
}
