-- What people look at. Reads only; lists run newest job first by id, so that a job keeps its place while it moves.
-- A ready job is shown as held while its queue is paused, or while workers live and none of them knows its type.

-- name: jobs
-- Jobs wherever they are, newest first; {page} is the SQL of their ids. Primary keys only. Payloads and results of more
-- than {most} bytes are left where they are: first by what they take on disk, with a head of up to 4 bytes, which is known
-- without reading them.
with known as materialized (
  select types from windlass.known
), page as materialized (
  {page}
), place as (
  select s.job_id, 'scheduled' as status, null as reason, s.attempt, s.failures, s.ready_at,
    null::timestamptz as started_at, null::timestamptz as finished_at, null::uuid as worker_id,
    null::smallint as threads_granted, false as cancel_requested, null::json as result, null::json as error,
    null::real as progress, null as progress_note
  from windlass.scheduled s where s.job_id = any (array(select p.job_id from page p))
  union all
  select h.job_id, 'held', h.reason, h.attempt, h.failures, h.ready_at, null, null, null, null, false, null, null,
    null, null
  from windlass.held h where h.job_id = any (array(select p.job_id from page p))
  union all
  select r.job_id, case when why.reason is null then 'ready' else 'held' end, why.reason, r.attempt, r.failures,
    r.ready_at, null, null, null, null, false, null, null, null, null
  from windlass.ready r cross join known k cross join lateral (
    select case when exists (select from windlass.queue q where q.name = r.queue and q.paused) then 'queue paused'
                when r.type <> all (k.types) then 'unknown type' end as reason
  ) why
  where r.job_id = any (array(select p.job_id from page p))
  union all
  select r.job_id, 'running', null, r.attempt, r.failures, r.ready_at, r.claimed_at, null, r.worker_id,
    r.thread_demand, r.cancel_requested is not null, null, null, r.progress, r.progress_note
  from windlass.running r where r.job_id = any (array(select p.job_id from page p))
  union all
  select o.job_id, o.status, null, o.attempt, o.failures, o.ready_at, o.started_at, o.finished_at, o.worker_id,
    o.threads, false, o.result, o.error, null, null
  from page p cross join lateral (select o.* from windlass.outcome o where o.job_id = p.job_id limit 1) o
  union all
  select o.job_id, o.status, null, o.attempt, o.failures, o.ready_at, o.started_at, o.finished_at, o.worker_id,
    o.threads, false, o.result, o.error, null, null
  from windlass.outcome_kept o where o.job_id = any (array(select p.job_id from page p))
)
select j.id, j.type, l.status, l.reason, j.name, j.queue, j.priority, j.thread_demand, l.threads_granted,
  j.max_attempts, j.timeout_s, j.retry, j.if_too_wide, j.trace, j.tags, j.idempotency_key, j.created_at, j.scheduled_at, l.ready_at,
  coalesce(l.started_at, last.started_at) as started_at, l.finished_at, l.attempt, l.failures, l.worker_id, l.cancel_requested,
  case when {most} is null then l.result when pg_column_size(l.result) > {most} + 4 then null
       when octet_length(l.result::text) <= {most} then l.result end as result,
  coalesce(l.error, last.error) as error, last.ended_at as last_ended_at, l.progress, l.progress_note,
  date_part('epoch', l.started_at - l.ready_at) as queue_s,
  date_part('epoch', l.finished_at - l.started_at) as execution_s,
  date_part('epoch', l.finished_at - j.created_at) as total_s,
  case when {most} is null then j.payload when pg_column_size(j.payload) > {most} + 4 then null
       when octet_length(j.payload::text) <= {most} then j.payload end as payload
from page p
join place l on l.job_id = p.job_id
cross join lateral (
  select * from windlass.job where id = p.job_id
  union all select * from windlass.job_kept where id = p.job_id
) j
left join lateral (  -- how the last attempt ended, of a job that is unfinished or ended while it waited; index: attempt_job
  (select a.attempt, a.started_at, a.ended_at, a.error from windlass.attempt a
   where l.attempt > 0 and (l.finished_at is null or l.started_at is null) and a.job_id = p.job_id
   order by a.attempt desc, a.ended_at desc limit 1)
  union all
  (select a.attempt, a.started_at, a.ended_at, a.error from windlass.attempt_kept a
   where l.attempt > 0 and (l.finished_at is null or l.started_at is null) and a.job_id = p.job_id
   order by a.attempt desc, a.ended_at desc limit 1)
  order by attempt desc, ended_at desc limit 1
) last on true
order by p.job_id desc;

