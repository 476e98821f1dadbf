import { Empty, Page } from "@/ui/page";

export function Workers() {
  return (
    <Page title="Workers">
      <Empty title="Under construction" />
    </Page>
  );
}
