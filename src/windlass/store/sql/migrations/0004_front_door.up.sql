-- serves: 3
-- What the front door needs: the types there are, who may come in and with what, and who did what. And indexes for
-- the failed jobs, by their kind of error.

-- A type as the workers that know it declare it. Stays when they are gone: its jobs may still be asked for.
create table windlass.job_type (
  name          text primary key,
  declared_at   timestamptz not null,
  timeout_s     double precision not null,
  max_attempts  integer not null,
  priority      smallint not null,
  thread_demand smallint not null,
  queue         text not null,
  if_too_wide   text not null,
  tags          text[] not null,
  retry         json,
  description   text,
  schema        json
);

-- Who may log in. No two names that differ in case alone: in a list, or in the audit, one would pass for the other.
create table windlass.account (
  name          text primary key,
  created_at    timestamptz not null,
  password_hash text not null,
  scopes        text[] not null
);
create unique index account_name on windlass.account (lower(name));

-- A key of a program: its digest, never itself. A revoked one stays, so that its use can be told from a wrong one's.
create table windlass.api_key (
  id           uuid primary key,
  created_at   timestamptz not null,
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  digest       bytea not null unique,
  name         text not null,
  prefix       text not null,
  scopes       text[] not null
);

-- Tokens that can be used once and were; forgotten when they would be refused for their age.
create table windlass.spent (
  token_id text primary key,
  until    timestamptz not null
);
create index spent_until on windlass.spent (until);

-- Tokens that are refused, by their id, or by their subject if they were issued before `at`.
create table windlass.revoked (
  what  text primary key,
  at    timestamptz not null,
  until timestamptz not null
);

-- Who did what. Written, and never changed.
create table windlass.audit (
  id         bigint generated always as identity primary key,
  at         timestamptz not null,
  actor      text not null,
  action     text not null,
  target     text,
  detail     json,
  request_id text
);

-- The failed jobs of one kind of error, newest first. What follows costs nothing but to jobs that did not complete.
create index outcome_fingerprint on windlass.outcome (fingerprint, job_id) where status = 'failed';
create index outcome_kept_fingerprint on windlass.outcome_kept (fingerprint, job_id) where status = 'failed';

-- All failed jobs, or those of a type or queue, newest first, with what they are grouped by: ten thousand are grouped
-- without a look at their rows. The first on the id alone: the planner takes an index that begins with the status for one
-- whose rows lie scattered, and would rather walk all that has finished.
create index outcome_failed on windlass.outcome (job_id) include (type, queue, fingerprint, finished_at) where status = 'failed';
create index outcome_kept_failed on windlass.outcome_kept (job_id) include (type, queue, fingerprint, finished_at)
  where status = 'failed';
drop index windlass.outcome_status_type, windlass.outcome_status_queue;
drop index windlass.outcome_kept_status_type_job_id_idx, windlass.outcome_kept_status_queue_job_id_idx;
create index outcome_status_type on windlass.outcome (status, type, job_id) include (queue, fingerprint, finished_at)
  where status <> 'completed';
create index outcome_kept_status_type on windlass.outcome_kept (status, type, job_id)
  include (queue, fingerprint, finished_at) where status <> 'completed';
create index outcome_status_queue on windlass.outcome (status, queue, job_id) include (type, fingerprint, finished_at)
  where status <> 'completed';
create index outcome_kept_status_queue on windlass.outcome_kept (status, queue, job_id)
  include (type, fingerprint, finished_at) where status <> 'completed';
