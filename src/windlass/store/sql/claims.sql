-- What workers do with jobs. Claim and settle are functions (migration 0002): their plans are pinned there.

-- name: claim
-- Take ready jobs for a worker.
select * from windlass.claim_v1($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: settle
-- Write a batch of settlements.
select * from windlass.settle_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

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
-- Running rows of a worker that it does not hold: claims whose answer was lost. Index: running_worker.
select r.job_id, r.attempt, r.token, r.worker_id, r.type, r.queue, r.thread_demand as threads, r.rank, r.failures,
  r.suspect, 0 as crashes, 1 as max_attempts, 0 as timeout_s, null as retry, '' as payload, null as name,
  0 as priority, r.thread_demand, null as tags, null as idempotency_key, null as trace, 0 as waited_s
from windlass.running r
where r.worker_id = $1 and r.claimed_at < now() - make_interval(secs => $2)
  and not exists (select from unnest($3::uuid[]) as held (job_id) where held.job_id = r.job_id)
order by r.job_id;

-- name: cancel_requests
-- Which of a worker's jobs were asked to cancel. Index: running_worker.
select r.job_id, r.token from windlass.running r where r.worker_id = $1 and r.cancel_requested is not null;
