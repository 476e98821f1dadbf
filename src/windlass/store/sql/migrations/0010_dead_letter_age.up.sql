-- serves: 7
-- Failed jobs by when they failed: the oldest of them, and those past their retention, are found without a look at the others.
-- Costs nothing but to jobs that failed.
create index outcome_failed_age on windlass.outcome (finished_at, job_id) where status = 'failed';
create index outcome_kept_failed_age on windlass.outcome_kept (finished_at, job_id) where status = 'failed';
