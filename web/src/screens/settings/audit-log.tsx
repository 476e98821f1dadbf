/** What operators did, newest first. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { get } from "@/api/client";
import type { Audit } from "@/api/schema";
import { formatMoment } from "@/lib/format";
import { Button } from "@/ui/button";
import { Failure, Loading, Panel } from "@/ui/page";
import { Text } from "@/ui/text";

export function AuditLog() {
  const query = useInfiniteQuery({
    queryKey: ["audit"],
    queryFn: ({ pageParam }) => get<Audit>("/v1/audit", { limit: 50, cursor: pageParam }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
  });
  const entries = query.data?.pages.flatMap((page) => page.entries) ?? [];
  return (
    <Panel title="Audit log">
      {query.isPending ? (
        <Loading />
      ) : query.isError ? (
        <Failure error={query.error} />
      ) : entries.length === 0 ? (
        <p className="px-4 py-4 text-muted">Nothing was done yet.</p>
      ) : (
        <div className="relative max-h-96 overflow-auto" tabIndex={0} role="region" aria-label="Audit log">
          <table className="w-full min-w-[40rem]">
            <thead className="text-left text-muted text-xs">
              <tr className="border-line border-b">
                <th className="px-4 py-2 font-normal">When</th>
                <th className="px-4 py-2 font-normal">Who</th>
                <th className="px-4 py-2 font-normal">Did</th>
                <th className="px-4 py-2 font-normal">To what</th>
                <th className="px-4 py-2 font-normal">Detail</th>
              </tr>
            </thead>
            <tbody>
              {entries.map((entry) => (
                <tr key={entry.id} className="border-line border-b align-top last:border-b-0">
                  <td className="tabular whitespace-nowrap px-4 py-1.5 text-muted">{formatMoment(entry.at)}</td>
                  <td className="px-4 py-1.5">
                    <Text>{entry.actor}</Text>
                  </td>
                  <td className="px-4 py-1.5">{entry.action}</td>
                  <td className="max-w-56 break-words px-4 py-1.5">
                    <Text>{entry.target ?? "–"}</Text>
                  </td>
                  <td className="max-w-96 break-words px-4 py-1.5 font-mono text-muted text-xs">
                    <Text>{entry.detail ? JSON.stringify(entry.detail) : ""}</Text>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {query.hasNextPage && (
            <p className="px-4 py-2">
              <Button busy={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                Older
              </Button>
            </p>
          )}
        </div>
      )}
    </Panel>
  );
}
