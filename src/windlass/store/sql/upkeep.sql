-- What keeps the cluster whole: workers and their leases, and the leader's chores. Every statement may be repeated,
-- and run by two leaders at once, without harm.

-- name: register
-- A worker begins its life. Guard: the id, which is never used again; repeating is answered by whether it still lives.
insert into windlass.worker (id, supervisor_id, started_at, renewed_at, lease_until, threads, name, queues, types)
values ($1, $2, now(), now(), now() + make_interval(secs => $3), $4, $5, $6, $7)
on conflict (id) do update set renewed_at = excluded.renewed_at, lease_until = excluded.lease_until
where worker.died_at is null
returning id;

-- name: renew
-- Push out the leases of workers that live. Dead is final: a worker not returned must stop.
update windlass.worker
set renewed_at = now(), lease_until = now() + make_interval(secs => $2)
where id = any ($1::uuid[]) and died_at is null
returning id, draining;

-- name: drain
-- Workers that live claim no more.
update windlass.worker set draining = true where id = any ($1::uuid[]) and died_at is null returning id;

-- name: bury
-- Say that workers are dead, and of what. What they still hold is reaped.
update windlass.worker set died_at = now(), cause = $2 where id = any ($1::uuid[]) and died_at is null returning id;

-- name: bury_expired
-- Workers whose lease ended. A renewal in progress wins: the row is looked at again once it commits.
update windlass.worker set died_at = now(), cause = 'expired'
where died_at is null and lease_until <= now()
returning id;

-- name: lost
-- Running rows whose worker is dead or unknown: never "who has just died", or a claim that commits late is orphaned.
-- Holders are found by stepping through running_worker, one probe each. A lost lease counts as a crash only if
-- another worker renewed after it ended: else the database was away, not the worker. A worker buried by its supervisor
-- has had its begun jobs settled as crashed before; what is found here it had not begun.
with recursive holder (worker_id) as (
  (select r.worker_id from windlass.running r order by r.worker_id limit 1)
  union all
  select (select r.worker_id from windlass.running r where r.worker_id > h.worker_id order by r.worker_id limit 1)
  from holder h where h.worker_id is not null
), dead as (
  select h.worker_id, coalesce(w.cause = 'expired' and exists (
      select from windlass.worker other where other.id <> w.id and other.renewed_at > w.lease_until
    ), false) as crashed
  from holder h left join windlass.worker w on w.id = h.worker_id
  where h.worker_id is not null and (w.id is null or w.died_at is not null)
)
select r.job_id, r.attempt, r.token, r.worker_id, r.type, r.queue, r.thread_demand as threads, r.rank, r.failures,
  r.suspect,
  (select count(*)::integer from unnest(r.crashed_at) c where c > now() - interval '1 day') as crashes,
  j.max_attempts, j.timeout_s, j.retry, '' as payload, j.name, j.priority, j.thread_demand, j.tags,
  j.idempotency_key, j.trace, date_part('epoch', r.claimed_at - r.ready_at) as waited_s, d.crashed
from dead d
cross join lateral (select r.* from windlass.running r where r.worker_id = d.worker_id limit $1) r
left join lateral (
  select * from windlass.job where id = r.job_id
  union all select * from windlass.job_kept where id = r.job_id
  limit 1
) j on true
order by r.job_id
limit $1;

-- name: forget_workers
-- Remove workers that died long ago and hold nothing.
delete from windlass.worker w
where w.died_at < now() - make_interval(secs => $1)
  and not exists (select from windlass.running r where r.worker_id = any (array[w.id]))
returning w.id;

