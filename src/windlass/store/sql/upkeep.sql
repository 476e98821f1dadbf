-- The leader's other chores: jobs that become due or known, counts, steps and keys. Every statement may be repeated, and
-- run by two leaders at once, without harm.

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

-- name: waiting_for_newer
-- Held jobs, by type and by the fields that their worker did not know, that some living worker would take now. `takers`: up
-- to 64 of those workers. `contested`: another living worker would give the jobs back again. Index: held_newer.
with waiting as materialized (
  select h.type, h.reason, string_to_array(substr(h.reason, length('needs newer worker: ') + 1), ', ') as fields
  from windlass.held h where h.reason like 'needs newer worker%'
  group by h.type, h.reason
)
select w.type, w.reason, bool_or(not version.takes) as contested,
  (array_agg(l.worker_id) filter (where version.takes))[:64] as takers
from waiting w
join (
  select t.type, t.digest, k.id as worker_id
  from windlass.worker k cross join unnest(k.types, k.digests) as t (type, digest)
  where k.died_at is null and k.lease_until > now() and not k.draining
) l on l.type = w.type
cross join lateral (
  select exists (
    select from windlass.type_version v
    where v.type = l.type and v.digest = l.digest and (v.fields is null or v.fields @> w.fields)
  ) as takes
) version
group by w.type, w.reason
having bool_or(version.takes);

-- name: admit_waiting
-- Give back held jobs of this type and reason; they keep their rank. Index: held_reason.
with page as materialized (
  select h.job_id from windlass.held h
  where h.reason = $2 and h.type = $1
  order by h.rank limit $3
  for update skip locked
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

-- name: fold_lock
-- One fold at a time; of two leaders one goes without.
select pg_try_advisory_xact_lock(hashtextextended('windlass fold ' || $1, 0)) as mine;

-- name: foldable
-- Whether there is anything to fold: the oldest delta is of a finished transaction. Index: counter_xid.
select c.xid < pg_snapshot_xmin(pg_current_snapshot()) as due from windlass.counter c order by c.xid limit 1;

-- name: fold
-- Replace the tally by the tally plus all deltas of finished transactions. Readers see the old or the new, never half.
-- What has ended also goes to the rollups: every way to end a job appends its delta, so the charts count each of them.
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
), ended as (
  insert into windlass.rollup_delta (queue, type, completed, failed, cancelled)
  select d.queue, d.type, coalesce(sum(d.n) filter (where d.status = 'completed'), 0),
    coalesce(sum(d.n) filter (where d.status = 'failed'), 0), coalesce(sum(d.n) filter (where d.status = 'cancelled'), 0)
  from deltas d where d.n > 0 and d.status in ('completed', 'failed', 'cancelled')
  group by d.queue, d.type
)
insert into windlass.tally (horizon, status, queue, type, n)
select pg_snapshot_xmin(pg_current_snapshot()), s.status, s.queue, s.type, s.n from summed s where s.n <> 0;

-- name: forget_followed_logs
-- Remove the logs that nobody follows any more. Reads a table that holds what is being followed, and nothing else.
delete from windlass.followed_log f where f.until < now() - interval '1 minute' returning f.job_id;

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

-- name: old_dead_letters
-- Jobs that failed longer ago than dead letters are kept, the oldest first. A keyed one stays until its key has expired: the key
-- promises that the job is there. Index: outcome_failed_age.
select n.job_id from (
  (select o.job_id, o.finished_at from windlass.outcome o
   where o.status = 'failed' and o.finished_at < now() - make_interval(secs => $1)
     and not exists (select from windlass.idempotency i where i.job_id = any (array[o.job_id]))
   order by o.finished_at, o.job_id limit $2)
  union all
  (select o.job_id, o.finished_at from windlass.outcome_kept o
   where o.status = 'failed' and o.finished_at < now() - make_interval(secs => $1)
     and not exists (select from windlass.idempotency i where i.job_id = any (array[o.job_id]))
   order by o.finished_at, o.job_id limit $2)
) n
order by n.finished_at, n.job_id limit $2;

-- name: expire_dead_letters
-- Remove dead letters with all that belongs to them; their steps are swept later. Guard: still failed, still old, and the job row is
-- locked first: one that moves to a `_kept` table at this moment is left for the next time, or it would stay without an outcome.
with of_partition as materialized (
  select j.id from windlass.job j where j.id = any ($1::uuid[]) order by j.id for update skip locked
), of_kept as materialized (
  select j.id from windlass.job_kept j where j.id = any ($1::uuid[]) order by j.id for update skip locked
), locked as materialized (
  select id from of_partition union all select id from of_kept
), from_outcome as (
  delete from windlass.outcome o
  where o.job_id = any ($1::uuid[]) and o.job_id = any (array(select l.id from locked l)) and o.status = 'failed'
    and o.finished_at < now() - make_interval(secs => $2)
  returning o.job_id, o.queue, o.type
), from_outcome_kept as (
  delete from windlass.outcome_kept o
  where o.job_id = any ($1::uuid[]) and o.job_id = any (array(select l.id from locked l)) and o.status = 'failed'
    and o.finished_at < now() - make_interval(secs => $2)
  returning o.job_id, o.queue, o.type
), gone as materialized (
  select * from from_outcome union all select * from from_outcome_kept
), jobs as (
  delete from windlass.job j where j.id = any ($1::uuid[]) and j.id = any (array(select g.job_id from gone g))
), jobs_kept as (
  delete from windlass.job_kept j where j.id = any ($1::uuid[]) and j.id = any (array(select g.job_id from gone g))
), tags as (
  delete from windlass.tag t
  using (
    select g.job_id, unnest(coalesce(j.tags, k.tags)) as tag
    from gone g
    left join windlass.job j on j.id = any (array[g.job_id])
    left join windlass.job_kept k on k.id = any (array[g.job_id])
  ) named
  where t.tag = named.tag and t.job_id = any (array[named.job_id])
), tags_kept as (
  delete from windlass.tag_kept t
  using (
    select g.job_id, unnest(coalesce(j.tags, k.tags)) as tag
    from gone g
    left join windlass.job j on j.id = any (array[g.job_id])
    left join windlass.job_kept k on k.id = any (array[g.job_id])
  ) named
  where t.tag = named.tag and t.job_id = any (array[named.job_id])
), attempts as (
  delete from windlass.attempt a where a.job_id = any ($1::uuid[]) and a.job_id = any (array(select g.job_id from gone g))
), attempts_kept as (
  delete from windlass.attempt_kept a where a.job_id = any ($1::uuid[]) and a.job_id = any (array(select g.job_id from gone g))
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select 'failed', g.queue, g.type, -count(*) from gone g group by g.queue, g.type
)
select g.job_id from gone g;
