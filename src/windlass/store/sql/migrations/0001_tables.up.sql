-- serves: 1
-- The tables. A job is written once (job); its state is the table its key sits in (scheduled, held, ready, running,
-- outcome). Every change of state is `delete … returning` feeding `insert`: whoever deletes the row owns the move.
-- No foreign keys, no triggers, no plpgsql. Time is now(); rank is in microseconds.

-- What was asked. Range-partitioned on the id: a UUIDv7 carries its time, so a look-up touches one partition and
-- retention removes whole ones. `_kept` holds what outlives its partition.
create table windlass.job (
  id              uuid primary key,
  created_at      timestamptz not null,
  scheduled_at    timestamptz,
  timeout_s       double precision not null check (timeout_s > 0),
  max_attempts    integer not null check (max_attempts >= 1),
  priority        smallint not null check (priority between -100 and 100),
  thread_demand   smallint not null check (thread_demand >= 1),
  type            text not null,
  queue           text not null,
  if_too_wide     text not null check (if_too_wide in ('narrow', 'wait', 'fail')),
  name            text,
  payload         json not null,
  retry           json,
  tags            text[],
  idempotency_key text,
  trace           text
) partition by range (id);
create table windlass.job_kept (like windlass.job including all);

-- The tags of jobs, for lists by tag.
create table windlass.tag (
  tag    text,
  job_id uuid,
  primary key (tag, job_id)
) partition by range (job_id);
create table windlass.tag_kept (like windlass.tag including all);

-- Due later: a first run in the future, a back-off, a snooze. ready_at is when it is due.
create table windlass.scheduled (
  job_id        uuid primary key,
  rank          bigint not null,
  ready_at      timestamptz not null,
  attempt       integer not null,
  failures      integer not null,
  thread_demand smallint not null,
  suspect       boolean not null,
  queue         text not null,
  type          text not null,
  crashed_at    timestamptz[]
);
create index scheduled_due on windlass.scheduled (ready_at);

-- Waits for something other than time; reason says for what.
create table windlass.held (like windlass.scheduled including all, reason text not null);
drop index windlass.held_ready_at_idx;
create index held_reason on windlass.held (reason, type, rank);

-- May be claimed now. The hot index is (queue, thread_demand, rank): a claim asks per queue and demand, so that wide
-- jobs at the head are not walked by every narrow claim.
create table windlass.ready (like windlass.scheduled including all);
drop index windlass.ready_ready_at_idx;
create index ready_claim on windlass.ready (queue, thread_demand, rank);

-- Claimed. Every write about it names token, attempt and worker. cancel_requested says why; null while nobody asked.
create table windlass.running (
  like windlass.ready including defaults including constraints,
  claimed_at       timestamptz not null,
  token            uuid not null,
  worker_id        uuid not null,
  cancel_requested json,
  progress         real,
  progress_note    text,
  primary key (job_id)
);
create index running_worker on windlass.running (worker_id);
create index running_cancel on windlass.running (worker_id) where cancel_requested is not null;

-- Hot tables turn over completely: vacuum by count, not by share, and never stop the world to give pages back.
alter table windlass.ready     set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, vacuum_truncate = off);
alter table windlass.running   set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, vacuum_truncate = off);
alter table windlass.scheduled set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, vacuum_truncate = off);

-- Finished. The lists people ask for run newest job first: all, by type and queue (one index for both: the counts say
-- which pairs there are, and a second index would cost every job a microsecond and a half); and for what is rare
-- (failed, cancelled) by status. Completed jobs are most, so they need no status index.
create table windlass.outcome (
  job_id      uuid primary key,
  ready_at    timestamptz not null,
  started_at  timestamptz,
  finished_at timestamptz not null,
  attempt     integer not null,
  failures    integer not null,
  threads     smallint,
  status      text not null check (status in ('completed', 'failed', 'cancelled')),
  queue       text not null,
  type        text not null,
  worker_id   uuid,
  token       uuid,
  result      json,
  error       json,
  fingerprint text,
  log         text
) partition by range (job_id);
create index outcome_line on windlass.outcome (type, queue, job_id);
create index outcome_status on windlass.outcome (status, job_id) where status <> 'completed';
create index outcome_status_type on windlass.outcome (status, type, job_id) where status <> 'completed';
create index outcome_status_queue on windlass.outcome (status, queue, job_id) where status <> 'completed';
create table windlass.outcome_kept (like windlass.outcome including all);