-- name: promote
-- Make due jobs ready, oldest first, from a floor up. Index: scheduled_due.
with due as materialized (
  select s.job_id from windlass.scheduled s
  where s.ready_at <= now() and s.ready_at >= $2
  order by s.ready_at limit $1
  for update skip locked
), gone as (
  delete from windlass.scheduled s where s.job_id = any (array(select d.job_id from due d)) returning s.*
), moved as (
  insert into windlass.ready (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type, crashed_at)
  select g.job_id, g.rank, g.ready_at, g.attempt, g.failures, g.thread_demand, g.suspect, g.queue, g.type, g.crashed_at
  from gone g
  on conflict do nothing
  returning queue, ready_at
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select side.status, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values ('scheduled', -1), ('ready', 1)) as side (status, sign)
  group by side.status, side.sign, g.queue, g.type
)
select m.queue, count(*) as jobs, min(m.ready_at) as least from moved m group by m.queue;

-- name: unknown_types
-- Types with ready jobs that no live worker knows; none while no worker lives. From the counts, not from the backlog.
select distinct t.type
from windlass.tallied t cross join windlass.known k
where t.status = 'ready' and t.n > 0 and t.type <> all (k.types);

-- name: hold_unknown
-- Set aside ready jobs of types that nobody knows, after they waited long enough. Guard: still unknown.
with strange as materialized (
  select r.job_id from windlass.ready r cross join windlass.known k
  where r.type = any ($3::text[]) and r.type <> all (k.types) and r.ready_at < now() - make_interval(secs => $1)
  order by r.job_id limit $2
  for update of r skip locked
), gone as (
  delete from windlass.ready r where r.job_id = any (array(select s.job_id from strange s)) returning r.*
), moved as (
  insert into windlass.held (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type, crashed_at, reason)
  select g.job_id, g.rank, g.ready_at, g.attempt, g.failures, g.thread_demand, g.suspect, g.queue, g.type, g.crashed_at,
    'unknown type'
  from gone g on conflict do nothing
  returning job_id
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select side.status, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values ('ready', -1), ('held', 1)) as side (status, sign)
  group by side.status, side.sign, g.queue, g.type
)
select m.job_id from moved m;

-- name: admit_known
-- Give back held jobs whose type a live worker has come to know; they keep their rank. Index: held_reason.
with known as materialized (
  select unnest(k.types) as type from windlass.known k
), page as materialized (
  select h.job_id from known k cross join lateral (
    select h.job_id from windlass.held h
    where h.reason = 'unknown type' and h.type = k.type
    order by h.rank limit $1
    for update skip locked
  ) h
  limit $1
), gone as (
  delete from windlass.held h where h.job_id = any (array(select p.job_id from page p)) returning h.*
), moved as (
  insert into windlass.ready (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type, crashed_at)
  select g.job_id, g.rank, g.ready_at, g.attempt, g.failures, g.thread_demand, g.suspect, g.queue, g.type, g.crashed_at
  from gone g on conflict do nothing
  returning queue
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select side.status, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values ('held', -1), ('ready', 1)) as side (status, sign)
  group by side.status, side.sign, g.queue, g.type
)
select m.queue, count(*) as jobs from moved m group by m.queue;

-- name: take_term
-- Become or stay leader. Guard: the expiry; a holder renews its own term, anyone takes an expired one.
insert into windlass.leader as l (holder, term, expires_at)
values ($1, 1, now() + make_interval(secs => $2))
on conflict (only_one) do update
set holder = excluded.holder, expires_at = excluded.expires_at,
    term = case when l.holder = excluded.holder and l.expires_at > now() then l.term else l.term + 1 end
where l.holder = excluded.holder or l.expires_at <= now()
returning term;

-- name: leave_term
-- Give the term up, so that another need not wait for it to end.
update windlass.leader set expires_at = now() where holder = $1;

