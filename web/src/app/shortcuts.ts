/** Keys that work everywhere. A key pressed in a field belongs to that field. */
import { useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";

export const SHORTCUTS = [
  { keys: "Ctrl K  or  /", does: "Search and commands" },
  { keys: "g o", does: "Go to the overview" },
  { keys: "g j", does: "Go to the jobs" },
  { keys: "g q", does: "Go to the queues" },
  { keys: "g w", does: "Go to the workers" },
  { keys: "g d", does: "Go to the dead letters" },
  { keys: "g s", does: "Go to the settings" },
  { keys: "n", does: "New job" },
  { keys: "j  k  ↑  ↓", does: "Move in a list" },
  { keys: "x", does: "Select the row; with Shift, all rows up to it" },
  { keys: "Enter", does: "Open the row" },
  { keys: "Esc", does: "Close, or drop the selection" },
  { keys: "?", does: "This help" },
] as const;

const PLACES: Record<string, "/" | "/jobs" | "/queues" | "/workers" | "/dead-letters" | "/settings"> = {
  o: "/",
  j: "/jobs",
  q: "/queues",
  w: "/workers",
  d: "/dead-letters",
  s: "/settings",
};

const CHORD_MS = 1_200;

export function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && !!target.closest("input, textarea, select, [contenteditable=true], [role=dialog]")
  );
}

interface Actions {
  openPalette: () => void;
  openHelp: () => void;
  openNewJob: () => void;
}

export function useShortcuts(actions: Actions): void {
  const navigate = useNavigate();
  useEffect(() => {
    let goUntil = 0;
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        actions.openPalette();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const place = Date.now() < goUntil ? PLACES[event.key] : undefined;
      goUntil = event.key === "g" ? Date.now() + CHORD_MS : 0;
      if (place) {
        event.preventDefault();
        void navigate({ to: place });
      } else if (event.key === "/") {
        event.preventDefault();
        actions.openPalette();
      } else if (event.key === "?") actions.openHelp();
      else if (event.key === "n") {
        event.preventDefault();
        actions.openNewJob();
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  });
}