-- One attempt that ended without finishing the job, or an outcome that a retry set aside.
create table windlass.attempt (
  job_id      uuid not null,
  attempt     integer not null,
  started_at  timestamptz,
  ended_at    timestamptz not null,
  status      text not null check (status in ('completed', 'failed', 'cancelled', 'lost')),
  worker_id   uuid,
  token       uuid,
  result      json,
  error       json,
  fingerprint text,
  log         text
) partition by range (job_id);
create index attempt_job on windlass.attempt (job_id, attempt);
create table windlass.attempt_kept (like windlass.attempt including all);

-- Partitions below this id are gone or going: what is written about older jobs goes to the `_kept` tables.
create table windlass.horizon (id uuid not null);
insert into windlass.horizon values ('00000000-0000-0000-0000-000000000000');

-- One worker process. died_at is final; cause: left, crashed (its supervisor saw it), expired (its lease ended).
create table windlass.worker (
  id            uuid primary key,
  supervisor_id uuid,
  started_at    timestamptz not null,
  renewed_at    timestamptz not null,
  lease_until   timestamptz not null,
  died_at       timestamptz,
  threads       integer not null check (threads >= 1),
  draining      boolean not null default false,
  lost_threads  integer not null default 0,  -- held by handlers that cannot be stopped
  name          text not null,
  queues        text[] not null,
  types         text[] not null,
  cause         text check (cause in ('left', 'crashed', 'expired')),
  check ((died_at is null) = (cause is null))
);
create index worker_living on windlass.worker (lease_until) where died_at is null;

-- A worker with room and nothing to claim, since when: the least recently used is woken first. Hints only, so unlogged:
-- after a crash of the server every worker puts itself here again.
create unlogged table windlass.idle (
  worker_id uuid primary key,
  since     timestamptz not null,
  free      integer not null,
  queues    text[] not null,
  types     text[] not null
);

-- What a step of a job returned (ctx.once), so that a later attempt does not do it again. Goes with its job.
create table windlass.step (
  job_id uuid not null,
  key    text not null,
  token  uuid not null,
  at     timestamptz not null,
  result json not null,
  primary key (job_id, key)
);

-- Threads kept free on one worker for one wide job. Short-lived: the leader renews it while the job waits.
create table windlass.reservation (
  worker_id  uuid primary key,
  job_id     uuid not null unique,
  threads    integer not null,
  expires_at timestamptz not null
);

-- Settings of a queue; a queue without a row has the defaults.
create table windlass.queue (
  name   text primary key,
  paused boolean not null default false
);

create table windlass.idempotency (
  key         text primary key,
  job_id      uuid not null,
  created_at  timestamptz not null,
  fingerprint bytea not null
);
create index idempotency_job on windlass.idempotency (job_id);
create index idempotency_age on windlass.idempotency (created_at, key);

-- Counts per queue, type and status. Statements append what they changed (counter); the leader folds it (tally).
-- Not updated in place: under a held snapshot a row updated a thousand times a second is a chain as long.
-- xid lets readers begin where the last fold ended instead of walking what it deleted.
create table windlass.counter (
  xid    xid8 not null default pg_current_xact_id(),
  n      integer not null,
  status text not null,
  queue  text not null,
  type   text not null
);
create index counter_xid on windlass.counter (xid);
create table windlass.tally (
  horizon xid8 not null,
  n       bigint not null,
  status  text not null,
  queue   text not null,
  type    text not null
);
create index tally_horizon on windlass.tally (horizon);

-- The term of the leader: one row.
create table windlass.leader (
  only_one   boolean primary key default true check (only_one),
  holder     uuid not null,
  term       bigint not null,
  expires_at timestamptz not null
);
