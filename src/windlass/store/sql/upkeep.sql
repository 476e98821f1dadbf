-- What keeps the cluster whole: workers and their leases, and the leader's chores. Every statement may be repeated,
-- and run by two leaders at once, without harm.

-- name: register
-- A worker begins its life. Guard: the id, which is never used again; repeating is answered by whether it still lives.
insert into windlass.worker (id, supervisor_id, started_at, renewed_at, lease_until, threads, name, queues, types)
values ($1, $2, now(), now(), now() + make_interval(secs => $3), $4, $5, $6, $7)
on conflict (id) do update set renewed_at = excluded.renewed_at, lease_until = excluded.lease_until
where worker.died_at is null
returning id;

-- name: drain
-- Workers that live claim no more.
update windlass.worker set draining = true where id = any ($1::uuid[]) and died_at is null returning id;

-- name: bury
-- Say that workers are dead, and of what. What they still hold is reaped; nobody wakes them any more.
with woken_no_more as (
  delete from windlass.idle i where i.worker_id = any ($1::uuid[])
)
update windlass.worker set died_at = now(), cause = $2 where id = any ($1::uuid[]) and died_at is null returning id;

-- name: bury_expired
-- Workers whose lease ended. A renewal in progress wins: its row is passed by, and looked at again at the next tick.
with over as materialized (
  select w.id from windlass.worker w where w.died_at is null and w.lease_until <= now() for no key update skip locked
)
update windlass.worker w set died_at = now(), cause = 'expired'
where w.id = any (array(select o.id from over o)) and w.died_at is null and w.lease_until <= now()
returning w.id;

-- name: lost
-- Running rows whose worker is dead or unknown: never "who has just died", or a claim that commits late is orphaned.
-- Holders are found by stepping through running_worker, one probe each. A lost lease counts as a crash only if
-- another worker renewed after it ended: else the database was away, not the worker. A worker buried by its supervisor
-- has had its begun jobs settled as crashed before; what is found here it had not begun. Rows that somebody's open
-- transaction holds are passed by: they must not keep all others waiting.
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
cross join lateral (
  select r.* from windlass.running r where r.worker_id = d.worker_id limit $1 for update skip locked
) r
left join lateral (
  select * from windlass.job where id = r.job_id
  union all select * from windlass.job_kept where id = r.job_id
  limit 1
) j on true
limit $1;  -- in no order: one would lock a page of every dead worker's, to return one in all

-- name: forget_workers
-- Remove workers that died long ago and hold nothing.
delete from windlass.worker w
where w.died_at < now() - make_interval(secs => $1)
  and not exists (select from windlass.running r where r.worker_id = any (array[w.id]))
returning w.id;

-- name: forget_idle
-- Remove what workers that are gone said of their idleness: nobody is woken in vain.
with gone as materialized (
  select i.worker_id from windlass.idle i
  where not exists (
    select from windlass.worker w where w.id = i.worker_id and w.died_at is null and w.lease_until > now()
  )
  for update of i skip locked
)
delete from windlass.idle i where i.worker_id = any (array(select g.worker_id from gone g)) returning i.worker_id;

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
  returning queue, type, thread_demand, ready_at
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select side.status, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values ('scheduled', -1), ('ready', 1)) as side (status, sign)
  group by side.status, side.sign, g.queue, g.type
)
select m.queue, m.type, m.thread_demand, count(*) as jobs, min(m.ready_at) as least
from moved m group by m.queue, m.type, m.thread_demand;

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

-- name: anything_held
-- Whether any job was set aside: most of the time none is, and that is all there is to know.
select exists (select from windlass.held h where h.reason = 'unknown type') as held;

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
  returning queue, type, thread_demand
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select side.status, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values ('held', -1), ('ready', 1)) as side (status, sign)
  group by side.status, side.sign, g.queue, g.type
)
select m.queue, m.type, m.thread_demand, count(*) as jobs from moved m group by m.queue, m.type, m.thread_demand;

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

-- name: fold_lock
-- One fold at a time; of two leaders one goes without.
select pg_try_advisory_xact_lock(hashtextextended('windlass fold ' || $1, 0)) as mine;

-- name: foldable
-- Whether there is anything to fold: the oldest delta is of a finished transaction. Index: counter_xid.
select c.xid < pg_snapshot_xmin(pg_current_snapshot()) as due from windlass.counter c order by c.xid limit 1;

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

-- name: old_steps
-- Jobs with steps that were done long ago, by id, after the last one seen. Index: step_pkey.
select s.job_id, max(s.at) < now() - make_interval(secs => $1) as old
from windlass.step s where s.job_id > $2
group by s.job_id order by s.job_id limit $3;

-- name: sweep_steps
-- Forget the steps of those of the given jobs that are finished for as long, or gone. Guard: a job that waits or runs
-- keeps its steps, however old.
delete from windlass.step s
where s.job_id = any ($2::uuid[])
  and not exists (select from windlass.scheduled t where t.job_id = any (array[s.job_id]))
  and not exists (select from windlass.held t where t.job_id = any (array[s.job_id]))
  and not exists (select from windlass.ready t where t.job_id = any (array[s.job_id]))
  and not exists (select from windlass.running t where t.job_id = any (array[s.job_id]))
  and not exists (
    select from windlass.outcome t
    where t.job_id = any (array[s.job_id]) and t.finished_at > now() - make_interval(secs => $1)
  )
  and not exists (
    select from windlass.outcome_kept t
    where t.job_id = any (array[s.job_id]) and t.finished_at > now() - make_interval(secs => $1)
  )
returning s.job_id;

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

-- Supervisors. --------------------------------------------------------------------------------------------------------

-- name: renew
-- Push out the leases of workers that live, and note how many of their threads are lost. Dead is final: a worker not
-- returned must stop. Index: the primary key, one probe each.
update windlass.worker w
set renewed_at = now(), lease_until = now() + make_interval(secs => $2), lost_threads = x.lost_threads
from unnest($1::uuid[], $3::integer[]) as x (id, lost_threads)
where w.id = any (array[x.id]) and w.died_at is null
returning w.id, w.draining;

-- name: held_by
-- What these workers hold, dead or alive, for their supervisor to settle after their end. Index: running_worker.
select r.job_id, r.attempt, r.token, r.worker_id, r.type, r.queue, r.thread_demand as threads, r.rank, r.failures,
  r.suspect,
  (select count(*)::integer from unnest(r.crashed_at) c where c > now() - interval '1 day') as crashes,
  j.max_attempts, j.timeout_s, j.retry, '' as payload, j.name, j.priority, j.thread_demand, j.tags,
  j.idempotency_key, j.trace, date_part('epoch', r.claimed_at - r.ready_at) as waited_s
from unnest($1::uuid[]) as x (worker_id)
cross join lateral (select r.* from windlass.running r where r.worker_id = x.worker_id limit $2) r
left join lateral (
  select * from windlass.job where id = r.job_id
  union all select * from windlass.job_kept where id = r.job_id
  limit 1
) j on true
order by r.job_id
limit $2;

-- name: cancels
-- Which jobs of these workers were asked to cancel. Index: running_cancel, which holds nothing else.
select r.worker_id, r.job_id, r.token
from unnest($1::uuid[]) as x (worker_id)
cross join lateral (
  select r.worker_id, r.job_id, r.token from windlass.running r
  where r.worker_id = x.worker_id and r.cancel_requested is not null
) r;
