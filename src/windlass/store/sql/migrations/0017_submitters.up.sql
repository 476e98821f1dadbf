-- serves: 15
-- What a subject may submit, and whose idempotency keys and ids are whose.

-- What one subject of the API may submit; null: no limit. A subject without a row has no quota, and a namespace of
-- its own.
create table windlass.submitter (
  subject           text primary key,
  namespace         text,
  waiting_max       integer check (waiting_max >= 0),
  threads_max       integer check (threads_max >= 0),
  thread_demand_max integer check (thread_demand_max >= 1),
  timeout_s_max     double precision check (timeout_s_max > 0),
  submissions_per_s double precision check (submissions_per_s > 0)
);

-- The jobs that count against the quota of a subject, until they have finished. Only jobs of subjects with such a
-- quota are here.
create table windlass.charge (
  job_id  uuid primary key,
  subject text not null,
  threads smallint not null
);
create index charge_subject on windlass.charge (subject, job_id);

-- Whose id a job has that was submitted with one. Null: the application's, or one that was made here.
alter table windlass.job add column namespace text;
alter table windlass.job_kept add column namespace text;

-- `key` begins with the namespace (model.scoped_key). Null: stored by code that knew no namespaces, so whoever
-- repeats the key finds it.
alter table windlass.idempotency add column namespaced boolean;