-- name: ids
-- The ids of a page alone, newest first, for actions on many; {page} as above.
with known as materialized (
  select types from windlass.known
), page as materialized (
  {page}
)
select p.job_id from page p order by p.job_id desc;

-- name: places
-- Where jobs are, as they are shown. Primary keys only; of outcome the one partition each belongs to.
with known as materialized (
  select types from windlass.known
), wanted as materialized (
  select distinct unnest($1::uuid[]) as job_id
)
select s.job_id, 'scheduled' as status from windlass.scheduled s where s.job_id = any ($1::uuid[])
union all
select h.job_id, 'held' from windlass.held h where h.job_id = any ($1::uuid[])
union all
select r.job_id,
  case when exists (select from windlass.queue q where q.name = r.queue and q.paused) or r.type <> all (k.types)
       then 'held' else 'ready' end
from windlass.ready r cross join known k where r.job_id = any ($1::uuid[])
union all
select r.job_id, 'running' from windlass.running r where r.job_id = any ($1::uuid[])
union all
select w.job_id, o.status
from wanted w cross join lateral (select o.status from windlass.outcome o where o.job_id = w.job_id limit 1) o
union all
select o.job_id, o.status from windlass.outcome_kept o where o.job_id = any ($1::uuid[]);

-- name: finished_lines
-- The pairs of type and queue that finished jobs have, for a list by either; from the counts.
select distinct t.type, t.queue from windlass.tallied t
where t.status in ('completed', 'failed', 'cancelled') and ($1::text is null or t.type = $1)
  and ($2::text is null or t.queue = $2)
limit $3;

-- name: attempts
-- The attempts of a job that have ended, oldest first; the last one may be its outcome. Of many, the newest $2: each may
-- have 64 KB of log. Index: attempt_job.
select n.* from (
select a.attempt, a.status, a.worker_id, a.token, a.started_at, a.ended_at, a.error, a.log
from windlass.attempt a where a.job_id = $1
union all
select a.attempt, a.status, a.worker_id, a.token, a.started_at, a.ended_at, a.error, a.log
from windlass.attempt_kept a where a.job_id = $1
union all
select o.attempt, o.status, o.worker_id, o.token, o.started_at, o.finished_at, o.error, o.log
from windlass.outcome o where o.job_id = $1 and o.started_at is not null
union all
select o.attempt, o.status, o.worker_id, o.token, o.started_at, o.finished_at, o.error, o.log
from windlass.outcome_kept o where o.job_id = $1 and o.started_at is not null
order by attempt desc, ended_at desc limit $2
) n order by n.attempt, n.ended_at;

-- name: follow_log
-- Follow the log of a job that is not finished, for $2 seconds from now, and read what its running attempt has written so far. The one
-- statement here that writes: a note for the job's worker. Primary keys only.
with unfinished as (
  select j.job_id from windlass.running j where j.job_id = $1
  union all select j.job_id from windlass.ready j where j.job_id = $1
  union all select j.job_id from windlass.scheduled j where j.job_id = $1
  union all select j.job_id from windlass.held j where j.job_id = $1
  limit 1
), followed as (
  insert into windlass.followed_log (job_id, until)
  select u.job_id, now() + make_interval(secs => $2) from unfinished u
  on conflict (job_id) do update set until = excluded.until
  returning job_id, attempt, token, log
)
select r.attempt, r.worker_id, r.token, r.claimed_at as started_at, f.log
from followed f join windlass.running r on r.job_id = any (array[f.job_id]) and r.token = f.token
where f.log is not null;

