/** The screens and their addresses. Each screen is loaded when it is first opened, so the first page stays small. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { uiPath } from "@/api/base";
import { Shell } from "@/app/shell";
import { readJobFilter } from "@/lib/job-filter";
import { Empty, Failure, Loading, Page } from "@/ui/page";

const root = createRootRoute({
  component: Shell,
  notFoundComponent: () => (
    <Page title="Not found">
      <Empty title="There is no such page." />
    </Page>
  ),
});

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  component: lazyRouteComponent(() => import("@/screens/overview/overview"), "Overview"),
});

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: readJobFilter,
  component: lazyRouteComponent(() => import("@/screens/jobs/jobs"), "Jobs"),
});

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$id",
  component: lazyRouteComponent(() => import("@/screens/job/job"), "JobPage"),
});

const queues = createRoute({
  getParentRoute: () => root,
  path: "/queues",
  component: lazyRouteComponent(() => import("@/screens/queues/queues"), "Queues"),
});

const queue = createRoute({
  getParentRoute: () => root,
  path: "/queues/$name",
  component: lazyRouteComponent(() => import("@/screens/queues/queue"), "QueuePage"),
});

const workers = createRoute({
  getParentRoute: () => root,
  path: "/workers",
  component: lazyRouteComponent(() => import("@/screens/workers/workers"), "Workers"),
});

const deadLetters = createRoute({
  getParentRoute: () => root,
  path: "/dead-letters",
  component: lazyRouteComponent(() => import("@/screens/dead-letters/dead-letters"), "DeadLetters"),
});

const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  component: lazyRouteComponent(() => import("@/screens/settings/settings"), "Settings"),
});

export const router = createRouter({
  routeTree: root.addChildren([overview, jobs, job, queues, queue, workers, deadLetters, settings]),
  basepath: uiPath,
  defaultPreload: "intent",
  defaultPendingComponent: () => <Loading />,
  defaultErrorComponent: ({ error, reset }) => <Failure error={error} retry={reset} />,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
