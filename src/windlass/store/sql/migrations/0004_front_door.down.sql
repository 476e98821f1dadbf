drop index windlass.outcome_kept_status_queue, windlass.outcome_kept_status_type;
drop index windlass.outcome_status_queue, windlass.outcome_status_type;
create index outcome_status_type on windlass.outcome (status, type, job_id) where status <> 'completed';
create index outcome_status_queue on windlass.outcome (status, queue, job_id) where status <> 'completed';
create index outcome_kept_status_type_job_id_idx on windlass.outcome_kept (status, type, job_id) where status <> 'completed';
create index outcome_kept_status_queue_job_id_idx on windlass.outcome_kept (status, queue, job_id) where status <> 'completed';
drop index windlass.outcome_kept_failed, windlass.outcome_failed;
drop index windlass.outcome_kept_fingerprint, windlass.outcome_fingerprint;
drop table windlass.audit, windlass.revoked, windlass.spent, windlass.api_key, windlass.account, windlass.job_type;