-- name: dead_letter_groups
-- The newest failed jobs by type and kind of error. Index: outcome_failed, or outcome_status_type or _queue where one is
-- given; with both, those of the type are walked, and those of the queue kept. The error itself, which may be long, is
-- read only of the newest of each group.
with looked as materialized (
  select n.* from (
    (select o.job_id, o.type, o.queue, o.fingerprint, o.finished_at from windlass.outcome o
     where o.status = 'failed' and ($2::text is null or o.type = $2)
       and ($2::text is not null or $3::text is null or o.queue = $3)
     order by o.job_id desc limit $1::integer + 1)
    union all
    (select o.job_id, o.type, o.queue, o.fingerprint, o.finished_at from windlass.outcome_kept o
     where o.status = 'failed' and ($2::text is null or o.type = $2)
       and ($2::text is not null or $3::text is null or o.queue = $3)
     order by o.job_id desc limit $1::integer + 1)
  ) n
  order by n.job_id desc limit $1::integer + 1  -- one more, to tell whether these are all
), grouped as (
  select l.type, l.fingerprint, count(*) as count, min(l.finished_at) as first_at, max(l.finished_at) as last_at,
    (array_agg(l.job_id))[1:5] as sample  -- hashed as they come, newest first: to sort each group doubles the time
  from (select * from looked order by job_id desc limit $1::integer) l
  where $3::text is null or l.queue = $3
  group by l.type, l.fingerprint
), shown as materialized (
  select g.* from grouped g order by g.count desc, g.last_at desc, g.sample[1] desc limit $4
)
select s.type, coalesce(e.error ->> 'type', '') as error_type, left(coalesce(e.error ->> 'message', ''), 1000) as message,
  s.fingerprint, s.count, s.first_at, s.last_at, s.sample, t.looked, t.jobs, t.groups
from (
  select (select count(*) from looked) as looked, coalesce(sum(g.count), 0)::bigint as jobs, count(*) as groups
  from grouped g
) t
left join shown s on true  -- without a group, too, it is told whether all were looked at
left join lateral (
  select o.error from windlass.outcome o where o.job_id = s.sample[1]
  union all select o.error from windlass.outcome_kept o where o.job_id = s.sample[1]
  limit 1
) e on true
order by s.count desc, s.last_at desc, s.sample[1] desc;

-- name: dead_letter_age
-- When the oldest of the failed jobs failed. Index: outcome_failed_age.
select least(
  (select o.finished_at from windlass.outcome o where o.status = 'failed' order by o.finished_at limit 1),
  (select o.finished_at from windlass.outcome_kept o where o.status = 'failed' order by o.finished_at limit 1)
) as oldest_at;

-- name: dead_letter_size
-- What the newest failed jobs take on disk, with their attempts and logs: $2 bytes a row, and its long values as they are stored,
-- compressed and unread. Index: outcome_failed; primary keys; attempt_job.
with sample as materialized (
  select n.job_id from (
    (select o.job_id from windlass.outcome o where o.status = 'failed' order by o.job_id desc limit $1)
    union all
    (select o.job_id from windlass.outcome_kept o where o.status = 'failed' order by o.job_id desc limit $1)
  ) n
  order by n.job_id desc limit $1
)
select count(*) as jobs, coalesce(sum(size.bytes), 0)::bigint as bytes
from sample s cross join lateral (
  select sum(row.bytes) as bytes from (
    select $2::integer + pg_column_size(j.payload) as bytes from windlass.job j where j.id = s.job_id
    union all select $2 + pg_column_size(j.payload) from windlass.job_kept j where j.id = s.job_id
    union all
    select $2 + coalesce(pg_column_size(o.error), 0) + coalesce(pg_column_size(o.log), 0)
    from windlass.outcome o where o.job_id = s.job_id
    union all
    select $2 + coalesce(pg_column_size(o.error), 0) + coalesce(pg_column_size(o.log), 0)
    from windlass.outcome_kept o where o.job_id = s.job_id
    union all
    select $2 + coalesce(pg_column_size(a.error), 0) + coalesce(pg_column_size(a.log), 0)
    from windlass.attempt a where a.job_id = s.job_id
    union all
    select $2 + coalesce(pg_column_size(a.error), 0) + coalesce(pg_column_size(a.log), 0)
    from windlass.attempt_kept a where a.job_id = s.job_id
  ) row
) size;

-- name: types
-- Every declared type, how many versions of it living workers have, and how many of those claim from its queue. Of one version, its
-- schema is told: who declared last may have died, and an older version may be all that lives. Workers that are alike are counted
-- once and multiplied: a thousand of them are a few kinds.
with kind as materialized (
  select w.queues, w.prefixes, w.types, count(*) filter (where not w.draining) as workers
  from windlass.worker w where w.died_at is null and w.lease_until > now()
  group by w.queues, w.prefixes, w.types
)
select t.name, t.queue, t.priority, t.thread_demand, t.max_attempts, t.timeout_s, t.retry, t.tags, t.if_too_wide,
  t.isolation, t.at_most_once, t.description, case when v.type is null then t.schema else v.schema end as schema,
  coalesce(l.versions, 0)::integer as versions, v.type is not null as current, k.served_by
