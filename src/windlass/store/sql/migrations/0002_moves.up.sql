-- serves: 2
-- Claim and settle, the hot moves, as plain SQL functions: their SET clauses pin the plans without session state (so
-- any pooler works), and the version in the name lets old and new workers run side by side.
-- Pinned because with statistics taken while a table was empty the planner scans dead rows. A table that grows is
-- joined as `t.job_id = any (array[x.job_id])`, never as `t.job_id = x.job_id`: only an index look-up per row can answer
-- that, while the plain form was seen to walk a whole index (200,000 rows) to merge it with a batch of one.
-- Inserts are plain: ON CONFLICT costs each job three microseconds and 96 bytes of WAL to guard against a key in two
-- tables, which no move makes. Should there be one, the unique index refuses the batch and `mend` (claims.sql) removes it.

create function windlass.microseconds(moment timestamptz) returns bigint
language sql immutable parallel safe
return (date_part('epoch', moment) * 1000000)::bigint;

-- Take ready jobs for a worker: for each look (queue, demand, floor) from the floor up, merged by rank, while their
-- threads fit the budget. Nothing unless the worker's lease is valid. A reservation on the worker is honoured: its
-- job first if it fits now, else nothing, for what runs already takes more than the reservation leaves.
-- Returns every row it moved. Durability is off for this transaction alone: a lost claim is a lost lease.
create function windlass.claim_v1(
  p_worker uuid, p_token uuid, p_queues text[], p_demands smallint[], p_floors bigint[], p_types text[],
  p_budget integer, p_busy integer, p_most integer
) returns table (
  job_id uuid, attempt integer, token uuid, worker_id uuid, type text, queue text, threads smallint, rank bigint,
  failures integer, suspect boolean, crashes integer, max_attempts integer, timeout_s double precision, retry json,
  payload json, name text, priority smallint, thread_demand smallint, tags text[], idempotency_key text, trace text,
  waited_s double precision
)
language sql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
begin atomic
  select set_config('synchronous_commit', 'off', true);
  with me as materialized (
    select w.threads, w.queues from windlass.worker w
    where w.id = p_worker and w.died_at is null and not w.draining and w.lease_until > now()
  ), reserved as materialized (
    select v.job_id, v.threads from windlass.reservation v
    where v.worker_id = p_worker and v.expires_at > now()
      and exists (
        select from windlass.ready r left join windlass.queue q on q.name = r.queue
        where r.job_id = any (array[v.job_id]) and q.paused is not true
      )
  ), room as materialized (
    select me.queues,
      case when v.threads <= me.threads - p_busy then v.job_id end as reserved,
      case when v.job_id is null or v.threads <= me.threads - p_busy then greatest(p_budget, 0) else 0 end as budget
    from me left join reserved v on true
  ), found as materialized (
    select f.job_id, f.rank, f.thread_demand, false as first
    from room
    cross join unnest(p_queues, p_demands, p_floors) as look (queue, demand, floor)
    cross join lateral (
      select r.job_id, r.rank, r.thread_demand from windlass.ready r
      where r.queue = look.queue and r.thread_demand = look.demand and r.rank >= look.floor
        and r.type = any (p_types) and r.job_id is distinct from room.reserved
      order by r.rank
      limit least(p_most, room.budget / look.demand + 1)  -- the first that does not fit ends the line for all
      for update skip locked
    ) f
    where not exists (select from windlass.queue q where q.name = look.queue and q.paused)
    union all
    select f.job_id, f.rank, f.thread_demand, true
    from room
    cross join lateral (
      select r.job_id, r.rank, r.thread_demand from windlass.ready r
      where r.job_id = any (array[room.reserved]) and r.queue = any (room.queues) and r.type = any (p_types)
      for update skip locked
    ) f
  ), merged as (
    select f.job_id, sum(f.thread_demand) over line as threads, row_number() over line as place
    from found f window line as (order by f.first desc, f.rank, f.job_id)
  ), gone as (
    delete from windlass.ready r
    where r.job_id = any (array(select m.job_id from merged m, room where m.threads <= room.budget and m.place <= p_most))
    returning r.*
  ), moved as (
    insert into windlass.running (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type,
      crashed_at, claimed_at, token, worker_id)
    select g.job_id, g.rank, g.ready_at, g.attempt + 1, g.failures, g.thread_demand, g.suspect, g.queue, g.type,
      g.crashed_at, now(), p_token, p_worker
    from gone g
    returning *
  ), counted as (
    insert into windlass.counter (status, queue, type, n)
    select side.status, m.queue, m.type, side.sign * count(*)
    from moved m cross join (values ('ready', -1), ('running', 1)) as side (status, sign)
    group by side.status, side.sign, m.queue, m.type
  )
  select m.job_id, m.attempt, m.token, m.worker_id, m.type, m.queue, m.thread_demand, m.rank, m.failures, m.suspect,
    case when m.crashed_at is null then 0
         else (select count(*)::integer from unnest(m.crashed_at) c where c > now() - interval '1 day') end,
    j.max_attempts, j.timeout_s, j.retry, j.payload, j.name, j.priority, j.thread_demand, j.tags, j.idempotency_key,
    j.trace, date_part('epoch', m.claimed_at - m.ready_at)
  from moved m
  left join lateral (
    select j.* from windlass.job j where j.id = m.job_id
    union all
    select k.* from windlass.job_kept k where k.id = m.job_id
    limit 1
  ) j on true
  order by m.rank, m.job_id;
