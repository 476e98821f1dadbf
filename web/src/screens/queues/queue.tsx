import { Empty, Page } from "@/ui/page";

export function QueuePage() {
  return (
    <Page title="Queue">
      <Empty title="Under construction" />
    </Page>
  );
}