from windlass.job_type t
cross join lateral (
  select coalesce(sum(k.workers) filter (where t.queue = any (k.queues) or t.queue ^@ any (k.prefixes)), 0)::integer
    as served_by
  from kind k where t.name = any (k.types)
) k
left join (
  select l.type, count(distinct coalesce(l.digest, '')) as versions, min(l.digest) as digest
  from windlass.living_version l group by l.type
) l on l.type = t.name
left join windlass.type_version v on l.versions = 1 and v.type = l.type and v.digest = l.digest
order by t.name;

-- name: served_queues
-- What living workers that claim jobs serve, and how many serve the same.
select w.queues, count(*)::integer as workers
from windlass.worker w where w.died_at is null and w.lease_until > now() and not w.draining
group by w.queues;

-- name: counts
-- Exact counts, as they are shown.
select case when t.status = 'ready' and (coalesce(q.paused, false) or t.type <> all (k.types)) then 'held' else t.status end
    as status, t.queue, t.type, t.n
from windlass.tallied t cross join windlass.known k left join windlass.queue q on q.name = t.queue;

-- name: cluster_state
-- What the database says of the cluster. Each part reads a row, or a table with a row per worker.
select current_setting('server_version') as postgres,
  (select coalesce(sum(d.numbackends), 0)::integer from pg_stat_database d) as connections,
  current_setting('max_connections')::integer as connections_max,
  l.holder as leader, coalesce(l.term, 0) as term, w.workers, w.threads
from (
  select count(*)::integer as workers, coalesce(sum(k.threads), 0)::integer as threads
  from windlass.worker k where k.died_at is null and k.lease_until > now()
) w
left join windlass.leader l on l.expires_at > now();

-- name: summary
-- The sums by status (without a queue), and the $1 largest counts: who looks often does not read one row for each of a
-- thousand queues.
with shown as materialized (
  select t.queue, t.type, sum(t.n)::bigint as n,
    case when t.status = 'ready' and (coalesce(q.paused, false) or t.type <> all (k.types)) then 'held'
         else t.status end as status
  from windlass.tallied t cross join windlass.known k left join windlass.queue q on q.name = t.queue
  group by 4, t.queue, t.type
)
select s.status, null as queue, null as type, sum(s.n)::bigint as n from shown s group by s.status
union all
(select s.status, s.queue, s.type, s.n from shown s order by s.n desc, s.queue, s.type, s.status limit $1);

-- name: count_undecided
-- How many jobs wait for a person to decide. Index: held_reason.
select count(*) as n from windlass.held h where h.reason = 'needs decision';

-- name: queues
-- One page of the queues that have jobs or settings, in the order of code points behind $1, up to $2 of them (null:
-- all); or those that $3 names, jobs or not. `unknown`: ready jobs of types that no living worker knows. The counts are
-- read once for all queues: one reading for each was quadratic, and 20,000 queues took minutes. Index for the age of
-- the oldest among those first in line: ready_claim, one probe per queue with ready jobs and demand in use.
with line as (
  select t.queue as name, t.status, t.n, t.status = 'ready' and t.type <> all (k.types) as unknown, false as paused
  from windlass.tallied t cross join windlass.known k
  union all
  select q.name, null, 0, false, q.paused from windlass.queue q
  union all
  select n.name, null, 0, false, false from unnest($3::text[]) as n (name)
), page as materialized (
  select l.name, bool_or(l.paused) as paused,
    coalesce(sum(l.n) filter (where l.status = 'scheduled'), 0)::bigint as scheduled,
    coalesce(sum(l.n) filter (where l.status = 'held'), 0)::bigint as held,
    coalesce(sum(l.n) filter (where l.status = 'ready'), 0)::bigint as ready,
    coalesce(sum(l.n) filter (where l.unknown), 0)::bigint as unknown,
    coalesce(sum(l.n) filter (where l.status = 'running'), 0)::bigint as running,
    coalesce(sum(l.n) filter (where l.status = 'completed'), 0)::bigint as completed,
    coalesce(sum(l.n) filter (where l.status = 'failed'), 0)::bigint as failed,
    coalesce(sum(l.n) filter (where l.status = 'cancelled'), 0)::bigint as cancelled
  from line l
  where l.name collate "C" > $1 and ($3::text[] is null or l.name = any ($3::text[]))
  group by l.name
  order by l.name collate "C" limit $2
)
select p.*, date_part('epoch', now() - oldest.ready_at) as oldest_age_s
from page p
left join lateral (
  with recursive demand (demand) as (
    select min(r.thread_demand) from windlass.ready r where r.queue = p.name
    union all
    select (select min(r.thread_demand) from windlass.ready r where r.queue = p.name and r.thread_demand > d.demand)
    from demand d where d.demand is not null
  )
  select min(head.ready_at) as ready_at
  from demand d cross join lateral (
    select r.ready_at from windlass.ready r
    where r.queue = p.name and r.thread_demand = d.demand order by r.rank limit 100
  ) head
  where d.demand is not null
) oldest on p.ready > 0
order by p.name collate "C";

