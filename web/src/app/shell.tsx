/** What stands around every screen: where one is, whether it is live, and the way to everything else. */

import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import {
  Gauge,
  Inbox,
  Layers,
  ListChecks,
  LogOut,
  Menu as MenuIcon,
  Moon,
  Plus,
  Search,
  Server,
  Settings,
  Sun,
  X,
} from "lucide-react";
import { useEffect, useState } from "react";
import { rootPath, serverPath } from "@/api/base";
import { post } from "@/api/client";
import { type LiveState, useLiveState } from "@/api/live";
import { useScopes, useStats } from "@/api/queries";
import { CommandPalette } from "@/app/command-palette";
import { KeyboardHelp } from "@/app/keyboard-help";
import { useShortcuts } from "@/app/shortcuts";
import { setTheme, useShade } from "@/app/theme";
import { formatCompact } from "@/lib/format";
import { NewJob } from "@/screens/new-job/new-job";
import { Button, IconButton } from "@/ui/button";
import { cx } from "@/ui/cx";
import { Text } from "@/ui/text";
import { Toasts, toastError } from "@/ui/toast";

const PLACES = [
  { to: "/", label: "Overview", Icon: Gauge },
  { to: "/jobs", label: "Jobs", Icon: ListChecks },
  { to: "/queues", label: "Queues", Icon: Layers },
  { to: "/workers", label: "Workers", Icon: Server },
  { to: "/dead-letters", label: "Dead letters", Icon: Inbox },
  { to: "/settings", label: "Settings", Icon: Settings },
] as const;

export function Shell() {
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const [newJob, setNewJob] = useState(false);
  const [menu, setMenu] = useState(false);
  const { submit } = useScopes();
  useShortcuts({
    openPalette: () => setPalette(true),
    openHelp: () => setHelp(true),
    openNewJob: () => submit && setNewJob(true),
  });
  const path = useRouterState({ select: (state) => state.location.pathname });
  // biome-ignore lint/correctness/useExhaustiveDependencies: the menu of a phone closes when one has gone somewhere
  useEffect(() => setMenu(false), [path]);

  return (
    <div className="flex min-h-dvh flex-col lg:flex-row">
      <a
        href="#main"
        className="sr-only focus:not-sr-only focus:fixed focus:top-2 focus:left-2 focus:z-50 focus:rounded focus:bg-raised focus:px-3 focus:py-2"
      >
        Skip to the content
      </a>
      <aside className="z-30 flex shrink-0 flex-col border-line bg-raised max-lg:sticky max-lg:top-0 max-lg:border-b lg:sticky lg:top-0 lg:h-dvh lg:w-56 lg:border-r">
        <div className="flex h-13 items-center gap-2.5 px-4">
          <img src="./mark.svg" alt="" width={24} height={24} />
          <span className="font-semibold tracking-tight">Windlass</span>
          <span className="flex-1" />
          <LiveMark />
          <IconButton
            label={menu ? "Close the menu" : "Open the menu"}
            className="lg:hidden"
            aria-expanded={menu}
            onClick={() => setMenu(!menu)}
          >
            {menu ? <X size={18} aria-hidden="true" /> : <MenuIcon size={18} aria-hidden="true" />}
          </IconButton>
        </div>
        <div className={cx("flex min-h-0 flex-1 flex-col gap-3 px-2.5 pb-3", !menu && "max-lg:hidden")}>
          <div className="flex gap-2">
            {submit && (
              <Button
                look="primary"
                className="flex-1"
                icon={<Plus size={15} aria-hidden="true" />}
                onClick={() => setNewJob(true)}
              >
                New job
              </Button>
            )}
            <IconButton
              label="Search and commands (Ctrl K)"
              className="border border-line"
              onClick={() => setPalette(true)}
            >
              <Search size={15} aria-hidden="true" />
            </IconButton>
          </div>
          <Places />
          <Account onHelp={() => setHelp(true)} />
        </div>
      </aside>
      <main id="main" tabIndex={-1} className="min-w-0 flex-1 outline-none">
        <Outlet />
      </main>
      <CommandPalette open={palette} onClose={() => setPalette(false)} onNewJob={() => setNewJob(true)} />
      <KeyboardHelp open={help} onClose={() => setHelp(false)} />
      {submit && <NewJob open={newJob} onClose={() => setNewJob(false)} />}
      <Toasts />
    </div>
  );
}

function Places() {
  const counts = useStats().data?.statuses;
  const badge: Partial<Record<string, number>> = { "/dead-letters": counts?.failed ?? 0 };
  return (
    <nav aria-label="Screens" className="flex flex-1 flex-col gap-0.5 overflow-y-auto">
      {PLACES.map(({ to, label, Icon }) => (
        <Link
          key={to}
          to={to}
          activeOptions={{ exact: to === "/" }}
          className="flex h-8 items-center gap-2.5 rounded-md px-2.5 text-muted hover:bg-hover hover:text-text aria-[current=page]:bg-accent-soft aria-[current=page]:font-medium aria-[current=page]:text-accent"
        >
          <Icon size={16} aria-hidden="true" />
          <span className="min-w-0 flex-1 truncate">{label}</span>
          {!!badge[to] && (
            <span className="tabular rounded-full bg-red-soft px-1.5 text-red text-xs">
              {formatCompact(badge[to] as number)}
            </span>
          )}
        </Link>
      ))}
    </nav>
  );
}

function Account({ onHelp }: { onHelp: () => void }) {
  const { subject } = useScopes();
  const shade = useShade();
  const logOut = () => post("/v1/auth/logout").then(() => location.assign(serverPath("/login")), toastError);
  return (
    <div className="flex items-center gap-0.5 border-line border-t pt-2.5">
      <span className="min-w-0 flex-1 truncate px-1.5 text-muted text-xs" title={subject}>
        <Text>{subject}</Text>
      </span>
      <IconButton label="Keyboard help (?)" onClick={onHelp}>
        <span aria-hidden="true" className="font-medium">
          ?
        </span>
      </IconButton>
      <IconButton
        label={shade === "dark" ? "Use light colours" : "Use dark colours"}
        onClick={() => setTheme(shade === "dark" ? "light" : "dark")}
      >
        {shade === "dark" ? <Sun size={15} aria-hidden="true" /> : <Moon size={15} aria-hidden="true" />}
      </IconButton>
      <IconButton label="Log out" onClick={logOut}>
        <LogOut size={15} aria-hidden="true" />
      </IconButton>
    </div>
  );
}

const LIVE: Record<LiveState, { word: string; dot: string; text: string }> = {
  live: { word: "Live", dot: "bg-green", text: "text-green" },
  connecting: { word: "Connecting", dot: "bg-line-strong", text: "text-muted" },
  reconnecting: { word: "Reconnecting", dot: "bg-amber animate-pulse", text: "text-amber" },
  paused: { word: "Paused", dot: "bg-line-strong", text: "text-muted" },
};

function LiveMark() {
  const look = LIVE[useLiveState()];
  return (
    <output
      className={cx("inline-flex items-center gap-1.5 text-xs", look.text)}
      data-testid="live"
      title={`Updates from ${location.host}${rootPath}`}
    >
      <span aria-hidden="true" className={cx("size-2 rounded-full", look.dot)} />
      {look.word}
    </output>
  );
}
