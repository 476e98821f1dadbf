-- What callers do to jobs. Each statement is a whole move: all of it or nothing. Tables that grow are joined by
-- `= any (…)`, which only an index look-up can answer (see migration 0002).

-- name: enqueue
-- Store jobs and make them ready or scheduled. Guard: the id; a repeated id stores nothing and is not returned.
-- rank = time ready − priority × head start, plus the place in the batch so that a batch keeps its order; by the
-- statement's time, not now(), so that batches of one transaction keep theirs. Their common created_at is in one row of the answer.
with new as (
  select n.* from unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::smallint[], $7::text[], $8::integer[],
    $9::double precision[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::timestamptz[],
    $16::double precision[], $17::text[]
  ) as n (id, type, name, queue, priority, thread_demand, payload, max_attempts, timeout_s, retry, tags,
    idempotency_key, if_too_wide, trace, scheduled_at, delay_s, namespace)
), stored as (
  insert into windlass.job (id, type, name, queue, priority, thread_demand, payload, max_attempts, timeout_s, retry,
    tags, idempotency_key, if_too_wide, trace, scheduled_at, created_at, namespace)
  select n.id, n.type, n.name, n.queue, n.priority, n.thread_demand, n.payload::json, n.max_attempts, n.timeout_s,
    n.retry::json, case when n.tags is not null then array(select json_array_elements_text(n.tags::json)) end,
    n.idempotency_key, n.if_too_wide, n.trace,
    case when n.delay_s > 0 then statement_timestamp() + make_interval(secs => n.delay_s) else n.scheduled_at end,
    statement_timestamp(), n.namespace
  from new n
  on conflict (id) do nothing
  returning id, type, queue, priority, thread_demand, scheduled_at, tags
), placed as (
  select s.*, greatest(s.scheduled_at, statement_timestamp()) as ready_at,
    coalesce(s.scheduled_at > statement_timestamp(), false) as later,
    windlass.microseconds(greatest(s.scheduled_at, statement_timestamp())) + s.n
      - (s.priority * $18::double precision * 1000000)::bigint as rank
  from (select row_number() over () as n, t.* from stored t) s
), readied as (
  insert into windlass.ready (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type)
  select p.id, p.rank, p.ready_at, 0, 0, p.thread_demand, false, p.queue, p.type from placed p where not p.later
), delayed as (
  insert into windlass.scheduled (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type)
  select p.id, p.rank, p.ready_at, 0, 0, p.thread_demand, false, p.queue, p.type from placed p where p.later
), tagged as (
  insert into windlass.tag (tag, job_id) select unnest(p.tags), p.id from placed p where p.tags is not null
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select case when p.later then 'scheduled' else 'ready' end, p.queue, p.type, count(*)
  from placed p group by 1, p.queue, p.type
)
select p.id, case when p.n = 1 then statement_timestamp() end as created_at from placed p;

-- name: enqueue_one
-- The usual case, one job to run now and without tags, as values instead of arrays; and the worker that rests longest has it by
-- the same commit. If that worker has said so a moment ago, and its listener holds the lock that shows it is there, the job is handed
-- to it: it is in `running` at once ($15 is its token), which on an idle system saves a third of the way to its first line; the
-- lease is told on the worker's secret channel. Else it is told to look. One such transaction at a time ($14 is its lock): NOTIFY makes commits wait for each other's disk; none
-- while notifications pile up behind a listener that hangs, or are longer than PostgreSQL takes (8,000 bytes): both would fail the
-- commit. Nobody woken: the caller looks again after the commit, as somebody may have lain down meanwhile, or does not hear
-- notifications.
with stored as (
  insert into windlass.job (id, type, name, queue, priority, thread_demand, payload, max_attempts, timeout_s, retry,
    if_too_wide, trace, created_at)
  values ($1::uuid, $2::text, $3::text, $4::text, $5::smallint, $6::smallint, $7::text::json, $8::integer,
    $9::double precision, $10::text::json, $11::text, $12::text, statement_timestamp())
  on conflict (id) do nothing
  returning id, windlass.microseconds(statement_timestamp()) + 1 - ($5 * $13::double precision * 1000000)::bigint as rank
), found as (
  select i.worker_id from windlass.idle i
  where ($4 = any (i.queues) or $4 ^@ any (i.prefixes)) and $2 = any (i.types) and $6 <= i.free and not i.pops
    and exists (
      select from windlass.worker w
      where w.id = i.worker_id and w.died_at is null and not w.draining and w.lease_until > now()
    )
    and not exists (select from windlass.reservation v where v.worker_id = i.worker_id and v.expires_at > now())
    and exists (select from stored s) and pg_notification_queue_usage() < 0.5
    and (select pg_try_advisory_xact_lock($14::bigint))
  order by i.since, i.worker_id limit 1
  for update of i skip locked
), gone as (
  delete from windlass.idle i where i.worker_id = any (array(select f.worker_id from found f))
  returning i.worker_id,
    case when i.hand_until > statement_timestamp() and not pg_try_advisory_xact_lock(hashtextextended(i.hand_key::text, 0))
      then i.hand_key end as hand_key
), lease as (
  select g.worker_id, json_build_array(s.id, $15::uuid, $2, $4, $6, s.rank, $8, $9, $10::text::json, $7::text::json, $3, $5,
    $12)::text as told
  from stored s, gone g where g.hand_key is not null
), handed as (
  insert into windlass.running (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type, claimed_at,
    token, worker_id)
  select s.id, s.rank, statement_timestamp(), 1, 0, $6, false, $4, $2, statement_timestamp(), $15, l.worker_id
  from stored s, lease l
  where octet_length(l.told) < 7900 and not exists (select from windlass.queue q where q.name = $4 and q.paused)
  returning job_id
), readied as (
  insert into windlass.ready (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type)
  select s.id, s.rank, statement_timestamp(), 0, 0, $6, false, $4, $2
  from stored s where not exists (select from handed)
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select case when exists (select from handed) then 'running' else 'ready' end, $4, $2, 1 from stored s
)
select s.id, statement_timestamp() as created_at, (
  select pg_notify('windlass_' || replace((case when h.job_id is null then g.worker_id else g.hand_key end)::text, '-', ''),
    case when h.job_id is null then '' else (select l.told from lease l) end) is not null
  from gone g left join handed h on true
) as woken
from stored s;

