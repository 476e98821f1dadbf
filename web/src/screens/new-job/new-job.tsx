import { Dialog } from "@/ui/dialog";

export function NewJob({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog open={open} onClose={onClose} title="New job" drawer>
      <p>Under construction</p>
    </Dialog>
  );
}
