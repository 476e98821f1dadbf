-- What the testing kit asks. No worker, leader or API runs any of it.

-- name: stored_jobs
-- Every job that was enqueued, in order. JSON as text: a caller's own connection may decode it.
select j.id, j.type, j.queue, j.name, j.priority, j.thread_demand, j.payload::text as payload, j.tags, j.max_attempts,
  j.timeout_s, j.idempotency_key, j.scheduled_at, j.created_at
from windlass.job j order by j.created_at, j.id;

-- name: next_due
-- Seconds until the next scheduled job is due; null if there is none. Index: scheduled_due.
select extract(epoch from min(s.ready_at) - statement_timestamp())::double precision as wait_s from windlass.scheduled s;

-- name: pass_time
-- Let seconds pass for every scheduled job: each is due, and ranks, that much earlier.
update windlass.scheduled s
set ready_at = s.ready_at - make_interval(secs => $1::double precision),
  rank = s.rank - ($1::double precision * 1000000)::bigint;