-- name: enqueue_keys
-- Take idempotency keys for new jobs. Guard: the key. The caller sorts by key: unsorted batches deadlock. Who has
-- them now is read by another statement, whose snapshot can see the winner. $4: the keys without their namespace,
-- null for those that have none. A key that code without namespaces has stored is found under that: its job must not
-- be stored again after a deploy.
insert into windlass.idempotency (key, job_id, fingerprint, created_at, namespaced)
select n.key, n.job_id, n.fingerprint, now(), true
from unnest($1::text[], $2::uuid[], $3::bytea[], $4::text[]) as n (key, job_id, fingerprint, plain)
where n.plain is null
  or not exists (select from windlass.idempotency i where i.key = any (array[n.plain]) and i.namespaced is null)
on conflict (key) do nothing;

-- name: key_holders
-- Who has these keys, and for which body; $2: without their namespace, as for enqueue_keys.
select i.key, i.job_id, i.fingerprint from windlass.idempotency i where i.key = any ($1::text[])
union all
select n.key, i.job_id, i.fingerprint
from unnest($1::text[], $2::text[]) as n (key, plain)
join windlass.idempotency i on i.key = any (array[n.plain]) and i.namespaced is null
where n.plain is not null and not exists (select from windlass.idempotency o where o.key = any (array[n.key]));

-- name: stored_bodies
-- What is stored under ids that a caller repeats, to tell a repetition from a collision. JSON as text: a caller's
-- own connection may decode it.
select j.id, j.type, j.name, j.queue, j.priority, j.thread_demand, j.payload::text as payload, j.max_attempts,
  j.timeout_s, j.retry::text as retry,
  j.tags, j.idempotency_key, j.if_too_wide, j.scheduled_at, j.namespace,
  date_part('epoch', j.scheduled_at - j.created_at) as delay_s
from (
  select * from windlass.job where id = any ($1::uuid[])
  union all select * from windlass.job_kept where id = any ($1::uuid[])
) j;

