import { Empty, Page } from "@/ui/page";

export function Queues() {
  return (
    <Page title="Queues">
      <Empty title="Under construction" />
    </Page>
  );
}