-- name: workers
-- Every worker with what it runs, or the one that $1 names; the living first. A worker begins jobs in the order in which it
-- claimed them, and one that does not fit yet holds up those behind it: those whose threads add up to no more than its own run,
-- the others are claimed ahead. Index: running_worker.
select w.id, w.name, w.threads, coalesce(r.threads, 0)::integer as busy_threads, coalesce(r.jobs, 0)::integer as jobs,
  w.queues, w.types, w.supervisor_id, w.started_at, w.renewed_at,
  date_part('epoch', w.lease_until - now()) as lease_left_s, w.draining or w.stopping as draining, w.died_at,
  v.job_id as reserved_for, w.lost_threads, coalesce(w.cause = 'left', false) as stopped, r.claimed::integer as claimed,
  w.version, w.memory_bytes
from windlass.worker w
cross join lateral (
  select sum(h.thread_demand) filter (where h.up_to <= w.threads) as threads, count(*) as jobs,
    count(*) filter (where h.up_to > w.threads) as claimed
  from (
    select r.thread_demand, sum(r.thread_demand) over (
      order by r.claimed_at, r.rank, r.job_id rows unbounded preceding) as up_to
    from windlass.running r where r.worker_id = any (array[w.id])
  ) h
) r
left join windlass.reservation v on v.worker_id = w.id and v.expires_at > now()
where $1::uuid is null or w.id = $1
order by w.died_at nulls first, w.started_at, w.id;

-- name: thread_map
-- Which jobs hold the threads of living workers: $1 workers and $2 jobs at most; how many more each has claimed, as above.
-- `overdue`: it was to stop, so it may hold threads that are lost. Indexes: running_worker; the primary keys of job and job_type.
with living as materialized (
  select w.id, w.threads, w.lost_threads, w.memory_bytes, w.started_at
  from windlass.worker w where w.died_at is null and w.lease_until > now()
  order by w.started_at, w.id limit $1
), held as materialized (
  select l.id as worker_id, l.started_at, l.lost_threads, l.memory_bytes, coalesce(h.claimed, 0)::integer as claimed,
    h.job_id, h.type, h.thread_demand, h.claimed_at, h.rank, h.suspect, h.cancel_requested
  from living l left join lateral (
    select r.*, count(*) filter (where r.up_to > l.threads) over () as claimed
    from (
      select r.job_id, r.type, r.thread_demand, r.claimed_at, r.rank, r.suspect,
        r.cancel_requested is not null as cancel_requested,
        sum(r.thread_demand) over (order by r.claimed_at, r.rank, r.job_id rows unbounded preceding) as up_to
      from windlass.running r where r.worker_id = any (array[l.id])
    ) r
  ) h on h.up_to <= l.threads
  order by l.started_at, l.id, h.claimed_at, h.rank, h.job_id limit $2
)
select h.worker_id, h.lost_threads, h.memory_bytes, h.claimed, h.job_id, h.type, j.name, h.thread_demand as threads, h.claimed_at,
  h.suspect or coalesce(t.isolation = 'process', false) as isolated,
  h.cancel_requested or h.claimed_at + make_interval(secs => j.timeout_s) <= now() as overdue
from held h
left join windlass.job_type t on t.name = h.type
left join lateral (
  select k.name, k.timeout_s from windlass.job k where k.id = h.job_id
  union all select k.name, k.timeout_s from windlass.job_kept k where k.id = h.job_id
  limit 1
) j on true
order by h.started_at, h.worker_id, h.claimed_at, h.rank, h.job_id;

-- name: check
-- What must never be seen. Reads everything.
select * from windlass."check";