-- name: cancel
-- Cancel waiting jobs; ask the workers of running ones, if $3. Guard: whoever deletes the row owns the move. The caller
-- sorts the ids. Returns where each job now is; a job that was just moving is in neither and must be looked for again.
with from_scheduled as (
  delete from windlass.scheduled t where t.job_id = any ($1::uuid[])
  returning t.job_id, t.ready_at, t.attempt, t.failures, t.queue, t.type
), from_held as (
  delete from windlass.held t where t.job_id = any ($1::uuid[])
  returning t.job_id, t.ready_at, t.attempt, t.failures, t.queue, t.type
), from_ready as (
  delete from windlass.ready t where t.job_id = any ($1::uuid[])
  returning t.job_id, t.ready_at, t.attempt, t.failures, t.queue, t.type
), gone as (
  select 'scheduled' as status, s.* from from_scheduled s
  union all select 'held', h.* from from_held h
  union all select 'ready', r.* from from_ready r
), running as (
  update windlass.running t set cancel_requested = coalesce(t.cancel_requested, $2::text::json)
  where t.job_id = any ($1::uuid[]) and $3::boolean
  returning t.job_id
), finished as (
  insert into windlass.outcome (job_id, ready_at, finished_at, attempt, failures, status, queue, type, error)
  select g.job_id, g.ready_at, now(), g.attempt, g.failures, 'cancelled', g.queue, g.type, $2::text::json
  from gone g where g.job_id >= (select h.id from windlass.horizon h)
  on conflict do nothing
), finished_kept as (
  insert into windlass.outcome_kept (job_id, ready_at, finished_at, attempt, failures, status, queue, type, error)
  select g.job_id, g.ready_at, now(), g.attempt, g.failures, 'cancelled', g.queue, g.type, $2::text::json
  from gone g where g.job_id < (select h.id from windlass.horizon h)
  on conflict do nothing
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select case side.sign when 1 then 'cancelled' else g.status end, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values (-1), (1)) as side (sign)
  group by 1, g.queue, g.type, side.sign
)
select g.job_id, 'cancelled' as status from gone g
union all
select r.job_id, 'running' from running r;

-- name: retry
-- Make finished jobs ready again: the old outcome goes to attempt, failures begin anew. Guard: whoever deletes the
-- outcome owns the move, so of two retries at once one finds nothing; and only outcomes of the given statuses. The caller sorts the ids. A job whose partition
-- is going takes its job row along; one whose job row is out of sight meanwhile is left alone, or it would be lost.
with seen as materialized (
  select id from windlass.job where id = any ($1::uuid[])
  union all select id from windlass.job_kept where id = any ($1::uuid[])
), from_outcome as (
  delete from windlass.outcome o where o.job_id = any ($1::uuid[]) and o.job_id = any (array(select s.id from seen s))
    and o.status = any ($3::text[])
  returning o.*
), from_kept as (
  delete from windlass.outcome_kept o where o.job_id = any ($1::uuid[]) and o.job_id = any (array(select s.id from seen s))
    and o.status = any ($3::text[])
  returning o.*
), gone as (
  select * from from_outcome union all select * from from_kept
), recorded as (
  insert into windlass.attempt (job_id, attempt, started_at, ended_at, status, worker_id, token, result, error,
    fingerprint, log)
  select g.job_id, g.attempt, g.started_at, g.finished_at, g.status, g.worker_id, g.token, g.result, g.error,
    g.fingerprint, g.log
  from gone g where g.job_id >= (select h.id from windlass.horizon h)
), recorded_kept as (
  insert into windlass.attempt_kept (job_id, attempt, started_at, ended_at, status, worker_id, token, result, error,
    fingerprint, log)
  select g.job_id, g.attempt, g.started_at, g.finished_at, g.status, g.worker_id, g.token, g.result, g.error,
    g.fingerprint, g.log
  from gone g where g.job_id < (select h.id from windlass.horizon h)
), forgotten as (  -- the start of a job that is started once at most: to run it again is a person's decision
  delete from windlass.effect e
  where e.job_id = any (array(select g.job_id from gone g)) and e.key = 'windlass:start'
), leaving as (
  delete from windlass.job j
  where j.id = any ($1::uuid[]) and j.id = any (array(select g.job_id from gone g))
    and j.id < (select h.id from windlass.horizon h)
  returning j.*
), kept as (
  insert into windlass.job_kept select * from leaving on conflict do nothing
), readied as (
  insert into windlass.ready (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type)
  select g.job_id, windlass.microseconds(now()) - (j.priority * $2::double precision * 1000000)::bigint, now(),
    g.attempt, 0, j.thread_demand, false, g.queue, g.type
  from gone g
  cross join lateral (
    select priority, thread_demand from windlass.job where id = g.job_id
    union all
    select priority, thread_demand from windlass.job_kept where id = g.job_id
    limit 1
  ) j
  on conflict do nothing
  returning job_id
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select case side.sign when 1 then 'ready' else g.status end, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values (-1), (1)) as side (sign)
  group by 1, g.queue, g.type, side.sign
)
select r.job_id, 'ready' as status from readied r;

