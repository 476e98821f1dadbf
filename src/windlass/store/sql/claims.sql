-- What workers do with jobs. Claim and settle are functions made by migrations: their plans are pinned there.

-- name: taken_by_other_version
-- Whether another version of a type takes these fields: that of a living worker, or one that was first declared after this
-- one, and whose workers may still be starting. An older one that nobody runs any more will not come back for the job.
select exists (
  select from windlass.type_version v
  where v.type = $1 and v.digest <> $2 and (v.fields is null or v.fields @> $3::text[])
    and (
      exists (select from windlass.living_version l where l.type = v.type and l.digest = v.digest)
      or v.first_declared_at > (
        select own.first_declared_at from windlass.type_version own where own.type = $1 and own.digest = $2
      )
    )
) as taken;

-- name: claim
-- Take ready jobs for a worker.
select * from windlass.claim_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: claim_leaving
-- The same for a worker that stands in line to be woken: one that has found work by itself leaves it, or it would be handed more
-- while a handler may hold up its loop. A row that somebody is taking away at this moment is left to him.
with taken as materialized (
  select * from windlass.claim_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
), gone as (
  delete from windlass.idle i
  where i.worker_id = any (array(
    select o.worker_id from windlass.idle o where o.worker_id = $1 and exists (select from taken) for update skip locked
  ))
)
select * from taken;

-- name: ready_lines
-- The lines of ready jobs that workers with these prefixes serve.
select * from windlass.ready_lines_v1($1, $2, $3, $4, $5);

-- name: settle
-- Write a batch of settlements. Cast, because a handler's own connection may be of a driver that guesses the types.
select * from windlass.settle_v2(
  $1::uuid[], $2::integer[], $3::uuid[], $4::uuid[], $5::text[], $6::double precision[], $7::boolean[], $8::boolean[],
  $9::boolean[], $10::text[], $11::json[], $12::json[], $13::text[], $14::double precision[], $15::text[],
  $16::text[]
);

-- name: settle_completed
-- The same for a batch of one worker's that all completed, the usual case: what they have in common travels once. Fifteen
-- values a job cost the driver three microseconds, a quarter of all a worker spends on a job.
select done.*
from (select array[cardinality($1::uuid[])]) as n (size)
cross join lateral windlass.settle_v2(
  $1, $2, $3, array_fill($4::uuid, n.size), array_fill('completed'::text, n.size),
  array_fill(null::double precision, n.size), array_fill(false, n.size), array_fill(false, n.size),
  array_fill(false, n.size), array_fill('completed'::text, n.size),
  coalesce($6::json[], array_fill(null::json, n.size)), array_fill(null::json, n.size), array_fill(null::text, n.size),
  $5, coalesce($7::text[], array_fill(null::text, n.size)), array_fill(null::text, n.size)
) as done;

-- name: mend
-- Jobs that sit in two tables, which must not be: the key that is further along stays. Run only when a unique index has
-- refused a move; running is small, so all of it is looked at.
with doubled as materialized (
  select r.job_id, (exists (select from windlass.outcome t where t.job_id = any (array[r.job_id]))
      or exists (select from windlass.outcome_kept t where t.job_id = any (array[r.job_id]))) as finished
  from windlass.running r
  where exists (select from windlass.outcome t where t.job_id = any (array[r.job_id]))
    or exists (select from windlass.outcome_kept t where t.job_id = any (array[r.job_id]))
    or exists (select from windlass.scheduled t where t.job_id = any (array[r.job_id]))
    or exists (select from windlass.held t where t.job_id = any (array[r.job_id]))
    or exists (select from windlass.ready t where t.job_id = any (array[r.job_id]))
), running as (
  delete from windlass.running t where t.job_id = any (array(select d.job_id from doubled d where d.finished))
), scheduled as (
  delete from windlass.scheduled t where t.job_id = any (array(select d.job_id from doubled d))
), held as (
  delete from windlass.held t where t.job_id = any (array(select d.job_id from doubled d))
), ready as (
  delete from windlass.ready t where t.job_id = any (array(select d.job_id from doubled d))
)
select d.job_id from doubled d;

-- name: settled_by
-- Of settlements that moved nothing: those that were written before, and only their answer was lost. Guard: the token,
-- and that what is written is what we wrote: a reaper writes about a lost lease under that lease's own token.
select s.job_id
from unnest($1::uuid[], $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::text[])
  as s (job_id, attempt, token, status, ended, fingerprint)
