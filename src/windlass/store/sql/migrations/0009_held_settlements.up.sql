-- serves: 7
-- An attempt may end by setting its job aside: settle_v2 also moves jobs to `held`, with the reason that they wait for. Everything
-- else is as in settle_v1 (migration 0002), which stays for workers of the version before.

alter table windlass.attempt drop constraint attempt_status_check,
  add constraint attempt_status_check check (status in ('completed', 'failed', 'cancelled', 'lost', 'held'));
alter table windlass.attempt_kept drop constraint attempt_status_check,
  add constraint attempt_status_check check (status in ('completed', 'failed', 'cancelled', 'lost', 'held'));

-- Write a batch of settlements (lifecycle.Settlement, one array per field, sorted by job_id so that two batches lock
-- in the same order). Fence: job, attempt, token and worker; cancel_requested is read from the row being deleted.
-- Returns how many moved; which, if not all (the others were not ours any more); and which of them were cancelled instead,
-- as had been asked. No row per job: reading them back was a tenth of the time.
create function windlass.settle_v2(
  p_job uuid[], p_attempt integer[], p_token uuid[], p_worker uuid[], p_status text[], p_delay_s double precision[],
  p_failed boolean[], p_crashed boolean[], p_suspect boolean[], p_ended text[], p_result json[], p_error json[],
  p_fingerprint text[], p_execution_s double precision[], p_log text[], p_reason text[]
) returns table (moved bigint, moved_ids uuid[], cancelled_ids uuid[])
language sql
set lock_timeout = '250ms'  -- a row that somebody's open transaction holds must not keep the others of its batch
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
begin atomic
  with gone as (
    delete from windlass.running r
    using unnest(p_job, p_attempt, p_token, p_worker, p_status, p_delay_s, p_failed, p_crashed, p_suspect, p_ended,
      p_result, p_error, p_fingerprint, p_execution_s, p_log, p_reason)
      as s (job_id, attempt, token, worker_id, status, delay_s, failed, crashed, suspect, ended,
        result, error, fingerprint, execution_s, log, reason)
    where r.job_id = any (array[s.job_id]) and r.attempt = s.attempt and r.token = s.token
      and r.worker_id is not distinct from s.worker_id  -- plain equality would let the worker's index be walked
    returning r.job_id, r.rank, r.ready_at, r.attempt, r.failures + s.failed::integer as failures, r.thread_demand,
      s.suspect, r.queue, r.type, r.token, r.worker_id,
      case when s.crashed then array_append(r.crashed_at, now()) else r.crashed_at end as crashed_at,
      case when r.cancel_requested is not null and s.status <> 'completed' then 'cancelled' else s.status end as status, s.status as asked,
      coalesce(now() - make_interval(secs => s.execution_s), r.claimed_at) as started_at,
      now() + make_interval(secs => s.delay_s) as due_at,
      s.ended, s.result, case when s.status = 'completed' then s.error else coalesce(r.cancel_requested, s.error) end as error,
      s.fingerprint, s.log, s.reason
  ), finished as (
    insert into windlass.outcome (job_id, ready_at, started_at, finished_at, attempt, failures, threads, status,
      queue, type, worker_id, token, result, error, fingerprint, log)
    select g.job_id, g.ready_at, g.started_at, now(), g.attempt, g.failures, g.thread_demand, g.status, g.queue,
      g.type, g.worker_id, g.token, g.result, g.error, g.fingerprint, g.log
    from gone g
    where g.status in ('completed', 'failed', 'cancelled') and g.job_id >= (select h.id from windlass.horizon h)
  ), finished_kept as (
    insert into windlass.outcome_kept (job_id, ready_at, started_at, finished_at, attempt, failures, threads, status,
      queue, type, worker_id, token, result, error, fingerprint, log)
    select g.job_id, g.ready_at, g.started_at, now(), g.attempt, g.failures, g.thread_demand, g.status, g.queue,
      g.type, g.worker_id, g.token, g.result, g.error, g.fingerprint, g.log
    from gone g
    where g.status in ('completed', 'failed', 'cancelled') and g.job_id < (select h.id from windlass.horizon h)
  ), delayed as (
    insert into windlass.scheduled (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type,
      crashed_at)
    select g.job_id, g.rank + windlass.microseconds(g.due_at) - windlass.microseconds(g.ready_at), g.due_at,
      g.attempt, g.failures, g.thread_demand, g.suspect, g.queue, g.type, g.crashed_at
    from gone g where g.status = 'scheduled'
  ), given_back as (
    insert into windlass.ready (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type,
      crashed_at)
    select g.job_id, g.rank, g.ready_at, g.attempt, g.failures, g.thread_demand, g.suspect, g.queue, g.type,
      g.crashed_at
    from gone g where g.status = 'ready'
  ), set_aside as (
    insert into windlass.held (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type,
      crashed_at, reason)
    select g.job_id, g.rank, g.ready_at, g.attempt, g.failures, g.thread_demand, g.suspect, g.queue, g.type,
      g.crashed_at, g.reason
    from gone g where g.status = 'held'
  ), recorded as (
    insert into windlass.attempt (job_id, attempt, started_at, ended_at, status, worker_id, token, error, fingerprint,
      log)
    select g.job_id, g.attempt, g.started_at, now(), g.ended, g.worker_id, g.token, g.error, g.fingerprint, g.log
    from gone g
    where g.status in ('scheduled', 'ready', 'held') and g.ended is not null
      and g.job_id >= (select h.id from windlass.horizon h)
  ), recorded_kept as (
    insert into windlass.attempt_kept (job_id, attempt, started_at, ended_at, status, worker_id, token, error,
      fingerprint, log)
    select g.job_id, g.attempt, g.started_at, now(), g.ended, g.worker_id, g.token, g.error, g.fingerprint, g.log
    from gone g
    where g.status in ('scheduled', 'ready', 'held') and g.ended is not null
      and g.job_id < (select h.id from windlass.horizon h)
  ), counted as (
    insert into windlass.counter (status, queue, type, n)
    select case side.sign when 1 then g.status else 'running' end, g.queue, g.type, side.sign * count(*)
    from gone g cross join (values (-1), (1)) as side (sign)
    group by 1, g.queue, g.type, side.sign
  )
  select count(*), case when count(*) < cardinality(p_job) then array_agg(g.job_id) end,
    array_agg(g.job_id) filter (where g.status <> g.asked)
  from gone g;
end;