-- name: discard
-- Take failed jobs out of the dead letters. Each is cancelled, with the reason given, and its failure is kept as an attempt. Guard: whoever
-- deletes the failed outcome owns the move, so a replay at the same time has either all of it or nothing. The caller sorts the ids.
-- A job whose partition is going takes its job row along, as in retry.
with seen as materialized (
  select id from windlass.job where id = any ($1::uuid[])
  union all select id from windlass.job_kept where id = any ($1::uuid[])
), from_outcome as (
  delete from windlass.outcome o where o.job_id = any ($1::uuid[]) and o.job_id = any (array(select s.id from seen s))
    and o.status = 'failed'
  returning o.*
), from_kept as (
  delete from windlass.outcome_kept o where o.job_id = any ($1::uuid[]) and o.job_id = any (array(select s.id from seen s))
    and o.status = 'failed'
  returning o.*
), gone as (
  select * from from_outcome union all select * from from_kept
), recorded as (
  insert into windlass.attempt (job_id, attempt, started_at, ended_at, status, worker_id, token, result, error,
    fingerprint, log)
  select g.job_id, g.attempt, g.started_at, g.finished_at, g.status, g.worker_id, g.token, g.result, g.error,
    g.fingerprint, g.log
  from gone g where g.job_id >= (select h.id from windlass.horizon h)
), recorded_kept as (
  insert into windlass.attempt_kept (job_id, attempt, started_at, ended_at, status, worker_id, token, result, error,
    fingerprint, log)
  select g.job_id, g.attempt, g.started_at, g.finished_at, g.status, g.worker_id, g.token, g.result, g.error,
    g.fingerprint, g.log
  from gone g where g.job_id < (select h.id from windlass.horizon h)
), leaving as (
  delete from windlass.job j
  where j.id = any ($1::uuid[]) and j.id = any (array(select g.job_id from gone g))
    and j.id < (select h.id from windlass.horizon h)
  returning j.*
), kept as (
  insert into windlass.job_kept select * from leaving on conflict do nothing
), finished as (
  insert into windlass.outcome (job_id, ready_at, finished_at, attempt, failures, status, queue, type, error)
  select g.job_id, g.ready_at, now(), g.attempt, g.failures, 'cancelled', g.queue, g.type, $2::text::json
  from gone g where g.job_id >= (select h.id from windlass.horizon h)
), finished_kept as (
  insert into windlass.outcome_kept (job_id, ready_at, finished_at, attempt, failures, status, queue, type, error)
  select g.job_id, g.ready_at, now(), g.attempt, g.failures, 'cancelled', g.queue, g.type, $2::text::json
  from gone g where g.job_id < (select h.id from windlass.horizon h)
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select case side.sign when 1 then 'cancelled' else 'failed' end, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values (-1), (1)) as side (sign)
  group by 1, g.queue, g.type, side.sign
)
select g.job_id, 'cancelled' as status from gone g;

-- name: run_now
-- Make scheduled or held jobs ready at once; they keep their priority's head start. Guard: as cancel; and a job that needs a
-- decision stays, or the question what became of its effect would never be answered.
with from_scheduled as (
  delete from windlass.scheduled t where t.job_id = any ($1::uuid[])
  returning t.job_id, t.rank, t.ready_at, t.attempt, t.failures, t.thread_demand, t.suspect, t.queue, t.type, t.crashed_at
), from_held as (
  delete from windlass.held t where t.job_id = any ($1::uuid[]) and t.reason <> 'needs decision'
  returning t.job_id, t.rank, t.ready_at, t.attempt, t.failures, t.thread_demand, t.suspect, t.queue, t.type, t.crashed_at
), gone as (
  select 'scheduled' as status, s.* from from_scheduled s
  union all select 'held', h.* from from_held h
), readied as (
  insert into windlass.ready (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type, crashed_at)
  select g.job_id, g.rank + windlass.microseconds(now()) - windlass.microseconds(g.ready_at), now(), g.attempt,
    g.failures, g.thread_demand, g.suspect, g.queue, g.type, g.crashed_at
  from gone g
  on conflict do nothing
  returning job_id
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select case side.sign when 1 then 'ready' else g.status end, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values (-1), (1)) as side (sign)
  group by 1, g.queue, g.type, side.sign
)
select r.job_id, 'ready' as status from readied r;

-- name: whereabouts
-- The table each job sits in, for jobs an action did not find; null: its job row exists but it is moving right now. And why it
-- is held, if it is.
select k.id as job_id, coalesce(
  (select 'scheduled' from windlass.scheduled t where t.job_id = k.id),
  (select 'held' from windlass.held t where t.job_id = k.id),
  (select 'ready' from windlass.ready t where t.job_id = k.id),
  (select 'running' from windlass.running t where t.job_id = k.id),
  (select o.status from windlass.outcome o where o.job_id = k.id),
  (select o.status from windlass.outcome_kept o where o.job_id = k.id)
) as status, (select t.reason from windlass.held t where t.job_id = k.id) as reason
from (
  select id from windlass.job where id = any ($1::uuid[])
  union all select id from windlass.job_kept where id = any ($1::uuid[])
) k;

-- name: set_paused
-- Claims read the flag; nothing moves.
insert into windlass.queue (name, paused) values ($1, $2)
on conflict (name) do update set paused = excluded.paused;
