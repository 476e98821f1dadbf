-- Jobs that ask for several threads: where there is room, who waits for it, and what is kept for whom. Every statement may
-- be repeated, and run by two leaders at once, without harm.

-- name: rooms
-- Every living worker with its threads, how many are busy, its last claim, and the latest rank it claimed lately.
-- Index: running_worker, one probe per worker.
select w.id, w.threads, coalesce(r.threads, 0)::integer as busy, w.queues, w.types,
  date_part('epoch', coalesce(r.claimed_at, i.since)) as last_claim, r.rank as latest_rank, w.lost_threads, w.draining
from windlass.worker w
cross join lateral (
  select sum(r.thread_demand) as threads, max(r.claimed_at) as claimed_at,
    max(r.rank) filter (where r.claimed_at > now() - make_interval(secs => $1)) as rank
  from windlass.running r where r.worker_id = any (array[w.id])
) r
left join windlass.idle i on i.worker_id = w.id
where w.died_at is null and w.lease_until > now()
order by w.id;

-- name: waiting_wide
-- Ready jobs of unpaused queues that ask for several threads and have waited, in rank order, for reservations: those that
-- some worker could hold, or many that none can would hide them. Known ones that still wait are always there.
-- Index: ready_claim, one probe per queue and demand in use; of each no more than the first thousand are looked at.
with recursive served as materialized (
  select s.queue, s.type, s.widest from unnest($1::text[], $2::text[], $3::integer[]) as s (queue, type, widest)
), line (queue, demand, widest) as (
  select q.name, (select min(r.thread_demand) from windlass.ready r where r.queue = q.name and r.thread_demand > 1),
    q.widest
  from (select s.queue as name, max(s.widest) as widest from served s group by s.queue) q
  where not exists (select from windlass.queue p where p.name = q.name and p.paused)
  union all
  select l.queue,
    (select min(r.thread_demand) from windlass.ready r where r.queue = l.queue and r.thread_demand > l.demand),
    l.widest
  from line l where l.demand <= l.widest
), waiting as (
  select r.job_id, r.queue, r.type, r.thread_demand, r.rank
  from line l
  cross join lateral (
    select array_agg(s.type) as types from served s where s.queue = l.queue and s.widest >= l.demand
  ) able
  cross join lateral (
    select r.* from (
      select r.* from windlass.ready r where r.queue = l.queue and r.thread_demand = l.demand order by r.rank limit 1000
    ) r
    where r.type = any (able.types) and r.ready_at < now() - make_interval(secs => $4)
      and r.job_id <> all ($5::uuid[])
    order by r.rank limit $6
  ) r
  where l.demand <= l.widest
  union all
  select r.job_id, r.queue, r.type, r.thread_demand, r.rank
  from unnest($5::uuid[]) as known (job_id)
  cross join lateral (select r.* from windlass.ready r where r.job_id = any (array[known.job_id]) limit 1) r
  where not exists (select from windlass.queue p where p.name = r.queue and p.paused)
)
select w.job_id, w.queue, w.type, w.thread_demand, w.rank from waiting w order by w.rank, w.job_id;

-- name: too_wide
-- Ready jobs wider than the widest worker of their queue and type, that have waited and would not rather wait on; and,
-- as rows without a job, where the look ended in every line (queue and width) that may go on behind it. One probe of
-- ready_claim per line, from where the last look ended; a thousand are looked at, of whatever type, so that those that
-- wait cost no more than that.
with line as materialized (
  select s.queue, s.widest, s.demand, s.rank, array_agg(s.type) as types
  from unnest($1::text[], $2::text[], $3::integer[], $4::integer[], $5::bigint[])
    as s (queue, type, widest, demand, rank)
  group by s.queue, s.widest, s.demand, s.rank
), head as materialized (
  select r.job_id, r.queue, r.type, r.thread_demand, r.rank, l.widest,
    r.type = any (l.types) and r.ready_at < now() - make_interval(secs => $6) as due
  from line l cross join lateral (
    select r.* from windlass.ready r
    where r.queue = l.queue and (r.thread_demand, r.rank) > (l.demand, l.rank)
    order by r.thread_demand, r.rank fetch first 1000 rows with ties
  ) r
), found as (
  select h.job_id, h.queue, h.type, h.thread_demand, j.if_too_wide, h.widest, h.rank
  from head h
  cross join lateral (
    select if_too_wide from windlass.job where id = h.job_id
    union all select if_too_wide from windlass.job_kept where id = h.job_id
    limit 1
  ) j
  where h.due and j.if_too_wide <> 'wait'
  order by h.rank limit $7
)
select f.* from found f
union all
select null, e.queue, null, e.thread_demand, null, e.widest, e.rank
from (
  select h.queue, h.thread_demand, h.widest, h.rank,
    row_number() over (partition by h.queue, h.widest order by h.thread_demand desc, h.rank desc) as place,
    count(*) over (partition by h.queue, h.widest) as looked
  from head h
) e
where e.place = 1 and e.looked >= 1000
order by rank;