end;

-- Write a batch of settlements (lifecycle.Settlement, one array per field, sorted by job_id so that two batches lock
-- in the same order). Fence: job, attempt, token and worker; cancel_requested is read from the row being deleted.
-- Returns how many moved; which, if not all (the others were not ours any more); and which of them were cancelled instead,
-- as had been asked. No row per job: reading them back was a tenth of the time.
create function windlass.settle_v1(
  p_job uuid[], p_attempt integer[], p_token uuid[], p_worker uuid[], p_status text[], p_delay_s double precision[],
  p_failed boolean[], p_crashed boolean[], p_suspect boolean[], p_ended text[], p_result json[], p_error json[],
  p_fingerprint text[], p_execution_s double precision[], p_log text[]
) returns table (moved bigint, moved_ids uuid[], cancelled_ids uuid[])
language sql
set lock_timeout = '250ms'  -- a row that somebody's open transaction holds must not keep the others of its batch
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
begin atomic
  with gone as (
    delete from windlass.running r
    using unnest(p_job, p_attempt, p_token, p_worker, p_status, p_delay_s, p_failed, p_crashed, p_suspect, p_ended,
      p_result, p_error, p_fingerprint, p_execution_s, p_log)
      as s (job_id, attempt, token, worker_id, status, delay_s, failed, crashed, suspect, ended,
        result, error, fingerprint, execution_s, log)
    where r.job_id = any (array[s.job_id]) and r.attempt = s.attempt and r.token = s.token
      and r.worker_id is not distinct from s.worker_id  -- plain equality would let the worker's index be walked
    returning r.job_id, r.rank, r.ready_at, r.attempt, r.failures + s.failed::integer as failures, r.thread_demand,
      s.suspect, r.queue, r.type, r.token, r.worker_id,
      case when s.crashed then array_append(r.crashed_at, now()) else r.crashed_at end as crashed_at,
      case when r.cancel_requested is not null and s.status <> 'completed' then 'cancelled' else s.status end as status, s.status as asked,
      coalesce(now() - make_interval(secs => s.execution_s), r.claimed_at) as started_at,
      now() + make_interval(secs => s.delay_s) as due_at,
      s.ended, s.result, case when s.status = 'completed' then s.error else coalesce(r.cancel_requested, s.error) end as error,
      s.fingerprint, s.log
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
  ), recorded as (
    insert into windlass.attempt (job_id, attempt, started_at, ended_at, status, worker_id, token, error, fingerprint,
      log)
    select g.job_id, g.attempt, g.started_at, now(), g.ended, g.worker_id, g.token, g.error, g.fingerprint, g.log
    from gone g
    where g.status in ('scheduled', 'ready') and g.ended is not null
      and g.job_id >= (select h.id from windlass.horizon h)
  ), recorded_kept as (
    insert into windlass.attempt_kept (job_id, attempt, started_at, ended_at, status, worker_id, token, error,
      fingerprint, log)
    select g.job_id, g.attempt, g.started_at, now(), g.ended, g.worker_id, g.token, g.error, g.fingerprint, g.log
    from gone g
    where g.status in ('scheduled', 'ready') and g.ended is not null
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