where exists (
  select from (
    select o.token, o.attempt, o.status, o.fingerprint from windlass.outcome o where o.job_id = any (array[s.job_id])
    union all
    select o.token, o.attempt, o.status, o.fingerprint from windlass.outcome_kept o where o.job_id = any (array[s.job_id])
  ) o
  where o.token = s.token and o.attempt = s.attempt
    and o.status in (s.status, case when s.status <> 'completed' then 'cancelled' end)
    and o.fingerprint is not distinct from s.fingerprint
) or exists (
  select from (
    select a.token, a.attempt, a.status, a.fingerprint from windlass.attempt a where a.job_id = any (array[s.job_id])
    union all
    select a.token, a.attempt, a.status, a.fingerprint from windlass.attempt_kept a where a.job_id = any (array[s.job_id])
  ) a
  where a.token = s.token and a.attempt = s.attempt
    and a.status in (s.ended, case when s.status <> 'completed' then 'cancelled' end)
    and a.fingerprint is not distinct from s.fingerprint
);

-- name: strays
-- Running rows of a worker that it does not hold: claims whose answer was lost, hand-overs it was not told of. Index: running_worker.
select r.job_id, r.attempt, r.token, r.worker_id, r.type, r.queue, r.thread_demand as threads, r.rank, r.failures,
  r.suspect, 0 as crashes, 1 as max_attempts, 0 as timeout_s, null as retry, '' as payload, null as name,
  0 as priority, r.thread_demand, null as tags, null as idempotency_key, null as trace, 0 as waited_s
from windlass.running r
where r.worker_id = $1 and r.claimed_at < now() - make_interval(secs => $2)
  and not exists (select from unnest($3::uuid[]) as held (job_id) where held.job_id = r.job_id)
order by r.job_id;

-- name: held
-- The leases a worker holds, as far as the database knows. Index: running_worker.
select r.job_id, r.token from windlass.running r where r.worker_id = $1;

-- name: report_progress
-- How far attempts have come. Fence: job, attempt, token and worker, as for every write about a claimed job.
update windlass.running r set progress = p.fraction, progress_note = p.note
from unnest($1::uuid[], $2::integer[], $3::uuid[], $4::uuid[], $5::real[], $6::text[])
  as p (job_id, attempt, token, worker_id, fraction, note)
where r.job_id = any (array[p.job_id]) and r.attempt = p.attempt and r.token = p.token
  and r.worker_id is not distinct from p.worker_id;

-- name: followed
-- Those of the given jobs whose logs somebody follows. Primary keys, of a table that is nearly always empty.
select f.job_id from windlass.followed_log f where f.job_id = any ($1::uuid[]) and f.until > now();

-- name: show_logs
-- What followed attempts have written so far. Fence: job, attempt, token and worker, as for every write about a claimed job.
update windlass.followed_log f set attempt = l.attempt, token = l.token, log = l.log
from unnest($1::uuid[], $2::integer[], $3::uuid[], $4::uuid[], $5::text[]) as l (job_id, attempt, token, worker_id, log)
where f.job_id = any (array[l.job_id]) and (f.token, f.log) is distinct from (l.token, l.log)
  and exists (
    select from windlass.running r
    where r.job_id = any (array[l.job_id]) and r.attempt = l.attempt and r.token = l.token
      and r.worker_id is not distinct from l.worker_id
  );

-- name: step
-- What an earlier attempt, or this one, kept of a step.
select s.result from windlass.step s where s.job_id = $1 and s.key = $2;

-- name: keep_step
-- Keep what a step returned. Fence: the lease. The first to keep it wins.
with mine as (
  select r.job_id from windlass.running r
  where r.job_id = any (array[$1::uuid]) and r.attempt = $2 and r.token = $3 and r.worker_id is not distinct from $4::uuid
  for update
), kept as (
  insert into windlass.step (job_id, key, token, at, result)
  select m.job_id, $5::text, $3::uuid, now(), $6::text::json from mine m
  on conflict do nothing
)
select m.job_id from mine m;

-- name: overlooked
-- Whether work waits that a worker with room should have claimed: long ready, of its queues and types, narrow enough,
-- in no paused queue, and no reservation keeps the worker from it. Index: ready_claim, one probe per line (queue and demand).
select exists (
  select from unnest($2::text[], $3::smallint[]) as l (queue, demand)
  cross join lateral (
    select r.job_id from windlass.ready r
    where r.queue = l.queue and r.thread_demand = l.demand and r.type = any ($4::text[])
      and r.ready_at < now() - make_interval(secs => $5)
    order by r.rank limit 1
  ) r
  where not exists (select from windlass.queue p where p.name = l.queue and p.paused)
    and not exists (select from windlass.reservation v where v.worker_id = $1 and v.expires_at > now())
) as waits;