-- name: narrow
-- Let jobs that are wider than any worker run on one thread. Guard: still ready, still that wide.
with still as materialized (
  select r.job_id from windlass.ready r
  where r.job_id = any ($1::uuid[]) and r.thread_demand = ($2::smallint[])[array_position($1::uuid[], r.job_id)]
  for update skip locked
)
update windlass.ready r set thread_demand = 1
where r.job_id = any (array(select s.job_id from still s))
returning r.job_id;

-- name: give_up
-- Fail ready jobs that would rather fail than be narrowed. Guard: whoever deletes the ready row owns the move.
with still as materialized (
  select r.job_id from windlass.ready r
  where r.job_id = any ($1::uuid[]) and r.thread_demand = ($2::smallint[])[array_position($1::uuid[], r.job_id)]
  for update skip locked
), gone as (
  delete from windlass.ready r where r.job_id = any (array(select s.job_id from still s)) returning r.*
), finished as (
  insert into windlass.outcome (job_id, ready_at, finished_at, attempt, failures, status, queue, type, error, fingerprint)
  select g.job_id, g.ready_at, now(), g.attempt, g.failures, 'failed', g.queue, g.type, $3::text::json, $4
  from gone g where g.job_id >= (select h.id from windlass.horizon h)
  on conflict do nothing
), finished_kept as (
  insert into windlass.outcome_kept (job_id, ready_at, finished_at, attempt, failures, status, queue, type, error, fingerprint)
  select g.job_id, g.ready_at, now(), g.attempt, g.failures, 'failed', g.queue, g.type, $3::text::json, $4
  from gone g where g.job_id < (select h.id from windlass.horizon h)
  on conflict do nothing
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select case side.sign when 1 then 'failed' else 'ready' end, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values (-1), (1)) as side (sign)
  group by 1, g.queue, g.type, side.sign
)
select g.job_id from gone g;

-- name: release_reservations
-- Drop reservations that are not wanted any more.
delete from windlass.reservation v
where not exists (
  select from unnest($1::uuid[], $2::uuid[]) as w (worker_id, job_id) where w.worker_id = v.worker_id and w.job_id = v.job_id
);

-- name: reserve
-- Keep threads free for wide jobs that still wait. Guard: one per worker, one per job; of two leaders one gives way.
with wanted as (
  select w.* from unnest($1::uuid[], $2::uuid[], $3::integer[]) as w (worker_id, job_id, threads)
  where exists (select from windlass.ready r where r.job_id = any (array[w.job_id]))
), renewed as (
  update windlass.reservation v set expires_at = now() + make_interval(secs => $4), threads = w.threads
  from wanted w where v.worker_id = w.worker_id and v.job_id = w.job_id
  returning v.worker_id, v.job_id
), made as (
  insert into windlass.reservation (worker_id, job_id, threads, expires_at)
  select w.worker_id, w.job_id, w.threads, now() + make_interval(secs => $4)
  from wanted w where not exists (select from renewed r where r.worker_id = w.worker_id)
  on conflict do nothing
  returning worker_id, job_id
)
select * from renewed union all select * from made;

-- name: reservations
-- Those that hold now.
select worker_id, job_id, threads from windlass.reservation where expires_at > now();
