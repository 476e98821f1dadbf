import { Empty, Page } from "@/ui/page";

export function DeadLetters() {
  return (
    <Page title="Dead letters">
      <Empty title="Under construction" />
    </Page>
  );
}
