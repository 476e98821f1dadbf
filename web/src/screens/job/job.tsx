import { Empty, Page } from "@/ui/page";

export function JobPage() {
  return (
    <Page title="Job">
      <Empty title="Under construction" />
    </Page>
  );
}