-- name: waiting_wide
-- Ready jobs of unpaused queues that ask for several threads and have waited, in rank order, for reservations.
-- Index: ready_claim, one probe per queue and demand.
with line as materialized (
  select r.job_id, r.queue, r.type, r.thread_demand, r.rank
  from unnest($1::text[]) as q (name)
  cross join generate_series(2, $2::integer) as d (demand)
  cross join lateral (
    select r.* from windlass.ready r
    where r.queue = q.name and r.thread_demand = d.demand and r.ready_at < now() - make_interval(secs => $3)
    order by r.rank limit $4
  ) r
  where not exists (select from windlass.queue p where p.name = q.name and p.paused)
  order by r.rank limit $4
)
select l.job_id, l.queue, l.type, l.thread_demand, j.if_too_wide
from line l
cross join lateral (
  select if_too_wide from windlass.job where id = l.job_id
  union all select if_too_wide from windlass.job_kept where id = l.job_id
  limit 1
) j
order by l.rank;

-- name: too_wide
-- Ready jobs wider than `widest`, the most any worker has, that have waited; one probe of ready_claim per queue.
with line as materialized (
  select r.job_id, r.queue, r.type, r.thread_demand, r.rank
  from unnest($1::text[]) as q (name)
  cross join lateral (
    select r.* from windlass.ready r
    where r.queue = q.name and r.thread_demand > $2 and r.ready_at < now() - make_interval(secs => $3)
    order by r.thread_demand, r.rank limit $4
  ) r
  order by r.rank limit $4
)
select l.job_id, l.queue, l.type, l.thread_demand, j.if_too_wide
from line l
cross join lateral (
  select if_too_wide from windlass.job where id = l.job_id
  union all select if_too_wide from windlass.job_kept where id = l.job_id
  limit 1
) j
order by l.rank;

-- name: narrow
-- Let jobs that are wider than any worker run on one thread. Guard: still ready, still that wide.
update windlass.ready r set thread_demand = 1
where r.job_id = any ($1::uuid[]) and r.thread_demand = ($2::smallint[])[array_position($1::uuid[], r.job_id)]
returning r.job_id;

-- name: give_up
-- Fail ready jobs that would rather fail than be narrowed. Guard: whoever deletes the ready row owns the move.
with gone as (
  delete from windlass.ready r
  where r.job_id = any ($1::uuid[]) and r.thread_demand = ($2::smallint[])[array_position($1::uuid[], r.job_id)]
  returning r.*
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

-- name: fold_lock
-- One fold at a time; of two leaders one goes without.
select pg_try_advisory_xact_lock(hashtextextended('windlass fold ' || $1, 0)) as mine;

-- name: fold
-- Replace the tally by the tally plus all deltas of finished transactions. Readers see the old or the new, never half.
-- Guard: fold_lock, taken by an earlier statement of the same transaction so that this one's snapshot is younger.
with deltas as (
  delete from windlass.counter c where c.xid < pg_snapshot_xmin(pg_current_snapshot())
  returning c.status, c.queue, c.type, c.n
), old as (
  delete from windlass.tally t returning t.status, t.queue, t.type, t.n
), summed as (
  select status, queue, type, sum(n) as n
  from (select * from deltas union all select * from old) every
  group by status, queue, type
)
insert into windlass.tally (horizon, status, queue, type, n)
select pg_snapshot_xmin(pg_current_snapshot()), s.status, s.queue, s.type, s.n from summed s where s.n <> 0;

-- name: old_keys
-- Idempotency keys past their time, oldest first, after the last one seen. Index: idempotency_age.
select i.key, i.created_at from windlass.idempotency i
where i.created_at < now() - make_interval(secs => $1) and (i.created_at, i.key) > ($2::timestamptz, $3::text)
order by i.created_at, i.key limit $4;

-- name: expire_keys
-- Forget those of the given keys whose job has finished.
with old as materialized (
  select i.key from windlass.idempotency i
  where i.key = any ($1::text[])
    and (exists (select from windlass.outcome t where t.job_id = any (array[i.job_id]))
      or exists (select from windlass.outcome_kept t where t.job_id = any (array[i.job_id])))
  for update skip locked
)
delete from windlass.idempotency i where i.key = any (array(select o.key from old o)) returning i.key;
